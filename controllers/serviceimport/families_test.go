package serviceimport

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// TestC7AFamilyThatTheClusterGainsIsImported: no event tells of the API server's flags. What waits for a family is
// looked at again, without a write while nothing has changed.
func TestC7AFamilyThatTheClusterGainsIsImported(t *testing.T) {
	m, now, writes := newMember(t), time.Unix(1_700_000_000, 0), 0
	supported := []corev1.IPFamily{corev1.IPv4Protocol}
	both := []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	m.Now = func() time.Time { return now }
	m.Families = kube.Families(interceptor.NewClient(m.local, interceptor.Funcs{Create: func(
		_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption,
	) error {
		o.(*corev1.Service).Spec.IPFamilies = supported
		return nil
	}}), m.Now)
	m.Local = interceptor.NewClient(m.local, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			writes++
			return c.Create(ctx, o, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			writes++
			return c.Update(ctx, o, opts...)
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object,
			opts ...client.SubResourceUpdateOption) error {
			writes++
			return c.SubResource(sub).Update(ctx, o, opts...)
		},
		SubResourcePatch: func(
			ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch,
			opts ...client.SubResourcePatchOption,
		) error {
			writes++
			return c.SubResource(sub).Patch(ctx, o, patch, opts...)
		},
	})
	m.export("b", "10.1.0.1")
	m.edit("b", func(rec *hubv1alpha1.ServiceExportRecord) { rec.Spec.IPFamilies = both })
	pass := func(want []corev1.IPFamily) time.Duration {
		t.Helper()
		name := types.NamespacedName{Namespace: "shop", Name: "web"}
		res, err := m.Reconcile(t.Context(), reconcile.Request{NamespacedName: name})
		if err != nil {
			t.Fatal(err)
		}
		imp, err := kube.Get[*mcsv1beta1.ServiceImport](t.Context(), m.local, name)
		if err != nil || imp == nil || !slices.Equal(imp.Spec.IPFamilies, want) {
			t.Fatalf("%v, want families %v of %+v", err, want, imp)
		}
		return res.RequeueAfter
	}
	again := pass(supported)
	if again == 0 {
		t.Fatal("it is never looked at again")
	}
	now, writes = now.Add(again), 0
	if again = pass(supported); again == 0 || writes > 0 {
		t.Fatalf("again after %s, %d writes", again, writes)
	}
	settled := m.settled[types.NamespacedName{Namespace: "shop", Name: "web"}]
	again = pass(supported)
	if again == 0 || settled == nil || settled != m.settled[types.NamespacedName{Namespace: "shop", Name: "web"}] {
		t.Fatalf("again after %s; a pass remembered %v, and the next was a whole one", again, settled)
	}
	now, supported = now.Add(again), both
	if again = pass(both); again > 0 || writes == 0 {
		t.Errorf("again after %s, %d writes", again, writes)
	}
}

// TestC7ALostCopyIsLookedForAllTheSame: what waits for a family waits no longer for what comes sooner.
func TestC7ALostCopyIsLookedForAllTheSame(t *testing.T) {
	there := record("c", kube.SystemNamespace)
	there.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	objects := slices.DeleteFunc(imported("a", "c"), func(o client.Object) bool {
		if imp, is := o.(*mcsv1beta1.ServiceImport); is {
			imp.Spec.IPFamilies = nil // so far there was no family in common
		}
		_, slice := o.(*discoveryv1.EndpointSlice)
		return slice
	})
	if _, imp, again := pass(t, plane(t, kube.Local, append(objects, there)...), plane(t, kube.Hub)); imp == nil ||
		again != recheck {
		t.Errorf("again after %s; import %+v", again, imp)
	}
}

// TestC7ADeniedDryRunStopsNoImport: a policy or a quota may always deny the Service whose dry run shows the families.
// The import uses those of the exporters, an Event says so, and the families are asked for again later. Any other
// failure is retried.
func TestC7ADeniedDryRunStopsNoImport(t *testing.T) {
	services := corev1.Resource("services")
	for _, c := range []struct {
		failure error
		imports bool
	}{
		{apierrors.NewForbidden(services, "families-x", errors.New("exceeded quota")), true},
		{apierrors.NewInvalid(schema.GroupKind{Kind: "Service"}, "families-x", nil), true},
		{apierrors.NewInvalid(schema.GroupKind{Kind: "Service"}, "families-x", field.ErrorList{field.Invalid(
			field.NewPath("spec", "clusterIPs"), nil, "failed to allocate IP: allocator not ready")}), false}, // 1.37
		{apierrors.NewTimeoutError("the server did not answer", 1), false},
	} {
		m := newMember(t)
		m.Families = kube.Families(interceptor.NewClient(m.local, interceptor.Funcs{
			Create: func(context.Context, client.WithWatch, client.Object,
				...client.CreateOption) error {
				return c.failure
			},
		}), m.Now)
		m.export("b", "10.1.0.1")
		name := types.NamespacedName{Namespace: "shop", Name: "web"}
		res, err := m.Reconcile(t.Context(), reconcile.Request{NamespacedName: name})
		if imported := err == nil && len(m.imported()) == 1 &&
			res.RequeueAfter == kube.FamiliesKept; imported != c.imports {
			t.Errorf("%v: error %v, slices %v, again after %s", c.failure, err, m.imported(), res.RequeueAfter)
		}
		if reported := slices.Contains(m.told, "FamiliesUnknown"); reported != c.imports {
			t.Errorf("%v: Events %v", c.failure, m.told)
		}
	}
}

// TestC7AFamilyThatWaitsForAnAddressIsNotForgotten: while the dry run fails, the derived Service shows it.
func TestC7AFamilyThatWaitsForAnAddressIsNotForgotten(t *testing.T) {
	both := []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	r := newReconciler(Config{
		Member: kube.Member{
			Families: func(context.Context) ([]corev1.IPFamily, error) { return nil, errors.New("a webhook failed") },
		},
		Gateways: func() bool { return false },
	})
	imp := &mcsv1beta1.ServiceImport{}
	imp.Spec.IPFamilies = both[:1]
	for _, c := range []struct {
		svc   *corev1.Service
		want  int
		later time.Duration
	}{{nil, 1, recheck}, {&corev1.Service{Spec: corev1.ServiceSpec{IPFamilies: both}}, 2, 0}} {
		got, later, err := r.families(t.Context(), &snapshot{svc: c.svc}, imp, both)
		if err != nil || len(got) != c.want || later != c.later {
			t.Errorf("%v: %v, again after %s, %v", c.svc, got, later, err)
		}
	}
}

// TestC7AnImportWhoseFamiliesAreKnownWaitsForNoDryRun: a webhook that fails after the agent's restart stops no
// endpoints, and the import keeps the families that it has.
func TestC7AnImportWhoseFamiliesAreKnownWaitsForNoDryRun(t *testing.T) {
	for _, failure := range []error{
		apierrors.NewInternalError(errors.New("failed calling webhook")),
		apierrors.NewForbidden(corev1.Resource("services"), "families-x", errors.New("exceeded quota")),
	} {
		m := newMember(t)
		m.export("b", "10.1.0.1")
		if err := m.pass(); err != nil {
			t.Fatal(err)
		}
		m.Families = kube.Families(interceptor.NewClient(m.local, interceptor.Funcs{
			Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
				return failure
			},
		}), m.Now)
		m.export("c", "10.2.0.1")
		for _, cluster := range []string{"b", "c"} {
			m.edit(cluster, func(rec *hubv1alpha1.ServiceExportRecord) {
				rec.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
			})
		}
		err := m.pass()
		imp := m.read(&mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}})
		families := imp.(*mcsv1beta1.ServiceImport).Spec.IPFamilies
		if err != nil || m.imported()["c"] == nil || !slices.Equal(families, []corev1.IPFamily{corev1.IPv4Protocol}) {
			t.Errorf("%v: %v; slices %v, families %v", failure, err, m.imported(), families)
		}
	}
}
