// Command build is go build with the same arguments, and builds what a control plane of the laboratory runs, too. It
// shows how far all of it is.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/clusterset-dns/clusterset-dns/test/lab/gobuild"
	"github.com/clusterset-dns/clusterset-dns/test/lab/programs"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if _, err := programs.Find(ctx, programs.ControlPlane, gobuild.Build{Dir: ".", Args: os.Args[1:]}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
