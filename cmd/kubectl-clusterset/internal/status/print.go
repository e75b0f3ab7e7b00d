package status

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/table"
)

// Print writes the report for a person; wide adds what is rarely asked for. now is what ages are counted from, by the hub's clock.
func Print(out io.Writer, r *Report, wide bool, now time.Time) {
	fmt.Fprintln(out, headline(r))
	if len(r.Problems) > 0 {
		fmt.Fprintln(out)
	}
	for _, p := range r.Problems {
		table.Note(out, "!", p.About+": "+p.What, p.Remedy)
	}
	if r.Here != nil {
		printWarnings(out, r.Here, wide)
	}
	columns := []string{"CLUSTER", "JOINED", "HEALTHY", "EXPORTS", "SEEN", "VERSION", ""}
	if wide {
		columns = []string{"CLUSTER", "JOINED", "HEALTHY", "EXPORTS", "SEEN", "VERSION", "ENDPOINTS", "MEMBER FOR", ""}
	}
	var members, names [][]string
	for i := range r.Members {
		members = append(members, r.Members[i].row(wide, now))
	}
	table.Write(out, "MEMBERS", columns, members)
	table.Write(out, "POOLS (mode "+r.VIPMode+")", []string{"POOL", "BLOCKS OF", "GRANTED", "FREE"}, poolTable(r))
	table.Write(out, "BLOCKS", []string{"CLUSTER", "BLOCKS"}, blockTable(r))
	for _, n := range r.Names {
		conflicts := ""
		if len(n.Conflicts) > 0 {
			conflicts = strconv.Itoa(len(n.Conflicts))
		}
		row := []string{n.Name + "." + n.Namespace, n.Type, strings.Join(n.Clusters, ","), conflicts}
		if wide {
			row = append(row, strings.Join(n.IPs, ","))
		}
		names = append(names, row)
	}
	columns = []string{"NAME", "TYPE", "EXPORTED BY", "CONFLICTS"}
	if wide {
		columns = append(columns, "IPS HERE")
	}
	table.Write(out, "NAMES", columns, names)
	if h := r.Here; h != nil {
		var ranges [][]string
		for _, x := range h.Ranges {
			ranges = append(ranges, []string{x.Range, x.ServiceCIDR, x.Use, x.State, strconv.FormatUint(x.Allocated, 10), strconv.FormatUint(x.Available, 10)})
		}
		table.Write(out, "RANGES OF VIPS HERE", []string{"RANGE", "SERVICECIDR", "USE", "STATE", "IN USE", "FREE"}, ranges)
		if wide {
			table.Write(out, "VIPS IN RANGES THAT ARE TO GO", []string{"RANGE", "IP", "IMPORT"}, movingTable(h))
		}
	}
	if h := r.Here; h != nil && r.Cluster != "" {
		fmt.Fprintf(out, "\nIn cluster %s: %s, %s with %s%s\n", r.Cluster, table.Count(h.Exports, "export"), table.Count(h.Imports, "import"), table.Count(h.VIPs, "IP"), seen(h, now))
	}
}

func headline(r *Report) string {
	set := "No clusterset"
	if r.ClusterSet != "" {
		set = "Clusterset " + r.ClusterSet
	}
	parts := []string{}
	if len(r.Members) > 0 {
		parts = append(parts, table.Count(len(r.Members), "member"))
	}
	parts = append(parts, table.Count(len(r.Names), "name"))
	if len(r.Problems) == 0 {
		parts = append(parts, "no problems")
	} else {
		parts = append(parts, table.Count(len(r.Problems), "problem"))
	}
	if r.Here != nil && len(r.Here.Warnings) > 0 {
		parts = append(parts, table.Count(len(r.Here.Warnings), "warning"))
	}
	return set + ": " + strings.Join(parts, ", ")
}

func (m *MemberRow) row(wide bool, now time.Time) []string {
	seen, here := "never", ""
	if m.LastSeen != nil {
		seen = table.Age(now.Sub(*m.LastSeen)) + " ago"
	}
	if m.Here {
		here = "this cluster"
	}
	out := []string{m.Cluster, m.Joined, m.Healthy, strconv.Itoa(m.Exports), seen, m.Version}
	if wide {
		out = append(out, strconv.Itoa(m.Endpoints), table.Age(now.Sub(m.Since)))
	}
	return append(out, here)
}

func seen(h *Here, now time.Time) string {
	if h.HubSeen == nil {
		return ""
	}
	return fmt.Sprintf("; its agent last saw the hub %s ago", table.Age(now.Sub(*h.HubSeen)))
}
