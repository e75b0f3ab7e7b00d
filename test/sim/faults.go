package sim

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
		{"backup", 2, func(w *World, _ *agent) {
			w.backups = append(w.backups, w.hub.Snapshot())
			w.note("fault: a backup of the hub is taken")
		}},
		{"hub restored", 1, (*World).restoreHub},
		{"hub emptied", 1, (*World).emptyHub},
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

func (w *World) emptyHub(*agent) {
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
}

// resurrected gives up the promise for names of which the backup holds what nobody stands by any more: until its owner
// is heard, that is followed. A record of endpoints has the name of its slice, which may be another Service's by now.
// It gives it up as well where the backup lacks one of several exports: that one is created again, and ranks last (C1).
func (w *World) resurrected() {
	stands := map[types.NamespacedName]map[string]bool{}
	for _, n := range names {
		t := w.truthOf(n)
		stands[n] = t.records()
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
	for _, kind := range []string{api.ServiceExportRecord, api.EndpointRecord} {
		for _, o := range w.hub.List(kind) {
			if n := nameOf(o); !withdrawn(o) && !stands[n][o.GetName()] {
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

// heal ends every fault.
func (w *World) heal() {
	for _, m := range w.honest() {
		w.set(m, network{})
		for len(m.agents) > 1 {
			pick(w, m.agents).die()
		}
		for _, a := range m.agents {
			a.reconnect()
			a.crashIn = -1
		}
	}
	w.restartTheDead()
}
