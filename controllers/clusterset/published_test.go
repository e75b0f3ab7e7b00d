package clusterset

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
)

// TestC1ACopyKeepsTheFirstTimeOfAnExport as long as the export goes on, whatever the hub loses. It ends when its
// cluster departs, though this member may not have seen that (DESIGN §4).
func TestC1ACopyKeepsTheFirstTimeOfAnExport(t *testing.T) {
	at := func(hour int) metav1.Time { return metav1.Date(2026, 1, 1, hour, 0, 0, 0, time.UTC) }
	rec := func(exported, created int, withdrawn bool) *hubv1alpha1.ServiceExportRecord {
		r := &hubv1alpha1.ServiceExportRecord{}
		r.CreationTimestamp, r.Spec.ExportedAt, r.Spec.Withdrawn = at(created), new(at(exported)), withdrawn
		return r
	}
	copyOf := func(shown *hubv1alpha1.ServiceExportRecord) *hubv1alpha1.ServiceExportRecord {
		r := &hubv1alpha1.ServiceExportRecord{}
		SetPublished(r, shown, time.Time{})
		r.Spec = shown.Spec
		return r
	}
	if never := Published(&hubv1alpha1.ServiceExportRecord{}); never.Before(at(0).AddDate(1000, 0, 0)) {
		t.Errorf("an export that is not on the hub counts since %v", never)
	}
	for _, c := range []struct {
		name       string
		was, shown *hubv1alpha1.ServiceExportRecord
		departed   int
		want       int
	}{
		{"the first copy", nil, rec(1, 5, false), 0, 5},
		{"the same record", rec(1, 5, false), rec(1, 5, false), 0, 5},
		{"the hub lost it", rec(1, 5, false), rec(1, 9, false), 0, 5},
		{"the hub was restored", rec(1, 5, false), rec(1, 4, false), 0, 4},
		{"another export", rec(1, 5, false), rec(2, 9, false), 0, 9},
		{"exported again after a withdrawal that was seen", rec(1, 5, true), rec(1, 9, false), 0, 9},
		{"withdrawn", rec(1, 5, false), rec(1, 9, true), 0, 9},
		{"its cluster departed and joined again", rec(1, 5, false), rec(1, 9, false), 7, 9},
		{"its cluster departed before", rec(1, 5, false), rec(1, 9, false), 4, 5},
	} {
		copied := &hubv1alpha1.ServiceExportRecord{}
		if c.was != nil {
			copied = copyOf(c.was)
		}
		SetPublished(copied, c.shown, at(c.departed).Time)
		if got := Published(copied); !got.Equal(at(c.want).Time) ||
			!Created(copied).Equal(c.shown.CreationTimestamp.Time) {
			t.Errorf("%s: it counts since %v, want %v; created %v", c.name, got, at(c.want), Created(copied))
		}
	}
}
