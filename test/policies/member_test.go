package policies

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// DESIGN §5: the VIP is not given away by a slip.
func TestDerivedServiceIsDeletedByTheAgentOnly(t *testing.T) {
	e := setUp(t)
	ctx, ns := t.Context(), namespace(t, e)
	svc := derivedService(ns, derived.Name(ns, "web"))
	must(t, e.agent.Create(ctx, svc))
	if !kube.Owned(svc) {
		t.Fatalf(
			"%s with labels %v is no derived Service to the agent: the policy and it go by different things",
			svc.Name,
			svc.Labels,
		)
	}
	says := fmt.Sprintf("Service %s holds the VIP of ServiceImport %s/web", svc.Name, ns)
	refused(t, e.admin.Delete(ctx, svc.DeepCopy()), says)
	refused(t, e.admin.DeleteAllOf(ctx, &corev1.Service{}, client.InNamespace(ns)), says)
	must(t, e.admin.Get(ctx, client.ObjectKeyFromObject(svc), svc))
	must(t, e.agent.Delete(ctx, svc))

	unnamed := derivedService(ns, derived.Name(ns, "api"))
	unnamed.Annotations = nil
	must(t, e.agent.Create(ctx, unnamed))
	refused(t, e.admin.Delete(ctx, unnamed.DeepCopy()), "holds the VIP of ServiceImport ?")
	must(t, e.agent.Delete(ctx, unnamed))
}

// I9: nor is it given away by two steps instead of one, nor its traffic turned elsewhere. What others have a use
// for on a Service stays theirs.
func TestI9DerivedServiceIsChangedByTheAgentOnly(t *testing.T) {
	e := setUp(t)
	ctx, ns := t.Context(), namespace(t, e)
	svc := derivedService(ns, derived.Name(ns, "web"))
	must(t, e.agent.Create(ctx, svc))
	patch := func(as client.Client, text string) error {
		return as.Patch(ctx, svc.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(text)))
	}
	for _, text := range []string{
		`{"metadata":{"labels":null}}`,
		`{"metadata":{"labels":{"app.kubernetes.io/managed-by":"me"}}}`,
		`{"metadata":{"annotations":null}}`,
		`{"metadata":{"annotations":{"clusterset-dns.io/import":"a/b"}}}`,
		`{"metadata":{"annotations":{"clusterset-dns.io/unused-since":"2000-01-01T00:00:00Z"}}}`,
		`{"spec":{"selector":{"app":"mine"}}}`,
		`{"spec":{"type":"ExternalName","externalName":"evil.example","clusterIP":null,"clusterIPs":null}}`,
		`{"spec":{"externalIPs":["10.9.9.9"]}}`,
		`{"spec":{"type":"NodePort"}}`,
		`{"spec":{"ports":[{"port":81}]}}`,
	} {
		refused(t, patch(e.admin, text), "clusterset-controller alone changes its spec")
	}
	unlabelled := derivedService(ns, derived.Name(ns, "mine"))
	unlabelled.Labels = nil
	must(t, e.admin.Create(ctx, unlabelled))
	refused(
		t,
		e.admin.Patch(
			ctx,
			unlabelled,
			client.RawPatch(
				types.MergePatchType,
				[]byte(`{"metadata":{"labels":{"app.kubernetes.io/managed-by":"`+kube.Manager+`"}}}`),
			),
		),
		"holds the VIP of ServiceImport",
	)
	must(t, e.admin.Delete(ctx, unlabelled))
	for _, text := range []string{
		`{"metadata":{"labels":{"team":"blue"},"annotations":{"example.org/note":"x"},` +
			`"finalizers":["example.org/stay"]}}`,
		`{"metadata":{"labels":{"team":null},"annotations":{"example.org/note":null},"finalizers":null}}`,
	} {
		must(t, patch(e.admin, text))
	}
	must(t, e.admin.Status().Patch(ctx, svc.DeepCopy(), client.RawPatch(
		types.MergePatchType,
		[]byte(
			`{"status":{"conditions":[{"type":"X","status":"True","reason":"R","message":"",`+
				`"lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`,
		),
	)))
	must(t, e.admin.Get(ctx, client.ObjectKeyFromObject(svc), svc))
	svc.Annotations["clusterset-dns.io/unused-since"], svc.Spec.Ports[0].Port = "2026-01-01T00:00:00Z", 82
	must(t, e.agent.Update(ctx, svc))
	must(t, e.agent.Delete(ctx, svc))
}

func TestOtherServicesAreDeletedByTheirUsers(t *testing.T) {
	e := setUp(t)
	ctx, ns := t.Context(), namespace(t, e)
	for name, labels := range map[string]map[string]string{
		"web":            nil,
		"derived-by-me":  {"app.kubernetes.io/managed-by": "me"},
		"managed-by-our": {"app.kubernetes.io/managed-by": kube.Manager},
	} {
		svc := derivedService(ns, name)
		svc.Labels = labels
		must(t, e.admin.Create(ctx, svc))
		svc.Spec.Selector = map[string]string{"app": "mine"}
		must(t, e.admin.Update(ctx, svc))
		must(t, e.admin.Delete(ctx, svc))
	}
}

// TestCopiesOfDerivedServicesAreDeletedByTheirUsers: what a clone of a namespace brought along holds nobody's VIP.
// One that says of no import
// may be anybody's.
func TestCopiesOfDerivedServicesAreDeletedByTheirUsers(t *testing.T) {
	e := setUp(t)
	ctx, ns, other := t.Context(), namespace(t, e), namespace(t, e)
	svc := derivedService(ns, derived.Name(other, "web"))
	svc.Annotations = map[string]string{derived.AnnotationImport: other + "/web"}
	must(t, e.admin.Create(ctx, svc))
	svc.Spec.Selector = map[string]string{"app": "mine"}
	must(t, e.admin.Update(ctx, svc))
	must(t, e.admin.Delete(ctx, svc))
	for _, annotations := range []map[string]string{nil, {derived.AnnotationImport: ns + "/web"}} {
		svc := derivedService(ns, derived.Name(ns, "web"))
		svc.Annotations = annotations
		must(t, e.admin.Create(ctx, svc))
		refused(t, e.admin.Delete(ctx, svc), "holds the VIP of ServiceImport")
		must(t, e.agent.Delete(ctx, svc))
	}
}

func TestDerivedServiceGoesWithItsNamespace(t *testing.T) {
	e := setUp(t)
	ctx, ns := t.Context(), namespace(t, e)
	must(t, e.agent.Create(ctx, derivedService(ns, derived.Name(ns, "web"))))
	must(t, e.admin.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}))
	must(t, until(ctx, func() error {
		var left corev1.Namespace
		err := e.admin.Get(ctx, client.ObjectKey{Name: ns}, &left)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, fmt.Errorf("namespace %s is still there: %+v", ns, left.Status.Conditions))
	}))
}

// The namespace controller's own identity suffices, whatever the API server knows of the namespace yet.
func TestNamespaceControllerDeletesDerivedServices(t *testing.T) {
	e := setUp(t)
	ctx, ns := t.Context(), namespace(t, e)
	svc := derivedService(ns, derived.Name(ns, "web"))
	must(t, e.agent.Create(ctx, svc))
	_, err := e.cp.Kubectl(
		ctx,
		"",
		"-n",
		ns,
		"delete",
		"service",
		svc.Name,
		"--as=system:serviceaccount:kube-system:namespace-controller",
	)
	must(t, err)
}

// access is verb resource[/subresource][.group][@namespace].
func (e *environment) may(ctx context.Context, user, access string) (bool, error) {
	rest, namespace, _ := strings.Cut(access, "@")
	verb, resource, _ := strings.Cut(rest, " ")
	resource, group, _ := strings.Cut(resource, ".")
	resource, sub, _ := strings.Cut(resource, "/")
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace:   namespace,
			Verb:        verb,
			Group:       group,
			Resource:    resource,
			Subresource: sub,
		},
	}}
	err := e.admin.Create(ctx, review)
	return review.Status.Allowed, err
}

// TestI7UsersExportAndReadImports, and write none. Aggregation takes the controller-manager a moment.
func TestI7UsersExportAndReadImports(t *testing.T) {
	e := setUp(t)
	ctx, ns := t.Context(), namespace(t, e)
	for _, role := range []string{"view", "edit", "admin"} {
		_, err := e.cp.Kubectl(
			ctx,
			"",
			"-n",
			ns,
			"create",
			"rolebinding",
			role,
			"--clusterrole="+role,
			"--user="+role,
		)
		must(t, err)
	}
	const exports, imports = "serviceexports.multicluster.x-k8s.io", "serviceimports.multicluster.x-k8s.io"
	read, write := []string{
		"get",
		"list",
		"watch",
	}, []string{
		"create",
		"update",
		"patch",
		"delete",
		"deletecollection",
	}
	for _, c := range []struct {
		role, resource string
		verbs          []string
		want           bool
	}{
		{"view", exports, read, true}, {"view", imports, read, true},
		{"edit", exports, read, true}, {"edit", imports, read, true}, {"edit", exports, write, true},
		{"admin", exports, read, true}, {"admin", imports, read, true}, {"admin", exports, write, true},
		{"view", exports, write, false},
		{"view", imports, write, false}, {"edit", imports, write, false}, {"admin", imports, write, false},
		{"admin", "serviceimports/status.multicluster.x-k8s.io", write, false},
		{"admin", "serviceexports/status.multicluster.x-k8s.io", write, false},
	} {
		for _, verb := range c.verbs {
			must(t, until(ctx, func() error {
				got, err := e.may(ctx, c.role, verb+" "+c.resource+"@"+ns)
				if err == nil && got != c.want {
					err = fmt.Errorf("%s may %s %s: %v, want %v", c.role, verb, c.resource, got, c.want)
				}
				return err
			}))
		}
	}
}

func TestAgentHasTheRightsThatItNeedsAndNoOthers(t *testing.T) {
	e := setUp(t)
	want := map[string][]string{ // in namespace default, and beside it in clusterset-system
		"default": {
			"clusterproperties.about.k8s.io [clusterset.k8s.io] [update delete]",
			"clusterproperties.about.k8s.io [get list watch create]",
			"clusterproperties.about.k8s.io [service-ranges.clusterset-dns.io] [update delete]",
			"clusterproperties.about.k8s.io [vip-blocks.clusterset-dns.io] [update delete]",
			"endpointslices.discovery.k8s.io [list watch create update delete]",
			"endpointslices.discovery.k8s.io/restricted [create]",
			"events.events.k8s.io [create patch]",
			"ipaddresses.networking.k8s.io [list watch]",
			"memberships.hub.clusterset-dns.io [get create]",
			"memberships.hub.clusterset-dns.io/status [patch]",
			"namespaces [kube-system] [get]",
			"namespaces [list watch create]",
			"servicecidrs.networking.k8s.io [list watch create update delete]",
			"serviceexports.multicluster.x-k8s.io [list watch]",
			"serviceexports.multicluster.x-k8s.io/status [patch]",
			"serviceimports.multicluster.x-k8s.io [list watch create update patch delete]",
			"serviceimports.multicluster.x-k8s.io/status [patch]",
			"services [list watch create update delete]",
		},
		system: {
			"leases.coordination.k8s.io [get list watch create update delete]",
			"secrets [hub-kubeconfig] [get update]",
			"serviceexportrecords.hub.clusterset-dns.io [get list watch create update delete]",
			"serviceexportrecords.hub.clusterset-dns.io/status [patch]",
		},
	}
	want[system] = append(want[system], want["default"]...)
	for ns, want := range want {
		got, err := e.cp.Rights(t.Context(), ns, "system:serviceaccount:"+system+":clusterset-controller")
		must(t, err)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("in %s it may\n%s\nwant\n%s", ns, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// The namespace enforces the Pod Security Standard "restricted".
func TestAgentsPodIsRestricted(t *testing.T) {
	e := setUp(t)
	ctx := t.Context()
	var d appsv1.Deployment
	must(t, e.admin.Get(ctx, client.ObjectKey{Namespace: system, Name: "clusterset-controller"}, &d))
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "like-the-agents", Labels: d.Spec.Template.Labels},
		Spec:       d.Spec.Template.Spec,
	}
	must(t, e.admin.Create(ctx, pod.DeepCopy(), client.DryRunAll))
	pod.Spec.Containers[0].SecurityContext.AllowPrivilegeEscalation = nil
	refused(t, e.admin.Create(ctx, pod, client.DryRunAll), `violates PodSecurity "restricted`)
}
