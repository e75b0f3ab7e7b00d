package sim

import (
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// queue is a workqueue: a request is in it once, and not handed out while a pass over it runs.
type queue struct {
	ready    []reconcile.Request
	later    []timer
	failures map[reconcile.Request]int
	running  map[reconcile.Request]bool
}

type timer struct {
	at  time.Time
	req reconcile.Request
}

func newQueue() queue {
	return queue{failures: map[reconcile.Request]int{}, running: map[reconcile.Request]bool{}}
}

func (q *queue) add(reqs ...reconcile.Request) {
	for _, r := range reqs {
		if !slices.Contains(q.ready, r) {
			q.ready = append(q.ready, r)
		}
	}
}

// after adds a request at a time; of two times the earlier counts.
func (q *queue) after(req reconcile.Request, at time.Time) {
	i := slices.IndexFunc(q.later, func(t timer) bool { return t.req == req })
	if i < 0 {
		q.later = append(q.later, timer{at, req})
	} else if at.Before(q.later[i].at) {
		q.later[i].at = at
	}
}

// tick makes ready what is due.
func (q *queue) tick(now time.Time) {
	q.later = slices.DeleteFunc(q.later, func(t timer) bool {
		if due := !t.at.After(now); due {
			q.add(t.req)
			return true
		}
		return false
	})
}

// runnable are the requests that a pass may begin for.
func (q *queue) runnable() []reconcile.Request {
	var out []reconcile.Request
	for _, r := range q.ready {
		if !q.running[r] {
			out = append(out, r)
		}
	}
	return out
}

// done puts a request back as its pass says. What fails is tried again later and later, as the agent's own rate limiter
// has it.
func (q *queue) done(req reconcile.Request, res reconcile.Result, err error, now time.Time) {
	delete(q.running, req)
	if err != nil {
		q.after(req, now.Add(min(20*time.Millisecond<<min(q.failures[req], 10), 10*time.Second)))
		q.failures[req]++
		return
	}
	delete(q.failures, req)
	if res.RequeueAfter > 0 {
		q.after(req, now.Add(res.RequeueAfter))
	}
}
