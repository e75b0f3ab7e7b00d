package verify

import (
	"strings"
	"testing"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
)

// TestCausesAreFound: what fails without a route is not blamed on the VIP.
func TestCausesAreFound(t *testing.T) {
	for _, c := range []struct {
		route, name, vip string
		errors           int
		says             string
	}{
		{OK, OK, OK, 0, "0 errors"},
		{"i/o timeout", OK, "i/o timeout", 1, "routes between the Pods"},
		{OK, OK, "40 connections to 10.96.0.1 did not reach west", 1, "kube-proxy in east"},
		{OK, "no such host", OK, 1, "in cluster east: kubectl clusterset doctor"},
		{"i/o timeout", "no such host", "i/o timeout", 2, "failed   failed   failed"},
	} {
		r := newReport("blue", "verify-1", []*place{{id: "east"}, {id: "west"}})
		r.Results = []Result{{"east", "west", "IPv4", c.route, c.name, c.vip}}
		if c.route != OK { // a VIP leads there, too
			r.Results = append(r.Results, Result{"east", "east", "IPv4", OK, OK, "i/o timeout"})
		}
		r.Results = append(r.Results, Result{"east", "east", "IPv6", OK, OK, None})
		r.conclude()
		var out strings.Builder
		Print(&out, &r)
		if report.Count(r.Findings).Errors != c.errors || !strings.Contains(out.String(), c.says) {
			t.Errorf("%+v:\n%s", c, out.String())
		}
	}
}
