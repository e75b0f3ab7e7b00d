package serviceexport

import (
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/pages"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// TestTheHighestRevisionLocksNobodyOut: it is what a thief leaves who had the token. The owner writes what is right
// with the same revision, which others follow, and goes on to publish changes. Then nothing is written any more.
func TestTheHighestRevisionLocksNobodyOut(t *testing.T) {
	for name, poison := range map[string]int64{
		"the last": clusterset.MaxRevision, "the last but one": clusterset.MaxRevision - 1,
	} {
		for _, limits := range []pages.Limits{pages.OfHub, {Endpoints: 1, Groups: 1}} { // inline and paged
			m := newMember(t, nil, export(), svc(nil), slice("web-1", 1, 2))
			m.restart(limits)
			m.settle(5)
			want := m.endpoints()
			poisoned := []client.Object{m.record()}
			if limits.Endpoints == 1 {
				poisoned = append(poisoned, find[*hubv1alpha1.EndpointPage](m, m.hub, "prod", "0.web.shop.east"))
			}
			for _, o := range poisoned {
				o.SetUID("thief's")
				kube.Origin(o).Revision = poison
				switch o := o.(type) {
				case *hubv1alpha1.ServiceExportRecord:
					o.Spec.Type = "Headless"
				case *hubv1alpha1.EndpointPage:
					o.Spec.Endpoints[0].Address = "10.6.6.6"
				}
			}
			m.restore(poisoned...)
			check := func(when string) {
				t.Helper()
				if wrote := m.settle(20); wrote != "" { // 200 ms apart
					t.Errorf("%s, %s: it is not settled: %s", name, when, wrote)
				}
				if got := m.endpoints(); got != want || m.record().Spec.Type != "ClusterSetIP" {
					t.Errorf("%s, %s: %s, want %s; %+v", name, when, got, want, m.record().Spec)
				}
				for _, was := range poisoned {
					is := was.DeepCopyObject().(client.Object)
					if err := m.hub.Get(t.Context(), client.ObjectKeyFromObject(was), is); err != nil {
						t.Fatal(err)
					}
					if revision := kube.Origin(is).Revision; revision < poison {
						t.Errorf("%s, %s: %s has revision %d: nobody follows", name, when, is.GetName(), revision)
					}
				}
			}
			check("poisoned")
			m.restart(limits)
			check("restarted")
			changed := newMember(t, nil, export(), svc(nil), slice("web-1", 1, 3))
			changed.restart(limits)
			changed.settle(5)
			want = changed.endpoints()
			edit(m, slice("web-1"), func(s *discoveryv1.EndpointSlice) { s.Endpoints = slice("web-1", 1, 3).Endpoints })
			check("changed")
		}
	}
}
