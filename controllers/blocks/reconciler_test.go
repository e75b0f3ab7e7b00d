package blocks

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// rig is a hub in memory, and the controller beside it.
type rig struct {
	t      *testing.T
	hub    client.Client
	events []string
	writes int
	// before runs ahead of the controller's next write.
	before     func()
	clock      time.Time
	controller reconcile.Reconciler
}

func (r *rig) Event(about runtime.Object, _, reason, message string) {
	r.events = append(r.events, fmt.Sprintf("%s %s: %s", about.(client.Object).GetName(), reason, message))
}

func newRig(t *testing.T, objects ...client.Object) *rig {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{coordinationv1.AddToScheme, hubv1alpha1.AddToScheme,
		inventoryv1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	r := &rig{t: t, clock: time.Unix(1_700_000_000, 0)}
	r.hub = fake.NewClientBuilder().
		WithScheme(s).
		WithObjects(objects...).
		WithStatusSubresource(&hubv1alpha1.ClusterSet{}, &inventoryv1alpha1.ClusterProfile{}).
		WithInterceptorFuncs(interceptor.Funcs{SubResourcePatch: func(ctx context.Context, c client.Client,
			sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			if before := r.before; before != nil {
				r.before = nil
				before()
			}
			r.writes++
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		}}).
		Build()
	r.restart()
	return r
}

func (r *rig) restart() {
	r.controller = New(kube.HubEnv{
		Namespace: "set", Now: func() time.Time { return r.clock }, Events: r, Hub: r.hub, Live: r.hub,
	}).Reconciler
}

func (r *rig) pass() (reconcile.Result, error) {
	return r.controller.Reconcile(r.t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "set"}})
}

// settle runs it until it writes nothing.
func (r *rig) settle() {
	r.t.Helper()
	for range 10 {
		before := r.writes
		if _, err := r.pass(); err != nil {
			r.t.Fatal(err)
		}
		if r.writes == before {
			return
		}
	}
	r.t.Fatal("it does not settle")
}

func (r *rig) set() *hubv1alpha1.ClusterSet {
	r.t.Helper()
	set := &hubv1alpha1.ClusterSet{}
	if err := r.hub.Get(r.t.Context(), client.ObjectKey{Namespace: "set", Name: "set"}, set); err != nil {
		r.t.Fatal(err)
	}
	return set
}

func (r *rig) has(want ...string) {
	r.t.Helper()
	var got []string
	for _, b := range r.set().Status.Blocks {
		got = append(got, b.ClusterID+" "+b.CIDR)
	}
	if !slices.Equal(got, want) {
		r.t.Errorf("blocks %q, want %q", got, want)
	}
}

// granted returns the condition BlocksGranted, as reason: message.
func (r *rig) granted() string {
	r.t.Helper()
	c := meta.FindStatusCondition(r.set().Status.Conditions, hubv1alpha1.ConditionBlocksGranted)
	if c == nil {
		return ""
	}
	return c.Reason + ": " + c.Message
}

func clusterSet(pools ...string) *hubv1alpha1.ClusterSet {
	s := &hubv1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Namespace: "set", Name: "set", Generation: 1}}
	s.Spec.VIPs = hubv1alpha1.VIPs{
		Mode:   hubv1alpha1.VIPModePreferred,
		Pools:  pools,
		Blocks: hubv1alpha1.BlockSize{IPv4Bits: 24, IPv6Bits: 112},
	}
	return s
}

func profile(id string, properties ...inventoryv1alpha1.Property) *inventoryv1alpha1.ClusterProfile {
	p := &inventoryv1alpha1.ClusterProfile{
		ObjectMeta: metav1.ObjectMeta{Namespace: "set", Name: id, UID: types.UID("uid-of-" + id)},
	}
	p.Spec.ClusterManager.Name = clusterset.ClusterManager
	p.Status.Properties = append(
		properties, inventoryv1alpha1.Property{Name: clusterset.PropertyServiceRanges, Value: "10.96.0.0/12"},
	)
	return p
}

func wants(n int) inventoryv1alpha1.Property {
	return inventoryv1alpha1.Property{
		Name:  clusterset.PropertyBlocks,
		Value: clusterset.BlocksWanted{IPv4: n}.String(),
	}
}

// What departed writes meanwhile is not lost: the API server refuses the write of whoever has not seen it.
func TestV2ADepartureIsNotOverwritten(t *testing.T) {
	r := newRig(t, clusterSet("10.200.0.0/16"), profile("east"))
	r.before = func() {
		set := r.set()
		set.Status.Departed = []hubv1alpha1.Departure{{ClusterID: "gone", At: metav1.NewTime(r.clock)}}
		if err := r.hub.Status().Update(t.Context(), set); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.pass(); !apierrors.IsConflict(err) {
		t.Fatalf("it wrote over what it had not seen: %v", err)
	}
	r.settle()
	r.has("east 10.200.0.0/24")
	if d := r.set().Status.Departed; len(d) != 1 || d[0].ClusterID != "gone" {
		t.Errorf("departed: %v", d)
	}
}

// Another process goes on from the status, and has nothing to write.
func TestV2GrantsAreRebuiltFromTheAPI(t *testing.T) {
	r := newRig(t, clusterSet("10.200.0.0/16", "fd00:c5::/48"), profile("east"), profile("west", wants(2)))
	r.settle()
	want := []string{"east 10.200.0.0/24", "east fd00:c5::/112", "west 10.200.1.0/24", "west 10.200.2.0/24"}
	r.has(want...)
	writes := r.writes
	r.restart()
	r.settle()
	r.has(want...)
	if r.writes != writes {
		t.Error("a settled state was written")
	}
}

// claimed is a member's whose cluster uses it.
func claimed(id string) *inventoryv1alpha1.ClusterProfile {
	p := profile(id)
	p.Annotations = map[string]string{clusterset.AnnotationClusterUID: "uid"}
	return p
}

// TestV2ARestoredHubGrantsNothingTwice: what the backup does not know is not another's before members could tell
// whose it is.
func TestV2ARestoredHubGrantsNothingTwice(t *testing.T) {
	for name, start := range map[string]func(r *rig){
		"the program saw it": func(*rig) {},
		"and who lost its block had left once, and joined again": func(r *rig) {
			set := r.set()
			set.Status.Departed = []hubv1alpha1.Departure{{ClusterID: "west",
				At: metav1.NewTime(r.clock.Add(-time.Hour))}}
			if err := r.hub.Status().Update(t.Context(), set); err != nil {
				t.Fatal(err)
			}
		},
		"the program started on it": func(r *rig) { r.restart() },
		"and again while it waited": func(r *rig) {
			r.restart()
			r.settle()
			r.clock = r.clock.Add(10 * time.Second)
			r.restart()
		},
	} {
		r := newRig(t, clusterSet("10.200.0.0/16"), claimed("east"), claimed("west"))
		r.settle()
		r.clock = r.clock.Add(reportTimeout)
		r.settle()
		r.has("east 10.200.0.0/24", "west 10.200.1.0/24")
		set := r.set()
		set.Status.Blocks = set.Status.Blocks[:1] // west has the other one
		if err := r.hub.Status().Update(t.Context(), set); err != nil {
			t.Fatal(err)
		}
		if err := r.hub.Create(t.Context(), profile("a.new", wants(1))); err != nil {
			t.Fatal(err)
		}
		start(r)
		r.settle()
		r.has("east 10.200.0.0/24")
		if said := r.granted(); !strings.HasPrefix(said, "Waiting: ") {
			t.Errorf("%s: %s", name, said)
		}
		r.clock = r.clock.Add(reportTimeout - 3*time.Second)
		again, err := r.pass()
		if err != nil || again.RequeueAfter <= 0 || again.RequeueAfter > 3*time.Second {
			t.Errorf("%s: %v, again after %s", name, err, again.RequeueAfter)
		}
		r.has("east 10.200.0.0/24")
		west := &inventoryv1alpha1.ClusterProfile{}
		if err := r.hub.Get(t.Context(), client.ObjectKeyFromObject(profile("west")), west); err != nil {
			t.Fatal(err)
		}
		west.Status.Properties[0].Value += " 10.200.1.0/24" // by its ServiceCIDR
		if err := r.hub.Status().Update(t.Context(), west); err != nil {
			t.Fatal(err)
		}
		r.clock = r.clock.Add(3 * time.Second)
		r.settle()
		r.has("east 10.200.0.0/24", "a.new 10.200.2.0/24", "west 10.200.3.0/24")
		if said := r.granted(); !strings.HasPrefix(said, "Granted: ") {
			t.Errorf("%s: %s", name, said)
		}
	}
}

// TestV2ACacheThatLagsIsNoRestore: what it does not show yet was not lost, and the next member does not wait.
func TestV2ACacheThatLagsIsNoRestore(t *testing.T) {
	r := newRig(t, clusterSet("10.200.0.0/16"), profile("east"))
	before := r.set()
	r.settle()
	c := r.controller.(*reconciler)
	c.Hub = interceptor.NewClient(r.hub.(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if sets, ok := list.(*hubv1alpha1.ClusterSetList); ok {
				sets.Items = []hubv1alpha1.ClusterSet{*before}
				return nil
			}
			return c.List(ctx, list, opts...)
		},
	})
	if _, err := r.pass(); !apierrors.IsConflict(err) {
		t.Fatalf("it wrote over what it had not seen: %v", err)
	}
	c.Hub = r.hub
	if err := r.hub.Create(t.Context(), profile("west")); err != nil {
		t.Fatal(err)
	}
	r.settle()
	r.has("east 10.200.0.0/24", "west 10.200.1.0/24")
}

// Full, then a pool is added: without anybody's help.
func TestV2PoolsThatFillUpRecover(t *testing.T) {
	r := newRig(t, clusterSet("10.200.0.0/24"), profile("east"), profile("west"))
	r.settle()
	r.has("east 10.200.0.0/24")
	want := "PoolsFull: west: range is full: no block of /24 is free in the pools of IPv4; add a pool"
	if said := r.granted(); !strings.HasPrefix(said, want) {
		t.Errorf("it says %s, want %s", said, want)
	}
	set := r.set()
	set.Spec.VIPs.Pools = append(set.Spec.VIPs.Pools, "10.201.0.0/16")
	if err := r.hub.Update(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	r.settle()
	r.has("east 10.200.0.0/24", "west 10.201.0.0/24")
	if said := r.granted(); !strings.HasPrefix(said, "Granted: ") {
		t.Error(said)
	}
}

// A block is nobody's only when its owner has departed and its ClusterProfile, which the clean-up keeps, is gone.
func TestV2BlocksStayWhileAnythingIsLeft(t *testing.T) {
	set := clusterSet("10.200.0.0/24")
	set.Status.Blocks = []hubv1alpha1.Block{{ClusterID: "a.gone", CIDR: "10.200.0.0/24"}}
	gone := profile("a.gone")
	r := newRig(t, gone, set, profile("east"))
	r.settle()
	r.has("a.gone 10.200.0.0/24")
	if err := r.hub.Delete(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	r.settle()
	r.has("a.gone 10.200.0.0/24") // absence is no departure
	gone = profile("a.gone")
	gone.Finalizers = []string{clusterset.FinalizerRecords}
	if err := r.hub.Create(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	noted := r.set()
	noted.Status.Departed = []hubv1alpha1.Departure{{ClusterID: "a.gone", At: metav1.NewTime(r.clock)}}
	if err := r.hub.Status().Update(t.Context(), noted); err != nil {
		t.Fatal(err)
	}
	r.settle()
	r.has("a.gone 10.200.0.0/24") // it departed once, and is a member again
	if err := r.hub.Delete(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	r.settle()
	r.has("a.gone 10.200.0.0/24") // something of it is left
	cleaned := &inventoryv1alpha1.ClusterProfile{}
	if err := r.hub.Get(t.Context(), client.ObjectKeyFromObject(gone), cleaned); err != nil {
		t.Fatal(err)
	}
	cleaned.Finalizers = nil
	if err := r.hub.Update(t.Context(), cleaned); err != nil {
		t.Fatal(err)
	}
	if _, err := r.pass(); err != nil {
		t.Fatal(err)
	}
	r.has() // for one write it is nobody's
	r.settle()
	r.has("east 10.200.0.0/24")
}

// A member that changes its mind all day costs its neighbours a write a second at most.
func TestV2AFlappingMemberIsDamped(t *testing.T) {
	r := newRig(t, clusterSet("10.200.0.0/24"), profile("east"), profile("flaps"))
	r.settle()
	began, writes := r.clock, r.writes
	for n := range 500 {
		r.clock = began.Add(time.Duration(n) * 100 * time.Millisecond)
		p := profile("flaps", wants(n%2))
		current := &inventoryv1alpha1.ClusterProfile{}
		if err := r.hub.Get(t.Context(), client.ObjectKeyFromObject(p), current); err != nil {
			t.Fatal(err)
		}
		current.Status = p.Status
		if err := r.hub.Status().Update(t.Context(), current); err != nil {
			t.Fatal(err)
		}
		if _, err := r.pass(); err != nil {
			t.Fatal(err)
		}
	}
	if n := r.writes - writes; n > 50+writeBurst || n < 40 {
		t.Errorf("%d writes in 50 s", n)
	}
}

func TestV2WithoutOneClusterSetNothingIsGranted(t *testing.T) {
	second := clusterSet("10.200.0.0/16")
	second.Name = "second"
	for _, sets := range [][]client.Object{{}, {clusterSet("10.200.0.0/16"), second}} {
		r := newRig(t, append(sets, profile("east"))...)
		if _, err := r.pass(); err != nil || r.writes > 0 {
			t.Errorf("%d writes: %v", r.writes, err)
		}
		if want := len(sets); len(r.events) != want ||
			want > 0 && !strings.Contains(strings.Join(r.events, " "), "second MultipleClusterSets") {
			t.Errorf("%d ClusterSets: %q", len(sets), r.events)
		}
	}
}
