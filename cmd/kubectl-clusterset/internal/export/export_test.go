package export

import (
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

func TestAServiceIsExportedAndWithdrawn(t *testing.T) {
	web := metav1.ObjectMeta{Namespace: "shop", Name: "web"}
	alias := metav1.ObjectMeta{Namespace: "shop", Name: "alias"}
	c := &cluster.Cluster{Name: "this cluster", Client: fake.NewClientBuilder().WithScheme(cluster.Scheme()).
		WithObjects(
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}},
			&corev1.Service{ObjectMeta: web}, &corev1.Service{ObjectMeta: alias,
				Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName}}).Build()}
	if _, err := create(t.Context(), c, types.NamespacedName{Namespace: "nosuchns", Name: "web"},
		true); err == nil || !strings.Contains(err.Error(), "there is no namespace nosuchns\n  → ") {
		t.Errorf("in a namespace that does not exist: %v", err)
	}
	for _, step := range []struct {
		delete     bool
		name       string
		dryRun     cluster.DryRun
		says       string
		fails      string
		exportedBy int
	}{
		{name: "nothing", dryRun: cluster.DryRunNone, fails: "no Service shop/nothing"},
		{name: "alias", dryRun: cluster.DryRunNone, fails: "ExternalName"},
		{name: "web", dryRun: cluster.DryRunClient, says: "created"},
		{name: "web", dryRun: cluster.DryRunNone, says: "created", exportedBy: 1},
		{name: "web", dryRun: cluster.DryRunNone, says: "unchanged", exportedBy: 1},
		{name: "web", dryRun: cluster.DryRunClient, says: "unchanged", exportedBy: 1},
		{delete: true, name: "web", dryRun: cluster.DryRunClient, says: "deleted", exportedBy: 1},
		{delete: true, name: "web", dryRun: cluster.DryRunNone, says: "deleted"},
		{delete: true, name: "web", dryRun: cluster.DryRunNone, fails: "no ServiceExport shop/web"},
	} {
		lines, err := Run(t.Context(), c, &Options{Delete: step.delete, DryRun: step.dryRun,
			Names: []types.NamespacedName{{Namespace: "shop", Name: step.name}}})
		says := strings.Join(lines, " ")
		if !strings.Contains(says, step.says) || (err != nil) != (step.fails != "") ||
			err != nil && !strings.Contains(err.Error(), step.fails) {
			t.Errorf("%+v: %q, %v", step, says, err)
		}
		var all mcsv1beta1.ServiceExportList
		if err := c.List(t.Context(), &all); err != nil || len(all.Items) != step.exportedBy {
			t.Errorf("%+v: %d ServiceExports, %v", step, len(all.Items), err)
		}
	}
}

// TestTheAPIServerDecidesWhetherAnExportIsNew, not a read before: another program may create it in between, and the
// right to create includes none to read.
func TestTheAPIServerDecidesWhetherAnExportIsNew(t *testing.T) {
	web := types.NamespacedName{Namespace: "shop", Name: "web"}
	c := &cluster.Cluster{Name: "this cluster", Client: fake.NewClientBuilder().WithScheme(cluster.Scheme()).
		WithObjects(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: web.Name}}).
		WithInterceptorFuncs(interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, k client.ObjectKey,
			o client.Object, opts ...client.GetOption) error {
			if _, is := o.(*mcsv1beta1.ServiceExport); is {
				return apierrors.NewForbidden(schema.GroupResource{}, k.Name, nil)
			}
			return c.Get(ctx, k, o, opts...)
		}}).Build()}
	for _, want := range []string{"created", "unchanged"} {
		lines, err := Run(t.Context(), c, &Options{Names: []types.NamespacedName{web}, DryRun: cluster.DryRunNone})
		if err != nil || !slices.Equal(lines, []string{"serviceexport/web " + want}) {
			t.Errorf("%q, %v, want %s", lines, err, want)
		}
	}
}

// TestServicesAreSelected by their labels, or all that can be exported. To delete all is to delete all exports, also
// without a Service.
func TestServicesAreSelected(t *testing.T) {
	service := func(name string, labels map[string]string) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: labels}}
	}
	alias := service("alias", nil)
	alias.Spec.Type = corev1.ServiceTypeExternalName
	c := &cluster.Cluster{Name: "this cluster"}
	c.Client = fake.NewClientBuilder().WithScheme(cluster.Scheme()).WithObjects(
		&mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "gone"}},
		service("web", map[string]string{"app": "web"}), service("db", nil), alias,
		service("derived-x", map[string]string{derived.LabelManagedBy: kube.Manager})).Build()
	for _, step := range []struct {
		o    Options
		want string
	}{
		{Options{Selector: "app=nothing"},
			"no Service in namespace shop is selected\n  → kubectl -n shop get services --show-labels"},
		{Options{Selector: "app=web", Delete: true},
			"no ServiceExport in namespace shop is selected\n  → kubectl -n shop get serviceexports"},
		{Options{Selector: "app=web"}, "serviceexport/web created"},
		{Options{All: true}, "serviceexport/db created serviceexport/web unchanged"},
		{Options{Selector: "app=web", Delete: true}, "serviceexport/web deleted"},
		{Options{Selector: "app!=web", Delete: true}, "serviceexport/db deleted"},
		{Options{All: true, Delete: true}, "serviceexport/gone deleted"},
		{Options{All: true, Delete: true}, "no ServiceExport in namespace shop is selected"},
	} {
		step.o.Namespace, step.o.DryRun = "shop", cluster.DryRunNone
		lines, err := Run(t.Context(), c, &step.o)
		got := strings.Join(lines, " ")
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, step.want) {
			t.Errorf("%+v: %s", step.o, got)
		}
	}
}

// TestTheHubIsNoMember, and is not to become one because somebody named the wrong context.
func TestTheHubIsNoMember(t *testing.T) {
	hub := &cluster.Cluster{Name: "this cluster", Client: fake.NewClientBuilder().WithScheme(cluster.Scheme()).
		WithObjects(&hubv1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Namespace: "blue", Name: "blue"}}).Build()}
	_, err := Run(t.Context(), hub, &Options{Names: []types.NamespacedName{{Namespace: "shop", Name: "web"}}})
	const want = "this cluster is no member: it is the hub of ClusterSet blue\n  → name a member with --context"
	if err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
}
