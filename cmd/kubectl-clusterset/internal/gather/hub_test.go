package gather

import (
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
		set    string
		want   string
	}{
		{Source{HubNamespace: "clusterset"}, blue, "green", "blue"},
		{Source{HubNamespace: "red", NamespaceGiven: true}, blue, "green", "red"},
		{Source{HubNamespace: "clusterset"}, nil, "green", "green"},
		{Source{HubNamespace: "clusterset"}, nil, "", "clusterset"},
		{Source{HubNamespace: "clusterset"}, &doctor.Credentials{Problem: "no token"}, "", "clusterset"},
	} {
		if got := c.source.namespace(c.creds, c.set); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

// TestOnlyAnAPIServerRefuses: nobody listens or answers, a certificate is wrong, or something between has a problem.
func TestOnlyAnAPIServerRefuses(t *testing.T) {
	answers := func(code int) string {
		s := httptest.NewTLSServer(
			http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }),
		)
		t.Cleanup(s.Close)
		return s.URL
	}
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
		"401":             {rest.Config{Host: answers(http.StatusUnauthorized), TLSClientConfig: insecure}, true},
		"403":             {rest.Config{Host: answers(http.StatusForbidden), TLSClientConfig: insecure}, true},
		"429":             {rest.Config{Host: answers(http.StatusTooManyRequests), TLSClientConfig: insecure}, false},
		"503":             {rest.Config{Host: answers(503), TLSClientConfig: insecure}, false},
		"x509":            {rest.Config{Host: answers(http.StatusUnauthorized)}, false},
		"does not listen": {rest.Config{Host: "https://" + nobody.Addr().String()}, false},
		"does not speak": {rest.Config{Host: "https://" + silent.Addr().String(), Timeout: 50 * time.Millisecond},
			false},
	} {
		hub, err := cluster.New("the hub", &c.cfg)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := hub.Ask(t.Context()); err == nil || refused(err) != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}
