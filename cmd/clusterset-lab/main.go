// Command clusterset-lab demonstrates ClusterSets on real control planes of the laboratory (test/lab), and keeps them
// running on request. make demo calls it.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

const usage = `usage: clusterset-lab demo    create a ClusterSet of two clusters, check DNS answers, remove all of it
                              KEEP=1: keep it running until Ctrl-C, with its addresses in bin/lab.env`

// stopSignals stop the laboratory.
var stopSignals = []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}

func main() {
	if !slices.Equal(os.Args[1:], []string{"demo"}) {
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
	log.SetLogger(logr.Discard()) // of the clients
	ctx, stop := signal.NotifyContext(context.Background(), stopSignals...)
	defer stop()
	err := run(ctx)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "\ninterrupted; everything is stopped")
		os.Exit(130)
	default:
		fmt.Fprintln(os.Stderr, "\nclusterset-lab:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	root, err := lab.Root()
	if err != nil {
		return err
	}
	path := ""
	if os.Getenv("KEEP") != "" {
		path = filepath.Join(root, "bin", "lab.env")
	}
	return present(ctx, path, func() (laboratory, error) { return demo(ctx, root) })
}

// laboratory is what a demo leaves running.
type laboratory interface {
	env() string // content of the file for shells to source
	stop()
}

// present runs a demo, and then stops its laboratory. If path is not "", it first writes the addresses to a new file
// there, and waits for an interrupt.
func present(ctx context.Context, path string, demo func() (laboratory, error)) error {
	var file *os.File
	if path != "" {
		var err error
		file, err = os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
		if os.IsExist(err) {
			return fmt.Errorf("a laboratory is running already; if it was killed, remove %s", path)
		}
		if err != nil {
			return err
		}
		defer os.Remove(path)
		defer file.Close()
	}
	s, err := demo()
	defer s.stop()
	if err != nil || path == "" {
		return err
	}
	if _, err := file.WriteString(s.env()); err != nil {
		return err
	}
	fmt.Printf("\nThe clusters keep running. To use them in another shell: source %s. To stop them: Ctrl-C.\n\n", path)
	<-ctx.Done()
	return ctx.Err()
}
