package serviceimport

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// quick is a cache that costs what a real one does: reads by index, and copies only where they are asked for. Writes
// show at once.
type quick struct {
	client.Client // for what is not used
	side          kube.Side
	objects       map[reflect.Type]map[types.NamespacedName]client.Object
	indexes       map[reflect.Type]map[string][]client.Object // by field and value
	version       int
	writes        int
}

func newQuick(side kube.Side, objects ...client.Object) *quick {
	q := &quick{
		side: side, objects: map[reflect.Type]map[types.NamespacedName]client.Object{},
		indexes: map[reflect.Type]map[string][]client.Object{},
	}
	for _, o := range objects {
		q.put(o)
	}
	q.writes = 0
	return q
}

func (q *quick) put(o client.Object) {
	kind, name := reflect.TypeOf(o).Elem(), client.ObjectKeyFromObject(o)
	if q.objects[kind] == nil {
		q.objects[kind], q.indexes[kind] = map[types.NamespacedName]client.Object{}, map[string][]client.Object{}
	}
	q.version++
	q.writes++
	o.SetResourceVersion(strconv.Itoa(q.version))
	if o.GetUID() == "" {
		o.SetUID(types.UID(o.GetName()))
	}
	stored := o.DeepCopyObject().(client.Object)
	for _, x := range kube.Indexes() {
		if x.Side != q.side || reflect.TypeOf(x.Object).Elem() != kind {
			continue
		}
		for _, v := range x.Values(stored) {
			at := q.indexes[kind][x.Field+"="+v]
			at = slices.DeleteFunc(at, func(o client.Object) bool { return client.ObjectKeyFromObject(o) == name })
			q.indexes[kind][x.Field+"="+v] = append(at, stored)
		}
	}
	q.objects[kind][name] = stored
}

func (q *quick) Get(_ context.Context, n types.NamespacedName, o client.Object, _ ...client.GetOption) error {
	stored := q.objects[reflect.TypeOf(o).Elem()][n]
	if stored == nil {
		return apierrors.NewNotFound(schema.GroupResource{}, n.Name)
	}
	reflect.ValueOf(o).Elem().Set(reflect.ValueOf(stored.DeepCopyObject()).Elem())
	return nil
}

func (q *quick) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(opts)
	items := reflect.ValueOf(list).Elem().FieldByName("Items")
	kind := items.Type().Elem()
	var found []client.Object
	if o.FieldSelector != nil {
		r := o.FieldSelector.Requirements()[0]
		found = q.indexes[kind][r.Field+"="+r.Value]
	} else {
		for _, stored := range q.objects[kind] {
			found = append(found, stored)
		}
	}
	out := reflect.MakeSlice(items.Type(), len(found), len(found))
	for i, stored := range found {
		if o.UnsafeDisableDeepCopy == nil || !*o.UnsafeDisableDeepCopy {
			stored = stored.DeepCopyObject().(client.Object)
		}
		out.Index(i).Set(reflect.ValueOf(stored).Elem())
	}
	items.Set(out)
	return nil
}

func (q *quick) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	q.put(o)
	return nil
}

func (q *quick) Update(_ context.Context, o client.Object, _ ...client.UpdateOption) error {
	q.put(o)
	return nil
}

func (q *quick) Status() client.SubResourceWriter { return quickStatus{q: q} }

type quickStatus struct {
	client.SubResourceWriter
	q *quick
}

func (s quickStatus) Patch(
	_ context.Context, o client.Object, _ client.Patch, _ ...client.SubResourcePatchOption,
) error {
	s.q.put(o)
	return nil
}

// crowd is a member that imports one name, with a VIP, from so many clusters, each with one slice of 20 endpoints.
type crowd struct {
	*reconciler
	hub, local *quick
	records    []*hubv1alpha1.ServiceExportRecord
}

func newCrowd(tb testing.TB, exporters int) *crowd {
	tb.Helper()
	c := &crowd{
		hub:   newQuick(kube.Hub),
		local: newQuick(kube.Local, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}),
	}
	at, number := metav1.NewTime(time.Unix(1000, 0)), int32(8080)
	for i := range exporters {
		id := fmt.Sprintf("c%d", i)
		rec := &hubv1alpha1.ServiceExportRecord{}
		rec.Namespace, rec.Name = kube.SystemNamespace, clusterset.RecordName("web", "shop", id)
		rec.Spec.Origin = hubv1alpha1.Origin{ClusterID: id, ServiceNamespace: "shop", ServiceName: "web", Revision: 1}
		rec.Spec.Type, rec.Spec.ExportedAt = mcsv1beta1.ClusterSetIP, &at
		rec.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol}
		rec.Spec.Ports = []hubv1alpha1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}}
		onHub := rec.DeepCopy()
		onHub.Namespace = "set"
		group := hubv1alpha1.EndpointGroup{AddressType: discoveryv1.AddressTypeIPv4}
		group.Ports = []hubv1alpha1.EndpointPort{{Protocol: corev1.ProtocolTCP, Port: 80, Target: &number}}
		for j := range 20 {
			group.Endpoints = append(group.Endpoints, hubv1alpha1.Endpoint{
				Address: netip.AddrFrom4([4]byte{10, byte(i), byte(j), 1}).String(),
			})
		}
		onHub.Spec.Endpoints = []hubv1alpha1.EndpointGroup{group}
		c.hub.put(onHub)
		c.records = append(c.records, onHub)
	}
	families := []corev1.IPFamily{corev1.IPv4Protocol}
	c.reconciler = newReconciler(Config{
		Member: kube.Member{
			Cluster: "me", HubNamespace: "set", Now: time.Now, Local: c.local,
			Hub:      func() client.Client { return c.hub },
			Families: func(context.Context) ([]corev1.IPFamily, error) { return families, nil },
		},
		Gateways:  func() bool { return false },
		Addresses: &ranges{},
	})
	for range 3 {
		c.pass(tb)
	}
	return c
}

func (c *crowd) pass(tb testing.TB) {
	tb.Helper()
	request := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "shop", Name: "web"}}
	if _, err := c.Reconcile(tb.Context(), request); err != nil {
		tb.Fatal(err)
	}
}

// change takes an endpoint of one cluster away, or brings it back.
func (c *crowd) change(i int) {
	rec := c.records[i%len(c.records)]
	ready := i/len(c.records)%2 == 1
	rec.Spec.Endpoints[0].Endpoints[0].Ready = &ready
	rec.Spec.Revision++
	c.hub.put(rec)
}

// BenchmarkPassForOneEndpoint is the cost of a pass after one endpoint has changed, and of the pass that the write of
// its slice causes.
func BenchmarkPassForOneEndpoint(b *testing.B) {
	for _, exporters := range []int{1, 40, 200} {
		b.Run(fmt.Sprintf("exporters=%d", exporters), func(b *testing.B) {
			c := newCrowd(b, exporters)
			b.ReportAllocs()
			before := c.local.writes
			for i := 0; b.Loop(); i++ {
				b.StopTimer()
				c.change(i)
				b.StartTimer()
				c.pass(b)
				c.pass(b)
			}
			b.ReportMetric(float64(c.local.writes-before)/float64(b.N), "writes/op")
		})
	}
}

// TestAllocationsForOneEndpoint: they do not grow with the clusters that export the name.
func TestAllocationsForOneEndpoint(t *testing.T) {
	allocations := func(exporters int) float64 {
		c, i := newCrowd(t, exporters), 0
		before := c.local.writes
		n := testing.AllocsPerRun(100, func() {
			c.change(i)
			i++
			c.pass(t)
			c.pass(t)
		})
		if c.local.writes-before != 2*i { // of the imported slice and of its traffic slice
			t.Errorf("%d changes of one endpoint among %d clusters: %d writes", i, exporters, c.local.writes-before)
		}
		return n
	}
	if one, many := allocations(1), allocations(200); many > 1.4*one { // listing costs one for each slice
		t.Errorf("%v allocations with 200 exporting clusters, %v with one", many, one)
	}
}

// TestOwnWritesOfEndpointsCauseNoPass, but what others make of them afterwards does.
func TestOwnWritesOfEndpointsCauseNoPass(t *testing.T) {
	c := newCrowd(t, 3)
	controller := New(c.Config)
	c.reconciler = controller.Reconciler.(*reconciler)
	for range 3 {
		c.pass(t)
	}
	i := slices.IndexFunc(controller.Watches, func(w kube.Watch) bool {
		return reflect.TypeOf(w.Object) == reflect.TypeFor[*discoveryv1.EndpointSlice]()
	})
	causesPass := func(was, is client.Object) bool {
		w := controller.Watches[i]
		return (w.Alike == nil || !w.Alike(was, is)) && len(w.Requests(t.Context(), is)) > 0
	}
	before := maps.Clone(c.local.objects[reflect.TypeFor[discoveryv1.EndpointSlice]()])
	c.change(0)
	c.pass(t)
	changed := 0
	for name, is := range c.local.objects[reflect.TypeFor[discoveryv1.EndpointSlice]()] {
		was := before[name]
		if was.GetResourceVersion() == is.GetResourceVersion() {
			continue
		}
		changed++
		if causesPass(was, is) {
			t.Errorf("the agent's own write of %s causes a pass", name.Name)
		}
		edited, recreated := is.DeepCopyObject().(client.Object), is.DeepCopyObject().(client.Object)
		edited.SetResourceVersion("9" + is.GetResourceVersion())
		recreated.SetUID("another")
		if !causesPass(is, edited) || !causesPass(is, recreated) {
			t.Errorf("what others make of %s causes no pass", name.Name)
		}
	}
	if changed != 2 {
		t.Errorf("%d slices changed, want the imported one and its traffic slice", changed)
	}
}
