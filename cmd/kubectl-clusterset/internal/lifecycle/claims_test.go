package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// profile is a ClusterProfile of the cluster uid: used, or made by join.
func profile(id, annotation, uid string) *inventoryv1alpha1.ClusterProfile {
	return &inventoryv1alpha1.ClusterProfile{ObjectMeta: metav1.ObjectMeta{Namespace: "blue", Name: id,
		Annotations: map[string]string{annotation: uid}}}
}

// inMemory is a cluster of these objects.
func inMemory(funcs interceptor.Funcs, objects ...client.Object) *cluster.Cluster {
	c := fake.NewClientBuilder().
		WithScheme(cluster.Scheme()).
		WithObjects(objects...).
		WithInterceptorFuncs(funcs).
		WithReturnManagedFields().
		Build()
	return &cluster.Cluster{Client: c, Name: "the hub"}
}

// options say into a text.
func options(hub *cluster.Cluster) (*Options, *strings.Builder) {
	var said strings.Builder
	return &Options{Hub: hub, HubNamespace: "blue", Timeout: 10 * time.Second, Out: io.Discard,
		Say: func(format string, args ...any) { fmt.Fprintf(&said, format+"\n", args...) }}, &said
}

// TestID3ACloneJoinsWithAnIDOfItsOwn: its original's claim bears its UID, too, and is in use; one that join has only
// begun is in the way.
func TestID3ACloneJoinsWithAnIDOfItsOwn(t *testing.T) {
	for annotation, refused := range map[string]bool{clusterset.AnnotationClusterUID: false,
		clusterset.AnnotationJoiningUID: true} {
		o, _ := options(inMemory(interceptor.Funcs{}, profile("east", annotation, "uid")))
		j := &join{JoinOptions: &JoinOptions{Options: *o, Member: &cluster.Cluster{Name: "this cluster"},
			ClusterID: "west"}, state: state{uid: "uid"}}
		if err := j.checkClaim(t.Context()); (err != nil) != refused {
			t.Errorf("with east under %s: %v", annotation, err)
		}
	}
}

// TestAnIDThatAnotherClusterHasIsFreedOnTheHub: the command names hub and ClusterSet, as this cluster is no hub.
func TestAnIDThatAnotherClusterHasIsFreedOnTheHub(t *testing.T) {
	for _, annotation := range []string{clusterset.AnnotationClusterUID, clusterset.AnnotationJoiningUID} {
		for set, flag := range map[string]string{"blue": " --hub-namespace=blue", DefaultHubNamespace: ""} {
			j := &join{JoinOptions: &JoinOptions{Options: Options{Hub: &cluster.Cluster{Name: "the hub"}}}}
			j.hubNamespace = set
			j.chooseNamespace(j.state)
			want := "kubectl clusterset evict east --hub-context=HUB" + flag
			if err := j.checkHolder(profile("east", annotation, "other")); err == nil ||
				!strings.HasSuffix(err.Error(), want) {
				t.Errorf("%s in %s: %v, want %q", annotation, set, err, want)
			}
		}
	}
}

// TestAClaimWithoutAnOwnerIsTheHubs: the command that gives it one is for the hub.
func TestAClaimWithoutAnOwnerIsTheHubs(t *testing.T) {
	j := &join{JoinOptions: &JoinOptions{Options: Options{Hub: &cluster.Cluster{Name: "the hub"}}}}
	j.uid, j.Flags = "uid", report.Flags{Context: "west", HubContext: "hub"}
	err := j.checkHolder(profile("east", "", ""))
	const want = "created for this cluster: kubectl --context=hub -n blue annotate clusterprofile east " +
		clusterset.AnnotationJoiningUID + "=uid"
	if !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}

// TestID3AMemberThatTheHubHasForgottenIsTakenInAgain, with its id, by a join like the first; what has nothing to
// renew says so, and does not send a member away that may stay.
func TestID3AMemberThatTheHubHasForgottenIsTakenInAgain(t *testing.T) {
	for what, c := range map[string]struct {
		renew   bool
		evicted string // whom the hub says that it has evicted
		leaving string
		says    string
	}{
		"join": {false, "", "", ""},
		"join --renew": {true, "west", "",
			"its cluster ID and VIPs: kubectl clusterset join --hub-context=HUB; to remove what is left here: "},
		"join --renew, to leave": {true, "east", "true", "→ to remove what is left here: kubectl clusterset leave"},
		"join --renew, evicted":  {true, "east", "", ""},
	} {
		blue := &hubv1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Namespace: "blue", Name: "blue"}}
		blue.Status.Departed = []hubv1alpha1.Departure{{ClusterID: c.evicted, At: metav1.Now()}}
		hub := inMemory(interceptor.Funcs{}, blue)
		o, _ := options(hub)
		set := &aboutv1beta1.ClusterProperty{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{clusterset.AnnotationLeaving: c.leaving}},
			Spec:       aboutv1beta1.ClusterPropertySpec{Value: "blue"},
		}
		j := &join{JoinOptions: &JoinOptions{Options: *o, Member: inMemory(interceptor.Funcs{}), Renew: c.renew},
			set: "blue"}
		j.state = state{uid: "uid", setProperty: set,
			id: &aboutv1beta1.ClusterProperty{Spec: aboutv1beta1.ClusterPropertySpec{Value: "east"}}}
		err := errors.Join(j.chooseID(t.Context()), j.readClusterSet(t.Context()), j.checkMembership(t.Context()))
		if err != nil || j.ClusterID != "east" {
			t.Errorf("%s as %q: %v", what, j.ClusterID, err)
		}
		err = j.checkClaim(t.Context())
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestID3ACloneThatHasBegunToJoinIsInNoMembersWay: it has its original's UID, and what would give its claim up is to
// leave.
func TestID3ACloneThatHasBegunToJoinIsInNoMembersWay(t *testing.T) {
	for _, renew := range []bool{false, true} {
		o, _ := options(inMemory(interceptor.Funcs{}, profile("east", clusterset.AnnotationClusterUID, "uid"),
			profile("copy", clusterset.AnnotationJoiningUID, "uid")))
		j := &join{JoinOptions: &JoinOptions{Options: *o, Member: &cluster.Cluster{Name: "this cluster"},
			ClusterID: "east", Renew: renew}, state: state{uid: "uid", setProperty: &aboutv1beta1.ClusterProperty{}}}
		if err := j.checkClaim(t.Context()); !j.claimed || err != nil {
			t.Errorf("renew %v: claimed %v, %v", renew, j.claimed, err)
		}
	}
}

// TestID3AClaimThatGoesMeanwhileIsNone: another join's claim was in the way, and is gone at the next look.
func TestID3AClaimThatGoesMeanwhileIsNone(t *testing.T) {
	o, _ := options(inMemory(interceptor.Funcs{Create: func(_ context.Context, _ client.WithWatch, o client.Object,
		_ ...client.CreateOption) error {
		return apierrors.NewAlreadyExists(schema.GroupResource{Resource: "clusterprofiles"}, o.GetName())
	}}))
	claim := &unstructured.Unstructured{}
	claim.SetKind("ClusterProfile")
	claim.SetName("east")
	j := &join{JoinOptions: &JoinOptions{Options: *o, Member: &cluster.Cluster{Name: "this cluster"},
		ClusterID: "east"}, state: state{uid: "uid"}, hubSide: []*unstructured.Unstructured{claim}}
	if err := j.createClaim(t.Context()); err == nil {
		t.Error("the claim counts as made")
	}
}

// TestID4WhatIsGivenUpOnTheHub: what nobody uses, at once; a member only once its Lease has run out, for a clone has
// its UID.
func TestID4WhatIsGivenUpOnTheHub(t *testing.T) {
	for what, c := range map[string]struct {
		profile *inventoryv1alpha1.ClusterProfile
		renewed bool
		seconds int32 // of its Lease
		stays   bool
		atLeast time.Duration
	}{
		"one that join began": {profile("east", clusterset.AnnotationJoiningUID, "uid"), true, 3600, false, 0},
		"a member that lives": {profile("east", clusterset.AnnotationClusterUID, "uid"), true, 3600, true, 0},
		"a member that is no more": {profile("east", clusterset.AnnotationClusterUID, "uid"), false, 1, false,
			time.Second},
		"another cluster's": {profile("east", clusterset.AnnotationClusterUID, "other"), true, 3600, true, 0},
	} {
		t.Run(strings.ReplaceAll(what, " ", "_"), func(t *testing.T) {
			t.Parallel()
			lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "blue", Name: "east"}}
			lease.Spec.LeaseDurationSeconds = &c.seconds
			hub := inMemory(
				interceptor.Funcs{Get: func(ctx context.Context, in client.WithWatch, key client.ObjectKey,
					o client.Object, opts ...client.GetOption) error {
					err := in.Get(ctx, key, o, opts...)
					if l, ok := o.(*coordinationv1.Lease); ok && err == nil && c.renewed {
						err = in.Update(ctx, l.DeepCopy())
					}
					return err
				}},
				c.profile.DeepCopy(),
				lease,
			)
			o, said := options(hub)
			began := time.Now()
			l := &leave{LeaveOptions: &LeaveOptions{Options: *o}, claims: []string{"east"}, state: state{uid: "uid"}}
			if err := l.release(t.Context()); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took < c.atLeast {
				t.Errorf("it took %v", took)
			}
			err := hub.Get(t.Context(), types.NamespacedName{Namespace: "blue", Name: "east"},
				&inventoryv1alpha1.ClusterProfile{})
			if stays := err == nil; stays != c.stays || err != nil && !apierrors.IsNotFound(err) {
				t.Errorf("it stays: %v, %v\n%s", stays, err, said)
			}
		})
	}
}

// TestWhatCouldNotBeDeletedIsTriedAgain: one API server of the hub that is just going away is no reason to wait for
// what never comes.
func TestWhatCouldNotBeDeletedIsTriedAgain(t *testing.T) {
	tries := 0
	hub := inMemory(interceptor.Funcs{Delete: func(ctx context.Context, in client.WithWatch, o client.Object,
		opts ...client.DeleteOption) error {
		if tries++; tries < 3 {
			return apierrors.NewServiceUnavailable("it is going away")
		}
		return in.Delete(ctx, o, opts...)
	}}, profile("east", clusterset.AnnotationJoiningUID, "uid"))
	o, said := options(hub)
	if err := o.giveUp(t.Context(), "east", "uid"); err != nil || tries != 3 {
		t.Errorf("%d tries: %v", tries, err)
	}
	if n := strings.Count(said.String(), "deleting"); n != 1 {
		t.Errorf("it says so %d times:\n%s", n, said)
	}
}

// TestAControllerOfTheHubThatDoesNothingIsCheckedThere: an eviction waits for it, and doctor knows what it lacks.
func TestAControllerOfTheHubThatDoesNothingIsCheckedThere(t *testing.T) {
	stays := profile("east", clusterset.AnnotationJoiningUID, "uid")
	stays.Finalizers = []string{"clusterset-dns.io/records"}
	o, _ := options(inMemory(interceptor.Funcs{}, stays))
	o.Timeout = 500 * time.Millisecond
	const want = "\n  → on the hub: kubectl clusterset doctor"
	if err := o.giveUp(t.Context(), "east", ""); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}

// TestWhoMayNotDeleteAClaimIsNotSentToTheController.
func TestWhoMayNotDeleteAClaimIsNotSentToTheController(t *testing.T) {
	hub := inMemory(interceptor.Funcs{Delete: func(context.Context, client.WithWatch, client.Object,
		...client.DeleteOption) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "clusterprofiles"}, "east", errors.New("no"))
	}}, profile("east", clusterset.AnnotationJoiningUID, "uid"))
	o, _ := options(hub)
	o.Timeout = 500 * time.Millisecond
	if err := o.giveUp(t.Context(), "east", ""); !apierrors.IsForbidden(err) || strings.Contains(err.Error(), "→") {
		t.Errorf("%v", err)
	}
}

// TestAClaimMadeAgainEndsTheWait: the agent of an evicted member that runs on claims its ID again at once.
func TestAClaimMadeAgainEndsTheWait(t *testing.T) {
	first := profile("east", clusterset.AnnotationClusterUID, "uid")
	first.UID = "first"
	hub := inMemory(interceptor.Funcs{Delete: func(ctx context.Context, in client.WithWatch, o client.Object,
		opts ...client.DeleteOption) error {
		if err := in.Delete(ctx, o, opts...); err != nil {
			return err
		}
		again := profile("east", clusterset.AnnotationClusterUID, "uid")
		again.UID = "another"
		return in.Create(ctx, again)
	}}, first)
	o, said := options(hub)
	o.Timeout = 5 * time.Second
	if err := o.giveUp(t.Context(), "east", ""); err != nil ||
		!strings.Contains(said.String(), "removed east") {
		t.Errorf("%v\n%s", err, said)
	}
}

// TestID4LeavingEvictsNobodyElse: a clone that joined under an id of its own has its original's UID, and may be
// silent because its own way to the hub is cut.
func TestID4LeavingEvictsNobodyElse(t *testing.T) {
	uid := clusterset.AnnotationClusterUID
	id := func(value string) *aboutv1beta1.ClusterProperty {
		return &aboutv1beta1.ClusterProperty{Spec: aboutv1beta1.ClusterPropertySpec{Value: value}}
	}
	for what, c := range map[string]struct {
		id    *aboutv1beta1.ClusterProperty
		force bool
		goes  []string
	}{
		"the original":       {id("east"), false, []string{"begun", "east"}},
		"the clone":          {id("copy"), false, []string{"begun", "copy"}},
		"the clone by force": {id("east"), true, []string{"begun"}}, // before it has an id of its own
		"without an id":      {nil, false, []string{"begun"}},
	} {
		t.Run(strings.ReplaceAll(what, " ", "_"), func(t *testing.T) {
			t.Parallel()
			objects := []client.Object{profile("begun", clusterset.AnnotationJoiningUID, "uid")}
			for _, id := range []string{"copy", "east"} {
				lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "blue", Name: id}}
				lease.Spec.LeaseDurationSeconds = new(int32)
				objects = append(objects, profile(id, uid, "uid"), lease)
			}
			hub := inMemory(interceptor.Funcs{}, objects...)
			o, said := options(hub)
			l := &leave{
				LeaveOptions: &LeaveOptions{Options: *o, Force: c.force},
				state:        state{uid: "uid", id: c.id},
			}
			if err := l.claimed(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := l.release(t.Context()); err != nil {
				t.Fatalf("%v\n%s", err, said)
			}
			for _, id := range []string{"begun", "copy", "east"} {
				err := hub.Get(t.Context(), types.NamespacedName{Namespace: "blue", Name: id},
					&inventoryv1alpha1.ClusterProfile{})
				if goes := slices.Contains(c.goes, id); client.IgnoreNotFound(err) != nil || goes == (err == nil) {
					t.Errorf("%s must go: %v, and %v\n%s", id, goes, err, said)
				}
			}
		})
	}
}

// TestAnEvictedClusterLeavesThoughItsCloneIsAMember, or joins: by its own id, and not by that of another cluster of
// its UID.
func TestAnEvictedClusterLeavesThoughItsCloneIsAMember(t *testing.T) {
	set := &hubv1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Namespace: "blue", Name: "blue"}}
	set.Status.Departed = []hubv1alpha1.Departure{{ClusterID: "east"}}
	o, _ := options(inMemory(interceptor.Funcs{}, set, profile("copy", clusterset.AnnotationClusterUID, "uid"),
		profile("third", clusterset.AnnotationJoiningUID, "uid")))
	renewed := metav1.NowMicro()
	for what, c := range map[string]struct {
		here    []client.Object
		evicted bool
	}{
		"the agent has renewed nothing since": {nil, true},
		"it renews its Lease on another hub": {[]client.Object{&coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: kube.SystemNamespace, Name: clusterset.LeaseRenewed,
				ManagedFields: []metav1.ManagedFieldsEntry{{Operation: "Update", APIVersion: "coordination.k8s.io/v1",
					Time: &metav1.Time{Time: renewed.Time}, FieldsType: "FieldsV1",
					FieldsV1: metav1.NewFieldsV1("{}")}}},
			Spec: coordinationv1.LeaseSpec{RenewTime: &renewed}}}, false},
	} {
		l := &leave{LeaveOptions: &LeaveOptions{Options: *o, Member: inMemory(interceptor.Funcs{}, c.here...)},
			state: state{uid: "uid",
				id:          &aboutv1beta1.ClusterProperty{Spec: aboutv1beta1.ClusterPropertySpec{Value: "east"}},
				setProperty: &aboutv1beta1.ClusterProperty{Spec: aboutv1beta1.ClusterPropertySpec{Value: "blue"}}}}
		if err := l.claimed(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := l.evicted(t.Context()); (err == nil) != c.evicted || l.Force != c.evicted {
			t.Errorf("%s: %v, %v", what, l.Force, err)
		}
	}
}

// TestAHubThatKnowsThisMemberByAnotherUIDSaysSo: the ID is there, so "no member" would be wrong.
func TestAHubThatKnowsThisMemberByAnotherUIDSaysSo(t *testing.T) {
	o, _ := options(inMemory(interceptor.Funcs{}, profile("east", clusterset.AnnotationClusterUID, "other"),
		&hubv1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Namespace: "blue", Name: "blue"}}))
	member := inMemory(interceptor.Funcs{})
	member.Name = "this cluster"
	l := &leave{LeaveOptions: &LeaveOptions{Options: *o, Member: member},
		state: state{uid: "uid",
			id:          &aboutv1beta1.ClusterProperty{Spec: aboutv1beta1.ClusterPropertySpec{Value: "east"}},
			setProperty: &aboutv1beta1.ClusterProperty{Spec: aboutv1beta1.ClusterPropertySpec{Value: "blue"}}}}
	err := l.evicted(t.Context())
	const want = "has no member east with the kube-system UID of this cluster"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}

// TestAHubThatIsGoneKeepsNobodyWhoLeavesByForce, though it was named; who does not is told how. A hub that refuses the
// user is not gone.
func TestAHubThatIsGoneKeepsNobodyWhoLeavesByForce(t *testing.T) {
	named, told := options(nil)
	east := &aboutv1beta1.ClusterProperty{Spec: aboutv1beta1.ClusterPropertySpec{Value: "east"}}
	if err := (&leave{LeaveOptions: &LeaveOptions{Options: *named, Force: true}, state: state{id: east}}).release(
		t.Context()); err != nil || !strings.Contains(told.String(), "evict east --hub-context=HUB") {
		t.Errorf("%v, and it does not name the cluster: %s", err, told)
	}
	for _, c := range []struct {
		why   error
		force bool
		says  string
	}{
		{errors.New("refused"), false, "\n  → if the hub is permanently lost: --force, without --hub-context"},
		{apierrors.NewUnauthorized("no token"), false, "\n  → leave out --hub-context"},
		{apierrors.NewForbidden(schema.GroupResource{}, "", nil), false, "\n  → leave out --hub-context"},
		{errors.New("refused"), true, "; the hub is not cleaned up"},
	} {
		o, said := options(inMemory(interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList,
			...client.ListOption) error {
			return c.why
		}}))
		l := &leave{LeaveOptions: &LeaveOptions{Options: *o, Force: c.force}, state: state{uid: "uid"}}
		err := l.claimed(t.Context())
		if text := fmt.Sprint(err, said); !strings.Contains(text, c.why.Error()+c.says) || (err == nil) != c.force ||
			(l.Hub == nil) != c.force {
			t.Errorf("by force %v: %s, want %q", c.force, text, c.says)
		}
	}
}
