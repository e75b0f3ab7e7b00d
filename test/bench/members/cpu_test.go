package main

import (
	"os"
	"os/exec"
	"testing"
)

// TestCPUsOfAProcessThatHasEndedAreOurs: an agent that was killed has used them for this.
func TestCPUsOfAProcessThatHasEndedAreOurs(t *testing.T) {
	for name, c := range map[string]struct {
		stat              string
		pid, parent, used int
		ok                bool
	}{
		"with children that have ended": {"17 (agent one) S 4 17 17 0 -1 4194560 9 8 7 6 100 20 3 4 20 0 9 0 55 1 " +
			"1", 17, 4, 127, true},
		"cut off": {"17 (agent) S 4 17 17 0", 17, 4, 0, false},
		"nothing": {"", 0, 0, 0, false},
	} {
		pid, parent, _, used, ok := process(c.stat)
		if ok != c.ok || ok && (pid != c.pid || parent != c.parent || used != c.used) {
			t.Errorf("%s: %d of %d used %d, %v", name, pid, parent, used, ok)
		}
	}
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("no /proc here")
	}
	before := now().own
	if err := exec.Command("sh", "-c", "n=0; while [ $n -lt 300000 ]; do n=$((n+1)); done").Run(); err != nil {
		t.Fatal(err)
	}
	if after := now().own; after < before+5 {
		t.Errorf("%d ticks, %d before a child that counts to 300000", after, before)
	}
}
