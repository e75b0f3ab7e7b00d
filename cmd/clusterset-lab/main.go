// Command clusterset-lab shows the product on real control planes of the laboratory (test/lab), and keeps one running for those who
// want to try things. make demo and make lab-down call it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

const usage = `usage: clusterset-lab demo    a hub and two clusters made a clusterset, and questions with checked answers; then all of it goes
                              KEEP=1: it stays, and bin/lab.env, to be sourced, tells where it is
       clusterset-lab up      the same without questions; it stays
       clusterset-lab env     print bin/lab.env
       clusterset-lab down    end what was left running
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	err := run(ctx, os.Args[1:])
	switch {
	case err == nil:
	case errors.Is(err, errTold):
		os.Exit(1)
	case ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "\ninterrupted; nothing is left running")
		os.Exit(130)
	default:
		fmt.Fprintln(os.Stderr, "\nclusterset-lab:", err)
		os.Exit(1)
	}
}

// errTold is a failure that the user has been told already.
var errTold = errors.New("told")

func run(ctx context.Context, args []string) error {
	if len(args) != 1 {
		fmt.Fprint(os.Stderr, usage)
		return errTold
	}
	root, err := lab.Root()
	if err != nil {
		return err
	}
	k := keeper{env: filepath.Join(root, "bin", "lab.env"), pid: filepath.Join(root, "bin", "lab.pid")}
	switch args[0] {
	case "demo":
		if os.Getenv("KEEP") != "" {
			return k.keep(ctx, args, func() (laboratory, error) { return demo(ctx, root) })
		}
		s, err := demo(ctx, root)
		s.stop()
		return err
	case "up":
		return k.keep(ctx, args, func() (laboratory, error) { return setUp(ctx, root) })
	case "env":
		return k.printEnv()
	case "down":
		return k.down(ctx)
	}
	fmt.Fprint(os.Stderr, usage)
	return errTold
}
