package external

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
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/imports"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/liveness"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/reach"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/withdrawal"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// world is member a, with a hub on which a, b and c live. b exports shop/web with a load balancer and a ready endpoint.
type world struct {
	*reconciler
	t          *testing.T
	local, hub client.Client
	blind      bool
	writes     int   // of slices
	refusal    error // of them
	events     []string
}

var name = types.NamespacedName{Namespace: "shop", Name: "web"}

func newWorld(t *testing.T) *world {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		coordinationv1.AddToScheme, corev1.AddToScheme, discoveryv1.AddToScheme, mcsv1beta1.Install,
		hubv1alpha1.AddToScheme, aboutv1beta1.AddToScheme, inventoryv1alpha1.AddToScheme,
	} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	w := &world{t: t}
	count := func(o client.Object) {
		if _, slice := o.(*discoveryv1.EndpointSlice); slice {
			w.writes++
		}
	}
	hub, local := fake.NewClientBuilder().WithScheme(s), fake.NewClientBuilder().WithScheme(s).WithInterceptorFuncs(
		interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				if count(o); w.refusal != nil {
					return w.refusal
				}
				o.SetUID(types.UID(o.GetName()))
				return c.Create(ctx, o, opts...)
			},
			Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
				if count(o); w.refusal != nil {
					return w.refusal
				}
				return c.Update(ctx, o, opts...)
			},
			Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
				count(o)
				return c.Delete(ctx, o, opts...)
			},
		})
	for _, x := range kube.Indexes() {
		if x.Side == kube.Hub {
			hub = hub.WithIndex(x.Object, x.Field, x.Values)
		} else {
			local = local.WithIndex(x.Object, x.Field, x.Values)
		}
	}
	w.hub, w.local = hub.Build(), local.Build()
	w.reconciler = &reconciler{kube.Member{
		Cluster: "a", HubNamespace: "set", Local: w.local, Hub: func() client.Client { return w.hub },
		Reserved: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}, Events: w,
		Fresh: func() bool { return !w.blind },
	}}
	set := &hubv1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Namespace: "set", Name: "set"}}
	w.create(w.hub, set)
	for _, id := range []string{"a", "b", "c"} {
		w.create(w.hub, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Namespace: "set", Name: id, Annotations: map[string]string{withdrawal.AnnotationAcknowledged: ""},
		}})
	}
	w.create(w.hub, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "set", Name: "of-no-member"}})
	imp := &mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "web", Labels: map[string]string{derived.LabelManagedBy: kube.Manager},
	}}
	imp.Status.Clusters = []mcsv1beta1.ClusterStatus{{Cluster: "b"}}
	w.create(w.local, imp, record("b", "192.0.2.2"))
	w.create(w.hub, endpoint("b", true))
	return w
}

func (w *world) Event(_ runtime.Object, _, reason, message string) {
	w.events = append(w.events, reason+": "+message)
}

func (w *world) create(in client.Client, objects ...client.Object) {
	w.t.Helper()
	for _, o := range objects {
		if err := in.Create(w.t.Context(), o); err != nil {
			w.t.Fatal(err)
		}
	}
}

func record(cluster string, ips ...string) *hubv1alpha1.ServiceExportRecord {
	rec := &hubv1alpha1.ServiceExportRecord{}
	rec.Namespace, rec.Name = kube.SystemNamespace, clusterset.RecordName("web", "shop", cluster)
	rec.Spec.Origin = hubv1alpha1.Origin{ClusterID: cluster, ServiceNamespace: "shop", ServiceName: "web"}
	rec.Spec.Type, rec.Spec.IPFamilies = mcsv1beta1.ClusterSetIP, []corev1.IPFamily{corev1.IPv4Protocol}
	rec.Spec.ExportedAt = new(metav1.Unix(1_700_000_000, 0))
	rec.Annotations = map[string]string{clusterset.AnnotationCreated: "2026-11-02T00:00:00Z"}
	rec.Spec.External = &hubv1alpha1.ExternalAddresses{IPs: ips}
	return rec
}

// endpoint returns a cluster's record on the hub, with one endpoint.
func endpoint(cluster string, ready bool) *hubv1alpha1.ServiceExportRecord {
	rec := record(cluster)
	rec.Namespace = "set"
	rec.Spec.Endpoints = []hubv1alpha1.EndpointGroup{
		{Endpoints: []hubv1alpha1.Endpoint{{Address: "10.1.0.1", Ready: &ready}}},
	}
	return rec
}

// change edits an object.
func change[T client.Object](w *world, in client.Client, o T, edit func(T)) {
	w.t.Helper()
	if err := in.Get(w.t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		w.t.Fatal(err)
	}
	edit(o)
	if err := in.Update(w.t.Context(), o); err != nil {
		w.t.Fatal(err)
	}
}

// doesNotReach lets a member state in its Lease that it does not reach clusters.
func (w *world) doesNotReach(id string, clusters ...string) {
	w.t.Helper()
	since := map[string]time.Time{}
	for _, c := range clusters {
		since[c] = time.Unix(1_700_000_000, 0)
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "set", Name: id}}
	change(w, w.hub, lease, func(l *coordinationv1.Lease) { reach.WriteUnreachable(l, since) })
}

// expire lets this member take a cluster for expired.
func (w *world) expire(id string) {
	w.t.Helper()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: kube.SystemNamespace, Name: liveness.LeaseName(id),
		Labels: map[string]string{liveness.LabelSource: id}, Annotations: map[string]string{},
	}}
	liveness.State{Expired: true}.Write(lease.Annotations)
	w.create(w.local, lease)
}

// want runs a pass and compares all slices, as "name address ready". A second pass must write nothing.
func (w *world) want(want ...string) {
	w.t.Helper()
	for i := range 2 {
		if i == 1 {
			w.writes = 0
		}
		if _, err := w.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: name}); err != nil {
			w.t.Fatal(err)
		}
	}
	if w.writes > 0 {
		w.t.Errorf("a settled name is written %d times", w.writes)
	}
	var list discoveryv1.EndpointSliceList
	if err := w.local.List(w.t.Context(), &list); err != nil {
		w.t.Fatal(err)
	}
	var got []string
	for _, s := range list.Items {
		for _, e := range s.Endpoints {
			got = append(got, fmt.Sprint(s.Name, " ", e.Addresses[0], " ", *e.Conditions.Ready))
		}
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		w.t.Errorf("%q, want %q", got, want)
	}
}

const (
	up   = "web.b.external-ipv4 192.0.2.2 true"
	down = "web.b.external-ipv4 192.0.2.2 false"
)

func TestF5UpIsADecisionOfTheLive(t *testing.T) {
	w := newWorld(t)
	w.want(up)
	w.expire("b")
	w.want(up) // one of two others
	w.doesNotReach("c", "b")
	w.want(down)
	w.expire("c")
	w.want(down) // this member alone is left
	w.doesNotReach("c")
	w.want(down)
}

func TestF5WhatIsSaidOfTheDeadDoesNotCount(t *testing.T) {
	w := newWorld(t)
	w.doesNotReach("c", "b")
	w.doesNotReach("a", "b") // what this member's own Lease says comes from what it stores here
	w.want(up)
	w.expire("c")
	w.want(up)
}

// TestF5WhatAnExpiredLeaseSaysDoesNotCount, neither for a cluster nor against it, although its owner answers and counts
// as live. The Lease of a member that lost the hub goes on saying what it said then.
func TestF5WhatAnExpiredLeaseSaysDoesNotCount(t *testing.T) {
	w := newWorld(t)
	c := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: kube.SystemNamespace, Name: liveness.LeaseName("c"),
		Labels:      map[string]string{liveness.LabelSource: "c"},
		Annotations: map[string]string{liveness.AnnotationLeaseExpired: "true"},
	}}
	w.create(w.local, c)
	w.doesNotReach("c", "b")
	w.want(up)
	change(w, w.local, c, func(l *coordinationv1.Lease) { l.Annotations[liveness.AnnotationLeaseExpired] = "false" })
	w.want(up) // one of two
	w.expire("b")
	w.want(down)
	w.doesNotReach("c", "a")
	w.want(up) // one of two
	change(w, w.local, c, func(l *coordinationv1.Lease) { l.Annotations[liveness.AnnotationLeaseExpired] = "true" })
	w.want(down) // this cluster alone
}

func TestF5EndpointsMakeReady(t *testing.T) {
	w := newWorld(t)
	w.want(up)
	change(
		w,
		w.hub,
		endpoint("b", true),
		func(e *hubv1alpha1.ServiceExportRecord) { e.Spec = endpoint("b", false).Spec },
	)
	w.want(down)
	change(
		w,
		w.hub,
		endpoint("b", true),
		func(e *hubv1alpha1.ServiceExportRecord) { e.Spec = endpoint("b", true).Spec },
	)
	w.want(up)
	change(w, w.local, record("b"), func(r *hubv1alpha1.ServiceExportRecord) { r.Spec.Revision = 2 })
	shows := func(revision int64, spec hubv1alpha1.ServiceExportRecordSpec) {
		change(w, w.hub, endpoint("b", true), func(r *hubv1alpha1.ServiceExportRecord) {
			r.Spec = spec
			r.Spec.Revision = revision
		})
	}
	shows(1, endpoint("b", false).Spec)
	w.want(up) // a restored hub proves nothing
	again, err := w.Reconcile(t.Context(), reconcile.Request{NamespacedName: name})
	if err != nil || again.RequeueAfter == 0 {
		t.Error("no event says that the owner has published again without a ready endpoint:", again, err)
	}
	shows(1, clusterset.Withdrawn(record("b").Spec.Origin, time.Now()))
	w.want(up)
	shows(2, endpoint("b", false).Spec)
	w.want(down)
	shows(1, endpoint("b", true).Spec)
	w.want(down)
	shows(2, endpoint("b", true).Spec)
	w.want(up)
	if err := w.hub.Delete(t.Context(), endpoint("b", true)); err != nil {
		t.Fatal(err)
	}
	w.want(up) // absence proves nothing
	paged := endpoint("b", true)
	paged.Spec.Endpoints, paged.Spec.Pages, paged.Spec.Revision = nil, 2, 2
	page := func(number int32, ready bool) *hubv1alpha1.EndpointPage {
		p := &hubv1alpha1.EndpointPage{}
		p.Namespace, p.Name = "set", clusterset.PageName(number, "web", "shop", "b")
		p.Spec.Origin, p.Spec.Number, p.Spec.EndpointGroup = paged.Spec.Origin, number, endpoint("b",
			ready).Spec.Endpoints[0]
		return p
	}
	w.create(w.hub, paged, page(0, false))
	w.want(up) // a page is missing
	w.create(w.hub, page(1, false))
	w.want(down)
	change(w, w.hub, page(1, false), func(p *hubv1alpha1.EndpointPage) { p.Spec.Endpoints[0].Ready = nil })
	w.want(up)
	change(w, w.hub, paged, func(r *hubv1alpha1.ServiceExportRecord) { r.Spec.Pages = 0 })
	w.want(down)
}

// TestF5WhatEndsTheSlices, and what does not.
func TestF5WhatEndsTheSlices(t *testing.T) {
	edit := func(f func(*hubv1alpha1.ServiceExportRecord)) func(*world) {
		return func(w *world) { change(w, w.local, record("b"), f) }
	}
	imported := func(f func(*mcsv1beta1.ServiceImport)) func(*world) {
		return func(w *world) {
			imp := &mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
			change(w, w.local, imp, f)
		}
	}
	withdraw := func(r *hubv1alpha1.ServiceExportRecord) { r.Spec = clusterset.Withdrawn(r.Spec.Origin, time.Now()) }
	disown := func(i *mcsv1beta1.ServiceImport) { i.Labels = nil }
	lose := func(w *world) {
		if err := w.local.Delete(w.t.Context(), record("b")); err != nil {
			w.t.Fatal(err)
		}
	}
	set := func(f func(*hubv1alpha1.ClusterSet)) func(*world) {
		return func(w *world) {
			set := &hubv1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Namespace: "set", Name: "set"}}
			change(w, w.hub, set, f)
		}
	}
	forbid := set(func(s *hubv1alpha1.ClusterSet) { s.Spec.ExternalNames = hubv1alpha1.ExternalNamesForbid })
	unpublish := func(w *world) {
		if err := w.hub.Delete(w.t.Context(), endpoint("b", true)); err != nil {
			w.t.Fatal(err)
		}
	}
	depart := func(november int) func(*world) {
		return set(func(s *hubv1alpha1.ClusterSet) {
			at := metav1.Date(2026, time.November, november, 0, 0, 0, 0, time.UTC)
			s.Status.Departed = []hubv1alpha1.Departure{{ClusterID: "b", At: at}}
		})
	}
	all := func(steps ...func(*world)) func(*world) {
		return func(w *world) {
			for _, step := range steps {
				step(w)
			}
		}
	}
	remove := func(finalizers ...string) func(*world) {
		return func(w *world) {
			imported(func(i *mcsv1beta1.ServiceImport) { i.Finalizers = finalizers })(w)
			imp := &mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
			if err := w.local.Delete(w.t.Context(), imp); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	const finalizer = "example.com/keeps"
	for _, c := range []struct {
		name string
		do   func(*world)
		want []string
	}{
		{"withdrawn", edit(withdraw), nil},
		{"no load balancer", edit(func(r *hubv1alpha1.ServiceExportRecord) { r.Spec.External = nil }), nil},
		{"other addresses", edit(func(r *hubv1alpha1.ServiceExportRecord) {
			r.Spec.External.IPs, r.Spec.External.Hostnames = []string{"192.0.2.9"}, []string{"lb.example"}
		}), []string{"web.b.external-fqdn lb.example true", "web.b.external-ipv4 192.0.2.9 true"}},
		{"exported to others (E11)", edit(func(r *hubv1alpha1.ServiceExportRecord) {
			r.Spec.ExportTo = "cluster=c"
		}), nil},
		{"unreadable", edit(func(r *hubv1alpha1.ServiceExportRecord) { r.Spec.Type = "New" }), []string{up}},
		{"a lost copy", lose, []string{up}},
		{"a lost copy, and the import goes on without it", func(w *world) {
			lose(w)
			imported(func(i *mcsv1beta1.ServiceImport) { i.Status.Clusters = nil })(w)
		}, nil},
		{"forbidden", forbid, nil},
		{"not owned, and forbidden", all(imported(disown), forbid), nil},
		{"the import is not owned (I10), and a record changes", func(w *world) {
			imported(disown)(w)
			edit(func(r *hubv1alpha1.ServiceExportRecord) { r.Spec.External = nil })(w)
		}, []string{up}},
		{"the import is not owned, and a copy is lost", func(w *world) {
			imported(disown)(w)
			lose(w)
		}, []string{up}},
		{"the import is not owned, and one of two is withdrawn", func(w *world) {
			imported(disown)(w)
			w.create(w.local, record("c"))
			edit(withdraw)(w)
		}, []string{up}},
		{"the import is not owned, and the last is exported to others", func(w *world) {
			imported(disown)(w)
			edit(func(r *hubv1alpha1.ServiceExportRecord) { r.Spec.ExportTo = "cluster=c" })(w)
		}, nil},
		{"the import is not owned, and the last is withdrawn", func(w *world) {
			imported(disown)(w)
			edit(withdraw)(w)
		}, nil},
		{"the import is not owned, and the cluster is evicted", all(imported(disown), lose, unpublish, depart(3)), nil},
		{"not owned, copy lost, evicted, and the hub still shows its record",
			all(imported(disown), lose, depart(3)), []string{up}},
		{"not owned, copy lost, departed and joined again",
			all(imported(disown), lose, unpublish, depart(1)), []string{up}},
		{"not owned, copy lost, and the hub shows the withdrawal", all(imported(disown), lose, func(w *world) {
			change(w, w.hub, endpoint("b", true), withdraw)
		}), nil},
		{"not owned, and the ClusterSet excludes the namespace", all(imported(disown), lose,
			set(func(s *hubv1alpha1.ClusterSet) { s.Spec.Namespaces.Deny = []string{"shop"} })), nil},
		{"not owned, and the namespace refuses imports", all(imported(disown), func(w *world) {
			w.create(w.local, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
				Name: "shop", Annotations: map[string]string{clusterset.AnnotationNamespaceImport: "false"},
			}})
		}), nil},
		{"the derived Service is not owned (I10), and a record changes", edit(func(r *hubv1alpha1.ServiceExportRecord) {
			r.Spec.External, r.Status.Conditions = nil, []metav1.Condition{{
				Type: hubv1alpha1.ConditionImported, Reason: hubv1alpha1.ReasonNotOwned,
			}}
		}), []string{up}},
		{"no import", remove(), nil},
		{"the import goes with its slices", remove(metav1.FinalizerDeleteDependents), nil},
		{"another program keeps the deleted import", remove(finalizer), []string{up}},
		{"deleted, kept, and a copy is lost", all(remove(finalizer), lose), []string{up}},
		{"deleted, kept, and the last is withdrawn", all(remove(finalizer), edit(withdraw)), nil},
		{"deleted, kept, and the cluster is evicted", all(remove(finalizer), lose, unpublish, depart(3)), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.want(up)
			c.do(w)
			w.blind = true
			w.want(up)
			w.blind = false
			w.want(c.want...)
		})
	}
}

// TestF5TheOwnSlicesOfANameThatIsNotOwned go with the ServiceExport, if the own copy is lost.
func TestF5TheOwnSlicesOfANameThatIsNotOwned(t *testing.T) {
	w := newWorld(t)
	export := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	w.create(w.local, export, record("a", "203.0.113.1"))
	w.create(w.hub, endpoint("a", true))
	const own = "web.a.external-ipv4 203.0.113.1 true"
	w.want(own, up)
	imp := &mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	change(w, w.local, imp, func(i *mcsv1beta1.ServiceImport) { i.Labels = nil })
	change(w, w.local, record("b"), func(r *hubv1alpha1.ServiceExportRecord) { r.Spec.ExportTo = "cluster=c" })
	if err := w.local.Delete(t.Context(), record("a")); err != nil {
		t.Fatal(err)
	}
	w.want(own, up)
	if err := w.local.Delete(t.Context(), export); err != nil {
		t.Fatal(err)
	}
	w.want()
}

// TestI11AnEmptiedImportHasNoSlices, also while this member does not see the hub. One that was just filled keeps them.
func TestI11AnEmptiedImportHasNoSlices(t *testing.T) {
	w := newWorld(t)
	w.want(up)
	for _, step := range []struct {
		mark string
		want []string
	}{{"", []string{up}}, {imports.Emptied, nil}} {
		imp := &mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
		change(w, w.local, imp, func(i *mcsv1beta1.ServiceImport) {
			i.Labels, i.Annotations = nil, map[string]string{imports.AnnotationFilled: step.mark}
			i.Status.Clusters = nil
		})
		w.blind = true
		w.want(step.want...)
		w.blind = false
		w.want(step.want...)
	}
}

// TestF5S4ReservedAddresses of others are refused; this cluster's own ones are not.
func TestF5S4ReservedAddresses(t *testing.T) {
	w := newWorld(t)
	w.create(w.local, record("a", "203.0.113.1"), record("c", "203.0.113.3", "192.0.2.3"))
	w.create(w.hub, endpoint("a", true), endpoint("c", false))
	w.want("web.a.external-ipv4 203.0.113.1 true", up, "web.c.external-ipv4 192.0.2.3 false")
	if len(w.events) == 0 || !strings.Contains(w.events[0], "203.0.113.3") ||
		!strings.HasPrefix(w.events[0], "EndpointsRefused") {
		t.Errorf("%v", w.events)
	}
}

// TestI10ASliceOfAnotherProgramStays until it is given to the agent.
func TestI10ASliceOfAnotherProgramStays(t *testing.T) {
	w := newWorld(t)
	theirs := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "shop", Name: "web.b.external-ipv4"},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{
			Addresses: []string{"192.0.2.7"}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)},
		}},
	}
	unused := theirs.DeepCopy() // the agent wants none of this name
	unused.Name = "web.c.external-ipv4"
	w.create(w.local, theirs, unused)
	const stays = "web.c.external-ipv4 192.0.2.7 true"
	w.want("web.b.external-ipv4 192.0.2.7 true", stays)
	if len(w.events) == 0 || !strings.HasPrefix(w.events[0], "NotOwned") {
		t.Errorf("%v", w.events)
	}
	change(w, w.local, theirs, func(s *discoveryv1.EndpointSlice) {
		s.Annotations = map[string]string{kube.AnnotationAdopt: "true"}
	})
	w.want(up, stays)
}

// TestWhichChangesCauseAPass: renewals of Leases and changes of endpoints that leave one ready are frequent.
func TestWhichChangesCauseAPass(t *testing.T) {
	w := newWorld(t)
	w.create(w.local, func() client.Object {
		rec := record("b")
		rec.Name, rec.Spec.ServiceName, rec.Spec.External = "other.shop.b", "other", nil
		return rec
	}())
	renewed, stated, stopped := &coordinationv1.Lease{}, &coordinationv1.Lease{}, &coordinationv1.Lease{}
	renewed.Spec.RenewTime = new(metav1.NowMicro())
	stopped.Annotations = map[string]string{liveness.AnnotationLeaseExpired: "true"}
	reach.WriteUnreachable(stated, map[string]time.Time{"b": time.Unix(0, 0)})
	withdrawn := record("b")
	withdrawn.Spec = clusterset.Withdrawn(withdrawn.Spec.Origin, time.Now())
	w.create(w.local, &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web.b.external-ipv4"},
	})
	shop, refusing := &corev1.Namespace{}, &corev1.Namespace{}
	shop.Name, refusing.Name = "shop", "shop"
	refusing.Annotations = map[string]string{clusterset.AnnotationNamespaceImport: "false"}
	departed := &hubv1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Namespace: "set", Name: "set"}}
	departed.Status.Departed = []hubv1alpha1.Departure{{ClusterID: "b"}}
	two := endpoint("b", true)
	two.Spec.Endpoints = append(two.Spec.Endpoints, two.Spec.Endpoints[0])
	for i, c := range []struct {
		was, is client.Object
		want    bool
	}{
		{&coordinationv1.Lease{}, renewed, false},
		{&coordinationv1.Lease{}, stated, true},
		{&coordinationv1.Lease{}, stopped, true},
		{endpoint("b", true), two, false},
		{endpoint("b", true), endpoint("b", false), true},
		{record("b"), record("b"), true},
		{endpoint("b", false), withdrawn, true},
		{withdrawn, withdrawn, true}, // its load balancer may have gone while another program owned the import
		{shop, shop, false},          // from here on the copy is lost
		{shop, refusing, true},
		{&hubv1alpha1.ClusterSet{}, departed, true},
	} {
		if lost := record("b"); c.is == client.Object(shop) {
			if err := w.local.Delete(t.Context(), lost); err != nil {
				t.Fatal(err)
			}
		}
		passes := 0
		for _, watch := range New(w.Member).Watches {
			if fmt.Sprintf("%T", watch.Object) != fmt.Sprintf("%T", c.is) {
				continue
			}
			if c.is.GetNamespace() == "set" && watch.Side != kube.Hub {
				continue
			}
			if watch.Alike != nil && watch.Alike(c.was, c.is) {
				continue
			}
			for _, req := range watch.Requests(t.Context(), c.is) {
				if req.NamespacedName != name {
					t.Errorf("%d: %v is requested", i, req)
				}
				passes++
			}
		}
		if (passes > 0) != c.want {
			t.Errorf("%d: %d passes", i, passes)
		}
	}
}

// TestU6ARefusedSliceIsReported on the import, with the API server's words.
func TestU6ARefusedSliceIsReported(t *testing.T) {
	w := newWorld(t)
	pass := func(refusal error) {
		t.Helper()
		w.refusal, w.events = refusal, nil
		if _, err := w.Reconcile(t.Context(), reconcile.Request{NamespacedName: name}); !errors.Is(err, refusal) {
			t.Error(err)
		}
	}
	resource := discoveryv1.Resource("endpointslices")
	quota := apierrors.NewForbidden(resource, "web.b.external-ipv4", errors.New("exceeded quota: few"))
	reported := func() bool {
		return len(w.events) == 1 && strings.HasPrefix(w.events[0], "SliceRefused: ") &&
			strings.Contains(w.events[0], "exceeded quota: few")
	}
	if pass(quota); !reported() {
		t.Errorf("not created: %q", w.events)
	}
	pass(nil)
	w.expire("b")
	w.doesNotReach("c", "b")
	if pass(quota); !reported() {
		t.Errorf("not updated: %q", w.events)
	}
	if pass(apierrors.NewConflict(resource, "web.b.external-ipv4", nil)); len(w.events) > 0 {
		t.Errorf("a conflict is no refusal: %q", w.events)
	}
}
