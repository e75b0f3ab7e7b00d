package agent

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// gatewayGroup is the API group of Envoy Gateway, which needs slices of its own (SPEC S6).
const gatewayGroup = "/apis/gateway.envoyproxy.io"

// gateways asks this cluster for Envoy Gateway.
type gateways struct {
	ask    func(context.Context) (bool, error)
	served atomic.Bool // the last answer
}

// newGateways returns one that asks the API server of cfg whether it serves gatewayGroup.
func newGateways(cfg *rest.Config) (*gateways, error) {
	server, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, err
	}
	return &gateways{ask: func(ctx context.Context) (bool, error) {
		err := server.RESTClient().Get().AbsPath(gatewayGroup).Do(ctx).Error()
		if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
			return false, nil
		}
		return err == nil, err
	}}, nil
}

// check asks, and retries if the API server does not answer.
func (g *gateways) check(ctx context.Context, logger logr.Logger) error {
	logger = logger.WithValues("remedy", "it must answer")
	return kube.Await(ctx, logger, "this cluster", attemptTimeout, func(ctx context.Context) error {
		served, err := g.ask(ctx)
		g.served.Store(served)
		return err
	})
}

// watch starts the agent again once Envoy Gateway has come: each name needs one slice more. If it goes, its slices stay
// until the agent starts the next time: nobody reads them then, and an answer may be wrong.
func (g *gateways) watch(ctx context.Context, restart func(why string)) {
	for !g.served.Load() {
		select {
		case <-ctx.Done():
			return
		case <-time.After(again):
		}
		attempt, cancel := context.WithTimeout(ctx, attemptTimeout)
		served, err := g.ask(attempt)
		cancel()
		if err == nil && served {
			restart("Envoy Gateway was installed")
			return
		}
	}
}
