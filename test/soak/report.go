package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// results are what the report is made of. What is going on adds to them from several sides.
type results struct {
	seed uint64
	raw  string
	sum  string // of raw, once it is closed
	size int64
	tape *tape

	mu     sync.Mutex
	askers []*asker
	counts
	tally          tally
	gone, returned []time.Duration // during the random faults
	findings       []finding
}

func (r *results) counting(a *asker) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.askers = append(r.askers, a)
}

func (r *results) finding(f finding) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.findings = append(r.findings, f)
}

// shook takes in what the random faults have come to so far.
func (r *results) shook(w *world, t *tally) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tally = *t
	r.tally.faults = maps.Clone(t.faults)
	r.gone, r.returned = w.oracle.Figures()
}

// write writes the report as it stands.
func (r *results) write(path string) {
	if path == "" {
		return
	}
	if err := os.WriteFile(path, []byte(r.text()), 0o644); err != nil {
		r.tape.fail("the report: %v", err)
	}
}

// text is docs/reliability.md.
func (r *results) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts = counts{}
	for _, a := range r.askers {
		a.soFar(&r.counts)
	}
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	p("# Reliability\n")
	p(
		"`make soak` wrote this page on %s. A hub and members a, b and c ran on one machine of %d cores, which other "+
			"programs used as well. Each cluster is a real control plane (etcd, kube-apiserver, "+
			"kube-controller-manager) "+
			"with our agent and CoreDNS, the hub with our controller. Each program has its own ServiceAccount. "+
			"Leases have "+
			"their defaults: renewed every 10 s, for 40 s, 10 s of grace, `Remove`. The agents do not ask each other "+
			"here (`POD_IPS` is not set), so a member that is down goes by its Lease, in 50 s instead of 5 "+
			"([failover](failover.md)). The run asked %d names over "+
			"UDP %d times "+
			"a second in every member, and checked every answer against what was published when "+
			"(`test/soak/oracle`). For a "+
			"name with a VIP an answer is wrong if the VIP is another or missing; the quiet checks look at the "+
			"endpoints of VIPs.\n",
		time.Now().UTC().Format("2 January 2006"),
		runtime.NumCPU(),
		len(names),
		int(time.Second/every),
	)
	p(
		"Version %s, seed %d; faults and changes are drawn again with `make soak SEED=%d`. Every change, fault "+
			"and answer is in `%s`%s.\n",
		version,
		r.seed,
		r.seed,
		filepath.Base(r.raw),
		r.kept(),
	)
	r.sums(p)
	r.shaken(p)
	r.memory(p)
	section := ""
	for _, f := range r.findings {
		if f.section != section {
			section = f.section
			p("\n## %s\n\n| what | seen | bound |\n| --- | --- | --- |", section)
		}
		holds := ""
		if !f.holds {
			holds = " **FAILED**"
		}
		p("| %s | %s%s | %s |", f.what, f.seen, holds, f.bound)
	}
	if failed := r.tape.failed(); len(failed) > 0 {
		p("\n## What must not be\n\n```\n%s\n```", short(failed, 50))
	}
	return b.String()
}

// kept tells by what the log is known that belongs to this page.
func (r *results) kept() string {
	if r.sum == "" {
		return ""
	}
	return fmt.Sprintf(": %.1f MB, SHA-256 `%s`", float64(r.size)/1e6, r.sum)
}

// sums are of everything.
func (r *results) sums(p func(string, ...any)) {
	p("| | |\n| --- | --- |")
	p("| queries | %d |", r.asked)
	p("| wrong answers | %d |", r.wrong)
	p("| VIP changes | %d |", r.vipChanges)
	down := 0
	for _, n := range r.unanswered {
		down += n
	}
	p("| unanswered, because that CoreDNS was down or starting | %d |", down)
	for _, why := range slices.Sorted(maps.Keys(r.unanswered)) {
		p("| … %s | %d |", why, r.unanswered[why])
	}
	p("| unanswered for %v by a CoreDNS that was ready, while the machine stood still | %d |", patience, r.stalled)
	p(
		"| … stalls of %v and more of a UDP echo that was asked as often; in sum; the longest | %d; %s; %s |",
		stall,
		r.stalls,
		seconds(r.still),
		seconds(r.longest),
	)
	p("| time to an answer: p50, p99, p99.9, most | %s |", quantiles(&r.took))
	p("| the same of the echo | %s |", quantiles(&r.echo))
	p("| ordinary changes by users | %d |", r.tape.changed())
	p("| what else must not be | %d |", len(r.tape.failed())-min(r.wrong, 100))
}

func quantiles(s *spread) string {
	var out []string
	for _, percent := range []float64{50, 99, 99.9, 100} {
		out = append(out, fmt.Sprintf("%.2f ms", float64(s.below(percent))/float64(time.Millisecond)))
	}
	return strings.Join(out, ", ")
}

// shaken is the random phase.
func (r *results) shaken(p func(string, ...any)) {
	t, gone := &r.tally, bounds(byDefault, false).Gone
	p("\n## %d minutes of random faults\n", int(t.took.Minutes()))
	p(
		"Each lasts for up to two minutes, and some overlap. Users keep changing things. After each repair, a " +
			"change is " +
			"made in every member. All is right again when every name has the right answer everywhere.\n",
	)
	p(
		"An answer is wrong if a published endpoint is still missing after %s, without an injected fault in its way. "+
			"It is also wrong if it has endpoints of a dead member %s after its last renewal (T1). If the answering "+
			"program or the hub had a fault, both times count from its repair. All must be right again within %s.\n\n"+
			"| fault | times |\n| --- | --- |",
		seconds(converge),
		seconds(gone),
		seconds(patient),
	)
	sum := 0
	for _, f := range slices.Sorted(maps.Keys(t.faults)) {
		p("| %s | %d |", f, t.faults[f])
		sum += t.faults[f]
	}
	p("| all | %d |\n\n| | p50 | p99 | most | of |\n| --- | --- | --- | --- | --- |", sum)
	for _, of := range []struct {
		what string
		took []time.Duration
	}{
		{"repaired → all is right everywhere", t.converged},
		{"last renewal of a dead member → its endpoints gone from the answers of another", r.gone},
		{"first renewal of a member that was dead → its endpoints back in the answers of another", r.returned},
	} {
		if len(of.took) == 0 {
			p("| %s | | | | 0 |", of.what)
			continue
		}
		p(
			"| %s | %s | %s | %s | %d |",
			of.what,
			seconds(percentile(of.took, 50)),
			seconds(percentile(of.took, 99)),
			seconds(slices.Max(of.took)),
			len(of.took),
		)
	}
	late := slices.DeleteFunc(slices.Clone(r.gone), func(d time.Duration) bool { return d <= gone })
	p(
		"\nThe slowest to be right again was: %s. Endpoints of a dead member that went more than %s after its last "+
			"renewal, beside other trouble: %d of %d. While the hub is away nobody's silence counts, so a death "+
			"in that "+
			"time counts from the hub's return ([decision 0009](decisions/0009-whose-time.md)). ",
		t.slowest,
		seconds(gone),
		len(late),
		len(r.gone),
	)
	p(
		"The users paused %d times, and the quiet checks looked at all objects: %d in sum matched the exports and "+
			"were "+
			"the same in every member (E, I, S, C). None was written in the next 20 s, in which agents were "+
			"killed and "+
			"restarted. The audit logs have %d writes of our programs, all to objects of their own.",
		t.quiets,
		t.checked,
		t.writes,
	)
}

// memory is G.
func (r *results) memory(p func(string, ...any)) {
	t := &r.tally
	all := growths(t.memory)
	if len(all) == 0 {
		return
	}
	first, last := t.memory[0].at, t.memory[len(t.memory)-1].at
	p("\n## G. Heap and goroutines\n")
	p(
		"This is the live heap after garbage collection, and the goroutines (`/debug/pprof`), with everything "+
			"exported "+
			"everywhere: at minute %.0f of the random faults, and at minute %.0f, after their end. No fault ends "+
			"these "+
			"processes in between, and they must be the same. The bound of both ratios is %.2f.\n\n"+
			"| process | heap | later | ratio | goroutines | later | ratio |\n"+
			"| --- | --- | --- | --- | --- | --- | --- |",
		first.Sub(t.began).Minutes(),
		last.Sub(t.began).Minutes(),
		most,
	)
	for _, g := range all {
		note := ""
		if g.again {
			note = " (started again in between)"
		}
		if g.fails() {
			note += " **FAILED**"
		}
		p(
			"| %s%s | %.2f MiB | %.2f MiB | %.2f | %d | %d | %.2f |",
			g.who,
			note,
			g.first.heap/(1<<20),
			g.last.heap/(1<<20),
			g.heap(),
			g.first.goroutines,
			g.last.goroutines,
			g.goroutines(),
		)
	}
}
