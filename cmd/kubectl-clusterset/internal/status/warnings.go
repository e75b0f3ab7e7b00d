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

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/clock"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/table"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/imports"
)

// Warning is what the agent has warned of, about VIPs and their ranges. The agent does not say when it is over: a Warning is no Problem.
type Warning struct {
	Reason string    `json:"reason"`
	About  string    `json:"about"` // kind, and name or namespace/name
	Said   time.Time `json:"said"`  // last, by this cluster's clock
	Note   string    `json:"note"`  // and what to do
}

// shown is how many a person is shown without asking for more.
const shown = 10

// warnings are the last of each reason and object, the newest first, of the agent's Events of type Warning.
func warnings(events []eventsv1.Event) (out []Warning) {
	last := map[[3]string]Warning{}
	for i := range events {
		e := &events[i]
		// An import without a VIP says so itself, for as long as that is so.
		if !strings.HasPrefix(e.Reason, "VIP") && e.Reason != "RangesNotTold" || e.Reason == imports.ReasonFull {
			continue
		}
		w := Warning{Reason: e.Reason, About: about(&e.Regarding), Said: clock.Said(e), Note: e.Note}
		k := [3]string{w.Reason, w.About}
		if e.Reason == "VIPRangeOverflow" { // one per family
			k[2] = w.Note
		}
		if before, there := last[k]; !there || newestFirst(w, before) < 0 {
			last[k] = w
		}
	}
	for _, w := range last {
		out = append(out, w)
	}
	slices.SortFunc(out, newestFirst)
	return out
}

func newestFirst(a, b Warning) int {
	return cmp.Or(b.Said.Compare(a.Said), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.About, b.About), cmp.Compare(a.Note, b.Note))
}

func about(o *corev1.ObjectReference) string {
	if o.Namespace == "" || o.Kind == "Namespace" {
		return o.Kind + " " + o.Name
	}
	return o.Kind + " " + o.Namespace + "/" + o.Name
}

// printWarnings shows the newest, or all; their ages are by this cluster's clock.
func printWarnings(out io.Writer, h *Here, all bool) {
	if h.Unread != "" {
		table.Note(out, "!", "what the agent warned of is not known: "+h.Unread, "kubectl get events -A --field-selector type=Warning")
	}
	var rows [][]string
	for _, w := range h.Warnings {
		if all || len(rows) < shown {
			rows = append(rows, []string{table.Age(h.now.Sub(w.Said)) + " ago", w.Reason, w.About, w.Note})
		}
	}
	table.Write(out, "WARNINGS ABOUT VIPS HERE", []string{"SAID", "REASON", "ABOUT", "NOTE"}, rows)
	if more := len(h.Warnings) - len(rows); more > 0 {
		fmt.Fprintf(out, "  and %d more: -o wide\n", more)
	}
}
