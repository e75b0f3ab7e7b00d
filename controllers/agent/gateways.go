package agent

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// gatewayGroup is the API group of Envoy Gateway, which needs slices of its own (SPEC S6).
const gatewayGroup = "/apis/gateway.envoyproxy.io"

// gatewayReader returns a function that asks the API server of cfg whether it serves gatewayGroup.
func gatewayReader(cfg *rest.Config) (func(context.Context) (bool, error), error) {
	server, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (bool, error) {
		err := server.RESTClient().Get().AbsPath(gatewayGroup).Do(ctx).Error()
		if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
			return false, nil
		}
		return err == nil, err
	}, nil
}

// checkGateways finds out whether this cluster has Envoy Gateway. It retries if the API server does not answer.
func (a *Agent) checkGateways(ctx context.Context) error {
	logger := a.log.WithValues("remedy", "it must answer")
	return kube.Await(ctx, logger, "this cluster", attemptTimeout, func(ctx context.Context) error {
		served, err := a.servesGateways(ctx)
		a.gateways.Store(served)
		return err
	})
}

// watchGateways starts the agent again once Envoy Gateway has come or gone: each name needs other slices.
func (a *Agent) watchGateways(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(again):
		}
		attempt, cancel := context.WithTimeout(ctx, attemptTimeout)
		served, err := a.servesGateways(attempt)
		cancel()
		if err == nil && served != a.gateways.Load() {
			a.env.Restart("Envoy Gateway was installed or removed")
			return
		}
	}
}
