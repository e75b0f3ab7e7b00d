package endpoints

import (
	"slices"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
)

// at gives a source ready endpoints at these addresses.
func at(s *Source, addresses ...string) *Source {
	s.Endpoints = nil
	yes := true
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, hubv1alpha1.Endpoint{Address: a, Ready: &yes, Serving: &yes})
	}
	return s
}

// TestF4Withhold: who is ready in cluster a.
func TestF4Withhold(t *testing.T) {
	names := map[string]string{"http": "http", "admin": "admin"}
	v4, v6 := discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6
	for _, c := range []struct {
		what     string
		sources  []*Source
		withheld string // cluster/address
		floor    bool
		ready    string
	}{
		{"nothing", []*Source{at(serving("b", v4, true, "http"), "1", "2")}, "", true, "1 2"},
		{"one of two", []*Source{at(serving("b", v4, true, "http"), "1", "2")}, "b/1", true, "2"},
		{"one of two; the other is not ready",
			[]*Source{serving("c", v4, false, "http"), at(serving("b", v4, true, "http"), "1")}, "b/1", true, "1"},
		{"all of b, others there", []*Source{at(serving("b", v4, true, "http"), "1", "2"),
			at(serving("c", v4, true, "http"), "3")}, "b/*", true, "3"},
		{"all there is, with the floor", []*Source{at(serving("b", v4, true, "http"), "1"),
			at(serving("c", v4, true, "http"), "3")}, "b/* c/3", true, "1 3"},
		{"all there is, without", []*Source{at(serving("b", v4, true, "http"), "1"),
			at(serving("c", v4, true, "http"), "3")}, "b/* c/3", false, ""},
		{"this cluster's own", []*Source{at(serving("a", v4, true, "http"), "1")}, "a/*", false, "1"},
		{"a port that only b has", []*Source{at(serving("b", v4, true, "http", "admin"), "1"),
			at(serving("c", v4, true, "http"), "3")}, "b/1", true, "1 3"},
		{"a family that only b has", []*Source{at(serving("b", v6, true, "http"), "1"),
			at(serving("c", v4, true, "http"), "3")}, "b/1", true, "1 3"},
		{"without ports", []*Source{at(serving("b", v4, true), "1"), at(serving("c", v4, true), "3")}, "b/1", true,
			"3"},
		{"the last without ports", []*Source{at(serving("b", v4, true), "1")}, "b/1", true, "1"},
	} {
		withheld := map[string]Unreached{}
		for _, w := range strings.Fields(c.withheld) {
			cluster, address, _ := strings.Cut(w, "/")
			was := withheld[cluster]
			withheld[cluster] = Unreached{append(was.Addresses, address), UnreachedReason(c.floor)}
		}
		m := &conflict.Merged{Names: map[string]map[string]string{"a": names, "b": names, "c": names}}
		var ready, before, after []string
		for _, s := range c.sources {
			before = append(before, ReadyAddresses(&s.EndpointRecordSpec)...)
		}
		for _, s := range Withhold(c.sources, "a", withheld, m) {
			ready = append(ready, ReadyAddresses(&s.EndpointRecordSpec)...)
		}
		if got := strings.Join(ready, " "); got != c.ready {
			t.Errorf("%s: %q ready, want %q", c.what, got, c.ready)
		}
		for _, s := range c.sources {
			after = append(after, ReadyAddresses(&s.EndpointRecordSpec)...)
		}
		if !slices.Equal(before, after) {
			t.Fatalf("%s: a source was changed", c.what)
		}
	}
}

// TestF4WithholdWhatIsRemembered: of a record that the hub does not show, whose endpoints are those of the slice.
func TestF4WithholdWhatIsRemembered(t *testing.T) {
	s := serving("b", discoveryv1.AddressTypeIPv4, true, "http")
	s.Endpoints, s.Native = nil, []discoveryv1.Endpoint{{Addresses: []string{"1"}}, {Addresses: []string{"2"}}}
	m := &conflict.Merged{Names: map[string]map[string]string{"b": {"http": "http"}}}
	out := Withhold([]*Source{s}, "a", map[string]Unreached{"b": {[]string{"1"}, UnreachedReason(true)}}, m)[0]
	if r := out.Native[0].Conditions.Ready; r == nil || *r || out.Native[1].Conditions.Ready != nil ||
		s.Native[0].Conditions.Ready != nil {
		t.Errorf("%+v of %+v", out.Native, s.Native)
	}
}
