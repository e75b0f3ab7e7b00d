package clustersetip

import corev1 "k8s.io/api/core/v1"

// memory bounds what is remembered of what was told.
const memory = 10_000

// faults are what passes of one kind have told: each once while it lasts, and again when it comes back.
type faults struct {
	of          *Room
	before, now map[string]bool // in the pass before, and in this one
}

// news tells whether the pass before did not tell this.
func (f *faults) news(text string) bool {
	told := f.before[text] || f.now[text]
	if len(f.now) >= memory {
		clear(f.now)
	}
	f.now[text] = true
	return !told
}

// Event reports what a user ought to know.
func (f *faults) Event(object *corev1.ObjectReference, eventType, reason, message string) {
	f.of.mu.Lock()
	defer f.of.mu.Unlock()
	if f.news(object.Kind + "/" + object.Namespace + "/" + object.Name + "/" + reason + "/" + message) {
		f.of.Events.Event(object, eventType, reason, message)
	}
}

// over is the end of a pass that got through: what it did not tell has ended.
func (f *faults) over() {
	f.of.mu.Lock()
	defer f.of.mu.Unlock()
	f.before, f.now = f.now, map[string]bool{}
}

// Event reports what a user ought to know of the ranges.
func (r *Room) Event(object *corev1.ObjectReference, eventType, reason, message string) {
	r.laid.Event(object, eventType, reason, message)
}
