package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

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
	cfg, err := config(f.kubeconfig)
	if err != nil {
		return fmt.Errorf("the hub: %w", err)
	}
	logger := textlogger.NewLogger(textlogger.NewConfig()).WithValues("clusterset", f.namespace) // ID6
	ctrl.SetLogger(logger)
	klog.SetLogger(logger)
	labelMetrics(map[string]string{"clusterset": f.namespace}) // ID6
	logger.Info("starting", "version", version)
	return again(ctx, logger, runHub(ctx, f, cfg))
}

// runHub runs from a manager's beginning to its end.
func runHub(ctx context.Context, f hubFlags, cfg *rest.Config) error {
	if err := reach(ctx, ctrl.Log, cfg, f.probes); err != nil {
		return err
	}
	options, err := hubOptions(f, cfg)
	if err != nil {
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
	return mgr.Start(ctx)
}

// hubOptions elect a leader for each clusterset by itself, and let it see that clusterset alone (P6).
func hubOptions(f hubFlags, cfg *rest.Config) (ctrl.Options, error) {
	host, err := os.Hostname() // a pod's name: a container that crashed leads again at once
	if err != nil {
		return ctrl.Options{}, err
	}
	clients, err := kubernetes.NewForConfig(rest.AddUserAgent(cfg, "leader-election"))
	if err != nil {
		return ctrl.Options{}, err
	}
	duration, deadline, retry := 30*time.Second, 25*time.Second, 2*time.Second
	name := "clusterset-hub-" + f.namespace
	return ctrl.Options{
		Scheme:                 hub.Scheme(),
		Metrics:                server.Options{BindAddress: f.metrics},
		HealthProbeBindAddress: f.probes,
		PprofBindAddress:       f.pprof,
		LeaderElection:         true,
		LeaderElectionResourceLockInterface: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: kube.SystemNamespace, Name: name},
			Client:    clients.CoordinationV1(), LockConfig: resourcelock.ResourceLockConfig{Identity: host},
		},
		LeaderElectionID:              name,
		LeaderElectionNamespace:       kube.SystemNamespace,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 &duration,
		RenewDeadline:                 &deadline,
		RetryPeriod:                   &retry,
		Cache: cache.Options{
			DefaultTransform:  cache.TransformStripManagedFields(),
			DefaultNamespaces: map[string]cache.Config{f.namespace: {}},
		},
	}, nil
}
