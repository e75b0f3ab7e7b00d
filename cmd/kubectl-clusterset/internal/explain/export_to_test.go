package explain_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/explain"
)

// TestExportsToOtherClusters: one of two is named as withheld; without another one, the name does not exist, and the
// remedy says where to change that.
func TestExportsToOtherClusters(t *testing.T) {
	to := func(list string) func(*hubv1alpha1.ServiceExportRecordSpec) {
		return func(s *hubv1alpha1.ServiceExportRecordSpec) { s.ExportTo = list }
	}
	f := member()
	f.Records = []hubv1alpha1.ServiceExportRecord{record("west", 1, nil), record("east", 2, to("cluster=north"))}
	r := f.explain()
	if len(r.Exporters) != 1 || len(r.Withheld) != 1 || len(r.Findings) > 0 ||
		!strings.Contains(text(&r), "it goes to cluster=north only") {
		t.Error(text(&r))
	}

	f.Records, f.Import, f.Slices = f.Records[1:], nil, nil
	r = f.explain()
	if got := text(&r); len(r.Findings) != 1 || r.Outcome != explain.NameError ||
		!strings.Contains(got,
			"x web.shop is not exported to this cluster: cluster east exports it to cluster=north only") {
		t.Error(got)
	}
	f.Properties = append(f.Properties, aboutv1beta1.ClusterProperty{ObjectMeta: metav1.ObjectMeta{Name: "region"},
		Spec: aboutv1beta1.ClusterPropertySpec{Value: "eu"}})
	f.Records = []hubv1alpha1.ServiceExportRecord{record("east", 2, to("cluster=north,region=eu"))}
	if r = f.explain(); len(r.Exporters) != 1 || len(r.Withheld) != 0 {
		t.Error(text(&r))
	}
}
