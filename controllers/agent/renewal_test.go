package agent

import (
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// schemed is a manager that has a scheme, and nothing else.
type schemed struct{ manager.Manager }

func (schemed) GetScheme() *runtime.Scheme { return Scheme() }

// TestATokenIsRenewedOverTheConnectionThatWorks, if a join has brought a wrong address: as whoever has the token of the
// Secret, and not as whoever the connection is of.
func TestATokenIsRenewedOverTheConnectionThatWorks(t *testing.T) {
	t.Parallel() // it waits for the address that does not answer
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	var as []string
	hub := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		answer := `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"v1","resources":[` +
			`{"name":"serviceaccounts","namespaced":true,"kind":"ServiceAccount","verbs":["get"]}]}`
		switch {
		case r.Method == http.MethodPost:
			as = append(as, r.Header.Get("Authorization")+" "+r.URL.Path)
			answer = `{"kind":"TokenRequest","apiVersion":"authentication.k8s.io/v1","status":{"token":"fresh"}}`
		case r.URL.Path == "/api":
			answer = `{"kind":"APIVersions","versions":["v1"]}`
		case strings.HasPrefix(r.URL.Path, "/apis"):
			answer = `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`
		}
		_, _ = io.WriteString(w, answer)
	}))
	defer hub.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hub.Certificate().Raw})
	works := &rest.Config{Host: hub.URL, BearerToken: "of the connection",
		TLSClientConfig: rest.TLSClientConfig{CAData: append(ca, '\n')}}
	given := &rest.Config{Host: "https://" + silent.Addr().String(), BearerToken: "of the file",
		TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
	a := &Agent{mgr: schemed{}, hub: func() (*rest.Config, error) { return given, nil }}
	hubs := func() []client.Client {
		t.Helper()
		hubs, err := renewalHubs(a, "of the Secret")
		if err != nil {
			t.Fatal(err)
		}
		return hubs
	}
	if n := len(hubs()); n != 1 {
		t.Errorf("before there is a connection: %d ways to the hub", n)
	}
	a.linked.Store(
		&link{config: &rest.Config{Host: hub.URL, TLSClientConfig: rest.TLSClientConfig{CAData: []byte("b")}}},
	)
	if len(hubs()) != 1 {
		t.Error("the token goes to a hub with another CA")
	}
	a.linked.Store(&link{config: works})
	answers := 0
	for _, hub := range hubs() {
		account, request := &corev1.ServiceAccount{}, &authenticationv1.TokenRequest{}
		account.Namespace, account.Name = "blue", "mcs-east"
		if err := hub.SubResource("token").Create(t.Context(), account, request); err == nil {
			answers++
		}
	}
	if want := "Bearer of the Secret /api/v1/namespaces/blue/serviceaccounts/mcs-east/token"; answers != 1 ||
		len(as) != 1 || as[0] != want {
		t.Errorf("%d tokens, asked for as %q, want %q", answers, as, want)
	}
	if given = works; len(hubs()) != 1 {
		t.Error("the same way is tried twice")
	}
}

// TestNewCredentialsThatDoNotWorkAreStated while the connection of earlier ones is used, and no longer.
func TestNewCredentialsThatDoNotWorkAreStated(t *testing.T) {
	t.Parallel()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	works, given := &rest.Config{Host: "https://works"}, &rest.Config{Host: "https://" + closed.Addr().String()}
	a := &Agent{mgr: schemed{}, hub: func() (*rest.Config, error) { return given, nil }}
	a.env = &kube.Env{
		Member: kube.Member{Fresh: func() bool { return true }}, Cloned: func() bool { return false },
	}
	a.linked.Store(&link{config: works})
	a.log = logr.Discard()
	a.env.Restart = func(string) { t.Error("it ends for credentials that do not work") }
	a.access.Store(accessOf(works))
	a.tryAccess(t.Context(), a.newAccess())
	if f := factsOf(a); f.Hub != works.Host || f.Unused == nil || f.Answer != nil {
		t.Errorf("%+v", f)
	}
	given = works
	if f := factsOf(a); f.Unused != nil {
		t.Errorf("after the way back: %v", f.Unused)
	}
}
