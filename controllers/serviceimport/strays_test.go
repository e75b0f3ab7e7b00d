package serviceimport

import (
	"cmp"
	"maps"
	"slices"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
)

// TestI10SlicesOfOthersStay: also those to which the VIP of a derived Service leads. An Event says so.
func TestI10SlicesOfOthersStay(t *testing.T) {
	m := newMember(t)
	m.Addresses = &ranges{}
	m.export("c", "10.3.0.1")
	m.edit("c", func(rec *hubv1alpha1.ServiceExportRecord) { rec.Spec.Type = mcsv1beta1.ClusterSetIP })
	for _, by := range []string{"endpointslice-controller.k8s.io", "", "endpointslicemirroring-controller.k8s.io"} {
		stray := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop",
			Name:      cmp.Or(by, "by-hand"),
			Labels:    map[string]string{discoveryv1.LabelServiceName: derived.Name("shop", "web")},
		}, AddressType: discoveryv1.AddressTypeIPv4}
		if by != "" {
			stray.Labels[discoveryv1.LabelManagedBy] = by
		}
		if err := m.local.Create(t.Context(), stray); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // the first pass makes the Service
		if err := m.pass(); err != nil {
			t.Fatal(err)
		}
	}
	if len(m.slices()) != 5 || m.imported()["c"] == nil || !slices.Contains(m.told, "NotOwned") {
		t.Errorf("told %v; slices %v", m.told, m.slices())
	}
}

// TestI9AnImportedSliceThatLostLabels keeps its endpoints, also where no hub tells of them any more, and gets its
// labels back, since it is known by its name. Without the managed-by label it is another's (I10).
func TestI9AnImportedSliceThatLostLabels(t *testing.T) {
	all := []string{
		mcsv1beta1.LabelServiceName,
		mcsv1beta1.LabelSourceCluster,
		discoveryv1.LabelServiceName,
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
