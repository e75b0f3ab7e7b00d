package serviceimport

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// TestI9SlicesThatAreNoImportsGo: a selector that a derived Service had for a moment leaves slices behind, to which
// its VIP would lead.
func TestI9SlicesThatAreNoImportsGo(t *testing.T) {
	web := types.NamespacedName{Namespace: "shop", Name: "web"}
	service := derived.Name(web.Namespace, web.Name)
	slice := func(name, of, by string) *discoveryv1.EndpointSlice {
		s := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "shop",
				Name:      name,
				UID:       types.UID(name),
				Labels:    map[string]string{discoveryv1.LabelServiceName: of},
			},
		}
		if by != "" {
			s.Labels[discoveryv1.LabelManagedBy] = by
		}
		return s
	}
	ours := slice("ours", service, kube.Manager)
	ours.Labels[mcsv1beta1.LabelServiceName] = web.Name
	all := []*discoveryv1.EndpointSlice{
		ours,
		slice("left", service, endpointSliceController),
		slice("by-hand", service, ""),
		slice("mirrored", service, "endpointslicemirroring-controller.k8s.io"),
		slice("at-home", "web", endpointSliceController),
	}
	for _, c := range []struct {
		selector map[string]string
		want     []string
	}{
		{nil, []string{"at-home", "mirrored", "ours"}},
		{map[string]string{"app": "mine"}, []string{"at-home", "by-hand", "left", "mirrored", "ours"}},
	} {
		scheme := runtime.NewScheme()
		if err := clientgoscheme.AddToScheme(scheme); err != nil {
			t.Fatal(err)
		}
		svc := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{
				Namespace:   "shop",
				Name:        service,
				Annotations: map[string]string{derived.AnnotationImport: web.String()},
			},
		}
		svc.Spec.Selector = c.selector
		b := fake.NewClientBuilder().WithScheme(scheme).WithObjects(svc)
		for _, s := range all {
			b = b.WithObjects(s.DeepCopy())
		}
		for _, x := range kube.Indexes() {
			if _, of := x.Object.(*discoveryv1.EndpointSlice); of {
				b = b.WithIndex(x.Object, x.Field, x.Values)
			}
		}
		r := &reconciler{Config: Config{Local: b.Build()}}
		if asked := fmt.Sprint(r.requestsForSlice(t.Context(), all[1])); asked != fmt.Sprintf(
			"[shop/%s shop/web]",
			service,
		) {
			t.Errorf("a stray asks for %s", asked)
		}
		s := &snapshot{name: web, svc: svc}
		if err := errors.Join(r.gatherSlices(t.Context(), s), r.repairSlices(t.Context(), s)); err != nil {
			t.Fatal(err)
		}
		var there discoveryv1.EndpointSliceList
		if err := r.Local.List(t.Context(), &there); err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, s := range there.Items {
			names = append(names, s.Name)
		}
		if slices.Sort(names); !slices.Equal(names, c.want) {
			t.Errorf("selector %v: %v are left, want %v", c.selector, names, c.want)
		}
	}
}

// TestI9AnImportedSliceThatLostLabels keeps its endpoints, also where no hub tells of them any more, and gets its
// labels back: it is known by its name.
func TestI9AnImportedSliceThatLostLabels(t *testing.T) {
	all := []string{
		mcsv1beta1.LabelServiceName,
		mcsv1beta1.LabelSourceCluster,
		discoveryv1.LabelServiceName,
		discoveryv1.LabelManagedBy,
	}
	for lost := 1; lost < 1<<len(all); lost++ {
		m := newMember(t)
		m.export("c", "10.3.0.1")
		if err := m.pass(); err != nil {
			t.Fatal(err)
		}
		slice := m.imported()["c"].DeepCopy()
		was := maps.Clone(slice.Labels)
		for i, label := range all {
			if lost>>i&1 == 1 {
				delete(slice.Labels, label)
			}
		}
		if err := m.local.Update(t.Context(), slice); err != nil {
			t.Fatal(err)
		}
		m.seesHub = false
		for range 2 {
			if err := m.pass(); err != nil {
				t.Fatal(err)
			}
		}
		if is := m.imported()["c"]; is == nil || !maps.Equal(is.Labels, was) || len(is.Endpoints) != 1 {
			t.Errorf("without %b of its labels: %+v", lost, is)
		}
	}
}

// TestI9AStrayThatStaysStopsNothing: what an API server does not delete is told, and the name is imported all the
// same.
func TestI9AStrayThatStaysStopsNothing(t *testing.T) {
	m := newMember(t)
	stray := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop",
		Name:      "stray",
		Labels: map[string]string{
			discoveryv1.LabelServiceName: derived.Name("shop", "web"),
		},
	}, AddressType: discoveryv1.AddressTypeIPv4}
	if err := m.local.Create(t.Context(), stray); err != nil {
		t.Fatal(err)
	}
	m.export("c", "10.3.0.1")
	m.keep = apierrors.NewForbidden(discoveryv1.Resource("endpointslices"), "stray", errors.New("denied"))
	if err := m.pass(); !errors.Is(err, m.keep) || m.imported()["c"] == nil {
		t.Errorf("told %v, imported %v", err, m.imported())
	}
}
