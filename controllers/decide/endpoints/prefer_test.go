package endpoints

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
)

func serving(cluster string, family discoveryv1.AddressType, ready bool, ports ...string) *Source {
	s := expiring(cluster, ready)
	s.AddressType = family
	for i, name := range ports {
		s.Ports = append(s.Ports, port(name, int32(8000+i)))
	}
	return s
}

// TestT2Prefer: who is silent in cluster a.
func TestT2Prefer(t *testing.T) {
	names := keyed(map[string]string{"http": "http", "admin": "admin"})
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
			Names:      map[string]map[clusterset.PortKey]string{"a": names, "b": names, "c": names},
		}
		var silent []string
		out, _, _ := Prefer(c.sources, clusterset.Place{Cluster: "a"}, m, nil, time.Time{})
		for _, s := range out {
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

// A Service's port became one of TCP, and its slice is still of UDP: nobody reaches that, so the next tier serves.
func TestT2APortInAnotherProtocolServesNothing(t *testing.T) {
	old := serving("a", discoveryv1.AddressTypeIPv4, true, "http")
	old.Ports[0].Protocol = corev1.ProtocolUDP
	names := keyed(map[string]string{"http": "http"})
	m := &conflict.Merged{
		Preference: hubv1alpha1.PreferLocal,
		Names:      map[string]map[clusterset.PortKey]string{"a": names, "b": names},
		Ports:      []clusterset.Port{{Name: "http", Protocol: corev1.ProtocolTCP, Number: 80}},
	}
	sources := []*Source{old, serving("b", discoveryv1.AddressTypeIPv4, true, "http")}
	out, _, _ := Prefer(sources, clusterset.Place{Cluster: "a"}, m, nil, time.Time{})
	if out[1].NoTraffic {
		t.Error("b has the port in its protocol, and gets no traffic")
	}
}

// world is an import of a cluster in the EU, with what exporters a to d have ready.
type world struct {
	preference hubv1alpha1.Preference
	minReady   clusterset.MinReady
	order      *Order
	now        time.Time
	ready      map[string]int // of the four endpoints of each cluster
}

// carrying returns who carries the traffic now, and when to look again.
func (w *world) carrying() (string, time.Duration) {
	m := &conflict.Merged{
		Preference: w.preference, MinReady: w.minReady, Names: map[string]map[clusterset.PortKey]string{},
		Properties: map[string]map[string]string{
			"a": {"region": "eu"}, "b": {"region": "eu"}, "c": {"region": "us"}, "d": {},
		},
	}
	var sources []*Source
	for _, cluster := range []string{"a", "b", "c", "d"} {
		m.Names[cluster] = keyed(map[string]string{"http": "http"})
		s := serving(cluster, discoveryv1.AddressTypeIPv4, true, "http")
		s.Native, s.Endpoints = nil, nil
		for i := range 4 {
			s.Endpoints = append(s.Endpoints, hubv1alpha1.Endpoint{Ready: to(i < w.ready[cluster])})
		}
		sources = append(sources, s)
	}
	own := clusterset.Place{Cluster: "a", Properties: m.Properties["a"]}
	out, order, again := Prefer(sources, own, m, w.order, w.now)
	w.order = order
	var loud []string
	for _, s := range out {
		if !s.NoTraffic {
			loud = append(loud, s.ClusterID)
		}
	}
	return strings.Join(loud, " "), again
}

// TestT2Tiers: in which clusters of four the traffic goes, by how many of four endpoints each has ready.
func TestT2Tiers(t *testing.T) {
	for _, c := range []struct {
		preference hubv1alpha1.Preference
		minReady   clusterset.MinReady
		a, b, c, d int
		want       string
	}{
		{"cluster=b,cluster=c", "", 4, 4, 4, 4, "b"},
		{"cluster=b,cluster=c", "", 4, 0, 4, 4, "c"},
		{"cluster=b,cluster=c", "", 4, 0, 0, 4, "c"}, // refused rather than sent elsewhere
		{"local,same:region,any", "", 1, 4, 4, 4, "a"},
		{"local,same:region,any", "", 0, 1, 4, 4, "a b"},
		{"local,same:region,any", "", 0, 0, 1, 1, "a b c d"},
		{"same:region", "", 0, 0, 4, 4, "a b"},
		{"same:zone,cluster=d", "", 4, 4, 4, 4, "d"}, // no cluster states a zone
		{"region=us,any", "", 4, 4, 1, 4, "c"},
		{"local,any", "2", 1, 1, 0, 0, "a b c d"},
		{"local,any", "2", 2, 4, 4, 4, "a"},
		{"local,region=us", "50%", 1, 0, 2, 0, "c"},
		{"local,region=us", "50%", 2, 0, 2, 0, "a"},
		{"local,region=us", "3", 1, 4, 2, 0, "a"}, // nobody has enough: the first that has any
		{"same:region,any", "5", 2, 3, 0, 0, "a b"},
		{"any", "", 1, 1, 1, 1, "a b c d"},
	} {
		w := &world{preference: c.preference, minReady: c.minReady,
			ready: map[string]int{"a": c.a, "b": c.b, "c": c.c, "d": c.d}}
		if got, _ := w.carrying(); got != c.want {
			t.Errorf("%s, at least %s, ready %v: traffic goes to %q, want %q",
				c.preference, c.minReady, w.ready, got, c.want)
		}
	}
}

// TestT2EachPortGoesItsOwnWay: what only another cluster serves comes from there, and nothing else.
func TestT2EachPortGoesItsOwnWay(t *testing.T) {
	names := keyed(map[string]string{"http": "http", "admin": "admin"})
	m := &conflict.Merged{
		Preference: "cluster=b,cluster=c", Names: map[string]map[clusterset.PortKey]string{"b": names, "c": names},
	}
	v4 := discoveryv1.AddressTypeIPv4
	sources := []*Source{serving("b", v4, true, "http"), serving("c", v4, true, "http", "admin")}
	out, _, _ := Prefer(sources, clusterset.Place{Cluster: "a"}, m, nil, time.Time{})
	if out[0].NoTraffic || len(out[0].Withheld) > 0 || out[1].NoTraffic || !out[1].Withheld[keyOfPort("http")] ||
		out[1].Withheld[keyOfPort("admin")] || sources[1].Withheld != nil {
		t.Errorf("b: %+v\nc: %+v", out[0], out[1])
	}
}

// TestT2OfARolloutWhatStartsCountsAndWhatEndsDoesNot: 8 endpoints stay ready. A percentage that the new ones are to
// reach as well moves the traffic.
func TestT2OfARolloutWhatStartsCountsAndWhatEndsDoesNot(t *testing.T) {
	names := keyed(map[string]string{"http": "http"})
	for _, c := range []struct {
		ending, starting int
		minReady         clusterset.MinReady
		stays            bool
	}{
		{8, 0, "75%", true}, {8, 0, "8", true},
		{0, 5, "75%", false}, {0, 5, "61%", true}, {0, 5, "8", true}, {0, 5, "", true},
	} {
		m := &conflict.Merged{
			Preference: "cluster=b,cluster=c", MinReady: c.minReady,
			Names: map[string]map[clusterset.PortKey]string{"b": names, "c": names},
		}
		b := serving("b", discoveryv1.AddressTypeIPv4, true, "http")
		b.Native, b.Endpoints = nil, slices.Concat(
			slices.Repeat([]hubv1alpha1.Endpoint{{}}, 8),
			slices.Repeat([]hubv1alpha1.Endpoint{{Ready: to(false), Terminating: to(true)}}, c.ending),
			slices.Repeat([]hubv1alpha1.Endpoint{{Ready: to(false)}}, c.starting),
		)
		sources := []*Source{b, serving("c", discoveryv1.AddressTypeIPv4, true, "http")}
		out, _, _ := Prefer(sources, clusterset.Place{Cluster: "a"}, m, nil, time.Time{})
		if out[0].NoTraffic == c.stays || out[1].NoTraffic != c.stays {
			t.Errorf("%+v: b has no traffic: %v; c has none: %v", c, out[0].NoTraffic, out[1].NoTraffic)
		}
	}
}

// TestT2BackAfterHysteresis: away at once, back after 10 s of enough, and not back to a tier that fails meanwhile.
func TestT2BackAfterHysteresis(t *testing.T) {
	w := &world{
		preference: "local,cluster=b,cluster=c",
		now:        time.Unix(1000, 0),
		ready:      map[string]int{"a": 1, "b": 1, "c": 1},
	}
	step := func(after time.Duration, ready map[string]int, want string, wantAgain time.Duration) {
		t.Helper()
		w.now, w.ready = w.now.Add(after), ready
		if got, again := w.carrying(); got != want || again != wantAgain {
			t.Errorf("traffic goes to %q, again in %v; want %q in %v", got, again, want, wantAgain)
		}
	}
	all, withoutA, withoutB := map[string]int{
		"a": 1,
		"b": 1,
		"c": 1,
	}, map[string]int{
		"b": 1,
		"c": 1,
	}, map[string]int{
		"a": 1,
		"c": 1,
	}
	step(0, all, "a", 0)
	step(0, withoutA, "b", 0)
	step(time.Second, all, "b", 10*time.Second)
	step(9*time.Second, all, "b", time.Second)
	step(500*time.Millisecond, withoutA, "b", 0) // it fails again
	step(time.Second, all, "b", 10*time.Second)  // and the time begins again
	step(9*time.Second, withoutB, "a", 0)        // what carries the traffic fails: no time to lose
	step(0, withoutA, "b", 0)
	step(time.Second, all, "b", 10*time.Second)
	step(10*time.Second, all, "a", 0)
	step(0, withoutA, "b", 0)
	step(0, all, "b", 10*time.Second)
	w.preference = "local,any" // another preference holds at once
	step(0, all, "a", 0)
}
