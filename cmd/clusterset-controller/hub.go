package main

import (
	"errors"
	"flag"
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/hub"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// hubFlags are DESIGN §11's.
type hubFlags struct {
	kubeconfig, namespace string
	metrics, probes       string
	pprof                 string
}

func parseHub(args []string) (f hubFlags, err error) {
	flags := flag.NewFlagSet("hub", flag.ContinueOnError)
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "the hub's kubeconfig; empty: in-cluster")
	flags.StringVar(&f.namespace, "hub-namespace", "", "the clusterset's namespace (required)")
	flags.StringVar(&f.metrics, "metrics-bind-address", ":8080", "where /metrics is served; 0: nowhere")
	flags.StringVar(&f.probes, "health-probe-bind-address", ":8081", "where /healthz and /readyz are served; 0: nowhere")
	flags.StringVar(&f.pprof, "pprof-bind-address", "0", "where /debug/pprof is served, to whoever asks; 0: nowhere")
	if err := flags.Parse(args); err != nil {
		return f, err
	}
	switch {
	case flags.NArg() > 0:
		return f, fmt.Errorf("hub takes no arguments, and got %q", flags.Args())
	case f.namespace == "":
		return f, errors.New("--hub-namespace is required")
	case f.namespace == kube.SystemNamespace:
		return f, fmt.Errorf("--hub-namespace must not be %s, which holds what runs and no clusterset", kube.SystemNamespace)
	}
	return f, nil
}

func hubCommand(args []string) error {
	f, err := parseHub(args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	ctx := ctrl.SetupSignalHandler()
	cfg, err := config(f.kubeconfig, &lists{always: true}) // nothing compares its caches with the hub, and to list them again costs little
	if err != nil {
		return fmt.Errorf("the hub: %w", err)
	}
	logger := textlogger.NewLogger(textlogger.NewConfig()).WithValues("clusterset", f.namespace) // ID6
	ctrl.SetLogger(logger)
	klog.SetLogger(logger)
	labelMetrics(map[string]string{"clusterset": f.namespace}) // ID6
	kinds, err := reach(ctx, logger, cfg, f.probes)
	if err != nil {
		return again(ctx, logger, err)
	}
	options := hubOptions(f, kinds)
	// One that the API server does not answer cannot write either: two leaders do no harm.
	if err := elect(&options, cfg, clusterset.LeaseHubPrefix+f.namespace, func() bool { return false }); err != nil {
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
	err = errors.Join(
		mgr.Add(h),
		mgr.AddHealthzCheck("ping", func(*http.Request) error { return nil }),
		mgr.AddReadyzCheck("controllers", func(*http.Request) error { return h.Ready() }),
	)
	if err != nil {
		return err
	}
	logger.Info("starting", "version", version)
	return again(ctx, logger, mgr.Start(ctx))
}

// hubOptions let it see its clusterset alone, which elects a leader by itself (P6).
func hubOptions(f hubFlags, kinds meta.RESTMapper) ctrl.Options {
	return ctrl.Options{
		MapperProvider:         found(kinds),
		Scheme:                 hub.Scheme(),
		Metrics:                server.Options{BindAddress: f.metrics},
		HealthProbeBindAddress: f.probes,
		PprofBindAddress:       f.pprof,
		Cache: cache.Options{
			NewInformer:       kube.Informer,
			DefaultTransform:  cache.TransformStripManagedFields(),
			DefaultNamespaces: map[string]cache.Config{f.namespace: {}},
		},
	}
}
