package lifecycle

import (
	"context"
	"maps"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/imports"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
	"github.com/clusterset-dns/clusterset-dns/controllers/membership"
)

// TestLeavingLeavesAReleaseToHelm, with the namespace, where Helm keeps its record of it. What join added goes.
func TestLeavingLeavesAReleaseToHelm(t *testing.T) {
	system := metav1.ObjectMeta{Namespace: kube.SystemNamespace}
	agent := &appsv1.Deployment{ObjectMeta: system}
	agent.Name, agent.Annotations = "clusterset-controller", map[string]string{"meta.helm.sh/release-name": "member",
		"meta.helm.sh/release-namespace": kube.SystemNamespace}
	agent.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "agent"}}
	secret := &corev1.Secret{ObjectMeta: system}
	secret.Name = clusterset.SecretHub
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: kube.SystemNamespace}}
	member := inMemory(interceptor.Funcs{}, agent, secret, namespace,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system"}})
	o, said := options(nil)
	l := &leave{LeaveOptions: &LeaveOptions{Options: *o, Member: member}, stays: map[string]bool{}}
	for _, step := range []func(context.Context) error{l.plan, l.run} {
		if err := step(t.Context()); err != nil {
			t.Fatalf("%v\n%s", err, said)
		}
	}
	for o, stays := range map[client.Object]bool{agent: true, namespace: true, secret: false} {
		err := member.Get(t.Context(), client.ObjectKeyFromObject(o), o)
		if client.IgnoreNotFound(err) != nil || (err == nil) != stays {
			t.Errorf("%s must stay: %v; %v", cluster.Title(o), stays, err)
		}
	}
	if want := "\nnext: helm uninstall member -n clusterset-system\n"; !strings.HasSuffix(said.String(), want) {
		t.Errorf("it does not end in %q:\n%s", want, said)
	}
}

// TestLeavingAfterAnAgentThatIsGoneForGood: nobody else deletes what it made, which answers and takes VIPs still; a
// range of the user's is let go, and what is the user's stays. An API server forgets the policy that reserves derived
// Services to the agent a moment later.
func TestLeavingAfterAnAgentThatIsGoneForGood(t *testing.T) {
	ours := map[string]string{derived.LabelManagedBy: kube.Manager, discoveryv1.LabelManagedBy: kube.Manager,
		networkingv1.LabelManagedBy: kube.Manager}
	in := func(ns, name string, labels map[string]string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: ns, Name: name, Labels: labels}
	}
	service := &corev1.Service{ObjectMeta: in("shop", derived.Name("shop", "web"), ours)}
	service.Annotations = map[string]string{derived.AnnotationImport: "shop/web"}
	made := []client.Object{
		service,
		&mcsv1beta1.ServiceImport{ObjectMeta: in("shop", "web", ours)},
		&discoveryv1.EndpointSlice{ObjectMeta: in("shop", "derived-x", ours)},
		&appsv1.Deployment{ObjectMeta: in(kube.SystemNamespace, "clusterset-controller", nil)},
		&corev1.Namespace{ObjectMeta: in("", kube.SystemNamespace, nil)},
	}
	theirs := &networkingv1.ServiceCIDR{ObjectMeta: in("", "users", nil)}
	theirs.Finalizers = []string{clusterset.FinalizerVIPs}
	refusals := 0
	member := inMemory(interceptor.Funcs{
		Delete: func(ctx context.Context, api client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if _, is := o.(*corev1.Service); is && refusals < 2 {
				refusals++
				return apierrors.NewForbidden(schema.GroupResource{Resource: "services"}, o.GetName(), nil)
			}
			return api.Delete(ctx, o, opts...)
		},
		List: func(ctx context.Context, api client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			switch list.(type) {
			case *hubv1alpha1.ServiceExportRecordList:
				return &meta.NoKindMatchError{}
			case *aboutv1beta1.ClusterPropertyList:
				return apierrors.NewNotFound(schema.GroupResource{Resource: "clusterproperties"}, "")
			}
			return api.List(ctx, list, opts...)
		},
	}, append(made, theirs, &corev1.Service{ObjectMeta: in("shop", "web", nil)})...)
	o, said := options(nil)
	l := &leave{LeaveOptions: &LeaveOptions{Options: *o, Member: member}, stays: map[string]bool{}}
	if err := l.plan(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := l.clean(t.Context()); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	for _, o := range made {
		if err := member.Get(t.Context(), client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
			t.Errorf("%T %s is left: %v", o, o.GetName(), err)
		}
	}
	for _, o := range []client.Object{theirs, &corev1.Service{ObjectMeta: in("shop", "web", nil)}} {
		if err := member.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil || len(o.GetFinalizers()) > 0 {
			t.Errorf("the user's %T %s: %v, %v", o, o.GetName(), err, o.GetFinalizers())
		}
	}
}

// TestWhoCleansInTheAgentsSteadMayDoAllThatTakes: the rights that are checked before anything is written are those
// that cleaning uses.
func TestWhoCleansInTheAgentsSteadMayDoAllThatTakes(t *testing.T) {
	used := map[cluster.Right]bool{}
	use := func(api client.Client, verb string, o runtime.Object, sub, namespace string) {
		gvk, err := api.GroupVersionKindFor(o)
		if err != nil {
			t.Fatal(err)
		}
		gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
		plural, _ := meta.UnsafeGuessKindToResource(gvk)
		used[cluster.Right{Verb: verb, Group: gvk.Group, Resource: plural.Resource + sub, Namespace: namespace}] = true
	}
	ours := map[string]string{derived.LabelManagedBy: kube.Manager, discoveryv1.LabelManagedBy: kube.Manager,
		networkingv1.LabelManagedBy: kube.Manager}
	in := func(ns, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: ns, Name: name, Labels: ours}
	}
	service := &corev1.Service{ObjectMeta: in("shop", derived.Name("shop", "web"))}
	service.Annotations = map[string]string{derived.AnnotationImport: "shop/web"}
	cidr := &networkingv1.ServiceCIDR{ObjectMeta: in("", "vips")}
	cidr.Finalizers = []string{clusterset.FinalizerVIPs, "another"}
	filled := &mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "declared"}}
	filled.Annotations = map[string]string{imports.AnnotationFilled: ""}
	filled.Status.Clusters = []mcsv1beta1.ClusterStatus{{Cluster: "west"}}
	export := &mcsv1beta1.ServiceExport{ObjectMeta: in("shop", "web")}
	export.Status.Conditions = []metav1.Condition{{Type: "Valid", Status: metav1.ConditionTrue}}
	system := kube.SystemNamespace
	member := inMemory(interceptor.Funcs{
		Get: func(ctx context.Context, api client.WithWatch, name client.ObjectKey, o client.Object,
			opts ...client.GetOption) error {
			use(api, "get", o, "", name.Namespace)
			return api.Get(ctx, name, o, opts...)
		},
		List: func(ctx context.Context, api client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			var o client.ListOptions
			use(api, "list", list, "", o.ApplyOptions(opts).Namespace)
			return api.List(ctx, list, opts...)
		},
		Delete: func(ctx context.Context, api client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			namespace := ""
			if o.GetNamespace() == system {
				namespace = system
			}
			use(api, "delete", o, "", namespace)
			return api.Delete(ctx, o, opts...)
		},
		Update: func(ctx context.Context, api client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			use(api, "update", o, "", "")
			return api.Update(ctx, o, opts...)
		},
		Patch: func(
			_ context.Context, api client.WithWatch, o client.Object, _ client.Patch, _ ...client.PatchOption,
		) error {
			use(api, "patch", o, "", "")
			return nil
		},
		SubResourcePatch: func(
			_ context.Context, api client.Client, sub string, o client.Object, _ client.Patch,
			_ ...client.SubResourcePatchOption,
		) error {
			use(api, "patch", o, "/"+sub, "")
			return nil
		},
	}, service, cidr, export, filled,
		&mcsv1beta1.ServiceImport{ObjectMeta: in("shop", "web")}, &discoveryv1.EndpointSlice{ObjectMeta: in("shop",
			"derived-x")},
		&aboutv1beta1.ClusterProperty{ObjectMeta: in("", "ours")},
		&hubv1alpha1.ServiceExportRecord{ObjectMeta: in(system, "web.shop.west")},
		&coordinationv1.Lease{ObjectMeta: in(system, clusterset.LeaseRenewed)})
	if err := (&membership.Gate{Local: member.Client}).Clean(t.Context()); err != nil {
		t.Fatal(err)
	}
	checked := map[cluster.Right]bool{}
	l := &leave{state: state{setProperty: &aboutv1beta1.ClusterProperty{}}}
	for _, r := range l.rights() {
		checked[r] = false // of an agent that is there, nobody does the work
	}
	l.setProperty = nil
	for _, r := range l.rights() {
		if _, always := checked[r]; !always {
			checked[r] = true
		}
	}
	maps.DeleteFunc(checked, func(_ cluster.Right, cleans bool) bool { return !cleans })
	if !maps.Equal(used, checked) {
		t.Errorf("cleaning uses\n%v\nand the rights that are checked are\n%v", used, checked)
	}
}

// TestADryRunOfLeaveTellsAllThatGoes: the claim on the hub as well, and what nobody but this program deletes where
// there is no agent.
func TestADryRunOfLeaveTellsAllThatGoes(t *testing.T) {
	const claim = "# On the hub, this would be deleted, and clusterset-controller hub would delete everything else " +
		"of the member:\nClusterProfile blue/east\n"
	for what, c := range map[string]struct {
		was          *aboutv1beta1.ClusterProperty
		force        bool
		says, silent string
	}{
		"a member": {&aboutv1beta1.ClusterProperty{}, false, "when its agent has withdrawn its exports:\n" +
			claim, "serviceimports"},
		"by force": {&aboutv1beta1.ClusterProperty{}, true,
			"# On the hub, this would be deleted unless it is in use, and", "serviceimports"},
		"the agent is gone": {nil, false,
			"\nserviceimports.multicluster.x-k8s.io\nendpointslices.discovery.k8s.io\nservices\n",
			"its agent has withdrawn"},
	} {
		var out strings.Builder
		o, _ := options(inMemory(interceptor.Funcs{}))
		o.DryRun = &out
		l := &leave{LeaveOptions: &LeaveOptions{Options: *o, Member: &cluster.Cluster{Name: "this cluster"},
			Force: c.force}, state: state{setProperty: c.was}, claims: []string{"east"}}
		if err := l.print(); err != nil || !strings.Contains(out.String(), c.says) ||
			strings.Contains(out.String(), c.silent) || !strings.HasSuffix(out.String(), "ClusterProfile blue/east\n") {
			t.Errorf("%s: %v\n%s", what, err, out.String())
		}
	}
}
