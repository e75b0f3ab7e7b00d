// Package hub runs the controllers of one clusterset on its hub, and has their metrics.
package hub

import (
	"context"
	"errors"
	"fmt"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/source"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/blocks"
	"github.com/clusterset-dns/clusterset-dns/controllers/inventory"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// Scheme returns a scheme with every kind that the controllers read or write on the hub.
func Scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	kinds := runtime.NewSchemeBuilder(
		corev1.AddToScheme, coordinationv1.AddToScheme, rbacv1.AddToScheme, authorizationv1.AddToScheme,
		hubv1alpha1.AddToScheme, inventoryv1alpha1.AddToScheme)
	utilruntime.Must(kinds.AddToScheme(s))
	return s
}

// Hub is the controllers of one clusterset. A manager runs them once this replica leads.
type Hub struct {
	mgr       manager.Manager
	namespace string // of the clusterset
}

// New adds the controllers of the clusterset in namespace to a manager. Its cache must be restricted to that namespace.
func New(mgr manager.Manager, namespace string) (*Hub, error) {
	events, err := kube.NewEvents(mgr.GetConfig(), mgr.GetScheme(), namespace)
	if err != nil {
		return nil, err
	}
	env := kube.HubEnv{
		Namespace: namespace, Hub: mgr.GetClient(), Live: mgr.GetAPIReader(), Events: events, Now: time.Now,
	}
	for _, c := range []kube.Controller{inventory.New(env), blocks.New(env)} {
		ctl, err := c.New(mgr, 1)
		if err != nil {
			return nil, err
		}
		for _, w := range c.Watches {
			events := source.Kind(mgr.GetCache(), w.Object, handler.EnqueueRequestsFromMapFunc(w.Requests))
			if err := ctl.Watch(events); err != nil {
				return nil, fmt.Errorf("%s: watch of %T: %w", c.Name, w.Object, err)
			}
		}
		if err := mgr.Add(ctl); err != nil {
			return nil, err
		}
	}
	h := &Hub{mgr, namespace}
	return h, metrics.Registry.Register(newCollector(h))
}

// Ready is the readiness check. It fails while this replica leads and has not listed what its controllers need, or the
// namespace has no ClusterSet.
func (h *Hub) Ready() error {
	if !h.leads() {
		return nil
	}
	var sets hubv1alpha1.ClusterSetList
	if err := errors.Join(h.list(&inventoryv1alpha1.ClusterProfileList{}), h.list(&sets)); err != nil {
		return fmt.Errorf("%w; apply deploy/hub and deploy/hub/controller", err)
	}
	if len(sets.Items) == 0 {
		return fmt.Errorf("namespace %s has no ClusterSet; run: kubectl apply -k deploy/hub/clusterset", h.namespace)
	}
	return nil
}

func (h *Hub) leads() bool {
	select {
	case <-h.mgr.Elected():
		return true
	default:
		return false
	}
}

// list reads the cache. It fails before that has its first list, and when the manager stops.
func (h *Hub) list(into client.ObjectList) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return h.mgr.GetClient().List(ctx, into, client.InNamespace(h.namespace), client.UnsafeDisableDeepCopy)
}
