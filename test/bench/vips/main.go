// Command vips measures what a VIP costs on a real API server: controllers/clustersetips picks addresses beside
// controllers/servicecidrs, and
// the bench creates the derived Services as serviceimport does: one import at a time, and four.
package main

import (
	"context"
	"flag"
	"fmt"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
	"github.com/clusterset-dns/clusterset-dns/test/bench/bar"
	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

const (
	most = 500 * time.Millisecond // V5: 99.9 % of allocations are faster
	// V5: how much more a VIP may take, beside an ordinary Service, where VIPs or ranges are many
	flat = 1.5
	even = 1.2 // V5: how many more requests a VIP may take where VIPs are many
)

func main() {
	out := flag.String("out", "", "file to write the table to, as well as the screen")
	levels := flag.String("vips", "10,1000,10000", "how many VIPs there are when it is measured, ascending")
	rounds := flag.Int(
		"rounds",
		1000,
		"allocations measured for each line, one at a time; a quarter as many four at a time",
	)
	many := flag.Int("ranges", 1000, "ranges of the lines with many")
	only := flag.String("only", "", `measure only the cluster whose name has this in it, as "preferred, IPv4+IPv6"`)
	flag.Parse()
	ctrllog.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	table, missed, err := measure(ctx, *levels, *rounds, *many, *only)
	fmt.Print(table)
	if err == nil && *out != "" {
		err = os.WriteFile(*out, []byte(table), 0o644)
	}
	if err == nil {
		err = missed.Err()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// setting is one cluster: a mode, the families of every VIP, and ranges for them made by hand; none where the agent
// makes them of its blocks.
type setting struct {
	mode     ipam.Mode
	families []corev1.IPFamily
	ranges   int
	cut      func(i int) []string
	blocks   []string
	upTo     int // the most VIPs that it is measured at; no limit where it is 0
}

var (
	four = []corev1.IPFamily{corev1.IPv4Protocol}
	six  = []corev1.IPFamily{corev1.IPv6Protocol}
	both = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
)

// settings are those of the page; many is how many ranges those with many have.
func settings(many int) []setting {
	one := func(cidrs ...string) func(int) []string { return func(int) []string { return cidrs } }
	return []setting{
		{mode: ipam.ModeShared, families: four, upTo: 1000},
		{mode: ipam.ModePreferred, families: four, ranges: 1, cut: one("10.128.0.0/16")},
		{
			mode:     ipam.ModePreferred,
			families: four,
			ranges:   many,
			cut:      func(i int) []string { return []string{fmt.Sprintf("10.%d.%d.0/24", 128+i>>8, i&255)} },
		},
		{mode: ipam.ModePreferred, families: six, ranges: 1, cut: one("fd00:128::/64")},
		{mode: ipam.ModePreferred, families: both, ranges: 1, cut: one("10.128.0.0/16", "fd00:128::/64")},
	}
}

const page = `# What a VIP costs

Written by ` + "`make bench-vips`" + ` on one machine that also runs etcd and the API server. An allocation is the choice of an address and the
creation of the derived Service. %d are made for each line, one after another, and %d more four at a time (the column x4: p50, without a bar).
VIPs is how many there are before. Writes, dry-runs and reads are requests for one VIP, the creation of the derived Service included, watches
not. Memory is the heap with the caches. Beside every allocation an ordinary Service of the same families is made; the column x ordinary is
the VIP's p50 as times of that. It is flat in time if no line has more than %.1f times what the first of its mode has, and flat in requests if
writes, dry-runs and reads together are at most %.1f times those of the first line of the same mode, families and ranges.

| mode | families | ranges | VIPs | p50 | p99 | p99.9 | bar of p99.9 | holds | x ordinary | flat in time | choice p50 | choice p99.9 | writes | dry-runs | reads | flat in requests | memory | ordinary p50 | ordinary p99.9 | x4 | ordinary x4 |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
`

func measure(ctx context.Context, levels string, rounds, many int, only string) (string, bar.Missed, error) {
	var vips []int
	for text := range strings.SplitSeq(levels, ",") {
		n, err := strconv.Atoi(text)
		if err != nil {
			return "", nil, fmt.Errorf("-vips: %w", err)
		}
		vips = append(vips, n)
	}
	var b strings.Builder
	fmt.Fprintf(&b, page, rounds, rounds/crowd, flat, even)
	var missed bar.Missed
	first := map[ipam.Mode]float64{}
	for _, s := range settings(many) {
		name := fmt.Sprintf("mode %s, %s, %d ranges", s.mode, s.stack(), s.ranges)
		if !strings.Contains(name, only) {
			continue
		}
		err := s.run(ctx, &b, &missed, first, vips, rounds)
		if err != nil {
			return b.String(), missed, fmt.Errorf("%s: %w", name, err)
		}
	}
	return b.String(), missed, nil
}

// run measures one cluster at each number of VIPs. first is how many times as long as an ordinary Service a VIP
// took in each mode's first line.
func (s setting) run(
	ctx context.Context,
	b *strings.Builder,
	missed *bar.Missed,
	first map[ipam.Mode]float64,
	vips []int,
	rounds int,
) error {
	root, err := lab.Root()
	if err != nil {
		return err
	}
	cp, err := lab.Start(ctx, lab.Options{ServiceCIDR: strings.Join(own, ",")})
	if err != nil {
		return err
	}
	defer cp.Stop()
	for _, folder := range []string{"deploy/hub", "deploy/hub/clusterset", "deploy/member"} {
		if err := cp.ApplyFolder(ctx, filepath.Join(root, folder)); err != nil {
			return err
		}
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	w, err := newWorld(ctx, cp, s)
	if err != nil {
		return err
	}
	defer func() { end(); <-w.ended }()
	if err := w.ready(ctx); err != nil {
		return err
	}
	var least requests // of the first line
	for _, level := range vips {
		if s.upTo > 0 && level > s.upTo {
			continue
		}
		if _, err := w.allocate(ctx, level-w.made, crowd, false); err != nil {
			return err
		}
		before, made := w.requests.all(), w.made
		took, err := w.allocate(ctx, rounds, 1, true)
		if err != nil {
			return err
		}
		crowded, err := w.allocate(ctx, max(1, rounds/crowd), crowd, true)
		if err != nil {
			return err
		}
		spent := w.requests.all().since(before)
		each := func(n int) float64 { return float64(n) / float64(w.made-made) }
		line := fmt.Sprintf("mode %s, %s, %s ranges, %d VIPs", s.mode, s.stack(), s.count(w), made)
		last := at(took.whole, .999)
		holds := missed.Holds(fmt.Sprintf("%s: p99.9 %s, bar < %s", line, last, most), last < most)
		beside := float64(at(took.whole, .5)) / float64(at(took.ordinary, .5))
		if first[s.mode] == 0 {
			first[s.mode] = beside
		}
		inTime := missed.Holds(
			fmt.Sprintf(
				"%s: %.1f times an ordinary Service, the mode's first line %.1f",
				line,
				beside,
				first[s.mode],
			),
			beside <= flat*first[s.mode],
		)
		if least == (requests{}) {
			least = spent
		}
		inRequests := missed.Holds(
			fmt.Sprintf(
				"%s: %.2f requests, the first line of its ranges %.2f",
				line,
				each(spent.sum()),
				each(least.sum()),
			),
			s.even(spent, least),
		)
		fmt.Fprintf(
			b,
			"| %s | %s | %s | %d | %s | %s | %s | < %s | %s | %.1f | %s "+
				"| %s | %s | %.2f | %.2f | %.2f | %s | %d MiB | %s | %s | %s | %s |\n",
			s.mode,
			s.stack(),
			s.count(w),
			made,
			at(
				took.whole,
				.5,
			),
			at(took.whole, .99),
			last,
			most,
			holds,
			beside,
			inTime,
			at(took.reserve, .5),
			at(took.reserve, .999),
			each(spent.writes),
			each(spent.dryRuns),
			each(spent.reads),
			inRequests,
			heap()>>20,
			at(took.ordinary, .5),
			at(took.ordinary, .999),
			at(crowded.whole, .5),
			at(crowded.ordinary, .5),
		)
		fmt.Fprintf(
			os.Stderr,
			"%s: p99.9 %s, the longest %s, %.1f times ordinary; writes so far %s\n",
			line,
			last,
			at(took.whole, 1),
			beside,
			w.requests,
		)
	}
	return nil
}

// even reports whether as many VIPs took no more requests than at first.
func (s setting) even(spent, first requests) bool {
	return float64(spent.sum()) <= even*float64(first.sum())
}

func (s setting) stack() string {
	var names []string
	for _, f := range s.families {
		names = append(names, string(f))
	}
	return strings.Join(names, "+")
}

func (s setting) count(w *world) string {
	if s.ranges > 0 || s.mode == ipam.ModeShared {
		return strconv.Itoa(s.ranges)
	}
	return fmt.Sprintf("%d of its own", w.requests.of("create", "servicecidrs"))
}

// at is the time that this part of all took at most.
func at(took []time.Duration, part float64) time.Duration {
	sorted := slices.Sorted(slices.Values(took))
	rank := int(math.Ceil(part * float64(len(sorted)))) // the nearest, from 1
	return sorted[max(rank, 1)-1].Round(10 * time.Microsecond)
}
