package endpoints

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
)

// Changes turn existing slices into the desired ones. Apply them in the order of the fields.
type Changes struct {
	Create []*discoveryv1.EndpointSlice
	Update []*discoveryv1.EndpointSlice // changed copies of existing slices, with their resourceVersion
	Shrink []*discoveryv1.EndpointSlice // copies of slices that go once their endpoints have moved: with those left
	Delete []*discoveryv1.EndpointSlice
}

// Plan compares desired with existing slices and changes neither. An endpoint that moves stays where it is until the
// slice that it moves to has it, and updates that take a ready endpoint or a port away come last (C9).
//
// Readers measure latency from the trigger time. So an update has that annotation only if its source changed addresses
// or readiness, as in Kubernetes. A new slice has none: its endpoints may be older than the import.
func Plan(desired, existing []*discoveryv1.EndpointSlice) Changes {
	var c Changes
	var removing []*discoveryv1.EndpointSlice
	left, pending := byName(existing), missing(desired, existing)
	for _, d := range desired {
		e := left[d.Name]
		if e == nil {
			created := d.DeepCopy()
			delete(created.Annotations, corev1.EndpointsLastChangeTriggerTime)
			c.Create = append(c.Create, created)
			continue
		}
		delete(left, d.Name)
		if stay := staying(e, d, pending); len(stay) > 0 {
			both := *d
			both.Endpoints = slices.Concat(d.Endpoints, stay)
			d = &both
		}
		if same(d, e) {
			continue
		}
		u := Updated(e, d, AnnotationReadiness)
		if !changedBySource(d, e) {
			delete(u.Annotations, corev1.EndpointsLastChangeTriggerTime)
		}
		if removesReady(e, u) || removesPort(e, u) {
			removing = append(removing, u)
		} else {
			c.Update = append(c.Update, u)
		}
	}
	c.Update = append(c.Update, removing...)
	for _, e := range existing {
		if left[e.Name] == nil {
			continue
		}
		switch stay := staying(e, &discoveryv1.EndpointSlice{}, pending); len(stay) {
		case 0:
			c.Delete = append(c.Delete, e)
		case len(e.Endpoints): // all stay
		default:
			smaller := e.DeepCopy()
			delete(smaller.Annotations, corev1.EndpointsLastChangeTriggerTime)
			smaller.Endpoints = stay
			c.Shrink = append(c.Shrink, smaller)
		}
	}
	return c
}

// staying returns the endpoints of e that must stay for now: those of pending, which no write has put into their new
// slice yet, without those of d.
func staying(e, d *discoveryv1.EndpointSlice, pending map[backend]bool) []discoveryv1.Endpoint {
	if len(pending) == 0 {
		return nil
	}
	isReady, there := readyIn(e), backends(d)
	return slices.DeleteFunc(slices.Clone(e.Endpoints), func(ep discoveryv1.Endpoint) bool {
		b := backendOf(&ep, isReady(&ep))
		return !pending[b] || there[b]
	})
}

// WithPorts returns desired with the other ports of existing slices, so that writing it removes none. It compares names
// only: a slice cannot have a name twice.
func WithPorts(desired, existing []*discoveryv1.EndpointSlice) []*discoveryv1.EndpointSlice {
	have, out := byName(existing), slices.Clone(desired)
	for i, d := range desired {
		e := have[d.Name]
		if e == nil {
			continue
		}
		ports := slices.DeleteFunc(slices.Clone(e.Ports), func(p discoveryv1.EndpointPort) bool {
			return slices.ContainsFunc(
				d.Ports,
				func(q discoveryv1.EndpointPort) bool { return ptr.Deref(p.Name, "") == ptr.Deref(q.Name, "") },
			)
		})
		if len(ports) > 0 {
			both := *d
			both.Ports = slices.Concat(d.Ports, ports)
			out[i] = &both
		}
	}
	return out
}

// backend is what distinguishes endpoints for readers. Pods in the network of their host share an address, but not a
// hostname. Readiness counts: an endpoint has moved only when the new slice has it as ready as the old one.
type backend struct {
	address, hostname, zone string
	ready                   bool
}

func backendOf(e *discoveryv1.Endpoint, ready bool) backend {
	return backend{e.Addresses[0], ptr.Deref(e.Hostname, ""), ptr.Deref(e.Zone, ""), ready}
}

// missing returns the backends that a slice is to have but does not have yet.
func missing(desired, existing []*discoveryv1.EndpointSlice) map[backend]bool {
	have, out := byName(existing), map[backend]bool{}
	for _, d := range desired {
		e := cmp.Or(have[d.Name], &discoveryv1.EndpointSlice{})
		if slices.EqualFunc(d.Endpoints, e.Endpoints, sameEndpoint) {
			continue
		}
		written := backends(e)
		for b := range backends(d) {
			if !written[b] {
				out[b] = true
			}
		}
	}
	return out
}

func byName(all []*discoveryv1.EndpointSlice) map[string]*discoveryv1.EndpointSlice {
	out := make(map[string]*discoveryv1.EndpointSlice, len(all))
	for _, e := range all {
		out[e.Name] = e
	}
	return out
}

// ready applies the rule of EndpointSlices that an unset condition means ready.
func ready(condition *bool) bool { return ptr.Deref(condition, true) }

// ReadyAddresses returns the addresses of the ready endpoints of a group.
func ReadyAddresses(group *hubv1alpha1.EndpointGroup) (out []string) {
	for i := range group.Endpoints {
		if e := &group.Endpoints[i]; ready(e.Ready) {
			out = append(out, e.Address)
		}
	}
	return out
}

// readyIn returns the test for ready endpoints of a slice: in a gateway slice, those are serving, not ready (SPEC S6).
func readyIn(slice *discoveryv1.EndpointSlice) func(*discoveryv1.Endpoint) bool {
	if IsGateway(slice.Name) {
		return func(e *discoveryv1.Endpoint) bool { return ready(e.Conditions.Serving) }
	}
	return func(e *discoveryv1.Endpoint) bool { return ready(e.Conditions.Ready) }
}

func backends(e *discoveryv1.EndpointSlice) map[backend]bool {
	out, isReady := make(map[backend]bool, len(e.Endpoints)), readyIn(e)
	for i := range e.Endpoints {
		out[backendOf(&e.Endpoints[i], isReady(&e.Endpoints[i]))] = true
	}
	return out
}

// removesReady reports whether an endpoint that is ready in e is not ready in d.
func removesReady(e, d *discoveryv1.EndpointSlice) bool {
	remaining, isReady := backends(d), readyIn(e)
	return slices.ContainsFunc(e.Endpoints, func(ep discoveryv1.Endpoint) bool {
		return isReady(&ep) && !remaining[backendOf(&ep, true)]
	})
}

// removesPort reports whether d lacks a port of e, by name and protocol: kube-proxy joins by both.
func removesPort(e, d *discoveryv1.EndpointSlice) bool {
	return slices.ContainsFunc(e.Ports, func(p discoveryv1.EndpointPort) bool {
		return !slices.ContainsFunc(d.Ports, func(q discoveryv1.EndpointPort) bool {
			return ptr.Equal(p.Name, q.Name) && ptr.Equal(p.Protocol, q.Protocol)
		})
	})
}

// changedBySource reports whether d has other addresses or another readiness than e, and a new revision of its source.
// Without that, the readiness has changed because the cluster expired or is live again.
func changedBySource(d, e *discoveryv1.EndpointSlice) bool {
	isReady := readyIn(d)
	return d.Annotations[AnnotationRevision] != e.Annotations[AnnotationRevision] &&
		!slices.EqualFunc(d.Endpoints, e.Endpoints, func(a, b discoveryv1.Endpoint) bool {
			return slices.Equal(a.Addresses, b.Addresses) && isReady(&a) == isReady(&b)
		})
}

// same reports whether writing d over e changes nothing. Labels and annotations of others on e stay.
func same(d, e *discoveryv1.EndpointSlice) bool {
	return contains(e.Annotations, d.Annotations) && contains(e.Labels, d.Labels) &&
		e.Annotations[derived.AnnotationAdopt] == "" &&
		sameReaders(d, e) &&
		d.Annotations[AnnotationReadiness] == e.Annotations[AnnotationReadiness] &&
		equality.Semantic.DeepEqual(d.OwnerReferences, e.OwnerReferences) &&
		equality.Semantic.DeepEqual(d.Ports, e.Ports) && slices.EqualFunc(d.Endpoints, e.Endpoints, sameEndpoint)
}

// sameReaders reports whether d has all labels of e by which readers (kube-proxy, CoreDNS) choose slices.
func sameReaders(d, e *discoveryv1.EndpointSlice) bool {
	return !slices.ContainsFunc(readersLabels, func(label string) bool {
		_, is := e.Labels[label]
		_, should := d.Labels[label]
		return is && !should
	})
}

// contains reports whether all has each entry of some, except for the trigger time: it alone is no reason to write.
func contains(all, some map[string]string) bool {
	for k, v := range some {
		if w, ok := all[k]; (!ok || w != v) && k != corev1.EndpointsLastChangeTriggerTime {
			return false
		}
	}
	return true
}

// sameEndpoint avoids reflection for the fields that are usually set: a pass compares every endpoint of a service.
func sameEndpoint(a, b discoveryv1.Endpoint) bool {
	return slices.Equal(a.Addresses, b.Addresses) &&
		ptr.Equal(a.Conditions.Ready, b.Conditions.Ready) && ptr.Equal(a.Conditions.Serving, b.Conditions.Serving) &&
		ptr.Equal(a.Conditions.Terminating, b.Conditions.Terminating) &&
		ptr.Equal(a.Hostname, b.Hostname) && ptr.Equal(a.Zone, b.Zone) && ptr.Equal(a.NodeName, b.NodeName) &&
		(a.Hints == nil && b.Hints == nil || equality.Semantic.DeepEqual(a.Hints, b.Hints)) &&
		(a.TargetRef == nil && b.TargetRef == nil || equality.Semantic.DeepEqual(a.TargetRef, b.TargetRef)) &&
		len(a.DeprecatedTopology) == 0 && len(b.DeprecatedTopology) == 0
}

// Updated returns a copy of e with the content of d. Labels and annotations of others stay, except for labels by which
// readers choose slices, and the given annotations.
func Updated(e, d *discoveryv1.EndpointSlice, annotations ...string) *discoveryv1.EndpointSlice {
	u := e.DeepCopy()
	if u.Labels == nil {
		u.Labels = map[string]string{}
	}
	if u.Annotations == nil {
		u.Annotations = map[string]string{}
	}
	for _, label := range readersLabels {
		delete(u.Labels, label)
	}
	delete(u.Annotations, derived.AnnotationAdopt)
	for _, annotation := range annotations {
		delete(u.Annotations, annotation)
	}
	maps.Copy(u.Labels, d.Labels)
	maps.Copy(u.Annotations, d.Annotations)
	u.OwnerReferences, u.Ports, u.Endpoints = d.OwnerReferences, d.Ports, d.Endpoints
	return u
}
