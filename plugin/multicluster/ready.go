package multicluster

import "time"

// Ready implements ready.Readiness for all stanzas together.
func (m *Multicluster) Ready() bool { return m.generation.ready(time.Now()) }

// ready reports whether the generation that answers is complete. While a reload waits for new lists, that is the
// one before, though the ready plugin already asks the new one.
func (g *generation) ready(now time.Time) bool {
	generations.Lock()
	defer generations.Unlock()
	if g.done == g.stanzas {
		return g.complete(now)
	}
	for before := range generations.all {
		if before.done == before.stanzas {
			return before.complete(now)
		}
	}
	return false
}

// complete reports whether every watch has its first complete lists, or cannot get them for want of
// a CRD or a permission and its startup_timeout is over. The time counts from the watch's start, so
// that a reload does not undo readiness (L2).
func (g *generation) complete(now time.Time) bool {
	for _, o := range g.opened {
		if !o.watch.Synced() && (o.watch.Refused() == nil || now.Sub(o.watch.Started()) < o.timeout) {
			return false
		}
	}
	return true
}
