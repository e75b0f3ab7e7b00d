package endpoints

import (
	"encoding/json"
	"maps"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
)

// conditions are the conditions of an endpoint that its owner publishes: ready and serving.
type conditions [2]*bool

// notReady returns a copy of the source with the selected endpoints not ready in this cluster. The published
// conditions are kept, so that they apply again when the reason is gone, even while the hub does not show the record
// (DESIGN §7).
func (src *Source) notReady(selected func(address string) bool) *Source {
	out, no := *src, false
	out.Native, out.Endpoints, out.Published = slices.Clone(src.Native), slices.Clone(
		src.Endpoints,
	), maps.Clone(src.Published)
	for i := range out.Native {
		if e := &out.Native[i]; selected(e.Addresses[0]) {
			out.keepPublished(e.Addresses[0], conditions{e.Conditions.Ready, e.Conditions.Serving})
			e.Conditions.Ready, e.Conditions.Serving = &no, &no
		}
	}
	for i := range out.Endpoints {
		if e := &out.Endpoints[i]; selected(e.Address) {
			out.keepPublished(e.Address, conditions{e.Ready, e.Serving})
			e.Ready, e.Serving = &no, &no
		}
	}
	return &out
}

func (src *Source) keepPublished(address string, c conditions) {
	if _, kept := src.Published[address]; kept || c.bothFalse() {
		return
	}
	if src.Published == nil {
		src.Published = map[string]conditions{}
	}
	src.Published[address] = c
}

// bothFalse reports whether c is what notReady writes.
func (c conditions) bothFalse() bool { return !ready(c[0]) && !ready(c[1]) }

// readiness returns the value of AnnotationReadiness, or "".
func (src *Source) readiness() string {
	if len(src.Published) == 0 {
		return ""
	}
	text, _ := json.Marshal(src.Published) // strings and booleans cannot fail
	return string(text)
}

// published returns the endpoints of an imported slice with their published conditions.
func published(slice *discoveryv1.EndpointSlice) []discoveryv1.Endpoint {
	text := slice.Annotations[AnnotationReadiness]
	if text == "" {
		return slice.Endpoints
	}
	var kept map[string]conditions
	if err := json.Unmarshal([]byte(text), &kept); err != nil {
		return slice.Endpoints // edited by a user
	}
	out := slices.Clone(slice.Endpoints)
	for i := range out {
		c := &out[i].Conditions
		if k, ok := kept[out[i].Addresses[0]]; ok && (conditions{c.Ready, c.Serving}).bothFalse() {
			c.Ready, c.Serving = k[0], k[1]
		}
	}
	return out
}

// ReadyAddresses returns the addresses of the ready endpoints of a record.
func ReadyAddresses(spec *hubv1alpha1.EndpointRecordSpec) (out []string) {
	for i := range spec.Endpoints {
		if e := &spec.Endpoints[i]; ready(e.Ready) {
			out = append(out, e.Address)
		}
	}
	return out
}
