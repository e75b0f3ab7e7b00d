package kube

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// Informer is client-go's, for controller-runtime's caches, that waits no longer than a few seconds before it lists again (decision 0015). client-go's
// own counts, for two minutes, each watch that cannot go on and each list that fails, and waits up to a minute: an API server that starts knows no
// history, so each of its starts counts for two or three. It has its handler of errors: whoever sets another (DefaultWatchErrorHandler of a cache)
// would have an informer that never lists.
func Informer(lw cache.ListerWatcher, of runtime.Object, resync time.Duration, by cache.Indexers) cache.SharedIndexInformer {
	p := &prompt{ListerWatcherWithContext: cache.ToListerWatcherWithContext(lw)}
	i := cache.NewSharedIndexInformer(p, of, resync, by)
	if err := i.SetWatchErrorHandlerWithContext(p.loop); err != nil {
		panic(err) // of one that was started
	}
	return i
}

// prompt is what an informer lists and watches. It fails until the informer's reflector has handed over its loop, which client-go offers no
// other way into than the handler of an error (kubernetes/kubernetes#136943 would give the informer its pauses).
type prompt struct {
	cache.ListerWatcherWithContext
	taken   atomic.Bool
	watched time.Time // since when, in this round of the loop; of the loop's goroutine alone
}

var errHandOver = errors.New("the reflector hands over its loop")

// again is how long an informer waits, longer each time, until it has watched for a while.
var again = wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 10, Cap: 3 * time.Second}

const (
	aWhile   = 10 * time.Second
	sayAgain = time.Minute
)

// loop is the handler of the first error, which comes at once, and returns when ctx ends. What fails is said once a minute while that lasts.
func (p *prompt) loop(ctx context.Context, r *cache.Reflector, _ error) {
	p.taken.Store(true)
	pause, said := again, time.Time{}
	for ctx.Err() == nil {
		p.watched = time.Time{}
		err := r.ListAndWatchWithContext(ctx)
		if !p.watched.IsZero() && time.Since(p.watched) > aWhile {
			pause, said = again, time.Time{}
		}
		// Expired: a list is due, which is in order.
		if err != nil && ctx.Err() == nil && !apierrors.IsResourceExpired(err) && time.Since(said) >= sayAgain {
			said = time.Now()
			klog.FromContext(ctx).Error(err, "a watch failed, and is tried again every few seconds", "type", r.TypeDescription())
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause.Step()):
		}
	}
}

// List is cache.ListerWatcher's.
func (p *prompt) List(o metav1.ListOptions) (runtime.Object, error) {
	return p.ListWithContext(context.Background(), o)
}

// Watch is cache.ListerWatcher's.
func (p *prompt) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return p.WatchWithContext(context.Background(), o)
}

// ListWithContext is cache.ListerWithContext's.
func (p *prompt) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	if !p.taken.Load() {
		return nil, errHandOver
	}
	return p.ListerWatcherWithContext.ListWithContext(ctx, o)
}

// WatchWithContext is cache.WatcherWithContext's.
func (p *prompt) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if !p.taken.Load() {
		return nil, errHandOver
	}
	w, err := p.ListerWatcherWithContext.WatchWithContext(ctx, o)
	if err == nil && p.watched.IsZero() {
		p.watched = time.Now()
	}
	return w, err
}
