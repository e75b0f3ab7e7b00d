package lifecycle

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
)

// profile is a ClusterProfile of the cluster uid: used, or made by join.
func profile(id, annotation, uid string) *inventoryv1alpha1.ClusterProfile {
	return &inventoryv1alpha1.ClusterProfile{ObjectMeta: metav1.ObjectMeta{Namespace: "blue", Name: id, Annotations: map[string]string{annotation: uid}}}
}

// inMemory is a cluster of these objects.
func inMemory(funcs interceptor.Funcs, objects ...client.Object) *cluster.Cluster {
	c := fake.NewClientBuilder().WithScheme(cluster.Scheme()).WithObjects(objects...).WithInterceptorFuncs(funcs).WithReturnManagedFields().Build()
	return &cluster.Cluster{Client: c, Name: "the hub"}
}

// options say into a text.
func options(hub *cluster.Cluster) (*Options, *strings.Builder) {
	var said strings.Builder
	return &Options{Hub: hub, HubNamespace: "blue", Timeout: 10 * time.Second, Say: func(format string, args ...any) { fmt.Fprintf(&said, format+"\n", args...) }}, &said
}

// TestID3ACloneJoinsWithAnIDOfItsOwn: its original's claim bears its UID, too, and is in use; one that join has only begun is in the way.
func TestID3ACloneJoinsWithAnIDOfItsOwn(t *testing.T) {
	for annotation, refused := range map[string]bool{clusterset.AnnotationClusterUID: false, clusterset.AnnotationJoiningUID: true} {
		o, _ := options(inMemory(interceptor.Funcs{}, profile("east", annotation, "uid")))
		j := &join{JoinOptions: &JoinOptions{Options: *o, Member: &cluster.Cluster{Name: "this cluster"}, ClusterID: "west"}, state: state{uid: "uid"}}
		if _, err := j.claimable(t.Context()); (err != nil) != refused {
			t.Errorf("with east under %s: %v", annotation, err)
		}
	}
}

// TestID4WhatIsGivenUpOnTheHub: what nobody uses, at once; a member only once its Lease has run out, for a clone has its UID; and what its
// agent says is left.
func TestID4WhatIsGivenUpOnTheHub(t *testing.T) {
	left := profile("east", clusterset.AnnotationClusterUID, "uid")
	left.Annotations[clusterset.AnnotationLeft] = "true"
	for what, c := range map[string]struct {
		profile *inventoryv1alpha1.ClusterProfile
		renewed bool
		seconds int32 // of its Lease
		stays   bool
		atLeast time.Duration
	}{
		"one that join began":      {profile("east", clusterset.AnnotationJoiningUID, "uid"), true, 3600, false, 0},
		"a member that lives":      {profile("east", clusterset.AnnotationClusterUID, "uid"), true, 3600, true, 0},
		"a member that is no more": {profile("east", clusterset.AnnotationClusterUID, "uid"), false, 1, false, time.Second},
		"a member that left":       {left, false, 3600, false, 0},
		"another cluster's":        {profile("east", clusterset.AnnotationClusterUID, "other"), true, 3600, true, 0},
	} {
		t.Run(strings.ReplaceAll(what, " ", "_"), func(t *testing.T) {
			t.Parallel()
			lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "blue", Name: "east"}}
			lease.Spec.LeaseDurationSeconds = &c.seconds
			hub := inMemory(interceptor.Funcs{Get: func(ctx context.Context, in client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				err := in.Get(ctx, key, o, opts...)
				if l, ok := o.(*coordinationv1.Lease); ok && err == nil && c.renewed {
					err = in.Update(ctx, l.DeepCopy())
				}
				return err
			}}, c.profile.DeepCopy(), lease)
			o, said := options(hub)
			began := time.Now()
			if err := giveUp(t.Context(), o, "east", 0, "uid"); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took < c.atLeast {
				t.Errorf("it took %v", took)
			}
			err := hub.Get(t.Context(), types.NamespacedName{Namespace: "blue", Name: "east"}, &inventoryv1alpha1.ClusterProfile{})
			if stays := err == nil; stays != c.stays || err != nil && !apierrors.IsNotFound(err) {
				t.Errorf("it stays: %v, %v\n%s", stays, err, said)
			}
		})
	}
}

// TestWhatCouldNotBeDeletedIsTriedAgain: one API server of the hub that is just going away is no reason to wait for what never comes.
func TestWhatCouldNotBeDeletedIsTriedAgain(t *testing.T) {
	tries := 0
	hub := inMemory(interceptor.Funcs{Delete: func(ctx context.Context, in client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
		if tries++; tries < 3 {
			return apierrors.NewServiceUnavailable("it is going away")
		}
		return in.Delete(ctx, o, opts...)
	}}, profile("east", clusterset.AnnotationJoiningUID, "uid"))
	o, said := options(hub)
	if err := giveUp(t.Context(), o, "east", 0, "uid"); err != nil || tries != 3 {
		t.Errorf("%d tries: %v", tries, err)
	}
	if n := strings.Count(said.String(), "deleting"); n != 1 {
		t.Errorf("it says so %d times:\n%s", n, said)
	}
}
