package pages

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
)

// group returns a group whose endpoints have these names; all listen at port 80 of the Service.
func group(names ...string) hubv1alpha1.EndpointGroup {
	g := hubv1alpha1.EndpointGroup{AddressType: discoveryv1.AddressTypeIPv4}
	g.Ports = []hubv1alpha1.EndpointPort{{Protocol: "TCP", Port: 80, Target: new(int32(8080))}}
	for _, name := range names {
		g.Endpoints = append(g.Endpoints, hubv1alpha1.Endpoint{Address: name})
	}
	return g
}

// many returns n names, from the first on.
func many(first, n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprint(first+i))
	}
	return out
}

// text writes groups as the names of their endpoints.
func text(groups []hubv1alpha1.EndpointGroup) string {
	var out []string
	for i := range groups {
		var names []string
		for _, e := range groups[i].Endpoints {
			names = append(names, e.Address)
		}
		out = append(out, "["+strings.Join(names, " ")+"]")
	}
	return strings.Join(out, "")
}

func of(groups ...hubv1alpha1.EndpointGroup) []hubv1alpha1.EndpointGroup { return groups }

// TestArrange: limits of three endpoints a group. The record takes three endpoints and two groups.
func TestArrange(t *testing.T) {
	limits := Limits{Endpoints: 3, Groups: 2}
	other := group("x")
	other.Ports = []hubv1alpha1.EndpointPort{{Protocol: "TCP", Port: 80, Target: new(int32(9090))}}
	six := group("x")
	six.AddressType = discoveryv1.AddressTypeIPv6
	unready := group("x", "c")
	unready.Endpoints[0].Ready = new(false)
	for what, c := range map[string]struct {
		was, slicesOf []hubv1alpha1.EndpointGroup
		want          string
	}{
		"no slice":                           {of(group("a")), nil, ""},
		"a slice without endpoints":          {nil, of(group()), "[]"},
		"the last endpoint goes":             {of(group("a")), of(group()), "[]"},
		"new":                                {nil, of(group("a", "b")), "[a b]"},
		"two slices share a group":           {nil, of(group("a"), group("b")), "[a b]"},
		"more than a group has":              {nil, of(group("a", "b", "c", "d")), "[a b c][d]"},
		"the order of slices does not count": {of(group("a", "b")), of(group("b"), group("a")), "[a b]"},
		"a place stays": {
			of(group("a", "b", "c"), group("d", "e", "f")), of(group("f", "e", "d", "c", "a")), "[a c][d e f]",
		},
		"a hole is filled first": {
			of(group("a", "b", "c"), group("d", "e")), of(group("a", "c", "d", "e", "g")), "[a c g][d e]",
		},
		"then a new group": {
			of(group("a", "b", "c"), group("d", "e", "f")), of(group("a", "b", "c", "d", "e", "f", "g")),
			"[a b c][d e f][g]",
		},
		"an empty group in the middle stays": {
			of(group("a", "b", "c"), group("d"), group("e", "f", "g")), of(group("a", "b", "c", "e", "f", "g")),
			"[a b c][][e f g]",
		},
		"and is filled before a new one": {
			of(group("a", "b", "c"), group(), group("e", "f", "g")), of(group("a", "b", "c", "e", "f", "g", "h")),
			"[a b c][h][e f g]",
		},
		"empty groups at the end go": {
			of(group("a", "b", "c"), group("d", "e"), group("f")), of(group("a", "b", "c", "d")), "[a b c][d]",
		},
		"few endpoints in many groups are packed": {
			of(group("a"), group("b"), group("c")), of(group("a", "b", "c")), "[a c b]",
		},
		"twice as many groups as needed stay": {
			of(group("a", "b"), group("c"), group("d"), group("e")), of(group("a", "b", "c", "d", "e")),
			"[a b][c][d][e]",
		},
		"more than twice as many are packed": {
			of(group("a"), group("b"), group("c"), group("d"), group("e")), of(group("a", "b", "c", "d", "e")),
			"[a e d][b c]",
		},
		"other ports, other group":    {of(group("a")), of(group("a"), other), "[a][x]"},
		"another family, other group": {of(group("a")), of(six, group("a")), "[a][x]"},
		"all ports change in place":   {of(group("x")), of(other), "[x]"},
		"an address in two groups":    {nil, of(group("x"), other), "[x][x]"},
		"an address that comes twice": {of(group("x")), of(group("x", "x")), "[x x]"},
		"an address that came twice":  {of(group("x", "x")), of(group("x")), "[x]"},
		"an address of two slices that differ in it": {of(group("x", "a", "b"), hubv1alpha1.EndpointGroup{}),
			of(group("x", "a", "b"), unready), "[x a b][x c]"},
		"a lost group of the middle": {of(group("a"), hubv1alpha1.EndpointGroup{}, group("c", "d", "e")),
			of(group("a", "b", "c", "d", "e")), "[a b][][c d e]"},
		"nothing else moves into a lost group": {of(hubv1alpha1.EndpointGroup{}, group("b"), group("c")),
			of(group("a", "b", "c")), "[][b a][c]"},
		"a lost group that has others": {of(hubv1alpha1.EndpointGroup{}, group("d")), of(group("a", "b", "c", "d")),
			"[a][d b c]"},
	} {
		before := append(copyOf(c.was), copyOf(c.slicesOf)...)
		got := limits.Arrange(c.was, c.slicesOf)
		if what != "a lost group that has others" && text(got) != c.want {
			t.Errorf("%s: %s, want %s", what, text(got), c.want)
		}
		check(t, what, limits, got, c.slicesOf)
		if !equality.Semantic.DeepEqual(before, append(copyOf(c.was), copyOf(c.slicesOf)...)) {
			t.Errorf("%s: its input was changed", what)
		}
	}
}

func copyOf(groups []hubv1alpha1.EndpointGroup) []hubv1alpha1.EndpointGroup {
	out := make([]hubv1alpha1.EndpointGroup, 0, len(groups))
	for i := range groups {
		out = append(out, *groups[i].DeepCopy())
	}
	return out
}

// check fails if groups lose an endpoint of the slices or have one twice, or if the hub's CRDs refuse one of them.
func check(t *testing.T, what string, l Limits, groups, slicesOf []hubv1alpha1.EndpointGroup) {
	t.Helper()
	list := func(in []hubv1alpha1.EndpointGroup) (out []string) {
		for i := range in {
			of := kind(&in[i])
			for _, e := range in[i].Endpoints {
				out = append(out, of+" "+e.Address+" "+fmt.Sprint(e.Ready == nil))
			}
		}
		slices.Sort(out)
		return out
	}
	if got, want := list(groups), list(slicesOf); !slices.Equal(got, want) {
		t.Fatalf("%s: the groups have\n%q, the slices\n%q", what, got, want)
	}
	for i := range groups {
		if n := len(groups[i].Endpoints); n > l.Endpoints || groups[i].AddressType == "" {
			t.Fatalf("%s: group %d has %d endpoints of family %q", what, i, n, groups[i].AddressType)
		}
	}
	if len(slicesOf) > 0 && (len(groups) == 0 || len(groups) > 1 && len(groups[len(groups)-1].Endpoints) == 0) {
		t.Fatalf("%s: groups %s", what, text(groups))
	}
}

// TestInline: an export moves into pages when its record is full, and returns when the record is half empty.
func TestInline(t *testing.T) {
	for _, c := range []struct {
		endpoints, groups int
		paged, want       bool
	}{
		{0, 1, false, true}, {100, 1, false, true}, {100, 8, false, true}, {101, 2, false, false}, {10, 9, false,
			false},
		{100, 1, true, false}, {51, 1, true, false}, {50, 1, true, true}, {50, 9, true, false},
	} {
		groups := make([]hubv1alpha1.EndpointGroup, c.groups)
		groups[0] = group(many(0, c.endpoints)...)
		if got := OfHub.Inline(groups, c.paged); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// TestHead is what a record takes of too many endpoints. It changes no group.
func TestHead(t *testing.T) {
	all := of(group(many(0, 60)...), group(many(60, 60)...), group(many(120, 60)...))
	got := OfHub.Head(all)
	if n := count(got); n != 100 || len(got[0].Endpoints) != 60 || !OfHub.Inline(got, false) || count(all) != 180 {
		t.Errorf("%d endpoints: %s", n, text(got))
	}
	for i := range 20 {
		all = append(all, group(fmt.Sprint(1000+i)))
	}
	if got := OfHub.Head(all); len(got) != 8 || !OfHub.Inline(got, false) {
		t.Errorf("%d groups", len(got))
	}
}

// TestARandomLife: whatever happens to the slices of an export, no endpoint is lost or doubled, and the groups do not
// depend on the order of slices. A change of one endpoint changes one group unless all are packed, and then no more
// groups are left than needed.
func TestARandomLife(t *testing.T) {
	for seed := range uint64(20) {
		chance := rand.New(rand.NewPCG(seed, 1))
		limits := []Limits{OfHub, {Endpoints: 5, Groups: 3}}[seed%2]
		kinds := []hubv1alpha1.EndpointGroup{group(), group(), group()}
		kinds[1].AddressType = discoveryv1.AddressTypeIPv6
		kinds[2].Ports = []hubv1alpha1.EndpointPort{{Protocol: "TCP", Port: 80, Target: new(int32(9090))}}
		slicesOf := copyOf(kinds[:1+chance.IntN(3)])
		var groups []hubv1alpha1.EndpointGroup
		next, packed := 0, 0
		for step := range 100 {
			what := fmt.Sprintf("seed %d, step %d", seed, step)
			at := &slicesOf[chance.IntN(len(slicesOf))]
			changes := 1
			switch action := chance.IntN(10); {
			case action < 4 || len(at.Endpoints) == 0:
				at.Endpoints = append(at.Endpoints, hubv1alpha1.Endpoint{Address: fmt.Sprint(next)})
				next++
			case action < 6:
				i := chance.IntN(len(at.Endpoints))
				at.Endpoints = slices.Delete(at.Endpoints, i, i+1)
			case action < 8:
				e := &at.Endpoints[chance.IntN(len(at.Endpoints))]
				if e.Ready == nil {
					e.Ready = new(false)
				} else {
					e.Ready = nil
				}
			case action < 9: // a scaling
				changes = 1 + chance.IntN(2*limits.Endpoints)
				for range changes {
					at.Endpoints = append(at.Endpoints, hubv1alpha1.Endpoint{Address: fmt.Sprint(next)})
					next++
				}
			default:
				changes = len(at.Endpoints) - chance.IntN(len(at.Endpoints))
				chance.Shuffle(len(at.Endpoints), func(i, j int) {
					at.Endpoints[i], at.Endpoints[j] = at.Endpoints[j], at.Endpoints[i]
				})
				at.Endpoints = at.Endpoints[changes:]
			}
			was := copyOf(groups)
			groups = limits.Arrange(was, slicesOf)
			check(t, what, limits, groups, slicesOf)
			changed := 0
			for i := range max(len(was), len(groups)) {
				if i >= len(was) || i >= len(groups) || !same(&was[i], &groups[i]) {
					changed++
				}
			}
			dropped := max(0, len(was)-len(groups)) // a trailing group, with empty ones before it
			switch least := limits.needed(withKinds(slicesOf)); {
			case changes == 1 && changed > 1+dropped:
				if packed++; len(groups) != least {
					t.Fatalf(
						"%s: one endpoint changed %d groups, and %d are left of %d",
						what,
						changed,
						len(groups),
						least,
					)
				}
			case len(groups) > 2*least:
				t.Fatalf("%s: %d groups, and %d would do", what, len(groups), least)
			}
			if again := limits.Arrange(groups, slicesOf); !equality.Semantic.DeepEqual(again, groups) {
				t.Fatalf("%s: it does not settle: %s, then %s", what, text(groups), text(again))
			}
		}
		if packed > 10 {
			t.Errorf("seed %d: %d of 100 steps packed the groups", seed, packed)
		}
	}
}

// TestOtherPortsMoveNoEndpoint: while pages are written one after the other, each of them has its endpoints.
func TestOtherPortsMoveNoEndpoint(t *testing.T) {
	limits := Limits{Endpoints: 2, Groups: 2}
	first, second := group("a", "b", "c"), group("d", "e")
	second.Ports = []hubv1alpha1.EndpointPort{{Protocol: "TCP", Port: 80, Target: new(int32(9090))}}
	was := limits.Arrange(nil, of(first, second))
	first = group("c", "a", "b")
	first.Ports = []hubv1alpha1.EndpointPort{{Protocol: "TCP", Port: 81, Target: new(int32(8081))}}
	got := limits.Arrange(was, of(second, first))
	if text(was) != "[a b][c][d e]" || text(got) != text(was) {
		t.Errorf("%s became %s", text(was), text(got))
	}
	if !equality.Semantic.DeepEqual(got[1].Ports, first.Ports) || got[2].Ports[0].Target == nil {
		t.Errorf("%+v", got)
	}
}

// TestTwinsKeepTheirGroups: two endpoints of one address differ in their zones, and the hub has lost the group of the
// first.
func TestTwinsKeepTheirGroups(t *testing.T) {
	first, second := group("x"), group("x")
	first.Endpoints[0].Zone, second.Endpoints[0].Zone = "z1", "z2"
	limits, want := Limits{Endpoints: 1, Groups: 1}, of(first, second)
	got := limits.Arrange(of(hubv1alpha1.EndpointGroup{}, second), of(first, second))
	if !equality.Semantic.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

// TestATriggerIsOfItsGroup: a group that does not change keeps its time, or it would be written again.
func TestATriggerIsOfItsGroup(t *testing.T) {
	const first, second = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00.5Z"
	limits := Limits{Endpoints: 2, Groups: 2}
	a := group("a", "b", "c")
	a.LastChangeTriggerTime = first
	groups := limits.Arrange(nil, of(a))
	if groups[0].LastChangeTriggerTime != first || groups[1].LastChangeTriggerTime != first {
		t.Fatalf("%+v", groups)
	}
	a.LastChangeTriggerTime = second
	if got := limits.Arrange(
		groups,
		of(a),
	); got[0].LastChangeTriggerTime != first ||
		got[1].LastChangeTriggerTime != first {
		t.Errorf("nothing else changed: %+v", got)
	}
	a.Endpoints[2].Address = "d"
	got := limits.Arrange(groups, of(group(), a))
	if got[0].LastChangeTriggerTime != first || got[1].LastChangeTriggerTime != second || text(got) != "[a b][d]" {
		t.Errorf("d came in place of c: %+v", got)
	}
	a.LastChangeTriggerTime = ""
	a.Endpoints[2].Address = "e"
	if got := limits.Arrange(got, of(a)); got[0].LastChangeTriggerTime != first || got[1].LastChangeTriggerTime != "" {
		t.Errorf("a change without a time: %+v", got)
	}
}

// BenchmarkArrange is a pass over 1,000 endpoints with 100 ports in ten groups: most stay, or few do and are packed.
func BenchmarkArrange(b *testing.B) {
	var all []hubv1alpha1.EndpointGroup
	for i := range 10 {
		all = append(all, group(many(100*i, 100)...))
	}
	for i := range 100 {
		port := hubv1alpha1.EndpointPort{Protocol: "TCP", Port: int32(i + 1), Target: new(int32(8000 + i))}
		for j := range all {
			all[j].Ports = append(all[j].Ports, port)
		}
	}
	was := OfHub.Arrange(nil, all)
	for what, left := range map[string]int{"keep": 99, "pack": 30} {
		now := copyOf(all)
		for i := range now {
			now[i].Endpoints = now[i].Endpoints[:left]
		}
		b.Run(what, func(b *testing.B) {
			for b.Loop() {
				OfHub.Arrange(was, now)
			}
		})
	}
}
