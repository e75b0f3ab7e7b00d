package kube

import (
	"context"
	"fmt"
	"hash/fnv"
	"strings"
	"time"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// New makes a controller as this manager runs them, workers passes at a time. It is given to the manager (Add) behind
// its watches: one that runs begins without those that come later, and takes none before the caches of the earlier ones
// have synced.
func (c Controller) New(mgr manager.Manager, workers int) (controller.Controller, error) {
	o := c.Options()
	o.MaxConcurrentReconciles = workers
	o.DefaultFromConfig(mgr.GetControllerOptions())
	return controller.NewUnmanaged(c.Name, o)
}

// Options are those by which every manager runs a controller.
func (c Controller) Options() controller.Options {
	return controller.Options{
		Reconciler: quiet{
			c.Reconciler,
			backoff(c.Name),
		},
		RateLimiter:           backoff(c.Name),
		ReconciliationTimeout: passTimeout,
	}
}

// passTimeout is how long a pass may take. An API server ends a request after a minute by default, but a proxy may not
// pass on the end.
const passTimeout = 90 * time.Second

// quiet turns what a stale cache or another writer causes into another pass, without an error in the log: it is how
// optimistic concurrency works. The passes come less often as long as it lasts.
type quiet struct {
	reconcile.Reconciler
	retry workqueue.TypedRateLimiter[reconcile.Request]
}

func (q quiet) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	res, err := q.Reconciler.Reconcile(ctx, req)
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return reconcile.Result{RequeueAfter: q.retry.When(req)}, nil
	}
	q.retry.Forget(req)
	if err != nil { // it is tried again after the backoff; controller-runtime warns of a result beside an error
		return reconcile.Result{}, err
	}
	return res, nil
}

// backoff of what failed: after a long outage nothing may wait for minutes, and the heartbeat, by which the others send
// traffic here again, for no longer than a person would.
func backoff(name string) workqueue.TypedRateLimiter[reconcile.Request] {
	most := 10 * time.Second
	if name == "heartbeat" {
		most = 2 * time.Second
	}
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](20*time.Millisecond, most)
}

// Pause is how long a start waits before it tries again what failed, longer each time (Step, of a copy): an API server
// that was busy answers in a moment, mostly.
var Pause = wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Steps: 10, Cap: 2 * time.Second}

// Recorder reports to the events API.
func Recorder(to events.EventRecorder) Events { return recorder{to} }

type recorder struct{ events.EventRecorder }

func (r recorder) Event(about runtime.Object, eventType, reason, message string) {
	note := cut(message, maxNote)
	r.Eventf(about, nil, eventType, reason, action(note), "%s", note)
}

// maxNote is the API's limit, in octets; an Event with a longer note is refused.
const maxNote = 1024

// cut shortens a message to at most limit octets, between characters.
func cut(message string, limit int) string {
	const more = " …"
	message = strings.ToValidUTF8(message, "?")
	if len(message) <= limit {
		return message
	}
	end := limit - len(more)
	for !utf8.RuneStart(message[end]) {
		end--
	}
	return message[:end] + more
}

// action tells notes apart. client-go makes one series of all Events that are alike but for their notes, and shows the
// first note only: what is wrong with a second cluster would not be seen for as long as the first one's series lasts.
// There are few actions, so that a peer who makes up one note after the other cannot fill this cluster with Events.
func action(note string) string {
	const actions = 64
	h := fnv.New32a()
	_, _ = h.Write([]byte(note)) // it returns no error
	return fmt.Sprintf("Reconcile%02d", h.Sum32()%actions)
}
