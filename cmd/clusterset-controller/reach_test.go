package main

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
)

// TestReachWaitsForTheAPIServer and for its kinds, alive but not ready for a kubelet, and gives the address of the probes back.
func TestReachWaitsForTheAPIServer(t *testing.T) {
	free := func() string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		return l.Addr().String()
	}
	api, probes := free(), free()
	done := make(chan error, 1)
	go func() { done <- reach(t.Context(), logr.Discard(), &rest.Config{Host: "http://" + api}, probes) }()
	get := func(path string) int {
		r, err := http.Get("http://" + probes + path)
		if err != nil {
			return 0
		}
		r.Body.Close()
		return r.StatusCode
	}
	for deadline := time.Now().Add(time.Minute); get("/healthz") != http.StatusOK; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("/healthz is not served")
		}
	}
	if code := get("/readyz"); code != http.StatusServiceUnavailable {
		t.Errorf("/readyz: %d", code)
	}
	select {
	case err := <-done:
		t.Fatalf("it does not wait: %v", err)
	default:
	}
	l, err := net.Listen("tcp", api)
	if err != nil {
		t.Fatal(err)
	}
	missing, served := make(chan struct{}), atomic.Bool{}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case req.URL.Path != "/apis/hub.clusterset-dns.io/v1alpha1":
			_, _ = w.Write([]byte(`{}`))
		case !served.Load():
			w.WriteHeader(http.StatusNotFound)
			missing <- struct{}{}
		default:
			_, _ = w.Write([]byte(`{"kind": "APIResourceList", "groupVersion": "hub.clusterset-dns.io/v1alpha1", "resources": [
				{"name": "serviceexportrecords", "kind": "ServiceExportRecord", "namespaced": true}]}`))
		}
	})}
	defer server.Close()
	go func() { _ = server.Serve(l) }()
	<-missing
	served.Store(true) // a second time it is asked all the same: it waits
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if l, err = net.Listen("tcp", probes); err != nil {
		t.Fatalf("the manager needs the address: %v", err)
	}
	l.Close()

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := reach(ended, logr.Discard(), &rest.Config{Host: "http://" + free()}, "0"); err == nil {
		t.Error("it was to end, and says that the API server answers")
	}
}
