package membership

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	externaldnsv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/externaldns/v1alpha1"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

func eachItem(list client.ObjectList, do func(client.Object)) error {
	return meta.EachListItem(list, func(o runtime.Object) error { do(o.(client.Object)); return nil })
}

// TestForcedLeavingAsksNoHub, and this cluster does not come back by itself.
func TestForcedLeavingAsksNoHub(t *testing.T) {
	w := newWorld(t)
	w.settled(t)
	w.wish(t, clusterset.LeavingForced)
	w.hubRefuses = errors.New("no such host")
	g := w.gate()
	if err := g.Enter(t.Context()); !errors.Is(err, ErrLeft) {
		t.Fatal(err)
	}
	if wrong := w.gone(t); len(wrong) > 0 || w.property(t, clusterset.PropertySet) != "" {
		t.Errorf("%v, a member of %q", wrong, w.property(t, clusterset.PropertySet))
	}
	if s := get[*corev1.Secret](t, w.local, kube.SystemNamespace, clusterset.SecretHub); len(s.Data["token"]) > 0 {
		t.Error("it knows its token still")
	}
	w.hubRefuses = nil // and it holds the claim on
	if err := g.Enter(t.Context()); !errors.Is(err, ErrLeft) {
		t.Errorf("it came back: %v", err)
	}
}

// TestAJoinEndsAForcedLeave in the process that left, once its files are those of the join: the hub may still take the
// old token.
func TestAJoinEndsAForcedLeave(t *testing.T) {
	w := newWorld(t)
	w.settled(t)
	secret := get[*corev1.Secret](t, w.local, kube.SystemNamespace, clusterset.SecretHub)
	w.token = string(secret.Data["token"])
	w.wish(t, clusterset.LeavingForced)
	g := w.gate()
	for _, refuses := range []error{errors.New("no route"), nil} { // then, only the file has a token, the old one
		if w.hubRefuses = refuses; !errors.Is(g.Enter(t.Context()), ErrLeft) ||
			w.property(t, clusterset.PropertySet) != "" {
			t.Fatal("it has not left")
		}
	}
	secret = get[*corev1.Secret](t, w.local, kube.SystemNamespace, clusterset.SecretHub)
	secret.Data["token"] = []byte("of the join")
	if err := w.local.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	old := w.token
	for _, token := range []string{w.token, ""} {
		if w.token = token; !errors.Is(g.Enter(t.Context()), ErrLeft) || w.property(t, clusterset.PropertySet) != "" {
			t.Errorf("it joined with token %q, which is not the one of the join", token)
		}
	}
	secret.Data["token"] = []byte(old)
	if err := w.local.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	if w.token = old; !errors.Is(g.Enter(t.Context()), ErrLeft) {
		t.Error("it joined with its old token, which something else than a join has restored")
	}
	secret.Data["token"] = []byte("of the join")
	if err := w.local.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	w.token = "of the join"
	if err := g.Enter(t.Context()); err != nil || w.property(t, clusterset.PropertySet) != "blue" {
		t.Errorf("%v, a member of %q", err, w.property(t, clusterset.PropertySet))
	}
}

// TestWaysOut: whoever cannot leave, or join, is told what to do.
func TestWaysOut(t *testing.T) {
	gone := apierrors.NewUnauthorized("token has expired")
	for _, c := range []struct {
		what   string
		change func(t *testing.T, w *world)
		says   string
	}{
		{"leaving, evicted before anything was withdrawn", func(t *testing.T, w *world) {
			w.settled(t)
			w.wish(t, "true")
			w.hubRefuses = gone
		}, "it was evicted"},
		{"leaving, the hub is away", func(t *testing.T, w *world) {
			w.settled(t)
			w.wish(t, "true")
			w.hubRefuses = errors.New("no route")
		}, "leave --force"},
		{"leaving, the hub is away since the withdrawal", func(t *testing.T, w *world) {
			w.settled(t)
			w.wish(t, clusterset.LeavingWithdrawn)
			w.hubRefuses = errors.New("no route")
		}, "leave --force"},
		{"another id", func(t *testing.T, w *world) { w.settled(t); w.id(t, "west") }, "restarts with the new one"},
		{"no claim", func(t *testing.T, w *world) { w.drop(t) }, "kubectl clusterset join"},
		{"no ClusterSet", func(t *testing.T, w *world) {
			set := &hubv1alpha1.ClusterSet{ObjectMeta: named("blue", "blue")}
			if err := w.hub.Delete(t.Context(), set); err != nil {
				t.Fatal(err)
			}
		}, "init --hub-context=HUB --hub-namespace=blue"},
		{"two ClusterSets", func(t *testing.T, w *world) {
			set := &hubv1alpha1.ClusterSet{ObjectMeta: named("blue", "other")}
			if err := w.hub.Create(t.Context(), set); err != nil {
				t.Fatal(err)
			}
		}, "keep one, on the hub: kubectl -n blue delete clusterset NAME"},
		{"the hub is away", func(_ *testing.T, w *world) { w.hubRefuses = errors.New("no route") }, "no route"},
	} {
		t.Run(strings.ReplaceAll(c.what, " ", "_"), func(t *testing.T) {
			w := newWorld(t)
			c.change(t, w)
			set := w.property(t, clusterset.PropertySet)
			err := w.gate().Enter(t.Context())
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want %q", err, c.says)
			}
			if got := w.property(t, clusterset.PropertySet); got != set {
				t.Errorf("membership was %q, and is %q", set, got)
			}
		})
	}
}

// TestAMemberThatTheHubDoesNotTakeKeepsWhatItHas: of a member that was evicted, or that a restored hub has
// forgotten, leaving would take the imports and VIPs; joining again does not.
func TestAMemberThatTheHubDoesNotTakeKeepsWhatItHas(t *testing.T) {
	w := newWorld(t)
	now := at
	s := &RefusalReporter{Local: w.local, Now: func() time.Time { return now }, Events: silent{}}
	gone := apierrors.NewUnauthorized("no such account")
	s.Answered(t.Context(), gone)
	now = now.Add(reportAfter)
	s.Answered(t.Context(), gone)
	told := get[*coordinationv1.Lease](t, w.local, kube.SystemNamespace,
		clusterset.LeaseRefused).Annotations[clusterset.AnnotationRefused]
	for _, said := range []string{told, ExplainRefusal(gone).Error()} {
		joins := strings.Index(said, "kubectl clusterset join --hub-context=HUB, which keeps its ID")
		leaves := strings.Index(said, "leave")
		if !strings.Contains(said, "join --renew") || joins < 0 || leaves < joins {
			t.Errorf("it says %q", said)
		}
	}
}

func (w *world) id(t *testing.T, value string) {
	t.Helper()
	id := get[*aboutv1beta1.ClusterProperty](t, w.local, "", clusterset.PropertyID)
	id.Spec.Value = value
	if err := w.local.Update(t.Context(), id); err != nil {
		t.Fatal(err)
	}
}

func (w *world) drop(t *testing.T) {
	t.Helper()
	if err := w.hub.Delete(t.Context(), get[*inventoryv1alpha1.ClusterProfile](t, w.hub, "blue", "east")); err != nil {
		t.Fatal(err)
	}
}

// TestTheFirstJoinWaitsForItsPolicy: the policy that wants an id learns of a new one by a watch, and says no until
// then.
func TestTheFirstJoinWaitsForItsPolicy(t *testing.T) {
	w := newWorld(t)
	w.membersHere = 3
	if err := w.gate().Enter(t.Context()); err != nil || w.property(t, clusterset.PropertySet) != "blue" {
		t.Errorf("%v, a member of %q", err, w.property(t, clusterset.PropertySet))
	}
}

// TestWhatWaitsForTheHubAlone: a member that has only to tell the hub does not look through its cluster again at each
// attempt. It gives the hub the time of the attempt, unless it leaves by force.
func TestWhatWaitsForTheHubAlone(t *testing.T) {
	for how, bounded := range map[string]bool{"true": false, clusterset.LeavingForced: true} {
		w := newWorld(t)
		w.settled(t)
		w.wish(t, how)
		lists, wrong := 0, false
		w.local = interceptor.NewClient(w.local.(client.WithWatch), interceptor.Funcs{
			List: func(ctx context.Context, api client.WithWatch, l client.ObjectList, o ...client.ListOption) error {
				lists++
				return api.List(ctx, l, o...)
			},
		})
		w.hub = interceptor.NewClient(w.hub.(client.WithWatch), interceptor.Funcs{
			Patch: func(ctx context.Context, _ client.WithWatch, _ client.Object, _ client.Patch,
				_ ...client.PatchOption) error {
				_, limit := ctx.Deadline()
				wrong = wrong || limit != bounded
				return errors.New("no route")
			},
		})
		g := w.gate()
		first := g.Enter(t.Context())
		once := lists
		second := g.Enter(t.Context())
		if once == 0 || lists != once || errors.Is(first, ErrLeft) != bounded || errors.Is(second, ErrLeft) != bounded {
			t.Errorf("%s: %d lists, then %d more: %v, %v", how, once, lists-once, first, second)
		}
		if wrong {
			t.Errorf("%s: a limit for the hub must be: %v", how, bounded)
		}
	}
}

// TestOnlyTheListOfRangesMayBeRefused, or of DNSEndpoints: without the right to list them, this agent has made none.
// While it may not let go of one, it has not left.
func TestOnlyTheListOfRangesMayBeRefused(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "servicecidrs"}, "vips", nil)
	for refused, fails := range map[string]bool{"": false, "list": false, "update": true, "delete": true} {
		w := newWorld(t)
		ours := &networkingv1.ServiceCIDR{ObjectMeta: named("", "vips")}
		ours.Labels = map[string]string{derived.LabelManagedBy: kube.Manager}
		ours.Finalizers = []string{clusterset.FinalizerVIPs}
		if err := w.local.Create(t.Context(), ours); err != nil {
			t.Fatal(err)
		}
		w.local = interceptor.NewClient(w.local.(client.WithWatch), interceptor.Funcs{
			List: func(ctx context.Context, api client.WithWatch, l client.ObjectList, o ...client.ListOption) error {
				switch l.(type) {
				case *networkingv1.ServiceCIDRList, *externaldnsv1alpha1.DNSEndpointList:
					if refused == "list" {
						return forbidden
					}
				}
				return api.List(ctx, l, o...)
			},
			Update: func(ctx context.Context, api client.WithWatch, o client.Object,
				opts ...client.UpdateOption) error {
				if refused == "update" {
					return forbidden
				}
				return api.Update(ctx, o, opts...)
			},
			Delete: func(ctx context.Context, api client.WithWatch, o client.Object,
				opts ...client.DeleteOption) error {
				if refused == "delete" {
					return forbidden
				}
				return api.Delete(ctx, o, opts...)
			},
		})
		if err := w.gate().Clean(t.Context()); (err != nil) != fails {
			t.Errorf("%q is refused: %v", refused, err)
		}
	}
}

// TestAnEvictedMemberLeaves: once its records are withdrawn, a hub that refuses it has done the rest.
func TestAnEvictedMemberLeaves(t *testing.T) {
	w := newWorld(t)
	w.settled(t)
	w.wish(t, clusterset.LeavingWithdrawn)
	w.drop(t)
	if err := w.gate().Enter(t.Context()); !errors.Is(err, ErrLeft) {
		t.Error(err)
	}
}

// TestID3TheClaim: who may use a ClusterProfile.
func TestID3TheClaim(t *testing.T) {
	profile := func(change func(*inventoryv1alpha1.ClusterProfile)) *inventoryv1alpha1.ClusterProfile {
		p := &inventoryv1alpha1.ClusterProfile{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{}}}
		change(p)
		return p
	}
	holder := func(uid string) func(*inventoryv1alpha1.ClusterProfile) {
		return func(p *inventoryv1alpha1.ClusterProfile) { p.Annotations[clusterset.AnnotationClusterUID] = uid }
	}
	going := metav1.NewTime(at)
	for _, c := range []struct {
		what    string
		profile *inventoryv1alpha1.ClusterProfile
		mine    bool
		says    string
	}{
		{"none", nil, false, "was evicted; run: kubectl clusterset join"},
		{"free", profile(func(*inventoryv1alpha1.ClusterProfile) {}), false, ""},
		{"mine", profile(holder("uid")), true, ""},
		{"another's", profile(holder("other")), false, "held by another cluster"},
		{"going", profile(func(p *inventoryv1alpha1.ClusterProfile) {
			p.DeletionTimestamp = &going
			holder("uid")(p)
		}), false, "is being deleted"},
		{"left", profile(func(p *inventoryv1alpha1.ClusterProfile) {
			p.Annotations[clusterset.AnnotationLeft] = "true"
			holder("uid")(p)
		}), false, "has left"},
	} {
		mine, err := isClaimed(c.profile, "east", "blue", "uid")
		if mine != c.mine || (err == nil) != (c.says == "") ||
			err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: mine %v, %v", c.what, mine, err)
		}
	}
}

// TestP3TheMirror: all properties by name, but for those that the inventory cannot hold, which are told.
func TestP3TheMirror(t *testing.T) {
	property := func(name, value string) (p aboutv1beta1.ClusterProperty) {
		p.Name, p.Spec.Value = name, value
		return p
	}
	fits, long := strings.Repeat("é", 1024), strings.Repeat("é", 1025)
	out, told, _ := mirror(
		[]aboutv1beta1.ClusterProperty{property("z", fits), property("long", long), property("a", "1")},
	)
	if len(out) != 2 || out[0].Name != "a" || out[1].Name != "z" || out[1].Value != fits || len(told) != 1 ||
		told[0].Name != "long" {
		t.Errorf("%d mirrored, %d told", len(out), len(told))
	}
}

// TestP3TheMirrorHasABound: of too many the last by name are left out, and told; what the hub goes by stays.
func TestP3TheMirrorHasABound(t *testing.T) {
	var all []aboutv1beta1.ClusterProperty
	add := func(name string) {
		var p aboutv1beta1.ClusterProperty
		p.Name, p.Spec.Value = name, "1"
		all = append(all, p)
	}
	for i := range inventoryv1alpha1.MaxProperties {
		add(fmt.Sprintf("a-%03d.example.com", i))
	}
	if out, _, over := mirror(all); len(out) != len(all) || over != 0 {
		t.Errorf("as many as there may be: %d mirrored, %d too many", len(out), over)
	}
	ours := []string{clusterset.PropertyID, clusterset.PropertySet, clusterset.PropertyBlocks}
	for _, name := range ours {
		add(name)
	}
	out, _, over := mirror(all)
	has := func(name string) bool {
		return slices.ContainsFunc(out, func(p inventoryv1alpha1.Property) bool { return p.Name == name })
	}
	sorted := slices.IsSortedFunc(
		out, func(a, b inventoryv1alpha1.Property) int { return strings.Compare(a.Name, b.Name) },
	)
	if len(out) != inventoryv1alpha1.MaxProperties || over != 3 || !sorted || !has(ours[0]) || !has(ours[1]) ||
		!has(ours[2]) ||
		!has("a-124.example.com") ||
		has("a-125.example.com") {
		t.Errorf("%d mirrored, %d too many, sorted %v: %v", len(out), over, sorted, out)
	}
}

func TestID2WhoIsOutside(t *testing.T) {
	set := aboutv1beta1.ClusterProperty{ObjectMeta: named("", clusterset.PropertySet)}
	leaving := *set.DeepCopy()
	leaving.Annotations = map[string]string{clusterset.AnnotationLeaving: "true"}
	other := aboutv1beta1.ClusterProperty{ObjectMeta: named("", "region.example.com")}
	for _, c := range []struct {
		in   []aboutv1beta1.ClusterProperty
		says string
	}{{nil, "is gone"}, {[]aboutv1beta1.ClusterProperty{other}, "is gone"}, {[]aboutv1beta1.ClusterProperty{other,
		set}, ""}, {[]aboutv1beta1.ClusterProperty{leaving}, "is to leave"}} {
		if why := notMember(c.in); !strings.Contains(why, c.says) || c.says == "" && why != "" {
			t.Errorf("%q, want %q", why, c.says)
		}
	}
}

type told []string

func (e *told) Event(_ runtime.Object, _, reason, _ string) { *e = append(*e, reason) }

// TestARefusalIsReported: a refusal is told once it has lasted, once, also over a restart of the agent; and ends
// with the first answer.
func TestARefusalIsReported(t *testing.T) {
	w := newWorld(t)
	now, events := at, &told{}
	s := &RefusalReporter{Local: w.local, Now: func() time.Time { return now }, Events: events}
	unauthorized := apierrors.NewUnauthorized("")
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "leases"}, "east", nil)
	for i, step := range []struct {
		after  time.Duration
		answer error
		newer  bool
		lease  bool
		events int
	}{
		{0, nil, false, false, 0},
		{0, unauthorized, false, false, 0},
		{50 * time.Second, forbidden, false, false, 0},
		{time.Second, nil, false, false, 0}, // an API server that was starting
		{0, forbidden, false, false, 0},
		{59 * time.Second, errors.New("timeout"), false, false, 0},
		{2 * time.Second, errors.New("timeout"), false, false, 0}, // says nothing
		{0, unauthorized, false, true, 1},
		{time.Hour, unauthorized, false, true, 1},
		{0, unauthorized, true, true, 1},
		{2 * time.Minute, unauthorized, false, true, 1},
		{time.Second, nil, false, false, 1},
		{0, unauthorized, false, false, 1},
		{time.Minute, unauthorized, false, true, 2},
		{0, nil, true, false, 2}, // an agent that starts when it is over
	} {
		now = now.Add(step.after)
		if step.newer {
			s = &RefusalReporter{Local: w.local, Now: s.Now, Events: events}
		}
		s.Answered(t.Context(), step.answer)
		lease := get[*coordinationv1.Lease](t, w.local, kube.SystemNamespace, clusterset.LeaseRefused)
		if (lease != nil) != step.lease || len(*events) != step.events {
			t.Fatalf("step %d: Lease %v, Events %v", i, lease != nil, *events)
		}
		if lease != nil && !strings.Contains(lease.Annotations[clusterset.AnnotationRefused], "join --renew") {
			t.Fatalf("step %d: %q", i, lease.Annotations)
		}
	}
}

// TestID4ATokenThatRanOutIsNoEviction: the hub that refuses it holds the claim on, and the id; with another token
// it is told. A hub that refuses any other for a minute has done all there is to do.
func TestID4ATokenThatRanOutIsNoEviction(t *testing.T) {
	until := func(exp time.Time) string {
		payload := fmt.Sprintf(
			`{"sub":"system:serviceaccount:blue:mcs-east","iat":%d,"exp":%d}`,
			exp.Add(-24*time.Hour).Unix(), exp.Unix(),
		)
		return "e30." + base64.RawURLEncoding.EncodeToString([]byte(payload)) + ".sig"
	}
	unauthorized := apierrors.NewUnauthorized("Unauthorized")
	forbidden := apierrors.NewForbidden(
		schema.GroupResource{Resource: "clusterprofiles"}, "east", errors.New("no such role"),
	)
	for what, c := range map[string]struct {
		token  string
		answer error
		left   bool
	}{
		"it lives":                        {until(at.Add(time.Hour)), unauthorized, true},
		"it ran out":                      {until(at.Add(-time.Hour)), unauthorized, false},
		"it ran out by the hub's clock":   {until(at.Add(time.Second)), unauthorized, false},
		"it was taken, so it lives there": {until(at.Add(-time.Second)), forbidden, true},
		"nothing is known of it":          {"from elsewhere", unauthorized, true},
	} {
		t.Run(strings.ReplaceAll(what, " ", "_"), func(t *testing.T) {
			w := newWorld(t)
			w.settled(t)
			w.wish(t, clusterset.LeavingWithdrawn)
			hub := w.hub
			w.hub = interceptor.NewClient(hub.(client.WithWatch), interceptor.Funcs{
				Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object,
					...client.GetOption) error {
					return c.answer
				},
			})
			w.token = c.token
			g := w.gate()
			if err := g.Enter(t.Context()); err == nil || errors.Is(err, ErrLeft) {
				t.Errorf("after one refusal, which an API server that starts gives too: %v", err)
			}
			g.Now = func() time.Time { return at.Add(reportAfter) }
			err := g.Enter(t.Context())
			if errors.Is(err, ErrLeft) != c.left || (w.property(t, clusterset.PropertySet) == "") != c.left {
				t.Fatalf("%v, a member of %q", err, w.property(t, clusterset.PropertySet))
			}
			if c.left {
				return
			}
			if says := "join --renew"; !strings.Contains(err.Error(), says) {
				t.Errorf("%v, want %q", err, says)
			}
			w.hub, w.token = hub, until(at.Add(time.Hour))
			if err := g.Enter(t.Context()); !errors.Is(err, ErrLeft) || !w.told(t) {
				t.Errorf("with another token: %v, told %v", err, w.told(t))
			}
		})
	}
}
