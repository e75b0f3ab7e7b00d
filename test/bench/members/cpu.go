package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// ticks of the kernel's clock per second, in /proc.
const ticks = 100

// cpu is what was used of the machine's CPUs up to a moment, in ticks.
type cpu struct {
	at       time.Time
	own, all int
}

// now reads /proc; where there is none, nothing is used.
func now() cpu {
	c := cpu{at: time.Now()}
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return c
	}
	first, _, _ := bytes.Cut(stat, []byte("\n"))
	for i, f := range strings.Fields(string(first))[1:] {
		var n int
		if _, err := fmt.Sscan(f, &n); err == nil && i != 3 && i != 4 && i < 8 { // not idle, not waiting
			c.all += n
		}
	}
	parent, used := map[int]int{}, map[int]int{}
	files, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is a good one
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			continue // it has ended
		}
		if pid, ppid, _, n, ok := process(string(text)); ok {
			parent[pid], used[pid] = ppid, n
		}
	}
	for pid := range used {
		for p := pid; p > 0; p = parent[p] {
			if p == os.Getpid() {
				c.own += used[pid]
				break
			}
		}
	}
	return c
}

// process reads a line of /proc/PID/stat: own are a process's own ticks. used are these and, of the children that have
// ended, all that they and theirs used.
func process(stat string) (pid, parent, own, used int, ok bool) {
	var state, skip string
	var user, system, theirUser, theirSystem int
	_, rest, _ := strings.Cut(stat, ") ")
	if _, err := fmt.Sscan(stat, &pid); err != nil {
		return 0, 0, 0, 0, false
	}
	_, err := fmt.Sscan(
		rest,
		&state,
		&parent,
		&skip,
		&skip,
		&skip,
		&skip,
		&skip,
		&skip,
		&skip,
		&skip,
		&skip,
		&user,
		&system,
		&theirUser,
		&theirSystem,
	)
	return pid, parent, user + system, user + system + theirUser + theirSystem, err == nil
}

// used is how many CPUs this program and its children have used since, and how many others have.
func (c cpu) used() (own, others float64) {
	n := now()
	whole := n.at.Sub(c.at).Seconds() * ticks
	own = max(float64(n.own-c.own)/whole, 0)
	return own, max(float64(n.all-c.all)/whole-own, 0)
}

// load is how many processes wanted a CPU in the last minute.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "not known"
	}
	first, _, _ := strings.Cut(string(text), " ")
	return first
}
