package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	decide "github.com/clusterset-dns/clusterset-dns/controllers/decide/health"
	"github.com/clusterset-dns/clusterset-dns/controllers/health"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
	"github.com/clusterset-dns/clusterset-dns/controllers/membership"
)

// unsynced is a cache that never syncs, and tells what it is asked for.
type unsynced struct {
	cache.Cache
	asked chan string
}

func (u unsynced) GetInformer(
	ctx context.Context, o client.Object, opts ...cache.InformerGetOption,
) (cache.Informer, error) {
	select {
	case u.asked <- fmt.Sprintf("%T", o):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	var how cache.InformerGetOptions
	for _, set := range opts {
		set(&how)
	}
	if how.BlockUntilSynced != nil && !*how.BlockUntilSynced {
		return nil, nil
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

// eager is a manager that runs a controller at once, and does nothing else until that waits for the caches of as many
// watches as are next.
type eager struct {
	manager.Manager
	ctx   context.Context
	local unsynced
	next  []int
	added chan []string // what each waits for
	ended sync.WaitGroup
}

func (e *eager) GetCache() cache.Cache { return e.local }
func (e *eager) GetAPIReader() client.Reader {
	return fake.NewClientBuilder().WithScheme(Scheme()).Build()
}

func (e *eager) GetControllerOptions() config.Controller {
	again := true // of a controller's name
	return config.Controller{SkipNameValidation: &again}
}

func (e *eager) Add(r manager.Runnable) error {
	e.ended.Go(func() { _ = r.Start(e.ctx) }) // it ends with the test
	var waits []string
	for range e.next[0] {
		select {
		case kind := <-e.local.asked:
			waits = append(waits, kind)
		case <-time.After(2 * time.Minute):
			return fmt.Errorf("it runs with watches of %v alone", waits)
		}
	}
	e.next = e.next[1:]
	slices.Sort(waits)
	e.added <- waits
	return nil
}

// TestControllersRunWithAllTheirWatches, and those that need the hub while this cluster's caches
// sync: a Lease renewal waits for none of them.
func TestControllersRunWithAllTheirWatches(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	asked := make(chan string)
	mgr := &eager{ctx: ctx, local: unsynced{asked: asked}, next: []int{1, 1, 3}, added: make(chan []string, 3)}
	defer mgr.ended.Wait()
	defer end()
	none := func(context.Context, client.Object) []reconcile.Request { return nil }
	idle := reconcile.Func(
		func(context.Context, reconcile.Request) (reconcile.Result, error) { return reconcile.Result{}, nil },
	)
	a := &Agent{mgr: mgr, started: map[string]controller.Controller{}, list: []kube.Controller{
		{Name: "import", Reconciler: idle, Watches: []kube.Watch{
			{
				Side:     kube.Local,
				Object:   &mcsv1beta1.ServiceImport{},
				Requests: none,
			},
			{Side: kube.Hub, Object: &hubv1alpha1.EndpointPage{}, Requests: none},
		}},
		{
			Name:       "beat",
			Reconciler: idle,
			NeedsHub:   true,
			Watches:    []kube.Watch{{Side: kube.Hub, Object: &coordinationv1.Lease{}, Requests: none}},
		},
		{Name: "export", Reconciler: idle, NeedsHub: true, Watches: []kube.Watch{
			{
				Side:     kube.Local,
				Object:   &mcsv1beta1.ServiceExport{},
				Requests: none,
			},
			{Side: kube.Local, Object: &discoveryv1.EndpointSlice{}, Requests: none},
			{Side: kube.Hub, Object: &hubv1alpha1.EndpointPage{}, Requests: none},
		}},
	}}
	done := make(chan error, 1)
	go func() {
		err := a.start(a.list[0], nil)
		if err == nil {
			err = a.attach(unsynced{asked: asked})
		}
		done <- err
	}()
	for _, want := range []string{"[*v1beta1.ServiceImport]", "[*v1.Lease]", "[*v1.EndpointSlice *v1alpha1.EndpointPage *v1beta1.ServiceExport]"} {
		select {
		case got := <-mgr.added:
			if fmt.Sprint(got) != want {
				t.Errorf("a controller runs and waits for %v, want %s", got, want)
			}
		case err := <-done:
			t.Fatalf("before one with %s runs: %v", want, err)
		case <-time.After(5 * time.Minute):
			t.Fatalf("one with %s waits for this cluster's caches", want)
		}
	}
}

// TestCachesFillSideBySide, all that are read from the start and the optional ones: none waits until another has
// synced.
func TestCachesFillSideBySide(t *testing.T) {
	asked := make(chan string, 10)
	mgr := &eager{local: unsynced{asked: asked}}
	list, err := optionals(mgr.GetAPIReader(), &rest.Config{}, false)
	if err != nil {
		t.Fatal(err)
	}
	a := &Agent{mgr: mgr, optional: list[:len(list)-1], absent: map[string]error{}}
	a.list = []kube.Controller{{Watches: []kube.Watch{
		{
			Side:   kube.Local,
			Object: &mcsv1beta1.ServiceImport{},
		},
		{Side: kube.Hub, Object: &hubv1alpha1.EndpointPage{}},
		{Side: kube.Local, Object: &networkingv1.ServiceCIDR{}, Optional: true},
		{Side: kube.Local, Object: &discoveryv1.EndpointSlice{}},
	}}}
	for name, step := range map[string]func(context.Context) error{
		"[*v1beta1.ServiceImport *v1.EndpointSlice]": a.warm, "[*v1.ServiceCIDR *v1.IPAddress]": a.checkOptional,
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		if err := step(ctx); err != nil {
			t.Errorf("%s: it waits for a cache: %v", name, err)
		}
		var got []string
		for len(asked) > 0 {
			got = append(got, <-asked)
		}
		if fmt.Sprint(got) != name {
			t.Errorf("caches of %v fill, want %s", got, name)
		}
	}
}

// TestWhatHasChangedOfAFirstListGoesAhead of the rest of it, as a change of now does.
func TestWhatHasChangedOfAFirstListGoesAhead(t *testing.T) {
	queue := priorityqueue.New[reconcile.Request]("ahead")
	defer queue.ShutDown()
	asks := ahead{
		handler.EnqueueRequestsFromMapFunc(kube.Named(client.ObjectKeyFromObject)),
		func(_ context.Context, o client.Object) bool { return o.GetName() == "changed" },
	}
	for _, name := range []string{"a", "changed", "b"} {
		record := &hubv1alpha1.EndpointPage{}
		record.Namespace, record.Name = "prod", name
		asks.Create(t.Context(), event.CreateEvent{Object: record, IsInInitialList: true}, queue)
	}
	var order []string
	for range 3 {
		req, _ := queue.Get()
		order = append(order, req.Name)
		queue.Done(req)
	}
	if fmt.Sprint(order) != "[changed a b]" {
		t.Errorf("looked at in the order %v", order)
	}
}

// TestAnAttemptThatTakesTooLongIsReported: the Membership states why this cluster is no member, though the attempt has
// used up its time.
func TestAnAttemptThatTakesTooLongIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithTimeout(t.Context(), 2*time.Hour)
		defer end()
		local := fake.NewClientBuilder().WithScheme(Scheme()).WithStatusSubresource(&hubv1alpha1.Membership{}).Build()
		a := &Agent{log: logr.Discard()}
		a.gate = &membership.Gate{Cluster: "east", Local: local, Hub: func(context.Context) (client.Client, error) {
			time.Sleep(time.Hour)
			return nil, errors.New("no answer")
		}}
		a.health = health.New(health.Config{
			LocalNow: local, Hub: func() client.Client { return nil },
			Seen:   func() (f decide.Facts) { a.seen.do(func(s *seen) { f.Answer = s.answer }); return f },
			Rights: func(context.Context) (here, onHub []string, _ error) { return nil, nil, nil }, Now: time.Now,
		})
		go a.health.Run(ctx)
		_ = a.enter(ctx) // it ends with ctx
		var m hubv1alpha1.Membership
		err := local.Get(t.Context(), client.ObjectKey{Name: hubv1alpha1.MembershipName}, &m)
		reported := meta.FindStatusCondition(m.Status.Conditions, hubv1alpha1.ConditionHubReachable)
		if err != nil || reported == nil || reported.Status != "False" {
			t.Errorf("%+v, %v", m, err)
		}
	})
}

// enterForAMinute has the agent try to enter a clusterset without a hub.
func (a *Agent) enterForAMinute(t *testing.T, local client.Client) {
	a.health = health.New(health.Config{
		LocalNow: local, Hub: func() client.Client { return nil }, Now: time.Now,
		Seen:   func() decide.Facts { return decide.Facts{} },
		Rights: func(context.Context) (here, onHub []string, _ error) { return nil, nil, nil },
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_ = a.enter(ctx) // it ends with ctx
}

// TestTheHubAnswersWhatItIsAsked: what this cluster lacks for its membership is no answer of the hub.
func TestTheHubAnswersWhatItIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		id := &aboutv1beta1.ClusterProperty{}
		id.Name, id.Spec.Value = clusterset.PropertyID, "west"
		local := fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(id).Build()
		a := &Agent{log: logr.Discard(), gate: &membership.Gate{Cluster: "east", Given: true, Local: local}}
		a.enterForAMinute(t, local)
		if a.seen.answer != nil || a.seen.notMember == nil {
			t.Errorf("the hub's answer is %v; not admitted because of %v", a.seen.answer, a.seen.notMember)
		}
	})
}

// TestALeaveWithoutAHubIsNoAnswerOfIt.
func TestALeaveWithoutAHubIsNoAnswerOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := &aboutv1beta1.ClusterProperty{}
		set.Name, set.Spec.Value = clusterset.PropertySet, "prod"
		set.Annotations = map[string]string{clusterset.AnnotationLeaving: clusterset.LeavingForced}
		local := fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(set).Build()
		a := &Agent{log: logr.Discard()}
		a.gate = &membership.Gate{Cluster: "east", Local: local, Now: time.Now,
			Hub: func(context.Context) (client.Client, error) { return nil, errors.New("no answer") }}
		a.enterForAMinute(t, local)
		if a.seen.answer != nil || a.seen.accepted || !errors.Is(a.seen.notMember, membership.ErrLeft) {
			t.Errorf("the hub's answer is %v; not admitted because of %v", a.seen.answer, a.seen.notMember)
		}
	})
}
