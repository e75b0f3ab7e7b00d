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
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // by nohup
		ends = append(ends, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), ends...)
	defer stop()
	context.AfterFunc(ctx, func() {
		signal.Ignore(syscall.SIGHUP) // a terminal that closes sends it twice
		stop()                        // another signal ends the program at once
	})
	cmd, err := command.New(version, os.Stdout, os.Stderr).ExecuteContextC(ctx)
	text, code := command.Ended(cmd, err)
	fmt.Fprint(os.Stderr, text)
	os.Exit(code)
}
