package serviceimport

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// rig is a hub, and the member b, which has no namespace shop: its agent copies records, and imports nothing.
type rig struct {
	hub, local client.Client
	writes     int
	events     []string
}

func (r *rig) Event(about runtime.Object, _, reason, _ string) {
	r.events = append(r.events, fmt.Sprintf("%s/%s", reason, about.(client.Object).GetName()))
}

func newRig(t *testing.T, shown *hubv1alpha1.ServiceExportRecord) *rig {
	t.Helper()
	r := &rig{hub: plane(t, kube.Hub, shown)}
	r.local = interceptor.NewClient(plane(t, kube.Local).(client.WithWatch), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			r.writes++
			return c.Create(ctx, o, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			r.writes++
			return c.Update(ctx, o, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			r.writes++
			return c.Delete(ctx, o, opts...)
		},
	})
	return r
}

func (r *rig) agent() kube.Controller {
	return New(Config{
		Member: kube.Member{
			Cluster: "b", HubNamespace: "set", Local: r.local, Hub: func() client.Client { return r.hub },
			Events: r, Now: time.Now,
		},
		Gateways: func() bool { return false },
	})
}

// settle runs passes over a record's name, each of a process that remembers nothing, until one writes nothing.
func (r *rig) settle(t *testing.T, rec *hubv1alpha1.ServiceExportRecord) {
	t.Helper()
	for range 10 {
		before := r.writes
		_, err := r.agent().Reconciler.Reconcile(t.Context(), reconcile.Request{NamespacedName: kube.Exported(rec)})
		if err == nil && r.writes == before {
			return
		}
	}
	t.Fatal("ten passes do not settle it")
}

// copied returns the copy of a record; nil if there is none.
func (r *rig) copied(t *testing.T, rec *hubv1alpha1.ServiceExportRecord) *hubv1alpha1.ServiceExportRecord {
	t.Helper()
	name := types.NamespacedName{Namespace: kube.SystemNamespace, Name: rec.Name}
	out, err := kube.Get[*hubv1alpha1.ServiceExportRecord](t.Context(), r.local, name)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestC1ACopyKeepsItsRank while the hub is emptied and its owner publishes again. It loses its rank when its owner
// departs, though this member may see only that it has joined again.
func TestC1ACopyKeepsItsRank(t *testing.T) {
	first := metav1.Unix(1_700_000_000, 0)
	shown := rec(1, false)
	shown.Namespace, shown.CreationTimestamp, shown.Spec.ExportedAt = "set", first, &first
	r := newRig(t, shown)
	r.settle(t, shown)
	again := func(at metav1.Time) {
		t.Helper()
		if err := r.hub.Delete(t.Context(), shown); err != nil {
			t.Fatal(err)
		}
		shown.ResourceVersion, shown.CreationTimestamp = "", at
		if err := r.hub.Create(t.Context(), shown); err != nil {
			t.Fatal(err)
		}
		r.settle(t, shown)
	}
	again(metav1.NewTime(first.AddDate(0, 1, 0)))
	copied := r.copied(t, shown)
	if published := clusterset.Published(copied); !published.Equal(first.Time) ||
		!clusterset.Created(copied).Equal(shown.CreationTimestamp.Time) || len(r.events) > 0 {
		t.Errorf("published %v, created %v, Events %v", published, clusterset.Created(copied), r.events)
	}
	delete(copied.Annotations, clusterset.AnnotationPublished) // a user does
	if err := r.local.Update(t.Context(), copied); err != nil {
		t.Fatal(err)
	}
	r.settle(t, shown)
	if copied = r.copied(t, shown); !clusterset.Published(copied).Equal(shown.CreationTimestamp.Time) {
		t.Errorf("a copy without a time is not repaired: %v", clusterset.Published(copied))
	}
	set := &hubv1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Namespace: "set", Name: "set"}}
	set.Status.Departed = []hubv1alpha1.Departure{{ClusterID: "a", At: metav1.NewTime(first.AddDate(0, 2, 0))}}
	if err := r.hub.Create(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	again(metav1.NewTime(first.AddDate(0, 3, 0)))
	if copied = r.copied(t, shown); !clusterset.Published(copied).Equal(shown.CreationTimestamp.Time) {
		t.Errorf("its cluster departed and joined again, and it counts since %v", clusterset.Published(copied))
	}
}

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
			r.settle(t, shown)
			if copied := r.copied(t, shown); (copied != nil) != c.want {
				t.Errorf("copied is %v, want %v", copied != nil, c.want)
			}
			told := slices.ContainsFunc(r.events, func(e string) bool { return strings.HasPrefix(e, "RecordRefused") })
			if told != c.told {
				t.Errorf("Events %v", r.events)
			}
		})
	}
}

// TestS5ChangedRulesReachEveryName of other members, whether it is copied or not.
func TestS5ChangedRulesReachEveryName(t *testing.T) {
	r := newRig(t, rec(1, false))
	for i, namespace := range []string{"set", kube.SystemNamespace} {
		other := rec(1, false)
		other.Namespace, other.Spec.ServiceName = namespace, fmt.Sprint("web", i)
		other.Name = clusterset.RecordName(other.Spec.ServiceName, "shop", "a")
		if err := []client.Client{r.hub, r.local}[i].Create(t.Context(), other); err != nil {
			t.Fatal(err)
		}
	}
	for _, w := range r.agent().Watches {
		if _, rules := w.Object.(*hubv1alpha1.ClusterSet); !rules {
			continue
		}
		var got []string
		for _, request := range w.Requests(t.Context(), &hubv1alpha1.ClusterSet{}) {
			got = append(got, request.Name)
		}
		slices.Sort(got)
		if !slices.Equal(got, []string{"web0", "web1"}) {
			t.Errorf("requests %q", got)
		}
		was, is := &hubv1alpha1.ClusterSet{}, &hubv1alpha1.ClusterSet{}
		was.Spec.Namespaces.Deny, is.Spec.Namespaces.Deny = nil, []string{}
		if w.Alike(was, is) {
			t.Error("an empty list is taken for a missing one")
		}
		is.Spec.Namespaces.Deny, is.Spec.Lease.RenewSeconds = nil, 5
		if !w.Alike(was, is) {
			t.Error("another setting is taken for a change of the rules")
		}
		is.Status.Departed = []hubv1alpha1.Departure{{ClusterID: "a"}}
		if w.Alike(was, is) {
			t.Error("nobody looks after a departure")
		}
		return
	}
	t.Error("nobody watches the ClusterSet")
}

// TestAWithdrawalReachesAClusterWithoutACopy, which a user deleted at that moment. What is imported ends all the same,
// and nobody needs a copy of the withdrawal.
func TestAWithdrawalReachesAClusterWithoutACopy(t *testing.T) {
	withdrawn := record("a", "set")
	withdrawn.Spec = clusterset.Withdrawn(withdrawn.Spec.Origin, time.Unix(900, 0))
	local := plane(t, kube.Local, imported("a")...)
	for range 2 {
		if got, imp, _ := pass(t, local, plane(t, kube.Hub, withdrawn.DeepCopy())); got != "" || imp != nil {
			t.Errorf("endpoints of %q stay, import %v", got, imp)
		}
	}
	r := newRig(t, withdrawn)
	if r.settle(t, withdrawn); r.copied(t, withdrawn) != nil {
		t.Error("there is a copy")
	}
}
