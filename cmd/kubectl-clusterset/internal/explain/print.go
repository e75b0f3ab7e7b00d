package explain

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/dns"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
)

// Print writes the report for people; if wide, with the host names of a Headless name and all properties. Ages are
// counted from now.
func Print(out io.Writer, r *Report, wide bool, now time.Time) {
	fmt.Fprintf(out, "%s   %s", r.Name, headline(r))
	if r.Cluster != "" {
		fmt.Fprintf(out, "   (in cluster %s)", r.Cluster)
	}
	fmt.Fprintln(out)
	if len(r.Findings)+len(r.Unsure)+len(r.Failed)+len(r.NotRead) > 0 {
		fmt.Fprintln(out)
	}
	report.Print(out, r.Findings)
	for _, u := range r.Unsure {
		report.Note(out, "?", "as far as known: "+u, "")
	}
	for _, why := range r.Failed {
		report.Note(out, "?", why, "")
	}
	for i, p := range r.NotRead {
		remedy := ""
		if i == len(r.NotRead)-1 {
			remedy = "ask a cluster admin to run the command; the ClusterRole view grants only what is in the namespace"
		}
		report.Note(out, "?", "you lack the right to read "+string(p), remedy)
	}
	var answers, hosts, exporters, properties, withheld, external [][]string
	for _, a := range r.Answers {
		for _, d := range a.Data {
			answers = append(answers, []string{a.Type, a.Question, d})
		}
	}
	if wide {
		for _, h := range r.Hosts {
			hosts = append(hosts, []string{h})
		}
	}
	for i := range r.Exporters {
		e := &r.Exporters[i]
		ready, notReady := strconv.Itoa(e.Ready), strconv.Itoa(e.NotReady)
		if e.NotCounted {
			ready, notReady = "-", "-" // only what is imported and may be read is seen here
		}
		exporters = append(exporters, []string{e.Cluster, report.Age(now.Sub(e.Since)), e.Type,
			strings.Join(e.Ports, ", "), ready, notReady, note(e)})
	}
	for _, p := range r.Properties {
		if len(p.Others) == 0 && !wide && p.Name != "port" && !strings.HasPrefix(p.Name, "prefer") {
			continue
		}
		properties = append(properties, []string{p.Name, p.Value, p.From, p.Differing()})
	}
	for _, x := range r.Withheld {
		withheld = append(withheld, []string{x.Cluster, x.What, x.Why})
	}
	report.Table(out, "ANSWERS", nil, answers)
	report.Table(out, "HOSTS", nil, hosts)
	report.Table(out, "EXPORTED BY (oldest first)",
		[]string{"CLUSTER", "EXPORTED FOR", "TYPE", "PORTS", "READY", "NOT READY", ""}, exporters)
	report.Table(out, "IN EFFECT", []string{"PROPERTY", "VALUE", "FROM", "OTHER VALUES"}, properties)
	report.Table(out, "WITHHELD", []string{"CLUSTER", "WHAT", "WHY"}, withheld)
	for i := range r.External {
		external = append(external, r.External[i].row())
	}
	report.Table(out, "FOR CLIENTS OUTSIDE THE CLUSTERS (share: of clients whose place is not known)",
		[]string{"CLUSTER", "ADDRESSES", "UP", "WEIGHT", "SHARE", "WHERE", ""}, external)
}

func headline(r *Report) string {
	switch r.Outcome {
	case Success:
		var data []string
		for _, a := range r.Answers {
			if a.Type == "A" || a.Type == "AAAA" {
				data = append(data, a.Data...)
			}
		}
		if len(data) > 4 {
			data = append(data[:4], fmt.Sprintf("… (%d)", len(data)))
		}
		return r.Type + "   " + strings.Join(data, " ")
	case NotServed:
		return "is not served: this cluster's DNS is not configured for " + dns.Zone
	case Unknown:
		if r.Type == "" {
			return "whether it exists is unknown"
		}
		return r.Type + "   whether it has addresses is unknown"
	case NoData:
		return r.Type + "   exists without addresses (NODATA)"
	}
	return "does not exist (NXDOMAIN)"
}

func note(e *Exporter) string {
	var out []string
	if e.Here {
		out = append(out, "this cluster")
	}
	if e.Held != "" {
		out = append(out, "held: "+e.Held)
	}
	if e.Expired != "" {
		out = append(out, "expired")
	}
	if e.AgentSilent != "" {
		out = append(out,
			"since "+e.AgentSilent+" only its endpoints answer here, not its agent: they stay while it renews its "+
				"Lease, and for an hour even if that expires")
	}
	if e.Silent != "" {
		out = append(out, "since "+e.Silent+" its agent does not answer here: its endpoints stay until its Lease has "+
			"expired")
	}
	switch {
	case e.NoTraffic:
		out = append(out, "no traffic from the VIP: the preference puts others first, or leaves it out")
	case e.Preferred != "":
		out = append(out, "gets the traffic from the VIP ("+e.Preferred+")")
	}
	return strings.Join(out, "; ")
}
