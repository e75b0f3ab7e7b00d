package serviceexport

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/pages"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// TestC1SinceWhenAnExportCounts: the copy learns when the hub created the record, and keeps that when the hub loses it.
// An export that begins again after a withdrawal, or states an earlier time, gets a new record, and counts since then.
// So does one whose cluster has departed.
func TestC1SinceWhenAnExportCounts(t *testing.T) {
	exported := export()
	exported.CreationTimestamp = metav1.NewTime(start.AddDate(-1, 0, 0))
	m := newMember(t, nil, exported, svc(nil), slice("web-1", 1))
	published := func() time.Duration { // after the begin of the test, as the copy says
		t.Helper()
		m.settle(10)
		return clusterset.Published(m.copied()).Sub(start).Truncate(time.Minute)
	}
	later := func(change func()) {
		t.Helper()
		m.now = m.now.Truncate(time.Hour).Add(time.Hour)
		change()
	}
	if got := published(); got != 0 {
		t.Errorf("a new export counts since %v", got)
	}
	later(func() {
		edit(m, svc(nil), func(s *corev1.Service) { s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP })
	})
	if got := published(); got != 0 {
		t.Errorf("after an edit, it counts since %v", got)
	}
	later(m.empty)
	if got := published(); got != 0 || clusterset.Created(m.copied()).Sub(start) != 2*time.Hour {
		t.Errorf("the hub lost it, and it counts since %v, created %v", got, clusterset.Created(m.copied()))
	}
	later(func() {
		if err := m.local.Delete(t.Context(), svc(nil)); err != nil {
			t.Fatal(err)
		}
	})
	if published(); !m.record().Spec.Withdrawn || !m.copied().Spec.Withdrawn {
		t.Fatalf("not withdrawn: %+v", m.record())
	}
	later(func() {
		if err := m.local.Create(t.Context(), svc(nil)); err != nil {
			t.Fatal(err)
		}
	})
	if got := published(); got != 4*time.Hour || m.record().Spec.Withdrawn || m.endpoints() != "inline: 1" {
		t.Errorf("exported again, it counts since %v: %+v", got, m.record().Spec)
	}
	again := m.record().Spec.ExportedAt
	later(func() { // the copy is lost, and the hub has what it said
		if err := m.local.Delete(t.Context(), m.copied()); err != nil {
			t.Fatal(err)
		}
	})
	if got := published(); got != 4*time.Hour || !m.record().Spec.ExportedAt.Equal(again) {
		t.Errorf("without its copy, it counts since %v: %+v", got, m.record().Spec)
	}
	later(func() {
		set := &hubv1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "prod"}}
		set.Status.Departed = []hubv1alpha1.Departure{{ClusterID: "east", At: metav1.NewTime(m.now)}}
		m.restore(set)
		m.empty()
	})
	if got := published(); got != 6*time.Hour {
		t.Errorf("evicted and a member again, it counts since %v", got)
	}
	if valid := m.ready(); valid.Reason != string(mcsv1beta1.ServiceExportReasonExported) {
		t.Errorf("%+v", valid)
	}
}

// TestC1TheCopyOfAWithdrawalIsLost: members that have missed the withdrawal see another export all the same.
func TestC1TheCopyOfAWithdrawalIsLost(t *testing.T) {
	m := newMember(t, nil, export(), svc(nil), slice("web-1", 1))
	m.settle(10)
	was := m.record().Spec.ExportedAt
	later := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		m.now = m.now.Add(time.Hour)
		m.settle(10)
	}
	later("deleting the Service", m.local.Delete(t.Context(), svc(nil)))
	if !m.record().Spec.Withdrawn {
		t.Fatal("not withdrawn")
	}
	if err := m.local.Delete(t.Context(), m.copied()); err != nil {
		t.Fatal(err)
	}
	later("creating the Service", m.local.Create(t.Context(), svc(nil)))
	is := m.record().Spec
	if is.Withdrawn || !is.ExportedAt.After(was.Time) || !is.ExportedAt.Equal(m.copied().Spec.ExportedAt) {
		t.Errorf("it was exported at %v, and again at %v, as its copy says at %v", was, is.ExportedAt,
			m.copied().Spec.ExportedAt)
	}
}

// TestC1AHubRestoredToAnEarlierExport: the export of today does not get the time of one that ended before it.
func TestC1AHubRestoredToAnEarlierExport(t *testing.T) {
	m := newMember(t, nil, export(), svc(nil), slice("web-1", 1))
	m.settle(10)
	earlier := m.record()
	if err := m.local.Delete(t.Context(), svc(nil)); err != nil {
		t.Fatal(err)
	}
	m.now = m.now.Add(time.Hour)
	m.settle(10)
	if err := m.local.Create(t.Context(), svc(nil)); err != nil {
		t.Fatal(err)
	}
	m.settle(10)
	want := clusterset.Published(m.copied())
	if !want.After(earlier.CreationTimestamp.Time) {
		t.Fatalf("exported again at %v, first at %v", want, earlier.CreationTimestamp)
	}
	m.restore(earlier)
	m.now = m.now.Add(time.Hour)
	m.settle(20)
	if got := m.record().CreationTimestamp; got.Time.Before(want) {
		t.Errorf("others rank it by %v, want no earlier time than %v", got, want)
	}
	if got := clusterset.Published(m.copied()); got.Before(want) {
		t.Errorf("its owner ranks it by %v, want no earlier time than %v", got, want)
	}
}

// TestC1AMemberRestoredToAnEarlierExport: its copy, or its ServiceExport alone, is of an export that has ended since.
// The record of the later one stays, and counts since the hub created it, here as in all other clusters.
func TestC1AMemberRestoredToAnEarlierExport(t *testing.T) {
	for _, lost := range []bool{false, true} {
		before, shown := exportOf(1), exportOf(1000)
		created := metav1.NewTime(start.Add(time.Hour))
		shown.ExportedAt = &created
		record := ownRecord("prod", shown)
		record.CreationTimestamp = created
		m := newMember(t, []client.Object{record}, export(), svc(nil), slice("web-1", 1))
		m.now = start.Add(day)
		if lost {
			hub := m.hub
			m.hub = nil // not seen yet
			m.settle(2)
			m.hub = hub
		} else {
			own := ownRecord(kube.SystemNamespace, before)
			own.Annotations = map[string]string{clusterset.AnnotationPublished: start.Format(time.RFC3339)}
			if err := m.local.Create(t.Context(), own); err != nil {
				t.Fatal(err)
			}
		}
		m.settle(20)
		if got := m.record().CreationTimestamp; !got.Equal(&created) {
			t.Errorf("the copy is lost: %v: others rank it by %v, want %v", lost, got, created)
		}
		if got := clusterset.Published(m.copied()); !got.Equal(created.Time) {
			t.Errorf("the copy is lost: %v: its owner ranks it by %v, want %v", lost, got, created)
		}
	}
}

// TestAnOwnerThatRestartedPublishesOnARestoredHubAgain: the hub was empty for a while, and then got back what it had
// before. Others know the revision of between, and would hold this one.
func TestAnOwnerThatRestartedPublishesOnARestoredHubAgain(t *testing.T) {
	m := newMember(t, nil, export(), svc(nil), slice("web-1", 1))
	m.settle(5)
	saved := m.record()
	m.empty()
	m.now = m.now.Add(time.Minute)
	m.settle(20)
	between := m.record().Spec.Revision
	m.restart(pages.OfHub)
	m.restore(saved)
	m.settle(20)
	if is := m.record().Spec.Revision; between <= saved.Spec.Revision || is <= between {
		t.Errorf("the revisions are %d, %d and %d", saved.Spec.Revision, between, is)
	}
}
