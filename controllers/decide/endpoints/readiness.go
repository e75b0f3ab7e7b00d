package endpoints

import (
	"encoding/json"
	"maps"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
)

// said is what an owner says of an endpoint: ready and serving.
type said [2]*bool

// unready is src with those of its endpoints not ready, in this cluster only: what the owner says of them is kept, so that they are as it
// says once nothing is against them any more, also where the hub shows the record no longer (DESIGN §7).
func (src *Source) unready(which func(address string) bool) *Source {
	out, no := *src, false
	out.Native, out.Endpoints, out.Said = slices.Clone(src.Native), slices.Clone(src.Endpoints), maps.Clone(src.Said)
	for i := range out.Native {
		if e := &out.Native[i]; which(e.Addresses[0]) {
			out.keep(e.Addresses[0], said{e.Conditions.Ready, e.Conditions.Serving})
			e.Conditions.Ready, e.Conditions.Serving = &no, &no
		}
	}
	for i := range out.Endpoints {
		if e := &out.Endpoints[i]; which(e.Address) {
			out.keep(e.Address, said{e.Ready, e.Serving})
			e.Ready, e.Serving = &no, &no
		}
	}
	return &out
}

// keep takes note of what an owner says, before it is said otherwise here for the first time.
func (src *Source) keep(address string, s said) {
	if _, known := src.Said[address]; known || s.neither() {
		return
	}
	if src.Said == nil {
		src.Said = map[string]said{}
	}
	src.Said[address] = s
}

// neither tells whether it is what is written of an endpoint that counts no more.
func (s said) neither() bool { return s[0] != nil && !*s[0] && s[1] != nil && !*s[1] }

// readiness is what a slice bears of what the owner says otherwise; "" for nothing.
func (src *Source) readiness() string {
	if len(src.Said) == 0 {
		return ""
	}
	text, _ := json.Marshal(src.Said) // cannot fail: strings and booleans
	return string(text)
}

// asSaid are the endpoints of an imported slice as their owner said, where the slice knows.
func asSaid(slice *discoveryv1.EndpointSlice) []discoveryv1.Endpoint {
	text := slice.Annotations[AnnotationReadiness]
	if text == "" {
		return slice.Endpoints
	}
	var by map[string]said
	if err := json.Unmarshal([]byte(text), &by); err != nil {
		return slice.Endpoints // a user has been at it: what is written counts
	}
	out := slices.Clone(slice.Endpoints)
	for i := range out {
		c := &out[i].Conditions
		if s, ok := by[out[i].Addresses[0]]; ok && (said{c.Ready, c.Serving}).neither() {
			c.Ready, c.Serving = s[0], s[1]
		}
	}
	return out
}
