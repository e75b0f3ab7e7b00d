// Command kubectl-clusterset creates and operates ClusterSets. In the PATH, it is kubectl clusterset.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/command"
)

// version is set by the build with -ldflags "-X main.version=...".
var version = "dev"

func main() {
	log.SetLogger(logr.Discard()) // of the clients
	klog.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	err := command.New(version, os.Stdout, os.Stderr).ExecuteContext(ctx)
	code, print := command.ExitCode(err)
	if print && ctx.Err() != nil {
		fmt.Fprintln(os.Stderr, "interrupted; run the same command again to continue")
		os.Exit(130)
	}
	if print {
		fmt.Fprintln(os.Stderr, "error:", err)
	}
	os.Exit(code)
}
