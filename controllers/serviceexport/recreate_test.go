package serviceexport

import (
	"math"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/pages"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// TestARevisionThatNothingFollows is what a thief leaves who had the token: it ends with the records and pages that
// have it, and those in their place are younger by whole seconds, so that others follow them. Then nothing is written
// any more.
func TestARevisionThatNothingFollows(t *testing.T) {
	for name, poison := range map[string]int64{
		"the last": clusterset.MaxRevision, "the last but one": clusterset.MaxRevision - 1,
		"of a CRD without bound": math.MaxInt64,
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
				o.SetCreationTimestamp(metav1.NewTime(m.now))
				kube.Origin(o).Revision = poison
				switch o := o.(type) {
				case *hubv1alpha1.ServiceExportRecord:
					o.Spec.Type = "Headless"
				case *hubv1alpha1.EndpointPage:
					o.Spec.Endpoints[0].Address = "10.6.6.6"
				}
			}
			m.restore(poisoned...)
			at := m.now
			if wrote := m.settle(20); wrote != "" { // 200 ms apart
				t.Errorf("%s: it is not settled: %s", name, wrote)
			}
			if got := m.endpoints(); got != want || m.record().Spec.Type != "ClusterSetIP" {
				t.Errorf("%s: %s, want %s; %+v", name, got, want, m.record().Spec)
			}
			for _, was := range poisoned {
				is := was.DeepCopyObject().(client.Object)
				if err := m.hub.Get(t.Context(), client.ObjectKeyFromObject(was), is); err != nil {
					t.Fatal(err)
				}
				if revision := kube.Origin(is).Revision; revision > m.now.UnixMilli() || is.GetUID() == "thief's" ||
					!is.GetCreationTimestamp().After(at) {
					t.Errorf("%s: %s has revision %d and UID %s, created at %v",
						name, is.GetName(), revision, is.GetUID(), is.GetCreationTimestamp())
				}
			}
		}
	}
}

// TestARevisionThatNothingFollowsIsNotRemembered by an agent that saw it before it might publish.
func TestARevisionThatNothingFollowsIsNotRemembered(t *testing.T) {
	m := newMember(t, nil, export(), svc(nil), slice("web-1", 1, 2))
	m.settle(5)
	poisoned := m.record()
	poisoned.Spec.Revision = clusterset.MaxRevision
	m.restore(poisoned)
	m.restart(pages.OfHub)
	m.lease.silent = true
	m.settle(1)
	m.lease.silent, m.admin = false, true
	if err := m.hub.Delete(t.Context(), poisoned); err != nil {
		t.Fatal(err)
	}
	m.admin = false
	m.now = m.now.Add(time.Minute)
	if wrote := m.settle(20); wrote != "" {
		t.Errorf("it is not settled: %s", wrote)
	}
}
