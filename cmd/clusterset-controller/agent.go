package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterset-dns/clusterset-dns/controllers/agent"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/health"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// agentFlags are described in DESIGN §11, and --reserved-cidrs in SPEC S4.
type agentFlags struct {
	kubeconfig, hubKubeconfig, hubNamespace string
	cluster, reserved, answer, dnsEndpoints string
	dnsServer                               string
	addresses
}

func parseAgent(args []string) (f agentFlags, reserved []netip.Prefix, err error) {
	flags := flag.NewFlagSet("agent", flag.ContinueOnError)
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "this cluster's kubeconfig; empty: in-cluster")
	flags.StringVar(&f.hubKubeconfig, "hub-kubeconfig", "",
		"the hub's kubeconfig; the file may be created later (required)")
	flags.StringVar(&f.hubNamespace, "hub-namespace", "", "the clusterset's namespace on the hub (required)")
	flags.StringVar(&f.cluster, "cluster-id", "",
		"this cluster's ID; empty: ClusterProperty cluster.clusterset.k8s.io, or else the UID of namespace kube-system")
	flags.StringVar(&f.reserved, "reserved-cidrs", "",
		"comma-separated ranges in which no other cluster may have endpoints, such as this cluster's nodes")
	flags.StringVar(&f.answer, "answer-bind-address", ":8082",
		"where agents of other clusters ask whether this one is alive, at the addresses in $POD_IPS; empty: nowhere")
	flags.StringVar(&f.dnsEndpoints, "dnsendpoint-zone", "",
		"zone of the DNSEndpoints of external-dns to write for names with external addresses; empty: none")
	flags.StringVar(&f.dnsServer, "dns-server", "",
		"IP:PORT of the DNS of this cluster, to see that it serves clusterset.local; empty: that of the agent's Pod")
	f.bind(flags)
	if err := flags.Parse(args); err != nil {
		return f, nil, err
	}
	switch {
	case flags.NArg() > 0:
		return f, nil, fmt.Errorf("agent takes no arguments, and got %q", flags.Args())
	case f.hubKubeconfig == "" || f.hubNamespace == "":
		return f, nil, errors.New("--hub-kubeconfig and --hub-namespace are required")
	case f.hubNamespace == kube.SystemNamespace:
		return f, nil, fmt.Errorf("--hub-namespace must not be %s: that holds this member's own copies",
			kube.SystemNamespace)
	}
	if f.cluster != "" {
		if err := clusterset.CheckID(f.cluster); err != nil {
			return f, nil, fmt.Errorf("--cluster-id: %w", err)
		}
	}
	if f.answer != "" {
		_, port, err := net.SplitHostPort(f.answer)
		if n, wrong := strconv.ParseUint(port, 10, 16); err != nil || wrong != nil || n == 0 {
			return f, nil, fmt.Errorf("--answer-bind-address: %q: want [IP]:PORT, such as :8082", f.answer)
		}
	}
	if f.dnsServer != "" {
		if a, err := netip.ParseAddrPort(f.dnsServer); err != nil || a.Port() == 0 {
			return f, nil, fmt.Errorf("--dns-server: %q: want IP:PORT, such as 10.96.0.10:53", f.dnsServer)
		}
	}
	f.dnsEndpoints = strings.ToLower(strings.TrimSuffix(f.dnsEndpoints, "."))
	if f.dnsEndpoints != "" {
		if why := validation.IsDNS1123Subdomain(f.dnsEndpoints); len(why) > 0 {
			return f, nil, fmt.Errorf("--dnsendpoint-zone: %q is no DNS name: %s", f.dnsEndpoints, why[0])
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

func agentCommand(ctx context.Context, logger logr.Logger, args []string) error {
	f, reserved, err := parseAgent(args)
	if err != nil {
		return err
	}
	local, err := loadConfig(f.kubeconfig)
	if err != nil {
		return fmt.Errorf("this cluster: %w", err)
	}
	given := f.cluster != ""
	kinds, err := waitForKinds(ctx, logger, local, f.probes)
	if err == nil {
		f.cluster, err = waitForID(ctx, logger, local, kinds, f.probes, f.cluster)
	}
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	logger = logger.WithValues("cluster", f.cluster, "clusterset", f.hubNamespace) // ID6
	klog.SetLogger(logger)
	host, err := os.Hostname() // the pod's name
	if err != nil {
		return err
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	var a *agent.Agent
	options := agentOptions(f, kinds)
	if err := elect(&options, local, "clusterset-controller", func() bool { return a.Contested() }, end); err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(local, options)
	if err != nil {
		return err
	}
	var dns func(context.Context) error
	if f.kubeconfig == "" || f.dnsServer != "" {
		dns = health.AskDNS(f.dnsServer)
	}
	a, err = agent.New(mgr, func() (*rest.Config, error) { return loadConfig(f.hubKubeconfig) }, agent.Options{
		Cluster: f.cluster, Given: given, HubNamespace: f.hubNamespace, Reserved: reserved,
		DNSEndpointZone: f.dnsEndpoints, DNS: dns,
		Holder: host + "_" + string(uuid.NewUUID()), AnswerOn: f.answer,
		PodIPs: strings.FieldsFunc(os.Getenv("POD_IPS"), func(r rune) bool { return r == ',' }),
	})
	if err != nil {
		return err
	}
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "clusterset_agent_build_info", Help: "Always 1, with the version of this replica.",
	}, []string{"version"})
	labels := prometheus.Labels{"cluster": f.cluster, "clusterset": f.hubNamespace}
	return run(ctx, mgr, a.Ready, f.addresses, labels, build)
}

// agentOptions limit the caches of records and Leases to the agent's own namespace.
func agentOptions(f agentFlags, kinds meta.RESTMapper) ctrl.Options {
	o := managerOptions(f.addresses, kinds)
	o.Scheme = agent.Scheme()
	own := cache.ByObject{Namespaces: map[string]cache.Config{kube.SystemNamespace: {}}}
	o.Cache.ByObject = map[client.Object]cache.ByObject{
		&hubv1alpha1.ServiceExportRecord{}: own,
		&coordinationv1.Lease{}:            own,
	}
	return o
}

// waitForID waits until this cluster has a valid ID, which given does not contradict, and serves probes meanwhile, as
// waitForKinds does. It fails if ctx ends, or if probes cannot be served.
func waitForID(
	ctx context.Context, logger logr.Logger, cfg *rest.Config, kinds meta.RESTMapper, probes, given string,
) (string, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.Timeout = 5 * time.Second
	c, err := client.New(cfg, client.Options{Scheme: agent.Scheme(), Mapper: kinds})
	if err != nil {
		return "", err
	}
	logger = logger.WithValues("remedy", "kubectl clusterset doctor")
	return waitFor(ctx, logger, probes, "this cluster's ID", func(ctx context.Context) (string, error) {
		return clusterID(ctx, c, given)
	})
}

// clusterID returns the given ID, or else the cluster's ClusterProperty, or else the UID of kube-system (K2149). It
// fails if this cluster is a member with another ID than the given one: with that, a leader would not work.
func clusterID(ctx context.Context, c client.Reader, given string) (string, error) {
	property, err := kube.Property(ctx, c, clusterset.PropertyID)
	switch {
	case meta.IsNoMatchError(err): // the agent waits for the kind
	case given != "" && apierrors.IsForbidden(err): // the Membership says so
	case err != nil:
		return "", fmt.Errorf("reading this cluster's ID failed: %w", err)
	case property == nil:
	case given == "":
		if err := clusterset.CheckID(property.Spec.Value); err != nil {
			return "", fmt.Errorf("ClusterProperty %s: %w", clusterset.PropertyID, err)
		}
		return property.Spec.Value, nil
	case property.Spec.Value != given: // without membership, the Membership says so
		if set, err := kube.Property(ctx, c, clusterset.PropertySet); err != nil || set != nil {
			return "", fmt.Errorf("ClusterProperty %s is %q, and --cluster-id is %q: remove that argument from the "+
				"agent's Deployment, and leave before you give it another one", clusterset.PropertyID,
				property.Spec.Value, given)
		}
	}
	if given != "" {
		return given, nil
	}
	var ns corev1.Namespace
	if err := c.Get(ctx, types.NamespacedName{Name: "kube-system"}, &ns); err != nil {
		return "", fmt.Errorf("reading this cluster's ID failed: %w", err)
	}
	return string(ns.UID), nil
}
