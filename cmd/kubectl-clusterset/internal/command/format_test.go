package command

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/status"
)

// TestReportsArePrintedAsKubectlPrintsObjects, also a part of one; a format that there is not is refused at once.
func TestReportsArePrintedAsKubectlPrintsObjects(t *testing.T) {
	all := status.Report{TypeMeta: report.Kind("Status"), Findings: []report.Finding{},
		Pools: []status.PoolRow{{Pool: "10.0.0.0/8", Free: 1<<64 - 1}}}
	for output, want := range map[string]string{
		"":                                  "text",
		"wide":                              "wide text",
		"json":                              `"free": 18446744073709551615`,
		"yaml":                              "kind: Status\npools:\n",
		"jsonpath={.pools[*].pool}":         "10.0.0.0/8",
		"go-template={{len .findings}}":     "0",
		"name":                              "must be one of json|yaml|jsonpath=|wide",
		"jsonpath":                          "template format specified but no template given",
		"custom-columns=POOL:.pools[*]":     "must be one of json|yaml|jsonpath=|wide",
		`jsonpath={.pools[0].free}{"\n"}{.`: "unclosed action",
	} {
		var f format
		cmd := &cobra.Command{SilenceErrors: true, SilenceUsage: true}
		f.add(cmd, "wide")
		var out strings.Builder
		cmd.RunE = func(*cobra.Command, []string) error {
			return f.write(&out, &all, func(wide bool) {
				out.WriteString(map[bool]string{true: "wide "}[wide] + "text")
			})
		}
		cmd.SetArgs([]string{"--output", output})
		if output == "" {
			cmd.SetArgs(nil)
		}
		if err := cmd.Execute(); err != nil {
			out.WriteString(err.Error())
		}
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q: %s, want %q", output, &out, want)
		}
	}
}

// TestAgesAreNoChange for status --watch; anything else is.
func TestAgesAreNoChange(t *testing.T) {
	at := func(ago time.Duration, what, healthy string) string {
		seen := time.Now().Add(-ago)
		r := status.Report{
			Findings: []report.Finding{{Severity: report.Error, Check: "cut-off", About: []string{"west"}, What: what}},
			Members:  []status.MemberRow{{Cluster: "west", Healthy: healthy, Since: seen, LastSeen: &seen}},
		}
		return r.Timeless()
	}
	first := at(time.Second, "since 1s", "True")
	if again := at(time.Minute, "since 60s", "True"); again != first {
		t.Errorf("%s is not\n%s", again, first)
	}
	if other := at(time.Second, "since 1s", "False"); other == first {
		t.Errorf("no change: %s", other)
	}
}
