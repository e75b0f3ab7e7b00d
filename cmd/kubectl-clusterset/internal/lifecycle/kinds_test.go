package lifecycle

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/manifest"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// crd is a kind, and who brought it.
func crd(plural, group, kind, version string, managers ...string) *apiextensionsv1.CustomResourceDefinition {
	out := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: plural + "." + group}}
	out.Spec.Group, out.Spec.Names.Plural, out.Spec.Names.Kind = group, plural, kind
	out.Status.StoredVersions = []string{version}
	for _, m := range managers {
		out.ManagedFields = append(out.ManagedFields, metav1.ManagedFieldsEntry{Manager: m,
			Operation:  metav1.ManagedFieldsOperationApply,
			APIVersion: "apiextensions.k8s.io/v1", FieldsType: "FieldsV1",
			FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:group":{}}}`)})
	}
	return out
}

// TestLeavingDeletesNoKindThatOthersNeed: one that they applied before join upgraded it, and one whose object they
// create while ours are deleted.
func TestLeavingDeletesNoKindThatOthersNeed(t *testing.T) {
	ours := crd("serviceimports", "multicluster.x-k8s.io", "ServiceImport", "v1beta1", manifest.FieldManager)
	theirs := crd("clusterproperties", "about.k8s.io", "ClusterProperty", "v1beta1", "helm", manifest.FieldManager)
	used := crd("serviceexports", "multicluster.x-k8s.io", "ServiceExport", "v1beta1", manifest.FieldManager)
	system := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: kube.SystemNamespace}}
	export := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	member := inMemory(interceptor.Funcs{Delete: func(ctx context.Context, api client.WithWatch, o client.Object,
		opts ...client.DeleteOption) error {
		if o.GetName() == kube.SystemNamespace {
			if err := api.Create(ctx, export); err != nil {
				return err
			}
		}
		return api.Delete(ctx, o, opts...)
	}}, ours, theirs, used, system)
	o, said := options(nil)
	l := &leave{LeaveOptions: &LeaveOptions{Options: *o, Member: member}, stays: map[string]bool{}}
	if err := l.clean(t.Context()); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	for c, stays := range map[*apiextensionsv1.CustomResourceDefinition]string{
		ours: "", theirs: theirs.Name + " stays: others applied it", used: used.Name +
			" stays: it has objects, such as ServiceExport shop/web",
	} {
		err := member.Get(t.Context(), client.ObjectKeyFromObject(c), &apiextensionsv1.CustomResourceDefinition{})
		if (err == nil) != (stays != "") || client.IgnoreNotFound(err) != nil ||
			!strings.Contains(said.String(), stays) {
			t.Errorf("%s: %v, want it to say %q:\n%s", c.Name, err, stays, said)
		}
	}
	if err := member.Get(t.Context(), client.ObjectKeyFromObject(system), system); !apierrors.IsNotFound(err) {
		t.Errorf("the namespace: %v", err)
	}
	if n := strings.Count(said.String(), theirs.Name); n != 1 {
		t.Errorf("it says %d times that %s stays:\n%s", n, theirs.Name, said)
	}
}
