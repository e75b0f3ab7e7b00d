package explain_test

import (
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/endpoints"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/explain"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/status"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
)

// TestEachWayOfLossIsNamed: west imports web from east, and lacks endpoints that are ready there. Nobody is sent to
// east's Pods, which are well.
func TestEachWayOfLossIsNamed(t *testing.T) {
	const pods = "get pods"
	refused := condition("EndpointsImported", "False", hubv1alpha1.ReasonEndpointsRefused,
		"this cluster refuses addresses of cluster east: address 172.20.0.1 is in 172.20.0.0/16; change them there")
	for name, c := range map[string]struct {
		lose            func(*explain.Facts)
		explain, status string // "": nothing about it, or the Membership states it
	}{
		"refused here, all of them": {func(f *explain.Facts) {
			f.Records[1].Status.Conditions = []metav1.Condition{refused}
			f.Slices = []discoveryv1.EndpointSlice{slice("east", 0, 0)}
		}, "x this cluster refuses addresses of cluster east: address 172.20.0.1 is in 172.20.0.0/16 " +
			"(EndpointsRefused)\n  → change them there\n", "this cluster refuses addresses of cluster east"},
		"refused here, some": {func(f *explain.Facts) {
			f.Records[1].Status.Conditions = []metav1.Condition{refused}
		}, "x this cluster refuses addresses of cluster east", "this cluster refuses addresses of cluster east"},
		"expired, while another serves": {func(f *explain.Facts) {
			f.Records = append(f.Records, record("west", 1, nil))
			f.Leases = []coordinationv1.Lease{dead("east")}
			f.Slices = []discoveryv1.EndpointSlice{slice("west", 1, 0)}
		}, "! east has expired: the other clusters serve the name\n  → in cluster east: kubectl clusterset doctor\n",
			""},
		"expired": {func(f *explain.Facts) {
			f.Leases, f.Slices = []coordinationv1.Lease{dead("east")}, nil
		}, "x east has expired: connections to its VIP fail\n  → in cluster east: kubectl clusterset doctor\n", ""},
		"withheld by a preference": {func(f *explain.Facts) {
			f.Records[1].Spec.Preference = hubv1alpha1.Preference("cluster=north")
			f.Slices[0].Labels[endpoints.LabelStandby] = "true"
		}, "x the preference selects no cluster that has a ready endpoint: connections to its VIP fail", ""},
		"refused by the hub": {func(f *explain.Facts) { f.Slices = nil },
			"x no ready endpoint of east is imported: connections to its VIP fail\n  → in cluster east: kubectl " +
				"clusterset explain web.shop\n", ""},
	} {
		f := member()
		f.Records, f.Slices = []hubv1alpha1.ServiceExportRecord{record("north", 9, func(
			s *hubv1alpha1.ServiceExportRecordSpec) {
			s.Withdrawn = true
		}), record("east", 2, nil)}, f.Slices[1:]
		c.lose(f)
		r := explain.Explain(f)
		out := text(&r)
		if !strings.Contains(out, c.explain) || strings.Contains(out, pods) {
			t.Errorf("%s: explain has no %q, or %q:\n%s", name, c.explain, pods, out)
		}
		f.Import.Status.Conditions = []metav1.Condition{condition("Ready", "True", "Ready", "")}
		s := status.Examine(&status.Facts{Member: &status.Member{
			Membership: f.Membership, Records: f.Records, Leases: f.Leases,
			Imports: []mcsv1beta1.ServiceImport{*f.Import},
		}})
		var said []string
		for _, found := range s.Findings {
			said = append(said, found.What)
		}
		if got := strings.Join(said, "\n"); !strings.Contains(got, c.status) || strings.Contains(got, pods) {
			t.Errorf("%s: status has no %q:\n%s", name, c.status, got)
		}
	}
}

// TestAnImportWithoutIPHasNoTargets: CoreDNS answers NODATA for its ports, too.
func TestAnImportWithoutIPHasNoTargets(t *testing.T) {
	f := member()
	f.Import.Spec.IPs = nil
	if r := explain.Explain(f); r.Outcome != explain.NoData || len(r.Answers) > 0 {
		t.Errorf("%s: %+v", r.Outcome, r.Answers)
	}
}
