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
	"k8s.io/apimachinery/pkg/api/meta"
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
