package publish

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// waits keeps a name for wakes, and tells whether it is to wait.
func (r *reconciler) waits(name types.NamespacedName) bool {
	if !r.Still() {
		return false
	}
	r.mu.Lock()
	if r.waiting != nil {
		r.waiting[name] = true
	}
	r.mu.Unlock()
	return r.Still() // the renewal may have been seen in between
}

// wakes returns what waits as soon as the first own renewal was seen.
func (r *reconciler) wakes(ctx context.Context) (out []reconcile.Request) {
	select {
	case <-ctx.Done():
		return nil
	case <-r.Shown:
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for name := range r.waiting {
		out = append(out, reconcile.Request{NamespacedName: name})
	}
	r.waiting = nil
	return out
}

// patience is how long a name waits before it asks again whether it may be said now: wakes asks it sooner, mostly. An elder agent may take
// its time to show itself; and where the hub takes no renewal, thousands of names ask ever less often.
func (r *reconciler) patience() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.still.IsZero() {
		r.still = r.Now()
	}
	return min(max(r.Now().Sub(r.still)/4, 200*time.Millisecond), 2*time.Second)
}
