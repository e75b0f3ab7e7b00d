// Package relist makes a Reflector list again after a gap, so that a cache survives an API server that was restored
// from a backup. Such a server hands out resourceVersions a second time: a watch that continues from one that the cache
// saw before the restore misses changes for good. Lists that no API server answers are also tried again sooner.
package relist

import (
	"context"
	"errors"
	"math"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/watchlist"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

const (
	// listTimeout is how long API servers let a list last by default.
	listTimeout = time.Minute
	// grace is how long a request may outlast its timeout. The API server ends it in time, but a proxy may not pass on
	// the end.
	grace = 30 * time.Second
	// brief is the shortest time after which proxies end a watch without events.
	brief = time.Minute
	// listEvery is how old the last list must be until the end of a watch leads to another, if one ended early since.
	listEvery = 5 * time.Minute
	// logEvery is how often a list that fails over and over is logged.
	logEvery = time.Minute
)

// pauses are the waits between the tries of a list. The Reflector's own waits double up to a minute, and begin small
// only after two minutes without any: a cache could be stale for a minute after an outage of seconds.
var pauses = wait.Backoff{Duration: time.Second, Factor: 1.5, Jitter: 0.5, Steps: math.MaxInt, Cap: 8 * time.Second}

// ListerWatcher wraps another one for a single Reflector.
//   - A list after the first asks for the newest state. Another API server may lag behind the last known
//     resourceVersion, and a restored one may never reach it.
//   - A list, or the stream in its place, is tried until an API server does it or refuses it.
//   - A watch that could not be opened is followed by a list, unless the API server was too busy (429).
//   - A watch that ended before the time that it asked for is followed by a list if it lasted less than a minute. Else
//     watches continue, and the first that ends five minutes after the last list is followed by a list.
//   - A request that outlasts its timeout is cancelled.
type ListerWatcher struct {
	inner cache.ListerWatcherWithContext
	// lastWatch is the latest watch since the last list; nil if there is none.
	lastWatch *span
	listed    time.Time
	early     bool // a watch ended early since the last list

	due  atomic.Bool // Lists.Again was called since the last list began
	mu   sync.Mutex
	stop context.CancelFunc // of the latest watch
}

// span is when a watch was asked for, and for how long.
type span struct {
	start   time.Time
	timeout time.Duration
}

func New(lw cache.ListerWatcherWithContext) *ListerWatcher {
	return &ListerWatcher{inner: lw}
}

// Lists are the informers of one cluster that may have to list again. The zero value has none.
type Lists struct {
	mu  sync.Mutex
	all []*ListerWatcher
}

// NewInformer returns an informer over New(lw). It fits into the cache options of controller-runtime.
//
// It lists instead of streaming the first objects (WatchList): a busy API server sends the end of such a stream late.
func (l *Lists) NewInformer(
	lw cache.ListerWatcher, object runtime.Object, resync time.Duration, indexers cache.Indexers,
) cache.SharedIndexInformer {
	one := New(cache.ToListerWatcherWithContext(lw))
	l.mu.Lock()
	l.all = append(l.all, one)
	l.mu.Unlock()
	return cache.NewSharedIndexInformer(listing{one}, object, resync, indexers)
}

// Again ends all watches. A list follows each.
func (l *Lists) Again() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, one := range l.all {
		one.due.Store(true)
		one.mu.Lock()
		if one.stop != nil {
			one.stop()
		}
		one.mu.Unlock()
	}
}

type listing struct{ *ListerWatcher }

func (listing) IsWatchListSemanticsUnSupported() bool { return true }

// IsWatchListSemanticsUnSupported returns what the wrapped ListerWatcher does.
func (l *ListerWatcher) IsWatchListSemanticsUnSupported() bool {
	return watchlist.DoesClientNotSupportWatchListSemantics(l.inner)
}

func (l *ListerWatcher) List(o metav1.ListOptions) (runtime.Object, error) {
	return l.ListWithContext(context.Background(), o)
}

func (l *ListerWatcher) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return l.WatchWithContext(context.Background(), o)
}

func (l *ListerWatcher) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	if o.ResourceVersion != "0" { // "0" is the first list, for which any state will do
		o.ResourceVersion = ""
	}
	var list runtime.Object
	err := untilAnswered(ctx, func() (err error) {
		l.due.Store(false)
		ctx, cancel := context.WithTimeout(ctx, listTimeout+grace)
		defer cancel()
		list, err = l.inner.ListWithContext(ctx, o)
		return err
	})
	if err == nil {
		l.lastWatch, l.listed, l.early = nil, time.Now(), false
	}
	return list, err
}

// untilAnswered calls try until it succeeds, or an API server refuses, or ctx ends.
func untilAnswered(ctx context.Context, try func() error) error {
	var logged time.Time
	for left := pauses; ; {
		err := try()
		if err == nil || !Unanswered(err) || ctx.Err() != nil {
			return err
		}
		if time.Since(logged) >= logEvery {
			klog.FromContext(ctx).Error(err, "Failed to list, trying again")
			logged = time.Now()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(left.Step()):
		}
	}
}

// Unanswered returns whether no API server decided on the request: there is no answer, or it is 429 or 5xx.
func Unanswered(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true
	}
	code := status.Status().Code
	return code == http.StatusTooManyRequests || code >= http.StatusInternalServerError
}

// WatchWithContext implements cache.WatcherWithContext. It returns an Expired error if a list is due.
func (l *ListerWatcher) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	streamed := ptr.Deref(o.SendInitialEvents, false)
	if streamed {
		o.ResourceVersion = ""
	} else if l.isListDue(ctx) {
		return nil, apierrors.NewResourceExpired("the last watch broke off: a list is due")
	}
	if o.TimeoutSeconds == nil {
		o.TimeoutSeconds = ptr.To[int64](300)
	}
	if !streamed {
		l.lastWatch = nil // isListDue has examined it: after a failure here, its age would say nothing
		return l.open(ctx, o)
	}
	var w watch.Interface
	err := untilAnswered(ctx, func() (err error) {
		w, err = l.open(ctx, o)
		return err
	})
	if err == nil {
		l.listed, l.early = time.Now(), false
	}
	return w, err
}

// open opens a watch that may last as long as o says, and a grace.
func (l *ListerWatcher) open(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	s := span{start: time.Now(), timeout: time.Duration(*o.TimeoutSeconds) * time.Second}
	ctx, cancel := context.WithTimeout(ctx, s.timeout+grace)
	l.mu.Lock()
	l.stop = cancel
	l.mu.Unlock()
	if l.due.Load() { // Again was called after isListDue
		cancel()
	}
	w, err := l.inner.WatchWithContext(ctx, o)
	if err != nil {
		cancel()
		return nil, notRetriable(err)
	}
	l.lastWatch = &s
	return &cancelled{w, cancel}, nil
}

// isListDue returns whether the last watch ended in a way that hides a restored API server. It is called right after
// the end.
func (l *ListerWatcher) isListDue(ctx context.Context) bool {
	if l.due.Load() {
		return true
	}
	if l.lastWatch == nil {
		return false
	}
	lasted := time.Since(l.lastWatch.start)
	stalled := lasted >= l.lastWatch.timeout+grace
	if stalled {
		klog.FromContext(ctx).
			Info("A watch did not end in time. Does a proxy stall it?", "lasted", lasted.Round(time.Second).String())
	}
	l.early = l.early || lasted < l.lastWatch.timeout
	return stalled || l.early && (lasted < brief || time.Since(l.listed) >= listEvery)
}

// notRetriable hides from the Reflector that a connection was refused, after which it would send the same watch again.
// It may do so only if the API server was busy.
func notRetriable(err error) error {
	if utilnet.IsConnectionRefused(err) {
		return errors.New(err.Error())
	}
	return err
}

// cancelled ends the request of a watch that is stopped.
type cancelled struct {
	watch.Interface
	cancel context.CancelFunc
}

func (c *cancelled) Stop() {
	c.Interface.Stop()
	c.cancel()
}
