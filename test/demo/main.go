// Command demo shows a ClusterSet of two clusters on real control planes of the laboratory (test/lab): it types what
// demo.txt has, and checks every answer. make demo calls it. With KEEP=1 it keeps the clusters until Ctrl-C, with their
// addresses in bin/lab.env.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// stopSignals stop the laboratory.
var stopSignals = []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}

func main() {
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
		fmt.Fprintln(os.Stderr, "\ndemo:", err)
		os.Exit(1)
	}
}

// run plays the script. With KEEP, it keeps what runs until an interrupt.
func run(ctx context.Context) error {
	root, err := lab.Root()
	if err != nil {
		return err
	}
	path, keep := filepath.Join(root, "bin", "lab.env"), os.Getenv("KEEP") != ""
	if keep {
		file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL, 0o600)
		if os.IsExist(err) {
			return fmt.Errorf("a laboratory is running already; if it was killed, remove %s", path)
		}
		if err != nil {
			return err
		}
		defer os.Remove(path)
		defer file.Close()
	}
	s := &stage{root: root, dns: map[string]*lab.DNS{}}
	defer s.stop()
	if err := s.start(ctx); err != nil {
		return err
	}
	if err := s.play(ctx, script); err != nil {
		return s.withLogs(err)
	}
	fmt.Println("\nAll answers were right.")
	if !keep {
		return nil
	}
	if err := os.WriteFile(path, []byte(s.env()), 0o600); err != nil {
		return err
	}
	fmt.Printf("\nThe clusters keep running. To use them in another shell: source %s. To stop them: Ctrl-C.\n\n", path)
	<-ctx.Done()
	return ctx.Err()
}
