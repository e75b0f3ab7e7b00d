package snapshot

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
)

// TestTheAgentReadsItsOwnNamespace of the hub, whatever --hub-namespace says: its credentials are for no other. Without
// a Secret, its arguments show it.
func TestTheAgentReadsItsOwnNamespace(t *testing.T) {
	admin, agent := &cluster.Cluster{}, &appsv1.Deployment{}
	agent.Spec.Template.Spec.Containers = []corev1.Container{{Args: []string{"--hub-namespace=brown"}}}
	for want, c := range map[string]struct {
		hub         *cluster.Cluster
		given       string
		credentials *Credentials
		agent       *appsv1.Deployment
	}{
		"blue":    {nil, "red", &Credentials{Namespace: "blue"}, nil},
		"red":     {admin, "red", &Credentials{Namespace: "blue"}, nil},
		"green":   {admin, "", &Credentials{Namespace: "green"}, nil},
		"yellow":  {nil, "yellow", nil, nil},
		"default": {nil, "", &Credentials{}, nil},
		"brown":   {admin, "", nil, agent},
	} {
		s := &Source{Hub: c.hub, Given: c.given, Namespace: "default"}
		if got := s.namespace(&Member{Credentials: c.credentials, Agent: c.agent}); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
