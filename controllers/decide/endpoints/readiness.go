package endpoints

import (
	"encoding/json"
	"maps"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
)

// conditions are the conditions of an endpoint that its owner publishes: ready and serving.
type conditions [2]*bool

// notReady returns a copy of the source whose endpoints are not ready in this cluster. The published conditions are
// kept, so that they apply again when the reason is gone, even while the hub does not show the record (DESIGN §7).
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

// published are the published conditions of the endpoints of a source, in their order for each address: Pods of the
// network of their host share its address.
type published map[string][]conditions

func (p published) add(address string, c conditions) { p[address] = append(p[address], c) }

// bothFalse reports whether c is what notReady writes.
func (c conditions) bothFalse() bool { return !ready(c[0]) && !ready(c[1]) }

// readiness returns the value of AnnotationReadiness, or "".
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
		if k := kept[address]; len(k) > 0 {
			if (conditions{c.Ready, c.Serving}).bothFalse() {
				c.Ready, c.Serving = k[0][0], k[0][1]
			}
			kept[address] = k[1:]
		}
	}
	return out
}

func ReadyAddresses(group *hubv1alpha1.EndpointGroup) (out []string) {
	for i := range group.Endpoints {
		if e := &group.Endpoints[i]; ready(e.Ready) {
			out = append(out, e.Address)
		}
	}
	return out
}
