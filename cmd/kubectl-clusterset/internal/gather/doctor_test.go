package gather

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/doctor"
)

// TestDoctorSpeaksOfAnOldClusterThatShowsNothing: kinds that are not there, or not to be read, are no reason to say
// nothing.
func TestDoctorSpeaksOfAnOldClusterThatShowsNothing(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/version" {
			fmt.Fprint(w, `{"gitVersion": "v1.29.3"}`)
			return
		}
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(
			w,
			`{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden",
				"code": 403, "message": "not to be read"}`,
		)
	}))
	defer api.Close()
	member, err := cluster.New("this cluster", &rest.Config{Host: api.URL})
	if err != nil {
		t.Fatal(err)
	}
	f, err := Doctor(t.Context(), Source{Member: member, HubNamespace: "clusterset"})
	if err != nil {
		t.Fatal(err)
	}
	r := doctor.Examine(f)
	for _, o := range r.Outcomes {
		want := map[string]string{"kubernetes-version": "1.29.3", "your-rights": "you lack the rights for 37 checks: " +
			"clusterproperties.about.k8s.io (get), customresourcedefinitions.apiextensions.k8s.io (list), "}
		if want := want[o.Check]; want != "" {
			if len(o.Findings) != 1 || !strings.Contains(o.Findings[0].What, want) {
				t.Errorf("%+v, want %q", o, want)
			}
		} else if o.Skipped == "" || strings.Contains(o.Skipped, "*v1") {
			t.Errorf("%+v was made of nothing", o)
		}
	}
	var out strings.Builder
	doctor.Print(&out, &r, false)
	if want := "This cluster (cluster ID not readable): "; !strings.HasPrefix(out.String(), want) {
		t.Errorf("no %q in\n%s", want, &out)
	}
	if n := strings.Count(out.String(), "\n"); n > 7 || strings.Contains(out.String(), "*v1") {
		t.Errorf("%d lines, or Go types, in\n%s", n, &out)
	}
}
