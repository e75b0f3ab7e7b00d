// Package hub runs the controllers of one clusterset on its hub, and has their metrics.
package hub

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
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

// Hub runs the controllers of one clusterset. A manager starts it once this replica leads.
type Hub struct {
	mgr       manager.Manager
	namespace string // of the clusterset
	events    kube.Events
	ready     atomic.Bool
}

// New returns the Hub of the clusterset in namespace. The manager's cache must be restricted to that namespace.
func New(mgr manager.Manager, namespace string) (*Hub, error) {
	events, err := kube.NewEvents(mgr.GetConfig(), mgr.GetScheme(), namespace)
	if err != nil {
		return nil, err
	}
	h := &Hub{mgr: mgr, namespace: namespace, events: events}
	return h, metrics.Registry.Register(newCollector(h))
}

func (h *Hub) controllers() []kube.Controller {
	env := kube.HubEnv{
		Namespace: h.namespace, Hub: h.mgr.GetClient(), Live: h.mgr.GetAPIReader(), Events: h.events, Now: time.Now,
	}
	return []kube.Controller{inventory.New(env), blocks.New(env)}
}

// Ready is the readiness check. It fails while this replica leads and its controllers do not run yet.
func (h *Hub) Ready() error {
	select {
	case <-h.mgr.Elected():
	default:
		return nil
	}
	if !h.ready.Load() {
		return errors.New("the controllers do not run yet: see the log")
	}
	return nil
}

// Start runs until ctx ends (manager.Runnable).
func (h *Hub) Start(ctx context.Context) error {
	const what = "the CRDs and the ClusterSet"
	if kube.Await(ctx, h.mgr.GetLogger(), what, 10*time.Second, h.check) != nil {
		return nil
	}
	for _, c := range h.controllers() {
		ctl, err := c.New(h.mgr, 1)
		if err != nil {
			return err
		}
		for _, w := range c.Watches {
			events := source.Kind(h.mgr.GetCache(), w.Object, handler.EnqueueRequestsFromMapFunc(w.Requests))
			if err := ctl.Watch(events); err != nil {
				return fmt.Errorf("%s: watch of %T: %w", c.Name, w.Object, err)
			}
		}
		if err := h.mgr.Add(ctl); err != nil {
			return err
		}
	}
	h.ready.Store(true)
	h.mgr.GetLogger().Info("started the controllers")
	<-ctx.Done()
	return nil
}

// check returns nil once the CRDs are installed and the ClusterSet exists.
func (h *Hub) check(ctx context.Context) error {
	in := []client.ListOption{client.InNamespace(h.namespace), client.Limit(1)}
	var sets hubv1alpha1.ClusterSetList
	for _, list := range []client.ObjectList{&inventoryv1alpha1.ClusterProfileList{}, &sets} {
		if err := h.mgr.GetAPIReader().List(ctx, list, in...); err != nil {
			return fmt.Errorf("%w; apply deploy/hub, deploy/hub/clusterset and deploy/hub/controller", err)
		}
	}
	if len(sets.Items) == 0 {
		return fmt.Errorf("namespace %s has no ClusterSet; run: kubectl apply -k deploy/hub/clusterset", h.namespace)
	}
	return nil
}
