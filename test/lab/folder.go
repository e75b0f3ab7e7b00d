package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// newFolder makes a folder of this process in parent. It deletes those of processes that have ended: a watchdog that
// was killed as well left them. kind has no dash.
func newFolder(parent, kind string) (string, error) {
	prefix := "clusterset-lab-" + kind + "-"
	old, _ := filepath.Glob(filepath.Join(parent, prefix+"*-*")) // the pattern is ours
	for _, dir := range old {
		owner, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), prefix), "-")
		if ended(owner) {
			_ = os.RemoveAll(dir) // another user's stays
		}
	}
	return os.MkdirTemp(parent, fmt.Sprintf("%s%d-", prefix, os.Getpid()))
}

// ended returns whether pid is a process ID that no process has.
func ended(pid string) bool {
	n, err := strconv.Atoi(pid)
	return err == nil && n > 0 && errors.Is(syscall.Kill(n, 0), syscall.ESRCH)
}
