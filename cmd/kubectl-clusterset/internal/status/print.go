package status

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/reach"
)

// rows is how many names are shown, unless all are asked for.
const rows = 20

// Print writes the report for people. Ages are counted from now, by the hub's clock.
func Print(out io.Writer, r *Report, wide bool, now time.Time) {
	fmt.Fprintln(out, headline(out, r))
	if len(r.Findings)+len(r.Lacks)+len(r.Failed) > 0 {
		fmt.Fprintln(out)
	}
	report.Print(out, r.Findings)
	if len(r.Lacks) > 0 {
		report.Note(out, "?", "not all was read, for lack of rights: "+strings.Join(r.Lacks, ", "),
			"run it as a cluster admin; "+report.DocsRights)
	}
	for _, why := range r.Failed {
		report.Note(out, "?", why, "")
	}
	columns := strings.Split("CLUSTER,STATE,EXPORTS,SEEN,FROM HERE,DNS,VERSION,KUBERNETES,", ",")
	if wide {
		columns = slices.Insert(columns, len(columns)-1, "ENDPOINTS", "MEMBER FOR")
	}
	var members, pools, blocks [][]string
	for i := range r.Members {
		m := &r.Members[i]
		members = append(members, m.row(wide, now))
		if len(m.Blocks) > 0 {
			blocks = append(blocks, []string{m.Cluster, strings.Join(m.Blocks, ", ")})
		}
	}
	for _, p := range r.Pools {
		free := strconv.FormatUint(p.Free, 10)
		if p.Free >= 1<<20 {
			free = "over a million"
		}
		pools = append(pools, []string{p.Pool, "/" + strconv.Itoa(p.Bits), strconv.Itoa(p.Granted), free})
	}
	report.Table(out, "MEMBERS", columns, members)
	report.Table(out, "POOLS (mode "+r.VIPMode+")", []string{"POOL", "BLOCKS OF", "GRANTED", "FREE"}, pools)
	report.Table(out, "BLOCKS", []string{"CLUSTER", "BLOCKS"}, blocks)
	printNames(out, r, wide)
	if wide {
		versions := "\nVersions: kubectl-clusterset " + r.Client
		if r.Here != nil && r.Here.DNSTag != "" {
			versions += ", CoreDNS here " + r.Here.DNSTag
		}
		if r.HubVersion != "" {
			versions += ", the hub's controller " + r.HubVersion
		}
		fmt.Fprintln(out, versions)
	}
	if r.Here != nil && r.Cluster != "" {
		printHere(out, r, now)
	}
}

// Timeless returns the report as text, without ages and what else passes with time alone.
func (r *Report) Timeless() string {
	all := *r
	all.Failed = nil // may name the port of a connection
	all.Findings = slices.Clone(r.Findings)
	for i := range all.Findings {
		all.Findings[i].What = strings.Join(all.Findings[i].About, " ") // What may have an age
	}
	var out strings.Builder
	Print(&out, &all, true, time.Time{})
	return out.String()
}

func printNames(out io.Writer, r *Report, wide bool) {
	columns := []string{"NAME", "TYPE", "EXPORTED BY (ready endpoints)", "CONFLICTS"}
	here := r.Here != nil && !r.Here.Unread
	if here {
		columns = append(columns, "IMPORTED HERE")
	}
	outside := slices.ContainsFunc(r.Names, func(n NameRow) bool { return len(n.External) > 0 })
	if outside {
		columns = append(columns, "FOR CLIENTS OUTSIDE")
	}
	if wide {
		columns = append(columns, "IPS HERE")
	}
	shown := r.Names
	if !wide && len(shown) > rows {
		shown = shown[:rows]
	}
	var lines [][]string
	for _, n := range shown {
		conflicts := ""
		if n.Conflicts > 0 {
			conflicts = strconv.Itoa(n.Conflicts)
		}
		var exporters []string
		for _, x := range n.Exporters {
			exporters = append(exporters, x.String())
		}
		line := []string{n.Name + "." + n.Namespace, n.Type, strings.Join(exporters, ", "), conflicts}
		if here {
			line = append(line, map[bool]string{true: "yes", false: "no"}[n.Imported])
		}
		if outside {
			line = append(line, strings.Join(n.External, ","))
		}
		if wide {
			line = append(line, strings.Join(n.IPs, ","))
		}
		lines = append(lines, line)
	}
	report.Table(out, "NAMES", columns, lines)
	if more := len(r.Names) - len(shown); more > 0 {
		fmt.Fprintf(out, "  and %d more: -o wide\n", more)
	}
}

// String returns the cluster with its ready endpoints.
func (x *ExporterCell) String() string {
	var of []string
	switch {
	case x.Expired:
		of = append(of, "expired")
	case x.Counted && x.Ready == x.Total:
		of = append(of, strconv.Itoa(x.Ready))
	case x.Counted:
		of = append(of, fmt.Sprintf("%d of %d", x.Ready, x.Total))
	}
	if x.To != "" {
		of = append(of, "to "+x.To)
	}
	if len(of) == 0 {
		return x.Cluster
	}
	return x.Cluster + " (" + strings.Join(of, ", ") + ")"
}

func printHere(out io.Writer, r *Report, now time.Time) {
	h := r.Here
	imports := report.Number(h.Imports, "import") + " with " + report.Number(h.VIPs, "IP")
	if h.Unread {
		imports = "imports not known"
	}
	of := report.Number(h.Exports, "export") + ", " + imports
	if len(r.Members) == 0 { // else its row has them
		of += fmt.Sprintf("; DNS: %s; agent: %s", cmp.Or(h.DNS, "not known"), cmp.Or(h.Version, "not known"))
	}
	if h.HubSeen != nil {
		of += fmt.Sprintf("; its agent last saw the hub %s ago", report.Age(now.Sub(*h.HubSeen)))
	}
	fmt.Fprintf(out, "\nIn cluster %s: %s\n", r.Cluster, of)
}

func headline(out io.Writer, r *Report) string {
	set := "No ClusterSet"
	if r.ClusterSet != "" {
		set = "ClusterSet " + r.ClusterSet
	}
	var parts []string
	if len(r.Members) > 0 {
		parts = append(parts, report.Number(len(r.Members), "member"))
	}
	parts = append(parts, report.Number(len(r.Names), "name"), report.Count(r.Findings).Text(out))
	return set + ": " + strings.Join(parts, ", ")
}

// state returns what the conditions of its ClusterProfile say, the first that lacks alone.
func (m *MemberRow) state() string {
	switch no := string(metav1.ConditionFalse); {
	case m.Joined == no:
		return "joining"
	case m.Healthy != string(metav1.ConditionTrue):
		return "not live"
	case m.Ready == no:
		return "not ready"
	}
	return "live"
}

func (m *MemberRow) row(wide bool, now time.Time) []string {
	seen, here := "never", ""
	if m.LastSeen != nil {
		seen = report.Age(now.Sub(*m.LastSeen)) + " ago"
	}
	if m.Here {
		here = "this cluster"
	}
	from := map[string]string{"": "-", string(reach.Answers): "reached"}[m.Reach] // DNS answers
	out := []string{m.Cluster, m.state(), strconv.Itoa(m.Exports), seen, cmp.Or(from, strings.ToLower(m.Reach)),
		cmp.Or(m.DNS, "-"), cmp.Or(m.Version, "-"), cmp.Or(m.Kubernetes, "-")}
	if wide {
		out = append(out, strconv.Itoa(m.Endpoints), report.Age(now.Sub(m.Since)))
	}
	return append(out, here)
}
