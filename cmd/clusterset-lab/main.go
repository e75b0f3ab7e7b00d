// Command clusterset-lab demonstrates ClusterSets on real control planes of the laboratory (test/lab), and keeps them
// running on request. make demo and make lab-down call it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

const usage = `usage: clusterset-lab demo    create a ClusterSet of two clusters, check DNS answers, remove all of it
                              KEEP=1: keep it running, and write its addresses to bin/lab.env
       clusterset-lab down    stop what is running
`

func main() {
	log.SetLogger(logr.Discard()) // of the clients
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	err := run(ctx, os.Args[1:])
	switch {
	case err == nil:
	case errors.Is(err, errPrinted):
		os.Exit(1)
	case ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "\ninterrupted; everything is stopped")
		os.Exit(130)
	default:
		fmt.Fprintln(os.Stderr, "\nclusterset-lab:", err)
		os.Exit(1)
	}
}

// errPrinted is an error that was already printed.
var errPrinted = errors.New("printed")

func run(ctx context.Context, args []string) error {
	if len(args) != 1 {
		fmt.Fprint(os.Stderr, usage)
		return errPrinted
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
	case "down":
		return k.down(ctx)
	}
	fmt.Fprint(os.Stderr, usage)
	return errPrinted
}
