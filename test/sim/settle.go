package sim

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
	"github.com/clusterset-dns/clusterset-dns/test/sim/api"
)

// What quiet may take: convergence is bounded.
const (
	mostSteps = 20000
	mostTime  = 15 * time.Minute
	// calm is how long nothing but Leases must be written to say that all is done: longer than any Lease lasts or any
	// retry waits. A second time it is as long as the slowest recheck.
	calm, again = 130 * time.Second, 11 * time.Second
)

// trouble is an episode: users act and things fail, except that nobody touches the frozen names.
func (w *World) trouble() {
	w.frozen, w.lost = map[types.NamespacedName]bool{}, ""
	for _, n := range names {
		if w.chance(0.4) {
			w.frozen[n] = true
		}
	}
	w.note("== trouble; nobody touches %v", slices.Sorted(maps.Keys(text(w.frozen))))
	for range w.Steps {
		w.step()
	}
}

func text(in map[types.NamespacedName]bool) map[string]bool {
	out := map[string]bool{}
	for n := range in {
		out[n.String()] = true
	}
	return out
}

// settle ends all trouble, waits until nothing happens any more, and compares what there is with what there must be.
// Then it asks for every pass once more, which must write nothing.
func (w *World) settle() {
	w.note("== quiet")
	w.quiet = true
	w.heal()
	for _, m := range w.honest() {
		for _, n := range names {
			if !w.frozen[n] { // slices get the names of their Service's ports, if late
				w.followService(m, n)
			}
		}
	}
	if w.liar != nil {
		w.liar.repents(w.frozen)
	}
	w.givesAway()
	w.calmDown(calm + electedAfter)
	for range 3 { // the API server frees what an interrupted creation left behind
		if w.leftBehind() {
			w.calmDown(calm)
		}
	}
	for _, m := range w.honest() {
		if len(m.agents) > 1 {
			w.fail("%s still leads, though %s was elected in its place", m.agents[0].name, m.agents[1].name)
		}
	}
	w.check()
	w.still = true
	w.note("== once more")
	for _, m := range w.honest() {
		if w.chance(0.5) {
			m.agents[0].die()
			w.startAgent(m)
		}
		for _, l := range m.agents[0].loops {
			if l.started {
				m.agents[0].enqueueAll(l, kube.Local)
				m.agents[0].enqueueAll(l, kube.Hub)
			}
		}
	}
	w.calmDown(again)
	w.check()
	w.still, w.quiet = false, false
	w.guard.settled()
	w.history.Settled++
}

// leftBehind returns whether a member has an IPAddress for a derived Service that does not have it.
func (w *World) leftBehind() bool {
	for _, m := range w.honest() {
		for _, ip := range all[*networkingv1.IPAddress](m.server, api.IPAddress) {
			of, _ := m.server.Owner(ip.Name)
			if w.ranges && strings.HasPrefix(of.Name, "derived-") && !m.used(ip.Name) {
				return true
			}
		}
	}
	return false
}

// calmDown runs until nothing but Leases was written for a while.
func (w *World) calmDown(calm time.Duration) {
	began, steps := w.now, w.steps
	w.changed = w.now
	for w.now.Sub(w.changed) < calm {
		if w.steps-steps > mostSteps || w.now.Sub(began) > mostTime {
			w.fail(
				"it does not converge: after %d steps and %s there are still writes",
				w.steps-steps,
				w.now.Sub(began),
			)
		}
		if !w.step() {
			w.idle()
		}
	}
	w.history.Slowest = max(w.history.Slowest, w.changed.Sub(began))
}

// idle lets time pass until something is due.
func (w *World) idle() {
	before := w.now
	w.untilDue()
	if w.now.Equal(before) || w.now.Sub(before) > 5*time.Second {
		w.now = before.Add(5 * time.Second)
	}
	if w.liar != nil {
		w.liar.confirms()
	}
}

// aWeekAway has one member without an agent for a week, while the others go on. When it is back it must learn of all
// that went meanwhile, because withdrawn records wait for it.
func (w *World) aWeekAway() {
	m := pick(w, w.honest())
	w.note("== %s is away for a week", m.id)
	w.quiet = true
	w.heal()
	for len(m.agents) > 0 {
		m.agents[0].die()
	}
	if w.liar != nil {
		w.liar.repents(w.frozen)
	}
	for range 2 {
		w.calmDown(calm)
		w.now = w.now.Add(84 * time.Hour)
	}
	w.calmDown(calm)
	w.history.Events["(away for a week)"]++
	w.settle()
}

// aDayPasses: what was withdrawn is forgotten then, and VIPs that nobody needs are given back.
func (w *World) aDayPasses() {
	w.note("== a day passes")
	w.now = w.now.Add(26 * time.Hour)
	for _, n := range names {
		w.frozen[n] = true
	}
	w.settle()
	w.checkForgotten()
}

// changedOn is told of every change on a member, or on the hub (nil).
func (w *World) changedOn(m *member, c *api.Write) {
	if c.Key.Kind != api.Lease {
		w.changed = w.now
	}
	if c.New == nil {
		s := w.hub
		if m != nil {
			s = m.server
		}
		w.deleted[objectKey{s, c.Key}] = w.now
	}
	w.note("%s: %s %ss %s @%s", where(m), c.User, c.Verb(), c.Key, at(c))
	w.watch(m, c)
	if c.User == api.Allocator {
		return // in the middle of somebody's write
	}
	w.wrote(c)
	w.writing = nil
}

func where(m *member) string {
	if m == nil {
		return "hub"
	}
	return m.id
}

func at(c *api.Write) string {
	if c.New == nil {
		return "gone"
	}
	return c.New.GetResourceVersion()
}

// objectKey finds an object of any server.
type objectKey struct {
	server *api.Server
	key    api.Key
}

// requested is told of every write that an agent asks for. What is kept for a time only may go while all is still, and
// a late cache shows it a little longer: the API server refuses to change what is gone.
func (a *agent) requested(s *api.Server, verb string, k api.Key) {
	o := s.Get(k)
	late := verb != "create" && a.now.Sub(a.deleted[objectKey{s, k}]) < calm
	allowed := k.Kind == api.Lease || o == nil && late || o != nil && verb == "delete" && expiring(o)
	if a.still && !allowed {
		a.fail("a pass over a settled state writes: %s asks %s to %s %s", a.name, s.Name, verb, k)
	}
	a.aboutToWrite()
}

// expiring tells whether an object is kept for a time only, which may be over at any moment.
func expiring(o client.Object) bool {
	switch o := o.(type) {
	case *corev1.Service:
		return o.Annotations["clusterset-dns.io/unused-since"] != ""
	case *hubv1alpha1.ServiceExportRecord:
		return withdrawn(o)
	}
	return false
}
