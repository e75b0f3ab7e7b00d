// Command demo shows a ClusterSet of two clusters on real control planes of the laboratory (test/lab): it types what
// demo.txt has, and checks every answer. make demo calls it. With KEEP=1 it leaves out the end, keeps the clusters
// until Ctrl-C, with their addresses in bin/lab.env, and serves the page of kubectl clusterset ui.
package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
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
	played := script
	if keep {
		played, _, _ = strings.Cut(script, withdrawal) // so that there is something to see
	}
	if err := s.play(ctx, played); err != nil {
		return s.withLogs(err)
	}
	fmt.Println("\nAll answers were right.")
	if !keep {
		fmt.Printf("The page of kubectl clusterset ui, as it was while west had another port: %s\n",
			filepath.Join(root, "bin/clusterset.html"))
		return nil
	}
	if err := os.WriteFile(path, []byte(s.env(func(m string) string { return s.dns[m].Addr() })), 0o600); err != nil {
		return err
	}
	fmt.Printf("\nThe clusters keep running. To use them in another shell: source %s. To stop them: Ctrl-C.\n", path)
	fmt.Print("The whole clusterset on one page, by kubectl clusterset ui --context=hub: ")
	page := s.sh(ctx, "exec kubectl-clusterset ui --context=hub")
	page.Stdout, page.Stderr = os.Stdout, os.Stderr
	err = page.Run()
	return cmp.Or(ctx.Err(), err)
}
