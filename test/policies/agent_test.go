package policies

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/endpoints"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/external"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/imports"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// users are objects in a namespace that the agent did not make.
type users struct {
	service *corev1.Service
	slice   *discoveryv1.EndpointSlice
	imp     *mcsv1beta1.ServiceImport
	cidr    *networkingv1.ServiceCIDR
}

func userService(ns, name string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}
}

func sliceFor(ns, name, service, manager string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: ns, Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: service},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.66.0.1"}}},
	}
	if manager != "" {
		s.Labels[discoveryv1.LabelManagedBy] = manager
	}
	return s
}

func serviceImport(ns, name, manager string) *mcsv1beta1.ServiceImport {
	imp := &mcsv1beta1.ServiceImport{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   ns,
			Name:        name,
			Annotations: map[string]string{imports.AnnotationDerived: derived.Name(ns, name)},
		},
		Spec: mcsv1beta1.ServiceImportSpec{Type: mcsv1beta1.Headless, Ports: []mcsv1beta1.ServicePort{}},
	}
	if manager != "" {
		imp.Labels = map[string]string{derived.LabelManagedBy: manager}
	}
	return imp
}

func serviceCIDR(name, cidr string) *networkingv1.ServiceCIDR {
	return &networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{cidr}},
	}
}

// outside returns a slice for clients outside the clusters, with one label changed; an empty value deletes it.
func outside(ns, label, value string) *discoveryv1.EndpointSlice {
	slice := sliceFor(ns, external.SliceName("web", "west", discoveryv1.AddressTypeIPv4), "", kube.Manager)
	delete(slice.Labels, discoveryv1.LabelServiceName)
	slice.Labels[external.Label] = "web"
	if slice.Labels[label] = value; value == "" {
		delete(slice.Labels, label)
	}
	return slice
}

func newUsers(t *testing.T, e *environment, ns string) users {
	t.Helper()
	u := users{
		userService(ns, "shop"), sliceFor(ns, "shop-abcde", "shop", ""), serviceImport(ns, "theirs", "cilium"),
		serviceCIDR(ns, "10.222.0.0/28"),
	}
	u.cidr.Finalizers = []string{"example.org/keep"}
	for _, o := range []client.Object{u.service, u.slice, u.imp} {
		must(t, e.admin.Create(t.Context(), o))
	}
	if !lab.ServiceCIDRs() {
		return u
	}
	must(t, e.admin.Create(t.Context(), u.cidr))
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		must(t, e.admin.Delete(ctx, u.cidr))
		must(t, e.admin.Patch(ctx, u.cidr, client.RawPatch(
			types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
	})
	return u
}

// TestTheAgentChangesWhatItMadeOnly: these are writes with the agent's own token that its RBAC allows.
func TestTheAgentChangesWhatItMadeOnly(t *testing.T) {
	e := setUp(t)
	ctx, ns := t.Context(), namespace(t, e)
	u := newUsers(t, e, ns)
	own, ownSlice := derivedService(ns, derived.Name(ns, "web")), derived.Name(ns, "web")
	must(t, e.agent.Create(ctx, own))
	t.Cleanup(func() { must(t, e.agent.Delete(context.WithoutCancel(ctx), own)) })
	const (
		notMade = "clusterset-controller did not make "
		only    = "only with the label "
	)
	patched := func(o client.Object, change func(client.Object)) func() error {
		return func() error {
			changed := o.DeepCopyObject().(client.Object)
			must(t, e.admin.Get(ctx, client.ObjectKeyFromObject(o), changed)) // others change ServiceCIDRs
			change(changed)
			return e.agent.Update(ctx, changed)
		}
	}
	label := func(o client.Object) {
		labels := map[string]string{}
		for k, v := range o.GetLabels() {
			labels[k] = v
		}
		labels[derived.LabelManagedBy], labels[discoveryv1.LabelManagedBy] = kube.Manager, kube.Manager
		o.SetLabels(labels)
	}
	create := func(o client.Object) func() error { return func() error { return e.agent.Create(ctx, o) } }
	remove := func(o client.Object) func() error { return func() error { return e.agent.Delete(ctx, o) } }
	named := derivedService(ns, "kube-dns")
	exposed := derivedService(ns, derived.Name(ns, "external"))
	exposed.Spec.ExternalIPs = []string{"10.9.9.9"}
	balanced := derivedService(ns, derived.Name(ns, "balanced"))
	balanced.Spec.Type = corev1.ServiceTypeLoadBalancer
	sliceName := endpoints.SliceName(ownSlice, "1.west", discoveryv1.AddressTypeIPv4)
	_, gatewayName := endpoints.ProjectionNames(sliceName)
	lost := sliceFor(ns, endpoints.SliceName(ownSlice, "2.west", discoveryv1.AddressTypeIPv4), ownSlice, "")
	stray := sliceFor(ns, "stray", ownSlice, "endpointslice-controller.k8s.io")
	kept := serviceImport(ns, "kept", "cilium")
	kept.Annotations = map[string]string{kube.AnnotationAdopt: "false"}
	for _, o := range []client.Object{lost, stray, kept} {
		must(t, e.admin.Create(ctx, o))
	}
	type attempt struct {
		name string
		try  func() error
		says string
	}
	attempts := []attempt{
		{"take a user's Service", patched(u.service, label), notMade + "services shop"},
		{"change a user's Service", patched(u.service, func(o client.Object) {
			o.(*corev1.Service).Spec.Selector = map[string]string{"app": "mine"}
		}), notMade + "services shop"},
		{"delete a user's Service", remove(u.service), notMade + "services shop"},
		{"create a Service without its label", create(userService(ns, derived.Name(ns, "x"))), only},
		{"create another Service", create(named), "writes derived Services only, not services kube-dns"},
		{"create a derived Service with an external IP", create(exposed), "without externalIPs"},
		{"create a derived Service with a load balancer", create(balanced), "of type ClusterIP only"},
		{"free a derived Service of its label", patched(own, func(o client.Object) { o.SetLabels(nil) }), only},
		{"change a user's slice", patched(u.slice, label), notMade + "endpointslices shop-abcde"},
		{"delete a user's slice", remove(u.slice), notMade + "endpointslices shop-abcde"},
		{"take a slice that has the name of an imported one", patched(lost, label),
			notMade + "endpointslices " + lost.Name},
		{"delete a slice that Kubernetes made of a derived Service", remove(stray), notMade + "endpointslices stray"},
		{"take an import that is not given", patched(kept, label), notMade + "serviceimports kept"},
		{"create a slice without its label", create(sliceFor(ns, "any", ownSlice, "")), only},
		{"give endpoints to a user's Service", create(sliceFor(ns, sliceName, "shop", kube.Manager)),
			"gives endpoints to derived Services only"},
		{"give a gateway slice to a user's Service", create(sliceFor(ns, gatewayName, "shop", kube.Manager)),
			"gives endpoints to derived Services only"},
		{"give a load balancer to a user's Service", create(outside(ns, discoveryv1.LabelServiceName, "shop")),
			"gives endpoints to derived Services only"},
		{"give a load balancer to the internal zone", create(outside(ns, mcsv1beta1.LabelServiceName, "web")),
			"gives endpoints to derived Services only"},
		{"create a slice of nothing", create(outside(ns, external.Label, "")),
			"gives endpoints to derived Services only"},
		{"take another program's import", patched(u.imp, label), notMade + "serviceimports theirs"},
		{"delete another program's import", remove(u.imp), notMade + "serviceimports theirs"},
		{"create an import without its label", create(serviceImport(ns, "new", "")), only},
		{"change the status of another program's import", func() error {
			return e.agent.Status().Patch(ctx, u.imp.DeepCopy(), client.RawPatch(types.MergePatchType,
				[]byte(`{"status":{"clusters":[{"cluster":"west"}]}}`)))
		}, notMade + "serviceimports theirs"},
	}
	if lab.ServiceCIDRs() {
		attempts = append(attempts, []attempt{
			{"create a ServiceCIDR without its label", create(serviceCIDR("new", "10.223.0.0/28")), only},
			{"delete an admin's ServiceCIDR", remove(u.cidr), notMade + "servicecidrs"},
			{"label an admin's ServiceCIDR", patched(u.cidr, label), notMade + "servicecidrs"},
			{"drop a foreign finalizer of an admin's ServiceCIDR", patched(u.cidr, func(o client.Object) {
				o.SetFinalizers(o.GetFinalizers()[1:])
			}), notMade + "servicecidrs"},
			{"occupy an address", create(&networkingv1.IPAddress{
				ObjectMeta: metav1.ObjectMeta{Name: "10.96.0.77"}, Spec: networkingv1.IPAddressSpec{
					ParentRef: &networkingv1.ParentReference{Resource: "services", Namespace: ns, Name: "shop"},
				},
			}), "cannot create resource"},
		}...)
	}
	for _, c := range attempts {
		t.Run(c.name, func(t *testing.T) { refused(t, c.try(), c.says) })
	}
}

// TestI11TheAgentFillsWhatOthersDeclare, and writes nothing else there.
func TestI11TheAgentFillsWhatOthersDeclare(t *testing.T) {
	e := setUp(t)
	ctx, ns := t.Context(), namespace(t, e)
	declared := serviceImport(ns, "declared", "redpanda-operator")
	declared.Spec.Type = mcsv1beta1.ClusterSetIP
	must(t, e.admin.Create(ctx, declared))
	ips := func(imp *mcsv1beta1.ServiceImport, list ...string) {
		imp.Spec.IPs, imp.Annotations[imports.AnnotationFilled] = list, strings.Join(list, ",")
	}
	write := func(as client.Client, change func(*mcsv1beta1.ServiceImport)) error {
		imp := &mcsv1beta1.ServiceImport{}
		must(t, as.Get(ctx, client.ObjectKeyFromObject(declared), imp))
		was := imp.DeepCopy()
		change(imp)
		return e.agent.Patch(ctx, imp, kube.Changes(was))
	}
	status := func() error {
		return e.agent.Status().Patch(ctx, declared.DeepCopy(), client.RawPatch(types.MergePatchType,
			[]byte(`{"status":{"clusters":[{"cluster":"west"}]}}`)))
	}
	const says = "clusterset-controller did not make serviceimports declared"
	refused(t, status(), says)
	for round := range 2 { // without IPs, and with those of the agent
		for name, more := range map[string]func(*mcsv1beta1.ServiceImport){
			"a label":      func(i *mcsv1beta1.ServiceImport) { i.Labels["x"] = "y" },
			"an owner":     func(i *mcsv1beta1.ServiceImport) { i.OwnerReferences = ownedBy(i) },
			"a finalizer":  func(i *mcsv1beta1.ServiceImport) { i.Finalizers = []string{"example.org/keep"} },
			"another note": func(i *mcsv1beta1.ServiceImport) { i.Annotations["x"] = "y" },
			"a note less":  func(i *mcsv1beta1.ServiceImport) { delete(i.Annotations, imports.AnnotationDerived) },
			"the ports":    func(i *mcsv1beta1.ServiceImport) { i.Spec.Ports = []mcsv1beta1.ServicePort{{Port: 81}} },
			"a field more": func(i *mcsv1beta1.ServiceImport) { i.Spec.SessionAffinity = "ClientIP" },
		} {
			t.Run(fmt.Sprint(name, round), func(t *testing.T) {
				refused(t, write(e.admin, func(i *mcsv1beta1.ServiceImport) { ips(i, "10.96.0.7"); more(i) }), says)
			})
		}
		must(t, write(e.admin, func(i *mcsv1beta1.ServiceImport) { ips(i, fmt.Sprintf("10.96.0.%d", round)) }))
		must(t, status())
	}
	must(t, write(e.admin, imports.Clear))
	unmark := func(i *mcsv1beta1.ServiceImport) { delete(i.Annotations, imports.AnnotationFilled) }
	must(t, write(e.admin, unmark))
	must(t, e.admin.Get(ctx, client.ObjectKeyFromObject(declared), declared))
	declared.Spec.Type, declared.Spec.IPs = mcsv1beta1.Headless, []string{"10.96.0.7"} // it was the agent's before
	must(t, e.admin.Update(ctx, declared))
	for range 2 {
		must(t, write(e.admin, func(i *mcsv1beta1.ServiceImport) { imports.Fill(i, []string{"10.96.0.7"}) }))
	}
	must(t, write(e.admin, unmark))
	must(t, e.admin.Get(ctx, client.ObjectKeyFromObject(declared), declared))
	if len(declared.Spec.IPs) > 0 {
		t.Errorf("a Headless import has IPs %v", declared.Spec.IPs)
	}
	declared.Spec.IPs = []string{"192.0.2.1"}
	must(t, e.admin.Update(ctx, declared))
	refused(t, write(e.admin, func(i *mcsv1beta1.ServiceImport) { ips(i, "10.96.0.7") }), says)
	refused(t, e.agent.Delete(ctx, declared), says)
}

func ownedBy(o client.Object) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: o.GetName(), UID: o.GetUID()}}
}

// TestTheAgentDoesItsWork: the policy lets it write and delete its own, take over what its owner gives away, and keep a
// finalizer on labelled ranges.
func TestTheAgentDoesItsWork(t *testing.T) {
	e := setUp(t)
	ctx, ns := t.Context(), namespace(t, e)
	u := newUsers(t, e, ns)
	own := derivedService(ns, derived.Name(ns, "web"))
	imp := serviceImport(ns, "web", kube.Manager)
	imported := sliceFor(
		ns,
		endpoints.SliceName(own.Name, "1.west", discoveryv1.AddressTypeIPv4),
		own.Name,
		kube.Manager,
	)
	ownRange := serviceCIDR("clusterset-test", "10.224.0.0/28")
	ownRange.Labels = map[string]string{derived.LabelManagedBy: kube.Manager}
	balanced := outside(ns, "", "")
	_, gatewayName := endpoints.ProjectionNames(imported.Name)
	gateway := sliceFor(ns, gatewayName, "", kube.Manager)
	delete(gateway.Labels, discoveryv1.LabelServiceName)
	gateway.Labels[mcsv1beta1.LabelServiceName] = "web"
	made := []client.Object{own, imp, imported, gateway, balanced}
	if lab.ServiceCIDRs() {
		made = append(made, ownRange)
	}
	for _, o := range made {
		must(t, e.agent.Create(ctx, o))
		must(t, until(ctx, func() error { // Kubernetes' controller of ServiceCIDRs writes as well
			must(t, e.admin.Get(ctx, client.ObjectKeyFromObject(o), o))
			annotations := o.GetAnnotations()
			if annotations == nil {
				annotations = map[string]string{}
			}
			annotations["clusterset-dns.io/test"] = "x"
			o.SetAnnotations(annotations)
			return e.agent.Update(ctx, o)
		}))
	}
	must(t, e.agent.Status().Patch(ctx, imp, client.RawPatch(
		types.MergePatchType, []byte(`{"status":{"clusters":[{"cluster":"west"}]}}`))))

	given := u.imp.DeepCopy()
	given.Annotations["clusterset-dns.io/adopt"] = "true"
	must(t, e.admin.Update(ctx, given))
	given.Labels = map[string]string{derived.LabelManagedBy: kube.Manager}
	must(t, e.agent.Update(ctx, given))

	for _, change := range []func(client.Object, string) bool{
		controllerutil.AddFinalizer, controllerutil.RemoveFinalizer,
	} {
		if !lab.ServiceCIDRs() {
			break
		}
		must(t, until(ctx, func() error { // Kubernetes' controller writes there as well
			must(t, e.admin.Get(ctx, client.ObjectKeyFromObject(u.cidr), u.cidr))
			change(u.cidr, clusterset.FinalizerVIPs)
			return e.agent.Update(ctx, u.cidr)
		}))
	}
	for _, o := range append(made, given) {
		must(t, e.agent.Delete(ctx, o))
	}
	// Next to a ServiceCIDR that comes or goes, the API server answers "allocator not ready" for a moment.
	must(t, until(ctx, func() error {
		families, err := kube.Families(e.agent, time.Now)(ctx)
		if err == nil && len(families) == 0 {
			err = errors.New("the dry run shows no IP families")
		}
		return err
	}))
}
