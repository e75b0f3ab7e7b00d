package explain_test

import (
	"testing"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/explain"
)

// TestAnImportWithoutIPHasNoTargets: CoreDNS answers NODATA for its ports, too.
func TestAnImportWithoutIPHasNoTargets(t *testing.T) {
	f := member()
	f.Import.Spec.IPs = nil
	if r := f.explain(); r.Outcome != explain.NoData || len(r.Answers) > 0 {
		t.Errorf("%s: %+v", r.Outcome, r.Answers)
	}
}
