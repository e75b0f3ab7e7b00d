package serviceimport

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1 "k8s.io/api/core/v1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
)

func rec(revision int64, withdrawn bool) *hubv1alpha1.ServiceExportRecord {
	r := &hubv1alpha1.ServiceExportRecord{}
	r.Name = "web.shop.a"
	r.Spec.ClusterID, r.Spec.ServiceNamespace, r.Spec.ServiceName = "a", "shop", "web"
	r.Spec.Revision, r.Spec.Withdrawn = revision, withdrawn
	r.Spec.ExportedAt, r.Spec.Type = new(metav1.Unix(1_700_000_000, 0)), "ClusterSetIP"
	r.Spec.IPFamilies = []corev1.IPFamily{"IPv4"}
	return r
}

// TestWhatBecomesOfACopy is DESIGN §2: absence is not deletion, older is not newer, and nonsense changes nothing.
func TestWhatBecomesOfACopy(t *testing.T) {
	nonsense := rec(9, false)
	at := func(seconds int64, r *hubv1alpha1.ServiceExportRecord) *hubv1alpha1.ServiceExportRecord {
		r.CreationTimestamp = metav1.Unix(seconds, 0)
		r.Annotations = map[string]string{clusterset.AnnotationCreated: r.CreationTimestamp.UTC().Format(time.RFC3339)}
		return r
	}
	nonsense.Spec.Type = "ExternalName"
	for _, c := range []struct {
		name          string
		shown, copied *hubv1alpha1.ServiceExportRecord
		departed      bool
		want          action
		reason        string
	}{
		{"a new record", rec(5, false), nil, false, follow, ""},
		{"a newer revision", rec(6, false), rec(5, false), false, follow, ""},
		{"the same", rec(5, false), rec(5, false), false, follow, ""},
		{"an older revision, as after a restore", rec(4, false), rec(5, false), false, hold, "OlderRevision"},
		{"an older revision of one created before, as after a restore", at(7, rec(4, false)), at(8, rec(5, false)),
			false, hold, "OlderRevision"},
		{"an older revision of the same", at(8, rec(4, false)), at(8, rec(5, false)), false, hold, "OlderRevision"},
		{"an older revision of one created since", at(9, rec(4, false)), at(8, rec(1<<53, false)), false, follow, ""},
		{"an older revision of one created since, by an owner that lost its memory and whose clock went back",
			at(9, rec(4, false)), at(8, rec(5, false)), false, follow, ""},
		{"an older one of what was withdrawn", rec(4, false), rec(5, true), false, hold, "OlderRevision"},
		{"withdrawn", rec(6, true), rec(5, false), false, follow, ""},
		{"withdrawn before it was seen", rec(6, true), nil, false, keep, ""},
		{"gone without a word", nil, rec(5, false), false, hold, "Absent"},
		{"its owner departed", nil, rec(5, false), true, drop, ""},
		{"gone after its withdrawal", nil, rec(5, true), false, drop, ""},
		{"nonsense, new", nonsense, nil, false, hold, "Refused"},
		{"nonsense in place of what was good", nonsense, rec(5, false), false, hold, "Refused"},
		{"nothing", nil, nil, false, keep, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			v, reason, message := decideCopy(c.shown, c.copied, c.departed)
			if v != c.want || reason != c.reason || (v == hold) != (message != "") {
				t.Errorf("%v %q %q, want %v %q", v, reason, message, c.want, c.reason)
			}
		})
	}
}
