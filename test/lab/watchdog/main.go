// Command watchdog keeps a program of the laboratory from outliving whoever started it.
package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

func main() { os.Exit(watch(os.Args[1:])) }

// watch runs a program until it ends or standard input closes, which it does when whoever started the watchdog is
// gone, killed or not; in that case it kills the program's process group and deletes the folders. The program's
// process id is its
// only output.
//
// usage: watchdog FOLDER[:FOLDER...] PROGRAM [ARGUMENT...]
func watch(args []string) int {
	if len(args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: watchdog FOLDER[:FOLDER...] PROGRAM [ARGUMENT...]")
		return 2
	}
	runtime.LockOSThread() // Pdeathsig is sent at the end of this thread
	// Caught, not ignored: ignored ones the program would inherit.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	cmd := exec.Command(args[1], args[2:]...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(cmd.Process.Pid)
	var released atomic.Bool
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		released.Store(true)
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}()
	err := cmd.Wait()
	if released.Load() { // else its log tells why it ended, to whoever started it
		for _, folder := range strings.Split(args[0], ":") {
			if folder != "" {
				remove(folder)
			}
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// remove deletes a folder in which other programs, which are ending too, may still write for a moment.
func remove(folder string) {
	for range 50 {
		if os.RemoveAll(folder) == nil {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}
