package snapshot

import (
	"testing"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
)

// TestTheAgentReadsItsOwnNamespace of the hub, whatever --hub-namespace says: its credentials are for no other.
func TestTheAgentReadsItsOwnNamespace(t *testing.T) {
	admin := &cluster.Cluster{}
	for want, c := range map[string]struct {
		hub         *cluster.Cluster
		given       string
		credentials *Credentials
	}{
		"blue":    {nil, "red", &Credentials{Namespace: "blue"}},
		"red":     {admin, "red", &Credentials{Namespace: "blue"}},
		"green":   {admin, "", &Credentials{Namespace: "green"}},
		"yellow":  {nil, "yellow", nil},
		"default": {nil, "", &Credentials{}},
	} {
		s := &Source{Hub: c.hub, Given: c.given, Namespace: "default"}
		if got := s.namespace(&Member{Credentials: c.credentials}); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
