package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/clusterset-dns/clusterset-dns/controllers/agent"
	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// agentFlags are DESIGN §11's, and --reserved-cidrs (S4).
type agentFlags struct {
	kubeconfig, hubKubeconfig, hubNamespace string
	cluster, reserved                       string
	metrics, probes, pprof                  string
}

func parseAgent(args []string) (f agentFlags, reserved []netip.Prefix, err error) {
	flags := flag.NewFlagSet("agent", flag.ContinueOnError)
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "this cluster's kubeconfig; empty: in-cluster")
	flags.StringVar(&f.hubKubeconfig, "hub-kubeconfig", "", "the hub's kubeconfig; it may be put there later (required)")
	flags.StringVar(&f.hubNamespace, "hub-namespace", "", "the clusterset's namespace on the hub (required)")
	flags.StringVar(&f.cluster, "cluster-id", "", "this cluster's id; empty: ClusterProperty cluster.clusterset.k8s.io, or else the UID of namespace kube-system")
	flags.StringVar(&f.reserved, "reserved-cidrs", "", "comma-separated ranges in which no other cluster may have endpoints, such as this cluster's nodes")
	flags.StringVar(&f.metrics, "metrics-bind-address", ":8080", "where /metrics is served; 0: nowhere")
	flags.StringVar(&f.probes, "health-probe-bind-address", ":8081", "where /healthz and /readyz are served; 0: nowhere")
	flags.StringVar(&f.pprof, "pprof-bind-address", "0", "where /debug/pprof is served, to whoever asks; 0: nowhere")
	if err := flags.Parse(args); err != nil {
		return f, nil, err
	}
	switch {
	case flags.NArg() > 0:
		return f, nil, fmt.Errorf("agent takes no arguments, and got %q", flags.Args())
	case f.hubKubeconfig == "" || f.hubNamespace == "":
		return f, nil, errors.New("--hub-kubeconfig and --hub-namespace are required")
	case f.hubNamespace == kube.SystemNamespace:
		return f, nil, fmt.Errorf("--hub-namespace must not be %s, which holds this member's own copies", kube.SystemNamespace)
	}
	if f.cluster != "" {
		if err := clusterset.CheckID(f.cluster); err != nil {
			return f, nil, fmt.Errorf("--cluster-id: %w", err)
		}
	}
	for _, cidr := range strings.FieldsFunc(f.reserved, func(r rune) bool { return r == ',' }) {
		p, err := netip.ParsePrefix(strings.TrimSpace(cidr))
		if err != nil {
			return f, nil, fmt.Errorf("--reserved-cidrs: %w", err)
		}
		reserved = append(reserved, p)
	}
	return f, reserved, nil
}

func agentCommand(args []string) error {
	f, reserved, err := parseAgent(args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	ctx := ctrl.SetupSignalHandler()
	local, err := config(f.kubeconfig, &lists{}) // nothing compares its caches with this cluster
	if err != nil {
		return fmt.Errorf("this cluster: %w", err)
	}
	logger := textlogger.NewLogger(textlogger.NewConfig())
	kinds, err := reach(ctx, logger, local, f.probes)
	if err != nil {
		return again(ctx, logger, err)
	}
	given := f.cluster != ""
	for pause := kube.Pause; f.cluster == ""; {
		if f.cluster, err = clusterID(ctx, local, kinds); err == nil {
			break
		}
		fmt.Fprintln(os.Stderr, "clusterset-controller: trying again:", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause.Step()):
		}
	}
	logger = logger.WithValues("cluster", f.cluster, "clusterset", f.hubNamespace) // ID6
	ctrl.SetLogger(logger)
	klog.SetLogger(logger)
	labelMetrics(map[string]string{"cluster": f.cluster, "clusterset": f.hubNamespace}) // ID6

	host, err := os.Hostname() // a pod's name
	if err != nil {
		return err
	}
	var a *agent.Agent
	options := managerOptions(f, kinds)
	if err := elect(&options, local, "clusterset-controller", func() bool { return a.Contested() }); err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(local, options)
	if err != nil {
		return err
	}
	a, err = agent.New(mgr, func() (*rest.Config, error) { return config(f.hubKubeconfig, nil) }, agent.Options{
		Cluster: f.cluster, Given: given, HubNamespace: f.hubNamespace, Holder: host + "_" + string(uuid.NewUUID()), Reserved: reserved,
	})
	if err != nil {
		return err
	}
	err = errors.Join(
		mgr.Add(a),
		mgr.AddHealthzCheck("ping", func(*http.Request) error { return nil }),
		mgr.AddReadyzCheck("controllers", func(*http.Request) error { return a.Ready() }),
	)
	if err != nil {
		return err
	}
	logger.Info("starting", "version", version)
	return again(ctx, logger, mgr.Start(ctx))
}

func managerOptions(f agentFlags, kinds meta.RESTMapper) ctrl.Options {
	return ctrl.Options{
		MapperProvider:         found(kinds),
		Scheme:                 agent.Scheme(),
		Metrics:                server.Options{BindAddress: f.metrics},
		HealthProbeBindAddress: f.probes,
		PprofBindAddress:       f.pprof,
		Cache: cache.Options{
			NewInformer:      kube.Informer,
			DefaultTransform: cache.TransformStripManagedFields(),
			ByObject: map[client.Object]cache.ByObject{
				&hubv1alpha1.ServiceExportRecord{}: {Namespaces: map[string]cache.Config{kube.SystemNamespace: {}}},
				&coordinationv1.Lease{}:            {Namespaces: map[string]cache.Config{kube.SystemNamespace: {}}},
			},
		},
	}
}

// config loads a kubeconfig; no path means in-cluster. The API servers' own fairness limits requests, not the client. behind are patient's lists.
func config(path string, behind *lists) (*rest.Config, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, err
	}
	cfg.QPS = -1
	cfg.UserAgent = "clusterset-controller/" + version
	away := &atomic.Bool{}
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return patient{next, ctrl.Log, away, behind} })
	return cfg, nil
}

// clusterID is the cluster's own: its ClusterProperty, or else the UID of kube-system (K2149).
func clusterID(ctx context.Context, cfg *rest.Config, kinds meta.RESTMapper) (string, error) {
	c, err := client.New(cfg, client.Options{Scheme: agent.Scheme(), Mapper: kinds})
	if err != nil {
		return "", err
	}
	property, err := kube.Get[*aboutv1beta1.ClusterProperty](ctx, c, types.NamespacedName{Name: clusterset.PropertyID})
	switch {
	case meta.IsNoMatchError(err): // the agent waits for the kind
	case err != nil:
		return "", fmt.Errorf("reading this cluster's id: %w", err)
	case property != nil:
		if err := clusterset.CheckID(property.Spec.Value); err != nil {
			return "", fmt.Errorf("ClusterProperty %s: %w", clusterset.PropertyID, err)
		}
		return property.Spec.Value, nil
	}
	var ns corev1.Namespace
	if err := c.Get(ctx, types.NamespacedName{Name: "kube-system"}, &ns); err != nil {
		return "", fmt.Errorf("reading this cluster's id: %w", err)
	}
	return string(ns.UID), nil
}
