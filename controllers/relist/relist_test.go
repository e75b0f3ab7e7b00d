package relist

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

// server is an API server with one ConfigMap. It records what it is asked for, and answers watches with the scripted
// errors first.
type server struct {
	lists   Lists
	asked   []string
	errs    []error
	version string
	open    *watch.RaceFreeFakeWatcher
	listing func()        // called in each list
	stall   bool          // watches end with their context only
	idle    time.Duration // after which a proxy ends each watch; 0 for never
	closed  time.Time     // when the last watch ended
	blind   time.Duration // the longest time without a watch
	away    error
	back    time.Time // until then every request gets away
}

func (s *server) List(o metav1.ListOptions) (runtime.Object, error) {
	return s.ListWithContext(context.Background(), o)
}

func (s *server) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return s.WatchWithContext(context.Background(), o)
}

func (s *server) ListWithContext(_ context.Context, o metav1.ListOptions) (runtime.Object, error) {
	s.asked = append(s.asked, "list "+o.ResourceVersion)
	if s.listing != nil {
		s.listing()
	}
	if time.Now().Before(s.back) {
		return nil, s.away
	}
	object := corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "kept", ResourceVersion: s.version}}
	return &corev1.ConfigMapList{
		ListMeta: metav1.ListMeta{ResourceVersion: s.version},
		Items:    []corev1.ConfigMap{object},
	}, nil
}

func (s *server) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	what := "watch "
	if o.SendInitialEvents != nil {
		what = "stream "
	}
	s.asked = append(s.asked, what+o.ResourceVersion)
	if time.Now().Before(s.back) {
		return nil, s.away
	}
	if len(s.errs) > 0 {
		err := s.errs[0]
		s.errs = s.errs[1:]
		if err != nil {
			return nil, err
		}
	}
	s.open = watch.NewRaceFreeFake()
	open := s.open
	if !s.closed.IsZero() {
		s.blind = max(s.blind, time.Since(s.closed))
	}
	switch {
	case s.stall:
		context.AfterFunc(ctx, open.Stop)
	case s.idle > 0:
		time.AfterFunc(s.idle, func() { s.closed = time.Now(); open.Stop() })
	default:
		end := time.AfterFunc(time.Duration(*o.TimeoutSeconds)*time.Second, open.Stop)
		context.AfterFunc(ctx, func() { end.Stop() })
	}
	return open, nil
}

// run runs an informer for d, and calls during after a minute, or after a quarter of d if that is less.
func run(t *testing.T, s *server, d time.Duration, during func()) cache.Store {
	t.Helper()
	informer := s.lists.NewInformer(s, &corev1.ConfigMap{}, 0, cache.Indexers{})
	// client-go's handler sleeps by a clock outside of the bubble.
	err := informer.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { informer.RunWithContext(ctx); close(done) }()
	first := min(time.Minute, d/4)
	time.Sleep(first)
	synctest.Wait()
	during()
	time.Sleep(d - first)
	stop()
	<-done
	return informer.GetStore()
}

// TestAWatchThatBreaksOffIsFollowedByAList whose objects replace those of the lost timeline.
func TestAWatchThatBreaksOffIsFollowedByAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{version: "90"}
		store := run(t, s, 2*time.Minute, func() {
			s.open.Add(
				&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "lost", ResourceVersion: "120"}},
			)
			synctest.Wait()
			s.version = "95" // restored, and written since
			s.open.Stop()
		})
		if want := []string{"list 0", "watch 90", "list ", "watch 95"}; !slices.Equal(s.asked, want) {
			t.Errorf("asked for %q, want %q", s.asked, want)
		}
		if keys := store.ListKeys(); !slices.Equal(keys, []string{"n/kept"}) {
			t.Errorf("the cache holds %q", keys)
		}
	})
}

// TestListsAgain lists although no watch has ended, and once more if that was asked for while a list went on.
func TestListsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{version: "90", stall: true}
		run(t, s, 2*time.Minute, func() {
			s.version = "95" // restored below the API server
			s.lists.Again()
		})
		if want := []string{"list 0", "watch 90", "list ", "watch 95"}; !slices.Equal(s.asked, want) {
			t.Errorf("asked for %q, want %q", s.asked, want)
		}
		s = &server{version: "90", stall: true}
		s.listing = func() {
			if len(s.asked) == 1 {
				s.lists.Again()
			}
		}
		run(t, s, 2*time.Minute, func() {})
		if want := []string{"list 0", "list ", "watch 90"}; !slices.Equal(s.asked, want) {
			t.Errorf("asked for %q, want %q", s.asked, want)
		}
	})
}

// TestAProxyWithAnIdleTimeout ends watches of a kind that nobody writes. No list follows each, and no event is late.
func TestAProxyWithAnIdleTimeout(t *testing.T) {
	for _, idle := range []time.Duration{time.Minute, 100 * time.Second, 4 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			s := &server{version: "90", idle: idle}
			run(t, s, 30*time.Minute, func() {})
			lists := 0
			for _, what := range s.asked {
				if strings.HasPrefix(what, "list") {
					lists++
				}
			}
			if lists < 4 || lists > 7 || s.blind > 2*time.Second {
				t.Errorf("idle timeout %v: %d lists, %v without a watch", idle, lists, s.blind)
			}
		})
	}
}

// TestARestoreBehindALoadBalancer, which opens the next watch before its API server is restored, too: a list follows at
// the end of that watch, though it ends in time.
func TestARestoreBehindALoadBalancer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{version: "120"}
		run(t, s, 13*time.Minute, func() {
			s.version = "95"
			s.open.Stop()
		})
		if len(s.asked) < 4 || !slices.Equal(s.asked[:4], []string{"list 0", "watch 120", "watch 120", "list "}) {
			t.Errorf("asked for %q", s.asked)
		}
	})
}

// TestAWatchThatEndsInTimeContinues without a list.
func TestAWatchThatEndsInTimeContinues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{version: "90"}
		run(t, s, 25*time.Minute, func() {
			s.open.Add(
				&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "new", ResourceVersion: "120"}},
			)
		})
		if len(s.asked) < 4 || s.asked[1] != "watch 90" {
			t.Fatalf("asked for %q", s.asked)
		}
		for _, what := range s.asked[2:] {
			if what != "watch 120" {
				t.Errorf("asked for %q", what)
			}
		}
	})
}

// TestAWatchThatCannotBeOpenedIsFollowedByAList, unless the API server is busy.
func TestAWatchThatCannotBeOpenedIsFollowedByAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			err  error
			list bool
		}{
			"connection refused": {errRefused, true},
			"timeout":            {context.DeadlineExceeded, true},
			"unavailable":        {apierrors.NewServiceUnavailable("it starts"), true},
			"busy":               {apierrors.NewTooManyRequests("later", 1), false},
		} {
			s := &server{version: "90", errs: []error{c.err}}
			run(t, s, 2*time.Minute, func() {})
			want := []string{"list 0", "watch 90", "watch 90"}
			if c.list {
				want = slices.Insert(want, 2, "list ")
			}
			if !slices.Equal(s.asked, want) {
				t.Errorf("%s: asked for %q, want %q", name, s.asked, want)
			}
		}
	})
}

// TestABusyAPIServerIsAskedForTheSameWatch for as long as it is busy after a watch that ended in time.
func TestABusyAPIServerIsAskedForTheSameWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{version: "90", errs: []error{nil}}
		for range 8 { // with the Reflector's pauses, more than a minute
			s.errs = append(s.errs, apierrors.NewTooManyRequests("later", 1))
		}
		run(t, s, 25*time.Minute, func() {})
		if len(s.errs) > 0 || len(s.asked) < 11 {
			t.Fatalf("asked for %q", s.asked)
		}
		for _, what := range s.asked[1:] {
			if what != "watch 90" {
				t.Errorf("asked for %q", s.asked)
				break
			}
		}
	})
}

// TestAStalledWatchEnds half a minute after it should have ended, and a list follows.
func TestAStalledWatchEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{version: "90", stall: true}
		run(t, s, 11*time.Minute, func() {})
		if len(s.asked) < 4 || !slices.Equal(s.asked[:4], []string{"list 0", "watch 90", "list ", "watch 90"}) {
			t.Errorf("asked for %q", s.asked)
		}
	})
}

// TestAStreamedListAsksForTheNewestState.
func TestAStreamedListAsksForTheNewestState(t *testing.T) {
	s := &server{version: "90"}
	l := New(s)
	o := metav1.ListOptions{ResourceVersion: "120", SendInitialEvents: ptr.To(true)}
	w, err := l.Watch(o)
	if err != nil {
		t.Fatal(err)
	}
	w.Stop()
	if _, err := l.Watch(metav1.ListOptions{ResourceVersion: "130"}); !apierrors.IsResourceExpired(err) {
		t.Errorf("after a streamed list that broke off, a watch got %v", err)
	}
	if _, err := l.Watch(o); err != nil {
		t.Error(err)
	}
	if got := strings.Join(s.asked, ", "); got != "stream , stream " {
		t.Errorf("asked for %q", got)
	}
}

var (
	errRefused   = fmt.Errorf("dial: %w", syscall.ECONNREFUSED)
	errForbidden = apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "", errors.New("no"))
)

// TestAListIsTriedUntilItIsAnswered, at least every twelve seconds, and so is a streamed one.
func TestAListIsTriedUntilItIsAnswered(t *testing.T) {
	for name, err := range map[string]error{
		"connection refused": errRefused,
		"timeout":            context.DeadlineExceeded,
		"unavailable":        apierrors.NewServiceUnavailable("it starts"),
		"busy":               apierrors.NewTooManyRequests("later", 1),
	} {
		for _, streamed := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				s := &server{version: "90", back: time.Now().Add(10 * time.Minute), away: err}
				l := New(s)
				var failed error
				if streamed {
					_, failed = l.Watch(metav1.ListOptions{SendInitialEvents: ptr.To(true)})
				} else {
					_, failed = l.List(metav1.ListOptions{})
				}
				if late := time.Since(s.back); failed != nil || late < 0 || late > 12*time.Second {
					t.Errorf("%s, streamed %t: got %v, %v after the API server was back", name, streamed, failed, late)
				}
				if len(s.asked) > 100 {
					t.Errorf("%s, streamed %t: it was tried %d times within 10 minutes", name, streamed, len(s.asked))
				}
			})
		}
	}
}

// TestAListEndsWithItsContext while no API server answers.
func TestAListEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		ctx, stop := context.WithTimeout(t.Context(), 4*time.Second)
		defer stop()
		l := New(&server{back: began.Add(time.Hour), away: errRefused})
		if _, err := l.ListWithContext(ctx, metav1.ListOptions{}); err == nil || time.Since(began) != 4*time.Second {
			t.Errorf("got %v after %v", err, time.Since(began))
		}
	})
}

// TestAListThatWasRefusedLeavesAListDue.
func TestAListThatWasRefusedLeavesAListDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{version: "90"}
		l := New(s)
		w, err := l.Watch(metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		w.Stop()
		s.back, s.away = time.Now().Add(time.Hour), errForbidden
		if _, err := l.List(metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			t.Fatal(err)
		}
		if _, err := l.Watch(metav1.ListOptions{}); !apierrors.IsResourceExpired(err) {
			t.Errorf("got %v", err)
		}
	})
}
