package status

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/facts"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/imports"
)

// Event is one of type Warning about VIPs and their ranges. It is no finding: its cause may be over.
type Event struct {
	Reason string    `json:"reason"`
	About  string    `json:"about"` // kind, and name or namespace/name
	Seen   time.Time `json:"seen"`  // last, by this cluster's clock
	Note   string    `json:"note"`
}

// shown is how many are printed unless wide.
const shown = 10

// warnings returns the last Event of each reason and object, newest first. Imports report a missing VIP themselves.
func warnings(events []eventsv1.Event) (out []Event) {
	last := map[[3]string]Event{}
	for i := range events {
		e := &events[i]
		if !strings.HasPrefix(e.Reason, "VIP") && e.Reason != "RangesNotTold" || e.Reason == imports.ReasonFull {
			continue
		}
		w := Event{Reason: e.Reason, About: about(&e.Regarding), Seen: facts.EventTime(e), Note: e.Note}
		k := [3]string{w.Reason, w.About}
		if e.Reason == "VIPRangeOverflow" { // of one cluster, two families
			k[2] = w.Note
		}
		if before, ok := last[k]; !ok || newestFirst(w, before) < 0 {
			last[k] = w
		}
	}
	for _, w := range last {
		out = append(out, w)
	}
	slices.SortFunc(out, newestFirst)
	return out
}

func newestFirst(a, b Event) int {
	return cmp.Or(b.Seen.Compare(a.Seen), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.About, b.About),
		cmp.Compare(a.Note, b.Note))
}

func about(o *corev1.ObjectReference) string {
	if o.Namespace == "" || o.Kind == "Namespace" {
		return o.Kind + " " + o.Name
	}
	return o.Kind + " " + o.Namespace + "/" + o.Name
}

// printEvents prints the newest, or all.
func printEvents(out io.Writer, h *Here, all bool) {
	if h.Unread != "" {
		report.Note(out, "?", "reading the agent's Events failed: "+h.Unread,
			"kubectl get events -A --field-selector type=Warning")
	}
	var rows [][]string
	for _, w := range h.Events {
		if all || len(rows) < shown {
			rows = append(rows, []string{report.Age(h.now.Sub(w.Seen)) + " ago", w.Reason, w.About, w.Note})
		}
	}
	report.Table(out, "WARNING EVENTS ABOUT VIPS HERE", []string{"SEEN", "REASON", "ABOUT", "NOTE"}, rows)
	if more := len(h.Events) - len(rows); more > 0 {
		fmt.Fprintf(out, "  and %d more: -o wide\n", more)
	}
}
