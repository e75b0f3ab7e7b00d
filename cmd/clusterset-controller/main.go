// Command clusterset-controller runs the agent of a member cluster, or the controller of a clusterset on its hub.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
	"github.com/clusterset-dns/clusterset-dns/controllers/relist"
)

// version is set by the build with -ldflags "-X main.version=...".
var version = "dev"

const usage = `clusterset-controller COMMAND [FLAGS]

  agent     keep a member cluster's exports and imports in step with its clusterset
  hub       keep a clusterset's inventory on its hub, and clean up after members that departed
  probe     answer kubectl clusterset verify, in a Pod of its own
  version   print the version

clusterset-controller COMMAND -help lists the flags.
`

func main() {
	logger := textlogger.NewLogger(textlogger.NewConfig())
	klog.SetLogger(logger)
	ctrl.SetLogger(klog.NewKlogr()) // it takes no other logger later, but klog does
	if len(os.Args) < 2 {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50) // caches are most of the heap, and twice their size is much beside 10,000 exports
	}
	// A connection that a load balancer has forgotten is closed after 15 s, before Leases expire. client-go takes 45.
	setenv("HTTP2_READ_IDLE_TIMEOUT_SECONDS", "10")
	setenv("HTTP2_PING_TIMEOUT_SECONDS", "5")
	var err error
	switch os.Args[1] {
	case "agent":
		err = agentCommand(ctrl.SetupSignalHandler(), logger, os.Args[2:])
	case "hub":
		err = hubCommand(ctrl.SetupSignalHandler(), logger, os.Args[2:])
	case "probe":
		err = probeCommand(ctrl.SetupSignalHandler(), os.Args[2:])
	case "version", "-version", "--version":
		fmt.Println("clusterset-controller", version)
	case "help", "-h", "-help", "--help":
		fmt.Print(usage)
	default:
		fmt.Fprintf(os.Stderr, "unknown command %q\n\n%s", os.Args[1], usage)
		os.Exit(2)
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "clusterset-controller:", err)
		os.Exit(1)
	}
}

// setenv sets a variable of the environment that the user has not set.
func setenv(name, value string) {
	if os.Getenv(name) == "" {
		_ = os.Setenv(name, value) // it fails only for names that are none
	}
}

// addresses are the listen addresses that both commands have flags for.
type addresses struct{ metrics, probes, pprof string }

func (a *addresses) bind(flags *flag.FlagSet) {
	flags.StringVar(&a.metrics, "metrics-bind-address", ":8080", "address of /metrics; 0: none")
	flags.StringVar(&a.probes, "health-probe-bind-address", ":8081", "address of /healthz and /readyz; 0: none")
	flags.StringVar(&a.pprof, "pprof-bind-address", "0",
		"address of /debug/pprof, which asks for no credentials; 0: none")
}

// loadConfig loads a kubeconfig, or without a path the in-cluster configuration. The client has no rate limit: API
// Priority and Fairness limits its requests.
func loadConfig(path string) (*rest.Config, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, err
	}
	cfg.QPS = -1
	cfg.UserAgent = "clusterset-controller/" + version
	return cfg, nil
}

// managerOptions returns the options that both commands share. kinds is the mapper from waitForKinds.
func managerOptions(a addresses, kinds meta.RESTMapper) ctrl.Options {
	return ctrl.Options{
		MapperProvider:         func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return kinds, nil },
		Metrics:                server.Options{BindAddress: "0"}, // serveMetrics adds labels
		HealthProbeBindAddress: a.probes,
		PprofBindAddress:       a.pprof,
		Cache: cache.Options{
			NewInformer:      new(relist.Lists).NewInformer,
			DefaultTransform: cache.TransformStripManagedFields(),
		},
	}
}

// run runs a manager until ctx ends. ready is the readiness check, and build the metric that has the version.
func run(ctx context.Context, mgr manager.Manager, ready func() error, a addresses, labels prometheus.Labels,
	build *prometheus.GaugeVec,
) error {
	build.WithLabelValues(version).Set(1)
	err := errors.Join(
		metrics.Registry.Register(build),
		mgr.AddHealthzCheck("ping", healthz.Ping),
		mgr.AddReadyzCheck("controllers", func(*http.Request) error { return ready() }),
		serveMetrics(mgr, a.metrics, labels),
	)
	if err != nil {
		return err
	}
	mgr.GetLogger().Info("starting", "version", version)
	err = mgr.Start(ctx)
	if cause := context.Cause(ctx); err == nil && errors.Is(cause, errLost) {
		return cause
	}
	return err
}

// serveMetrics serves /metrics while mgr runs. Every series has the labels (ID6).
func serveMetrics(mgr manager.Manager, address string, labels prometheus.Labels) error {
	if address == "0" || address == "" {
		return nil
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("--metrics-bind-address: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(labelled{metrics.Registry, labels}, promhttp.HandlerOpts{}))
	return mgr.Add(&manager.Server{
		Name: "metrics", Server: &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}, Listener: listener,
	})
}

// waitForKinds waits until the API server answers and serves this project's kinds, since no manager can be created
// before. Meanwhile /healthz succeeds, because a restart of this program would not help, and /readyz fails. It fails if
// ctx ends, or if probes cannot be served.
func waitForKinds(ctx context.Context, logger logr.Logger, cfg *rest.Config, probes string) (meta.RESTMapper, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.Timeout = 5 * time.Second
	httpClient, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, err
	}
	// deploy/member and deploy/hub both include this kind, with all others that the command needs.
	want := schema.GroupKind{Group: hubv1alpha1.GroupVersion.Group, Kind: "ServiceExportRecord"}
	logger = logger.WithValues("remedy", "kubectl apply -k deploy/member, or on a hub deploy/hub")
	what := "the API server to answer, and to serve " + hubv1alpha1.GroupVersion.String()
	return waitFor(ctx, logger, probes, what, func(context.Context) (meta.RESTMapper, error) {
		kinds, err := apiutil.NewDynamicRESTMapper(cfg, httpClient) // it finds kinds that are served later
		if err == nil {
			_, err = kinds.RESTMapping(want, hubv1alpha1.GroupVersion.Version)
		}
		return kinds, err
	})
}

// waitFor tries until it succeeds, and serves probes meanwhile, with the reason. It fails if ctx ends, or if probes
// cannot be served.
func waitFor[T any](
	ctx context.Context, logger logr.Logger, probes, what string, try func(context.Context) (T, error),
) (found T, err error) {
	var reason atomic.Value
	reason.Store("no answer yet")
	stop, err := serveProbes(probes, func() string { return fmt.Sprintf("waiting for %s: %v", what, reason.Load()) })
	if err != nil {
		return found, err
	}
	defer stop()
	err = kube.Await(ctx, logger, what, time.Minute, func(ctx context.Context) (err error) {
		if found, err = try(ctx); err != nil {
			reason.Store(err.Error())
		}
		return err
	})
	return found, err
}

// serveProbes serves /healthz, and a /readyz that fails with why, until stop is called.
func serveProbes(address string, why func() string) (stop func(), err error) {
	if address == "0" || address == "" {
		return func() {}, nil
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--health-probe-bind-address: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, why(), http.StatusServiceUnavailable)
	})
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = srv.Serve(listener) }()
	// The listener is closed here, because Serve may not have begun.
	return func() { _ = errors.Join(srv.Close(), listener.Close()) }, nil
}
