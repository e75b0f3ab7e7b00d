package doctor

import (
	"fmt"
	"io"
	"strings"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/table"
)

// Print writes the report for a person: errors, warnings, what was not looked at; with wide every check.
func Print(out io.Writer, r *Report, wide bool) {
	warnings, notMade := 0, 0
	for _, o := range r.Outcomes {
		if o.NotMade != "" {
			notMade++
		}
		warnings += len(o.Findings)
	}
	warnings -= r.Errors()
	if r.Cluster != "" {
		fmt.Fprintf(out, "Cluster %s", r.Cluster)
	} else {
		fmt.Fprint(out, "A cluster without an id")
	}
	if r.ClusterSet != "" {
		fmt.Fprintf(out, " of clusterset %s", r.ClusterSet)
	}
	fmt.Fprintf(out, ": %s, %s, %s, %d not made\n", table.Count(len(r.Outcomes), "check"), table.Count(r.Errors(), "error"), table.Count(warnings, "warning"), notMade)
	list(out, r, "x", Error)
	list(out, r, "!", Warning)
	notMadeBy(out, r)
	if !wide {
		return
	}
	var rows [][]string
	for _, o := range r.Outcomes {
		result := "ok"
		switch {
		case o.NotMade != "":
			result = "not made"
		case len(o.Findings) > 0:
			result = string(o.Findings[0].Severity)
		}
		rows = append(rows, []string{o.Check, result})
	}
	table.Write(out, "CHECKS", nil, rows)
}

func list(out io.Writer, r *Report, mark string, severity Severity) {
	for _, o := range r.Outcomes {
		for _, x := range o.Findings {
			if x.Severity == severity {
				table.Note(out, mark, x.Check+": "+x.What, x.Remedy)
			}
		}
	}
}

// notMadeBy lists the checks that were not made by the reason why.
func notMadeBy(out io.Writer, r *Report) {
	var reasons []string
	checks := map[string][]string{}
	for _, o := range r.Outcomes {
		if o.NotMade == "" {
			continue
		}
		if checks[o.NotMade] == nil {
			reasons = append(reasons, o.NotMade)
		}
		checks[o.NotMade] = append(checks[o.NotMade], o.Check)
	}
	for _, why := range reasons {
		table.Note(out, "?", "not checked: "+strings.Join(checks[why], ", "), why)
	}
}
