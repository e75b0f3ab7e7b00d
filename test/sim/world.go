package sim

import (
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
	"github.com/clusterset-dns/clusterset-dns/test/sim/api"
)

// hubNamespace is the clusterset's on the hub.
const hubNamespace = "clusterset"

// start is when the simulation begins.
var start = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// The pools are small, so that things meet; c/a-b and b-c/a differ in more than their dashes.
var (
	names = []types.NamespacedName{
		{
			Namespace: "shop",
			Name:      "web",
		},
		{Namespace: "shop", Name: "db"},
		{Namespace: "c", Name: "a-b"},
		{Namespace: "b-c", Name: "a"},
	}
	ids      = []string{"a", "a-b", "b.c", "a0"}
	regions  = map[string]string{"a": "eu", "a-b": "us", "b.c": "eu"} // a0 states none
	families = [][]corev1.IPFamily{
		{
			corev1.IPv4Protocol,
		},
		{corev1.IPv4Protocol, corev1.IPv6Protocol},
		{corev1.IPv6Protocol, corev1.IPv4Protocol},
		{corev1.IPv4Protocol},
	}
)

// Options say which run it is.
type Options struct {
	Seed     uint64
	Members  int             // 0: two to four, by the seed
	Episodes int             // 0: four
	Steps    int             // of trouble per episode; 0: 200
	Without  map[string]bool // faults that do not happen, by the names in faults.go and users.go
	Trace    func(line string)

	// The self-test's: they break what every agent stands on, and the hub.
	BreakAgent func(*kube.Env)
	BreakHub   func(*api.Server)
}

// World is everything there is.
type World struct {
	Options
	rng   *rand.Rand
	now   time.Time
	steps int
	depth int // of passes within passes
	trace trace

	hub     *api.Server
	backups []api.Snapshot
	members []*member
	liar    *liar  // nil in most worlds
	refused string // the kind of records that the hub does not create
	ranges  bool   // members have ServiceCIDRs, and the clusterset a mode of VIPs
	hands   int    // ranges that users have made

	quiet   bool // no users, no faults
	still   bool // nothing may be written but Leases
	changed time.Time
	deleted map[objectKey]time.Time
	started int
	frozen  map[types.NamespacedName]bool // names that nobody touches in this episode
	lost    string                        // where records were lost in this episode (mayLose)
	history history
	guard   guard
	writing *agent // makes a write
}

// member is one cluster.
type member struct {
	id       string
	server   *api.Server
	blocks   map[corev1.IPFamily]int // that it was granted so far
	skew     time.Duration           // of its clocks
	gateways bool                    // Envoy Gateway is there
	hidden   bool                    // NetworkPolicies hide its Pods from agents, but not from their clients
	network
	agents []*agent // that run; two where a leader does not know yet that it is none
}

// Run plays one seed. The error is a *Violation, with the trace.
func Run(o Options) (stats Stats, err error) {
	w := newWorld(o)
	defer func() {
		switch r := recover().(type) {
		case nil:
		case *Violation:
			r.Trace = w.trace.String()
			err = r
		default:
			err = &Violation{
				Seed:  o.Seed,
				What:  fmt.Sprintf("panic: %v\n%s", r, debug.Stack()),
				Trace: w.trace.String(),
			}
		}
		stats = w.history.Stats
		stats.Steps = w.steps
	}()
	w.settle()
	for range w.Episodes {
		w.trouble()
		if len(w.honest()) > 1 && w.can("away", 0.15) {
			w.aWeekAway()
		}
		w.settle()
		if w.chance(0.25) {
			w.aDayPasses()
		}
	}
	return stats, nil
}

func newWorld(o Options) *World {
	w := &World{
		Options: o, rng: rand.New(rand.NewPCG(o.Seed, 0)), now: start, history: newHistory(), guard: newGuard(),
		deleted: map[objectKey]time.Time{},
	}
	w.trace.all = o.Trace
	w.Members = orElse(o.Members, 2+w.rng.IntN(3))
	w.Episodes = orElse(o.Episodes, 4)
	w.Steps = orElse(o.Steps, 200)
	w.ranges = w.can("ranges", 0.6)
	w.hub = api.NewServer("hub", func() time.Time { return w.now }, nil, hubNamespace)
	w.hub.Policies = append(w.hub.Policies, api.MembersWriteTheirOwn, w.quota)
	w.hub.Changed = func(c *api.Write) { w.changedOn(nil, c) }
	if w.BreakHub != nil {
		w.BreakHub(w.hub)
	}
	set := &hubv1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Namespace: hubNamespace, Name: "set"}}
	set.Spec.Lease = hubv1alpha1.LeaseSpec{
		RenewSeconds:    10,
		DurationSeconds: 40,
		GraceSeconds:    10,
		OnExpiry:        hubv1alpha1.ExpiryKeep,
		MostSilent:      []hubv1alpha1.MostSilent{hubv1alpha1.MostSilentHold, hubv1alpha1.MostSilentExpire}[o.Seed%2],
	}
	w.must(w.hub.Create("admin", set, false))
	w.anotherMode()
	for i := range w.Members {
		w.addMember(ids[i])
	}
	w.backups = append(w.backups, w.hub.Snapshot())
	if w.Members > 2 && w.can("liar", 0.4) {
		w.liar = newLiar(w)
	}
	return w
}

func (w *World) addMember(id string) {
	m := &member{id: id, blocks: map[corev1.IPFamily]int{}, skew: time.Duration(w.rng.IntN(7)-3) * 100 * time.Second}
	m.gateways = w.chance(0.3)
	m.hidden = w.Seed%3 == 0 && len(w.members) == 0
	m.server = api.NewServer(id, func() time.Time { return w.now.Add(m.skew) }, pick(w, families), kube.SystemNamespace)
	if w.ranges {
		m.server.WithRanges()
	}
	m.server.Policies = append(m.server.Policies, api.DerivedServicesStay(kube.Manager))
	m.server.Changed = func(c *api.Write) { w.changedOn(m, c) }
	w.joins(m)
	for _, n := range names {
		if w.chance(0.8) {
			_ = m.server.Create(
				"admin",
				&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: n.Namespace}},
				false,
			) // may be there
		}
	}
	w.members = append(w.members, m)
	w.startAgent(m)
}

// joins makes a cluster a member; none leaves.
func (w *World) joins(m *member) {
	properties := [][2]string{{clusterset.PropertyID, m.id}, {clusterset.PropertySet, "set"}}
	if region := regions[m.id]; region != "" {
		properties = append(properties, [2]string{"region", region})
	}
	for _, p := range properties {
		property := &aboutv1beta1.ClusterProperty{ObjectMeta: metav1.ObjectMeta{Name: p[0]}}
		property.Spec.Value = p[1]
		w.must(m.server.Create("admin", property, false))
	}
	profile := &inventoryv1alpha1.ClusterProfile{ObjectMeta: metav1.ObjectMeta{Namespace: hubNamespace, Name: m.id}}
	profile.Annotations = map[string]string{clusterset.AnnotationClusterUID: "uid-of-" + m.id} // as Gate has it
	profile.Spec.ClusterManager.Name = clusterset.ClusterManager
	w.must(w.hub.Create("admin", profile, false))
}

// must is for what cannot fail.
func (w *World) must(err error) {
	if err != nil {
		w.fail("the simulation itself: %v", err)
	}
}

// chance is true with probability p.
func (w *World) chance(p float64) bool { return w.rng.Float64() < p }

// can is chance, unless the run is without it.
func (w *World) can(what string, p float64) bool { return w.chance(p) && !w.Without[what] }

func pick[T any](w *World, from []T) T { return from[w.rng.IntN(len(from))] }

func orElse(n, otherwise int) int {
	if n == 0 {
		return otherwise
	}
	return n
}

// honest are the members that have an agent.
func (w *World) honest() []*member {
	return slices.DeleteFunc(
		slices.Clone(w.members),
		func(m *member) bool { return w.liar != nil && w.liar.member == m },
	)
}

// namespace returns a member's, or nil where there is none or it is going.
func (m *member) namespace(name string) client.Object {
	ns := m.server.Get(api.Key{Kind: api.Namespace, NamespacedName: types.NamespacedName{Name: name}})
	if ns == nil || ns.GetDeletionTimestamp() != nil {
		return nil
	}
	return ns
}

// get reads one object of a member; nil if there is none.
func get[T client.Object](m *member, kind string, n types.NamespacedName) (object T) {
	object, _ = m.server.Get(api.Key{Kind: kind, NamespacedName: n}).(T)
	return object
}

// all reads a kind of a server.
func all[T client.Object](s *api.Server, kind string) []T {
	var out []T
	for _, o := range s.List(kind) {
		out = append(out, o.(T))
	}
	return out
}
