// Command clusterset-controller runs the agent of a member cluster, or what keeps a clusterset on its hub.
package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// version is ours; the build sets it with -ldflags "-X main.version=...".
var version = "dev"

const usage = `clusterset-controller COMMAND [FLAGS]

  agent     keep a member cluster's exports and imports in step with its clusterset
  hub       keep a clusterset's inventory on its hub, and clean up after members that departed
  version   print the version

clusterset-controller COMMAND -help lists the flags.
`

func main() {
	if len(os.Args) < 2 {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	var err error
	switch os.Args[1] {
	case "agent":
		err = agentCommand(os.Args[2:])
	case "hub":
		err = hubCommand(os.Args[2:])
	case "version", "-version", "--version":
		fmt.Println("clusterset-controller", version)
	case "help", "-h", "-help", "--help":
		fmt.Print(usage)
	default:
		fmt.Fprintf(os.Stderr, "unknown command %q\n\n%s", os.Args[1], usage)
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "clusterset-controller:", err)
		os.Exit(1)
	}
}

// reach returns once the API server answers and serves the project's own kinds, or when ctx ends: no manager can be made before, which goes
// on with the kinds found. /healthz is served meanwhile, since a kubelet that ends this program helps nobody.
func reach(ctx context.Context, logger logr.Logger, cfg *rest.Config, probes string) (meta.RESTMapper, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.Timeout = 5 * time.Second
	to, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, err
	}
	if probes != "0" && probes != "" {
		listener, err := net.Listen("tcp", probes)
		if err != nil {
			return nil, fmt.Errorf("--health-probe-bind-address: %w", err)
		}
		mux := http.NewServeMux()
		mux.HandleFunc("/healthz", func(http.ResponseWriter, *http.Request) {})
		mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "waiting for the API server and its kinds", http.StatusServiceUnavailable)
		})
		server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
		defer server.Close()
		go func() { _ = server.Serve(listener) }() // ends with Close
	}
	for last, pause := "", kube.Pause; ; {
		kinds, err := apiutil.NewDynamicRESTMapper(cfg, to) // as the manager's own would be: kinds that come later are found later
		if err == nil {
			_, err = kinds.RESTMapping(schema.GroupKind{Group: hubv1alpha1.GroupVersion.Group, Kind: "ServiceExportRecord"}, hubv1alpha1.GroupVersion.Version)
		}
		if err == nil {
			return kinds, nil
		}
		if err.Error() != last {
			last = err.Error()
			logger.Info("waiting for the API server to answer, and to serve "+hubv1alpha1.GroupVersion.String(), "reason", last,
				"remedy", "kubectl apply -k deploy/member, or on a hub deploy/hub")
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pause.Step()):
		}
	}
}

// found gives a manager the kinds that reach has found. It would look for all of them once more.
func found(kinds meta.RESTMapper) func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
	return func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return kinds, nil }
}

// again starts this program anew after an error: it no longer leads since another replica does, or its API server is away, also while it
// starts. All that it knows is to be read again, and a kubelet would make it wait longer with every restart, for minutes in the end.
func again(ctx context.Context, logger logr.Logger, err error) error {
	if err == nil || ctx.Err() != nil {
		return nil // asked to end
	}
	logger.Error(err, "starting again")
	select { // an error that comes again at once is no reason to do nothing else
	case <-ctx.Done():
		return nil
	case <-time.After(time.Second):
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return syscall.Exec(self, os.Args, os.Environ())
}
