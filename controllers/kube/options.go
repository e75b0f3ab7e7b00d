package kube

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// New returns a controller that reconciles with the given number of workers. Add its watches before you add it to the
// manager: a running controller does not wait for the caches of watches that are added later.
func (c Controller) New(mgr manager.Manager, workers int) (controller.Controller, error) {
	o := c.Options()
	o.MaxConcurrentReconciles = workers
	o.DefaultFromConfig(mgr.GetControllerOptions())
	return controller.NewUnmanaged(c.Name, o)
}

// Options returns the reconciler, the rate limiter and the timeouts of a controller.
func (c Controller) Options() controller.Options {
	return controller.Options{
		Reconciler:            conflictRetrier{c.Reconciler, backoff(c.Name)},
		RateLimiter:           backoff(c.Name),
		ReconciliationTimeout: reconcileTimeout,
		CacheSyncTimeout:      firstLists,
	}
}

// firstLists is how long a controller waits for the first lists of its cluster. Then it ends the whole process. What
// needs none of them, the heartbeat, goes on for so long, and the kubelet then starts the process again at once; after
// the default of two minutes it would wait longer and longer.
const firstLists = 10 * time.Minute

// reconcileTimeout is longer than an API server's default request timeout of one minute. A proxy may not report that
// the request ended.
const reconcileTimeout = 90 * time.Second

// conflictRetrier requeues a request after a conflict, with backoff and without an error in the log: a stale cache or
// another writer is normal under optimistic concurrency.
type conflictRetrier struct {
	reconcile.Reconciler
	retry workqueue.TypedRateLimiter[reconcile.Request] // counts conflicts: RequeueAfter resets that of the queue
}

func (r conflictRetrier) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	res, err := r.Reconciler.Reconcile(ctx, req)
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return reconcile.Result{RequeueAfter: r.retry.When(req)}, nil
	}
	r.retry.Forget(req)
	if err != nil { // controller-runtime warns if a result accompanies an error
		return reconcile.Result{}, err
	}
	return res, nil
}

// backoff returns a rate limiter whose delays stay short, so that nothing waits for minutes after a long outage. The
// heartbeat retries soonest: other members send traffic here only while it renews the Lease.
func backoff(name string) workqueue.TypedRateLimiter[reconcile.Request] {
	maxDelay := 10 * time.Second
	if name == "heartbeat" {
		maxDelay = 2 * time.Second
	}
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](20*time.Millisecond, maxDelay)
}

// Await calls try until it succeeds, or ctx ends, which is the only error. An attempt may take as long as limit. The
// log says each new reason once.
func Await(
	ctx context.Context, logger logr.Logger, what string, limit time.Duration, try func(context.Context) error,
) error {
	last, pause := "", wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Steps: 10, Cap: 2 * time.Second}
	for {
		one, cancel := context.WithTimeout(ctx, limit)
		err := try(one)
		cancel()
		if err == nil {
			return nil
		}
		if err.Error() != last && ctx.Err() == nil {
			last = err.Error()
			logger.Info("waiting for "+what, "reason", last)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause.Step()):
		}
	}
}
