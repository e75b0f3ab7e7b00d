package endpoints

import (
	"maps"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// Changes is what makes existing slices the desired ones. Additions come first and take nothing away; Removals come last.
type Changes struct {
	Create []*discoveryv1.EndpointSlice
	Update []*discoveryv1.EndpointSlice // existing objects, changed in a copy: they carry the resourceVersion that was seen
	Delete []*discoveryv1.EndpointSlice
}

// Plan compares. Updates that take a ready endpoint or a port away come after those that take nothing (C9). Neither list is changed.
func Plan(desired, existing []*discoveryv1.EndpointSlice) Changes {
	var c Changes
	var losing []*discoveryv1.EndpointSlice
	have := make(map[string]*discoveryv1.EndpointSlice, len(existing))
	for _, e := range existing {
		have[e.Name] = e
	}
	for _, d := range desired {
		e := have[d.Name]
		if e == nil {
			c.Create = append(c.Create, d)
			continue
		}
		delete(have, d.Name)
		if same(d, e) {
			continue
		}
		if u := updated(d, e); losesReady(e, u) || losesPort(e, u) {
			losing = append(losing, u)
		} else {
			c.Update = append(c.Update, u)
		}
	}
	c.Update = append(c.Update, losing...)
	for _, e := range existing {
		if have[e.Name] != nil {
			c.Delete = append(c.Delete, e)
		}
	}
	return c
}

// Dispensable is what of the slices without a source may go though others could not be written: all but ready endpoints that are to be
// ready in one that does not have them yet (C9).
func Dispensable(desired, existing []*discoveryv1.EndpointSlice) (c Changes) {
	have := make(map[string]map[string]bool, len(existing))
	for _, e := range existing {
		have[e.Name] = readyIn(e)
	}
	missing := map[string]bool{}
	for _, d := range desired {
		for address := range readyIn(d) {
			if !have[d.Name][address] {
				missing[address] = true
			}
		}
	}
	for _, e := range Plan(desired, existing).Delete {
		left := e.DeepCopy()
		left.Endpoints = slices.DeleteFunc(left.Endpoints, func(ep discoveryv1.Endpoint) bool { return !ready(&ep) || !missing[ep.Addresses[0]] })
		switch len(left.Endpoints) {
		case 0:
			c.Delete = append(c.Delete, e)
		case len(e.Endpoints):
		default:
			c.Update = append(c.Update, left)
		}
	}
	return c
}

// readyIn are the addresses of the endpoints that are ready.
func readyIn(e *discoveryv1.EndpointSlice) map[string]bool {
	out := make(map[string]bool, len(e.Endpoints))
	for i := range e.Endpoints {
		if ready(&e.Endpoints[i]) {
			out[e.Endpoints[i].Addresses[0]] = true
		}
	}
	return out
}

// ready tells whether an endpoint is; one that does not say is.
func ready(e *discoveryv1.Endpoint) bool { return e.Conditions.Ready == nil || *e.Conditions.Ready }

// losesReady tells whether an endpoint that is ready in e is not in d.
func losesReady(e, d *discoveryv1.EndpointSlice) bool {
	still := readyIn(d)
	return slices.ContainsFunc(e.Endpoints, func(ep discoveryv1.Endpoint) bool { return ready(&ep) && !still[ep.Addresses[0]] })
}

// losesPort tells whether a port of e is not in d, or of another protocol there: kube-proxy joins by both.
func losesPort(e, d *discoveryv1.EndpointSlice) bool {
	return slices.ContainsFunc(e.Ports, func(p discoveryv1.EndpointPort) bool {
		return !slices.ContainsFunc(d.Ports, func(q discoveryv1.EndpointPort) bool { return eq(p.Name, q.Name) && eq(p.Protocol, q.Protocol) })
	})
}

// Additive is desired with the port names that the existing slices have kept, and with the traffic that they have, so that writing it
// takes nothing away.
func Additive(desired, existing []*discoveryv1.EndpointSlice) []*discoveryv1.EndpointSlice {
	have := make(map[string]*discoveryv1.EndpointSlice, len(existing))
	for _, e := range existing {
		have[e.Name] = e
	}
	out := make([]*discoveryv1.EndpointSlice, 0, len(desired))
	for _, d := range desired {
		e := have[d.Name]
		if e == nil || !loses(e.Ports, d.Ports) && !silences(e, d) {
			out = append(out, d)
			continue
		}
		both := d.DeepCopy()
		if silences(e, d) {
			delete(both.Labels, headless)
		}
		for i := range e.Ports {
			if !named(both.Ports, e.Ports[i].Name) {
				both.Ports = append(both.Ports, e.Ports[i])
			}
		}
		out = append(out, both)
	}
	return out
}

// silences tells whether e has traffic that d would take away.
func silences(e, d *discoveryv1.EndpointSlice) bool {
	_, was := e.Labels[headless]
	_, is := d.Labels[headless]
	return !was && is
}

func same(d, e *discoveryv1.EndpointSlice) bool {
	for k, v := range d.Annotations {
		if w, ok := e.Annotations[k]; !ok || w != v {
			return false
		}
	}
	if d.Annotations[AnnotationReadiness] != e.Annotations[AnnotationReadiness] {
		return false
	}
	_, traffic := d.Labels[headless]
	if _, was := e.Labels[headless]; was != traffic {
		return false
	}
	for k, v := range d.Labels {
		if w, ok := e.Labels[k]; !ok || w != v {
			return false
		}
	}
	return equality.Semantic.DeepEqual(d.OwnerReferences, e.OwnerReferences) &&
		equality.Semantic.DeepEqual(d.Ports, e.Ports) && slices.EqualFunc(d.Endpoints, e.Endpoints, sameEndpoint)
}

// sameEndpoint is written out since a pass compares every endpoint of a service; what reflection would find beyond it is compared so.
func sameEndpoint(a, b discoveryv1.Endpoint) bool {
	return slices.Equal(a.Addresses, b.Addresses) &&
		eq(a.Conditions.Ready, b.Conditions.Ready) && eq(a.Conditions.Serving, b.Conditions.Serving) &&
		eq(a.Conditions.Terminating, b.Conditions.Terminating) &&
		eq(a.Hostname, b.Hostname) && eq(a.Zone, b.Zone) && eq(a.NodeName, b.NodeName) &&
		((a.Hints == nil && b.Hints == nil) || equality.Semantic.DeepEqual(a.Hints, b.Hints)) &&
		((a.TargetRef == nil && b.TargetRef == nil) || equality.Semantic.DeepEqual(a.TargetRef, b.TargetRef)) &&
		len(a.DeprecatedTopology) == 0 && len(b.DeprecatedTopology) == 0
}

func eq[T comparable](a, b *T) bool {
	return a == b || a != nil && b != nil && *a == *b
}

func updated(d, e *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	u := e.DeepCopy()
	if u.Labels == nil {
		u.Labels = map[string]string{}
	}
	if u.Annotations == nil {
		u.Annotations = map[string]string{}
	}
	maps.Copy(u.Labels, d.Labels)
	if _, traffic := d.Labels[headless]; !traffic {
		delete(u.Labels, headless)
	}
	delete(u.Annotations, AnnotationReadiness)
	maps.Copy(u.Annotations, d.Annotations)
	u.OwnerReferences, u.Ports, u.Endpoints = d.OwnerReferences, d.Ports, d.Endpoints
	return u
}

// loses tells whether a name that was there is there no more.
func loses(was, is []discoveryv1.EndpointPort) bool {
	return slices.ContainsFunc(was, func(p discoveryv1.EndpointPort) bool { return !named(is, p.Name) })
}

func named(ports []discoveryv1.EndpointPort, name *string) bool {
	return slices.ContainsFunc(ports, func(p discoveryv1.EndpointPort) bool { return str(p.Name) == str(name) })
}

func str(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
