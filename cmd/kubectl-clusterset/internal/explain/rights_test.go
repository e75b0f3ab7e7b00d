package explain_test

import (
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/explain"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/snapshot"
)

// view is what the ClusterRole view of a namespace does not let a user read.
var view = []snapshot.Part{snapshot.Properties, snapshot.Leases, snapshot.Records, snapshot.Others, snapshot.Nodes,
	snapshot.Ranges, snapshot.Drift, snapshot.DNS, snapshot.Corefile}

// TestADeveloperIsToldToExport: the roles view and edit of a namespace do not show what other clusters export.
func TestADeveloperIsToldToExport(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*world)
		want   string
	}{
		"the Service is here": {func(f *world) { f.Services = []snapshot.Service{{Namespace: "shop", Name: "web"}} },
			"x no export of web.shop is seen here: this cluster has a Service without a ServiceExport\n  → kubectl " +
				"clusterset export web -n shop\n"},
		"it is elsewhere": {func(*world) {}, "x no export of web.shop is seen here\n"},
		"the namespace refuses imports": {func(f *world) { f.Namespaces[0].Refuses = true }, "! the namespace of " +
			"web.shop refuses"},
	} {
		f := member()
		gone(f)
		f.Properties, f.Records, f.Lacks = nil, nil, append(f.Lacks, view...)
		c.change(f)
		r := f.explain()
		if got := text(&r); !strings.Contains(got, c.want) || strings.Contains(got, "no ClusterSet") {
			t.Errorf("%s: no %q in\n%s", name, c.want, got)
		}
	}
}

// TestNothingIsConcludedFromWhatWasNotRead, and each right that lacks is said in one line.
func TestNothingIsConcludedFromWhatWasNotRead(t *testing.T) {
	all := append([]snapshot.Part{snapshot.Namespaces, snapshot.Services, snapshot.Exports, snapshot.Slices}, view...)
	unread := func(f *world) {
		gone(f)
		f.Lacks = append(f.Lacks, snapshot.Imports)
	}
	for name, change := range map[string]func(*world){"a VIP": func(*world) {}, "headless": headless,
		"no import": gone, "imports": unread} {
		f := member()
		change(f)
		f.Properties, f.Namespaces, f.Records, f.Slices, f.Lacks = nil, nil, nil, nil, append(f.Lacks, all...)
		r := f.explain()
		want := map[string]explain.Outcome{"a VIP": explain.Success, "headless": explain.Unknown,
			"no import": explain.NameError, "imports": explain.Unknown}[name]
		if r.Outcome != want || len(r.Findings)+len(r.Withheld) > 0 {
			t.Errorf("%s: %+v", name, r)
		}
		if got := text(&r); !strings.Contains(got, "\n? you lack the right to read clusterproperties\n") ||
			strings.Count(got, "→") != 1 || strings.Contains(got, "NXDOMAIN") != (want == explain.NameError) {
			t.Errorf("%s:\n%s", name, got)
		}
	}
	for ready, want := range map[int]string{1: "", 0: "x no endpoint of web.shop is ready, so connections fail\n"} {
		f := member()
		f.Import.Status.Clusters = []mcsv1beta1.ClusterStatus{{Cluster: "east"}}
		f.Properties, f.Records, f.Lacks = nil, nil, append(f.Lacks, view...)
		f.Slices = []discoveryv1.EndpointSlice{slice("east", ready, 1)}
		r := f.explain()
		got := text(&r)
		if len(r.Findings) > 0 != (want != "") || !strings.Contains(got, want) ||
			!strings.Contains(got, "serviceexportrecords in clusterset-system\n") {
			t.Errorf("%d ready: no %q in\n%s", ready, want, got)
		}
	}
	f := member()
	f.Slices, f.Lacks = nil, append(f.Lacks, snapshot.Slices)
	if r := f.explain(); len(r.Withheld) > 0 || !r.Exporters[0].NotCounted {
		t.Errorf("%+v %+v", r.Withheld, r.Exporters)
	}
}
