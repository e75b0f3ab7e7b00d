// Command vips measures what a VIP costs on a real API server: the room that gives them out (controllers/clustersetip) as the agent runs it,
// asked by four at a time as by its controllers, which make the derived Services.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
	"github.com/clusterset-dns/clusterset-dns/test/bench/bar"
	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

const most = 500 * time.Millisecond // V5: 99.9 % of allocations are faster

func main() {
	out := flag.String("out", "", "file to write the table to, besides the screen")
	levels := flag.String("vips", "10,1000,10000", "how many VIPs there are when it is measured, ascending")
	rounds := flag.Int("rounds", 1000, "allocations measured for each line")
	many := flag.Int("ranges", 1000, "ranges of the lines with many")
	flag.Parse()
	ctrllog.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	table, missed, err := measure(ctx, *levels, *rounds, *many)
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

// setting is one cluster: a mode, and ranges for VIPs made by hand; none where the agent makes them of its blocks.
type setting struct {
	mode   ipam.Mode
	ranges int
	cut    func(i int) string
	blocks []string
}

func measure(ctx context.Context, levels string, rounds, many int) (string, bar.Missed, error) {
	var vips []int
	for text := range strings.SplitSeq(levels, ",") {
		n, err := strconv.Atoi(text)
		if err != nil {
			return "", nil, fmt.Errorf("-vips: %w", err)
		}
		vips = append(vips, n)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# What a VIP costs\n\nWritten by `make bench-vips` on one machine that also runs etcd and the API server. An allocation is Reserve, the creation of the derived Service and Settle; "+
		"four are under way at a time, %d for each line. Requests are writes of the agent for one VIP, fences and their mending included. Memory is the heap of the room and its caches. "+
		"Beside every allocation an ordinary Service is made, which tells what the machine and its API server were at: the last columns.\n\n"+
		"| mode | ranges | VIPs | p50 | p99 | p99.9 | bar of p99.9 | holds | Reserve p50 | Reserve p99.9 | requests | memory | ordinary p50 | ordinary p99.9 |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n", rounds)
	var fences []string
	var missed bar.Missed
	for _, s := range []setting{
		{mode: ipam.ModePreferred, ranges: 1, cut: func(int) string { return "10.128.0.0/16" }},
		{mode: ipam.ModePreferred, ranges: many, cut: func(i int) string { return fmt.Sprintf("10.%d.%d.0/24", 128+i>>8, i&255) }},
		{mode: ipam.ModeExclusive, blocks: []string{"10.128.0.0/16"}},
		{mode: ipam.ModeExclusive, ranges: many, cut: func(i int) string { return fmt.Sprintf("10.%d.%d.%d/28", 128+i>>12, i>>4&255, i&15<<4) }},
	} {
		fence, err := s.run(ctx, &b, &missed, vips, rounds)
		if err != nil {
			return b.String(), missed, fmt.Errorf("mode %s, %d ranges: %w", s.mode, s.ranges, err)
		}
		if fence != "" {
			fences = append(fences, fence)
		}
	}
	fmt.Fprintf(&b, "\nFences: %s.\n", strings.Join(fences, "; "))
	return b.String(), missed, nil
}

// run measures one cluster at each number of VIPs.
func (s setting) run(ctx context.Context, b *strings.Builder, missed *bar.Missed, vips []int, rounds int) (fence string, err error) {
	root, err := lab.Root()
	if err != nil {
		return "", err
	}
	cp, err := lab.Start(ctx, lab.Options{})
	if err != nil {
		return "", err
	}
	defer cp.Stop()
	for _, folder := range []string{"deploy/hub", "deploy/hub/clusterset", "deploy/member"} {
		if err := cp.ApplyFolder(ctx, filepath.Join(root, folder)); err != nil {
			return "", err
		}
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	w, err := newWorld(ctx, cp, s)
	if err != nil {
		return "", err
	}
	defer func() { end(); <-w.ended }()
	began := time.Now()
	if err := w.ready(ctx); err != nil {
		return "", err
	}
	if n := w.requests.of("create", "ipaddresses"); n > 0 {
		took := time.Since(began)
		fence = fmt.Sprintf("%d addresses of %d ranges in %s, %.0f a second", n, max(1, s.ranges), took.Round(10*time.Millisecond), float64(n)/took.Seconds())
	}
	for _, level := range vips {
		if _, err := w.allocate(ctx, level-w.made, false); err != nil {
			return fence, err
		}
		writes := w.requests.all()
		took, err := w.allocate(ctx, rounds, true)
		if err != nil {
			return fence, err
		}
		requests := float64(w.requests.all()-writes) / float64(rounds)
		last := at(took.whole, .999)
		holds := missed.Holds(fmt.Sprintf("mode %s, %s ranges, %d VIPs: p99.9 %s, bar < %s", s.mode, s.count(w), level, last, most), last < most)
		fmt.Fprintf(b, "| %s | %s | %d | %s | %s | %s | < %s | %s | %s | %s | %.2f | %d MiB | %s | %s |\n", s.mode, s.count(w), level,
			at(took.whole, .5), at(took.whole, .99), last, most, holds, at(took.reserve, .5), at(took.reserve, .999), requests, heap()>>20, at(took.ordinary, .5), at(took.ordinary, .999))
		fmt.Fprintf(os.Stderr, "mode %s, %s ranges, %d VIPs: p99.9 %s; writes so far %s\n", s.mode, s.count(w), level, last, w.requests)
	}
	return fence, nil
}

func (s setting) count(w *world) string {
	if s.ranges > 0 {
		return strconv.Itoa(s.ranges)
	}
	return fmt.Sprintf("%d of its own", w.requests.of("create", "servicecidrs"))
}

// at is the time that this part of all took at most.
func at(took []time.Duration, part float64) time.Duration {
	sorted := slices.Sorted(slices.Values(took))
	i := min(int(float64(len(sorted))*part), len(sorted)-1)
	return sorted[i].Round(10 * time.Microsecond)
}
