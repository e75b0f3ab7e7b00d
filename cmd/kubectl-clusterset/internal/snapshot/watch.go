package snapshot

import (
	"context"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
)

// Watch returns a function that returns how many changes of a clusterset's objects the hub has shown until then. It
// watches until ctx is done, and misses changes while the hub does not answer. It does not watch Leases, because each
// member renews its own every few seconds.
func Watch(ctx context.Context, hub *cluster.Cluster, namespace string) (func() int64, error) {
	c, err := client.NewWithWatch(hub.Config, client.Options{Scheme: hub.Scheme(), Mapper: mapper(hub.Scheme())})
	if err != nil {
		return nil, hub.Failed(err, "connecting")
	}
	var changes atomic.Int64
	for _, kind := range []client.ObjectList{
		&hubv1alpha1.ClusterSetList{}, &inventoryv1alpha1.ClusterProfileList{},
		&hubv1alpha1.ServiceExportRecordList{}, &hubv1alpha1.EndpointPageList{},
	} {
		go func() {
			for ctx.Err() == nil {
				if w, err := c.Watch(ctx, kind, in(namespace)); err == nil {
					for range w.ResultChan() {
						changes.Add(1)
					}
				}
				select { // an API server ends a watch after an hour at most
				case <-ctx.Done():
				case <-time.After(time.Second):
				}
			}
		}()
	}
	return changes.Load, nil
}
