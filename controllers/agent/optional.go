package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// again is how often a kind is looked for that this cluster does not serve: with an upgrade it may.
const again = 30 * time.Second

// optionalKinds may be missing: a cluster before Kubernetes 1.33 has none of them, and VIPs come from its own ranges
// (V7).
func optionalKinds() []kind {
	return []kind{
		{&networkingv1.ServiceCIDR{}, &networkingv1.ServiceCIDRList{}, ""},
		{&networkingv1.IPAddress{}, &networkingv1.IPAddressList{}, ""},
	}
}

// options are the optional kinds that can be read, and why the others cannot.
type options struct {
	mu      sync.Mutex
	missing map[string]error // by type; nil: not looked for yet
}

func (o *options) served(object client.Object) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.missing == nil {
		return fmt.Errorf("%T has not been looked for yet", object)
	}
	return o.missing[fmt.Sprintf("%T", object)]
}

func (o *options) set(object client.Object, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.missing == nil {
		o.missing = map[string]error{}
	}
	o.missing[fmt.Sprintf("%T", object)] = err
}

// look asks for the optional kinds once, before any controller asks. That an API server does not answer says nothing of
// its kinds.
func (a *Agent) look(ctx context.Context) error {
	return a.await(ctx, "this cluster", "it must answer", attemptTimeout, func(ctx context.Context) error {
		for _, k := range optionalKinds() {
			err := served(ctx, a.mgr.GetAPIReader(), []kind{k})
			if err != nil && !absent(err) {
				return err
			}
			a.options.set(k.item, err)
			if err == nil {
				if _, err := a.mgr.GetCache().GetInformer(ctx, k.item, cache.BlockUntilSynced(false)); err != nil {
					return err
				}
			} else {
				a.log.Info(
					"without an optional kind",
					"reason",
					err.Error(),
					"effect",
					"VIPs come from this cluster's own ranges, in mode shared; other modes say what they lack",
				)
			}
		}
		return nil
	})
}

// option adds to the controllers the watches of optional kinds, each as soon as it is served.
func (a *Agent) option(ctx context.Context, to map[string]controller.Controller) {
	kinds := optionalKinds()
	for {
		var left []kind
		for _, k := range kinds {
			if err := a.optional(ctx, k, to); err != nil {
				if absent(err) { // else what was known of it stands
					a.options.set(k.item, err)
				}
				left = append(left, k)
			}
		}
		if kinds = left; len(kinds) == 0 {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(again):
		}
	}
}

func (a *Agent) optional(ctx context.Context, k kind, to map[string]controller.Controller) error {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	if err := served(ctx, a.mgr.GetAPIReader(), []kind{k}); err != nil {
		return err
	}
	if _, err := a.mgr.GetCache().GetInformer(ctx, k.item); err != nil {
		return err
	}
	a.options.set(k.item, nil)
	for _, c := range a.list {
		for _, w := range c.Watches {
			if !w.Optional || fmt.Sprintf("%T", w.Object) != fmt.Sprintf("%T", k.item) {
				continue
			}
			if err := to[c.Name].Watch(source.Kind(a.mgr.GetCache(), w.Object, eventHandler(w))); err != nil {
				return fmt.Errorf("%s: watch of %T: %w", c.Name, w.Object, err)
			}
		}
	}
	return nil
}

// absent tells whether an error says that a kind is not there, or is none of the agent's.
func absent(err error) bool {
	return meta.IsNoMatchError(err) || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) ||
		apierrors.IsMethodNotSupported(err)
}

// register adds the agent's metrics, and those of its controllers.
func (a *Agent) register(own prometheus.Collector) error {
	errs := []error{metrics.Registry.Register(own)}
	for _, c := range a.list {
		for _, m := range c.Metrics {
			errs = append(errs, metrics.Registry.Register(m))
		}
	}
	return errors.Join(errs...)
}
