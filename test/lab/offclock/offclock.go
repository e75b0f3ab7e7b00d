// Package offclock makes a program an agent whose clock is off. A kernel gives no process a wall clock of its own, and
// what comes between a program and the system's does not reach ours, which are linked statically; so the agent's clock
// is set where it asks for it.
package offclock

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
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
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// variable in the environment makes a program such an agent; its value is by how much the clock is off.
const variable = "LAB_CLOCK_OFF_BY"

// Variable returns what the environment of such an agent has.
func Variable(off time.Duration) string { return fmt.Sprintf("%s=%v", variable, off) }

// Run runs the agent if the environment asks for it, with the flags that lab.StartAgent gives, and then returns only
// with an error.
func Run() error {
	off, err := time.ParseDuration(os.Getenv(variable))
	if os.Getenv(variable) == "" {
		return nil
	}
	if err != nil {
		return err
	}
	flags := flag.NewFlagSet("agent", flag.ContinueOnError)
	kubeconfig := flags.String("kubeconfig", "", "")
	hub := flags.String("hub-kubeconfig", "", "")
	namespace := flags.String("hub-namespace", "", "")
	id := flags.String("cluster-id", "", "")
	metrics := flags.String("metrics-bind-address", "", "")
	probes := flags.String("health-probe-bind-address", "", "")
	pprof := flags.String("pprof-bind-address", "", "")
	if err := flags.Parse(os.Args[2:]); err != nil {
		return err
	}
	logger := textlogger.NewLogger(textlogger.NewConfig())
	ctrl.SetLogger(logger)
	klog.SetLogger(logger)
	local, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(local, ctrl.Options{
		Scheme:                 agent.Scheme(),
		Metrics:                server.Options{BindAddress: *metrics},
		HealthProbeBindAddress: *probes,
		PprofBindAddress:       *pprof,
		Cache: cache.Options{
			DefaultTransform: cache.TransformStripManagedFields(),
			ByObject: map[client.Object]cache.ByObject{
				&hubv1alpha1.ServiceExportRecord{}: {Namespaces: map[string]cache.Config{kube.SystemNamespace: {}}},
				&coordinationv1.Lease{}:            {Namespaces: map[string]cache.Config{kube.SystemNamespace: {}}},
			},
		},
	})
	if err != nil {
		return err
	}
	options := agent.Options{
		Cluster:      *id,
		HubNamespace: *namespace,
		Holder:       "clock_" + string(uuid.NewUUID()),
		Now:          func() time.Time { return time.Now().Add(off) },
	}
	if at := os.Getenv("POD_IPS"); at != "" {
		options.AnswerOn, options.PodIPs = ":8082", strings.Split(at, ",")
	}
	a, err := agent.New(
		mgr,
		func() (*rest.Config, error) { return clientcmd.BuildConfigFromFlags("", *hub) },
		options,
	)
	if err != nil {
		return err
	}
	if err := mgr.AddReadyzCheck("controllers", func(*http.Request) error { return a.Ready() }); err != nil {
		return err
	}
	logger.Info("starting", "clock is off by", off)
	if err := mgr.Start(ctrl.SetupSignalHandler()); err != nil {
		return err
	}
	os.Exit(0)
	return nil
}
