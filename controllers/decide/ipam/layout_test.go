package ipam

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func prefixes(texts ...string) (out []netip.Prefix) {
	for _, text := range texts {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

func ranged(name, prefix string, use Use, state State) Range {
	return Range{Name: name, Prefix: netip.MustParsePrefix(prefix), Use: use, State: state}
}

func inUse(from string, n int) (out []Held) {
	a := netip.MustParseAddr(from)
	for range n {
		out = append(out, Held{Owner: Owner{Namespace: "ns", Name: "derived-" + a.String()}, Address: a})
		a = a.Next()
	}
	return out
}

func names(ranges []Range) string {
	var out []string
	for _, r := range ranges {
		out = append(out, strings.TrimSpace(r.Name+" "+r.Prefix.String()+" "+string(r.Use)))
	}
	return strings.Join(out, ", ")
}

// TestV2Layout: what each mode makes, fences, removes and asks for.
func TestV2Layout(t *testing.T) {
	v4, v6 := corev1.IPv4Protocol, corev1.IPv6Protocol
	dual := []corev1.IPFamily{v4, v6}
	cluster := ranged("kubernetes", "10.96.0.0/16", Ordinary, Ready)
	for _, c := range []struct {
		name                string
		in                  Standing
		make, fence, remove string
		altered             string
		want                map[corev1.IPFamily]int
	}{
		{name: "shared makes nothing", in: Standing{Mode: ModeShared, Families: dual, Blocks: prefixes("10.200.0.0/22"), Ranges: []Range{cluster}}, want: map[corev1.IPFamily]int{}},
		{name: "before a block is granted", in: Standing{Mode: ModeExclusive, Families: dual, Ranges: []Range{cluster}}, want: map[corev1.IPFamily]int{v4: 1, v6: 1}},
		{name: "preferred makes the block, of this cluster's families", in: Standing{Mode: ModePreferred, Families: dual[:1], Blocks: prefixes("10.200.0.0/22", "fd00::/112"), Ranges: []Range{cluster}},
			make: "10.200.0.0/22 shared", want: map[corev1.IPFamily]int{v4: 1}},
		{name: "no more than the API server allocates of", in: Standing{Mode: ModePreferred, Families: dual[1:], Blocks: prefixes("fd00::/48"), Ranges: []Range{cluster}},
			make: "fd00::/64 shared", want: map[corev1.IPFamily]int{v6: 1}},
		{name: "no block that is no range of either family", in: Standing{Mode: ModePreferred, Families: dual[1:], Blocks: prefixes("::/80", "::/0", "::ffff:10.0.0.0/104"), Ranges: []Range{cluster}},
			want: map[corev1.IPFamily]int{v6: 1}},
		{name: "nor a fence in one", in: Standing{Mode: ModeExclusive, Families: dual[1:], Blocks: prefixes("::ffff:10.0.0.0/104", "fd00::/112"), Ranges: []Range{cluster}},
			make: "fd00::/120 exclusive", want: map[corev1.IPFamily]int{v6: 1}},
		{name: "exclusive cuts a fence out of the block", in: Standing{Mode: ModeExclusive, Families: dual, Blocks: prefixes("10.200.0.0/22", "fd00::/112"), Ranges: []Range{cluster}},
			make: "10.200.0.0/24 exclusive, fd00::/120 exclusive", want: map[corev1.IPFamily]int{v4: 1, v6: 1}},
		{name: "beside ranges of users, over what another mode had made",
			in: Standing{Mode: ModeExclusive, Families: dual[:1], Blocks: prefixes("10.200.0.0/22"), Ours: map[string]bool{"block": true}, Held: inUse("10.200.3.1", 1),
				Ranges: []Range{ranged("block", "10.200.0.0/22", Shared, Ready), ranged("theirs", "10.200.0.0/25", Ordinary, Ready)}},
			make: "10.200.1.0/24 exclusive", want: map[corev1.IPFamily]int{v4: 1}},
		{name: "half full is enough", in: Standing{Mode: ModeExclusive, Families: dual[:1], Blocks: prefixes("10.200.0.0/22"), Ours: map[string]bool{"a": true}, Held: inUse("10.200.0.1", 127),
			Ranges: []Range{ranged("a", "10.200.0.0/24", Exclusive, Ready)}}, fence: "a 10.200.0.0/24 exclusive", want: map[corev1.IPFamily]int{v4: 1}},
		{name: "three quarters are not", in: Standing{Mode: ModeExclusive, Families: dual[:1], Blocks: prefixes("10.200.0.0/22"), Ours: map[string]bool{"a": true}, Held: inUse("10.200.0.1", 191),
			Ranges: []Range{ranged("a", "10.200.0.0/24", Exclusive, Ready)}}, make: "10.200.1.0/24 exclusive", fence: "a 10.200.0.0/24 exclusive", want: map[corev1.IPFamily]int{v4: 1}},
		{name: "one that is being made counts", in: Standing{Mode: ModeExclusive, Families: dual[:1], Blocks: prefixes("10.200.0.0/22"), Held: inUse("10.200.0.1", 250),
			Ranges: []Range{ranged("a", "10.200.0.0/24", Exclusive, Ready), ranged("b", "10.200.1.0/24", Exclusive, NotReady)}},
			fence: "a 10.200.0.0/24 exclusive, b 10.200.1.0/24 exclusive", want: map[corev1.IPFamily]int{v4: 1}},
		{name: "one that drains does not", in: Standing{Mode: ModeExclusive, Families: dual[:1], Blocks: prefixes("10.200.0.0/22"), Ranges: []Range{ranged("a", "10.200.0.0/24", Exclusive, Draining)}},
			make: "10.200.1.0/24 exclusive", fence: "a 10.200.0.0/24 exclusive", want: map[corev1.IPFamily]int{v4: 1}},
		{name: "another block before the last is full", in: Standing{Mode: ModeExclusive, Families: dual[:1], Blocks: prefixes("10.200.0.0/24"), Held: inUse("10.200.0.1", 200),
			Ranges: []Range{ranged("a", "10.200.0.0/24", Exclusive, Ready)}}, fence: "a 10.200.0.0/24 exclusive", want: map[corev1.IPFamily]int{v4: 2}},
		{name: "a range by hand is room", in: Standing{Mode: ModeExclusive, Families: dual[:1], Ranges: []Range{ranged("hand", "10.7.0.0/25", Exclusive, Ready)}},
			fence: "hand 10.7.0.0/25 exclusive", want: map[corev1.IPFamily]int{v4: 1}},
		{name: "and never fenced where it is too large", in: Standing{Mode: ModeExclusive, Families: dual[:1], Ranges: []Range{ranged("hand", "10.7.0.0/23", Exclusive, Ready)}},
			want: map[corev1.IPFamily]int{v4: 1}},
		{name: "preferred lifts fences, and drops what its block covers", in: Standing{Mode: ModePreferred, Families: dual[:1], Blocks: prefixes("10.200.0.0/22"), Ours: map[string]bool{"a": true, "block": true},
			Held: inUse("10.200.0.1", 3), Ranges: []Range{ranged("a", "10.200.0.0/24", Exclusive, Ready), ranged("block", "10.200.0.0/22", Shared, Ready)}},
			remove: "a", want: map[corev1.IPFamily]int{v4: 1}},
		{name: "but not before that is ready", in: Standing{Mode: ModePreferred, Families: dual[:1], Blocks: prefixes("10.200.0.0/22"), Ours: map[string]bool{"a": true, "block": true},
			Held: inUse("10.200.0.1", 3), Ranges: []Range{ranged("a", "10.200.0.0/24", Exclusive, Ready), ranged("block", "10.200.0.0/22", Shared, NotReady)}},
			want: map[corev1.IPFamily]int{v4: 1}},
		{name: "shared keeps what VIPs are in, fenced", in: Standing{Mode: ModeShared, Families: dual, Ours: map[string]bool{"a": true, "b": true}, Held: inUse("10.200.0.1", 1),
			Ranges: []Range{cluster, ranged("a", "10.200.0.0/24", Exclusive, Ready), ranged("b", "10.200.1.0/24", Exclusive, Ready), ranged("hand", "10.7.0.0/25", Exclusive, Ready)}},
			fence: "a 10.200.0.0/24 exclusive", remove: "b", want: map[corev1.IPFamily]int{}},
		{name: "one whose label was taken off is not made a second time", in: Standing{Mode: ModeExclusive, Families: dual[:1], Blocks: prefixes("10.200.0.0/22"),
			Ours: map[string]bool{"clusterset-vips-exclusive-10-200-0-0-24": true}, Ranges: []Range{ranged("clusterset-vips-exclusive-10-200-0-0-24", "10.200.0.0/24", Ordinary, Ready)}},
			make: "10.200.1.0/24 exclusive", altered: "clusterset-vips-exclusive-10-200-0-0-24 10.200.0.0/24", want: map[corev1.IPFamily]int{v4: 1}},
		{name: "nor one whose label was changed", in: Standing{Mode: ModeExclusive, Families: dual[:1], Blocks: prefixes("10.200.0.0/24"), Held: inUse("10.200.0.1", 1),
			Ours: map[string]bool{"clusterset-vips-exclusive-10-200-0-0-24": true}, Ranges: []Range{ranged("clusterset-vips-exclusive-10-200-0-0-24", "10.200.0.0/24", Shared, Ready)}},
			altered: "clusterset-vips-exclusive-10-200-0-0-24 10.200.0.0/24 shared", want: map[corev1.IPFamily]int{v4: 2}},
		{name: "nor a block", in: Standing{Mode: ModePreferred, Families: dual[:1], Blocks: prefixes("10.200.0.0/22"),
			Ours: map[string]bool{"clusterset-vips-shared-10-200-0-0-22": true}, Ranges: []Range{ranged("clusterset-vips-shared-10-200-0-0-22", "10.200.0.0/22", Ordinary, Ready)}},
			altered: "clusterset-vips-shared-10-200-0-0-22 10.200.0.0/22", want: map[corev1.IPFamily]int{v4: 2}},
		{name: "nor one whose name another prefix has", in: Standing{Mode: ModeExclusive, Families: dual[:1], Blocks: prefixes("10.200.0.0/22"),
			Ranges: []Range{ranged("clusterset-vips-exclusive-10-200-0-0-24", "10.7.0.0/24", Ordinary, Ready)}},
			make: "10.200.1.0/24 exclusive", altered: "clusterset-vips-exclusive-10-200-0-0-24 10.7.0.0/24", want: map[corev1.IPFamily]int{v4: 1}},
		{name: "nor of IPv6", in: Standing{Mode: ModeExclusive, Families: dual[1:], Blocks: prefixes("fd00:200::/112"), Ranges: []Range{ranged("clusterset-vips-exclusive-fd00-200---120", "10.7.0.0/24", Exclusive, Ready)}},
			make: "fd00:200::100/120 exclusive", fence: "clusterset-vips-exclusive-fd00-200---120 10.7.0.0/24 exclusive", altered: "clusterset-vips-exclusive-fd00-200---120 10.7.0.0/24 exclusive", want: map[corev1.IPFamily]int{v6: 1}},
		{name: "a user's own may be called alike", in: Standing{Mode: ModePreferred, Families: dual[:1], Ranges: []Range{ranged("clusterset-vips-hand", "10.7.0.0/25", Shared, Ready)}},
			want: map[corev1.IPFamily]int{v4: 1}},
		{name: "ordinary Services keep nothing of ours", in: Standing{Mode: ModeShared, Families: dual, Ours: map[string]bool{"a": true},
			Held: []Held{{Owner: Owner{Name: "plain"}, Address: netip.MustParseAddr("10.200.0.1"), Foreign: true}}, Ranges: []Range{ranged("a", "10.200.0.0/24", Shared, Ready)}},
			remove: "a", want: map[corev1.IPFamily]int{}},
		{name: "two that cover each other do not both go", in: Standing{Mode: ModeShared, Families: dual, Ours: map[string]bool{"a": true, "b": true}, Held: inUse("10.200.0.1", 1),
			Ranges: []Range{ranged("a", "10.200.0.0/24", Shared, Ready), ranged("b", "10.200.0.0/23", Shared, Ready)}}, remove: "a", want: map[corev1.IPFamily]int{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := slices.Clone(c.in.Ranges)
			got := Lay(c.in)
			for i, r := range got.Make {
				if r != Named(r.Prefix, r.Use) {
					t.Errorf("%+v", r)
				}
				got.Make[i].Name = ""
			}
			if names(got.Make) != c.make || names(got.Fence) != c.fence || strings.Join(got.Remove, ", ") != c.remove || names(got.Altered) != c.altered || !reflect.DeepEqual(got.Want, c.want) {
				t.Errorf("make %q, fence %q, remove %q, altered %q, want %v", names(got.Make), names(got.Fence), got.Remove, names(got.Altered), got.Want)
			}
			if !slices.Equal(before, c.in.Ranges) {
				t.Error("the input was changed")
			}
		})
	}
}

// TestV2ARangeThatIsGoingIsMadeAnew: one that is deleted stays for as long as ordinary Services are in it. Preferred has a use for its prefix
// meanwhile, and for no other block; a member never gives one back.
func TestV2ARangeThatIsGoingIsMadeAnew(t *testing.T) {
	const first = "clusterset-vips-shared-10-200-0-0-22"
	for _, c := range []struct {
		name   string
		ranges []Range
		want   string
	}{
		{"ours", []Range{ranged(first, "10.200.0.0/22", Shared, Terminating)}, first + "-again-2 10.200.0.0/22 shared"},
		{"a user's", []Range{ranged("hand", "10.200.0.0/21", Shared, Terminating)}, first + " 10.200.0.0/22 shared"},
		{"both", []Range{ranged(first, "10.200.0.0/22", Shared, Terminating), ranged(first+"-again-2", "10.200.0.0/22", Shared, Terminating)}, first + "-again-3 10.200.0.0/22 shared"},
		{"it is there", []Range{ranged(first, "10.200.0.0/22", Shared, Terminating), ranged(first+"-again-2", "10.200.0.0/22", Shared, NotReady)}, ""},
	} {
		got := Lay(Standing{Mode: ModePreferred, Families: []corev1.IPFamily{corev1.IPv4Protocol}, Blocks: prefixes("10.200.0.0/22"), Ours: map[string]bool{first: true, first + "-again-2": true}, Ranges: c.ranges})
		if names(got.Make) != c.want || len(got.Remove) > 0 || len(got.Altered) > 0 || got.Want[corev1.IPv4Protocol] != 1 {
			t.Errorf("%s: make %q, want %q; remove %v, altered %v, wanted blocks %v", c.name, names(got.Make), c.want, got.Remove, got.Altered, got.Want)
		}
	}
	for _, p := range prefixes("10.200.0.0/22", "fd00:1::/112") {
		if one := Named(p, Shared); altered(Range{Name: again(one, []Range{one}).Name, Prefix: p, Use: Shared}) {
			t.Errorf("the second name of %s is another range's", p)
		}
	}
}

// TestV3WhatTheAgentMakesAgain, were it deleted: what it made of a block that it still has, while the mode takes VIPs from there and no other
// range does the same.
func TestV3WhatTheAgentMakesAgain(t *testing.T) {
	block, fence := ranged("block", "10.200.0.0/22", Shared, Draining), ranged("fence", "10.200.1.0/24", Exclusive, Draining)
	granted, ours := prefixes("10.200.0.0/22"), map[string]bool{"block": true, "fence": true}
	for _, c := range []struct {
		name   string
		mode   Mode
		r      Range
		ours   map[string]bool
		blocks []netip.Prefix
		beside []Range
		want   bool
	}{
		{"a block", ModePreferred, block, ours, granted, nil, true},
		{"of IPv6", ModePreferred, ranged("block", "fd00::/64", Shared, Draining), ours, prefixes("fd00::/48"), nil, true},
		{"by hand", ModePreferred, block, nil, granted, nil, false},
		{"of a former block", ModePreferred, block, ours, prefixes("10.201.0.0/22"), nil, false},
		{"another covers it", ModePreferred, block, ours, granted, []Range{ranged("hand", "10.200.0.0/21", Shared, Ready)}, false},
		{"a fence, of another mode", ModePreferred, fence, ours, granted, nil, false},
		{"a block, of another mode", ModeExclusive, block, ours, granted, nil, false},
		{"in mode shared", ModeShared, block, ours, granted, nil, false},
		{"a fence", ModeExclusive, fence, ours, granted, nil, true},
		{"a fence, though there is room now", ModeExclusive, fence, ours, granted, []Range{ranged("a", "10.200.0.0/24", Exclusive, Ready)}, true},
		{"a fence by hand", ModeExclusive, fence, nil, granted, nil, false},
		{"a fence of a former block", ModeExclusive, fence, ours, nil, nil, false},
		{"a user's is in its place", ModeExclusive, fence, ours, granted, []Range{ranged("hand", "10.200.1.0/25", Ordinary, Ready)}, false},
	} {
		s := Standing{Mode: c.mode, Families: []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}, Blocks: c.blocks, Ours: c.ours, Ranges: append(c.beside, c.r)}
		before := slices.Clone(s.Ranges)
		if got := Remade(s, c.r); got != c.want || !slices.Equal(before, s.Ranges) {
			t.Errorf("%s: %v, want %v; ranges %v", c.name, got, c.want, s.Ranges)
		}
	}
}

// TestAddresses are those that the API server gives out.
func TestAddresses(t *testing.T) {
	for prefix, want := range map[string]int{"10.0.0.0/24": 254, "10.0.0.0/30": 2, "10.0.0.0/31": 0, "10.0.0.0/32": 0, "fd00::/120": 255, "fd00::/126": 3} {
		n := 0
		for a := range Addresses(netip.MustParsePrefix(prefix)) {
			if n++; !netip.MustParsePrefix(prefix).Contains(a) {
				t.Errorf("%s: %s", prefix, a)
			}
		}
		if n != want {
			t.Errorf("%s: %d addresses, want %d", prefix, n, want)
		}
	}
}
