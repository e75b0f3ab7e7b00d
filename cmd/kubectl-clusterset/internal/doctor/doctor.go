// Package doctor examines a member, its hub and its DNS. It is pure: facts in, findings out. Every check is a
// function of its own.
package doctor

import (
	"fmt"
	"io"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/facts"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
)

// Check looks for one kind of mistake.
type Check struct {
	Name  string
	Needs []Topic
	Look  func(f *Facts) []report.Finding
}

// Outcome is the result of one check.
type Outcome struct {
	Check    string           `json:"check"`
	Skipped  string           `json:"skipped,omitempty"` // why, or ""
	lacks    bool             // the user lacks a right for it
	Findings []report.Finding `json:"findings,omitempty"`
}

// Report has the outcomes of all checks.
type Report struct {
	metav1.TypeMeta `json:",inline"`
	Cluster         string    `json:"cluster,omitempty"`
	ClusterSet      string    `json:"clusterSet,omitempty"`
	HubOf           []string  `json:"hubOf,omitempty"` // ClusterSets, of a cluster that is no member
	Outcomes        []Outcome `json:"outcomes"`
}

// Checks returns all checks, causes before their consequences.
func Checks() []Check {
	return slices.Concat(memberChecks, hubChecks, dnsChecks, rangeChecks, externalChecks)
}

// Examine runs every check whose facts were read.
func Examine(f *Facts) Report {
	r := Report{TypeMeta: report.Kind("Doctor"), Cluster: f.ID, ClusterSet: f.Set}
	if f.onlyHub() {
		if r.HubOf = f.HubFacts.Here; slices.Contains(r.HubOf, f.HubFacts.Namespace) {
			r.ClusterSet = f.HubFacts.Namespace
		}
	}
	lacking := 0
	for _, c := range Checks() {
		o := f.skip(c)
		if o.lacks {
			lacking++
		}
		if o.Skipped == "" {
			o.Findings = f.correct(c.Name, c.Look(f))
		}
		r.Outcomes = append(r.Outcomes, o)
	}
	if lacking > 0 {
		r.Outcomes = slices.Insert(r.Outcomes, 0, f.lackedRights(lacking))
	}
	return r
}

// skip returns the outcome of a check with the reason to skip it, or without one.
func (f *Facts) skip(c Check) Outcome {
	o := Outcome{Check: c.Name}
	if f.onlyHub() && slices.ContainsFunc(c.Needs, ofMember) {
		o.Skipped = notMember + f.Join()
		return o
	}
	if f.wrongHub() && c.Name != "hub-another" && slices.ContainsFunc(c.Needs, ofHub) {
		o.Skipped = "this cluster's hub is another one: see hub-another"
		return o
	}
	for _, t := range c.Needs {
		why, unread := f.Unread[t]
		if _, forbidden := f.Forbidden[t]; forbidden {
			o.lacks = true
		}
		if !unread || o.Skipped != "" {
			continue
		}
		if o.Skipped = why; why != NotAsked {
			o.Skipped = fmt.Sprintf("reading %s failed: %s", t, why)
		}
	}
	return o
}

// lackedRights returns the outcome that says which rights the user lacks for so many checks.
func (f *Facts) lackedRights(lacking int) Outcome {
	const admins = "run it as a cluster admin, who has the rights for all checks; " + report.DocsRights
	where, remedy := " on the hub", "name the hub with its admin's credentials: --hub-kubeconfig, --hub-context"
	if f.onlyHub() {
		where, remedy = "", admins
	}
	var rights []string
	for topic, right := range f.Forbidden {
		switch {
		case f.onlyHub() && ofMember(topic): // not needed
			continue
		case ofMember(topic):
			where, remedy = "", admins
		}
		if right != "" && !slices.Contains(rights, right) {
			rights = append(rights, right)
		}
	}
	if slices.Sort(rights); len(rights) > 0 {
		rights[0] = ": " + rights[0]
	}
	found := warn(remedy, "you lack the rights%s for %s%s", where, report.Number(lacking, "check"),
		strings.Join(rights, ", "))
	found[0].Check = yourRights
	return Outcome{Check: yourRights, Findings: found}
}

// onlyHub reports whether this cluster is a hub, and nothing of a member is in it.
func (f *Facts) onlyHub() bool { return f.neverJoined() && len(f.HubFacts.Here) > 0 }

// noMember reports whether this cluster is known to be none.
func (f *Facts) noMember() bool {
	_, unread := f.Unread[Membership]
	return !unread && f.Set == ""
}

func (f *Facts) neverJoined() bool {
	return f.noMember() && f.Deployment == nil && f.Credentials == nil
}

// correct completes the findings of a check, and corrects remedies that do not work in this cluster.
func (f *Facts) correct(check string, findings []report.Finding) []report.Finding {
	if f.neverJoined() && check != "membership" {
		// A cluster that never joined has one finding, of check membership. The others would only repeat its remedy.
		findings = slices.DeleteFunc(findings, func(x report.Finding) bool { return strings.HasPrefix(x.Remedy, join) })
	}
	for i := range findings {
		findings[i].Check, findings[i].About = check, ""
		what, remedy := &findings[i].What, &findings[i].Remedy
		if f.Leaving && strings.HasPrefix(*remedy, join) { // which is refused now
			*remedy = facts.GoOnLeaving
			continue
		}
		if f.wrongHub() { // the hub's flags name another one
			const hub, another = "--hub-context=HUB", "--hub-context=CONTEXT"
			*what, *remedy = strings.ReplaceAll(*what, hub, another), strings.ReplaceAll(*remedy, hub, another)
		}
		if !f.renewable() {
			*remedy = strings.ReplaceAll(*remedy, " --renew", "")
		}
		if f.Deployment != nil && *remedy == join && f.noMember() { // it may also be to leave
			*remedy = f.Finish()
		}
	}
	return findings
}

// yourRights names the outcome that counts the checks for which the user lacks rights. It is no check.
const yourRights = "your-rights"

// Findings returns those of all checks.
func (r *Report) Findings() (out []report.Finding) {
	for _, o := range r.Outcomes {
		out = append(out, o.Findings...)
	}
	return out
}

// Print writes the report for people: findings, then skipped checks by the reason; if wide, also every check. The
// finding about rights is the reason of all checks for which they lack.
func Print(out io.Writer, r *Report, wide bool) {
	var reasons []string
	skipped, rows := map[string][]string{}, [][]string{}
	n, checks, headline := 0, len(r.Outcomes), "This cluster (without a cluster ID)"
	for _, o := range r.Outcomes {
		if o.Check == yourRights {
			checks--
		}
		result := "ok"
		switch {
		case o.Skipped != "":
			if result = "skipped"; o.Check == "cluster-id" {
				headline = "This cluster (cluster ID not readable)"
			}
			if n++; o.lacks {
				break
			}
			if skipped[o.Skipped] == nil {
				reasons = append(reasons, o.Skipped)
			}
			skipped[o.Skipped] = append(skipped[o.Skipped], o.Check)
		case len(o.Findings) > 0:
			result = string(report.Warning)
			if report.Count(o.Findings).Errors > 0 {
				result = string(report.Error)
			}
		}
		rows = append(rows, []string{o.Check, result})
	}
	if len(r.HubOf) > 0 {
		headline = "This cluster"
	}
	if r.Cluster != "" {
		headline = "Cluster " + r.Cluster
	}
	if len(r.HubOf) > 0 {
		headline += ", the hub"
	}
	if r.ClusterSet != "" {
		headline += " of ClusterSet " + r.ClusterSet
	}
	if len(r.HubOf) > 1 {
		headline += " (of " + strings.Join(r.HubOf, ", ") + "; choose with --hub-namespace)"
	}
	findings := r.Findings()
	fmt.Fprintf(out, "%s: %s, %s, %d skipped\n", headline, report.Number(checks, "check"),
		report.Count(findings), n)
	report.Print(out, findings)
	for _, why := range reasons {
		checks := strings.Join(skipped[why], ", ")
		if strings.HasPrefix(why, notMember) {
			checks = report.Number(len(skipped[why]), "check") + " of a member"
		}
		report.Note(out, "?", "skipped: "+checks, why)
	}
	if wide {
		report.Table(out, "CHECKS", nil, rows)
	}
}

func wrong(remedy, what string, args ...any) []report.Finding {
	return []report.Finding{report.Errorf(remedy, what, args...)}
}

func warn(remedy, what string, args ...any) []report.Finding {
	return []report.Finding{report.Warningf(remedy, what, args...)}
}
