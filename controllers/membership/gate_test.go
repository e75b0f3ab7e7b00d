package membership

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	externaldnsv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/externaldns/v1alpha1"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/health"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/imports"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

var at = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// world is a member and a hub in memory, whose writes are counted together: the broken-th fails, or is done and
// never answered.
type world struct {
	local, hub  client.Client
	writes      int
	broken      int // 0: none
	lost        bool
	hubRefuses  error
	token       string
	membersHere int             // how often the policy of this cluster still says no
	refused     map[string]bool // by name: a webhook of both clusters fails for them
}

var (
	errBroken  = errors.New("broken")
	errWebhook = apierrors.NewInternalError(errors.New("failed calling webhook"))
)

func (w *world) write(do func() error) error {
	w.writes++
	if w.writes != w.broken {
		return do()
	}
	if w.lost {
		return errors.Join(do(), errBroken)
	}
	return errBroken
}

func (w *world) client(t *testing.T, objects ...client.Object) client.Client {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, networkingv1.AddToScheme, discoveryv1.AddToScheme, coordinationv1.AddToScheme,
		mcsv1beta1.Install, hubv1alpha1.AddToScheme, aboutv1beta1.AddToScheme, inventoryv1alpha1.AddToScheme,
		externaldnsv1alpha1.AddToScheme,
	} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	return fake.NewClientBuilder().
		WithScheme(s).
		WithObjects(objects...).
		WithStatusSubresource(&mcsv1beta1.ServiceExport{}, &inventoryv1alpha1.ClusterProfile{}).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				if o.GetName() == clusterset.PropertySet && w.membersHere > 0 {
					w.membersHere--
					return apierrors.NewInvalid(schema.GroupKind{Kind: "ClusterProperty"}, o.GetName(), nil)
				}
				return w.write(func() error { return c.Create(ctx, o, opts...) })
			},
			Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
				if w.refused[o.GetName()] {
					return errWebhook
				}
				return w.write(func() error { return c.Update(ctx, o, opts...) })
			},
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch,
				opts ...client.PatchOption) error {
				return w.write(func() error { return c.Patch(ctx, o, p, opts...) })
			},
			Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
				if w.refused[o.GetName()] {
					return errWebhook
				}
				return w.write(func() error { return c.Delete(ctx, o, opts...) })
			},
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object,
				p client.Patch, opts ...client.SubResourcePatchOption) error {
				if w.refused["status of "+o.GetName()] {
					return errWebhook
				}
				return w.write(func() error { return c.SubResource(sub).Patch(ctx, o, p, opts...) })
			},
		}).
		Build()
}

func named(ns, name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: ns, Name: name} }

func newWorld(t *testing.T) *world {
	w := &world{}
	system := &corev1.Namespace{ObjectMeta: named("", "kube-system")}
	system.UID = "uid-of-east"
	w.local = w.client(t, system)
	profile := &inventoryv1alpha1.ClusterProfile{ObjectMeta: named("blue", "east")}
	w.hub = w.client(t, &hubv1alpha1.ClusterSet{ObjectMeta: named("blue", "blue")}, profile)
	return w
}

func (w *world) gate() *Gate {
	return &Gate{
		Cluster:      "east",
		HubNamespace: "blue",
		Local:        w.local,
		Now:          func() time.Time { return at },
		Hub:          func(context.Context) (client.Client, error) { return w.hub, w.hubRefuses },
		Token:        func() (string, error) { return w.token, nil },
	}
}

func get[T interface {
	client.Object
	*E
}, E any](t *testing.T, in client.Client, ns, name string) T {
	t.Helper()
	o, err := kube.Get[T](t.Context(), in, client.ObjectKey{Namespace: ns, Name: name})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func (w *world) claimed(t *testing.T) bool {
	p := get[*inventoryv1alpha1.ClusterProfile](t, w.hub, "blue", "east")
	return p != nil && p.Annotations[clusterset.AnnotationClusterUID] == "uid-of-east"
}

// property is a ClusterProperty's value, "" where there is none.
func (w *world) property(t *testing.T, name string) string {
	if p := get[*aboutv1beta1.ClusterProperty](t, w.local, "", name); p != nil {
		return p.Spec.Value
	}
	return ""
}

// run calls Enter, by a new process each time after the first error, and looks at the world after each.
func (w *world) run(t *testing.T, until func(error) bool, sound func(error)) {
	t.Helper()
	for range 5 {
		err := w.gate().Enter(t.Context())
		sound(err)
		if until(err) {
			return
		}
		if !errors.Is(err, errBroken) {
			t.Fatal(err)
		}
	}
	t.Fatal("it does not end")
}

// each plays do with each of its writes broken, before and after it is done, until there is none left to break.
func each(t *testing.T, do func(t *testing.T, w *world)) {
	for n := 1; n < 100; n++ {
		for _, lost := range []bool{false, true} {
			w := newWorld(t)
			enough := false
			t.Run(fmt.Sprintf("write_%d_lost_%v", n, lost), func(t *testing.T) {
				w.broken, w.lost = n, lost
				do(t, w)
				enough = w.writes < n
			})
			if enough || t.Failed() {
				if n < 4 {
					t.Fatalf("only %d writes", n)
				}
				return
			}
		}
	}
}

// TestID3NothingIsHalfJoined, whichever write of joining fails: membership is said last, and the next attempt
// completes it.
func TestID3NothingIsHalfJoined(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.run(t, func(err error) bool { return err == nil }, func(err error) {
			id, set := w.property(t, clusterset.PropertyID), w.property(t, clusterset.PropertySet)
			if set != "" && (id != "east" || set != "blue" || !w.claimed(t)) {
				t.Errorf("a member of %q as %q, claimed %v: %v", set, id, w.claimed(t), err)
			}
			if err == nil && set == "" {
				t.Error("no member, without an error")
			}
		})
	})
}

// TestAnAgentThatIsGivenAnotherIDIsNotAdmitted: the Membership says so, and nothing else does.
func TestAnAgentThatIsGivenAnotherIDIsNotAdmitted(t *testing.T) {
	w := newWorld(t)
	if err := w.gate().Enter(t.Context()); err != nil {
		t.Fatal(err)
	}
	other := w.gate()
	other.Cluster, other.Given = "west", true
	var why *health.NotAdmitted
	if err := other.Enter(t.Context()); !errors.As(err, &why) || why.Reason != "IDDiffers" {
		t.Errorf("%v", err)
	}
}

// TestARefusalHereIsNoAnswerOfTheHub: a policy of this cluster may refuse what makes it a member.
func TestARefusalHereIsNoAnswerOfTheHub(t *testing.T) {
	w := newWorld(t)
	id := &aboutv1beta1.ClusterProperty{ObjectMeta: named("", clusterset.PropertyID)}
	id.Spec.Value = "east"
	if err := w.local.Create(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	w.membersHere = 1
	err := w.gate().Enter(t.Context())
	var why *health.NotAdmitted
	if !errors.As(err, &why) || why.Reason != "RefusedHere" || refused(err) {
		t.Errorf("%v", err)
	}
	if err := w.gate().Enter(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestAnAPIServerThatIsBusyRefusesNothing.
func TestAnAPIServerThatIsBusyRefusesNothing(t *testing.T) {
	busy := []error{apierrors.NewTooManyRequests("busy", 1), apierrors.NewInternalError(errors.New("etcd"))}
	for _, err := range busy {
		if why := new(health.NotAdmitted); errors.As(refusedHere(err), &why) {
			t.Errorf("%v: %s", err, why.Reason)
		}
	}
}

// settled gives a member all that it makes, and all that is the user's.
func (w *world) settled(t *testing.T) {
	t.Helper()
	if err := w.gate().Enter(t.Context()); err != nil {
		t.Fatal(err)
	}
	ours := map[string]string{derived.LabelManagedBy: kube.Manager, discoveryv1.LabelManagedBy: kube.Manager}
	derivedService := &corev1.Service{ObjectMeta: named("shop", derived.Name("shop", "web"))}
	copied := &corev1.Service{ObjectMeta: named("shop", "copy")}
	for _, s := range []*corev1.Service{derivedService, copied} {
		s.Labels, s.Annotations = ours, map[string]string{derived.AnnotationImport: "shop/web"}
	}
	imp := &mcsv1beta1.ServiceImport{ObjectMeta: named("shop", "web")}
	slice := &discoveryv1.EndpointSlice{ObjectMeta: named("shop", "derived-x")}
	lease, leader := &coordinationv1.Lease{
		ObjectMeta: named(kube.SystemNamespace, "source-west"),
	}, &coordinationv1.Lease{
		ObjectMeta: named(kube.SystemNamespace, "clusterset-controller"),
	}
	names := &externaldnsv1alpha1.DNSEndpoint{ObjectMeta: named("shop", "external-web")}
	others := &externaldnsv1alpha1.DNSEndpoint{ObjectMeta: named("shop", "external-other")}
	imp.Labels, slice.Labels, lease.Labels, names.Labels = ours, ours, ours, ours
	declared := &mcsv1beta1.ServiceImport{ObjectMeta: named("shop", "declared")}
	declared.Annotations = map[string]string{imports.AnnotationFilled: ""}
	export := &mcsv1beta1.ServiceExport{ObjectMeta: named("shop", "web")}
	export.Status.Conditions = []metav1.Condition{
		{Type: "Valid", Status: "True"},
		{Type: "Ready", Status: "True"},
		{Type: "example.org/Other", Status: "True"},
	}
	filled := &mcsv1beta1.ServiceExport{ObjectMeta: named("shop", "declared"), Status: *export.Status.DeepCopy()}
	record := func(ns, id string) *hubv1alpha1.ServiceExportRecord {
		r := &hubv1alpha1.ServiceExportRecord{ObjectMeta: named(ns, "web.shop."+id)}
		r.Spec.ClusterID, r.Spec.ServiceNamespace, r.Spec.ServiceName, r.Spec.Revision = id, "shop", "web", 7
		return r
	}
	ends := &hubv1alpha1.EndpointPage{ObjectMeta: named("blue", "0.web.shop.east")}
	ends.Spec.ClusterID = "east"
	theirs := &hubv1alpha1.EndpointPage{ObjectMeta: named("blue", "0.web.shop.west")}
	theirs.Spec.ClusterID = "west"
	secret := &corev1.Secret{
		ObjectMeta: named(kube.SystemNamespace, clusterset.SecretHub),
		Data:       map[string][]byte{"token": []byte("t")},
	}
	for _, o := range []client.Object{derivedService, copied, imp, declared, slice, lease, leader, export, filled,
		names, others, record(kube.SystemNamespace, "east"), record(kube.SystemNamespace, "west"), secret} {
		if err := w.local.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	for _, o := range []client.Object{record("blue", "east"), record("blue", "west"), ends, theirs} {
		if err := w.hub.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	w.writes = 0
}

func (w *world) wish(t *testing.T, how string) {
	t.Helper()
	set := get[*aboutv1beta1.ClusterProperty](t, w.local, "", clusterset.PropertySet)
	set.Annotations = map[string]string{clusterset.AnnotationLeaving: how}
	if err := w.local.Update(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	w.writes = 0
}

// count is how many objects of a kind are left.
func count(t *testing.T, in client.Client, list client.ObjectList) int {
	t.Helper()
	if err := in.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	n := 0
	_ = eachItem(list, func(client.Object) { n++ })
	return n
}

// gone is what is wrong with a cluster that has left, "" for nothing.
func (w *world) gone(t *testing.T) (wrong []string) {
	t.Helper()
	for what, want := range map[client.ObjectList]int{
		&mcsv1beta1.ServiceImportList{}: 1, &discoveryv1.EndpointSliceList{}: 0, &corev1.ServiceList{}: 1,
		&hubv1alpha1.ServiceExportRecordList{}: 0, &coordinationv1.LeaseList{}: 1,
		&externaldnsv1alpha1.DNSEndpointList{}: 1,
	} {
		if n := count(t, w.local, what); n != want {
			wrong = append(wrong, fmt.Sprintf("%T: %d, want %d", what, n, want))
		}
	}
	for _, name := range []string{"web", "declared"} {
		if c := get[*mcsv1beta1.ServiceExport](t, w.local, "shop", name).Status.Conditions; len(c) != 1 ||
			c[0].Type != "example.org/Other" {
			wrong = append(wrong, fmt.Sprintf("conditions of %s: %v", name, c))
		}
	}
	if kube.Filled(get[*mcsv1beta1.ServiceImport](t, w.local, "shop", "declared")) {
		wrong = append(wrong, "an import is still filled")
	}
	return wrong
}

func (w *world) withdrawn(t *testing.T) bool {
	t.Helper()
	r := get[*hubv1alpha1.ServiceExportRecord](t, w.hub, "blue", "web.shop.east")
	return r.Spec.Withdrawn && r.Spec.Revision > 7
}

// TestLeavingInAnyNumberOfSteps: whichever write fails, nothing is taken down here before the others know (no
// traffic is sent to what is gone), membership ends last, and the next attempt completes it.
func TestLeavingInAnyNumberOfSteps(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		broken := w.broken
		w.broken = 0
		w.settled(t)
		w.wish(t, "true")
		w.broken = broken
		w.run(
			t,
			func(err error) bool { return errors.Is(err, ErrLeft) || w.property(t, clusterset.PropertySet) == "" },
			func(err error) {
				left := get[*inventoryv1alpha1.ClusterProfile](t, w.hub, "blue",
					"east").Annotations[clusterset.AnnotationLeft] != ""
				if count(t, w.local, &mcsv1beta1.ServiceImportList{}) == 1 && !w.withdrawn(t) {
					t.Errorf("nothing is withdrawn, and imports are gone: %v", err)
				}
				if w.property(t, clusterset.PropertySet) == "" && (!left || !w.withdrawn(t) || len(w.gone(t)) > 0) {
					t.Errorf(
						"membership ended before its end: told %v, withdrawn %v, %v: %v",
						left, w.withdrawn(t), w.gone(t), err,
					)
				}
				if errors.Is(err, ErrLeft) && w.property(t, clusterset.PropertySet) != "" {
					t.Error("left, and a member")
				}
			},
		)
		if w.property(t, clusterset.PropertyID) != "east" {
			t.Error("the id is the cluster's, and stays")
		}
		for _, name := range []string{"web.shop.west"} {
			if r := get[*hubv1alpha1.ServiceExportRecord](t, w.hub, "blue", name); r == nil || r.Spec.Withdrawn {
				t.Errorf("another member's record: %+v", r)
			}
		}
	})
}

// TestOneRefusalHoldsUpNoOther: what a webhook refuses is tried again, and the rest is withdrawn and taken down.
func TestOneRefusalHoldsUpNoOther(t *testing.T) {
	w := newWorld(t)
	w.settled(t)
	record := get[*hubv1alpha1.ServiceExportRecord](t, w.hub, "blue", "web.shop.east").DeepCopy()
	record.Name, record.ResourceVersion = "a.shop.east", ""
	service := &corev1.Service{ObjectMeta: named("a", derived.Name("a", "web"))}
	service.Labels = map[string]string{derived.LabelManagedBy: kube.Manager}
	service.Annotations = map[string]string{derived.AnnotationImport: "a/web"}
	if err := errors.Join(w.hub.Create(t.Context(), record), w.local.Create(t.Context(), service)); err != nil {
		t.Fatal(err)
	}
	w.wish(t, "true")
	w.refused = map[string]bool{record.Name: true}
	if err := w.gate().Enter(t.Context()); !errors.Is(err, errWebhook) || !w.withdrawn(t) || len(w.gone(t)) < 2 {
		t.Errorf("a record is refused: %v; the other one is withdrawn: %v; here: %v", err, w.withdrawn(t), w.gone(t))
	}
	w.refused = map[string]bool{service.Name: true}
	want := "[*v1.ServiceList: 2, want 1]"
	if err := w.gate().Enter(t.Context()); !errors.Is(err, errWebhook) || fmt.Sprint(w.gone(t)) != want {
		t.Errorf("a Service is refused: %v; here: %v, want %s", err, w.gone(t), want)
	}
	w.refused = nil
	if err := w.gate().Enter(t.Context()); !errors.Is(err, ErrLeft) || len(w.gone(t)) > 0 {
		t.Errorf("nothing is refused: %v; here: %v", err, w.gone(t))
	}
}

// TestARefusedConditionKeepsNoOtherImportFilled: answers have no VIPs of Services that are gone.
func TestARefusedConditionKeepsNoOtherImportFilled(t *testing.T) {
	w := newWorld(t)
	w.settled(t)
	w.wish(t, "true")
	w.refused = map[string]bool{"status of web": true}
	if err := w.gate().Enter(t.Context()); !errors.Is(err, errWebhook) {
		t.Fatal(err)
	}
	if declared := get[*mcsv1beta1.ServiceImport](t, w.local, "shop", "declared"); kube.Filled(declared) {
		t.Errorf("the import is %+v", declared)
	}
}
