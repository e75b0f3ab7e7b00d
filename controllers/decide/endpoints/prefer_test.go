package endpoints

import (
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
)

func serving(cluster string, family discoveryv1.AddressType, ready bool, ports ...string) *Source {
	s := expiring(cluster, ready)
	s.AddressType = family
	for i, name := range ports {
		number := int32(8000 + i)
		s.Ports = append(s.Ports, hubv1alpha1.EndpointPort{Name: name, Protocol: corev1.ProtocolTCP, Port: &number})
	}
	return s
}

// TestT2Prefer: who is silent in cluster a.
func TestT2Prefer(t *testing.T) {
	names := map[string]string{"http": "http", "admin": "admin"}
	v4, v6 := discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6
	for _, c := range []struct {
		what       string
		preference hubv1alpha1.Preference
		sources    []*Source
		silent     string
	}{
		{"none", hubv1alpha1.PreferNone, []*Source{serving("a", v4, true, "http"), serving("b", v4, true, "http")}, ""},
		{"prefer-local with a ready one", hubv1alpha1.PreferLocal,
			[]*Source{serving("a", v4, true, "http"), serving("b", v4, true, "http"), serving("c", v4, true, "http")},
			"b c"},
		{"prefer-local with none ready", hubv1alpha1.PreferLocal,
			[]*Source{serving("a", v4, false, "http"), serving("b", v4, true, "http")}, ""},
		{"prefer-local in a cluster that has none", hubv1alpha1.PreferLocal,
			[]*Source{serving("b", v4, true, "http")}, ""},
		{"prefer-local, ready in another slice", hubv1alpha1.PreferLocal,
			[]*Source{serving("a", v4, false, "http"), serving("a", v4, true, "http"),
				serving("b", v4, true, "http")}, "b"},
		{"prefer-local, a port that only b has", hubv1alpha1.PreferLocal,
			[]*Source{serving("a", v4, true, "http"), serving("b", v4, true, "http", "admin"),
				serving("c", v4, true, "http")}, "c"},
		{"prefer-local, a family that only b has", hubv1alpha1.PreferLocal,
			[]*Source{serving("a", v4, true, "http"), serving("b", v6, true, "http"), serving("c", v4, true, "http")},
			"c"},
		{"local-only with none ready", hubv1alpha1.LocalOnly,
			[]*Source{serving("a", v4, false, "http"), serving("b", v4, true, "http")}, "b"},
		{"local-only in a cluster that has none", hubv1alpha1.LocalOnly, []*Source{serving("b", v4, true, "http")},
			"b"},
	} {
		m := &conflict.Merged{
			Preference: c.preference,
			Names:      map[string]map[string]string{"a": names, "b": names, "c": names},
		}
		var silent []string
		for _, s := range Prefer(c.sources, "a", m) {
			if s.NoTraffic {
				silent = append(silent, s.ClusterID)
			}
		}
		if got := strings.Join(silent, " "); got != c.silent {
			t.Errorf("%s: %q are silent, want %q", c.what, got, c.silent)
		}
		for _, s := range c.sources {
			if s.NoTraffic {
				t.Fatal("a source was changed")
			}
		}
	}
}

// TestT2AdditionsFirst: traffic is given before any is taken, so that there is no moment without.
func TestT2AdditionsFirst(t *testing.T) {
	loud, quiet := &discoveryv1.EndpointSlice{}, &discoveryv1.EndpointSlice{}
	loud.Name, quiet.Name = "s", "s"
	quiet.Labels = maps.Clone(noTraffic)
	if WithoutTraffic(Additive([]*discoveryv1.EndpointSlice{quiet},
		[]*discoveryv1.EndpointSlice{loud})[0]) {
		t.Error("traffic is taken before any is given")
	}
	if WithoutTraffic(Additive([]*discoveryv1.EndpointSlice{loud},
		[]*discoveryv1.EndpointSlice{quiet})[0]) {
		t.Error("traffic is not given at once")
	}
	if !WithoutTraffic(quiet) {
		t.Error("the desired slice was changed")
	}
}
