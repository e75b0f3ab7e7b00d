package main

import (
	"net/http/httptest"
	"testing"
	"time"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
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

func TestV5RequestsOfAVIPAreFlat(t *testing.T) {
	first := requests{writes: 2000, dryRuns: 10, reads: 490} // of 1,000 VIPs
	for _, tt := range []struct {
		name  string
		in    setting
		spent requests
		want  bool
	}{
		{"the same", setting{mode: ipam.ModePreferred, families: four, ranges: 1}, first, true},
		{
			"one in five more", setting{mode: ipam.ModePreferred, families: four, ranges: 1},
			requests{writes: 2500, reads: 500}, true,
		},
		{
			"a write more for each", setting{mode: ipam.ModePreferred, families: four, ranges: 1},
			requests{writes: 3000, dryRuns: 10, reads: 490}, false,
		},
		{
			"a read more for each", setting{mode: ipam.ModePreferred, families: four, ranges: 1},
			requests{writes: 2000, dryRuns: 10, reads: 1490}, false,
		},
		{
			"a dry run more for each", setting{mode: ipam.ModeShared, families: four},
			requests{writes: 2000, dryRuns: 1010, reads: 490}, false,
		},
	} {
		if got := tt.in.even(tt.spent, first); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestV5EverySettingIsMeasured(t *testing.T) {
	modes := map[ipam.Mode]bool{}
	for _, s := range settings(1000) {
		modes[s.mode] = true
		if (s.ranges > 0) != (s.cut != nil) {
			t.Errorf("%s, %s: %d ranges, and how they are cut: %v", s.mode, s.stack(), s.ranges, s.cut != nil)
		}
	}
	for _, mode := range []ipam.Mode{ipam.ModeShared, ipam.ModePreferred} {
		if !modes[mode] {
			t.Errorf("mode %s has no line", mode)
		}
	}
}

func TestAPercentileIsOfTheNearestRank(t *testing.T) {
	var took []time.Duration // 1 to 1,000 ms
	for i := range 1000 {
		took = append(took, time.Duration(1000-i)*time.Millisecond)
	}
	for part, want := range map[float64]time.Duration{0: 1, .5: 500, .99: 990, .999: 999, 1: 1000} {
		if got := at(took, part); got != want*time.Millisecond {
			t.Errorf("%v: %v, want %d ms", part, got, want)
		}
	}
	if got := at(took[:1], .999); got != time.Second {
		t.Errorf("of one: %v", got)
	}
}
