package sim

import (
	"errors"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
	"github.com/clusterset-dns/clusterset-dns/test/sim/api"
)

// fault is one way for things to go wrong. Three more, a conflict of writes, a lost answer, and one that was lost
// before the API server was done, happen at the writes (step.go); late and reordered events need no fault, since every
// kind of every cache advances by itself.
type fault struct {
	name   string
	weight int
	happen func(w *World, a *agent)
}

var faults []fault

func init() { // they reach each other
	faults = []fault{
		{"crash", 4, func(_ *World, a *agent) {
			a.crashIn = a.rng.IntN(6)
			a.note("fault: %s dies %d writes from now", a.name, a.crashIn)
		}},
		{"restart", 3, func(w *World, _ *agent) { w.restartTheDead() }},
		{"broken watch", 4, (*World).breakWatch},
		{"repeated events", 3, (*World).repeatEvents},
		{"partition", 4, (*World).partition},
		{"heal", 3, func(_ *World, a *agent) {
			a.noReads, a.noWrites = false, false
			a.note("fault: %s reaches the hub", a.name)
		}},
		{"two leaders", 2, (*World).secondLeader},
		{"cut off", 3, (*World).isCutOffFromItsServer},
		{"backup", 2, func(w *World, _ *agent) {
			w.backups = append(w.backups, w.hub.Snapshot())
			w.note("fault: a backup of the hub is taken")
		}},
		{"hub restored", 1, (*World).restoreHub},
		{"hub emptied", 1, (*World).emptyHub},
		{"page lost", 2, (*World).losePage},
		{"quota", 2, (*World).hubRefuses},
		{"skew", 1, (*World).skewClock},
		{"dark", 2, (*World).goesDark},
		{"cut", 2, (*World).isCut},
		{"blocked", 1, (*World).isBlocked},
	}
}

// somethingFails makes one fault happen.
func (w *World) somethingFails() {
	total := 0
	for _, f := range faults {
		total += f.weight
	}
	n := w.rng.IntN(total)
	for _, f := range faults {
		if n -= f.weight; n >= 0 {
			continue
		}
		m := pick(w, w.honest())
		var a *agent
		if f.name != "restart" && f.name != "backup" {
			if len(m.agents) == 0 || w.Without[f.name] {
				return
			}
			a = pick(w, m.agents)
		}
		w.history.Faults++
		f.happen(w, a)
		return
	}
}

// restartTheDead gives every member without an agent a new one.
func (w *World) restartTheDead() {
	for _, m := range w.honest() {
		if len(m.agents) == 0 {
			w.startAgent(m)
		}
	}
}

func (w *World) breakWatch(a *agent) {
	side := pick(w, []kube.Side{kube.Local, kube.Hub})
	kind := pick(w, a.cache(side).Kinds())
	a.cache(side).Break(kind)
	w.note("fault: %s's watch of %s of %s is lost", a.name, kind, side)
}

func (w *World) repeatEvents(a *agent) {
	side := pick(w, []kube.Side{kube.Local, kube.Hub})
	kind := pick(w, a.cache(side).Kinds())
	w.note("fault: %s sees %s of %s once more", a.name, kind, side)
	for _, o := range a.cache(side).All(kind) {
		a.handle(side, kind, api.Change{Old: o, New: o})
	}
}

func (w *World) partition(a *agent) {
	a.noReads, a.noWrites = w.chance(0.7), w.chance(0.7)
	w.note("fault: %s is cut off from the hub: hears nothing %v, is not heard %v", a.name, a.noReads, a.noWrites)
}

// reconnect ends a partition, if there is one.
func (a *agent) reconnect() {
	if a.noReads || a.noWrites {
		a.noReads, a.noWrites = false, false
		a.note("fault: %s reaches the hub", a.name)
	}
}

func (w *World) secondLeader(a *agent) {
	if len(a.agents) == 1 {
		w.note("fault: %s has a second leader", a.id)
		w.startAgent(a.member)
	}
}

// electedAfter is how long a leader is cut off from its API server before another replica leads, whose network works.
const electedAfter = 26 * time.Second

func (a *agent) isCutOff() bool { return !a.cutOff.IsZero() }

// isCutOffFromItsServer has a leader lose its own cluster's API server, and not the hub: its node's network is broken,
// and no other replica's is. It keeps its leadership (cmd/clusterset-controller: lock).
func (w *World) isCutOffFromItsServer(a *agent) {
	if len(a.agents) == 1 && a.local.Synced() {
		a.cutOff = w.now
		w.note("fault: %s is cut off from the API server of %s", a.name, a.id)
	}
}

// elections are those of one member: another replica leads in place of one that is cut off, and that one ends when it
// finds that another has its Lease on the hub, or has led.
func (w *World) elections(m *member, out []step) []step {
	for _, a := range m.agents {
		if !a.isCutOff() {
			if a.followed && len(m.agents) == 1 {
				out = append(out, step{20, a.resigns})
			}
			continue
		}
		if len(m.agents) == 1 && w.now.Sub(a.cutOff) >= electedAfter {
			out = append(out, step{20, func() { w.startAgent(m) }})
		}
		if a.env.Contested() {
			out = append(out, step{20, a.resigns})
		}
	}
	return out
}

// resigns ends a leader for good. It may have found the Lease of a restored hub before anybody was elected.
func (a *agent) resigns() {
	if a.die(); len(a.agents) == 0 {
		a.startAgent(a.member)
	}
}

func (w *World) restoreHub(*agent) {
	if !w.mayLose("the hub") {
		return
	}
	w.lost = "nowhere else" // who has copied a record from this backup would hold it if the next one lacks it
	w.note("fault: the HUB IS RESTORED from a backup")
	w.hub.Restore(pick(w, w.backups))
	w.resurrected()
	w.endWatches()
	w.history.Events["(hub restored)"]++
}

// hubRefuses has the hub refuse to create records of a kind, as a full quota does, until quiet begins. An export that
// needs pages states what fits into its record then, if the hub has lost them, so the promise ends for such names.
func (w *World) hubRefuses(*agent) {
	w.refused = pick(w, []string{api.ServiceExportRecord, api.EndpointPage})
	w.note("fault: the hub creates no %s: a quota is full", w.refused)
	for n := range w.frozen {
		endpoints := map[string]int{}
		for _, s := range w.truthOf(n).sources {
			if endpoints[s.cluster] += len(s.slice.Endpoints); w.refused == api.EndpointPage &&
				endpoints[s.cluster] > limits.Endpoints/2 {
				delete(w.frozen, n)
			}
		}
	}
}

// quota is the hub's admission for it.
func (w *World) quota(c *api.Write) error {
	if c.Old != nil || c.Key.Kind != w.refused || !strings.HasPrefix(c.User, api.Member) {
		return nil
	}
	resource := schema.GroupResource{Group: hubv1alpha1.GroupVersion.Group, Resource: strings.ToLower(c.Key.Kind) + "s"}
	return apierrors.NewForbidden(resource, c.Key.Name, errors.New("exceeded quota"))
}

func (w *World) emptyHub(a *agent) {
	if !w.mayLose("the hub") {
		return
	}
	w.note("fault: the HUB IS EMPTIED")
	w.hub.Empty(func(o client.Object) bool {
		k := api.KeyOf(o).Kind
		return k == api.Namespace || k == api.ClusterSet || k == api.ClusterProfile
	})
	w.endWatches()
	w.history.Events["(hub emptied)"]++
	if w.can("restart after", 0.5) {
		w.restartWithin(a, 40*time.Second)
	}
}

// restartWithin restarts an agent after a while. What it publishes may have revisions of up to 40 s later than its clock,
// and those of the next process must be higher (heartbeat.HubMayHaveLost).
func (w *World) restartWithin(a *agent, most time.Duration) {
	for until := w.now.Add(most); w.depth < 3 && w.chance(0.95) && w.now.Before(until) && !a.dead; {
		w.depth++
		w.step()
		w.depth--
	}
	if a.dead {
		return
	}
	w.note("fault: %s restarts", a.name)
	a.die()
	if len(a.agents) == 0 {
		w.startAgent(a.member)
	}
}

// losePage has the hub's admin delete a page whose endpoints the record still counts.
func (w *World) losePage(*agent) {
	pages := slices.DeleteFunc(slices.Clone(w.hub.List(api.EndpointPage)), func(o client.Object) bool {
		return originOf(o).ClusterID == w.liarID()
	})
	if len(pages) == 0 {
		return
	}
	k := api.KeyOf(pick(w, pages))
	w.note("fault: the hub loses %s", k)
	w.must(w.hub.Delete("admin", k, nil))
}

// resurrected gives up the promise for names of which the backup holds what nobody stands by any more: until its owner
// is heard, that is followed. So are endpoints of a cluster that has none by now: an importer has no slice that would
// tell it of a later record. It gives the promise up as well where the backup lacks one of several exports: that one is
// created again, and ranks last (C1). A withdrawal of the liar's may be of a record that the hub created later than the
// one in effect, if an earlier restore lay before both, and the liar does not publish again.
func (w *World) resurrected() {
	truths := map[types.NamespacedName]truth{}
	for _, n := range names {
		t := w.truthOf(n)
		truths[n] = t
		for _, e := range t.exports {
			rec := w.hub.Get(api.Key{
				Kind:           api.ServiceExportRecord,
				NamespacedName: types.NamespacedName{Namespace: hubNamespace, Name: recordName(n, e.Cluster)},
			})
			if rec == nil && len(t.exports) > 1 {
				delete(w.frozen, n)
			}
		}
	}
	for _, kind := range []string{api.ServiceExportRecord, api.EndpointPage} {
		for _, o := range w.hub.List(kind) {
			n, cluster := nameOf(o), originOf(o).ClusterID
			t := truths[n]
			exported := t.records()[recordName(n, cluster)]
			if withdrawn(o) && exported && cluster == w.liarID() || !withdrawn(o) && (!exported || !t.has(cluster)) {
				delete(w.frozen, n)
			}
		}
	}
}

// endWatches breaks off all watches of the hub, which are followed by lists (controllers/relist).
func (w *World) endWatches() {
	for _, m := range w.members {
		for _, a := range m.agents {
			for _, kind := range hubKinds {
				a.cache(kube.Hub).Break(kind)
			}
		}
	}
}

// skewClock sets a member's clocks while its agent is down: a running one goes by its monotonic clock.
func (w *World) skewClock(a *agent) {
	for _, b := range slices.Clone(a.agents) {
		b.die()
	}
	a.skew += time.Duration(w.rng.IntN(5)-2) * 50 * time.Second
	w.note("fault: the clock of %s is off by %s", a.id, a.skew)
}

// heal ends every fault, but for leaders that are cut off from their API server: the other replica must do.
func (w *World) heal() {
	w.refused = ""
	for _, m := range w.honest() {
		w.set(m, network{})
		former := slices.IndexFunc(m.agents, (*agent).isCutOff)
		if former > 0 {
			m.agents[0], m.agents[former] = m.agents[former], m.agents[0]
		}
		for len(m.agents) > 1 && former < 0 {
			m.agents[0].die()
		}
		for _, a := range m.agents {
			a.reconnect()
			a.crashIn = -1
		}
	}
	w.restartTheDead()
}
