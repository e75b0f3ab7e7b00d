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
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
	"github.com/clusterset-dns/clusterset-dns/controllers/membership"
)

// plan fills objects with what join applied and still exists, except what others need, and what Helm installed.
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
	known := &unstructured.Unstructured{} // first: deleted last, when no agent may write it again
	known.SetGroupVersionKind(hubv1alpha1.GroupVersion.WithKind("Membership"))
	known.SetName(hubv1alpha1.MembershipName)
	for _, o := range append([]*unstructured.Unstructured{known}, append(objects, secret)...) {
		existing := &unstructured.Unstructured{}
		existing.SetGroupVersionKind(o.GroupVersionKind())
		err := l.Member.Get(ctx, client.ObjectKeyFromObject(o), existing)
		if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
			continue
		}
		if err != nil {
			return l.Member.Failed(err, "reading %s", cluster.Title(o))
		}
		if a := existing.GetAnnotations(); a["meta.helm.sh/release-namespace"] == kube.SystemNamespace {
			l.helm = a["meta.helm.sh/release-name"]
			continue
		}
		why, err := l.keep(ctx, existing)
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
	if l.helm != "" { // Helm keeps its record of the release in the namespace
		l.objects = without(l.objects, "Namespace")
	}
	if l.id != nil {
		id := &unstructured.Unstructured{}
		id.SetGroupVersionKind(aboutv1beta1.GroupVersion.WithKind("ClusterProperty"))
		if err := l.Member.Get(ctx, client.ObjectKeyFromObject(l.id), id); err != nil {
			return l.Member.Failed(err, "reading ClusterProperty %s", id.GetName())
		}
		if created(id) {
			l.objects = append(l.objects, id)
		}
	}
	return nil
}

// created reports whether join or the agent created the cluster ID.
func created(id *unstructured.Unstructured) bool {
	return manifest.Ours(id) || slices.ContainsFunc(id.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool {
		return f.Manager == "clusterset-controller"
	})
}

// keep returns why an object stays, or "".
func (l *leave) keep(ctx context.Context, o *unstructured.Unstructured) (string, error) {
	kind := o.GetKind()
	if kind != "CustomResourceDefinition" && kind != "Namespace" {
		return "", nil
	}
	isHub := &apiextensionsv1.CustomResourceDefinition{}
	err := l.Member.Get(ctx, client.ObjectKey{Name: "clustersets.hub.clusterset-dns.io"}, isHub)
	if client.IgnoreNotFound(err) != nil {
		return "", l.Member.Failed(err, "reading CustomResourceDefinition %s", "clustersets.hub.clusterset-dns.io")
	}
	switch {
	case err == nil:
		return "this cluster is also a hub", nil
	case kind == "Namespace":
		return "", nil
	case !manifest.OnlyOurs(o):
		return "others applied it", nil
	}
	return l.neededBy(ctx, o)
}

// neededBy returns what needs a kind: objects that are not ours, or CoreDNS.
func (l *leave) neededBy(ctx context.Context, crd *unstructured.Unstructured) (string, error) {
	group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "kind")
	if group == "multicluster.x-k8s.io" {
		role := &rbacv1.ClusterRole{}
		err := l.Member.Get(ctx, client.ObjectKey{Name: "clusterset-dns:coredns"}, role)
		if err == nil {
			return "CoreDNS reads it", nil
		}
		if client.IgnoreNotFound(err) != nil {
			return "", l.Member.Failed(err, "reading ClusterRole clusterset-dns:coredns")
		}
	}
	if kind == "Membership" { // there is one, the agent's
		return "", nil
	}
	if !l.left && (kind == "ServiceImport" || kind == "ServiceExportRecord") { // the agent deletes its own
		return "", nil
	}
	versions, _, _ := unstructured.NestedSlice(crd.Object, "status", "storedVersions")
	if len(versions) == 0 {
		return "", nil
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: fmt.Sprint(versions[len(versions)-1]),
		Kind: kind + "List"})
	if err := l.Member.List(ctx, list); err != nil {
		return "", l.Member.Failed(err, "listing %s", kind)
	}
	for i := range list.Items {
		if !l.left && kube.Owned(&list.Items[i]) { // the agent deletes its own
			continue
		}
		if n := list.Items[i].GetName(); kind != "ClusterProperty" || n != clusterset.PropertySet &&
			(n != clusterset.PropertyID || !created(&list.Items[i])) {
			return fmt.Sprintf("it has objects, such as %s", cluster.Title(&list.Items[i])), nil
		}
	}
	return "", nil
}

// cleaning returns the rights that membership.Gate.Clean uses. Clean assumes that an agent without rights to ranges
// has created none, which does not hold for the user of this command.
func cleaning() (out []cluster.Right) {
	for _, of := range []struct {
		group, resource, namespace string
		verbs                      []string
	}{
		{mcsv1beta1.GroupName, "serviceimports", "", []string{"list", "patch", "delete"}},
		{mcsv1beta1.GroupName, "serviceimports/status", "", []string{"patch"}},
		{discoveryv1.GroupName, "endpointslices", "", []string{"list", "delete"}},
		{corev1.GroupName, "services", "", []string{"list", "delete"}},
		{aboutv1beta1.GroupVersion.Group, "clusterproperties", "", []string{"list", "delete"}},
		{hubv1alpha1.GroupVersion.Group, "serviceexportrecords", kube.SystemNamespace, []string{"list", "delete"}},
		{coordinationv1.GroupName, "leases", kube.SystemNamespace, []string{"get", "list", "delete"}},
		{networkingv1.GroupName, "servicecidrs", "", []string{"list", "update", "delete"}},
		{mcsv1beta1.GroupName, "serviceexports", "", []string{"list"}},
		{mcsv1beta1.GroupName, "serviceexports/status", "", []string{"patch"}},
	} {
		for _, verb := range of.verbs {
			out = append(out, cluster.Right{Verb: verb, Group: of.group, Resource: of.resource,
				Namespace: of.namespace})
		}
	}
	return out
}

// cleanForAgent deletes what a lost agent has created, once the policies that reserve it to the agent are gone.
func (l *leave) cleanForAgent(ctx context.Context) error {
	if err := l.Member.Remove(ctx, without(l.objects, "CustomResourceDefinition", "ClusterProperty",
		"Namespace")); err != nil {
		return err
	}
	agent := &membership.Gate{Local: sparse{l.Member.Client}}
	err := cluster.Until(ctx, l.Timeout, func(ctx context.Context) (bool, string, error) {
		err := agent.Clean(ctx)
		return err == nil || meta.IsNoMatchError(err), "", err
	})
	return l.Member.Failed(err, "deleting what the agent has created")
}

// sparse is a cluster that may lack kinds, for example after an interrupted join.
type sparse struct{ client.Client }

// List is client.Client's.
func (s sparse) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	err := s.Client.List(ctx, list, opts...)
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// clean deletes what join applied, and waits for the namespace, so that the cluster can join again.
func (l *leave) clean(ctx context.Context) error {
	if l.setProperty == nil { // no agent has left
		if err := l.cleanForAgent(ctx); err != nil {
			return err
		}
	}
	l.left = true
	if err := l.plan(ctx); err != nil {
		return err
	}
	l.Say("%s: deleting what join applied", l.Member.Name)
	if err := l.Member.Remove(ctx, without(l.objects, "CustomResourceDefinition", "ClusterProperty")); err != nil {
		return err
	}
	if firstOf(l.objects, "Namespace") != nil {
		if err := l.Member.NamespaceGone(ctx, kube.SystemNamespace, l.Timeout); err != nil {
			return err
		}
	}
	// The namespace controller starts over if a kind disappears meanwhile, so kinds go last. Others may have created
	// objects of them.
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

const onHub = "# On %s, this would be deleted%s, and clusterset-controller hub would delete everything else of the " +
	"member:\n"

// print is --dry-run.
func (l *leave) print() error {
	var out strings.Builder
	when := " when its agent has withdrawn its exports"
	if l.setProperty == nil {
		when = ""
	}
	fmt.Fprintf(&out, "# On %s, this would be deleted%s:\n", l.Member.Name, when)
	for i := len(l.objects) - 1; i >= 0; i-- {
		fmt.Fprintln(&out, cluster.Title(l.objects[i]))
	}
	if l.helm != "" {
		fmt.Fprintf(&out, "# Helm's release %s stays: helm uninstall %[1]s -n %s\n", l.helm, kube.SystemNamespace)
	}
	if l.setProperty == nil {
		fmt.Fprintln(&out, "# and what its agent has created of these kinds:")
		for _, r := range cleaning() {
			if r.Verb == "delete" {
				fmt.Fprintln(&out, schema.GroupResource{Group: r.Group, Resource: r.Resource})
			}
		}
	}
	if len(l.claims) > 0 {
		unless := ""
		if l.Force {
			unless = " unless it is in use"
		}
		fmt.Fprintf(&out, onHub, l.Hub.Name, unless)
		for _, id := range l.claims {
			fmt.Fprintf(&out, "ClusterProfile %s/%s\n", l.HubNamespace, id)
		}
	}
	_, err := fmt.Fprint(l.DryRun, out.String())
	return err
}
