package sim

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
	"github.com/clusterset-dns/clusterset-dns/test/sim/api"
)

// checkJoins is where the ports of a VIP lead (C4). kube-proxy joins a Service's ports and those of slices by name, and
// users choose names, too. Each backend of a port must serve a port of its cluster's Service that has the same number
// and protocol.
func (w *World) checkJoins(m *member, t *truth) error {
	svc := get[*corev1.Service](m, api.Service,
		types.NamespacedName{Namespace: t.name.Namespace, Name: derivedName(t.name)})
	if svc == nil || t.merged.Type != mcsv1beta1.ClusterSetIP ||
		svc.Labels[derived.LabelManagedBy] != kube.Manager { // another program's
		return nil
	}
	var errs []error
	for _, s := range all[*discoveryv1.EndpointSlice](m.server, api.EndpointSlice) {
		if _, hidden := s.Labels[corev1.IsHeadlessService]; hidden || s.Namespace != svc.Namespace ||
			s.Labels[discoveryv1.LabelServiceName] != svc.Name || s.Labels[discoveryv1.LabelManagedBy] != kube.Manager {
			continue
		}
		for _, p := range svc.Spec.Ports {
			for _, q := range s.Ports {
				if *q.Name != p.Name || *q.Protocol != p.Protocol {
					continue
				}
				for _, e := range s.Endpoints {
					if !t.serves(s.Labels["clusterset-dns.io/source-cluster"], e.Addresses[0], p, *q.Port) {
						errs = append(
							errs,
							fmt.Errorf("port %d/%s of the VIP leads to %d of %s, another port there (C4)",
								p.Port, p.Protocol, *q.Port, e.Addresses[0]),
						)
					}
				}
			}
		}
	}
	return errors.Join(errs...)
}

// serves returns whether an endpoint of a cluster serves a port of a VIP at a number of its own.
func (t *truth) serves(cluster, address string, p corev1.ServicePort, number int32) bool {
	key := clusterset.PortKey{Protocol: p.Protocol, Number: p.Port}
	for _, src := range t.sources {
		has := slices.ContainsFunc(src.slice.Endpoints, func(e discoveryv1.Endpoint) bool {
			return clusterset.Canonical(e.Addresses[0]) == address
		})
		if src.cluster == cluster && has && slices.ContainsFunc(src.slice.Ports, func(q discoveryv1.EndpointPort) bool {
			return src.keys[*q.Name] == key && *q.Port == number
		}) {
			return true
		}
	}
	return false
}
