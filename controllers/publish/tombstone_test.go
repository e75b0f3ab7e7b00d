package publish

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/withdrawal"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// owner is the member east, which has withdrawn its record of shop/web at start, with a hub that has other members.
type owner struct {
	*testing.T
	hub, local client.Client
	now        time.Time
	r          *reconciler
}

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func ownRecord(namespace string, spec hubv1alpha1.ServiceExportRecordSpec) *hubv1alpha1.ServiceExportRecord {
	return &hubv1alpha1.ServiceExportRecord{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web.shop.east"}, Spec: spec,
	}
}

func exportedAt(revision int64) hubv1alpha1.ServiceExportRecordSpec {
	return hubv1alpha1.ServiceExportRecordSpec{
		Origin: hubv1alpha1.Origin{
			ClusterID: "east", ServiceNamespace: "shop", ServiceName: "web", Revision: revision,
		},
		Type: mcsv1beta1.Headless, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
		ExportedAt:      &metav1.Time{Time: start},
		EndpointRecords: clusterset.EndpointSet(nil),
	}
}

func newOwner(t *testing.T, onHub, own *hubv1alpha1.ServiceExportRecordSpec, members ...string) *owner {
	o := &owner{T: t, now: start, hub: plane(t, kube.Hub, interceptor.Funcs{}),
		local: plane(t, kube.Local, interceptor.Funcs{})}
	create := func(c client.Client, object client.Object) {
		if err := c.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range members {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: m}}
		lease.Annotations = map[string]string{withdrawal.AnnotationAcknowledged: ""}
		create(o.hub, lease)
	}
	if onHub != nil {
		create(o.hub, ownRecord("prod", *onHub))
	}
	if own != nil {
		create(o.local, ownRecord(kube.SystemNamespace, *own))
	}
	o.restart()
	return o
}

func (o *owner) restart() { o.r = reconcilerOf(o.local, o.hub, lease{}, &o.now) }

// at runs passes at a time after start, and returns the record on the hub; nil if there is none.
func (o *owner) at(after time.Duration) *hubv1alpha1.ServiceExportRecord {
	o.Helper()
	o.now = start.Add(after)
	for range 2 {
		req := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "shop", Name: "web"}}
		if _, err := o.r.Reconcile(o.Context(), req); err != nil {
			o.Fatal(err)
		}
	}
	rec, err := kube.Get[*hubv1alpha1.ServiceExportRecord](
		o.Context(), o.hub, types.NamespacedName{Namespace: "prod", Name: "web.shop.east"})
	if err != nil {
		o.Fatal(err)
	}
	return rec
}

// acknowledge has a member acknowledge what the hub shows.
func (o *owner) acknowledge(member string) {
	o.Helper()
	rec := get(o.T, o.hub, ownRecord("prod", hubv1alpha1.ServiceExportRecordSpec{}))
	lease := get(o.T, o.hub, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: member}})
	lease.Annotations[withdrawal.AnnotationAcknowledged] = kube.Version(rec)
	if err := o.hub.Update(o.Context(), lease); err != nil {
		o.Fatal(err)
	}
}

func (o *owner) hasOwn() bool {
	var list hubv1alpha1.ServiceExportRecordList
	if err := o.local.List(o.Context(), &list); err != nil {
		o.Fatal(err)
	}
	return len(list.Items) > 0
}

const day = 24 * time.Hour

// TestE10AMemberThatWasAwayForAWeekSeesWhatWent: the withdrawn record waits for it, and for nobody who has departed.
func TestE10AMemberThatWasAwayForAWeekSeesWhatWent(t *testing.T) {
	withdrawn := clusterset.Withdrawn(exportedAt(1).Origin, start)
	for name, own := range map[string]*hubv1alpha1.ServiceExportRecordSpec{
		"": &withdrawn, "this cluster has lost its own record: ": nil,
	} {
		o := newOwner(t, &withdrawn, own, "east", "west", "north", "evicted")
		o.at(0)
		o.acknowledge("west")
		for _, after := range []time.Duration{time.Minute, time.Hour, day, 7 * day} {
			if rec := o.at(after); rec == nil || !rec.Spec.Withdrawn {
				t.Fatalf("%safter %v: %+v", name, after, rec)
			}
		}
		gone := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "evicted"}}
		if err := o.hub.Delete(t.Context(), gone); err != nil {
			t.Fatal(err)
		}
		o.restart()
		if o.at(7*day+time.Minute) == nil {
			t.Fatalf("%sit is gone before the member that was away has seen it", name)
		}
		o.acknowledge("north")
		if rec := o.at(7*day + 2*time.Minute); rec != nil || o.hasOwn() {
			t.Errorf("%sall have acknowledged, and it is still there: %+v", name, rec)
		}
	}
}

// TestE10ATombstoneHasAnEnd, even if a member never comes back, and a beginning: who is joining may not be known yet.
func TestE10ATombstoneHasAnEnd(t *testing.T) {
	withdrawn := clusterset.Withdrawn(exportedAt(1).Origin, start)
	o := newOwner(t, &withdrawn, &withdrawn, "west")
	if o.at(withdrawal.MaxRetention-time.Second) == nil {
		t.Error("it ends early")
	}
	if o.at(withdrawal.MaxRetention) != nil || o.hasOwn() {
		t.Error("it does not end")
	}
	o = newOwner(t, &withdrawn, &withdrawn, "west")
	o.acknowledge("west")
	if o.at(withdrawal.MinRetention-time.Second) == nil || o.at(withdrawal.MinRetention) != nil {
		t.Error("it does not end after the shortest time")
	}
}

// TestE10ARestoredHubGetsTheWithdrawalAgain, and an emptied one: others have not acknowledged it there. Its retention
// begins again if the hub did not show it for long.
func TestE10ARestoredHubGetsTheWithdrawalAgain(t *testing.T) {
	withdrawn, before := clusterset.Withdrawn(exportedAt(1).Origin, start), exportedAt(1)
	for name, onHub := range map[string]*hubv1alpha1.ServiceExportRecordSpec{"emptied": nil, "restored": &before} {
		for _, c := range []struct{ after, since time.Duration }{{day, 0}, {20 * day, 20 * day}, {50 * day, 50 * day}} {
			o := newOwner(t, onHub, &withdrawn, "west")
			if rec := o.at(c.after); rec == nil || !rec.Spec.Withdrawn || !rec.Spec.WithdrawnAt.Equal(
				&metav1.Time{Time: start.Add(c.since)}) {
				t.Errorf("%s, after %v: %+v", name, c.after, rec)
			}
			o.acknowledge("west")
			if o.at(c.after+time.Hour) != nil || o.hasOwn() {
				t.Errorf("%s, after %v: it stays", name, c.after)
			}
		}
	}
}

// TestE10AnEarlierWithdrawalIsNotTheOne: a hub that was restored shows it. Members that have seen the export since then
// hold it until they see the later one, whatever they had acknowledged before.
func TestE10AnEarlierWithdrawalIsNotTheOne(t *testing.T) {
	earlier := clusterset.Withdrawn(exportedAt(1).Origin, start.Add(-day))
	own := clusterset.Withdrawn(exportedAt(1000).Origin, start.Add(-time.Hour))
	o := newOwner(t, &earlier, &own, "east", "west")
	o.acknowledge("west")
	rec := o.at(0)
	if rec == nil || rec.Spec.Revision != own.Revision || !rec.Spec.Withdrawn {
		t.Fatalf("the hub shows %+v, want the withdrawal of revision %d", rec, own.Revision)
	}
	o.acknowledge("west")
	if rec := o.at(time.Minute); rec != nil || o.hasOwn() {
		t.Errorf("west has acknowledged it, and it is still there: %+v", rec)
	}
}
