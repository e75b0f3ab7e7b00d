package agent

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// TestS6EnvoyGatewayIsSeen by its API group: nothing else in a cluster says that somebody reads gateway slices.
func TestS6EnvoyGatewayIsSeen(t *testing.T) {
	status := http.StatusNotFound
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/apis/gateway.envoyproxy.io" {
			t.Errorf("asked for %s", r.URL.Path)
		}
		w.WriteHeader(status)
	}))
	defer server.Close()
	list, err := optionals(nil, &rest.Config{Host: server.URL}, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		status         int
		served, absent bool
	}{
		{http.StatusNotFound, false, true}, {http.StatusForbidden, false, true}, {http.StatusOK, true, false},
		{http.StatusInternalServerError, false, false},
	} {
		status = c.status
		err := list[len(list)-1].ask(t.Context())
		if (err == nil) != c.served || (err != nil && isAbsent(err)) != c.absent {
			t.Errorf("HTTP %d: %v", c.status, err)
		}
	}
}

// TestTheAgentEndsForWhatIsServedNow, once, and not for an error, nor for what was there.
func TestTheAgentEndsForWhatIsServedNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		none := apierrors.NewNotFound(schema.GroupResource{}, "")
		answers, restarts := []error{none, errors.New("away"), nil}, 0
		a := &Agent{
			env: &kube.Env{Restart: func(string) { restarts++ }},
			absent: map[string]error{
				typeName(&networkingv1.IPAddress{}): none, gatewayGroup: nil,
			},
			optional: []optional{
				{name: gatewayGroup, ask: func(context.Context) error { t.Error("it was there"); return nil }},
				{name: typeName(&networkingv1.IPAddress{}), ask: func(context.Context) error {
					next := answers[0]
					answers = answers[1:]
					return next
				}},
			},
		}
		if a.missing(&networkingv1.IPAddress{}) == nil || a.missing(&networkingv1.ServiceCIDR{}) != nil {
			t.Error("what is missing")
		}
		began := time.Now()
		a.watchOptional(t.Context())
		if took := time.Since(began); restarts != 1 || took != 3*again {
			t.Errorf("%d restarts in %v", restarts, took)
		}
	})
}
