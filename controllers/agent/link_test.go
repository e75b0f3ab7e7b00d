package agent

import (
	"context"
	"errors"
	"reflect"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
)

// come is an informer that has come to a resourceVersion.
type come struct {
	toolscache.SharedIndexInformer
	to string
}

func (c come) LastSyncResourceVersion() string { return c.to }

// TestPositionIsOfWhatHubShows: while the hub is read anew the old cache stays, and how far the new one's watches have come says nothing of it.
func TestPositionIsOfWhatHubShows(t *testing.T) {
	kind := &hubv1alpha1.EndpointRecord{}
	of := func(version string) *watches {
		w := &watches{}
		w.Store(reflect.TypeOf(kind), come{to: version})
		return w
	}
	a, hub := &Agent{}, fake.NewFakeClient()
	at := func(want string) {
		t.Helper()
		if got := a.position(kind); got != want {
			t.Errorf("the watch has come to %q, want %q", got, want)
		}
	}
	at("")
	a.linked.Store(&linked{hub: hub, watches: of("17")})
	at("17")
	ended := false
	a.unlink(&linking{end: func() { ended = true }})
	if at(""); !ended || a.linked.Load().hub != hub {
		t.Error("the old link goes on, or what it showed is gone")
	}
	a.linked.Store(&linked{hub: hub, watches: of("18")})
	at("18")
}

// TestWhatFailsInAStartIsTriedAgainSoon, and ever less often while it lasts; one reason is said once.
func TestWhatFailsInAStartIsTriedAgainSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		said := 0
		a := &Agent{log: funcr.New(func(_, _ string) { said++ }, funcr.Options{})}
		began := time.Now()
		var at []time.Duration
		err := a.await(ctx, "it", "patience", attempt, func(context.Context) error {
			if at = append(at, time.Since(began)/time.Millisecond); len(at) == 9 {
				end()
			}
			return errors.New("busy")
		})
		want := []time.Duration{0, 100, 300, 700, 1500, 3100, 5100, 7100, 9100}
		if !slices.Equal(at, want) || said != 1 || !errors.Is(err, context.Canceled) {
			t.Errorf("tried at %d ms, want %d; said %d times; ended by %v", at, want, said, err)
		}
	})
}

// TestAWatchThatCannotGoOnIsToldOf, and of nothing else; what it shows passes.
func TestAWatchThatCannotGoOnIsToldOf(t *testing.T) {
	status := func(err *apierrors.StatusError) *metav1.Status { return &err.ErrStatus }
	var refused error
	told, shown := 0, watch.NewFakeWithChanSize(4, false)
	lw := expiring{toolscache.ToListerWatcherWithContext(&toolscache.ListWatch{WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
		return shown, refused
	}}), func() { told++ }}
	w, err := lw.WatchWithContext(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	record := &hubv1alpha1.EndpointRecord{}
	shown.Add(record)
	shown.Error(status(apierrors.NewInternalError(errors.New("it stumbled"))))
	for _, want := range []watch.EventType{watch.Added, watch.Error} {
		if e := <-w.ResultChan(); e.Type != want || want == watch.Added && e.Object != apiruntime.Object(record) || told != 0 {
			t.Errorf("shown is %v, want %s; told %d times", e, want, told)
		}
	}
	shown.Error(status(apierrors.NewResourceExpired("too old resource version: 331 (333)")))
	if e := <-w.ResultChan(); e.Type != watch.Error || told != 1 {
		t.Errorf("shown is %v; told %d times, want once", e, told)
	}
	refused = apierrors.NewResourceExpired("too old")
	if _, err := lw.WatchWithContext(t.Context(), metav1.ListOptions{}); !errors.Is(err, refused) || told != 2 {
		t.Errorf("refused with %v; told %d times, want twice", err, told)
	}
}

// TestOnlyTheLinkThatWorksExpires, and not before it has been there for a while: what ended, and what has not come yet, says nothing.
func TestOnlyTheLinkThatWorksExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &Agent{expired: make(chan struct{}, 1)}
		of, another := &watches{}, &watches{}
		expires := func(of *watches) bool {
			a.expire(of)
			select {
			case <-a.expired:
				return true
			default:
				return false
			}
		}
		if expires(of) {
			t.Error("before there is a link")
		}
		a.use(&linking{linked: &linked{watches: of, since: time.Now()}, spare: new(atomic.Bool)})
		if expires(of) {
			t.Error("at once")
		}
		time.Sleep(young)
		if expires(another) || !expires(of) {
			t.Error("it is not the link that works that expires")
		}
	})
}

// TestASpareLinksDialsAreNotThoseInUse, until it is used.
func TestASpareLinksDialsAreNotThoseInUse(t *testing.T) {
	a := &Agent{}
	for _, spare := range []bool{false, true} {
		l := &linking{linked: &linked{}, spare: new(atomic.Bool)}
		l.spare.Store(spare)
		before := a.dials.Load()
		if a.use(l); l.spare.Load() || a.linked.Load() != l.linked || (a.dials.Load() != before) != spare {
			t.Errorf("spare %v: %d connections more", spare, a.dials.Load()-before)
		}
	}
}

// TestAWatchThatIsLookedAtEnds where it is stopped with an event under way, which nobody reads any more.
func TestAWatchThatIsLookedAtEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // which waits for all that it has begun
		shown := watch.NewFakeWithChanSize(1, false)
		lw := expiring{toolscache.ToListerWatcherWithContext(&toolscache.ListWatch{WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
			return shown, nil
		}}), func() {}}
		w, err := lw.WatchWithContext(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		shown.Add(&hubv1alpha1.EndpointRecord{})
		synctest.Wait()
		w.Stop()
	})
}

// TestALinkThatEndedIsLetGo with its client and all that its caches hold, though client-go's cache of transports knows how it dialled.
func TestALinkThatEndedIsLetGo(t *testing.T) {
	let := make(chan struct{})
	func() {
		a, l := &Agent{}, &linking{spare: new(atomic.Bool)}
		cfg := &rest.Config{Host: "https://hub", Dial: a.dialing(l.spare)}
		transport, err := rest.HTTPClientFor(cfg)
		if err != nil {
			t.Fatal(err)
		}
		hub, err := client.New(cfg, client.Options{HTTPClient: transport, Mapper: meta.NewDefaultRESTMapper(nil)})
		if err != nil {
			t.Fatal(err)
		}
		l.linked = &linked{hub: hub}
		a.use(l)
		runtime.AddCleanup(l.linked, func(struct{}) { close(let) }, struct{}{})
		a.use(&linking{linked: &linked{}, spare: new(atomic.Bool)})
	}()
	for deadline := time.Now().Add(time.Minute); ; {
		runtime.GC()
		select {
		case <-let:
			return
		case <-time.After(10 * time.Millisecond): // of the collector, which runs cleanups in its own time
		}
		if time.Now().After(deadline) {
			t.Fatal("what refers to it?")
		}
	}
}
