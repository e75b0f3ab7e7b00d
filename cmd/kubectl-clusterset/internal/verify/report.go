package verify

import (
	"fmt"
	"io"
	"maps"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
)

// Report is what verify found.
type Report struct {
	metav1.TypeMeta `json:",inline"`
	ClusterSet      string           `json:"clusterSet"`
	Namespace       string           `json:"namespace"`
	Name            string           `json:"name,omitempty"`  // of the user's Service
	Steps           []Step           `json:"steps,omitempty"` // what was tried for it
	Clusters        []string         `json:"clusters"`
	Results         []Result         `json:"results"`
	Findings        []report.Finding `json:"findings"`
}

// Outcomes of a check without a problem. Any other outcome says what is wrong.
const (
	OK   = "ok"
	None = "-" // there is nothing to check
)

// Result is what the Pod of one cluster reaches of another one, or of its own.
type Result struct {
	From   string          `json:"from"`
	To     string          `json:"to"`
	Family corev1.IPFamily `json:"family"`
	Route  string          `json:"route"` // the Pod's address
	Name   string          `json:"name"`  // the names in clusterset.local: the VIP, and the address of the Pod
	VIP    string          `json:"vip"`   // the Pod, through the VIP
}

func newReport(set, namespace string, places []*place) Report {
	r := Report{
		TypeMeta: report.Kind("Verification"), ClusterSet: set, Namespace: namespace,
		Results: []Result{}, Findings: []report.Finding{},
	}
	for _, p := range places {
		r.Clusters = append(r.Clusters, p.id)
	}
	return r
}

// failed reports whether an outcome is a problem.
func failed(outcome string) bool { return outcome != OK && outcome != None }

// conclude adds a finding for each two clusters without an IP family in common, and for each check that failed, causes
// first: while a route is missing from a cluster, nothing is said of its VIP, which leads there as well.
func (r *Report) conclude(places []*place) {
	for i, p := range places {
		for _, other := range places[:i] {
			common, theirs := p.addresses(), other.addresses()
			maps.DeleteFunc(common, func(f corev1.IPFamily, _ netip.Addr) bool { return !theirs[f].IsValid() })
			if len(common) == 0 {
				r.Findings = append(r.Findings, report.Errorf("dual-stack in one of them; "+report.DocsNetwork,
					"%s and %s have no IP family in common", other.id, p.id))
			}
		}
	}
	type way struct {
		from   string
		family corev1.IPFamily
	}
	missing := map[way]bool{}
	for _, x := range r.Results {
		if x.Route != OK {
			missing[way{x.From, x.Family}] = true
		}
	}
	for i := range r.Results {
		x := &r.Results[i]
		between := "from " + x.From + " to " + x.To + " by " + string(x.Family)
		if x.Route != OK {
			r.Findings = append(r.Findings, report.Errorf("routes between the Pods, or NetworkPolicies; "+
				report.DocsNetwork, "%s, Pods do not reach each other by address: %s", between, x.Route))
		}
		if failed(x.Name) {
			r.Findings = append(r.Findings, report.Errorf("in cluster "+x.From+": kubectl clusterset doctor",
				"%s, DNS does not answer as it should: %s", between, x.Name))
		}
		if failed(x.VIP) && !missing[way{x.From, x.Family}] {
			r.Findings = append(r.Findings, report.Errorf("kubectl clusterset explain "+vipName+"."+r.Namespace+
				" (with --keep), and the log of kube-proxy in "+x.From,
				"%s, the VIP does not lead there: %s", between, x.VIP))
		}
	}
}

// Print writes the report for people.
func Print(out io.Writer, r *Report) {
	set := "ClusterSet " + r.ClusterSet
	if r.ClusterSet == "" {
		set = "No ClusterSet yet: only routes were tried"
	}
	what, tally := "clusters "+strings.Join(r.Clusters, ", "), report.Count(r.Findings).Text(out)
	if r.Name != "" {
		what = r.Name + " from cluster " + r.Clusters[0]
	}
	fmt.Fprintf(out, "%s, %s: %s\n", set, what, tally)
	if len(r.Findings) > 0 {
		fmt.Fprintln(out)
	}
	report.Print(out, r.Findings)
	var rows, steps [][]string
	for _, x := range r.Results {
		rows = append(rows, []string{x.From, x.To, string(x.Family), short(x.Route), short(x.Name), short(x.VIP)})
	}
	for _, x := range r.Steps {
		steps = append(steps, []string{x.Step, x.What, short(x.Outcome)})
	}
	report.Table(out, "STEPS", nil, steps)
	report.Table(out, "CONNECTIONS", []string{"FROM", "TO", "FAMILY", "ROUTE", "NAME", "VIP"}, rows)
}

func short(outcome string) string {
	if failed(outcome) {
		return "failed"
	}
	return outcome
}
