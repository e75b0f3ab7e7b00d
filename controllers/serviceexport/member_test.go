package serviceexport

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/pages"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

var start = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// member is the cluster east, with Service web in namespace shop, and its hub.
type member struct {
	*testing.T
	local client.Client
	hub   client.Client // its API server
	now   time.Time
	lease lease
	r     *reconciler

	// lags says that the hub's caches show what they showed at the last call of syncCaches.
	lags   bool
	cache  client.Client
	wrote  []string                                 // to the hub, as "create web.shop.east"
	refuse func(verb string, o client.Object) error // may refuse a write to the hub
	alter  func(client.Object)                      // changes what the hub stores
	admin  bool                                     // the hub's admin writes: nothing is counted, checked or changed
}

// lease is a Lease that this agent holds.
type lease struct {
	silent        bool
	lost, written time.Time
}

func (l lease) MayPublish() bool                          { return !l.silent }
func (l lease) HubMayHaveLost() (lost, written time.Time) { return l.lost, l.written }

// newMember returns the member with these objects in its own cluster. Its hub has what onHub has.
func newMember(t *testing.T, onHub []client.Object, local ...client.Object) *member {
	t.Helper()
	m := &member{T: t, now: start, local: plane(t, kube.Local, interceptor.Funcs{}, local...)}
	m.hub = plane(t, kube.Hub, m.hubFuncs(), onHub...)
	m.restart(pages.OfHub)
	return m
}

// restart begins with a new process.
func (m *member) restart(limits pages.Limits) {
	m.r = New(Config{
		Member: kube.Member{
			Cluster: "east", HubNamespace: "prod", Local: m.local, LocalNow: m.local,
			Hub: func() client.Client { return m.hub }, Now: func() time.Time { return m.now }, Events: noEvents{},
		},
		Lease: &m.lease, Pages: limits,
	}).Reconciler.(*reconciler)
}

// hubFuncs returns what a hub does beside storing: it counts, refuses what its CRDs and policies refuse, and sets
// times. As a real client does, it decodes the answer into the object.
func (m *member) hubFuncs() interceptor.Funcs {
	write := func(ctx context.Context, verb string, o client.Object, do func(client.Object) error) error {
		if m.admin {
			return do(o)
		}
		m.wrote = append(m.wrote, verb+" "+o.GetName())
		if m.refuse != nil && ctx.Err() == nil {
			if err := m.refuse(verb, o); err != nil {
				return err
			}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if verb == "delete" {
			return do(o)
		}
		var was client.Object
		if verb == "update" {
			was = o.DeepCopyObject().(client.Object)
			if err := m.hub.Get(
				context.WithValue(ctx, served{}, true),
				client.ObjectKeyFromObject(o),
				was,
			); err != nil {
				return err
			}
		}
		if err := valid(was, o); err != nil {
			m.Errorf("the hub refuses to %s %s: %v", verb, o.GetName(), err)
			return err
		}
		stored := o.DeepCopyObject().(client.Object)
		if verb == "create" {
			stored.SetCreationTimestamp(metav1.NewTime(m.now.Truncate(time.Second)))
			stored.SetUID(types.UID(fmt.Sprint(o.GetName(), " of ", m.now)))
		}
		if m.alter != nil {
			m.alter(stored)
		}
		if err := do(stored); err != nil {
			return err
		}
		text, err := json.Marshal(stored)
		return errors.Join(err, json.Unmarshal(text, o))
	}
	return interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return write(ctx, "create", o, func(o client.Object) error { return c.Create(ctx, o, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return write(ctx, "update", o, func(o client.Object) error { return c.Update(ctx, o, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return write(ctx, "delete", o, func(o client.Object) error { return c.Delete(ctx, o, opts...) })
		},
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			opts ...client.GetOption) error {
			if m.lags && ctx.Value(served{}) == nil {
				return m.cache.Get(ctx, key, o, opts...)
			}
			return c.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if m.lags && ctx.Value(served{}) == nil {
				return m.cache.List(ctx, list, opts...)
			}
			return c.List(ctx, list, opts...)
		},
	}
}

// served in a context asks the hub's API server, not a cache.
type served struct{}

// valid returns why the hub's CRDs or its policies refuse a write. was is nil for a new object.
func valid(was, o client.Object) error {
	is := kube.Origin(o)
	if is.Revision < 1 || is.Revision > clusterset.MaxRevision {
		return fmt.Errorf("revision %d", is.Revision)
	}
	if was != nil && kube.Origin(was).Revision >= is.Revision && is.Revision < clusterset.MaxRevision {
		return fmt.Errorf("revision %d follows %d", is.Revision, kube.Origin(was).Revision)
	}
	var groups []hubv1alpha1.EndpointGroup
	switch o := o.(type) {
	case *hubv1alpha1.EndpointPage:
		groups = []hubv1alpha1.EndpointGroup{o.Spec.EndpointGroup}
		if err := clusterset.CheckPage(o); err != nil {
			return err
		}
	case *hubv1alpha1.ServiceExportRecord:
		groups = o.Spec.Endpoints
		if was, ok := was.(*hubv1alpha1.ServiceExportRecord); ok {
			if was.Spec.Withdrawn && !o.Spec.Withdrawn ||
				o.Spec.ExportedAt.Before(was.Spec.ExportedAt) {
				return errors.New("the policy clusterset-records")
			}
		}
	}
	if !pages.OfHub.Inline(groups, false) {
		return errors.New("too many endpoints")
	}
	for _, g := range groups {
		if _, refused, err := clusterset.ParseGroup(&g, nil); err != nil || len(refused) > 0 {
			return fmt.Errorf("%w, refused %q", err, refused)
		}
	}
	return nil
}

// syncCaches makes the hub's caches show what the hub has, and from then on only that.
func (m *member) syncCaches() {
	m.Helper()
	var all []client.Object
	ctx := context.WithValue(m.Context(), served{}, true)
	for _, list := range []client.ObjectList{
		&hubv1alpha1.ServiceExportRecordList{}, &hubv1alpha1.EndpointPageList{}, &hubv1alpha1.ClusterSetList{},
	} {
		if err := m.hub.List(ctx, list); err != nil {
			m.Fatal(err)
		}
		if err := meta.EachListItem(list, func(o runtime.Object) error {
			all = append(all, o.(client.Object))
			return nil
		}); err != nil {
			m.Fatal(err)
		}
	}
	m.cache, m.lags = plane(m.T, kube.Hub, interceptor.Funcs{}, all...), true
}

// restore makes the hub have objects as they were, with their UIDs.
func (m *member) restore(objects ...client.Object) {
	m.Helper()
	m.admin = true
	defer func() { m.admin = false }()
	for _, o := range objects {
		o = o.DeepCopyObject().(client.Object)
		o.SetResourceVersion("")
		if err := errors.Join(
			client.IgnoreNotFound(m.hub.Delete(m.Context(), o)),
			m.hub.Create(m.Context(), o),
		); err != nil {
			m.Fatal(err)
		}
	}
}

// empty deletes all records and pages on the hub.
func (m *member) empty() {
	m.Helper()
	m.admin = true
	defer func() { m.admin = false }()
	for _, o := range []client.Object{&hubv1alpha1.ServiceExportRecord{}, &hubv1alpha1.EndpointPage{}} {
		if err := m.hub.DeleteAllOf(m.Context(), o, client.InNamespace("prod")); err != nil {
			m.Fatal(err)
		}
	}
}

// pass reconciles shop/web once, and returns what it wrote to the hub.
func (m *member) pass() (string, time.Duration, error) {
	m.Helper()
	m.wrote = nil
	result, err := m.r.Reconcile(m.Context(), reconcile.Request{NamespacedName: web})
	return strings.Join(m.wrote, ", "), result.RequeueAfter, err
}

// settle reconciles n times, 200 ms apart, and returns what the last pass wrote to the hub.
func (m *member) settle(n int) (wrote string) {
	m.Helper()
	for range n {
		var err error
		if wrote, _, err = m.pass(); err != nil {
			m.Fatal(err)
		}
		m.now = m.now.Add(200 * time.Millisecond)
	}
	return wrote
}

var web = types.NamespacedName{Namespace: "shop", Name: "web"}

// record returns the record on the hub; nil if there is none.
func (m *member) record() *hubv1alpha1.ServiceExportRecord {
	m.Helper()
	return find[*hubv1alpha1.ServiceExportRecord](m, m.hub, "prod", "web.shop.east")
}

// copied returns the copy in this cluster; nil if there is none.
func (m *member) copied() *hubv1alpha1.ServiceExportRecord {
	m.Helper()
	return find[*hubv1alpha1.ServiceExportRecord](m, m.local, kube.SystemNamespace, "web.shop.east")
}

// find reads an object from an API server; nil if there is none.
func find[T interface {
	client.Object
	*E
}, E any](m *member, c client.Client, namespace, name string) T {
	m.Helper()
	ctx := context.WithValue(m.Context(), served{}, true)
	o, err := kube.Get[T](ctx, c, types.NamespacedName{Namespace: namespace, Name: name})
	if err != nil {
		m.Fatal(err)
	}
	return o
}

// endpoints returns the addresses that the hub's record states, sorted by group or page; "?" is a page that is missing.
func (m *member) endpoints() string {
	m.Helper()
	rec, ctx := m.record(), context.WithValue(m.Context(), served{}, true)
	if rec == nil {
		return "no record"
	}
	shown, err := kube.PublishedOf(ctx, m.hub, "prod", web)
	if err != nil {
		m.Fatal(err)
	}
	var out []string
	text := func(g *hubv1alpha1.EndpointGroup) {
		var addresses []string
		for _, e := range g.Endpoints {
			addresses = append(addresses, strings.TrimPrefix(e.Address, "10.0.0."))
		}
		out = append(out, strings.Join(addresses, " "))
	}
	for i := range rec.Spec.Endpoints {
		text(&rec.Spec.Endpoints[i])
	}
	for i := range rec.Spec.Pages {
		if page := shown.Page(rec, i); page != nil {
			text(&page.Spec.EndpointGroup)
		} else {
			out = append(out, "?")
		}
	}
	where := "inline"
	if rec.Spec.Pages > 0 {
		where = fmt.Sprintf("%d pages", rec.Spec.Pages)
	}
	if surplus := len(shown.Pages) - int(rec.Spec.Pages); surplus > 0 {
		where += fmt.Sprintf(", %d more", surplus)
	}
	return where + ": " + strings.Join(out, " | ")
}

// ready returns the condition Ready.
func (m *member) ready() metav1.Condition {
	m.Helper()
	export := find[*mcsv1beta1.ServiceExport](m, m.local, "shop", "web")
	c := meta.FindStatusCondition(export.Status.Conditions, "Ready")
	if c == nil {
		return metav1.Condition{}
	}
	return *c
}

// edit changes an object of this cluster.
func edit[T interface {
	client.Object
	*E
}, E any](m *member, o T, change func(T)) {
	m.Helper()
	is := find[T](m, m.local, o.GetNamespace(), o.GetName())
	change(is)
	if err := m.local.Update(m.Context(), is); err != nil {
		m.Fatal(err)
	}
}

// export returns the ServiceExport of shop/web, which has existed since start.
func export() *mcsv1beta1.ServiceExport {
	return &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "web", CreationTimestamp: metav1.NewTime(start),
	}}
}

// slice returns an EndpointSlice of shop/web for its port http, with the addresses 10.0.0.N.
func slice(name string, addresses ...int) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop",
			Name:      name,
			UID:       types.UID("of " + name),
			Labels: map[string]string{
				discoveryv1.LabelServiceName: "web", discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io",
			},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{
			{Name: new("http"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(8080))},
		},
	}
	for _, n := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprint("10.0.0.", n)}})
	}
	return s
}

// from returns the numbers from first to last.
func from(first, last int) (out []int) {
	for n := first; n <= last; n++ {
		out = append(out, n)
	}
	return out
}

// plane is an API server in memory, with the indexes of one side.
func plane(t *testing.T, side kube.Side, funcs interceptor.Funcs, objects ...client.Object) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, hubv1alpha1.AddToScheme, inventoryv1alpha1.AddToScheme, mcsv1beta1.Install,
		aboutv1beta1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	b := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(funcs).
		WithStatusSubresource(&mcsv1beta1.ServiceExport{}, &hubv1alpha1.ServiceExportRecord{})
	for _, x := range kube.Indexes() {
		if x.Side == side {
			b = b.WithIndex(x.Object, x.Field, x.Values)
		}
	}
	return b.Build()
}

// quota is what a hub answers that takes no other object.
func quota(o client.Object) error {
	return apierrors.NewForbidden(hubv1alpha1.GroupVersion.WithResource("endpointpages").GroupResource(), o.GetName(),
		errors.New("exceeded quota: member-records"))
}
