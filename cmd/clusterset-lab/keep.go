package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// keeper is a process that keeps a laboratory running after its command has ended. It has its own session, and holds a
// lock on the file with its process ID while it runs.
type keeper struct {
	env string // path of the file for shells to source
	pid string // path of the locked file
}

// laboratory is what a keeper keeps running.
type laboratory interface {
	env() string // content of the file for shells
	stop()
}

// keeping marks the keeper process.
const keeping = "CLUSTERSET_LAB_KEEPER"

// keep runs this command again, as the keeper, and returns when the laboratory is set up. In the keeper, it sets up the
// laboratory and keeps it until down.
func (k keeper) keep(ctx context.Context, args []string, setUp func() (laboratory, error)) error {
	if os.Getenv(keeping) != "" {
		return k.hold(ctx, setUp)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	ready, tell, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ready.Close()
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), keeping+"=1")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.ExtraFiles = []*os.File{tell}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	tell.Close()
	if err != nil {
		return err
	}
	interrupted := context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(syscall.SIGTERM) }) // it may have ended
	defer interrupted()
	if n, _ := ready.Read(make([]byte, 1)); n == 1 { // nothing, if it ended
		return nil
	}
	_ = cmd.Wait() // it has printed why it failed
	return errPrinted
}

// hold runs in the keeper.
func (k keeper) hold(ctx context.Context, setUp func() (laboratory, error)) error {
	tell := os.NewFile(3, "ready")
	defer tell.Close()
	lock, err := k.lock()
	if err != nil {
		return err
	}
	if lock == nil {
		return errors.New("a laboratory is already running; to stop it: make lab-down")
	}
	defer lock.Close() // the file stays: nobody sees a lock on a deleted file
	if _, err := lock.WriteString(strconv.Itoa(os.Getpid())); err != nil {
		return err
	}
	s, err := setUp()
	defer s.stop()
	if err != nil {
		return err
	}
	if err := os.WriteFile(k.env, []byte(s.env()), 0o600); err != nil {
		return err
	}
	defer os.Remove(k.env)
	fmt.Printf("\nThe clusters keep running. To use them: source bin/lab.env. To stop them: make lab-down.\n\n")
	if err := closeOutput(); err != nil {
		return err
	}
	if _, err := tell.Write([]byte{1}); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// closeOutput redirects output to /dev/null, so that nobody waits for its end.
func closeOutput() error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	for fd := range 3 {
		if err := syscall.Dup3(int(null.Fd()), fd, 0); err != nil {
			return err
		}
	}
	return nil
}

// lock takes the keeper's lock. It returns nil if a keeper holds it.
func (k keeper) lock() (*os.File, error) {
	f, err := os.OpenFile(k.pid, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, f.Close()
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, f.Truncate(0)
}

// down stops the keeper, and with it the laboratory.
func (k keeper) down(ctx context.Context) error {
	for asked := false; ; asked = true {
		free, err := k.lock()
		if err != nil {
			return err
		}
		if free != nil {
			if !asked {
				fmt.Println("no laboratory is running")
			}
			_ = os.Remove(k.env) // a killed keeper leaves it
			return free.Close()
		}
		if !asked {
			if err := k.ask(); err != nil {
				return err
			}
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// ask tells the keeper to stop. It holds the lock, so the process ID is its own.
func (k keeper) ask() error {
	b, err := os.ReadFile(k.pid)
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return fmt.Errorf("%s has no process ID: %w", k.pid, err)
	}
	return syscall.Kill(pid, syscall.SIGTERM)
}
