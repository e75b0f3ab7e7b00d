package explain

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/table"
)

// Print writes the report for a person; wide adds the host names of a Headless name. now is what ages are counted from.
func Print(out io.Writer, r *Report, wide bool, now time.Time) {
	fmt.Fprintf(out, "%s   %s", r.Name, headline(r))
	if r.Cluster != "" {
		fmt.Fprintf(out, "   (in cluster %s)", r.Cluster)
	}
	fmt.Fprintln(out)
	if len(r.Problems)+len(r.Unsure)+len(r.NotRead) > 0 {
		fmt.Fprintln(out)
	}
	for _, p := range r.Problems {
		table.Note(out, "!", p.What, p.Remedy)
	}
	for _, u := range r.Unsure {
		table.Note(out, "?", "as far as known: "+u, "")
	}
	if len(r.NotRead) > 0 {
		var parts []string
		for _, p := range r.NotRead {
			parts = append(parts, string(p))
		}
		table.Note(out, "?", "not read: "+strings.Join(parts, ", ")+", since you may not", "")
	}
	var answers, hosts, vips, exporters, properties, withheld [][]string
	for _, v := range r.VIPs {
		vips = append(vips, []string{v.Address, v.Range, v.ServiceCIDR, v.Use})
	}
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
		exporters = append(exporters, []string{e.Cluster, table.Age(now.Sub(e.Since)), e.Type, strings.Join(e.Ports, ", "),
			strconv.Itoa(e.Ready), strconv.Itoa(e.NotReady), note(e, r.Type)})
	}
	for _, p := range r.Properties {
		properties = append(properties, []string{p.Name, p.Value, p.From, others(&p)})
	}
	for _, x := range r.Withheld {
		withheld = append(withheld, []string{x.Cluster, x.What, x.Why})
	}
	table.Write(out, "ANSWERS", nil, answers)
	table.Write(out, "HOSTS", nil, hosts)
	table.Write(out, "VIPS", []string{"ADDRESS", "RANGE", "SERVICECIDR", "FOR"}, vips)
	table.Write(out, "EXPORTED BY, oldest first", []string{"CLUSTER", "AGE", "TYPE", "PORTS", "READY", "NOT READY", ""}, exporters)
	table.Write(out, "IN EFFECT", []string{"PROPERTY", "VALUE", "FROM", "OTHERWISE IN"}, properties)
	table.Write(out, "WITHHELD", []string{"CLUSTER", "WHAT", "WHY"}, withheld)
}

func others(p *Property) string {
	var out []string
	for _, c := range slices.Sorted(maps.Keys(p.Others)) {
		v := p.Others[c]
		if v == "" {
			v = "none"
		}
		out = append(out, c+" ("+v+")")
	}
	return strings.Join(out, ", ")
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
			data = append(data[:4], fmt.Sprintf("… %d in all", len(data)))
		}
		return r.Type + "   " + strings.Join(data, " ")
	case Unknown:
		return r.Type + "   whether it has addresses was not read"
	case NoData:
		return r.Type + "   exists, with no address (NODATA)"
	}
	return "does not exist (NXDOMAIN)"
}

func note(e *Exporter, merged string) string {
	var out []string
	if e.Here {
		out = append(out, "this cluster")
	}
	if e.Held != "" {
		out = append(out, "held: "+e.Held)
	}
	if e.Dead != "" {
		out = append(out, "counts as dead: "+e.Dead)
	}
	if e.Unreached != "" {
		out = append(out, "not reached: "+e.Unreached)
	}
	switch {
	case e.Silent:
		out = append(out, "no traffic by the VIP: the preference is for the own cluster's")
	case e.Preferred != "" && merged == string(mcsv1beta1.Headless):
		out = append(out, "answered first here ("+e.Preferred+")")
	case e.Preferred != "":
		out = append(out, "preferred: the VIP's traffic goes here ("+e.Preferred+")")
	}
	return strings.Join(out, "; ")
}
