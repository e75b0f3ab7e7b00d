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
	for _, o := range doctor.Examine(f).Outcomes {
		if o.Check == "kubernetes-version" {
			if len(o.Findings) != 1 || !strings.Contains(o.Findings[0].What, "1.29.3") {
				t.Errorf("%+v", o)
			}
		} else if o.Skipped == "" {
			t.Errorf("%+v was made of nothing", o)
		}
	}
}
