package endpoints

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/liveness"
)

// Labels of a traffic slice: the ServiceImport and the source cluster. Those of the MCS API would make Istio skip it.
const (
	LabelImport  = "clusterset-dns.io/service-import"
	LabelCluster = liveness.LabelSource
)

// What the name of a projection has before its sum.
const (
	infixTraffic = "-traffic"
	infixGateway = "-gateway"
)

// Projections returns what other readers get of imported slices (SPEC S6). No slice suits them all:
//   - kube-proxy, Istio, Linkerd and Cilium read the traffic slice of a ClusterSetIP, by kubernetes.io/service-name.
//     Istio skips what has a label of the MCS API, and its ambient mode endpoints that refer to a Pod.
//   - Envoy Gateway reads the gateway slice, where there is one: only without kubernetes.io/service-name does it look
//     at the labels of the MCS API. It goes by serving and terminating. Ready is false, because CoreDNS answers PTR
//     with each ready endpoint of any slice, and without kubernetes.io/service-name that name is malformed.
//
// A slice that is on standby has none.
func Projections(imported []*discoveryv1.EndpointSlice, imp *Import, gateways bool) (out []*discoveryv1.EndpointSlice) {
	for _, s := range imported {
		if Standby(s) {
			continue
		}
		if imp.Merged.Type != mcsv1beta1.Headless {
			out = append(out, trafficOf(s, imp))
		}
		if gateways {
			out = append(out, gatewayOf(s, imp))
		}
	}
	return out
}

func trafficOf(s *discoveryv1.EndpointSlice, imp *Import) *discoveryv1.EndpointSlice {
	t := project(s, infixTraffic, map[string]string{
		LabelImport:                  imp.Name,
		LabelCluster:                 s.Labels[mcsv1beta1.LabelSourceCluster],
		discoveryv1.LabelServiceName: imp.Derived,
		discoveryv1.LabelManagedBy:   imp.Manager,
	})
	for _, p := range s.Ports {
		if m := mergedPort(imp, *p.Name); m != nil {
			p.Name = new(derived.PortName(*m))
			t.Ports = append(t.Ports, p)
		}
	}
	return t
}

func gatewayOf(s *discoveryv1.EndpointSlice, imp *Import) *discoveryv1.EndpointSlice {
	g := project(s, infixGateway, maps.Clone(s.Labels))
	delete(g.Labels, discoveryv1.LabelServiceName)
	g.Ports = s.Ports
	for i := range g.Endpoints {
		e := &g.Endpoints[i]
		e.TargetRef, e.Hostname, e.NodeName = nil, nil, nil
		e.Conditions = discoveryv1.EndpointConditions{
			Ready:       new(bool),
			Serving:     new(ready(e.Conditions.Ready)),
			Terminating: new(ptr.Deref(e.Conditions.Terminating, false)),
		}
	}
	return g
}

func project(s *discoveryv1.EndpointSlice, infix string, labels map[string]string) *discoveryv1.EndpointSlice {
	out := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.Namespace, Name: projectionName(s.Name, infix), Labels: labels,
			Annotations: map[string]string{}, OwnerReferences: s.OwnerReferences,
		},
		AddressType: s.AddressType,
		Endpoints:   slices.Clone(s.Endpoints),
	}
	for _, name := range []string{AnnotationSource, AnnotationRevision, corev1.EndpointsLastChangeTriggerTime} {
		if value, ok := s.Annotations[name]; ok {
			out.Annotations[name] = value
		}
	}
	return out
}

// ProjectionNames returns the names that projections of an imported slice have: "" if a user has named it.
func ProjectionNames(imported string) (traffic, gateway string) {
	return projectionName(imported, infixTraffic), projectionName(imported, infixGateway)
}

func projectionName(imported, infix string) string {
	at := len(imported) - sumLength - 1
	if at < 0 {
		return ""
	}
	return imported[:at] + infix + imported[at:]
}

func IsProjection(slice string) bool {
	_, infix := splitName(slice)
	return infix != ""
}

func IsGateway(slice string) bool {
	_, infix := splitName(slice)
	return infix == infixGateway
}

// splitName returns the derived Service and the infix in the name of a slice of the agent, or "".
func splitName(slice string) (service, infix string) {
	at := len(slice) - sumLength - 1
	if at < 0 || slice[at] != '-' {
		return "", ""
	}
	service = slice[:at]
	for _, i := range []string{infixTraffic, infixGateway} {
		if rest, found := strings.CutSuffix(service, i); found {
			service, infix = rest, i
		}
	}
	if !derived.Named(service) {
		return "", ""
	}
	return service, infix
}
