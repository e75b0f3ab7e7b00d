package serviceimport

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/endpoints"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// member is cluster a, which imports shop/web, a headless Service. Its API server refuses what refuse does.
type member struct {
	*reconciler
	t          *testing.T
	local, hub client.WithWatch
	refuse     error    // of creations of slices
	keep       error    // of deletions of slices
	told       []string // reasons of Events
	writes     int      // of any kind, to the member's API server
	seesHub    bool
	later      time.Duration // than the clock
}

func newMember(t *testing.T) *member {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{coordinationv1.AddToScheme, corev1.AddToScheme,
		aboutv1beta1.AddToScheme, discoveryv1.AddToScheme, hubv1alpha1.AddToScheme, mcsv1beta1.Install} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	m := &member{t: t, seesHub: true}
	hub, local := fake.NewClientBuilder().
		WithScheme(s),
		fake.NewClientBuilder().
			WithScheme(s).
			WithStatusSubresource(
				&mcsv1beta1.ServiceImport{}, &mcsv1beta1.ServiceExport{}, &hubv1alpha1.ServiceExportRecord{},
			).
			WithObjects(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}).
			WithInterceptorFuncs(interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch,
				o client.Object, opts ...client.CreateOption) error {
				if _, slice := o.(*discoveryv1.EndpointSlice); slice && m.refuse != nil {
					return m.refuse
				}
				m.writes++
				o.SetUID(types.UID(fmt.Sprint(o.GetName(), m.writes)))
				return c.Create(ctx, o, opts...)
			}, Delete: func(ctx context.Context, c client.WithWatch, o client.Object,
				opts ...client.DeleteOption) error {
				if _, slice := o.(*discoveryv1.EndpointSlice); slice && m.keep != nil {
					return m.keep
				}
				m.writes++
				return c.Delete(ctx, o, opts...)
			}, Update: func(ctx context.Context, c client.WithWatch, o client.Object,
				opts ...client.UpdateOption) error {
				m.writes++
				return c.Update(ctx, o, opts...)
			}, SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object,
				opts ...client.SubResourceUpdateOption) error {
				m.writes++
				return c.SubResource(sub).Update(ctx, o, opts...)
			}, SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object,
				p client.Patch, opts ...client.SubResourcePatchOption) error {
				m.writes++
				return c.SubResource(sub).Patch(ctx, o, p, opts...)
			}})
	for _, x := range kube.Indexes() {
		if x.Side == kube.Hub {
			hub = hub.WithIndex(x.Object, x.Field, x.Values)
		} else {
			local = local.WithIndex(x.Object, x.Field, x.Values)
		}
	}
	m.hub, m.local = hub.Build(), local.Build()
	m.reconciler = newReconciler(Config{
		Member: kube.Member{
			Cluster:      "a",
			HubNamespace: "set",
			Now:          func() time.Time { return time.Now().Add(m.later) },
			Events:       m,
			Local:        m.local,
			Hub: func() client.Client {
				if m.seesHub {
					return m.hub
				}
				return nil
			},
			Families: func(context.Context) ([]corev1.IPFamily, error) {
				return []corev1.IPFamily{corev1.IPv4Protocol},
					nil
			},
		},
		Gateways: func() bool { return false },
	})
	return m
}

func (m *member) Event(_ runtime.Object, _, reason, _ string) { m.told = append(m.told, reason) }

// export has a cluster export shop/web with one endpoint. This cluster's own record is a copy, and the others' are on
// the hub.
func (m *member) export(cluster, address string) {
	m.t.Helper()
	at, number := metav1.Now(), int32(8080)
	rec := &hubv1alpha1.ServiceExportRecord{}
	side := m.records(cluster, rec)
	rec.UID = types.UID(fmt.Sprint(rec.Name, m.writes))
	rec.Spec.Origin = hubv1alpha1.Origin{ClusterID: cluster, ServiceNamespace: "shop", ServiceName: "web", Revision: 1}
	rec.Spec.Type, rec.Spec.ExportedAt, rec.Spec.IPFamilies = mcsv1beta1.Headless, &at, []corev1.IPFamily{
		corev1.IPv4Protocol,
	}
	rec.Spec.Ports = []hubv1alpha1.ServicePort{{Protocol: corev1.ProtocolTCP, Port: 80}}
	if cluster != m.Cluster {
		rec.Spec.Endpoints = []hubv1alpha1.EndpointGroup{{
			AddressType: discoveryv1.AddressTypeIPv4,
			Ports:       []hubv1alpha1.EndpointPort{{Protocol: corev1.ProtocolTCP, Port: 80, Target: &number}},
			Endpoints:   []hubv1alpha1.Endpoint{{Address: address}},
		}}
	}
	if err := side.Create(m.t.Context(), rec); err != nil {
		m.t.Fatal(err)
	}
}

// records names a cluster's record, and returns where it is.
func (m *member) records(cluster string, rec *hubv1alpha1.ServiceExportRecord) client.Client {
	rec.Namespace, rec.Name = "set", clusterset.RecordName("web", "shop", cluster)
	if cluster == m.Cluster {
		rec.Namespace = kube.SystemNamespace
		return m.local
	}
	return m.hub
}

// edit has a cluster change its record.
func (m *member) edit(cluster string, do func(*hubv1alpha1.ServiceExportRecord)) {
	m.t.Helper()
	rec := &hubv1alpha1.ServiceExportRecord{}
	side := m.records(cluster, rec)
	if err := side.Get(m.t.Context(), client.ObjectKeyFromObject(rec), rec); err != nil {
		m.t.Fatal(err)
	}
	rec.Spec.Revision++
	do(rec)
	if err := side.Update(m.t.Context(), rec); err != nil {
		m.t.Fatal(err)
	}
}

func (m *member) pass() error {
	_, err := m.Reconcile(
		m.t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "shop", Name: "web"}},
	)
	return err
}

// slices are all in this cluster.
func (m *member) slices() []discoveryv1.EndpointSlice {
	m.t.Helper()
	var list discoveryv1.EndpointSliceList
	if err := m.local.List(m.t.Context(), &list); err != nil {
		m.t.Fatal(err)
	}
	return list.Items
}

// imported are the slices, by source cluster.
func (m *member) imported() map[string]*discoveryv1.EndpointSlice {
	m.t.Helper()
	out := map[string]*discoveryv1.EndpointSlice{}
	for _, slice := range m.slices() {
		out[slice.Labels[mcsv1beta1.LabelSourceCluster]] = &slice
	}
	return out
}

// traffic are the traffic slices, by source cluster.
func (m *member) traffic() map[string]*discoveryv1.EndpointSlice {
	m.t.Helper()
	out := map[string]*discoveryv1.EndpointSlice{}
	for _, slice := range m.slices() {
		out[slice.Labels[endpoints.LabelCluster]] = &slice
	}
	return out
}

// TestI2WhatCannotBeWrittenHoldsNobodysEndpoints: where a quota refuses one cluster's slice, another's that has
// withdrawn goes all the same, the import says what is exported, and the refusal is told; after a conflict, or where
// a user has just deleted it, the next pass sees what is there.
func TestI2WhatCannotBeWrittenHoldsNobodysEndpoints(t *testing.T) {
	resource := discoveryv1.Resource("endpointslices")
	for _, c := range []struct {
		refusal error
		stays   bool
	}{{apierrors.NewForbidden(resource, "x", errors.New("exceeded quota")), false},
		{apierrors.NewInvalid(schema.GroupKind{}, "x", nil), false},
		{apierrors.NewConflict(resource, "x", errors.New("changed")), true},
		{apierrors.NewNotFound(resource, "x"), true}} {
		m := newMember(t)
		m.export("d", "10.4.0.1")
		if err := m.pass(); err != nil || m.imported()["d"] == nil {
			t.Fatal(err, m.imported())
		}
		m.export("c", "10.3.0.1")
		m.edit("c", func(rec *hubv1alpha1.ServiceExportRecord) {
			rec.Spec.Ports = []hubv1alpha1.ServicePort{
				{Name: "a", Protocol: corev1.ProtocolTCP, Port: 80},
				{Name: "b", Protocol: corev1.ProtocolTCP, Port: 81},
			}
		})
		m.edit("d", func(rec *hubv1alpha1.ServiceExportRecord) { rec.Spec.Withdrawn = true })
		m.refuse = c.refusal
		m.told = nil
		if err := m.pass(); !errors.Is(err, c.refusal) || (m.imported()["d"] != nil) != c.stays {
			t.Errorf("%v: told %v, what was withdrawn stays: %v", c.refusal, err, m.imported()["d"] != nil)
		}
		imp := &mcsv1beta1.ServiceImport{}
		if err := m.local.Get(t.Context(), types.NamespacedName{Namespace: "shop", Name: "web"}, imp); err != nil {
			t.Fatal(err)
		}
		if told := slices.Contains(m.told, "SliceRefused"); told == c.stays ||
			(imp.Status.Clusters[0].Cluster == "d") != c.stays || (len(imp.Spec.Ports) == 1) != c.stays {
			t.Errorf("%v: a user is told %v, and sees %+v", c.refusal, m.told, imp)
		}
		m.refuse = nil
		if err := m.pass(); err != nil || m.imported()["d"] != nil || m.imported()["c"] == nil {
			t.Errorf("then: %v, %v", err, m.imported())
		}
	}
}

// TestC9EndpointsThatMoveStayUntilTheyAreWritten: a cluster's endpoints move to another group, which is refused here.
// The first goes once that is there; one that nothing takes the place of goes at once.
func TestC9EndpointsThatMoveStayUntilTheyAreWritten(t *testing.T) {
	for _, refusal := range []error{
		apierrors.NewTimeoutError("the server did not answer", 1),
		apierrors.NewForbidden(schema.GroupResource{}, "x", errors.New("exceeded quota")),
		apierrors.NewInvalid(schema.GroupKind{}, "x", nil),
	} {
		m := newMember(t)
		m.export("c", "10.3.0.1")
		m.export("d", "10.4.0.1")
		m.edit("c", func(rec *hubv1alpha1.ServiceExportRecord) {
			first := hubv1alpha1.EndpointGroup{AddressType: discoveryv1.AddressTypeIPv6}
			rec.Spec.Endpoints = []hubv1alpha1.EndpointGroup{first, rec.Spec.Endpoints[0]}
		})
		m.mustPass()
		m.edit("c", func(rec *hubv1alpha1.ServiceExportRecord) { rec.Spec.Endpoints = rec.Spec.Endpoints[1:] })
		m.edit("d", func(rec *hubv1alpha1.ServiceExportRecord) {
			rec.Spec.Endpoints[0].AddressType = discoveryv1.AddressTypeIPv6 // of a slice of another name
			rec.Spec.Endpoints[0].Endpoints[0].Address = "fd00::1"
		})
		m.refuse = refusal
		if err := m.pass(); !errors.Is(err, m.refuse) || !m.has("c", "10.3.0.1") || m.has("d", "10.4.0.1") {
			t.Errorf("told %v; imported: %s", err, m.addresses())
		}
		m.refuse = nil
		if err := m.pass(); err != nil || !m.has("c", "10.3.0.1") || !m.has("d", "fd00::1") {
			t.Errorf("then: %v, %v", err, m.imported())
		}
		if n := len(m.slices()); n != 2 {
			t.Errorf("then: %d slices", n)
		}
	}
}

// has returns whether an imported slice of a cluster has an address.
func (m *member) has(cluster, address string) bool {
	m.t.Helper()
	return slices.ContainsFunc(m.slices(), func(s discoveryv1.EndpointSlice) bool {
		return s.Labels[mcsv1beta1.LabelSourceCluster] == cluster &&
			slices.ContainsFunc(s.Endpoints, func(e discoveryv1.Endpoint) bool { return e.Addresses[0] == address })
	})
}

// TestC9AnEndpointThatMovesToARefusedPageStays in the page that it leaves, alone, by a whole pass and by one over a
// settled name: an API server calls a slice invalid as well if an admission policy denies it. A pass asks once.
func TestC9AnEndpointThatMovesToARefusedPageStays(t *testing.T) {
	for _, settles := range []bool{true, false} {
		for _, moved := range []func(*member){
			func(m *member) { m.page("c", 1, "10.0.2.9") },
			func(m *member) {
				m.edit("c", func(rec *hubv1alpha1.ServiceExportRecord) { rec.Spec.Pages = 1 })
			},
		} {
			m := paged(t, 2)
			page := client.ObjectKey{Namespace: "set", Name: clusterset.PageName(1, "web", "shop", "c")}
			edited(m, m.hub, &hubv1alpha1.EndpointPage{}, page, func(p *hubv1alpha1.EndpointPage) {
				p.Spec.Revision++
				p.Spec.Endpoints = append(p.Spec.Endpoints, hubv1alpha1.Endpoint{Address: "10.0.2.2"})
			})
			m.mustPass()
			if m.settled[types.NamespacedName{Namespace: "shop", Name: "web"}] == nil {
				t.Fatal("the name is not settled")
			}
			if !settles {
				clear(m.settled)
			}
			m.page("c", 0, "10.0.2.1") // so far in page 1
			moved(m)
			refusal, asked := apierrors.NewInvalid(schema.GroupKind{}, "x", nil), 0
			m.refuseWrites(func(o client.Object) error {
				if o.GetAnnotations()[endpoints.AnnotationSource] == endpoints.SourceName(0, "c") {
					asked++
					return refusal
				}
				return nil
			})
			for i := range 2 {
				if err := m.pass(); !errors.Is(err, refusal) || asked != i+1 || !m.has("c", "10.0.2.1") ||
					m.has("c", "10.0.2.2") {
					t.Errorf("settled %v, pass %d: %v; asked %d times; imported: %s", settles, i, err, asked,
						m.addresses())
				}
			}
			m.Local = m.local
			if m.mustPass(); !m.has("c", "10.0.2.1") || m.has("c", "10.0.2.0") {
				t.Errorf("settled %v, then: %s", settles, m.addresses())
			}
		}
	}
}

// ranges has one address, or makes imports wait while it is busy.
type ranges struct{ busy bool }

func (v *ranges) Pick(context.Context, *ipam.Request) ([]netip.Addr, error) {
	if v.busy {
		return nil, ipam.ErrPending
	}
	return []netip.Addr{netip.MustParseAddr("10.96.0.9")}, nil
}

func (v *ranges) Refused(_ context.Context, _ *ipam.Request, _ []netip.Addr, err error) error {
	return err
}

func (v *ranges) Allocated(context.Context, *ipam.Request, *corev1.Service, time.Duration) {}

// failing has no address, for a reason that never has the same text twice.
type failing struct {
	ranges
	attempts int
}

func (v *failing) Pick(context.Context, *ipam.Request) ([]netip.Addr, error) {
	v.attempts++
	return nil, fmt.Errorf("read tcp 10.0.0.5:%d: connection reset by peer", 40000+v.attempts)
}

// TestI4AFailureWhoseTextDiffersIsWrittenOnce, and what it has become a minute later: each write brings the next
// attempt before its time.
func TestI4AFailureWhoseTextDiffersIsWrittenOnce(t *testing.T) {
	m := newMember(t)
	m.Addresses = &failing{}
	m.export("c", "10.3.0.1")
	m.edit("c", func(rec *hubv1alpha1.ServiceExportRecord) { rec.Spec.Type = mcsv1beta1.ClusterSetIP })
	_ = m.pass() // it makes the import and its slice
	for i, c := range []struct {
		later  time.Duration
		writes int
		says   string
	}{{0, 0, ":40001"}, {30 * time.Second, 0, ":40001"}, {time.Minute, 1, ":40004"}, {time.Minute, 0, ":40004"}} {
		m.writes, m.later = 0, c.later
		err := m.pass()
		imp := m.read(&mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}})
		ready := imp.(*mcsv1beta1.ServiceImport).Status.Conditions[0].Message
		if err == nil || m.writes != c.writes || !strings.Contains(ready, c.says) {
			t.Errorf("pass %d: %d writes, want %d; %q, want %s: %v", i, m.writes, c.writes, ready, c.says, err)
		}
	}
}

// TestC9ASliceThatTheCacheDoesNotShowYet may lack ports: the Service waits until it has been seen.
func TestC9ASliceThatTheCacheDoesNotShowYet(t *testing.T) {
	m := newMember(t)
	m.Addresses = &ranges{}
	m.export("c", "10.3.0.1")
	m.edit("c", func(rec *hubv1alpha1.ServiceExportRecord) { rec.Spec.Type = mcsv1beta1.ClusterSetIP })
	m.refuse = apierrors.NewAlreadyExists(discoveryv1.Resource("endpointslices"), "x")
	services := func() int {
		var list corev1.ServiceList
		if err := m.local.List(t.Context(), &list); err != nil {
			t.Fatal(err)
		}
		return len(list.Items)
	}
	if err := m.pass(); !apierrors.IsConflict(err) || services() != 0 {
		t.Errorf("%v, with %d Services", err, services())
	}
	m.refuse = nil
	if err := m.pass(); err != nil || services() != 1 || m.imported()["c"] == nil {
		t.Errorf("then: %v, with %d Services", err, services())
	}
}

// TestC9WhileAVIPIsBusyNoNameGoes: slices lose names of ports after the Service and the import have; what has
// withdrawn goes at once (I2).
func TestC9WhileAVIPIsBusyNoNameGoes(t *testing.T) {
	m, v := newMember(t), &ranges{}
	m.Addresses = v
	m.export("c", "10.3.0.1")
	m.export("d", "10.4.0.1")
	m.edit("c", func(rec *hubv1alpha1.ServiceExportRecord) { rec.Spec.Type = mcsv1beta1.ClusterSetIP })
	m.edit("d", func(rec *hubv1alpha1.ServiceExportRecord) { // the oldest
		rec.Spec.Type, rec.Spec.ExportedAt, rec.Spec.Ports[0].Name = mcsv1beta1.ClusterSetIP, &metav1.Time{
			Time: time.Unix(100, 0),
		}, "http"
	})
	names := func() (out []string) {
		for _, p := range slices.Concat(m.imported()["c"].Ports, m.traffic()["c"].Ports) {
			out = append(out, *p.Name)
		}
		slices.Sort(out)
		return out
	}
	if err := m.pass(); err != nil || !slices.Equal(names(), []string{"clusterset-tcp-80", "http"}) {
		t.Fatal(err, names())
	}
	if err := m.local.DeleteAllOf(t.Context(), &corev1.Service{}, client.InNamespace("shop")); err != nil {
		t.Fatal(err)
	}
	m.edit("d", func(rec *hubv1alpha1.ServiceExportRecord) { rec.Spec.Withdrawn = true })
	v.busy = true
	if err := m.pass(); err != nil || m.imported()["d"] != nil ||
		!slices.Equal(names(), []string{"", "clusterset-tcp-80", "http"}) {
		t.Errorf("busy: %v, %q, %v", err, names(), m.imported()["d"])
	}
	v.busy = false
	if err := m.pass(); err != nil || !slices.Equal(names(), []string{"", "clusterset-tcp-80"}) {
		t.Errorf("then: %v, %q", err, names())
	}
}

// TestI9AnImportThatHangsInDeletionFollowsItsExports, and is created again afterwards.
func TestI9AnImportThatHangsInDeletionFollowsItsExports(t *testing.T) {
	m := newMember(t)
	m.export("c", "10.3.0.1")
	m.mustPass()
	name := types.NamespacedName{Namespace: "shop", Name: "web"}
	imp := &mcsv1beta1.ServiceImport{}
	edited(m, m.local, imp, name, func(o *mcsv1beta1.ServiceImport) { o.Finalizers = []string{"example.com/theirs"} })
	if err := m.local.Delete(t.Context(), imp); err != nil {
		t.Fatal(err)
	}
	m.editGroup("c", func(g *hubv1alpha1.EndpointGroup) { g.Endpoints[0].Address = "10.3.0.2" })
	m.export("d", "10.4.0.1")
	m.mustPass()
	if got := m.imported(); got["d"] == nil || got["c"].Endpoints[0].Addresses[0] != "10.3.0.2" {
		t.Errorf("imported: %s", m.addresses())
	}
	edited(m, m.local, imp, name, func(o *mcsv1beta1.ServiceImport) {
		if len(o.Status.Clusters) != 2 || o.DeletionTimestamp == nil {
			t.Errorf("the import: %+v", o)
		}
		o.Finalizers = nil
	})
	m.mustPass()
	if is := m.read(imp); is == nil || is.GetUID() == imp.UID {
		t.Errorf("then: %+v", is)
	}
}

// TestS6TheImportedSliceGoesFirst: what it has is what is held.
func TestS6TheImportedSliceGoesFirst(t *testing.T) {
	m := newMember(t)
	m.Addresses = &ranges{}
	m.export("c", "10.3.0.1")
	m.edit("c", func(rec *hubv1alpha1.ServiceExportRecord) { rec.Spec.Type = mcsv1beta1.ClusterSetIP })
	m.mustPass()
	var deleted []string
	m.Local = interceptor.NewClient(m.local, interceptor.Funcs{Delete: func(ctx context.Context, c client.WithWatch,
		o client.Object, opts ...client.DeleteOption) error {
		if _, is := o.(*discoveryv1.EndpointSlice); is {
			deleted = append(deleted, o.GetName())
		}
		return c.Delete(ctx, o, opts...)
	}})
	m.edit("c", func(rec *hubv1alpha1.ServiceExportRecord) { rec.Spec.Withdrawn = true })
	m.mustPass()
	if len(deleted) != 2 || endpoints.IsProjection(deleted[0]) || !endpoints.IsProjection(deleted[1]) {
		t.Errorf("deleted, in this order: %q", deleted)
	}
}

// TestS2ASliceThatForgotItsSourceStays where no hub was seen that says whose it is; one that was gives it back what
// it says.
func TestS2ASliceThatForgotItsSourceStays(t *testing.T) {
	m := newMember(t)
	m.export("c", "10.3.0.1")
	m.export("d", "10.4.0.1")
	if err := m.pass(); err != nil {
		t.Fatal(err)
	}
	forget := func() {
		for _, slice := range m.imported() {
			delete(slice.Annotations, endpoints.AnnotationSource)
			if err := m.local.Update(t.Context(), slice); err != nil {
				t.Fatal(err)
			}
		}
	}
	forget()
	m.seesHub = false
	if err := m.pass(); err != nil || len(m.imported()) != 2 {
		t.Fatalf("without a hub: %v, %v", err, m.imported())
	}
	m.seesHub = true
	if err := m.pass(); err != nil {
		t.Fatal(err)
	}
	for _, cluster := range []string{"c", "d"} {
		if slice := m.imported()[cluster]; slice == nil ||
			slice.Annotations[endpoints.AnnotationSource] != endpoints.SourceName(0, cluster) {
			t.Errorf("with the hub: %v", slice)
		}
	}
	forget()
	for _, pages := range []int32{1, 0} { // a page that the hub does not show, then none
		for _, cluster := range []string{"c", "d"} {
			m.edit(cluster, func(rec *hubv1alpha1.ServiceExportRecord) {
				rec.Spec.Endpoints, rec.Spec.Pages = nil, pages
			})
		}
		if err := m.pass(); err != nil || (len(m.imported()) == 0) != (pages == 0) {
			t.Errorf("owners that state %d pages: %v, %v", pages, err, m.imported())
		}
	}
}

// TestC9APassWaitsForWhatTheLastOneChanged: an older export of d, in conflict with c's, comes and goes. The cache still
// shows c's slices of before, which have the port that the Service is to get again.
func TestC9APassWaitsForWhatTheLastOneChanged(t *testing.T) {
	m := newMember(t)
	m.Addresses = &ranges{}
	var lagging []discoveryv1.EndpointSlice // what the cache shows; nil: what there is
	m.Local = interceptor.NewClient(m.local, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch,
		list client.ObjectList, opts ...client.ListOption) error {
		err := c.List(ctx, list, opts...)
		l, ok := list.(*discoveryv1.EndpointSliceList)
		for i := 0; ok && i < len(l.Items); i++ {
			for _, old := range lagging {
				if old.Name == l.Items[i].Name {
					l.Items[i] = *old.DeepCopy()
				}
			}
		}
		return err
	}})
	export := func(cluster string, number int32, at int64) {
		m.export(cluster, "10.3.0.1")
		m.edit(cluster, func(rec *hubv1alpha1.ServiceExportRecord) {
			rec.Spec.Type, rec.Spec.ExportedAt = mcsv1beta1.ClusterSetIP, &metav1.Time{Time: time.Unix(at, 0)}
			rec.Spec.Ports[0].Name, rec.Spec.Ports[0].Port = "http", number
			rec.Spec.Endpoints[0].Ports[0].Port = number
		})
	}
	port := func() int32 {
		svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: derived.Name("shop", "web")}}
		if err := m.local.Get(t.Context(), client.ObjectKeyFromObject(svc), svc); err != nil {
			t.Fatal(err)
		}
		return svc.Spec.Ports[0].Port
	}
	export("c", 80, 200)
	m.mustPass()
	before := m.slices()
	export("d", 8080, 100)
	if err := m.pass(); err != nil || port() != 8080 || len(m.traffic()["c"].Ports) > 0 {
		t.Fatal(err, port(), m.traffic()["c"])
	}
	m.edit("d", func(rec *hubv1alpha1.ServiceExportRecord) { rec.Spec.Withdrawn = true })
	lagging = before
	if m.mustPass(); port() != 8080 {
		t.Errorf("the Service has port %d, and c's slice the ports %v", port(), m.traffic()["c"].Ports)
	}
	lagging = nil
	if m.mustPass(); port() != 80 || len(m.traffic()["c"].Ports) != 1 {
		t.Errorf("then: port %d, and c's slice has the ports %v", port(), m.traffic()["c"].Ports)
	}
}
