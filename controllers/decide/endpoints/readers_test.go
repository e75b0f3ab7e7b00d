package endpoints

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	k8slabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
)

// reader says where a program that reads EndpointSlices itself sends connections: to what endpoints in what slices, at
// the port with which name. A port that no slice names is nobody's.
type reader struct {
	slice    func(*discoveryv1.EndpointSlice) bool
	endpoint func(*discoveryv1.Endpoint) bool
	port     func(clusterset.Port) string
	// pods is where it sends connections to for an endpoint that refers to a Pod, if not to the slice's port.
	pods func(clusterset.Port) int32
}

// readers are the rules of those programs, in our words, read in their source:
//   - Cilium 1.20.2: the selector of proxies, then ParseEndpointSliceV1 in pkg/k8s/endpoints.go.
//   - Linkerd, mirror of 2026: getEndpointSliceServiceID, resolveESTargetPort and endpointSliceToAddresses in
//     controller/api/destination/watcher. It looks at no label but kubernetes.io/service-name.
//   - Istio of 2026-08-27, sidecars: pilot/pkg/serviceregistry/kube/controller/endpointslice.go.
//   - Istio of 2026-08-27, ambient: endpointSlicesBuilder for endpoints without a Pod. A Pod that any slice of the
//     Service refers to belongs to it, whatever that slice says of ports: matchingServicesWithoutSelectors and
//     constructServices, which takes the Service's targetPort (pilot/pkg/serviceregistry/ambient/workloads.go).
//   - Envoy Gateway 1.9.1: SetEndpointSlicesForBackend in internal/gatewayapi/contexts.go, and
//     getIREndpointsFromEndpointSlice in route.go.
func readers(t *testing.T, imp *Import) map[string]reader {
	ofService := func(s *discoveryv1.EndpointSlice) bool {
		return s.Labels[discoveryv1.LabelServiceName] == imp.Derived
	}
	isReady := func(e *discoveryv1.Endpoint) bool { return ptr.Deref(e.Conditions.Ready, true) }
	out := map[string]reader{
		"Linkerd": {slice: ofService, endpoint: isReady, port: derived.PortName},
		"Istio, sidecar": {
			slice: func(s *discoveryv1.EndpointSlice) bool {
				_, imported := s.Labels[mcsv1beta1.LabelServiceName]
				return ofService(s) && !imported
			},
			endpoint: isReady,
			port:     derived.PortName,
		},
		"Istio, ambient": {
			slice: ofService, endpoint: isReady, port: derived.PortName,
			pods: func(p clusterset.Port) int32 { return p.Number },
		},
		"Envoy Gateway": {
			slice: func(s *discoveryv1.EndpointSlice) bool {
				_, ofService := s.Labels[discoveryv1.LabelServiceName]
				return !ofService && s.Labels[mcsv1beta1.LabelServiceName] == imp.Name
			},
			endpoint: func(e *discoveryv1.Endpoint) bool {
				if e.Conditions.Serving != nil && e.Conditions.Terminating != nil {
					return *e.Conditions.Serving && !*e.Conditions.Terminating
				}
				return isReady(e)
			},
			port: func(p clusterset.Port) string { return p.Name },
		},
	}
	for proxy, selector := range selectors(t) {
		out[proxy] = reader{
			slice: func(s *discoveryv1.EndpointSlice) bool {
				return ofService(s) && selector.Matches(k8slabels.Set(s.Labels))
			},
			endpoint: isReady,
			port:     derived.PortName,
		}
	}
	return out
}

// sends returns where connections to a port go, each address as often as it is there.
func (r reader) sends(all []*discoveryv1.EndpointSlice, port clusterset.Port) (out []string) {
	for _, s := range all {
		if !r.slice(s) {
			continue
		}
		for i := range s.Endpoints {
			e := &s.Endpoints[i]
			if !r.endpoint(e) {
				continue
			}
			if r.pods != nil && e.TargetRef != nil {
				out = append(out, fmt.Sprintf("%s:%d", e.Addresses[0], r.pods(port)))
				continue
			}
			for _, p := range s.Ports {
				if *p.Name == r.port(port) {
					out = append(out, fmt.Sprintf("%s:%d", e.Addresses[0], *p.Port))
				}
			}
		}
	}
	slices.Sort(out)
	return out
}

// TestReadersSendTrafficOnce: to each ready endpoint of a source with traffic, at its own port, and to nothing of one
// that is on standby, whether it is this cluster's own or another's.
func TestReadersSendTrafficOnce(t *testing.T) {
	web := clusterset.Port{Name: "http", Protocol: corev1.ProtocolTCP, Number: 80}
	own, other := source("a", "http"), source("b", "http")
	own.Native = []discoveryv1.Endpoint{
		{
			Addresses:  []string{"10.1.0.1"},
			Conditions: discoveryv1.EndpointConditions{Ready: to(true), Serving: to(true), Terminating: to(false)},
			NodeName:   to("n1"),
			TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "web-0"},
		},
		{
			Addresses:  []string{"10.1.0.2"},
			Conditions: discoveryv1.EndpointConditions{Ready: to(false), Serving: to(true), Terminating: to(true)},
			TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "web-1"},
		},
	}
	for _, name := range []string{"http", ""} {
		web.Name = name
		m := merged(map[string]string{"http": name}, web)
		m.Names["b"] = m.Names["a"]
		imp := imported(m)
		for _, tt := range []struct {
			standby string
			want    []string
		}{
			{"", []string{"10.0.0.1:8080", "10.1.0.1:8080"}},
			{"a", []string{"10.0.0.1:8080"}},
			{"b", []string{"10.1.0.1:8080"}},
		} {
			own.NoTraffic, other.NoTraffic = tt.standby == "a", tt.standby == "b"
			all := slices.Concat(written(own, imp, true), written(other, imp, true))
			for program, r := range readers(t, imp) {
				if got := r.sends(all, web); !slices.Equal(got, tt.want) {
					t.Errorf("port %q, standby %q: %s sends to %v, want %v", name, tt.standby, program, got, tt.want)
				}
			}
		}
	}
}
