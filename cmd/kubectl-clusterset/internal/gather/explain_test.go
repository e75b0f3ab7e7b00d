package gather

import (
	"context"
	"slices"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/explain"
	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// TestAUserIsToldAsMuchAsHeMayRead: serviceexports and serviceimports of his namespace alone
// (deploy/member/users.yaml).
func TestAUserIsToldAsMuchAsHeMayRead(t *testing.T) {
	no := apierrors.NewForbidden(schema.GroupResource{Resource: "any"}, "", nil)
	imp := &mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Spec: mcsv1beta1.ServiceImportSpec{Type: mcsv1beta1.ClusterSetIP, IPs: []string{"10.96.0.7"}}}
	funcs := interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			opts ...client.GetOption) error {
			switch o.(type) {
			case *mcsv1beta1.ServiceImport, *mcsv1beta1.ServiceExport:
				return c.Get(ctx, key, o, opts...)
			}
			return no
		},
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return no },
	}
	c := &cluster.Cluster{
		Name:   "this cluster",
		Config: &rest.Config{Host: refusing(t, true)},
		Client: fake.NewClientBuilder().
			WithScheme(cluster.Scheme()).
			WithObjects(imp).
			WithInterceptorFuncs(funcs).
			Build(),
	}
	for name, outcome := range map[string]explain.Outcome{"web": explain.Success, "api": explain.NameError} {
		f, err := Explain(t.Context(), c, types.NamespacedName{Namespace: "shop", Name: name})
		if err != nil {
			t.Fatal(err)
		}
		r := explain.Explain(f)
		if r.Outcome != outcome || !f.NoAdmin || len(r.Findings) > 0 || !slices.Contains(r.NotRead, explain.Records) ||
			!slices.Contains(r.NotRead, explain.Membership) {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// TestExplainReadsHowFarTheMemberIsOne: whether it leaves, and when its agent last saw the hub.
func TestExplainReadsHowFarTheMemberIsOne(t *testing.T) {
	set := &aboutv1beta1.ClusterProperty{ObjectMeta: metav1.ObjectMeta{Name: clusterset.PropertySet,
		Annotations: map[string]string{clusterset.AnnotationLeaving: "true"}}}
	kept := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: kube.SystemNamespace,
		Name: clusterset.LeaseRenewed}}
	f, err := Explain(t.Context(), inMemory("this cluster", refusing(t, true), set, kept),
		types.NamespacedName{Namespace: "shop", Name: "web"})
	if err != nil || !f.Leaving || f.Now.IsZero() || len(f.Leases) != 1 {
		t.Errorf("%+v, %v", f, err)
	}
}

// TestNoNameIsExplainedInAHubThatIsNoMember: there is none, and it need not join.
func TestNoNameIsExplainedInAHubThatIsNoMember(t *testing.T) {
	set := &hubv1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Namespace: "blue", Name: "blue"}}
	_, err := Explain(t.Context(), inMemory("this cluster", refusing(t, true), set),
		types.NamespacedName{Namespace: "shop", Name: "web"})
	const want = "this cluster is no member: it is the hub of ClusterSet blue\n  → name a member with --context"
	if err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
}
