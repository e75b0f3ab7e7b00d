// Package hub runs the controllers of one clusterset on its hub. It decides nothing.
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
	"github.com/clusterset-dns/clusterset-dns/controllers/departed"
	"github.com/clusterset-dns/clusterset-dns/controllers/inventory"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// Scheme knows every kind that is read or written on the hub.
func Scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, coordinationv1.AddToScheme, rbacv1.AddToScheme, authorizationv1.AddToScheme, hubv1alpha1.AddToScheme, inventoryv1alpha1.AddToScheme,
	} {
		utilruntime.Must(add(s))
	}
	return s
}

// Controllers are all that runs for one clusterset.
func Controllers(env *kube.Env) []kube.Controller {
	return []kube.Controller{inventory.Controller(env), departed.Controller(env), blocks.Controller(env)}
}

// Hub is started by a manager, once it leads.
type Hub struct {
	mgr   manager.Manager
	env   *kube.Env
	ready atomic.Bool
}

// New prepares the controllers of the clusterset in namespace on a manager of the hub, whose cache must hold that namespace alone.
func New(mgr manager.Manager, namespace string) (*Hub, error) {
	events, err := kube.EventRecorder(mgr.GetConfig(), mgr.GetScheme(), namespace)
	if err != nil {
		return nil, err
	}
	h := &Hub{mgr: mgr}
	h.env = &kube.Env{
		HubNamespace: namespace,
		Hub:          mgr.GetClient,
		HubNow:       mgr.GetAPIReader,
		Now:          time.Now,
		Events:       kube.Recorder(events),
	}
	return h, metrics.Registry.Register(newCollector(h))
}

// Ready is the readiness check: the controllers run, or would if this replica led.
func (h *Hub) Ready() error {
	select {
	case <-h.mgr.Elected():
	default:
		return nil
	}
	if !h.ready.Load() {
		return errors.New("the controllers do not run yet: the log says what they wait for")
	}
	return nil
}

// Start runs until ctx ends (manager.Runnable).
func (h *Hub) Start(ctx context.Context) error {
	if !h.await(ctx) {
		return nil
	}
	for _, c := range Controllers(h.env) {
		ctl, err := c.New(h.mgr, 1)
		if err != nil {
			return err
		}
		for _, w := range c.Watches {
			if err := ctl.Watch(source.Kind(h.mgr.GetCache(), w.Object, handler.EnqueueRequestsFromMapFunc(w.Requests))); err != nil {
				return fmt.Errorf("%s: watch of %T: %w", c.Name, w.Object, err)
			}
		}
		if err := h.mgr.Add(ctl); err != nil {
			return err
		}
	}
	h.ready.Store(true)
	h.mgr.GetLogger().Info("the controllers run")
	<-ctx.Done()
	return nil
}

// await waits until the kinds and the ClusterSet are there; false means that ctx ended first.
func (h *Hub) await(ctx context.Context) bool {
	said := ""
	for {
		err := h.found(ctx)
		if err == nil {
			return true
		}
		if reason := err.Error(); reason != said && ctx.Err() == nil {
			said = reason
			h.mgr.GetLogger().Info("waiting", "reason", reason)
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(2 * time.Second):
		}
	}
}

func (h *Hub) found(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	in := []client.ListOption{client.InNamespace(h.env.HubNamespace), client.Limit(1)}
	if err := h.mgr.GetAPIReader().List(ctx, &inventoryv1alpha1.ClusterProfileList{}, in...); err != nil {
		return fmt.Errorf("%w: kubectl apply -k deploy/hub, deploy/hub/clusterset and deploy/hub/controller", err)
	}
	var sets hubv1alpha1.ClusterSetList
	if err := h.mgr.GetAPIReader().List(ctx, &sets, in...); err != nil {
		return fmt.Errorf("%w: kubectl apply -k deploy/hub, deploy/hub/clusterset and deploy/hub/controller", err)
	}
	if len(sets.Items) == 0 {
		return fmt.Errorf("namespace %s holds no ClusterSet: kubectl apply -k deploy/hub/clusterset", h.env.HubNamespace)
	}
	return nil
}
