package record

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// TestS5RecordsOfExcludedNamespaces get no copy, and lose the one that they have when the ClusterSet excludes the
// namespace. Without a ClusterSet nothing new is copied by default rules, and nothing is lost.
func TestS5RecordsOfExcludedNamespaces(t *testing.T) {
	set := func(deny ...string) *hubv1alpha1.ClusterSet {
		s := &hubv1alpha1.ClusterSet{}
		s.Namespace, s.Name, s.Spec.Namespaces.Deny = "set", "set", deny
		return s
	}
	for _, c := range []struct {
		name, namespace string
		set             *hubv1alpha1.ClusterSet // nil: there is none
		copied          bool                    // before the pass
		want            bool                    // copied after it
		told            bool
	}{
		{"allowed", "shop", set(clusterset.DefaultDeny...), false, true, false},
		{"excluded", "kube-system", set(clusterset.DefaultDeny...), false, false, true},
		{"excluded since", "shop", set("shop"), true, false, true},
		{"not excluded by other rules", "kube-system", set("bank"), false, true, false},
		{"no ClusterSet", "shop", nil, false, true, false},
		{"no ClusterSet, excluded by default", "kube-system", nil, false, false, true},
		{"no ClusterSet, and a copy", "kube-system", nil, true, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			shown := rec(5, false)
			shown.Namespace, shown.Spec.ServiceNamespace = "set", c.namespace
			shown.Name = clusterset.RecordName("web", c.namespace, "a")
			r := newRig(t, shown)
			if c.copied {
				copied := shown.DeepCopy()
				copied.Namespace, copied.ResourceVersion = kube.SystemNamespace, ""
				if err := r.local.Create(t.Context(), copied); err != nil {
					t.Fatal(err)
				}
			}
			if c.set != nil {
				if err := r.hub.Create(t.Context(), c.set); err != nil {
					t.Fatal(err)
				}
			}
			r.settle(t, shown.Name)
			r.settle(t, shown.Name) // the rig does not count a deletion as a write
			name := types.NamespacedName{Namespace: kube.SystemNamespace, Name: shown.Name}
			copied, err := kube.Get[*hubv1alpha1.ServiceExportRecord](t.Context(), r.local, name)
			if err != nil || (copied != nil) != c.want {
				t.Errorf("copied is %v, want %v: %v", copied != nil, c.want, err)
			}
			told := slices.ContainsFunc(r.events, func(e string) bool { return strings.HasPrefix(e, "RecordRefused") })
			if told != c.told {
				t.Errorf("Events %v", r.events)
			}
		})
	}
}

// TestS5ChangedRulesReachEveryRecord of other members.
func TestS5ChangedRulesReachEveryRecord(t *testing.T) {
	other, own := rec(1, false), rec(1, false)
	other.Namespace, own.Namespace = "set", "set"
	own.Name, own.Spec.ClusterID = "web.shop.b", "b"
	r := newRig(t, other)
	if err := r.hub.Create(t.Context(), own); err != nil {
		t.Fatal(err)
	}
	agent := reconciler{Config{Cluster: "b", HubNamespace: "set", Hub: func() client.Client { return r.hub }}}
	got := agent.allRecords(t.Context(), &hubv1alpha1.ClusterSet{})
	if len(got) != 1 || got[0].Name != other.Name {
		t.Errorf("requests %v, want %s", got, other.Name)
	}
	was, is := &hubv1alpha1.ClusterSet{}, &hubv1alpha1.ClusterSet{}
	was.Spec.Namespaces.Deny, is.Spec.Namespaces.Deny = nil, []string{}
	if kube.SameRules(was, is) {
		t.Error("an empty list is taken for a missing one")
	}
	is.Spec.Namespaces.Deny, is.Spec.Lease.RenewSeconds = nil, 5
	if !kube.SameRules(was, is) {
		t.Error("another setting is taken for a change of the rules")
	}
}

// TestAWithdrawalReachesAClusterWithoutACopy, which a user deleted at that moment: the hub forgets the withdrawal, and
// then nothing else tells that what is imported ends. Nobody else needs a copy of it.
func TestAWithdrawalReachesAClusterWithoutACopy(t *testing.T) {
	for _, imported := range []bool{true, false} {
		shown := rec(5, true)
		shown.Namespace, shown.Spec.ServiceNamespace, shown.Spec.ServiceName = "set", "shop", "web"
		shown.Name = clusterset.RecordName("web", "shop", "a")
		r := newRig(t, shown)
		if imported {
			imp := &mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web",
				Labels: map[string]string{derived.LabelManagedBy: kube.Manager}}}
			imp.Status.Clusters = []mcsv1beta1.ClusterStatus{{Cluster: "a"}}
			if err := r.local.Create(t.Context(), imp); err != nil {
				t.Fatal(err)
			}
		}
		r.settle(t, shown.Name)
		name := types.NamespacedName{Namespace: kube.SystemNamespace, Name: shown.Name}
		copied, err := kube.Get[*hubv1alpha1.ServiceExportRecord](t.Context(), r.local, name)
		if err != nil || (copied != nil) != imported || imported && !copied.Spec.Withdrawn {
			t.Errorf("imported %v: %+v, %v", imported, copied, err)
		}
	}
}
