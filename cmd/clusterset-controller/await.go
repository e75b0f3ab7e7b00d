package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

// await returns once the API server answers, or ctx ends. A program that ends for want of it is started again later and later, up to five minutes after
// the API server is back. Until then the probes are answered: alive, not ready.
func await(ctx context.Context, cfg *rest.Config, what, probes string) error {
	cfg = rest.CopyConfig(cfg)
	cfg.Timeout = 5 * time.Second
	client, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return err
	}
	var answering *http.Server
	for {
		_, err := client.ServerVersion()
		if err == nil || !unanswered(err) {
			break
		}
		fmt.Fprintf(os.Stderr, "clusterset-controller: waiting for the API server of %s: %v\n", what, err)
		if answering == nil && probes != "" && probes != "0" {
			answering = &http.Server{Addr: probes, Handler: http.HandlerFunc(waiting), ReadHeaderTimeout: time.Second}
			go func() {
				if err := answering.ListenAndServe(); err != http.ErrServerClosed {
					fmt.Fprintln(os.Stderr, "clusterset-controller: probes:", err)
				}
			}()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(2 * time.Second):
		}
	}
	if answering != nil {
		return answering.Close()
	}
	return nil
}

func waiting(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/healthz" {
		http.Error(w, "waiting for the API server", http.StatusServiceUnavailable)
	}
}
