package endpoints

import (
	"encoding/json"
	"maps"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
)

// conditions are those that the owner of an endpoint published: ready at readyAt, serving at servingAt.
type conditions [2]*bool

const readyAt, servingAt = 0, 1

// bothFalse reports whether c is what notReady writes.
func (c conditions) bothFalse() bool { return !ready(c[readyAt]) && !ready(c[servingAt]) }

// published are the conditions of the endpoints of a source by address, as in {"10.2.0.9":[[true,true],[false,true]]}.
// Pods in the network of their host have its address: they are told apart by their order.
type published map[string][]conditions

func (p published) add(address string, c conditions) { p[address] = append(p[address], c) }

// notReady returns a copy of the source with all endpoints not ready, because their cluster expired. Published keeps
// what the owner published: Restore needs it if the cluster returns while the hub does not show its record (DESIGN §7).
func (src *Source) notReady() *Source {
	out, no := *src, false
	out.Native, out.Endpoints, out.Published = slices.Clone(src.Native), slices.Clone(src.Endpoints), published{}
	for i := range out.Native {
		e := &out.Native[i]
		out.Published.add(e.Addresses[0], conditions{e.Conditions.Ready, e.Conditions.Serving})
		e.Conditions.Ready, e.Conditions.Serving = &no, &no
	}
	for i := range out.Endpoints {
		e := &out.Endpoints[i]
		isReady := ready(e.Ready)
		out.Published.add(e.Address, conditions{&isReady, new(ptr.Deref(e.Serving, isReady))})
		e.Ready, e.Serving = &no, &no
	}
	return &out
}

// readiness returns the value of AnnotationReadiness, or "". It leaves out addresses whose endpoints were all published
// as not ready: the slice itself shows that.
func (src *Source) readiness() string {
	kept := maps.Clone(src.Published)
	maps.DeleteFunc(kept, func(_ string, all []conditions) bool {
		return !slices.ContainsFunc(all, func(c conditions) bool { return !c.bothFalse() })
	})
	if len(kept) == 0 {
		return ""
	}
	text, _ := json.Marshal(kept) // strings and booleans cannot fail
	return string(text)
}

// asPublished returns the endpoints of an imported slice with their published conditions.
func asPublished(slice *discoveryv1.EndpointSlice) []discoveryv1.Endpoint {
	text := slice.Annotations[AnnotationReadiness]
	if text == "" {
		return slice.Endpoints
	}
	var kept published
	if err := json.Unmarshal([]byte(text), &kept); err != nil {
		return slice.Endpoints // edited by a user
	}
	out := slices.Clone(slice.Endpoints)
	for i := range out {
		c, address := &out[i].Conditions, out[i].Addresses[0]
		if left := kept[address]; len(left) > 0 {
			if (conditions{c.Ready, c.Serving}).bothFalse() { // else edited by a user
				c.Ready, c.Serving = left[0][readyAt], left[0][servingAt]
			}
			kept[address] = left[1:]
		}
	}
	return out
}
