package inventory

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/yaml"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// given is what deploy/hub/member gives a member, but for the ClusterProfile.
func given(t *testing.T, id string) (out []client.Object) {
	t.Helper()
	text, err := os.ReadFile("../../deploy/hub/member/member.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, doc := range strings.Split(strings.ReplaceAll(string(text), "CLUSTER-ID", id), "\n---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc), &o.Object); err != nil {
			t.Fatal(err)
		}
		if o.GetKind() != "ClusterProfile" {
			out = append(out, o)
		}
	}
	return out
}

// TestID4RevokeTakesAllOfOneMember, and nothing of another one, whose id may begin with the first one's.
func TestID4RevokeTakesAllOfOneMember(t *testing.T) {
	ids := []string{"east", "east-token", "east.token", "token"}
	for _, leaves := range ids {
		var objects []client.Object
		for _, id := range ids {
			objects = append(objects, given(t, id)...)
		}
		scheme := runtime.NewScheme()
		if err := clientscheme.AddToScheme(scheme); err != nil {
			t.Fatal(err)
		}
		hub := fake.NewClientBuilder().
			WithScheme(scheme).
			WithObjects(objects...).
			Build()
			// which refuses what is there already
		r := &reconciler{HubEnv: kube.HubEnv{Namespace: "clusterset", Hub: hub, Live: hub}}
		if err := r.revoke(t.Context(), leaves); err != nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			left := slices.DeleteFunc(given(t, id), func(o client.Object) bool {
				return hub.Get(t.Context(), client.ObjectKeyFromObject(o), o.DeepCopyObject().(client.Object)) != nil
			})
			if id == leaves && len(left) > 0 || id != leaves && len(left) != 4 {
				t.Errorf("%s left: of %s are left %d objects", leaves, id, len(left))
			}
		}
	}
}

// TestID4ANewcomerKeepsWhatItWasGiven: a cache that still shows who had the id before is no reason to revoke.
func TestID4ANewcomerKeepsWhatItWasGiven(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientscheme.AddToScheme, inventoryv1alpha1.AddToScheme,
		hubv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	profile := func(uid types.UID) *inventoryv1alpha1.ClusterProfile {
		p := &inventoryv1alpha1.ClusterProfile{
			ObjectMeta: metav1.ObjectMeta{
				Namespace:  "clusterset",
				Name:       "east",
				UID:        uid,
				Finalizers: []string{clusterset.FinalizerRecords},
			},
		}
		p.Spec.ClusterManager.Name = clusterset.ClusterManager
		return p
	}
	left := profile("left")
	left.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	for _, c := range []struct {
		there client.Object // past the cache
		want  int           // objects that are left of what it was given
	}{{profile("joined"), 4}, {left, 0}} {
		objects := append(given(t, "east"), c.there)
		live := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
			WithIndex(&inventoryv1alpha1.ClusterProfile{}, "metadata.name", func(o client.Object) []string {
				return []string{o.GetName()}
			}).
			Build()
		cached := interceptor.NewClient(
			live,
			interceptor.Funcs{
				Get: func(ctx context.Context, there client.WithWatch, key client.ObjectKey, o client.Object,
					opts ...client.GetOption) error {
					if p, ok := o.(*inventoryv1alpha1.ClusterProfile); ok {
						left.DeepCopyInto(p)
						return nil
					}
					return there.Get(ctx, key, o, opts...)
				},
			},
		)
		r := &reconciler{HubEnv: kube.HubEnv{
			Namespace: "clusterset", Hub: cached, Live: live,
			Now: time.Now, Events: noEvents{},
		}}
		_, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "east"}})
		if c.want > 0 && err != nil {
			t.Fatal(err)
		}
		there := slices.DeleteFunc(given(t, "east"), func(o client.Object) bool {
			return live.Get(t.Context(), client.ObjectKeyFromObject(o), o.DeepCopyObject().(client.Object)) != nil
		})
		if len(there) != c.want {
			t.Errorf("%s: %d objects are left, want %d: %v", c.there.GetUID(), len(there), c.want, err)
		}
	}
}

// TestID4WhatIsCreatedDuringAnEvictionIsItsPast: a member writes records until its rights are seen to be gone, and may
// delete some of them. The departure is noted again then, before its records are deleted, so that its peers drop all of
// them. This machine's clock says nothing of when the hub created them, nor of when the rights were revoked: an
// eviction may be found late.
func TestID4WhatIsCreatedDuringAnEvictionIsItsPast(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientscheme.AddToScheme, inventoryv1alpha1.AddToScheme,
		hubv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	for _, ahead := range []time.Duration{0, 10 * time.Minute, -10 * time.Minute} {
		t.Run(
			fmt.Sprintf("a clock %v ahead of the hub's", ahead),
			func(t *testing.T) { createdDuringAnEviction(t, scheme, ahead, -time.Hour) },
		)
	}
	t.Run("a record by another API server's clock", func(t *testing.T) {
		createdDuringAnEviction(t, scheme, 0, revocationTime+5*time.Second)
	})
}

// reasons are those of the Events.
type reasons []string

func (r *reasons) Event(_ runtime.Object, _, reason, _ string) { *r = append(*r, reason) }

func createdDuringAnEviction(t *testing.T, scheme *runtime.Scheme, ahead, created time.Duration) {
	now := time.Unix(1_700_000_000, 700_000_000) // by the hub's clock
	profile := &inventoryv1alpha1.ClusterProfile{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:  "clusterset",
			Name:       "east",
			UID:        "u",
			Finalizers: []string{clusterset.FinalizerRecords},
		},
	}
	profile.Spec.ClusterManager.Name, profile.DeletionTimestamp = clusterset.ClusterManager, &metav1.Time{
		Time: now.Truncate(time.Second),
	}
	record := &hubv1alpha1.ServiceExportRecord{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:         "clusterset",
			Name:              "web.shop.east",
			CreationTimestamp: metav1.NewTime(now.Add(created).Truncate(time.Second)),
		},
	}
	set := &hubv1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Namespace: "clusterset", Name: "prod"}}
	may, noted := true, metav1.Time{}
	departure := func(c client.Client) metav1.Time {
		t.Helper()
		var got hubv1alpha1.ClusterSet
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(set), &got); err != nil ||
			len(got.Status.Departed) != 1 {
			t.Fatal(got.Status.Departed, err)
		}
		return got.Status.Departed[0].At
	}
	hub := fake.NewClientBuilder().
		WithScheme(scheme).
		WithObjects(profile, record, set).
		WithStatusSubresource(set).
		WithIndex(&inventoryv1alpha1.ClusterProfile{}, "metadata.name", func(o client.Object) []string {
			return []string{o.GetName()}
		}).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
				review := o.(*authorizationv1.LocalSubjectAccessReview)
				review.Status.Allowed = may
				asked := metav1.NewTime(now.Truncate(time.Second))
				review.ManagedFields = []metav1.ManagedFieldsEntry{{Time: &asked}}
				return nil
			},
			Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
				if o.GetName() == record.Name {
					noted = departure(c)
				}
				if _, own := o.(*inventoryv1alpha1.ClusterProfile); !own { // by its absence, its blocks are released
					if err := c.Get(ctx, client.ObjectKeyFromObject(profile), profile.DeepCopy()); err != nil {
						t.Errorf("%T is left, and the ClusterProfile is not: %v", o, err)
					}
				}
				return c.Delete(ctx, o, opts...)
			},
		}).
		Build()
	var events reasons
	r := &reconciler{members: map[string]*member{}, HubEnv: kube.HubEnv{
		Namespace: "clusterset", Hub: hub, Live: hub,
		Now: func() time.Time { return now.Add(ahead) }, Events: &events,
	}}
	pass := func() {
		t.Helper()
		if _, err := r.Reconcile(
			t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "east"}},
		); err != nil {
			t.Fatal(err)
		}
	}
	pass()
	if at := departure(hub); !at.Equal(profile.DeletionTimestamp) {
		t.Errorf("while it may write, its departure is %v, want that of its ClusterProfile", at)
	}
	if len(events) > 0 {
		t.Errorf("%q, while the API server has had no time to see the revocation", events)
	}
	now = now.Add(revocationTime)
	if pass(); !slices.Equal(events, reasons{ReasonRightsNotRevoked}) {
		t.Errorf("%q, though it may still write after %v", events, revocationTime)
	}
	may = false
	pass()
	last := now.Truncate(time.Second) // of a record that it deleted
	if record.CreationTimestamp.After(last) {
		last = record.CreationTimestamp.Time
	}
	if !noted.After(last) || noted.After(last.Add(2*time.Second)) {
		t.Errorf("of one that created its last record at %v the departure is %v: peers hold what is later, and drop "+
			"what a newcomer of that id creates before", last, noted)
	}
}
