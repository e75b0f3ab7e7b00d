package main

import (
	"context"
	"errors"
	"flag"
	"fmt"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/hub"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// hubFlags are described in DESIGN §11.
type hubFlags struct {
	kubeconfig, namespace string
	addresses
}

func parseHub(args []string) (f hubFlags, err error) {
	flags := flag.NewFlagSet("hub", flag.ContinueOnError)
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "the hub's kubeconfig; empty: in-cluster")
	flags.StringVar(&f.namespace, "hub-namespace", "", "the clusterset's namespace (required)")
	f.bind(flags)
	if err := flags.Parse(args); err != nil {
		return f, err
	}
	switch {
	case flags.NArg() > 0:
		return f, fmt.Errorf("hub takes no arguments, and got %q", flags.Args())
	case f.namespace == "":
		return f, errors.New("--hub-namespace is required")
	case f.namespace == kube.SystemNamespace:
		return f, fmt.Errorf("--hub-namespace must not be %s: that is not for clustersets", kube.SystemNamespace)
	}
	return f, nil
}

func hubCommand(ctx context.Context, logger logr.Logger, args []string) error {
	f, err := parseHub(args)
	if err != nil {
		return err
	}
	cfg, err := loadConfig(f.kubeconfig)
	if err != nil {
		return fmt.Errorf("the hub: %w", err)
	}
	logger = logger.WithValues("clusterset", f.namespace) // ID6
	klog.SetLogger(logger)
	kinds, err := waitForKinds(ctx, logger, cfg, f.probes)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	options := hubOptions(f, kinds)
	// A leader whose API server does not answer cannot write: it does no harm beside another one.
	never := func() bool { return false }
	if err := elect(&options, cfg, clusterset.LeaseHubPrefix+f.namespace, never, end); err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(cfg, options)
	if err != nil {
		return err
	}
	h, err := hub.New(mgr, f.namespace)
	if err != nil {
		return err
	}
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "clusterset_hub_build_info", Help: "Always 1, with the version of this replica.",
	}, []string{"version"})
	return run(ctx, mgr, h.Ready, f.addresses, prometheus.Labels{"clusterset": f.namespace}, build)
}

// hubOptions limit the caches to the clusterset.
func hubOptions(f hubFlags, kinds meta.RESTMapper) ctrl.Options {
	o := managerOptions(f.addresses, kinds)
	o.Scheme = hub.Scheme()
	o.Cache.DefaultNamespaces = map[string]cache.Config{f.namespace: {}}
	return o
}
