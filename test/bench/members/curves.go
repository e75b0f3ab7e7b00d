package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// curves are the CPUs that the hub's programs and this one use over time.
type curves struct {
	etcd  string // its URL, which is among the arguments of both
	end   context.CancelFunc
	ended chan struct{}

	mu     sync.Mutex
	points []point
}

// point is what each had used up to a moment, in seconds of CPU.
type point struct {
	at   time.Time
	used map[string]float64
}

// programs are those whose curves are drawn.
var programs = []string{"API server", "etcd", "simulated members"}

// sample starts the curves of the hub with that etcd.
func sample(ctx context.Context, etcd string) *curves {
	c := &curves{etcd: etcd, ended: make(chan struct{})}
	ctx, c.end = context.WithCancel(ctx)
	go func() {
		defer close(c.ended)
		lost, last := map[string]float64{}, map[string]float64{} // of processes that were replaced
		for {
			used := c.look()
			for name, n := range used {
				if n+lost[name] < last[name] {
					lost[name] = last[name]
				}
			}
			for name := range last {
				used[name] = max(used[name]+lost[name], last[name])
			}
			last = maps.Clone(used)
			c.mu.Lock()
			c.points = append(c.points, point{time.Now(), used})
			c.mu.Unlock()
			select {
			case <-ctx.Done():
				return
			case <-time.After(500 * time.Millisecond):
			}
		}
	}()
	return c
}

func (c *curves) stop() {
	c.end()
	<-c.ended
}

// look reads /proc.
func (c *curves) look() map[string]float64 {
	used := map[string]float64{}
	files, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is a good one
	for _, f := range files {
		name := ""
		line, err := os.ReadFile(filepath.Join(filepath.Dir(f), "cmdline"))
		if err != nil {
			continue // it has ended
		}
		program, _, _ := bytes.Cut(line, []byte{0})
		switch base := filepath.Base(string(program)); {
		case f == fmt.Sprintf("/proc/%d/stat", os.Getpid()):
			name = "simulated members"
		case base == "kube-apiserver" && bytes.Contains(line, []byte(c.etcd)):
			name = "API server"
		case base == "etcd" && bytes.Contains(line, []byte(c.etcd)):
			name = "etcd"
		default:
			continue
		}
		text, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		if _, _, own, _, ok := process(string(text)); ok {
			used[name] += float64(own) / ticks
		}
	}
	return used
}

// total is what each has used so far.
func (c *curves) total() map[string]float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.points) == 0 {
		return nil
	}
	return c.points[len(c.points)-1].used
}

// since is what each has used until a moment, since before.
func (c *curves) since(before map[string]float64, until time.Time) map[string]float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string]float64{}
	for _, p := range c.points {
		if p.at.After(until) {
			break
		}
		for name, n := range p.used {
			out[name] = n - before[name]
		}
	}
	return out
}

// plot draws them, with the moments of an outage, as SVG.
func (c *curves) plot(u *outage) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	const left, top, width, height, before = 50, 40, 660, 180, 10 * time.Second
	from := u.killed.Add(-before)
	length := c.points[len(c.points)-1].at.Sub(from).Seconds()
	x := func(at time.Time) float64 { return left + width*at.Sub(from).Seconds()/length }
	most := 1.0
	paths := map[string][]string{}
	var rates []map[string]float64
	for i := 2; i < len(c.points); i++ { // over a second each
		rate := map[string]float64{}
		for _, name := range programs {
			over := c.points[i].at.Sub(c.points[i-2].at).Seconds()
			rate[name] = max(0, (c.points[i].used[name]-c.points[i-2].used[name])/over)
			most = max(most, rate[name])
		}
		rates = append(rates, rate)
	}
	y := func(cpus float64) float64 { return top + height*(1-cpus/most) }
	for i, rate := range rates {
		if at := c.points[i+1].at; at.After(from) {
			for _, name := range programs {
				paths[name] = append(paths[name], fmt.Sprintf("%.1f %.1f", x(at), y(rate[name])))
			}
		}
	}
	var out strings.Builder
	fmt.Fprint(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 270" font-family="sans-serif" `+
		`font-size="12" fill="#808080">`+"\n")
	for cpus := 0.0; cpus <= most; cpus++ {
		fmt.Fprintf(&out, `<path d="M%d %.0fh%d" stroke="#808080" stroke-opacity="0.4"/><text x="%d" y="%.0f" `+
			`text-anchor="end">%.0f CPU</text>`+"\n", left, y(cpus), width, left-6, y(cpus)+4, cpus)
	}
	for second := 0; float64(second) < length-before.Seconds(); second += 10 {
		fmt.Fprintf(&out, `<text x="%.0f" y="%d" text-anchor="middle">%d s</text>`+"\n",
			x(u.killed.Add(time.Duration(second)*time.Second)), top+height+18, second)
	}
	var last time.Duration
	for _, d := range u.synced {
		last = max(last, d)
	}
	for what, at := range map[string]time.Time{"killed": u.killed, "back": u.back, "all in sync": u.back.Add(last)} {
		fmt.Fprintf(&out, `<path d="M%.1f %dv%d" stroke="#808080" stroke-dasharray="4"/><text x="%.1f" y="%d" `+
			`text-anchor="middle">%s</text>`+"\n", x(at), top, height, x(at), top-6, what)
	}
	for i, name := range programs {
		fmt.Fprintf(&out, `<path fill="none" stroke="%s" stroke-width="2" d="M%s"/><text x="%d" y="16" `+
			`fill="%[1]s">%[4]s</text>`+"\n",
			[]string{"#2f81f7", "#d29922", "#3fb950"}[i], strings.Join(paths[name], "L"), left+i*170, name)
	}
	out.WriteString("</svg>\n")
	return out.String()
}
