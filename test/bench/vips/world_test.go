package main

import (
	"net/http/httptest"
	"testing"
)

func TestRequestsAreCountedByTheirKind(t *testing.T) {
	const base = "https://api.example"
	c := &counter{n: map[string]int{}}
	for _, r := range []struct{ method, path string }{
		{"POST", "/api/v1/namespaces/bench/services"},
		{"POST", "/api/v1/namespaces/bench/services?dryRun=All"},
		{"PUT", "/apis/networking.k8s.io/v1/servicecidrs/range-0/status"},
		{"DELETE", "/apis/networking.k8s.io/v1/ipaddresses/10.0.0.1"},
		{"GET", "/apis/networking.k8s.io/v1/ipaddresses/10.0.0.1"},
		{"GET", "/api/v1/services?limit=500"},
		{"GET", "/api/v1/services?allowWatchBookmarks=true&watch=true"},
	} {
		c.count(httptest.NewRequest(r.method, base+r.path, nil))
	}
	if got, want := c.all(), (requests{writes: 3, dryRuns: 1, reads: 2}); got != want {
		t.Errorf("counted %+v, want %+v", got, want)
	}
	if n := c.of("create", "services"); n != 1 {
		t.Errorf("%d Services created, want 1: a dry run creates none", n)
	}
	if got, want := c.all().since(requests{1, 1, 1}), (requests{writes: 2, reads: 1}); got != want {
		t.Errorf("since: %+v, want %+v", got, want)
	}
}
