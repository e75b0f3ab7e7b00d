package lifecycle

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// TestInitNamesItsOwnClusterSetAndHub in what is to be done next, or about a failure: with --hub-context, the current
// context is another cluster.
func TestInitNamesItsOwnClusterSetAndHub(t *testing.T) {
	for namespace, want := range map[string]string{
		"blue":              "--hub-context HUB --hub-namespace=blue --cluster-id ID --image r/c:v1",
		DefaultHubNamespace: "--hub-context HUB --cluster-id ID --image r/c:v1",
	} {
		o := &InitOptions{Options: Options{HubNamespace: namespace, Image: "r/c:v1"}}
		if got := o.next(); !strings.HasSuffix(got, want) {
			t.Errorf("%s: %q, want %q", namespace, got, want)
		}
	}

	hub := inMemory(interceptor.Funcs{Delete: func(context.Context, client.WithWatch, client.Object,
		...client.DeleteOption) error {
		return errors.New("quota exceeded")
	}})
	hub.Config = &rest.Config{Host: "https://127.0.0.1:1"}
	o, said := options(hub)
	interrupted, interrupt := context.WithCancel(t.Context())
	interrupt()
	err := o.checkPolicies(interrupted)
	const there = "→ on the hub: kubectl -n blue delete rolebinding "
	if err == nil || !strings.Contains(said.String(), there) {
		t.Errorf("%v; it does not say %q: %s", err, there, said)
	}

	o.Timeout = time.Nanosecond
	const want = "→ run the same command with --image IMAGE"
	if err := o.awaitHub(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}
