package serviceexport

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/pages"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/withdrawal"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

func ownRecord(namespace string, spec hubv1alpha1.ServiceExportRecordSpec) *hubv1alpha1.ServiceExportRecord {
	return &hubv1alpha1.ServiceExportRecord{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web.shop.east"}, Spec: spec,
	}
}

func exportOf(revision int64) hubv1alpha1.ServiceExportRecordSpec {
	return hubv1alpha1.ServiceExportRecordSpec{
		Origin: hubv1alpha1.Origin{
			ClusterID: "east", ServiceNamespace: "shop", ServiceName: "web", Revision: revision,
		},
		Type: mcsv1beta1.Headless, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
		ExportedAt: &metav1.Time{Time: start},
	}
}

// newOwner returns a member that has withdrawn its record at start, with a hub that has other members.
func newOwner(t *testing.T, onHub, own *hubv1alpha1.ServiceExportRecordSpec, members ...string) *member {
	t.Helper()
	var there, here []client.Object
	for _, name := range members {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: name}}
		lease.Annotations = map[string]string{withdrawal.AnnotationAcknowledged: ""}
		there = append(there, lease)
	}
	if onHub != nil {
		there = append(there, ownRecord("prod", *onHub))
	}
	if own != nil {
		here = append(here, ownRecord(kube.SystemNamespace, *own))
	}
	return newMember(t, there, here...)
}

// at runs passes at a time after start, and returns the record on the hub; nil if there is none.
func (m *member) at(after time.Duration) *hubv1alpha1.ServiceExportRecord {
	m.Helper()
	m.now = start.Add(after)
	for range 2 {
		if _, _, err := m.pass(); err != nil {
			m.Fatal(err)
		}
	}
	return m.record()
}

// acknowledge has a member acknowledge what the hub shows.
func (m *member) acknowledge(name string) {
	m.Helper()
	lease := find[*coordinationv1.Lease](m, m.hub, "prod", name)
	lease.Annotations[withdrawal.AnnotationAcknowledged] = kube.Version(m.record())
	m.admin = true
	defer func() { m.admin = false }()
	if err := m.hub.Update(m.Context(), lease); err != nil {
		m.Fatal(err)
	}
}

const day = 24 * time.Hour

// TestE10AMemberThatWasAwayForAWeekSeesWhatWent: the withdrawn record waits for it, and for nobody who has departed.
func TestE10AMemberThatWasAwayForAWeekSeesWhatWent(t *testing.T) {
	withdrawn := clusterset.Withdrawn(exportOf(1).Origin, start)
	for name, own := range map[string]*hubv1alpha1.ServiceExportRecordSpec{
		"": &withdrawn, "this cluster has lost its copy: ": nil,
	} {
		m := newOwner(t, &withdrawn, own, "east", "west", "north", "evicted")
		m.at(0)
		m.acknowledge("west")
		for _, after := range []time.Duration{time.Minute, time.Hour, day, 7 * day} {
			if rec := m.at(after); rec == nil || !rec.Spec.Withdrawn {
				t.Fatalf("%safter %v: %+v", name, after, rec)
			}
		}
		gone := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "evicted"}}
		if err := m.hub.Delete(t.Context(), gone); err != nil {
			t.Fatal(err)
		}
		m.restart(pages.OfHub)
		if m.at(7*day+time.Minute) == nil {
			t.Fatalf("%sit is gone before the member that was away has seen it", name)
		}
		m.acknowledge("north")
		if rec := m.at(7*day + 2*time.Minute); rec != nil || m.copied() != nil {
			t.Errorf("%sall have acknowledged, and it is still there: %+v", name, rec)
		}
	}
}

// TestE10ATombstoneHasAnEnd, even if a member never comes back, and a beginning: who is joining may not be known yet.
func TestE10ATombstoneHasAnEnd(t *testing.T) {
	withdrawn := clusterset.Withdrawn(exportOf(1).Origin, start)
	m := newOwner(t, &withdrawn, &withdrawn, "west")
	if m.at(withdrawal.MaxRetention-time.Second) == nil {
		t.Error("it ends early")
	}
	if m.at(withdrawal.MaxRetention) != nil || m.copied() != nil {
		t.Error("it does not end")
	}
	m = newOwner(t, &withdrawn, &withdrawn, "west")
	m.acknowledge("west")
	if m.at(withdrawal.MinRetention-time.Second) == nil || m.at(withdrawal.MinRetention) != nil {
		t.Error("it does not end after the shortest time")
	}
}

// TestE10ARestoredHubGetsTheWithdrawalAgain, and an emptied one: others have not acknowledged it there. Its retention
// begins again if the hub did not show it for long.
func TestE10ARestoredHubGetsTheWithdrawalAgain(t *testing.T) {
	withdrawn, before := clusterset.Withdrawn(exportOf(1).Origin, start), exportOf(1)
	for name, onHub := range map[string]*hubv1alpha1.ServiceExportRecordSpec{"emptied": nil, "restored": &before} {
		for _, c := range []struct{ after, since time.Duration }{{day, 0}, {20 * day, 20 * day}, {50 * day, 50 * day}} {
			m := newOwner(t, onHub, &withdrawn, "west")
			if rec := m.at(c.after); rec == nil || !rec.Spec.Withdrawn || !rec.Spec.WithdrawnAt.Equal(
				&metav1.Time{Time: start.Add(c.since)}) {
				t.Errorf("%s, after %v: %+v", name, c.after, rec)
			}
			m.acknowledge("west")
			if m.at(c.after+time.Hour) != nil || m.copied() != nil {
				t.Errorf("%s, after %v: it stays", name, c.after)
			}
		}
	}
}

// TestE10AnEarlierWithdrawalIsNotTheOne: a hub that was restored shows it. Members that have seen the export since then
// hold it until they see the later one, whatever they had acknowledged before.
func TestE10AnEarlierWithdrawalIsNotTheOne(t *testing.T) {
	earlier := clusterset.Withdrawn(exportOf(1).Origin, start.Add(-day))
	own := clusterset.Withdrawn(exportOf(1000).Origin, start.Add(-time.Hour))
	m := newOwner(t, &earlier, &own, "east", "west")
	m.acknowledge("west")
	rec := m.at(0)
	if rec == nil || rec.Spec.Revision < own.Revision || !rec.Spec.Withdrawn ||
		!rec.Spec.WithdrawnAt.Equal(own.WithdrawnAt) {
		t.Fatalf("the hub shows %+v, want the withdrawal of %v", rec, own.WithdrawnAt)
	}
	m.acknowledge("west")
	if rec := m.at(time.Minute); rec != nil || m.copied() != nil {
		t.Errorf("west has acknowledged it, and it is still there: %+v", rec)
	}
}

// TestE10ARestoredMemberEndsALaterExport: its own copy is a withdrawal, or an export, of before. The hub lets no
// exportedAt move back.
func TestE10ARestoredMemberEndsALaterExport(t *testing.T) {
	before, withdrawn, shown := exportOf(1), clusterset.Withdrawn(exportOf(1).Origin, start), exportOf(1000)
	withdrawn.ExportedAt, shown.ExportedAt = before.ExportedAt, &metav1.Time{Time: start.Add(time.Hour)}
	for name, own := range map[string]hubv1alpha1.ServiceExportRecordSpec{"export": before, "withdrawal": withdrawn} {
		for _, after := range []time.Duration{day, 20 * day} {
			m := newOwner(t, &shown, &own, "west")
			rec := m.at(after)
			if rec == nil || !rec.Spec.Withdrawn || !rec.Spec.ExportedAt.Equal(shown.ExportedAt) ||
				!rec.Spec.WithdrawnAt.Equal(&metav1.Time{Time: start.Add(after)}) {
				t.Fatalf("%s, after %v: %+v", name, after, rec)
			}
			m.acknowledge("west")
			if m.at(after+time.Hour) != nil || m.copied() != nil {
				t.Errorf("%s, after %v: it stays", name, after)
			}
		}
	}
}
