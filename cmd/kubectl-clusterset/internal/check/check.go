// Package check finds what is wrong in a snapshot, and what to do. Every check is a row of one table; the engine runs
// them, keeps consequences silent while their cause is found, and groups what one check finds of many names or
// clusters. status, doctor and explain print what Run returns. The package reads no cluster.
package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/snapshot"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/health"
)

// Scope is what a check is about.
type Scope string

// The scopes, in the order in which they are shown.
const (
	Member Scope = "This cluster"
	DNS    Scope = "Its DNS"
	Set    Scope = "The hub and its members"
	Names  Scope = "Names"
	Asked  Scope = "The name that was asked for" // explain alone has read what these need
)

// Scopes are all scopes, in order.
var Scopes = []Scope{Member, DNS, Set, Names, Asked}

// Check is a row of the table.
type Check struct {
	ID    string // and the anchor in docs/checks.md, for which means.txt says what follows and what else to know
	Scope Scope
	Level report.Severity
	Needs []snapshot.Part // if one of them was not read, the check is skipped
	After []string        // causes: while one of them is found, this is silent
	// One says what is wrong: %s is the name or cluster. Many says it of several: %d is how many.
	One, Many string
	Do        report.Step // what to do about the first
	Look      func(w *World) []Hit
}

type parts = []snapshot.Part

// Hit is what a check has found of one name or cluster, or of this cluster.
type Hit struct {
	On     string      // a name or a cluster; "" for this cluster
	Detail string      // follows the sentence
	Do     report.Step // if it is another one than the check's
	Level  report.Severity
	After  []string // causes of this hit alone
	Alone  bool     // it causes nothing
}

// Result is what became of one check.
type Result struct {
	ID      string           `json:"check"`
	Scope   Scope            `json:"scope"`
	Skipped string           `json:"skipped,omitempty"` // why, or ""
	Right   string           `json:"right,omitempty"`   // that the user lacks for it
	Finding []report.Finding `json:"findings,omitempty"`
}

// World is a snapshot with what follows from it.
type World struct {
	*snapshot.Snapshot
	Names []*Name
	asked *types.NamespacedName
}

// See returns what follows from a snapshot; with a name, of that name only.
func See(s *snapshot.Snapshot, asked *types.NamespacedName) *World {
	w := &World{Snapshot: s, asked: asked}
	w.Names = namesOf(w, asked)
	return w
}

// Asked returns the name that was asked for.
func (w *World) Asked() *Name { return w.Names[0] }

// concerns reports whether a finding is about the name that was asked for, if one was: it is about that name, its
// namespace, this cluster, or a cluster that exports it.
func concerns(w *World, c *Check, on string) bool {
	if w.asked == nil || on == "" {
		return true
	}
	n := w.Asked()
	return on == n.String() || on == n.Namespace || c.Scope == Set && slices.ContainsFunc(n.Exporters,
		func(x Exporter) bool { return x.Cluster == on })
}

// applies reports whether a check can find anything in such a snapshot.
func applies(w *World, c *Check) bool {
	if c.Scope == Asked {
		return w.asked != nil && w.Member != nil
	}
	here := slices.ContainsFunc(c.Needs, func(p snapshot.Part) bool { return !p.OnHub() })
	return w.Member != nil || !here && (c.Scope == Names || len(c.Needs) > 0)
}

// Run returns the results of all checks that apply, causes first. A warning hides no error.
func Run(w *World) (out []Result) {
	type cause struct {
		scope Scope
		on    string
		level report.Severity
	}
	causes := map[string][]cause{}
	silenced := func(c *Check, h *Hit) bool {
		return slices.ContainsFunc(slices.Concat(c.After, h.After), func(id string) bool {
			return slices.ContainsFunc(causes[id], func(by cause) bool {
				// Of the same kind of subject, the cause must be of the same one.
				return (by.on == "" || h.On == "" || by.scope != c.Scope || by.on == h.On) &&
					(by.level == report.Error || h.Level == report.Warning)
			})
		})
	}
	for i := range Table {
		c := &Table[i]
		if !applies(w, c) {
			continue
		}
		r := Result{ID: c.ID, Scope: c.Scope}
		for _, p := range c.Needs {
			if lack, unread := w.Unread[p]; unread && r.Skipped == "" {
				r.Skipped, r.Right = fmt.Sprintf("reading %s failed: %s", p, lack.Why), lack.Right
				if lack.Why == snapshot.NotNamed {
					r.Skipped = lack.Why
				}
			}
			if r.Skipped == "" && !w.HasRead(p) {
				r.Skipped = fmt.Sprintf("%s was not read", p)
			}
		}
		if r.Skipped == "" {
			var hits []Hit
			for _, h := range c.Look(w) {
				h.Level = cmp.Or(h.Level, c.Level)
				if !silenced(c, &h) && concerns(w, c, h.On) {
					hits = append(hits, h)
				}
				if !h.Alone { // a consequence silences its own consequences, too
					causes[c.ID] = append(causes[c.ID], cause{c.Scope, h.On, h.Level})
				}
			}
			r.Finding = group(w, c, hits)
			for _, id := range []string{"set-none", "hub-wrong"} {
				if c.Scope == Set && len(causes[id]) > 0 && slices.Contains(c.After, id) {
					r.Skipped = "repair first what " + id + " finds" // nothing is said of such a hub
				}
			}
		}
		out = append(out, r)
	}
	return out
}

// group returns one finding for all hits of a level.
func group(w *World, c *Check, hits []Hit) (out []report.Finding) {
	for _, level := range []report.Severity{report.Error, report.Warning} {
		var of []Hit
		for _, h := range hits {
			if h.Level == level {
				of = append(of, h)
			}
		}
		if len(of) == 0 {
			continue
		}
		f := report.Finding{Severity: level, Check: c.ID, URL: health.URL(c.ID), What: c.One}
		if strings.Contains(c.One, "%s") {
			f.What = fmt.Sprintf(c.One, of[0].On)
		}
		detail := of[0].Detail
		if len(of) > 1 {
			var on, details []string
			for i, h := range of {
				f.About = append(f.About, h.On)
				if !slices.Contains(details, h.Detail) {
					details = append(details, h.Detail)
				}
				if h.Detail != "" && (i == 0 || h.Detail != of[i-1].Detail) {
					h.On += " (" + h.Detail + ")"
				}
				on = append(on, h.On)
			}
			detail = strings.Join(details, "; ")
			slices.Sort(f.About)
			if f.About = slices.Compact(f.About); len(f.About) > 1 {
				f.What, detail = fmt.Sprintf(c.Many, len(f.About))+": "+report.Few(on), ""
			}
		} else if of[0].On != "" {
			f.About = []string{of[0].On}
		}
		switch {
		case f.What == "":
			f.What = detail
		case detail != "":
			f.What += ": " + detail
		}
		do := c.Do
		if len(of[0].Do.Argv) > 0 {
			do = of[0].Do
		}
		if do.At == report.Subject && w.Member != nil && of[0].On == w.Member.ID() {
			do = agentLog // instead of this command
		}
		f.Remedy = w.Flags.Step(do.On(of[0].On))
		out = append(out, f)
	}
	return out
}

func Findings(results []Result) []report.Finding {
	out := []report.Finding{}
	for _, r := range results {
		out = append(out, r.Finding...)
	}
	return out
}
