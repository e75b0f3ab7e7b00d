package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// recorded is an API server's part in recording Events.
type recorded chan string

func (s recorded) Create(_ context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	s <- "new: " + e.Note
	return e, nil
}

func (s recorded) Update(_ context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	return e, nil
}

func (s recorded) Patch(_ context.Context, e *eventsv1.Event, _ []byte) (*eventsv1.Event, error) {
	s <- fmt.Sprintf("%d times: %s", e.Series.Count, e.Note)
	return e, nil
}

// TestEventsWithDifferentNotesAreAllSeen: the real broadcaster, which joins Events into series.
func TestEventsWithDifferentNotesAreAllSeen(t *testing.T) {
	seen := make(recorded, 10)
	broadcaster := events.NewBroadcaster(seen)
	defer broadcaster.Shutdown()
	if err := broadcaster.StartRecordingToSinkWithContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	to := recorder{broadcaster.NewRecorder(scheme, Manager)}
	service := func(version string) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", ResourceVersion: version}}
	}
	for _, step := range []struct {
		about      runtime.Object
		note, want string
	}{
		{System(), "Cluster east is silent.", "new: Cluster east is silent."},
		{System(), "Cluster west is silent.", "new: Cluster west is silent."},
		{System(), "Cluster east is silent.", "2 times: Cluster east is silent."},
		{service("1"), "Ports differ.", "new: Ports differ."},
		{service("2"), "Ports differ.", "2 times: Ports differ."}, // it has changed meanwhile
	} {
		to.Event(step.about, Warning, "SourceExpired", step.note)
		select {
		case got := <-seen:
			if got != step.want {
				t.Errorf("the API server sees %q, want %q", got, step.want)
			}
		case <-time.After(2 * time.Minute):
			t.Fatalf("the API server does not see %q", step.note)
		}
	}
}

func TestNotesAreBoundedInKind(t *testing.T) {
	kinds := map[string]bool{}
	for i := range 10_000 {
		kinds[action(fmt.Sprint(i))] = true
	}
	if len(kinds) > 64 || len(kinds) < 60 {
		t.Errorf("10,000 notes make %d kinds of Event", len(kinds))
	}
}

// TestOtherWritersAreNoErrors: a conflict is another pass, later each time; anything else is an error.
func TestOtherWritersAreNoErrors(t *testing.T) {
	var fails error
	c := Controller{
		Reconciler: reconcile.Func(
			func(context.Context, reconcile.Request) (reconcile.Result, error) { return reconcile.Result{}, fails },
		),
	}
	r := c.Options().Reconciler
	kind := schema.GroupResource{Resource: "services"}
	var last time.Duration
	for _, fails = range []error{
		apierrors.NewConflict(kind, "web", nil), apierrors.NewAlreadyExists(kind, "web"),
		apierrors.NewConflict(kind, "web", nil),
	} {
		res, err := r.Reconcile(t.Context(), reconcile.Request{})
		if err != nil || res.RequeueAfter <= last {
			t.Errorf("%v: again after %v (before: %v), error %v", fails, res.RequeueAfter, last, err)
		}
		last = res.RequeueAfter
	}
	fails = errors.New("no space")
	if _, err := r.Reconcile(t.Context(), reconcile.Request{}); !errors.Is(err, fails) {
		t.Errorf("the error is %v", err)
	}
	fails = apierrors.NewConflict(kind, "web", nil)
	if res, err := r.Reconcile(t.Context(), reconcile.Request{}); err != nil || res.RequeueAfter >= last {
		t.Errorf("after an error, again after %v, error %v", res.RequeueAfter, err)
	}
}

// unsynced is a watch whose first list takes until ctx ends.
type unsynced struct{}

func (unsynced) Start(context.Context, workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	return nil
}

func (unsynced) WaitForSync(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestASlowFirstListEndsNoProcessSoon: a controller that ends ends its manager, and the heartbeat with it. The kubelet
// forgets earlier restarts of a container that ran for ten minutes.
func TestASlowFirstListEndsNoProcessSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := Controller{Reconciler: reconcile.Func(
			func(context.Context, reconcile.Request) (reconcile.Result, error) { return reconcile.Result{}, nil },
		)}.Options()
		o.SkipNameValidation = new(true) // go test -count
		c, err := controller.NewUnmanaged("slow", o)
		if err == nil {
			err = c.Watch(unsynced{})
		}
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		err = c.Start(t.Context())
		if ran := time.Since(began); ran != 10*time.Minute || err == nil {
			t.Errorf("it ended after %v: %v", ran, err)
		}
	})
}

// TestWhatFailsInAStartIsTriedAgainSoon, and ever less often while it lasts; one reason is said once.
func TestWhatFailsInAStartIsTriedAgainSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		said := 0
		logger := funcr.New(func(_, _ string) { said++ }, funcr.Options{})
		began := time.Now()
		var at []time.Duration
		err := Await(ctx, logger, "it", time.Second, func(context.Context) error {
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
