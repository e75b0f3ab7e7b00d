package lifecycle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
)

// TestInitNamesItsOwnClusterSetAndHub in what is to be done next, or about a failure: with --hub-context, the current
// context is another cluster.
func TestInitNamesItsOwnClusterSetAndHub(t *testing.T) {
	for namespace, want := range map[string]string{
		"blue":              "--hub-context=HUB --hub-namespace=blue --cluster-id ID --image r/c:v1",
		DefaultHubNamespace: "--hub-context=HUB --cluster-id ID --image r/c:v1",
	} {
		o := &Options{HubNamespace: namespace, Image: "r/c:v1"}
		if namespace != DefaultHubNamespace {
			o.Flags.HubNamespace = namespace
		}
		if got := o.next(); !strings.HasSuffix(got, want) {
			t.Errorf("%s: %q, want %q", namespace, got, want)
		}
	}

	o, _ := options(inMemory(interceptor.Funcs{}))
	o.Timeout = time.Nanosecond
	const want = "→ run the same command with --image IMAGE"
	if err := o.awaitHub(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}

// TestInitReleasesANamespaceThatIsBeingDeleted: the controller of the hub has lost the right to, with its Role. What
// another program keeps stays.
func TestInitReleasesANamespaceThatIsBeingDeleted(t *testing.T) {
	for _, finalizers := range [][]string{
		{clusterset.FinalizerRecords}, {clusterset.FinalizerRecords, "example.com/theirs"},
	} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "blue"}}
		east := profile("east", clusterset.AnnotationClusterUID, "uid")
		east.Finalizers = finalizers
		now := metav1.Now()
		ns.DeletionTimestamp, east.DeletionTimestamp, ns.Finalizers = &now, &now, []string{"kubernetes"}
		hub := inMemory(interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey,
			o client.Object, opts ...client.GetOption) error {
			var profiles inventoryv1alpha1.ClusterProfileList
			if _, is := o.(*corev1.Namespace); is { // as the namespace controller sees it
				if err := c.List(ctx, &profiles); err == nil && len(profiles.Items) == 0 {
					return apierrors.NewNotFound(corev1.Resource("namespaces"), key.Name)
				}
			}
			return c.Get(ctx, key, o, opts...)
		}}, ns, east)
		o, _ := options(hub)
		o.Timeout = time.Second
		if err := o.freeNamespace(t.Context()); (err == nil) != (len(finalizers) == 1) {
			t.Errorf("%v: %v", finalizers, err)
		}
		left := &inventoryv1alpha1.ClusterProfile{}
		err := hub.Get(t.Context(), client.ObjectKeyFromObject(east), left)
		if len(finalizers) == 2 && (err != nil || !slices.Equal(left.Finalizers, finalizers[1:])) {
			t.Errorf("%+v, %v", left, err)
		}
	}
}

// TestInitLeavesANamespaceThatIsNotBeingDeleted alone.
func TestInitLeavesANamespaceThatIsNotBeingDeleted(t *testing.T) {
	east := profile("east", clusterset.AnnotationClusterUID, "uid")
	east.Finalizers = []string{clusterset.FinalizerRecords}
	hub := inMemory(interceptor.Funcs{}, east, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "blue"}})
	o, said := options(hub)
	left := &inventoryv1alpha1.ClusterProfile{}
	err := errors.Join(o.freeNamespace(t.Context()), hub.Get(t.Context(), client.ObjectKeyFromObject(east), left))
	if err != nil || len(left.Finalizers) != 1 || said.String() != "" {
		t.Errorf("%v; %+v; %s", err, left, said)
	}
}

func kindOf(o runtime.ApplyConfiguration) string {
	var out metav1.TypeMeta
	text, _ := json.Marshal(o)
	_ = json.Unmarshal(text, &out)
	return out.Kind
}

// TestWhoIsNoAdminIsRefusedBeforeAnythingIsWritten, unless the API server accepts all in a dry run.
func TestWhoIsNoAdminIsRefusedBeforeAnythingIsWritten(t *testing.T) {
	for refuses, want := range map[string]string{
		"Role":    "you lack rights on the hub, and nothing was written: the hub: applying Role ",
		"Nothing": "it writes",
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"gitVersion": "v1.36.0"}`)
		}))
		defer server.Close()
		hub := inMemory(interceptor.Funcs{
			Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
				return nil // a review, which allows nothing
			},
			Apply: func(_ context.Context, _ client.WithWatch, o runtime.ApplyConfiguration,
				opts ...client.ApplyOption) error {
				var all client.ApplyOptions
				all.ApplyOptions(opts)
				switch {
				case len(all.DryRun) == 0:
					return errors.New("it writes")
				case kindOf(o) == refuses:
					return apierrors.NewForbidden(schema.GroupResource{}, "x", errors.New("no"))
				}
				return nil
			},
		})
		hub.Config = &rest.Config{Host: server.URL}
		o, _ := options(hub)
		o.Release, o.Wait = "r/c:v1", true
		if err := Init(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
