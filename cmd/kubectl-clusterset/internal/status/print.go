package status

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
)

// Print writes the report for people. Ages are counted from now, by the hub's clock.
func Print(out io.Writer, r *Report, wide bool, now time.Time) {
	fmt.Fprintln(out, headline(r))
	if len(r.Findings) > 0 {
		fmt.Fprintln(out)
	}
	report.Print(out, r.Findings)
	columns := []string{"CLUSTER", "JOINED", "HEALTHY", "EXPORTS", "SEEN", "ANSWERS", "KUBERNETES", ""}
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
	if r.Here != nil {
		printHere(out, r, now)
	}
}

func printNames(out io.Writer, r *Report, wide bool) {
	columns := []string{"NAME", "TYPE", "EXPORTED BY", "CONFLICTS"}
	if r.Here != nil {
		columns = append(columns, "IMPORTED HERE")
	}
	outside := slices.ContainsFunc(r.Names, func(n NameRow) bool { return len(n.External) > 0 })
	if outside {
		columns = append(columns, "FOR CLIENTS OUTSIDE")
	}
	if wide {
		columns = append(columns, "IPS HERE")
	}
	var rows [][]string
	for _, n := range r.Names {
		conflicts := ""
		if len(n.Conflicts) > 0 {
			conflicts = strconv.Itoa(len(n.Conflicts))
		}
		var exporters []string
		for _, cluster := range n.Clusters {
			said := cluster
			if to := n.ExportTo[cluster]; to != "" {
				said += " (to " + to + ")"
			}
			if slices.Contains(n.Idle, cluster) {
				said += " (none ready)"
			}
			exporters = append(exporters, said)
		}
		row := []string{n.Name + "." + n.Namespace, n.Type, strings.Join(exporters, ","), conflicts}
		if r.Here != nil {
			row = append(row, map[bool]string{true: "yes", false: "no"}[n.Imported])
		}
		if outside {
			row = append(row, strings.Join(n.External, ","))
		}
		if wide {
			row = append(row, strings.Join(n.IPs, ","))
		}
		rows = append(rows, row)
	}
	report.Table(out, "NAMES", columns, rows)
}

func printHere(out io.Writer, r *Report, now time.Time) {
	h := r.Here
	var ranges [][]string
	for _, x := range h.Ranges {
		ranges = append(ranges, []string{x.Range, x.ServiceCIDR, x.State, strconv.FormatUint(x.Allocated, 10),
			strconv.FormatUint(x.Available, 10)})
	}
	report.Table(out, "RANGES OF VIPS HERE", []string{"RANGE", "SERVICECIDR", "STATE", "ALLOCATED", "FREE"}, ranges)
	if r.Cluster == "" {
		return
	}
	seen := ""
	if h.HubSeen != nil {
		seen = fmt.Sprintf("; its agent last saw the hub %s ago", report.Age(now.Sub(*h.HubSeen)))
	}
	fmt.Fprintf(out, "\nIn cluster %s: %s, %s with %s%s\n", r.Cluster, report.Number(h.Exports, "export"),
		report.Number(h.Imports, "import"), report.Number(h.VIPs, "IP"), seen)
}

func headline(r *Report) string {
	set := "No ClusterSet"
	if r.ClusterSet != "" {
		set = "ClusterSet " + r.ClusterSet
	}
	var parts []string
	if len(r.Members) > 0 {
		parts = append(parts, report.Number(len(r.Members), "member"))
	}
	parts = append(parts, report.Number(len(r.Names), "name"), report.Count(r.Findings).String())
	return set + ": " + strings.Join(parts, ", ")
}

func (m *MemberRow) row(wide bool, now time.Time) []string {
	seen, here := "never", ""
	if m.LastSeen != nil {
		seen = report.Age(now.Sub(*m.LastSeen)) + " ago"
	}
	if m.Here {
		here = "this cluster"
	}
	answers := strings.ToLower(cmp.Or(m.Reach, "-"))
	out := []string{m.Cluster, m.Joined, m.Healthy, strconv.Itoa(m.Exports), seen, answers, m.Version}
	if wide {
		out = append(out, strconv.Itoa(m.Endpoints), report.Age(now.Sub(m.Since)))
	}
	return append(out, here)
}
