package agent

import (
	"context"
	"fmt"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	externaldnsv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/externaldns/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// again is the interval between checks for what this cluster does not serve. An upgrade of the cluster may add it.
const again = 30 * time.Second

// gatewayGroup is the API group of Envoy Gateway, which needs slices of its own (SPEC S6).
const gatewayGroup = "/apis/gateway.envoyproxy.io"

// optional is what this cluster may serve. The agent asks before its controllers start.
type optional struct {
	name   string
	kind   kind // without an item for gatewayGroup, which the agent does not read
	effect string
	ask    func(context.Context) error
}

// optionals returns what may be missing. A cluster before Kubernetes 1.33 has no ServiceCIDRs, and VIPs come from its
// own ranges (V7). DNSEndpoints are read only where they are written (F6).
func optionals(api client.Reader, cfg *rest.Config, dnsEndpoints bool) ([]optional, error) {
	server, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, err
	}
	const ranges = "VIPs come from this cluster's own ranges, in mode shared; other modes report the missing kind"
	list := []optional{
		{kind: kind{&networkingv1.ServiceCIDR{}, &networkingv1.ServiceCIDRList{}, ""}, effect: ranges},
		{kind: kind{&networkingv1.IPAddress{}, &networkingv1.IPAddressList{}, ""}, effect: ranges},
	}
	if dnsEndpoints {
		list = append(list, optional{
			kind: kind{&externaldnsv1alpha1.DNSEndpoint{}, &externaldnsv1alpha1.DNSEndpointList{}, ""},
			effect: "external names are not written for external-dns; install its CRD, and kubectl apply -k " +
				"deploy/member/dnsendpoint",
		})
	}
	for i := range list {
		o := &list[i]
		o.name = typeName(o.kind.item)
		o.ask = func(ctx context.Context) error { return checkKinds(ctx, api, []kind{o.kind}) }
	}
	return append(list, optional{
		name:   gatewayGroup,
		effect: "no gateway slices are written",
		ask: func(ctx context.Context) error {
			return server.RESTClient().Get().AbsPath(gatewayGroup).Do(ctx).Error()
		},
	}), nil
}

func typeName(o client.Object) string { return fmt.Sprintf("%T", o) }

// missing returns why an optional kind cannot be read, or nil if it can.
func (a *Agent) missing(o client.Object) error { return a.absent[typeName(o)] }

// checkOptional asks for everything that is optional, and retries if the API server does not answer.
func (a *Agent) checkOptional(ctx context.Context) error {
	logger := a.log.WithValues("remedy", "it must answer")
	return kube.Await(ctx, logger, "this cluster", attemptTimeout, func(ctx context.Context) error {
		for _, o := range a.optional {
			err := o.ask(ctx)
			switch {
			case err != nil && !isAbsent(err):
				return err
			case err != nil:
				a.log.Info("an optional API is not available", "reason", err.Error(), "effect", o.effect)
			case o.kind.item != nil:
				if _, err := a.mgr.GetCache().GetInformer(ctx, o.kind.item, cache.BlockUntilSynced(false)); err != nil {
					return err
				}
			}
			a.absent[o.name] = err
		}
		return nil
	})
}

// watchOptional ends the agent once this cluster serves more than when the agent started: the next one uses it from its
// start. What seems to have gone has no effect before another start: the answer may be wrong.
func (a *Agent) watchOptional(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(again):
		}
		for _, o := range a.optional {
			if a.absent[o.name] == nil {
				continue
			}
			attempt, cancel := context.WithTimeout(ctx, attemptTimeout)
			err := o.ask(attempt)
			cancel()
			if err == nil {
				a.env.Restart("this cluster serves " + o.name + " now")
				return
			}
		}
	}
}

// isAbsent returns whether an error means that a kind is not served, or that the agent may not read it.
func isAbsent(err error) bool {
	return meta.IsNoMatchError(err) || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) ||
		apierrors.IsMethodNotSupported(err)
}
