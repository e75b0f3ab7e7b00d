package verify

import (
	"fmt"
	"io"
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
	Clusters        []string         `json:"clusters"`
	Results         []Result         `json:"results"`
	Findings        []report.Finding `json:"findings"`
}

// OK is the outcome of a check without a problem; any other outcome says what is wrong.
const OK = "ok"

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

// conclude adds a finding for each check that failed, causes first: without a route, nothing is said of the VIP.
func (r *Report) conclude() {
	for i := range r.Results {
		x := &r.Results[i]
		way := "from " + x.From + " to " + x.To + " by " + string(x.Family)
		if x.Route != OK {
			r.Findings = append(r.Findings, report.Errorf("routes between the Pods, or NetworkPolicies; "+
				report.DocsNetwork, "%s, Pods do not reach each other by address: %s", way, x.Route))
		}
		if x.Name != OK {
			r.Findings = append(r.Findings, report.Errorf("kubectl clusterset doctor, with the context of "+x.From,
				"%s, DNS does not answer as it should: %s", way, x.Name))
		}
		if x.VIP != OK && x.Route == OK {
			r.Findings = append(r.Findings, report.Errorf("kubectl clusterset explain "+vipName+"."+r.Namespace+
				" (with --keep), and the log of kube-proxy in "+x.From,
				"%s, the VIP does not lead there: %s", way, x.VIP))
		}
	}
}

// Print writes the report for people.
func Print(out io.Writer, r *Report) {
	fmt.Fprintf(out, "ClusterSet %s, clusters %s: %v\n", r.ClusterSet, strings.Join(r.Clusters, ", "),
		report.Count(r.Findings))
	if len(r.Findings) > 0 {
		fmt.Fprintln(out)
	}
	report.Print(out, r.Findings)
	var rows [][]string
	for _, x := range r.Results {
		rows = append(rows, []string{x.From, x.To, string(x.Family), short(x.Route), short(x.Name), short(x.VIP)})
	}
	report.Table(out, "CONNECTIONS", []string{"FROM", "TO", "FAMILY", "ROUTE", "NAME", "VIP"}, rows)
}

func short(outcome string) string {
	if outcome == OK {
		return OK
	}
	return "failed"
}
