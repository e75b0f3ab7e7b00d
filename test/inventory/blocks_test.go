package inventory

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// pooled is a clusterset with pools, and a program of its own.
type pooled struct {
	*environment
	t  *testing.T
	ns string
}

func withPools(t *testing.T, ns string, pools ...string) *pooled {
	t.Helper()
	t.Parallel() // each in a clusterset of its own
	p := &pooled{setUp(t), t, ns}
	must(t, p.begin(context.WithoutCancel(t.Context()), ns))
	t.Cleanup(func() { p.end(ns) })
	p.spec(func(v *hubv1alpha1.VIPs) {
		v.Mode, v.Pools, v.Blocks = hubv1alpha1.VIPModePreferred, pools, hubv1alpha1.BlockSize{
			IPv4Bits: 24,
			IPv6Bits: 112,
		}
	})
	return p
}

// set is the ClusterSet.
func (p *pooled) set() *hubv1alpha1.ClusterSet {
	p.t.Helper()
	set := &hubv1alpha1.ClusterSet{}
	must(p.t, p.admin.Get(p.t.Context(), client.ObjectKey{Namespace: p.ns, Name: p.ns}, set))
	return set
}

// spec changes it, beside the program, which writes the status.
func (p *pooled) spec(change func(*hubv1alpha1.VIPs)) {
	p.t.Helper()
	must(p.t, until(p.t.Context(), func() error {
		set := p.set()
		change(&set.Spec.VIPs)
		return p.admin.Update(p.t.Context(), set)
	}))
}

// member has joined, and tells.
func (p *pooled) member(id string, told map[string]string) *member {
	p.t.Helper()
	m := p.newMember(p.t, p.ns, id)
	m.claim(p.t)
	m.tell(p.t, told)
	return m
}

// tell writes what an agent would, with the member's own token.
func (m *member) tell(t *testing.T, told map[string]string) {
	t.Helper()
	must(t, m.publishes(t.Context(), told))
}

func (m *member) publishes(ctx context.Context, told map[string]string) error {
	return until(ctx, func() error {
		was := &inventoryv1alpha1.ClusterProfile{}
		if err := m.Get(ctx, client.ObjectKey{Namespace: m.ns, Name: m.id}, was); err != nil {
			return err
		}
		p := was.DeepCopy()
		p.Status.Properties = nil
		for _, name := range slices.Sorted(maps.Keys(told)) {
			p.Status.Properties = append(
				p.Status.Properties,
				inventoryv1alpha1.Property{Name: name, Value: told[name]},
			)
		}
		return m.Status().Patch(ctx, p, kube.Changes(was))
	})
}

func blocksOf(set *hubv1alpha1.ClusterSet) (out []string) {
	for _, b := range set.Status.Blocks {
		out = append(out, b.ClusterID+" "+b.CIDR)
	}
	return out
}

// has waits until these are all blocks.
func (p *pooled) has(want ...string) {
	p.t.Helper()
	must(p.t, until(p.t.Context(), func() error {
		if got := blocksOf(p.set()); !slices.Equal(got, want) {
			return fmt.Errorf("blocks %q, want %q", got, want)
		}
		return nil
	}))
}

// says waits for a condition, as type=status/reason, whose message has all words.
func (p *pooled) says(want string, words ...string) {
	p.t.Helper()
	kind, _, _ := strings.Cut(want, "=")
	must(p.t, until(p.t.Context(), func() error {
		c := meta.FindStatusCondition(p.set().Status.Conditions, kind)
		if c == nil || kind+"="+string(c.Status)+"/"+c.Reason != want ||
			slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(c.Message, word) }) {
			return fmt.Errorf("%+v, want %s %q", c, want, words)
		}
		return nil
	}))
}

// event waits for one about an object of this name.
func (p *pooled) event(about, reason, note string) {
	p.t.Helper()
	must(p.t, until(p.t.Context(), func() error {
		var events eventsv1.EventList
		if err := p.admin.List(p.t.Context(), &events, client.InNamespace(p.ns)); err != nil {
			return err
		}
		var all []string
		for _, e := range events.Items {
			if e.Regarding.Name == about && e.Reason == reason && strings.Contains(e.Note, note) {
				return nil
			}
			all = append(all, e.Regarding.Name+" "+e.Reason+": "+e.Note)
		}
		return fmt.Errorf("no Event %s about %s with %q among\n%s", reason, about, note, strings.Join(all, "\n"))
	}))
}

var services = map[string]string{clusterset.PropertyServiceRanges: "10.96.0.0/16"}

// A member gets a block of each family, another when it asks, and none of them is any other after a restart of the
// program.
func TestV2BlocksAreGrantedAndStay(t *testing.T) {
	p := withPools(t, "v2-grants", "10.200.0.0/22", "fd00:c5::/48")
	east := p.member("east", services)
	p.has("east 10.200.0.0/24", "east fd00:c5::/112")
	p.says("BlocksGranted=True/Granted")
	p.says("PoolsValid=True/NoOverlap")
	east.tell(
		t,
		map[string]string{
			clusterset.PropertyServiceRanges: "10.96.0.0/16",
			clusterset.PropertyBlocks:        "ipv4=2 ipv6=1",
		},
	)
	p.has("east 10.200.0.0/24", "east fd00:c5::/112", "east 10.200.1.0/24")
	for metric, want := range map[string]string{
		`clusterset_hub_pool_blocks{clusterset="v2-grants",pool="10.200.0.0/22",state="granted"} `: "2",
		`clusterset_hub_pool_blocks{clusterset="v2-grants",pool="10.200.0.0/22",state="free"} `:    "2",
		`clusterset_hub_members_refused_blocks{clusterset="v2-grants",family="IPv4"} `:             "0",
	} {
		must(t, until(t.Context(), func() error { // the cache follows
			if got := p.running(p.ns).shows(t, metric); got != want {
				return fmt.Errorf("%s%s, want %s", metric, got, want)
			}
			return nil
		}))
	}
	before := p.set()
	p.running(p.ns).Kill()
	must(t, p.running(p.ns).again(t.Context()))
	if after := p.set(); after.ResourceVersion != before.ResourceVersion {
		t.Errorf("a restart wrote %+v", after.Status)
	}
	p.member("west", services)
	p.says("BlocksGranted=False/Waiting") // members may use blocks that a restored hub does not know
	p.has("east 10.200.0.0/24", "east fd00:c5::/112", "east 10.200.1.0/24")
}

// Members that ask at the same time, while another departs: no block has two owners, none moves, and with space for
// all, all have theirs.
func TestV2ManyMembersAtOnce(t *testing.T) {
	p := withPools(t, "v2-many", "10.200.0.0/22") // four blocks
	const n = 9
	var members []*member
	for i := range n {
		m := p.newMember(t, p.ns, fmt.Sprint("c", i))
		m.claim(t)
		members = append(members, m)
	}
	left := p.newMember(t, p.ns, "left")
	told := make(chan error)
	for _, m := range members {
		go func() {
			told <- m.publishes(t.Context(), map[string]string{
				clusterset.PropertyServiceRanges: "10.96.0.0/16", clusterset.PropertyBlocks: "ipv4=2",
			})
		}()
	}
	p.evict(t, p.ns, left.id)
	for range members {
		must(t, <-told)
	}
	p.says("BlocksGranted=False/PoolsFull")
	full := blocksOf(p.set())
	p.spec(func(v *hubv1alpha1.VIPs) { v.Pools = append(v.Pools, "10.201.0.0/16") })
	var all []hubv1alpha1.Block
	must(
		t,
		until(
			t.Context(),
			func() error { // what the program has not read yet is not asked for, and all the rest is granted
				if all = p.set().Status.Blocks; len(all) != 2*n {
					return fmt.Errorf("%d blocks, want %d", len(all), 2*n)
				}
				return nil
			},
		),
	)
	p.says("BlocksGranted=True/Granted")
	if got := blocksOf(p.set()); len(full) != 4 || !slices.Equal(got[:4], full) {
		t.Errorf("%q became %q", full, got)
	}
	has := map[string]int{}
	var taken []netip.Prefix
	for _, b := range all {
		cidr := netip.MustParsePrefix(b.CIDR)
		if slices.ContainsFunc(taken, cidr.Overlaps) {
			t.Errorf("block %s of %s has another owner, too", cidr, b.ClusterID)
		}
		taken = append(taken, cidr)
		has[b.ClusterID]++
	}
	for _, m := range members {
		if has[m.id] != 2 {
			t.Errorf("%s has %d blocks of %d", m.id, has[m.id], len(all))
		}
	}
	if len(p.departed(t, p.ns)["left"]) != 1 {
		t.Error("the departure of left was overwritten")
	}
}

// What members use is left out, and named; what becomes known too late is reported, and nothing is revoked.
func TestV2OverlapsAreRefusedOrReported(t *testing.T) {
	p := withPools(t, "v2-overlap", "10.0.0.0/22", "10.0.2.0/23")
	p.says("PoolsValid=False/PoolInvalid", "pool 10.0.2.0/23 overlaps pool 10.0.0.0/22")
	p.spec(func(v *hubv1alpha1.VIPs) { v.Pools = v.Pools[:1] })
	p.says("PoolsValid=True/NoOverlap")
	east := p.member("east", map[string]string{clusterset.PropertyServiceRanges: "10.0.0.0/24"})
	p.has("east 10.0.1.0/24")
	west := p.member("west", map[string]string{
		clusterset.PropertyServiceRanges: "10.96.0.0/16", clusterset.PropertyPodRanges: "10.0.1.128/25",
	})
	p.has("east 10.0.1.0/24", "west 10.0.2.0/24")
	p.says("PoolsValid=False/RangesOverlap", "pool 10.0.0.0/22 overlaps the service range 10.0.0.0/24 of east")
	east.tell(t, services)
	west.tell(t, nil)
	p.says("PoolsValid=True/NoOverlap")
	p.has("east 10.0.1.0/24", "west 10.0.2.0/24")
}

// A pool that is full keeps others out and takes nothing from anybody; with space, what was asked for is granted by
// itself.
func TestV2AddedPoolsAreTakenUp(t *testing.T) {
	p := withPools(t, "v2-full", "10.200.0.0/24")
	p.member("east", services)
	p.has("east 10.200.0.0/24")
	p.member("west", services)
	p.says("BlocksGranted=False/PoolsFull", "west: ")
	p.has("east 10.200.0.0/24")
	p.spec(func(v *hubv1alpha1.VIPs) { v.Pools, v.Blocks.IPv4Bits = []string{"10.210.0.0/16"}, 20 })
	p.has("east 10.200.0.0/24", "west 10.210.0.0/20")
	p.says("BlocksGranted=True/Granted", "Every member")
	p.spec(func(v *hubv1alpha1.VIPs) { v.Mode = hubv1alpha1.VIPModeShared })
	must(t, until(t.Context(), func() error {
		if c := meta.FindStatusCondition(p.set().Status.Conditions, hubv1alpha1.ConditionBlocksGranted); c != nil {
			return fmt.Errorf("%+v", c)
		}
		return nil
	}))
	p.has("east 10.200.0.0/24", "west 10.210.0.0/20") // existing VIPs stay
}

// A departed member's block is nobody's once its records are gone, for everybody to see, and somebody's only then.
func TestV2DepartedMembersBlocksAreFreedThenReused(t *testing.T) {
	p := withPools(t, "v2-departed", "10.200.0.0/24")
	ctx := t.Context()
	east := p.member("east", services)
	east.publish(t, 2)
	p.has("east 10.200.0.0/24")
	p.member("west", services)
	p.says("BlocksGranted=False/PoolsFull")
	states := p.watch()
	// As long as it may write, its records are not called gone (departed).
	extra := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: p.ns, Name: "by-hand"}}
	extra.RoleRef = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "clusterset-member"}
	extra.Subjects = []rbacv1.Subject{{Kind: "ServiceAccount", Name: "mcs-east", Namespace: p.ns}}
	must(t, p.admin.Create(ctx, extra))
	must(t, p.admin.Delete(ctx, east.profile(t)))
	p.event("east", "RightsNotRevoked", "")
	if got := blocksOf(p.set()); !slices.Equal(got, []string{"east 10.200.0.0/24"}) ||
		len(p.records(t, p.ns, "east")) != 4 {
		t.Errorf("%q, while its records are there", got)
	}
	must(t, p.admin.Delete(ctx, extra))
	p.has("west 10.200.0.0/24")
	p.gone(t, p.ns, "east")
	if got, want := states(), []string{
		"[east 10.200.0.0/24]",
		"[]",
		"[west 10.200.0.0/24]",
	}; !slices.Equal(
		got,
		want,
	) {
		t.Errorf("the blocks were %q one after the other, want %q", got, want)
	}
}

// watch notes every list of blocks that others could see, from now until it is asked.
func (p *pooled) watch() func() []string {
	p.t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", p.cp.Kubeconfig())
	must(p.t, err)
	watching, err := client.NewWithWatch(config, client.Options{Scheme: p.admin.Scheme()})
	must(p.t, err)
	seen, err := watching.Watch(p.t.Context(), &hubv1alpha1.ClusterSetList{}, client.InNamespace(p.ns))
	must(p.t, err)
	last := make(chan string, 1)
	done := make(chan []string)
	go func() {
		var states []string
		end := ""
		for {
			select {
			case end = <-last:
			case e := <-seen.ResultChan():
				if set, ok := e.Object.(*hubv1alpha1.ClusterSet); ok {
					if state := fmt.Sprint(blocksOf(set)); len(states) == 0 || states[len(states)-1] != state {
						states = append(states, state)
					}
				}
			case <-p.t.Context().Done():
				return
			}
			if len(states) > 0 && states[len(states)-1] == end {
				seen.Stop()
				done <- states
				return
			}
		}
	}()
	return func() []string {
		last <- fmt.Sprint(blocksOf(p.set()))
		return <-done
	}
}

// What a member writes that cannot be read has no effect, is reported, and is taken up once it is fixed.
func TestV2WrongPropertiesHaveNoEffect(t *testing.T) {
	p := withPools(t, "v2-wrong", "10.200.0.0/22")
	liar := p.member("liar", nil)
	for property, value := range map[string]string{
		clusterset.PropertyBlocks:        "ipv4=1000000",
		clusterset.PropertyServiceRanges: "10.200.0.0/8",
		clusterset.PropertyPodRanges:     strings.Repeat("10.200.0.0/24 ", 70),
	} {
		liar.tell(t, map[string]string{property: value})
		p.says("BlocksGranted=False/PropertyInvalid", property)
	}
	p.member("east", services)
	p.has("east 10.200.0.0/24")
	liar.tell(t, services)
	p.has("east 10.200.0.0/24", "liar 10.200.1.0/24")
}
