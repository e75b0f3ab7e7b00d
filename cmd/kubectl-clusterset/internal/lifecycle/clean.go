package lifecycle

import (
	"context"
	"fmt"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/manifest"
	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
	"github.com/clusterset-dns/clusterset-dns/controllers/membership"
)

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
			if o.GetKind() == "CustomResourceDefinition" && (l.left || l.DryRun != nil) && !l.stays[o.GetName()] {
				l.stays[o.GetName()] = true
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
	case !manifest.Brought(o):
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
		if !l.left && list.Items[i].GetLabels()[derived.LabelManagedBy] == kube.Manager { // the agent deletes its own
			continue
		}
		if n := list.Items[i].GetName(); kind != "ClusterProperty" || n != clusterset.PropertySet && (n != clusterset.PropertyID || !made(&list.Items[i])) {
			return fmt.Sprintf("there are objects of it, such as %s", cluster.Title(&list.Items[i])), nil
		}
	}
	return "", nil
}

// cleaning are the rights to what membership.Gate.Clean does. Where ranges are refused to it, it takes it that the agent could make none (V7):
// that holds of the agent, and not of who runs this.
func cleaning() (out []cluster.Right) {
	for _, of := range []struct {
		group, resource, namespace string
		verbs                      []string
	}{
		{mcsv1beta1.GroupName, "serviceimports", "", []string{"list", "delete"}},
		{discoveryv1.GroupName, "endpointslices", "", []string{"list", "delete"}},
		{corev1.GroupName, "services", "", []string{"list", "delete"}},
		{aboutv1beta1.GroupVersion.Group, "clusterproperties", "", []string{"list", "delete"}},
		{hubv1alpha1.GroupVersion.Group, "serviceexportrecords", kube.SystemNamespace, []string{"list", "delete"}},
		{coordinationv1.GroupName, "leases", kube.SystemNamespace, []string{"list", "delete"}},
		{networkingv1.GroupName, "servicecidrs", "", []string{"list", "update", "delete"}},
		{networkingv1.GroupName, "ipaddresses", "", []string{"list", "delete"}},
		{mcsv1beta1.GroupName, "serviceexports", "", []string{"list"}},
		{mcsv1beta1.GroupName, "serviceexports/status", "", []string{"patch"}},
	} {
		for _, verb := range of.verbs {
			out = append(out, cluster.Right{Verb: verb, Group: of.group, Resource: of.resource, Namespace: of.namespace})
		}
	}
	return out
}

// inItsStead deletes what an agent that is gone for good left: what the agent itself would, once the policies that reserve that to it are gone.
// An API server may have let it become a member that had not heard yet that it has no rights any more.
func (l *leave) inItsStead(ctx context.Context) error {
	if err := l.Member.Remove(ctx, without(l.objects, "CustomResourceDefinition", "ClusterProperty", "Namespace")); err != nil {
		return err
	}
	agent := &membership.Gate{Local: sparse{l.Member.Client}}
	err := cluster.Until(ctx, l.Timeout, func(ctx context.Context) (bool, string, error) {
		err := agent.Clean(ctx)
		if err == nil {
			err = kube.Gone(l.Member.Delete(ctx, &aboutv1beta1.ClusterProperty{ObjectMeta: metav1.ObjectMeta{Name: clusterset.PropertySet}}))
		}
		return err == nil || meta.IsNoMatchError(err), "", err
	})
	if err != nil {
		return fmt.Errorf("%s: what its agent left cannot be deleted: %w", l.Member.Name, err)
	}
	return nil
}

// sparse is a cluster that may not have every kind: a join, or another leave, may have been interrupted.
type sparse struct{ client.Client }

// List is client.Client's.
func (s sparse) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	err := s.Client.List(ctx, list, opts...)
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) { // it never was, or has just gone
		return nil
	}
	return err
}

// clean deletes what join applied, and waits for the namespace, so that the cluster can join again at once.
func (l *leave) clean(ctx context.Context) error {
	if l.was == nil { // there was no agent to leave
		if err := l.inItsStead(ctx); err != nil {
			return err
		}
	}
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
	// A kind that goes while a namespace is being emptied makes the namespace controller begin anew. Meanwhile somebody may have made objects
	// of one, or taken it for his own.
	if err := l.plan(ctx); err != nil {
		return err
	}
	last := slices.DeleteFunc(slices.Clone(l.objects), func(o *unstructured.Unstructured) bool {
		return o.GetKind() != "CustomResourceDefinition" && o.GetKind() != "ClusterProperty"
	})
	if err := l.Member.Remove(ctx, last); err != nil {
		return err
	}
	for _, o := range last {
		if err := l.Member.Gone(ctx, o); err != nil {
			return err
		}
	}
	return nil
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

// print is --dry-run.
func (l *leave) print() error {
	var out strings.Builder
	when := ", once its agent has withdrawn its exports"
	if l.was == nil {
		when = ""
	}
	fmt.Fprintf(&out, "# On %s would be deleted%s:\n", l.Member.Name, when)
	for i := len(l.objects) - 1; i >= 0; i-- {
		fmt.Fprintln(&out, cluster.Title(l.objects[i]))
	}
	if l.was == nil {
		fmt.Fprintln(&out, "# and, of these kinds, what its agent has made:")
		for _, r := range cleaning() {
			if r.Verb == "delete" {
				fmt.Fprintln(&out, schema.GroupResource{Group: r.Group, Resource: r.Resource})
			}
		}
	}
	if len(l.claims) > 0 {
		unless := ""
		if l.Force {
			unless = ", unless it is in use"
		}
		fmt.Fprintf(&out, "# On %s would be deleted%s, and by clusterset-controller hub all else of that member:\n", l.Hub.Name, unless)
		for _, id := range l.claims {
			fmt.Fprintf(&out, "ClusterProfile %s/%s\n", l.HubNamespace, id)
		}
	}
	_, err := fmt.Fprint(l.DryRun, out.String())
	return err
}
