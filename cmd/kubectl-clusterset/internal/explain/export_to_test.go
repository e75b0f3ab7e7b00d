package explain_test

import (
	"strings"
	"testing"

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
	r := explain.Explain(f)
	if len(r.Exporters) != 1 || len(r.Withheld) != 1 || len(r.Findings) > 0 ||
		!strings.Contains(text(&r), "it goes to cluster=north only") {
		t.Error(text(&r))
	}

	f.Records, f.Import, f.Slices = f.Records[1:], nil, nil
	r = explain.Explain(f)
	if got := text(&r); len(r.Findings) != 1 || r.Outcome != explain.NameError ||
		!strings.Contains(got, "cluster east exports the name, but not to this cluster") ||
		!strings.Contains(got, "annotation clusterset-dns.io/export-to of the ServiceExport in cluster east") {
		t.Error(got)
	}
	f.Properties = map[string]string{"region": "eu"}
	f.Records = []hubv1alpha1.ServiceExportRecord{record("east", 2, to("cluster=north,region=eu"))}
	if r = explain.Explain(f); len(r.Exporters) != 1 || len(r.Withheld) != 0 {
		t.Error(text(&r))
	}
}
