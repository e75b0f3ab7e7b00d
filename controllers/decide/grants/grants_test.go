package grants

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
)

// set is a ClusterSet with blocks written as "owner cidr".
func set(mode hubv1alpha1.VIPMode, pools []string, blocks ...string) *hubv1alpha1.ClusterSet {
	s := &hubv1alpha1.ClusterSet{}
	s.Spec.VIPs = hubv1alpha1.VIPs{
		Mode:   mode,
		Pools:  pools,
		Blocks: hubv1alpha1.BlockSize{IPv4Bits: 24, IPv6Bits: 112},
	}
	for _, b := range blocks {
		owner, cidr, _ := strings.Cut(b, " ")
		s.Status.Blocks = append(s.Status.Blocks, hubv1alpha1.Block{ClusterID: owner, CIDR: cidr})
	}
	return s
}

// member has joined at this second, and tells what follows, as name=value.
func member(id string, second int64, told ...string) inventoryv1alpha1.ClusterProfile {
	p := inventoryv1alpha1.ClusterProfile{}
	p.Name, p.CreationTimestamp = id, metav1.Unix(1_700_000_000+second, 0)
	p.Spec.ClusterManager.Name = clusterset.ClusterManager
	for _, t := range told {
		name, value, _ := strings.Cut(t, ":")
		p.Status.Properties = append(
			p.Status.Properties,
			inventoryv1alpha1.Property{Name: name + ".clusterset-dns.io", Value: value},
		)
	}
	return p
}

const services1 = "service-ranges:10.1.0.0/16"

func blocks(all []hubv1alpha1.Block) string {
	var out []string
	for _, b := range all {
		out = append(out, b.ClusterID+" "+b.CIDR)
	}
	return strings.Join(out, ", ")
}

func condition(p *Plan, kind string) string {
	c := meta.FindStatusCondition(p.Conditions, kind)
	if c == nil {
		return "none"
	}
	return string(c.Status) + "/" + c.Reason
}

func TestV2WhoGetsWhichBlocks(t *testing.T) {
	v4, dual := []string{"10.200.0.0/16"}, []string{"10.200.0.0/16", "fd00:c5::/48"}
	leaving, left := member("leaving", 1, services1), member("left", 1, services1)
	foreign := member("foreign", 1, services1)
	at := metav1.Unix(1_700_000_100, 0)
	leaving.DeletionTimestamp = &at
	left.Annotations = map[string]string{clusterset.AnnotationLeft: "true"}
	foreign.Spec.ClusterManager.Name = "another"
	for name, c := range map[string]struct {
		set     *hubv1alpha1.ClusterSet
		members []inventoryv1alpha1.ClusterProfile
		want    string
	}{
		"shared: none": {set("shared", v4), []inventoryv1alpha1.ClusterProfile{member("east", 1, services1,
			"vip-blocks:ipv4=2")}, ""},
		"no mode: none": {set("", v4), []inventoryv1alpha1.ClusterProfile{member("east", 1, services1)}, ""},
		"one of each family": {set("preferred", dual), []inventoryv1alpha1.ClusterProfile{member("east", 1,
			services1)}, "east 10.200.0.0/24, east fd00:c5::/112"},
		"of the family of the pools": {set("preferred", v4), []inventoryv1alpha1.ClusterProfile{member("east", 1,
			services1)}, "east 10.200.0.0/24"},
		"as many as are asked for": {set("preferred", dual), []inventoryv1alpha1.ClusterProfile{member("east", 1,
			services1, "vip-blocks:ipv4=2")}, "east 10.200.0.0/24, east 10.200.1.0/24"},
		"another one on request": {set("preferred", v4, "east 10.200.0.0/24"),
			[]inventoryv1alpha1.ClusterProfile{member("east", 1, services1, "vip-blocks:ipv4=2")},
			"east 10.200.0.0/24, east 10.200.1.0/24"},
		"a smaller wish takes none away": {set("preferred", v4, "east 10.200.0.0/24", "east 10.200.1.0/24"),
			[]inventoryv1alpha1.ClusterProfile{member("east", 1, services1, "vip-blocks:ipv4=1")},
			"east 10.200.0.0/24, east 10.200.1.0/24"},
		"nor does mode shared, nor a pool that " +
			"goes": {set("shared", nil, "east 10.200.0.0/24"), []inventoryv1alpha1.ClusterProfile{member("east", 1,
			services1)}, "east 10.200.0.0/24"},
		"firsts before seconds": {set("preferred", []string{"10.200.0.0/23"}),
			[]inventoryv1alpha1.ClusterProfile{
				member("east", 1, services1, "vip-blocks:ipv4=2"), member("west", 2, services1)},
			"east 10.200.0.0/24, west 10.200.1.0/24"},
		"the older member first": {set("preferred", []string{"10.200.0.0/24"}),
			[]inventoryv1alpha1.ClusterProfile{member("east", 2, services1), member("west", 1, services1)},
			"west 10.200.0.0/24"},
		"nobody who has told nothing": {set("preferred", v4),
			[]inventoryv1alpha1.ClusterProfile{member("east", 1), member("west", 2, services1, "vip-blocks:none")}, ""},
		"nobody who has asked for blocks only, as a user may by hand": {set("preferred", v4),
			[]inventoryv1alpha1.ClusterProfile{member("east", 1, "vip-blocks:ipv4=1")}, ""},
		"nobody who has reported Pod ranges only, which the agent does not write": {set("preferred", v4),
			[]inventoryv1alpha1.ClusterProfile{member("east", 1, "pod-ranges:10.1.0.0/16")}, ""},
		"nobody whose Pod ranges cannot be read": {set("preferred", v4), []inventoryv1alpha1.ClusterProfile{
			member("east", 1, "service-ranges:10.96.0.0/16", "pod-ranges:10.244.0.0/16,10.200.0.0/16")}, ""},
		"nobody who leaves, or is somebody " +
			"else's": {set("preferred", v4), []inventoryv1alpha1.ClusterProfile{leaving, left, foreign}, ""},
		"around what members use": {set("preferred", v4), []inventoryv1alpha1.ClusterProfile{member("east", 1,
			"pod-ranges:10.200.0.0/25", services1),
			member("west", 2, "pod-ranges:10.200.1.9/32 10.200.3.0/24", services1)},
			"east 10.200.2.0/24, west 10.200.4.0/24"},
		"around what a cluster has for its Services": {set("preferred", v4),
			[]inventoryv1alpha1.ClusterProfile{member("east", 1, services1), member("west", 2,
				"service-ranges:10.96.0.0/16 10.200.0.128/25")},
			"east 10.200.1.0/24, west 10.200.2.0/24"},
		"around what those who leave use": {set("preferred", v4),
			[]inventoryv1alpha1.ClusterProfile{func() inventoryv1alpha1.ClusterProfile {
				p := member("leaving", 1, "pod-ranges:10.200.0.0/24")
				p.DeletionTimestamp = &at
				return p
			}(), member("east", 1, services1)}, "east 10.200.1.0/24"},
		"around blocks of others, also those by " +
			"hand": {set("preferred", v4, "gone 10.200.0.0/24", "west 10.200.1.128/25"),
			[]inventoryv1alpha1.ClusterProfile{member("east", 1, services1)},
			"gone 10.200.0.0/24, west 10.200.1.128/25, east 10.200.2.0/24"},
	} {
		t.Run(name, func(t *testing.T) {
			f := Facts{Set: c.set, Profiles: c.members}
			before := c.set.DeepCopy()
			plan := Decide(f)
			if got := blocks(plan.Blocks); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
			if !reflect.DeepEqual(before, c.set) {
				t.Error("the ClusterSet was changed")
			}
			again := c.set.DeepCopy()
			again.Status.Blocks = plan.Blocks
			if got := Decide(Facts{Set: again, Profiles: c.members}); len(got.Granted) > 0 ||
				!reflect.DeepEqual(got.Conditions, plan.Conditions) {
				t.Errorf("it does not settle: %v\n%v\n%v", got.Granted, got.Conditions, plan.Conditions)
			}
		})
	}
}

func TestV2PoolsThatAreRefused(t *testing.T) {
	east := []inventoryv1alpha1.ClusterProfile{member("east", 1, services1)}
	for name, c := range map[string]struct {
		pools             []string
		granted, problems string
		want              string // of the blocks
		say               string
	}{
		"none": {nil, "False/NoPools", "none", "",
			"from blocks granted before and ServiceCIDRs labelled by hand, and else from each cluster's own ranges"},
		"host bits": {[]string{"10.200.0.1/16"}, "False/NoPools", "False/PoolInvalid", "", "write 10.200.0.0/16"},
		"no CIDR": {[]string{"10.200.0.0", "10.201.0.0/16"}, "True/Granted", "False/PoolInvalid",
			"east 10.201.0.0/24", "10.200.0.0 is no CIDR"},
		"mapped": {[]string{"::ffff:10.0.0.0/104", "10.201.0.0/16"}, "True/Granted", "False/PoolInvalid",
			"east 10.201.0.0/24", "is no CIDR"},
		"too small": {[]string{"10.200.0.0/25", "10.201.0.0/16"}, "True/Granted", "False/PoolInvalid",
			"east 10.201.0.0/24", "pool 10.200.0.0/25 is smaller than a block of /24"},
		"overlapping": {[]string{"10.200.0.0/24", "10.200.0.0/16"}, "True/Granted", "False/PoolInvalid",
			"east 10.200.0.0/24", "pool 10.200.0.0/16 overlaps pool 10.200.0.0/24"},
		"used in part": {[]string{"10.0.0.0/15"}, "True/Granted", "False/RangesOverlap", "east 10.0.0.0/24",
			"pool 10.0.0.0/15 overlaps the service range 10.1.0.0/16 of east"},
		"used altogether": {[]string{"10.1.0.0/20"}, "False/PoolsFull", "False/RangesOverlap", "",
			"no block of /24 is free"},
		"fine": {[]string{"10.200.0.0/16"}, "True/Granted", "True/NoOverlap", "east 10.200.0.0/24",
			"Every member has the blocks"},
	} {
		plan := Decide(Facts{Set: set("preferred", c.pools), Profiles: east})
		if got := blocks(plan.Blocks); got != c.want {
			t.Errorf("%s: blocks %s, want %s", name, got, c.want)
		}
		granted, problems := condition(
			&plan,
			hubv1alpha1.ConditionBlocksGranted,
		), condition(
			&plan,
			hubv1alpha1.ConditionPoolsValid,
		)
		if granted != c.granted || problems != c.problems || !strings.Contains(fmt.Sprint(plan.Conditions), c.say) {
			t.Errorf("%s: %s, %s: %+v", name, granted, problems, plan.Conditions)
		}
	}
}

func TestV2SharedHasNothingToSay(t *testing.T) {
	if plan := Decide(
		Facts{Set: set("shared", nil), Profiles: []inventoryv1alpha1.ClusterProfile{member("east", 1, services1)}},
	); len(plan.Conditions) > 0 {
		t.Errorf("%+v", plan.Conditions)
	}
	// What is prepared is looked at before the mode is changed.
	plan := Decide(
		Facts{
			Set:      set("shared", []string{"10.0.0.0/15"}),
			Profiles: []inventoryv1alpha1.ClusterProfile{member("east", 1, services1)},
		},
	)
	if len(plan.Conditions) != 1 || condition(&plan, hubv1alpha1.ConditionPoolsValid) != "False/RangesOverlap" {
		t.Errorf("%+v", plan.Conditions)
	}
}

// A block of a departed member is free once nothing of it is left, and is somebody else's no earlier than the
// decision after that.
func TestV2BlocksOfDepartedMembers(t *testing.T) {
	s := set("preferred", []string{"10.200.0.0/24"}, "gone 10.200.0.0/24")
	east := []inventoryv1alpha1.ClusterProfile{member("east", 1, services1)}
	if plan := Decide(Facts{Set: s, Profiles: east}); blocks(plan.Blocks) != "gone 10.200.0.0/24" {
		t.Errorf("absence is no departure: %+v", plan)
	}
	if ids := Lost(s, east); !slices.Equal(ids, []string{"gone"}) {
		t.Errorf("%v is lost", ids)
	}
	s.Status.Departed = []hubv1alpha1.Departure{{ClusterID: "gone"}}
	plan := Decide(Facts{Set: s, Profiles: append(east, member("gone", 2))})
	if blocks(plan.Blocks) != "gone 10.200.0.0/24" || len(plan.Refused) != 1 {
		t.Errorf("it joined again, or is not cleaned up: %+v", plan)
	}
	plan = Decide(Facts{Set: s, Profiles: east})
	if len(plan.Blocks) > 0 || blocks(plan.Released) != "gone 10.200.0.0/24" || len(Lost(s, east)) > 0 {
		t.Errorf("nothing of it is left: %+v", plan)
	}
	known := s.Status.Blocks
	s.Status.Blocks = plan.Blocks
	if Forgotten(known, s, east) {
		t.Error("what was released counts as forgotten")
	}
	if !Forgotten(known, s, append(east, member("gone", 2))) {
		t.Error("it joined again, and its block is not missed")
	}
	if plan = Decide(Facts{Set: s, Profiles: east}); blocks(plan.Blocks) != "east 10.200.0.0/24" {
		t.Errorf("it is free: %+v", plan)
	}
}

func TestV2OverlapsThatBecomeKnownTooLate(t *testing.T) {
	s := set(
		"preferred",
		[]string{"10.200.0.0/16"},
		"east 10.200.0.0/24",
		"west 10.200.1.0/24",
		"east 10.200.1.128/25",
	)
	plan := Decide(Facts{Set: s, Profiles: []inventoryv1alpha1.ClusterProfile{
		member("east", 1, "service-ranges:10.200.0.0/26 10.200.1.128/25 10.201.0.0/16", "pod-ranges:10.200.0.64/26"),
		member("west", 2, "service-ranges:10.200.0.0/15"),
	}})
	want := []Finding{
		{"east", "block 10.200.0.0/24 overlaps the pod range 10.200.0.64/26 of the member itself"},
		{"east", "block 10.200.0.0/24 overlaps the service range 10.200.0.0/15 of west"},
		{"east", "block 10.200.1.128/25 overlaps the service range 10.200.0.0/15 of west"},
		{"west", "block 10.200.1.0/24 overlaps the service range 10.200.0.0/15 of the member itself"},
		{"west", "block 10.200.1.0/24 overlaps the service range 10.200.1.128/25 of east"},
	}
	if !reflect.DeepEqual(plan.Overlaps, want) {
		t.Errorf("%q\nwant %q", plan.Overlaps, want)
	}
	if !reflect.DeepEqual(plan.Blocks, s.Status.Blocks) {
		t.Errorf("the blocks are %s: nothing is revoked", blocks(plan.Blocks))
	}
	if got := condition(&plan, hubv1alpha1.ConditionPoolsValid); got != "False/RangesOverlap" {
		t.Error(got)
	}
}

// TestV2ABlockThatTheHubHasLost overlaps its own pool. The condition names the remedy, and the remedy ends it.
func TestV2ABlockThatTheHubHasLost(t *testing.T) {
	s := set("preferred", []string{"10.200.0.0/16"}, "west 10.200.2.0/24")
	west := []inventoryv1alpha1.ClusterProfile{
		member("west", 1, "service-ranges:10.96.0.0/16 10.200.1.0/24 10.200.2.0/24"),
	}
	plan := Decide(Facts{Set: s, Profiles: west})
	if got := condition(&plan, hubv1alpha1.ConditionPoolsValid); got != "False/RangesOverlap" ||
		!strings.Contains(fmt.Sprint(plan.Conditions), "add it to status.blocks") {
		t.Errorf("%s: %+v", got, plan.Conditions)
	}
	s.Status.Blocks = append(s.Status.Blocks, hubv1alpha1.Block{ClusterID: "west", CIDR: "10.200.1.0/24"})
	plan = Decide(Facts{Set: s, Profiles: west})
	if got := condition(&plan, hubv1alpha1.ConditionPoolsValid); got != "True/NoOverlap" || len(plan.Granted) > 0 {
		t.Errorf("%s: %+v", got, plan)
	}
}

func TestV2PropertiesThatAreRefused(t *testing.T) {
	long := "pod-ranges:" + strings.Repeat("10.0.0.0/24 ", 80) + "10.0.0.0/24"
	for told, want := range map[string]string{
		"vip-blocks:ipv4=65":           "vip-blocks.clusterset-dns.io",
		"service-ranges:10.200.0.1/24": "service-ranges.clusterset-dns.io",
		"pod-ranges:0.0.0.0/0":         "larger than a /8",
		long:                           "64 ranges",
	} {
		plan := Decide(
			Facts{Set: set("preferred", []string{"10.200.0.0/16"}), Profiles: []inventoryv1alpha1.ClusterProfile{
				member("liar", 1, told), member("east", 2, services1),
			}},
		)
		if got := blocks(plan.Blocks); got != "east 10.200.0.0/24" {
			t.Errorf("%.40s: %s", told, got)
		}
		granted := meta.FindStatusCondition(plan.Conditions, hubv1alpha1.ConditionBlocksGranted)
		if got := condition(&plan, granted.Type); got != "False/PropertyInvalid" ||
			strings.Count(granted.Message, "liar: a property cannot be read") != 1 ||
			!strings.Contains(granted.Message, want) {
			t.Errorf("%.40s: %s, %+v", told, got, granted)
		}
	}
	for told, want := range map[string]string{
		"vip-blocks:ipv4=0 pod-ranges:x": "True/Granted",
		"vip-blocks:ipv4=1 pod-ranges:x": "True/Granted",
		"vip-blocks:ipv4=2 pod-ranges:x": "False/PropertyInvalid",
		"vip-blocks:ipv4=2,ipv6=1":       "False/PropertyInvalid",
	} {
		wants := member("liar", 1, strings.Fields(told)...)
		plan := Decide(Facts{Set: set("preferred", []string{"10.200.0.0/16"}, "liar 10.200.0.0/24"),
			Profiles: []inventoryv1alpha1.ClusterProfile{wants}})
		if got := condition(&plan, hubv1alpha1.ConditionBlocksGranted); got != want {
			t.Errorf("a member that has a block and reports %s: %s, want %s", told, got, want)
		}
	}
	full := Decide(Facts{Set: set("preferred", []string{"10.200.0.0/24"}, "liar 10.200.0.0/24"),
		Profiles: []inventoryv1alpha1.ClusterProfile{member("liar", 1, "vip-blocks:ipv4=2,ipv6=1"),
			member("new", 2, services1)}})
	if got := condition(&full, hubv1alpha1.ConditionBlocksGranted); got != "False/PoolsFull" {
		t.Errorf("a full pool beside an unreadable property: %s", got)
	}
	told := Read(member("twice", 1, "vip-blocks:ipv4=1", "vip-blocks:ipv4=9", "other:x").Status.Properties)
	if told.Wanted.IPv4 != 1 || len(told.Unreadable) != 1 {
		t.Errorf("%+v", told)
	}
}

// A ServiceCIDR that was made of a block is what the block is for.
func TestV2RangesInsideOwnBlocksAreInOrder(t *testing.T) {
	s := set("preferred", []string{"10.200.0.0/16"}, "east 10.200.0.0/24")
	plan := Decide(
		Facts{
			Set: s,
			Profiles: []inventoryv1alpha1.ClusterProfile{
				member("east", 1, "service-ranges:10.96.0.0/16 10.200.0.0/25"),
			},
		},
	)
	if got := condition(&plan, hubv1alpha1.ConditionPoolsValid); got != "True/NoOverlap" || len(plan.Overlaps) > 0 {
		t.Errorf("%s: %v", got, plan.Overlaps)
	}
}

// One object holds all blocks, and all of them fit.
func TestV2NoMoreBlocksThanTheStatusHolds(t *testing.T) {
	s := set("preferred", []string{"10.0.0.0/8"})
	s.Spec.VIPs.Blocks.IPv4Bits = 28
	for i := range hubv1alpha1.MaxBlocks - 1 {
		s.Status.Blocks = append(
			s.Status.Blocks,
			hubv1alpha1.Block{ClusterID: "many", CIDR: fmt.Sprintf("10.%d.%d.0/28", i/256, i%256)},
		)
	}
	plan := Decide(
		Facts{
			Set: s,
			Profiles: []inventoryv1alpha1.ClusterProfile{
				member("east", 1, services1, "vip-blocks:ipv4=2"),
				member("west", 2, services1, "vip-blocks:ipv4=1"),
			},
		},
	)
	if len(plan.Blocks) != hubv1alpha1.MaxBlocks || len(plan.Granted) != 1 || len(plan.Refused) != 2 ||
		!errors.Is(plan.Refused[0].Err, ipam.ErrFull) {
		t.Errorf("%d blocks, %v, %v", len(plan.Blocks), plan.Granted, plan.Refused)
	}
	if got := condition(&plan, hubv1alpha1.ConditionBlocksGranted); got != "False/PoolsFull" {
		t.Error(got)
	}
}

func TestV6FreeBlocksOfPools(t *testing.T) {
	plan := Decide(
		Facts{
			Set:      set("preferred", []string{"10.200.0.0/22", "10.1.0.0/23"}, "gone 10.200.3.128/25"),
			Profiles: []inventoryv1alpha1.ClusterProfile{member("east", 1, services1)},
		},
	)
	var got []string
	for _, p := range plan.Pools {
		got = append(got, fmt.Sprint(p.Prefix, " ", p.Granted, " ", p.Free))
	}
	if want := "[10.200.0.0/22 1 3 10.1.0.0/23 0 0]"; fmt.Sprint(got) != want { // as it is, and not as it is to be
		t.Errorf("%v, want %s", got, want)
	}
}

// Messages become Events, which hold 1024 characters.
func TestMessagesFitIntoEvents(t *testing.T) {
	id := strings.Repeat("x", 59)
	s := set("preferred", []string{"fd12:3456:789a:bcde:ffff:ffff:ffff:0/112"})
	var members []inventoryv1alpha1.ClusterProfile
	for i := range 9 {
		s.Status.Blocks = append(
			s.Status.Blocks,
			hubv1alpha1.Block{
				ClusterID: fmt.Sprint(id, "-a", i),
				CIDR:      fmt.Sprintf("fd12:3456:789a:bcde:ffff:ffff:ffff:ff%d0/124", i),
			},
		)
		members = append(
			members,
			member(
				fmt.Sprint(id, "-b", i),
				1,
				fmt.Sprintf("service-ranges:fd12:3456:789a:bcde:ffff:ffff:ffff:ff%d0/124", i),
			),
		)
	}
	plan := Decide(Facts{Set: s, Profiles: members})
	if len(plan.Conditions) != 2 {
		t.Fatalf("%+v", plan.Conditions)
	}
	for _, c := range plan.Conditions {
		if len(c.Message) > 1024 || c.Status != metav1.ConditionFalse {
			t.Errorf("%d characters: %s", len(c.Message), c.Message)
		}
	}
}

// manyMembers are a thousand that state all they may.
func manyMembers() (members []inventoryv1alpha1.ClusterProfile) {
	for i := range 1000 {
		var ranges []string
		for j := range clusterset.MaxRanges {
			ranges = append(ranges, fmt.Sprintf("10.%d.%d.%d/32", i%100, i/100, j))
		}
		members = append(members, member(fmt.Sprint("c", i), int64(i), "service-ranges:"+strings.Join(ranges, " ")))
	}
	return members
}

func TestEachOfManyMembersGetsABlock(t *testing.T) {
	plan := Decide(Facts{Set: set("preferred", []string{"10.128.0.0/9"}), Profiles: manyMembers()})
	if len(plan.Granted) != 1000 {
		t.Errorf("%d blocks", len(plan.Granted))
	}
}

func BenchmarkDecideOnManyMembers(b *testing.B) {
	facts := Facts{Set: set("preferred", []string{"10.128.0.0/9"}), Profiles: manyMembers()}
	for b.Loop() {
		Decide(facts)
	}
}
