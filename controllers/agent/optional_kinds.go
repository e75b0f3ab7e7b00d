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

	externaldnsv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/externaldns/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// again is the interval between checks for a missing kind, which an upgrade of the cluster may add.
const again = 30 * time.Second

// optionalKind may be missing, which has an effect.
type optionalKind struct {
	kind
	effect string
}

// optionalKinds returns the kinds that may be missing: a cluster before Kubernetes 1.33 has no ServiceCIDRs, and VIPs
// come from its own ranges (V7). DNSEndpoints are read only where they are written (F6).
func optionalKinds(dnsEndpoints bool) []optionalKind {
	const ranges = "VIPs come from this cluster's own ranges, in mode shared; other modes report the missing kind"
	kinds := []optionalKind{
		{kind{&networkingv1.ServiceCIDR{}, &networkingv1.ServiceCIDRList{}, ""}, ranges},
		{kind{&networkingv1.IPAddress{}, &networkingv1.IPAddressList{}, ""}, ranges},
	}
	if dnsEndpoints {
		kinds = append(kinds, optionalKind{
			kind{&externaldnsv1alpha1.DNSEndpoint{}, &externaldnsv1alpha1.DNSEndpointList{}, ""},
			"external names are not written for external-dns; install its CRD, and kubectl apply -k " +
				"deploy/member/dnsendpoint",
		})
	}
	return kinds
}

// options holds which optional kinds can be read, and why the others cannot.
type options struct {
	mu      sync.Mutex
	missing map[string]error // by type; nil: not checked yet
}

func (o *options) served(object client.Object) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.missing == nil {
		return fmt.Errorf("%T has not been checked yet", object)
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

// checkOptionalKinds checks once which optional kinds are served, before any controller starts. It retries if the API
// server does not answer.
func (a *Agent) checkOptionalKinds(ctx context.Context) error {
	logger := a.log.WithValues("remedy", "it must answer")
	return kube.Await(ctx, logger, "this cluster", attemptTimeout, func(ctx context.Context) error {
		for _, k := range optionalKinds(a.DNSEndpointZone != "") {
			err := served(ctx, a.mgr.GetAPIReader(), []kind{k.kind})
			if err != nil && !absent(err) {
				return err
			}
			a.options.set(k.item, err)
			if err == nil {
				if _, err := a.mgr.GetCache().GetInformer(ctx, k.item, cache.BlockUntilSynced(false)); err != nil {
					return err
				}
			} else {
				a.log.Info("an optional kind is not available", "reason", err.Error(), "effect", k.effect)
			}
		}
		return nil
	})
}

// watchOptionalKinds adds the watches of optional kinds to the controllers, each once the kind is served.
func (a *Agent) watchOptionalKinds(ctx context.Context, to map[string]controller.Controller) {
	kinds := optionalKinds(a.DNSEndpointZone != "")
	for {
		var left []optionalKind
		for _, k := range kinds {
			if err := a.watchOptionalKind(ctx, k.kind, to); err != nil {
				if absent(err) { // otherwise the last result stays
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

func (a *Agent) watchOptionalKind(ctx context.Context, k kind, to map[string]controller.Controller) error {
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

// absent returns whether an error means that a kind is not served, or that the agent may not read it.
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
