package agent

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
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
	g, err := newGateways(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		status       int
		served, says bool
	}{{http.StatusNotFound, false, true}, {http.StatusOK, true, true}, {http.StatusInternalServerError, false, false}} {
		status = c.status
		served, err := g.ask(t.Context())
		if served != c.served || (err == nil) != c.says {
			t.Errorf("HTTP %d: served %v, error %v", c.status, served, err)
		}
	}
}

// TestS6TheAgentStartsAgainForEnvoyGateway, once, and not for an error, nor if it seems to have gone.
func TestS6TheAgentStartsAgainForEnvoyGateway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		restarts := 0
		g := &gateways{}
		answers := []func() (bool, error){
			func() (bool, error) { return false, nil },
			func() (bool, error) { return false, errors.New("away") },
			func() (bool, error) { return true, nil },
		}
		g.ask = func(context.Context) (bool, error) {
			next := answers[0]
			answers = answers[1:]
			return next()
		}
		began := time.Now()
		g.watch(t.Context(), func(string) { restarts++ })
		if took := time.Since(began); restarts != 1 || took != 3*again {
			t.Errorf("%d restarts in %v", restarts, took)
		}
		g.served.Store(true)
		g.ask = func(context.Context) (bool, error) { return false, nil }
		if g.watch(t.Context(), func(string) { restarts++ }); restarts != 1 {
			t.Error("it starts again because Envoy Gateway seems to have gone")
		}
	})
}
