package kube

import (
	"strings"
	"time"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/catalog"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

// The labels of imported slices. These constants keep mcs-api out of the plugin's dependencies.
const (
	labelServiceName   = "multicluster.kubernetes.io/service-name"
	labelSourceCluster = "multicluster.kubernetes.io/source-cluster"
)

func (c Config) slices() *resource {
	r := c.slicesWith(labelServiceName, func(s *discoveryv1.EndpointSlice) any { return orNil(c.stripSlice(s)) })
	r.feed = func(s *store) cache.ReflectorStore { return s.sliceFeed() }
	return r
}

// slicesWith are the EndpointSlices that a label selector selects. strip returns nil for an object that is not wanted.
func (c Config) slicesWith(selector string, strip func(*discoveryv1.EndpointSlice) any) *resource {
	r := &resource{
		kind:      "EndpointSlices",
		paths:     []string{"/apis/discovery.k8s.io/v1"},
		plural:    "endpointslices",
		namespace: c.namespace(),
		selector:  selector,
	}
	r.typed(new(discoveryv1.EndpointSliceList))
	r.strip = func(object any) any {
		slice, ok := object.(*discoveryv1.EndpointSlice)
		switch {
		case !ok:
			return object
		case !c.wants(slice.Namespace):
			return nil
		}
		return strip(slice)
	}
	return r
}

// stripSlice returns nil if the object has no name or no numeric resourceVersion, or if Kubernetes made it: it copies
// the labels of a Service to its slices.
func (c Config) stripSlice(s *discoveryv1.EndpointSlice) *sliceObject {
	if strings.HasSuffix(s.Labels[discoveryv1.LabelManagedBy], "-controller.k8s.io") {
		return nil
	}
	content := sliceContent{service: s.Labels[labelServiceName] + "." + s.Namespace}
	if t, err := time.Parse(time.RFC3339Nano, s.Annotations[corev1.EndpointsLastChangeTriggerTime]); err == nil {
		content.trigger = t.UnixNano()
	}
	content.slice, content.skipped = c.Slice(s)
	return newStripped(s.Namespace, s.Name, s.ResourceVersion, content)
}

// Slice returns the slice as answers have it, or nil and why it is skipped. explain uses it, too.
func (c Config) Slice(s *discoveryv1.EndpointSlice) (*catalog.Slice, reason) {
	cluster := strings.ToLower(s.Labels[labelSourceCluster])
	switch {
	case cluster == "":
		return nil, noSourceCluster
	case !catalog.IsClusterID(cluster):
		return nil, impossibleClusterID
	case s.AddressType != discoveryv1.AddressTypeIPv4 && s.AddressType != discoveryv1.AddressTypeIPv6:
		return nil, wrongAddressType
	}
	return catalog.NewSlice(s.Name, cluster, ports(s), c.endpoints(s)), notSkipped
}

func ports(s *discoveryv1.EndpointSlice) []catalog.Port {
	all := make([]catalog.Port, 0, len(s.Ports))
	for _, p := range s.Ports {
		all = append(all, catalog.Port{
			Name:   ptr.Deref(p.Name, ""),
			Proto:  string(ptr.Deref(p.Protocol, "")),
			Number: portNumber(ptr.Deref(p.Port, 0)),
		})
	}
	return all
}

// endpoints returns the ready ones whose address is of the slice's type (N16). It ignores terminating: Kubernetes sets
// ready to false itself, except with publishNotReadyAddresses.
func (c Config) endpoints(s *discoveryv1.EndpointSlice) []catalog.Endpoint {
	ready := make([]catalog.Endpoint, 0, len(s.Endpoints))
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		if !ptr.Deref(e.Conditions.Ready, true) {
			continue
		}
		zone := c.Topology.Keep(ptr.Deref(e.Zone, ""))
		for _, text := range e.Addresses {
			addr, ok := address(text)
			if ok && addr.Is4() == (s.AddressType == discoveryv1.AddressTypeIPv4) {
				ready = append(ready, catalog.Endpoint{Addr: addr, Host: c.hostname(e), Zone: zone})
			}
		}
	}
	return ready
}

// hostname of an endpoint, "" if it is named by its address (N15).
func (c Config) hostname(e *discoveryv1.Endpoint) string {
	if name := ptr.Deref(e.Hostname, ""); name != "" {
		return name
	}
	if target := e.TargetRef; c.EndpointPodNames && target != nil && target.Kind == "Pod" &&
		catalog.IsLabel(strings.ToLower(target.Name)) {
		return target.Name
	}
	return ""
}
