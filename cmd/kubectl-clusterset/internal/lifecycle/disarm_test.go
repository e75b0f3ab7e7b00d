package lifecycle

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// joiner is a cluster whose join was not finished, with an agent that runs: it claims the id, says the membership and
// renews its Lease as soon as it is let, and leaves when it is told to, if it has its rights.
type joiner struct {
	t           *testing.T
	member, hub *cluster.Cluster
	binding     *rbacv1.ClusterRoleBinding
	leftAlone   bool // nothing was deleted before it was told to leave
	touched     bool
	everybody   bool // may do everything
}

func newJoiner(t *testing.T, member interceptor.Funcs, hub interceptor.Funcs) *joiner {
	w := &joiner{t: t, binding: &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "clusterset-dns:agent"}}}
	system := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "uid"}}
	id := &aboutv1beta1.ClusterProperty{ObjectMeta: metav1.ObjectMeta{Name: clusterset.PropertyID},
		Spec: aboutv1beta1.ClusterPropertySpec{Value: "east"}}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: kube.SystemNamespace,
		Name: agentAccount}}
	member.Create = func(ctx context.Context, api client.WithWatch, o client.Object,
		opts ...client.CreateOption) error {
		if review, is := o.(*authorizationv1.SubjectAccessReview); is {
			review.Status.Allowed = w.everybody || w.may()
			return nil
		}
		return api.Create(ctx, o, opts...)
	}
	deletes := member.Delete
	member.Delete = func(ctx context.Context, api client.WithWatch, o client.Object,
		opts ...client.DeleteOption) error {
		w.touched = w.touched || o.GetName() != w.binding.Name
		if deletes != nil {
			return deletes(ctx, api, o, opts...)
		}
		return api.Delete(ctx, o, opts...)
	}
	member.Patch = func(ctx context.Context, api client.WithWatch, o client.Object, p client.Patch,
		opts ...client.PatchOption) error {
		err := api.Patch(ctx, o, p, opts...)
		if o.GetName() == clusterset.PropertySet && o.GetAnnotations()[clusterset.AnnotationLeaving] != "" && w.may() {
			w.leftAlone = !w.touched
			w.leave()
		}
		return err
	}
	w.member = inMemory(member, system, id, account, w.binding.DeepCopy())
	w.member.Name = "this cluster"
	set := &hubv1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Namespace: "blue", Name: "blue"}}
	w.hub = inMemory(hub, set, profile("east", clusterset.AnnotationJoiningUID, "uid"))
	return w
}

func (w *joiner) may() bool {
	return w.member.Get(w.t.Context(), client.ObjectKeyFromObject(w.binding), w.binding.DeepCopy()) == nil
}

// claim is the agent's, who needs no right in its own cluster for it.
func (w *joiner) claim() {
	p := &inventoryv1alpha1.ClusterProfile{}
	if err := w.hub.Get(w.t.Context(), client.ObjectKey{Namespace: "blue", Name: "east"}, p); err != nil {
		return
	}
	metav1.SetMetaDataAnnotation(&p.ObjectMeta, clusterset.AnnotationClusterUID, "uid")
	if err := w.hub.Update(w.t.Context(), p); err != nil {
		w.t.Fatal(err)
	}
}

// enter is all that makes a member, and its first renewal.
func (w *joiner) enter() {
	w.claim()
	if !w.may() {
		return
	}
	set := &aboutv1beta1.ClusterProperty{ObjectMeta: metav1.ObjectMeta{Name: clusterset.PropertySet},
		Spec: aboutv1beta1.ClusterPropertySpec{Value: "blue"}}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "blue", Name: "east"}}
	for c, o := range map[*cluster.Cluster]client.Object{w.member: set, w.hub: lease} {
		if err := c.Create(w.t.Context(), o); err != nil && !apierrors.IsAlreadyExists(err) {
			w.t.Fatal(err)
		}
	}
}

// leave is an agent's, and the hub's clean-up after it.
func (w *joiner) leave() {
	for c, o := range map[*cluster.Cluster]client.Object{
		w.member: &aboutv1beta1.ClusterProperty{ObjectMeta: metav1.ObjectMeta{Name: clusterset.PropertySet}},
		w.hub:    profile("east", "", ""),
	} {
		if err := c.Client.Delete(w.t.Context(), o); err != nil {
			w.t.Fatal(err)
		}
	}
}

// undo is one run of leave, as far as it comes.
func (w *joiner) undo(read func(context.Context, *leave)) (said string, err error) {
	o, text := options(w.hub)
	l := &leave{LeaveOptions: &LeaveOptions{Options: *o, Member: w.member}, stays: map[string]bool{}}
	read(w.t.Context(), l)
	err = l.run(w.t.Context())
	return text.String(), err
}

// look is what Leave does before it writes.
func (w *joiner) look(ctx context.Context, l *leave) {
	var err error
	if l.state, err = read(ctx, w.member); err != nil {
		w.t.Fatal(err)
	}
	if err := l.plan(ctx); err != nil {
		w.t.Fatal(err)
	}
	if err := l.claimed(ctx); err != nil {
		w.t.Fatal(err)
	}
}

// nothing checks that neither the cluster nor the hub takes it for a member.
func (w *joiner) nothing(said string, err error) {
	w.t.Helper()
	if err != nil || strings.Contains(said, "stays") {
		w.t.Errorf("%v\n%s", err, said)
	}
	for c, o := range map[*cluster.Cluster]client.Object{
		w.member: &aboutv1beta1.ClusterProperty{ObjectMeta: metav1.ObjectMeta{Name: clusterset.PropertySet}},
		w.hub:    profile("east", "", ""),
	} {
		if err := c.Get(w.t.Context(), client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
			w.t.Errorf("%s: %T is left: %v\n%s", c.Name, o, err, said)
		}
	}
	if w.may() {
		w.t.Error("the agent has its rights still")
	}
}

// TestID3AnUnfinishedJoinIsUndoneThoughItsAgentRuns: it becomes a member after leave has looked, and leaves as such
// before anything of it is deleted; or it is too late, and can become none.
func TestID3AnUnfinishedJoinIsUndoneThoughItsAgentRuns(t *testing.T) {
	play := func(what string, do func(t *testing.T)) {
		t.Run(strings.ReplaceAll(what, " ", "_"), func(t *testing.T) { synctest.Test(t, do) })
	}
	play("a member after the look", func(t *testing.T) {
		w := newJoiner(t, interceptor.Funcs{}, interceptor.Funcs{})
		said, err := w.undo(func(ctx context.Context, l *leave) {
			w.look(ctx, l)
			w.enter()
		})
		w.nothing(said, err)
		if !w.leftAlone || !strings.Contains(said, "has become a member of ClusterSet blue meanwhile") {
			t.Errorf("it leaves before anything is deleted: %v\n%s", w.leftAlone, said)
		}
	})
	play("and leave was interrupted", func(t *testing.T) {
		w := newJoiner(t, interceptor.Funcs{}, interceptor.Funcs{})
		w.enter()
		if err := w.member.Client.Delete(t.Context(), w.binding.DeepCopy()); err != nil {
			t.Fatal(err)
		}
		said, err := w.undo(w.look)
		w.nothing(said, err)
		if !w.leftAlone {
			t.Errorf("something is deleted before it leaves\n%s", said)
		}
	})
	play("too late for the cluster", func(t *testing.T) {
		var w *joiner
		w = newJoiner(t, interceptor.Funcs{Delete: func(ctx context.Context, api client.WithWatch, o client.Object,
			opts ...client.DeleteOption) error {
			err := api.Delete(ctx, o, opts...)
			if o.GetName() == w.binding.Name {
				w.enter()
			}
			return err
		}}, interceptor.Funcs{})
		said, err := w.undo(w.look)
		w.nothing(said, err)
	})
	play("too late for the hub", func(t *testing.T) {
		var w *joiner
		once := true
		w = newJoiner(t, interceptor.Funcs{}, interceptor.Funcs{Delete: func(ctx context.Context, api client.WithWatch,
			o client.Object, opts ...client.DeleteOption) error {
			if once {
				once = false
				w.claim() // after the look, and before the deletion
				err := api.Delete(ctx, o, opts...)
				if !apierrors.IsConflict(err) {
					t.Errorf("a claim that has just come to be used: %v", err)
				}
				return err
			}
			return api.Delete(ctx, o, opts...)
		}})
		said, err := w.undo(w.look)
		w.nothing(said, err)
	})
	play("rights by others too", func(t *testing.T) {
		w := newJoiner(t, interceptor.Funcs{}, interceptor.Funcs{})
		w.everybody = true
		said, err := w.undo(w.look)
		w.nothing(said, err)
		if !strings.Contains(said, "others gave the agent the right") {
			t.Errorf("it does not say so:\n%s", said)
		}
	})
	play("an API server that had not heard yet", func(t *testing.T) {
		w := newJoiner(t, interceptor.Funcs{Delete: func(ctx context.Context, api client.WithWatch, o client.Object,
			opts ...client.DeleteOption) error {
			if _, is := o.(*corev1.ServiceAccount); !is && o.GetName() == agentAccount &&
				o.GetObjectKind().GroupVersionKind().Kind == "ServiceAccount" {
				set := &aboutv1beta1.ClusterProperty{ObjectMeta: metav1.ObjectMeta{Name: clusterset.PropertySet}}
				if err := api.Create(ctx, set); err != nil {
					return err
				}
			}
			return api.Delete(ctx, o, opts...)
		}}, interceptor.Funcs{})
		said, err := w.undo(w.look)
		w.nothing(said, err)
	})
}

// TestWhoUndoesAJoinMayDisarmItsAgent: the rights that takes are asked for before anything is written.
func TestWhoUndoesAJoinMayDisarmItsAgent(t *testing.T) {
	w := newJoiner(t, interceptor.Funcs{}, interceptor.Funcs{})
	o, _ := options(w.hub)
	l := &leave{LeaveOptions: &LeaveOptions{Options: *o, Member: w.member}, stays: map[string]bool{}}
	w.look(t.Context(), l)
	texts := strings.Join(cluster.Texts(l.rights()), "; ")
	for _, want := range []string{"create subjectaccessreviews.authorization.k8s.io",
		"get/create/patch clusterrolebindings.rbac.authorization.k8s.io"} {
		if !strings.Contains(texts, want) {
			t.Errorf("no %q in %s", want, texts)
		}
	}
}
