// Package doctor shows what every check has found in a snapshot.
package doctor

import (
	"fmt"
	"io"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/check"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
)

// Report has the results of all checks that apply.
type Report struct {
	metav1.TypeMeta `json:",inline"`
	Cluster         string         `json:"cluster,omitempty"`
	ClusterSet      string         `json:"clusterSet,omitempty"`
	HubOf           []string       `json:"hubOf,omitempty"` // ClusterSets, of a cluster that is no member
	Outcomes        []check.Result `json:"outcomes"`
}

func Examine(w *check.World, results []check.Result) Report {
	r := Report{TypeMeta: report.Kind("Doctor"), HubOf: w.HubHere, Outcomes: results}
	if w.Member != nil {
		r.Cluster, r.ClusterSet = w.Member.ID(), w.Member.Set()
	} else if set := w.Hub.Set(); set != nil {
		r.ClusterSet = set.Name
	}
	return r
}

// Print writes the report for people: findings, what was skipped by the reason, and the groups that are well; if wide,
// also every check.
func Print(out io.Writer, r *Report, wide bool) {
	findings, skipped := check.Findings(r.Outcomes), 0
	var reasons, rights []string
	by, rows := map[string][]string{}, [][]string{}
	for _, o := range r.Outcomes {
		result := "ok"
		switch {
		case o.Skipped != "":
			result, skipped = "skipped", skipped+1
			if o.Right != "" {
				rights = append(rights, o.Right)
				break
			}
			reasons, by[o.Skipped] = append(reasons, o.Skipped), append(by[o.Skipped], o.ID)
		case len(o.Finding) > 0:
			result = string(o.Finding[0].Severity)
		}
		rows = append(rows, []string{o.ID, result})
	}
	fmt.Fprintf(out, "%s: %s, %s, %d skipped\n", r.headline(), report.Number(len(r.Outcomes), "check"),
		report.Count(findings).Text(out), skipped)
	report.Print(out, findings)
	slices.Sort(reasons)
	for _, why := range slices.Compact(reasons) {
		report.Note(out, "?", "skipped: "+strings.Join(by[why], ", "), why)
	}
	if len(rights) > 0 {
		slices.Sort(rights)
		report.Note(out, "?", "skipped for lack of rights: "+strings.Join(slices.Compact(rights), ", "),
			"run it as a cluster admin, who has the rights for all checks; "+report.DocsRights)
	}
	for _, scope := range check.Scopes {
		well, all := 0, 0
		for _, o := range r.Outcomes {
			if o.Scope == scope && o.Skipped == "" {
				all++
				if len(o.Finding) == 0 {
					well++
				}
			}
		}
		if all > 0 && well == all {
			report.Note(out, "✓", fmt.Sprintf("%s: %s", scope, report.Number(well, "check")), "")
		}
	}
	if wide {
		report.Table(out, "CHECKS", nil, rows)
	}
}

func (r *Report) headline() string {
	out := "This cluster (without a cluster ID)"
	switch {
	case len(r.HubOf) > 0:
		out = "This cluster, the hub"
	case r.Cluster != "":
		out = "Cluster " + r.Cluster
	case slices.ContainsFunc(r.Outcomes, func(o check.Result) bool { return o.ID == "no-member" && o.Skipped != "" }):
		out = "This cluster (cluster ID not readable)"
	}
	if r.ClusterSet != "" {
		out += " of ClusterSet " + r.ClusterSet
	}
	if len(r.HubOf) > 1 {
		out += " (of " + strings.Join(r.HubOf, ", ") + "; choose with --hub-namespace)"
	}
	return out
}
