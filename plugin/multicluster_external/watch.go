package external

import (
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/kube"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/reload"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster_external/endpointslice"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// selector selects the agent's slices. Whoever may label a Service gives its slices the same labels, because Kubernetes
// copies them, but managed-by has another value there.
const selector = endpointslice.Label + "," + discoveryv1.LabelManagedBy + "=clusterset-controller.clusterset-dns.io"

// watch keeps a store up to date with one API server. Server blocks and reloads of the Corefile share it (L4).
type watch struct {
	*store
	*kube.Reflectors
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
		s := newStore()
		reflectors, err := c.FollowSlices(pluginName, selector, strip, s, s.Synced)
		return &watch{store: s, Reflectors: reflectors}, err
	})
}

// Close releases a reference. The last one stops the watch and waits until it has stopped.
func (w *watch) Close() { watches.Close(w) }
