// Command kubectl-clusterset makes clustersets and looks after them: kubectl clusterset, once it is in the PATH.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/command"
)

// version is ours; the build sets it with -ldflags "-X main.version=...".
var version = "dev"

func main() {
	log.SetLogger(logr.Discard()) // of the clients
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := command.New(version, os.Stdout, os.Stderr).ExecuteContext(ctx)
	switch {
	case err == nil:
	case errors.Is(err, command.ErrFound): // and told
		os.Exit(1)
	case ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "interrupted; to go on: the same command again")
		os.Exit(130)
	default:
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}
