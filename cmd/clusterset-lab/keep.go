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

// keeper is a process that holds a laboratory after the command that asked for it has ended. It has a session of its own, and as
// long as it lives it holds a lock on the file with its process id.
type keeper struct {
	env string // path of the file to be sourced
	pid string // path of the file that is locked
}

// laboratory is what a keeper holds.
type laboratory interface {
	env() string // what the file to be sourced says
	stop()
}

// keeping marks the process that is the keeper.
const keeping = "CLUSTERSET_LAB_KEEPER"

// keep runs this command again, as the keeper, and returns once the laboratory is set up. In the keeper, it sets it up and holds it
// until down.
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
	_ = cmd.Wait() // it has told why it failed
	return errTold
}

// hold is the keeper's part.
func (k keeper) hold(ctx context.Context, setUp func() (laboratory, error)) error {
	tell := os.NewFile(3, "ready")
	defer tell.Close()
	lock, err := k.lock()
	if err != nil {
		return err
	}
	if lock == nil {
		return errors.New("a laboratory is running already: make lab-down ends it")
	}
	defer lock.Close() // the file stays: a lock on one that was deleted would be seen by nobody
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
	fmt.Printf("\nIt stays: source bin/lab.env for where it is; make lab-down ends it.\n\n")
	if err := letGo(); err != nil {
		return err
	}
	if _, err := tell.Write([]byte{1}); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// letGo gives the terminal back: nobody waits for the end of its output any more.
func letGo() error {
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

// lock takes the keeper's lock; nil if a keeper holds it.
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

// down ends the keeper and with it the laboratory.
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
			_ = os.Remove(k.env) // of a keeper that was killed
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

// ask tells the keeper to end. It holds the lock, so the process id is its own.
func (k keeper) ask() error {
	b, err := os.ReadFile(k.pid)
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return fmt.Errorf("%s has no process id: %w", k.pid, err)
	}
	return syscall.Kill(pid, syscall.SIGTERM)
}

func (k keeper) printEnv() error {
	b, err := os.ReadFile(k.env)
	if err != nil {
		return fmt.Errorf("no laboratory is running (KEEP=1 make demo): %w", err)
	}
	_, err = os.Stdout.Write(b)
	return err
}
