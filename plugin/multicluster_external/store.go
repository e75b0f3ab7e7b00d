package external

import (
	"strings"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/kube"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/reload"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster_external/endpointslice"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster_external/names"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// selector selects the agent's slices. Whoever may label a Service gives its slices the same labels, because Kubernetes
// copies them, but managed-by has another value there.
const selector = endpointslice.Label + "," + discoveryv1.LabelManagedBy + "=clusterset-controller.clusterset-dns.io"

// watch keeps an index up to date with one API server. Server blocks and reloads of the Corefile share it (L4).
type watch struct {
	*kube.Group[endpointslice.Slice, *names.Service]
}

var watches reload.Shared[*watch]

// openWatch returns the watch of c, which it starts if none is open. It makes no request itself, so it does not fail or
// wait while the API server is down.
func openWatch(c kube.Config) (*watch, error) {
	key, err := c.Fingerprint()
	if err != nil {
		return nil, err
	}
	return watches.Open(key, func() (*watch, error) {
		w := newWatch()
		return w, w.Follow(c, pluginName, selector)
	})
}

// newWatch returns a watch of nothing yet.
func newWatch() *watch {
	return &watch{kube.NewGroup(pluginName, endpointslice.Read,
		func(s endpointslice.Slice) string { return s.Service },
		build, warning, "coredns_multicluster_external_left_out")}
}

// Unready tells clients outside nothing of the cluster.
func (w *watch) Unready() string { return "" }

// Close releases a reference. The last one stops the watch and waits until it has stopped.
func (w *watch) Close() { watches.Close(w) }

func build(key string, of map[string]endpointslice.Slice) *names.Service {
	records := make(map[string]names.Record, len(of))
	for name, s := range of {
		records[name] = s.Record
	}
	return names.New(key, records)
}

// warning says what is left out of a slice, once unless that changes.
func warning(old *endpointslice.Slice, s endpointslice.Slice) string {
	if s.LeftOut == (endpointslice.LeftOut{}) || old != nil && old.LeftOut == s.LeftOut {
		return ""
	}
	var wrong []string
	for r, n := range s.LeftOut {
		if n > 0 {
			wrong = append(wrong, endpointslice.Reason(r).String())
		}
	}
	return "parts left out: " + strings.Join(wrong, ", ")
}

// leftOut adds up what is left out now.
func (w *watch) leftOut() (sum endpointslice.LeftOut) {
	w.Each(func(s endpointslice.Slice) {
		for r, n := range s.LeftOut {
			sum[r] += n
		}
	})
	_, services := w.Index().Snapshot()
	for _, service := range services {
		out := service.LeftOut()
		sum[endpointslice.TooManyClusters] += out.Clusters
		sum[endpointslice.TooManyAddresses] += out.Addresses
	}
	return sum
}
