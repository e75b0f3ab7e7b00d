package dnsendpoint

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	externaldnsv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/externaldns/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// member is a cluster with the controller.
type member struct {
	client.WithWatch
	*reconciler
	t       *testing.T
	missing error
	writes  int
	refuse  error // the next writes
	events  []string
}

func (m *member) Event(_ runtime.Object, _, reason, message string) {
	m.events = append(m.events, reason+": "+message)
}

func newMember(t *testing.T, objects ...client.Object) *member {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		discoveryv1.AddToScheme, mcsv1beta1.Install, externaldnsv1alpha1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	m := &member{t: t}
	m.WithWatch = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithIndex(&discoveryv1.EndpointSlice{}, kube.ByExternal, func(o client.Object) []string {
			return []string{kube.Key(kube.ExternalOf(o))}
		}).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(
				ctx context.Context, under client.WithWatch, o client.Object, opts ...client.CreateOption,
			) error {
				if m.writes++; m.refuse != nil {
					return m.refuse
				}
				return under.Create(ctx, o, opts...)
			},
			Update: func(
				ctx context.Context, under client.WithWatch, o client.Object, opts ...client.UpdateOption,
			) error {
				if m.writes++; m.refuse != nil {
					return m.refuse
				}
				return under.Update(ctx, o, opts...)
			},
			Delete: func(
				ctx context.Context, under client.WithWatch, o client.Object, opts ...client.DeleteOption,
			) error {
				m.writes++
				return under.Delete(ctx, o, opts...)
			},
		}).Build()
	m.reconciler = &reconciler{Config{
		Member: kube.Member{
			Local: m.WithWatch, Events: m, Missing: func(client.Object) error { return m.missing },
		},
		Zone: zone,
	}}
	return m
}

// pass runs one pass, and another that must write nothing.
func (m *member) pass() reconcile.Result {
	m.t.Helper()
	result, err := m.Reconcile(m.t.Context(), reconcile.Request{NamespacedName: shop})
	if err != nil {
		m.t.Fatal(err)
	}
	writes := m.writes
	if _, err := m.Reconcile(m.t.Context(), reconcile.Request{NamespacedName: shop}); err != nil {
		m.t.Fatal(err)
	}
	if m.writes != writes {
		m.t.Errorf("a pass over a settled state wrote %d times", m.writes-writes)
	}
	return result
}

func (m *member) endpoint() *externaldnsv1alpha1.DNSEndpoint {
	m.t.Helper()
	name := types.NamespacedName{Namespace: shop.Namespace, Name: "external-shop"}
	e, err := kube.Get[*externaldnsv1alpha1.DNSEndpoint](m.t.Context(), m.WithWatch, name)
	if err != nil {
		m.t.Fatal(err)
	}
	return e
}

func (m *member) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

func imported() *mcsv1beta1.ServiceImport {
	return &mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{
		Namespace: shop.Namespace, Name: shop.Name, UID: "the-import",
		Labels: map[string]string{derived.LabelManagedBy: kube.Manager},
	}}
}

func TestF6WritesUpdatesAndDeletes(t *testing.T) {
	east, west := outside("east", "", true, "192.0.2.1"), outside("west", "", true, "198.51.100.1")
	imp := imported()
	imp.Finalizers = []string{"example.com/keeps"}
	m := newMember(t, imp, &east, &west)
	m.pass()
	e := m.endpoint()
	if e == nil || !kube.Owned(e) || len(e.OwnerReferences) != 1 || e.OwnerReferences[0].UID != "the-import" ||
		*e.OwnerReferences[0].Controller {
		t.Fatalf("%+v", e)
	}
	if want := Records(
		zone,
		shop,
		[]discoveryv1.EndpointSlice{east, west},
	); !reflect.DeepEqual(
		e.Spec.Endpoints,
		want,
	) {
		t.Errorf("%v, want %v", e.Spec.Endpoints, want)
	}
	e.Spec.Endpoints[0].Targets = []string{"203.0.113.9"} // an edit
	m.must(m.Update(t.Context(), e))
	m.must(m.Delete(t.Context(), &west))
	m.pass()
	e = m.endpoint()
	if want := Records(zone, shop, []discoveryv1.EndpointSlice{east}); !reflect.DeepEqual(e.Spec.Endpoints, want) {
		t.Errorf("%v, want %v", e.Spec.Endpoints, want)
	}
	m.must(m.Delete(t.Context(), imp))
	if m.pass(); m.endpoint() == nil {
		t.Error("an import that a finalizer keeps has lost its external names")
	}
	m.must(m.Delete(t.Context(), &east))
	m.pass()
	if e := m.endpoint(); e != nil {
		t.Errorf("without external names there is %v", e.Spec)
	}
}

func TestI10ADNSEndpointOfOthersStays(t *testing.T) {
	east := outside("east", "", true, "192.0.2.1")
	theirs := &externaldnsv1alpha1.DNSEndpoint{ObjectMeta: metav1.ObjectMeta{
		Namespace: shop.Namespace, Name: "external-shop",
	}}
	m := newMember(t, imported(), &east, theirs)
	m.pass()
	m.must(m.Delete(t.Context(), &east))
	m.writes = 0
	m.pass()
	if e := m.endpoint(); m.writes > 0 || e == nil || len(e.Spec.Endpoints) > 0 {
		t.Errorf("%d writes, %v", m.writes, e)
	}
	if len(m.events) == 0 || !strings.HasPrefix(m.events[0], "DNSEndpointNotOwned: ") {
		t.Errorf("events %v", m.events)
	}
}

// TestI10NamesOfOthersImportsAreNotWritten: nor are those of slices that somebody else made.
func TestI10NamesOfOthersImportsAreNotWritten(t *testing.T) {
	for name, change := range map[string]func(*mcsv1beta1.ServiceImport, *discoveryv1.EndpointSlice){
		"import of another program": func(imp *mcsv1beta1.ServiceImport, _ *discoveryv1.EndpointSlice) {
			imp.Labels = nil
		},
		"slice of another program": func(_ *mcsv1beta1.ServiceImport, s *discoveryv1.EndpointSlice) {
			s.Labels[discoveryv1.LabelManagedBy] = "user"
		},
		"no import": func(imp *mcsv1beta1.ServiceImport, _ *discoveryv1.EndpointSlice) { imp.Name = "other" },
	} {
		t.Run(name, func(t *testing.T) {
			imp, east := imported(), outside("east", "", true, "192.0.2.1")
			change(imp, &east)
			m := newMember(t, imp, &east)
			if m.pass(); m.endpoint() != nil {
				t.Errorf("it wrote %v", m.endpoint().Spec)
			}
		})
	}
}

// TestI10ATakenOverImportChangesNothing while its slices stay. Without them there are no external names.
func TestI10ATakenOverImportChangesNothing(t *testing.T) {
	imp, east := imported(), outside("east", "", true, "192.0.2.1")
	m := newMember(t, imp, &east)
	m.pass()
	m.must(m.Get(t.Context(), shop, imp))
	imp.Labels = nil
	m.must(m.Update(t.Context(), imp))
	east.Endpoints[0].Addresses = []string{"192.0.2.9"}
	m.must(m.Update(t.Context(), &east))
	m.writes = 0
	if m.pass(); m.writes > 0 || m.endpoint() == nil {
		t.Errorf("%d writes, %v", m.writes, m.endpoint())
	}
	m.must(m.Delete(t.Context(), &east))
	if m.pass(); m.endpoint() != nil {
		t.Errorf("without external names there is %v", m.endpoint().Spec)
	}
}

func TestAMissingKindIsReportedAndLookedForAgain(t *testing.T) {
	east := outside("east", "", true, "192.0.2.1")
	m := newMember(t, imported(), &east)
	m.missing = errors.New("no matches for kind DNSEndpoint")
	if m.pass().RequeueAfter == 0 || len(m.events) == 0 || m.writes > 0 {
		t.Errorf("events %v, %d writes", m.events, m.writes)
	}
	m.missing = nil
	if m.pass(); m.endpoint() == nil {
		t.Error("it is not written once the kind is there")
	}
	m.must(m.Delete(t.Context(), &east))
	m.missing, m.events = errors.New("none"), nil
	if m.pass().RequeueAfter > 0 || len(m.events) > 0 {
		t.Error("a name without external addresses is no reason to ask for the kind")
	}
}

// TestU6ARefusedDNSEndpointIsReported on the import, with the API server's words.
func TestU6ARefusedDNSEndpointIsReported(t *testing.T) {
	east := outside("east", "", true, "192.0.2.1")
	m := newMember(t, imported(), &east)
	m.refuse = apierrors.NewForbidden(externaldnsv1alpha1.GroupVersion.WithResource("dnsendpoints").GroupResource(),
		"external-shop", errors.New("denied by policy"))
	if _, err := m.Reconcile(t.Context(), reconcile.Request{NamespacedName: shop}); !errors.Is(err, m.refuse) {
		t.Error(err)
	}
	if len(m.events) != 1 || !strings.HasPrefix(m.events[0], "DNSEndpointRefused: ") ||
		!strings.Contains(m.events[0], "denied by policy") {
		t.Errorf("events %q", m.events)
	}
}
