package lifecycle

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/manifest"
	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// LeaveOptions are of one member.
type LeaveOptions struct {
	Options
	Member *cluster.Cluster
	Force  bool // the hub is gone for good
}

// leave is one run.
type leave struct {
	*LeaveOptions
	state
	objects []*unstructured.Unstructured // what join applied and is to go
	claims  []string                     // on the hub
	left    bool                         // the agent has
}

// Leave takes a cluster out of its clusterset and leaves it as it was before it joined. A join that was not finished is undone.
func Leave(ctx context.Context, o *LeaveOptions) error {
	l := &leave{LeaveOptions: o}
	if _, err := ask(ctx, o.Member, o.Say); err != nil {
		return err
	}
	var err error
	if l.state, err = read(ctx, o.Member); err != nil {
		return err
	}
	if err := l.plan(ctx); err != nil {
		return err
	}
	if l.claims, err = claims(ctx, &o.Options, l.uid); err != nil {
		return err
	}
	if l.was == nil && len(l.objects)+len(l.claims) == 0 {
		return fmt.Errorf("%s is a member of no clusterset, and nothing of one is left in it", o.Member.Name)
	}
	if o.DryRun != nil {
		return l.print()
	}
	rights := append(cluster.RightsToApply(l.objects, remove...), cluster.Right{Verb: "patch", Group: aboutv1beta1.GroupVersion.Group, Resource: "clusterproperties"})
	if err := allowed(ctx, o.Member, rights); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{l.withdraw, l.release, l.clean} {
		if err := step(ctx); err != nil {
			return fmt.Errorf("%w\nto go on: the same command again", err)
		}
	}
	o.Say("%s: has left; its ServiceExports are as they were", o.Member.Name)
	return nil
}

// withdraw has the agent leave, and waits for it.
func (l *leave) withdraw(ctx context.Context) error {
	if l.was == nil {
		return nil
	}
	value := "kubectl-clusterset"
	evicted, err := l.evicted(ctx)
	if err != nil {
		return err
	}
	if evicted {
		l.Say("the hub: this cluster was evicted, so it leaves without the hub")
		l.Force = true
	}
	if l.Force {
		value = clusterset.LeavingForced
	}
	if was := l.was.Annotations[clusterset.AnnotationLeaving]; was == "" || l.Force && was != value {
		leaving := l.was.DeepCopy()
		if leaving.Annotations == nil {
			leaving.Annotations = map[string]string{}
		}
		leaving.Annotations[clusterset.AnnotationLeaving] = value
		if err := l.Member.Patch(ctx, leaving, client.MergeFrom(l.was), client.FieldOwner(manifest.FieldManager)); err != nil {
			return fmt.Errorf("%s: %w", l.Member.Name, err)
		}
	}
	l.Say("%s: is leaving clusterset %s; its agent withdraws its exports and deletes its imports", l.Member.Name, l.was.Spec.Value)
	say, began := l.waiter("the agent"), time.Now()
	err = cluster.Until(ctx, l.Timeout, func(ctx context.Context) (bool, string, error) {
		p, err := kube.Get[*aboutv1beta1.ClusterProperty](ctx, l.Member, types.NamespacedName{Name: clusterset.PropertySet})
		if err != nil || p == nil {
			return err == nil, "", err
		}
		why := agentSays(ctx, l.Member, began)
		if time.Since(began) > 5*time.Second {
			say(why)
		}
		return false, why, nil
	})
	if err != nil {
		return fmt.Errorf("the agent of %s has not left yet: %w\nif this cluster was evicted: the same command with --hub-context; if the hub is gone for good: with --force; if the agent does not run: kubectl clusterset doctor", l.Member.Name, err)
	}
	return nil
}

// evicted tells whether the named hub says that this cluster departed. A hub that knows nothing of it may be the wrong one.
func (l *leave) evicted(ctx context.Context) (bool, error) {
	if l.Hub == nil || len(l.claims) > 0 || l.id == nil {
		return false, nil
	}
	var sets hubv1alpha1.ClusterSetList
	if err := l.Hub.List(ctx, &sets, client.InNamespace(l.HubNamespace)); err != nil && !meta.IsNoMatchError(err) {
		return false, fmt.Errorf("%s: %w", l.Hub.Name, err)
	}
	for i := range sets.Items {
		departed := slices.ContainsFunc(sets.Items[i].Status.Departed, func(d hubv1alpha1.Departure) bool { return d.ClusterID == l.id.Spec.Value })
		if departed && sets.Items[i].Name == l.was.Spec.Value {
			return true, nil
		}
	}
	if l.Force {
		return false, nil
	}
	return false, fmt.Errorf("namespace %s of %s knows no member %s: name the hub of clusterset %s; if that one has lost its memory, or is gone for good: --force", l.HubNamespace, l.Hub.Name, l.id.Spec.Value, l.was.Spec.Value)
}

// release gives up on the hub what is not given up by the agent's and the hub's own doing.
func (l *leave) release(ctx context.Context) error {
	if l.Hub == nil {
		l.Say("the hub was not named: of a member that has left, clusterset-controller hub cleans up there; of a join that was not finished: kubectl clusterset leave CLUSTER --evict --hub-context …")
		return nil
	}
	patience := 10 * time.Second
	if l.was == nil {
		patience = 0
	}
	for _, id := range l.claims {
		if err := giveUp(ctx, &l.Options, id, patience, l.uid); err != nil {
			return err
		}
	}
	return nil
}

// claims are the ids that a cluster holds, or has begun to join with: one, unless somebody was interrupted and then chose another.
func claims(ctx context.Context, o *Options, uid string) (ids []string, err error) {
	if o.Hub == nil {
		return nil, nil
	}
	var all inventoryv1alpha1.ClusterProfileList
	if err := o.Hub.List(ctx, &all, client.InNamespace(o.HubNamespace)); err != nil && !meta.IsNoMatchError(err) {
		return nil, fmt.Errorf("%s: %w", o.Hub.Name, err)
	}
	for i := range all.Items {
		if of(&all.Items[i], uid) {
			ids = append(ids, all.Items[i].Name)
		}
	}
	return ids, nil
}

// of tells whether a claim is that of the cluster uid.
func of(p *inventoryv1alpha1.ClusterProfile, uid string) bool {
	holder := p.Annotations[clusterset.AnnotationClusterUID]
	return holder == uid || holder == "" && p.Annotations[clusterset.AnnotationJoiningUID] == uid
}

// Evict takes a member out from the hub's side: it may be gone for good.
func Evict(ctx context.Context, o *Options, id string) error {
	if _, err := ask(ctx, o.Hub, o.Say); err != nil {
		return err
	}
	if err := allowed(ctx, o.Hub, []cluster.Right{{Verb: "delete", Group: inventoryv1alpha1.GroupVersion.Group, Resource: "clusterprofiles", Namespace: o.HubNamespace, Name: id}}); err != nil {
		return err
	}
	var all inventoryv1alpha1.ClusterProfileList
	if err := o.Hub.List(ctx, &all, client.InNamespace(o.HubNamespace)); err != nil {
		return fmt.Errorf("%s: %w", o.Hub.Name, err)
	}
	var ids []string
	for i := range all.Items {
		ids = append(ids, all.Items[i].Name)
	}
	if !slices.Contains(ids, id) {
		return fmt.Errorf("%s has no member %s in clusterset %s; its members are: %s", o.Hub.Name, id, o.HubNamespace, strings.Join(ids, ", "))
	}
	if o.DryRun != nil {
		_, err := fmt.Fprintf(o.DryRun, "# On %s would be deleted, and by clusterset-controller hub all else of that member:\nClusterProfile %s/%s\n", o.Hub.Name, o.HubNamespace, id)
		return err
	}
	return giveUp(ctx, o, id, 0, "")
}

// giveUp deletes a member's ClusterProfile, unless it goes by itself within patience, and waits until it is gone. With a uid, only that
// cluster's.
func giveUp(ctx context.Context, o *Options, id string, patience time.Duration, uid string) error {
	name := types.NamespacedName{Namespace: o.HubNamespace, Name: id}
	deadline, deleted := time.Now().Add(patience), false
	err := cluster.Until(ctx, o.Timeout, func(ctx context.Context) (bool, string, error) {
		p, err := kube.Get[*inventoryv1alpha1.ClusterProfile](ctx, o.Hub, name)
		if err != nil && !meta.IsNoMatchError(err) {
			return false, "", err
		}
		if p == nil || uid != "" && !of(p, uid) {
			return true, "", nil
		}
		if p.DeletionTimestamp == nil && !deleted && time.Now().After(deadline) {
			deleted = true
			o.Say("the hub: deleting ClusterProfile %s", id)
			err = o.Hub.Delete(ctx, p, client.Preconditions{UID: &p.UID})
		}
		return false, "its ClusterProfile " + id + " is still there", client.IgnoreNotFound(err)
	})
	if err != nil {
		return fmt.Errorf("%s: %s has not been cleaned up: %w\nclusterset-controller hub does that: kubectl -n %s logs -l app.kubernetes.io/name=clusterset-hub", o.Hub.Name, id, err, kube.SystemNamespace)
	}
	o.Say("the hub: %s is a member no more; its credentials, records and Lease are gone", id)
	return nil
}

// plan fills objects: what join has applied and is still there, but for what others need.
func (l *leave) plan(ctx context.Context) error {
	l.objects = nil
	objects, err := manifest.Render(manifest.Member, manifest.Values{Namespace: l.HubNamespace})
	if err != nil {
		return err
	}
	secret := &unstructured.Unstructured{}
	secret.SetAPIVersion("v1")
	secret.SetKind("Secret")
	secret.SetNamespace(kube.SystemNamespace)
	secret.SetName(clusterset.SecretHub)
	for _, o := range append(objects, secret) {
		there := &unstructured.Unstructured{}
		there.SetGroupVersionKind(o.GroupVersionKind())
		err := l.Member.Get(ctx, client.ObjectKeyFromObject(o), there)
		if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", l.Member.Name, err)
		}
		why, err := l.keep(ctx, there)
		if err != nil {
			return err
		}
		if why != "" {
			if o.GetKind() == "CustomResourceDefinition" && (l.left || l.DryRun != nil) {
				l.Say("%s: %s stays: %s", l.Member.Name, cluster.Title(o), why)
			}
			continue
		}
		l.objects = append(l.objects, o)
	}
	if l.id != nil {
		id := &unstructured.Unstructured{}
		id.SetGroupVersionKind(aboutv1beta1.GroupVersion.WithKind("ClusterProperty"))
		if err := l.Member.Get(ctx, client.ObjectKeyFromObject(l.id), id); err != nil {
			return fmt.Errorf("%s: %w", l.Member.Name, err)
		}
		if made(id) {
			l.objects = append(l.objects, id)
		}
	}
	return nil
}

// made tells whether join made the id; the agent writes it too where there is none.
func made(id *unstructured.Unstructured) bool {
	return manifest.Ours(id) || slices.ContainsFunc(id.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool { return f.Manager == "clusterset-controller" })
}

// keep is why an object stays; "" if it goes.
func (l *leave) keep(ctx context.Context, o *unstructured.Unstructured) (string, error) {
	isHub := &apiextensionsv1.CustomResourceDefinition{}
	err := l.Member.Get(ctx, client.ObjectKey{Name: "clustersets.hub.clusterset-dns.io"}, isHub)
	if client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("%s: %w", l.Member.Name, err)
	}
	switch kind := o.GetKind(); {
	case kind != "CustomResourceDefinition" && kind != "Namespace":
		return "", nil
	case err == nil:
		return "this cluster is a hub as well", nil
	case kind == "Namespace":
		return "", nil
	case !manifest.Ours(o):
		return "others brought it", nil
	}
	return l.inUse(ctx, o)
}

// inUse tells what needs a kind: objects that are not ours, or CoreDNS, which goes on serving.
func (l *leave) inUse(ctx context.Context, crd *unstructured.Unstructured) (string, error) {
	group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "kind")
	if group == "multicluster.x-k8s.io" {
		role := &rbacv1.ClusterRole{}
		err := l.Member.Get(ctx, client.ObjectKey{Name: "clusterset-dns:coredns"}, role)
		if err == nil {
			return "CoreDNS reads it (deploy/coredns)", nil
		}
		if client.IgnoreNotFound(err) != nil {
			return "", fmt.Errorf("%s: %w", l.Member.Name, err)
		}
	}
	if !l.left && (kind == "ServiceImport" || kind == "ServiceExportRecord") { // the agent deletes its own
		return "", nil
	}
	versions, _, _ := unstructured.NestedSlice(crd.Object, "status", "storedVersions")
	if len(versions) == 0 {
		return "", nil
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: fmt.Sprint(versions[len(versions)-1]), Kind: kind + "List"})
	if err := l.Member.List(ctx, list); err != nil {
		return "", fmt.Errorf("%s: %w", l.Member.Name, err)
	}
	for i := range list.Items {
		if n := list.Items[i].GetName(); kind != "ClusterProperty" || n != clusterset.PropertySet && (n != clusterset.PropertyID || !made(&list.Items[i])) {
			return fmt.Sprintf("there are objects of it, such as %s", cluster.Title(&list.Items[i])), nil
		}
	}
	return "", nil
}

// clean deletes what join applied, and waits for the namespace, so that the cluster can join again at once.
func (l *leave) clean(ctx context.Context) error {
	l.left = true
	if err := l.plan(ctx); err != nil {
		return err
	}
	l.Say("%s: deleting what join had applied", l.Member.Name)
	if err := l.Member.Remove(ctx, without(l.objects, "CustomResourceDefinition", "ClusterProperty")); err != nil {
		return err
	}
	if only(l.objects, "Namespace") != nil {
		if err := l.namespaceGone(ctx); err != nil {
			return err
		}
	}
	// A kind that goes while a namespace is being emptied makes the namespace controller begin anew.
	return l.Member.Remove(ctx, slices.DeleteFunc(slices.Clone(l.objects), func(o *unstructured.Unstructured) bool {
		return o.GetKind() != "CustomResourceDefinition" && o.GetKind() != "ClusterProperty"
	}))
}

func (l *leave) namespaceGone(ctx context.Context) error {
	err := cluster.Until(ctx, l.Timeout, func(ctx context.Context) (bool, string, error) {
		err := l.Member.Get(ctx, client.ObjectKey{Name: kube.SystemNamespace}, &corev1.Namespace{})
		return apierrors.IsNotFound(err), "it is being deleted", client.IgnoreNotFound(err)
	})
	if err != nil {
		return fmt.Errorf("%s: namespace %s: %w; kubectl get namespace %s -o yaml tells what is left in it", l.Member.Name, kube.SystemNamespace, err, kube.SystemNamespace)
	}
	return nil
}

func (l *leave) print() error {
	var out strings.Builder
	fmt.Fprintf(&out, "# On %s would be deleted, once its agent has withdrawn its exports:\n", l.Member.Name)
	for i := len(l.objects) - 1; i >= 0; i-- {
		fmt.Fprintln(&out, cluster.Title(l.objects[i]))
	}
	_, err := fmt.Fprint(l.DryRun, out.String())
	return err
}
