package gather

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/doctor"
)

// TestTheHubsNamespaceIsTheMembers unless another is asked for.
func TestTheHubsNamespaceIsTheMembers(t *testing.T) {
	blue := &doctor.Credentials{Namespace: "blue"}
	for _, c := range []struct {
		source Source
		creds  *doctor.Credentials
		want   string
	}{
		{Source{HubNamespace: "clusterset"}, blue, "blue"},
		{Source{HubNamespace: "red", NamespaceGiven: true}, blue, "red"},
		{Source{HubNamespace: "clusterset"}, nil, "clusterset"},
		{Source{HubNamespace: "clusterset"}, &doctor.Credentials{Problem: "no token"}, "clusterset"},
	} {
		if got := c.source.namespace(c.creds); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

// TestWhoSaysNothingIsUnreachable: nobody listens, or nobody answers; a refusal and a wrong certificate are answers.
func TestWhoSaysNothingIsUnreachable(t *testing.T) {
	refuses := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer refuses.Close()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody.Close()
	insecure := rest.TLSClientConfig{Insecure: true}
	for name, c := range map[string]struct {
		cfg  rest.Config
		want bool
	}{
		"401":     {rest.Config{Host: refuses.URL, TLSClientConfig: insecure}, false},
		"x509":    {rest.Config{Host: refuses.URL}, false},
		"refused": {rest.Config{Host: "https://" + nobody.Addr().String()}, true},
		"does not speak": {rest.Config{Host: "https://" + silent.Addr().String(), Timeout: 50 * time.Millisecond},
			true},
	} {
		hub, err := cluster.New("the hub", &c.cfg)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := hub.Ask(t.Context()); err == nil || unreachable(err) != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
	if lookup := (&net.OpError{Op: "dial",
		Err: &net.DNSError{IsNotFound: true}}); !unreachable(fmt.Errorf("no such host: %w", lookup)) {
		t.Error(lookup)
	}
}
