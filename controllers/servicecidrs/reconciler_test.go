package servicecidrs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// cluster is a member, and its hub in the same API server.
type cluster struct {
	*reconciler
	client.WithWatch
	t       *testing.T
	set     *hubv1alpha1.ClusterSet
	noHub   bool
	missing error
	refuses error // creations of ServiceCIDRs
	writes  int
	told    []string
}

func (c *cluster) Event(_ runtime.Object, _, reason, message string) {
	c.told = append(c.told, reason+": "+message)
}

func newCluster(t *testing.T, mode hubv1alpha1.VIPMode, blocks []string, objects ...client.Object) *cluster {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		aboutv1beta1.AddToScheme, corev1.AddToScheme, networkingv1.AddToScheme, hubv1alpha1.AddToScheme,
		mcsv1beta1.Install,
	} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	c := &cluster{t: t}
	c.set = &hubv1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Namespace: "set", Name: "set"}}
	c.set.Spec.VIPs.Mode, c.set.Spec.VIPs.Pools = mode, []string{"10.0.0.0/9"}
	for _, b := range blocks {
		c.set.Status.Blocks = append(c.set.Status.Blocks, hubv1alpha1.Block{ClusterID: "a", CIDR: b},
			hubv1alpha1.Block{ClusterID: "b", CIDR: "10.77.0.0/24"})
	}
	member := &aboutv1beta1.ClusterProperty{ObjectMeta: metav1.ObjectMeta{Name: clusterset.PropertySet}}
	own := &networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"},
		Spec:       networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.96.0.0/16"}},
	}
	c.WithWatch = fake.NewClientBuilder().
		WithScheme(s).
		WithObjects(append(objects, c.set, member, own)...).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(
				ctx context.Context, under client.WithWatch, o client.Object, opts ...client.CreateOption,
			) error {
				if _, is := o.(*networkingv1.ServiceCIDR); is && c.refuses != nil {
					return c.refuses
				}
				c.writes++
				return under.Create(ctx, o, opts...)
			},
			Update: func(
				ctx context.Context, under client.WithWatch, o client.Object, opts ...client.UpdateOption,
			) error {
				c.writes++
				return under.Update(ctx, o, opts...)
			},
			Delete: func(
				ctx context.Context, under client.WithWatch, o client.Object, opts ...client.DeleteOption,
			) error {
				c.writes++
				return under.Delete(ctx, o, opts...)
			},
		}).
		Build()
	c.reconciler = &reconciler{
		Member: kube.Member{
			Cluster:      "a",
			HubNamespace: "set",
			Local:        c.WithWatch,
			Hub: func() client.Client {
				if c.noHub {
					return nil
				}
				return c.WithWatch
			},
			Families: func(context.Context) ([]corev1.IPFamily, error) {
				return []corev1.IPFamily{corev1.IPv4Protocol}, nil
			},
			Events:  c,
			Missing: func(client.Object) error { return c.missing },
		},
	}
	return c
}

// pass reconciles once.
func (c *cluster) pass() reconcile.Result {
	c.t.Helper()
	res, err := c.Reconcile(c.t.Context(), reconcile.Request{})
	if err != nil {
		c.t.Fatal(err)
	}
	return res
}

// ranges lists all ServiceCIDRs but the cluster's own, with their state.
func (c *cluster) ranges() string {
	c.t.Helper()
	var list networkingv1.ServiceCIDRList
	if err := c.List(c.t.Context(), &list); err != nil {
		c.t.Fatal(err)
	}
	var out []string
	for _, one := range list.Items {
		if one.Name != "kubernetes" {
			held := slices.Contains(one.Finalizers, clusterset.FinalizerVIPs)
			out = append(out, fmt.Sprintf("%s %v held=%v", one.Name, one.Spec.CIDRs, held))
		}
	}
	return strings.Join(out, ", ")
}

func (c *cluster) property(name string) string {
	p, err := kube.Get[*aboutv1beta1.ClusterProperty](c.t.Context(), c.WithWatch, client.ObjectKey{Name: name})
	if err != nil || p == nil {
		return ""
	}
	return p.Spec.Value
}

func (c *cluster) events(reason string) (n int) {
	for _, e := range c.told {
		if strings.HasPrefix(e, reason+": ") {
			n++
		}
	}
	return n
}

func cidr(name, prefix string, change ...func(*networkingv1.ServiceCIDR)) *networkingv1.ServiceCIDR {
	c := &networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{ipam.LabelVIPs: "shared"}},
	}
	c.Spec.CIDRs = []string{prefix}
	for _, f := range change {
		f(c)
	}
	return c
}

func ofTheAgent(c *networkingv1.ServiceCIDR) { c.Labels[derived.LabelManagedBy] = kube.Manager }
func held(c *networkingv1.ServiceCIDR)       { c.Finalizers = []string{clusterset.FinalizerVIPs} }

// web is a derived Service with this address.
func web(ip string) *corev1.Service {
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop",
			Name:      "derived-web",
			Labels:    map[string]string{derived.LabelManagedBy: kube.Manager},
		},
	}
	svc.Spec.ClusterIPs = []string{ip}
	return svc
}

// TestABlockBecomesARange, once, and the hub hears of it.
func TestABlockBecomesARange(t *testing.T) {
	c := newCluster(t, "preferred", []string{"10.1.0.0/24"})
	c.pass()
	if got := c.ranges(); got != "clusterset-vips-shared-10-1-0-0-24 [10.1.0.0/24] held=true" {
		t.Error(got)
	}
	if res := c.pass(); res.RequeueAfter != busyInterval {
		t.Errorf("%+v", res)
	}
	got := c.property(clusterset.PropertyServiceRanges) + "; " + c.property(clusterset.PropertyBlocks)
	if got != "10.1.0.0/24 10.96.0.0/16; ipv4=1 ipv6=0" {
		t.Error(got)
	}
	c.writes = 0
	if c.pass(); c.writes > 0 {
		t.Errorf("a settled pass writes %d times", c.writes)
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collector{c.reconciler})
	families, err := registry.Gather()
	if err != nil || len(families) != 3 || families[1].GetMetric()[0].GetLabel()[0].GetValue() != "10.1.0.0/24" {
		t.Errorf("%v %v", families, err)
	}
}

// TestV6AReplicaThatDoesNotLeadShowsNothing: it has not checked what the cluster serves. One that leads keeps no scrape
// waiting.
func TestV6AReplicaThatDoesNotLeadShowsNothing(t *testing.T) {
	c := newCluster(t, "preferred", []string{"10.1.0.0/24"})
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collector{c.reconciler})
	c.missing = errors.New("not been checked yet")
	if families, err := registry.Gather(); err != nil || len(families) > 0 {
		t.Errorf("before a pass it shows %v, %v", families, err)
	}
	c.pass()
	if families, err := registry.Gather(); err != nil || len(families) != 1 {
		t.Errorf("after a pass it shows %v, %v", families, err)
	}
	c.missing = nil
	c.Families = func(ctx context.Context) ([]corev1.IPFamily, error) {
		if _, bounded := ctx.Deadline(); !bounded {
			t.Error("a scrape waits for the API server for ever")
		}
		return nil, errors.New("timeout")
	}
	if families, err := registry.Gather(); err != nil || len(families) > 0 {
		t.Errorf("it shows %v, %v", families, err)
	}
}

// TestWithoutTheHubTheLastModeStays.
func TestWithoutTheHubTheLastModeStays(t *testing.T) {
	c := newCluster(t, "preferred", []string{"10.1.0.0/24"})
	c.pass()
	c.noHub = true
	before := c.ranges()
	if c.pass(); c.ranges() != before {
		t.Errorf("%s became %s", before, c.ranges())
	}
}

// TestModeSharedKeepsOnlyRangesInUse.
func TestModeSharedKeepsOnlyRangesInUse(t *testing.T) {
	c := newCluster(
		t, "shared", nil, cidr("used", "10.1.0.0/24", ofTheAgent), cidr("empty", "10.2.0.0/24", ofTheAgent, held),
		cidr("users", "10.3.0.0/24"), web("10.1.0.7"),
	)
	c.pass()
	c.pass() // the finalizer goes once it is being deleted
	if got := c.ranges(); got != "used [10.1.0.0/24] held=true, users [10.3.0.0/24] held=true" {
		t.Error(got)
	}
}

// TestARangeThatAUserHasTakenOverStays, although the cache still shows it as the agent's.
func TestARangeThatAUserHasTakenOverStays(t *testing.T) {
	c := newCluster(t, "shared", nil, cidr("empty", "10.2.0.0/24", ofTheAgent, held))
	c.Local = interceptor.NewClient(c.WithWatch, interceptor.Funcs{List: func(
		ctx context.Context, under client.WithWatch, list client.ObjectList, opts ...client.ListOption,
	) error {
		err := under.List(ctx, list, opts...)
		if cidrs, is := list.(*networkingv1.ServiceCIDRList); is {
			for i := range cidrs.Items {
				taken := cidrs.Items[i].DeepCopy()
				delete(taken.Labels, derived.LabelManagedBy)
				err = errors.Join(err, under.Update(ctx, taken))
			}
		}
		return err
	}})
	if _, err := c.Reconcile(t.Context(), reconcile.Request{}); !apierrors.IsConflict(err) {
		t.Error(err)
	}
	c.Local = c.WithWatch
	if c.pass(); c.ranges() != "empty [10.2.0.0/24] held=true" {
		t.Error(c.ranges())
	}
}

// TestV2NoBlockIsAskedForBeforeTheRangesAreReported: the hub would grant one that may overlap them.
func TestV2NoBlockIsAskedForBeforeTheRangesAreReported(t *testing.T) {
	c := newCluster(t, "preferred", nil)
	c.Local = interceptor.NewClient(c.WithWatch, interceptor.Funcs{Create: func(
		ctx context.Context, under client.WithWatch, o client.Object, opts ...client.CreateOption,
	) error {
		if o.GetName() == clusterset.PropertyServiceRanges {
			return errors.New("timeout")
		}
		return under.Create(ctx, o, opts...)
	}})
	if _, err := c.Reconcile(t.Context(), reconcile.Request{}); err == nil ||
		c.property(clusterset.PropertyBlocks) != "" {
		t.Errorf("%v; it asks for %s", err, c.property(clusterset.PropertyBlocks))
	}
}

// TestV2AMemberInModeSharedAsksForNoBlock. If it said nothing, the hub would grant one of each family as soon as the
// mode becomes preferred, also of a family that the cluster does not have.
func TestV2AMemberInModeSharedAsksForNoBlock(t *testing.T) {
	c := newCluster(t, "shared", nil)
	if c.pass(); c.property(clusterset.PropertyBlocks) != "ipv4=0 ipv6=0" {
		t.Errorf("it asks for %q", c.property(clusterset.PropertyBlocks))
	}
	c.set.Spec.VIPs.Mode = "preferred"
	if err := c.Update(t.Context(), c.set); err != nil {
		t.Fatal(err)
	}
	if c.pass(); c.property(clusterset.PropertyBlocks) != "ipv4=1 ipv6=0" {
		t.Errorf("it asks for %q", c.property(clusterset.PropertyBlocks))
	}
}

// TestV2NoRangeOverlapsTheReportedPodRanges, whatever the hub grants. If they cannot be read, an Event says so.
func TestV2NoRangeOverlapsTheReportedPodRanges(t *testing.T) {
	for value, want := range map[string]string{
		"10.1.0.0/16":             "no ServiceCIDR is made of block 10.1.0.0/24",
		"10.1.0.0/16,10.2.0.0/16": clusterset.PropertyPodRanges,
	} {
		c := newCluster(t, "preferred", []string{"10.1.0.0/24"}, &aboutv1beta1.ClusterProperty{
			ObjectMeta: metav1.ObjectMeta{Name: clusterset.PropertyPodRanges},
			Spec:       aboutv1beta1.ClusterPropertySpec{Value: value},
		})
		if c.pass(); c.events("VIPRangeInvalid") != 1 || !strings.Contains(strings.Join(c.told, ""), want) {
			t.Errorf("%s: %q, %s", value, c.told, c.ranges())
		}
	}
}

// TestV3ARangeInUseIsHeld until another one covers its VIPs, which also an import has whose derived Service is
// gone.
func TestV3ARangeInUseIsHeld(t *testing.T) {
	imp := &mcsv1beta1.ServiceImport{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop",
			Name:      "web",
			Labels:    map[string]string{derived.LabelManagedBy: kube.Manager},
		},
	}
	imp.Spec.IPs = []string{"10.1.0.7"}
	for name, vip := range map[string]client.Object{"a derived Service": web("10.1.0.7"), "an import": imp} {
		c := newCluster(t, "preferred", nil, cidr("old", "10.1.0.0/28", held), vip)
		if err := c.WithWatch.Delete(t.Context(), cidr("old", "")); err != nil {
			t.Fatal(err)
		}
		c.pass()
		remedy, vips, _ := strings.Cut(strings.Join(c.told, ""), "): ") // a long Event loses its end
		if got := c.ranges(); got != "old [10.1.0.0/28] held=true" || c.events("VIPRangeHeld") != 1 ||
			!strings.Contains(remedy, "kubectl delete") || !strings.Contains(vips, "10.1.0.7") {
			t.Errorf("%s: %s %v", name, got, c.told)
		}
		if err := c.Create(t.Context(), cidr("new", "10.1.0.0/27", held)); err != nil {
			t.Fatal(err)
		}
		c.pass()
		if got := c.ranges(); got != "new [10.1.0.0/27] held=true" {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// TestV7WhatTheClusterCannotDoIsReported, and is no error that is tried again and again.
func TestV7WhatTheClusterCannotDoIsReported(t *testing.T) {
	c := newCluster(t, "preferred", []string{"10.1.0.0/24"})
	c.missing = errors.New("before 1.33")
	if c.pass(); c.events("VIPModeUnsupported") != 1 || c.ranges() != "" {
		t.Error(c.told, c.ranges())
	}
	c.missing, c.refuses = nil, apierrors.NewForbidden(schema.GroupResource{}, "x", errors.New("no ranges here"))
	if c.pass(); c.events("VIPRangeRefused") != 1 || !strings.Contains(strings.Join(c.told, ""), "no ranges here") {
		t.Error(c.told)
	}
	c.refuses = nil
	if c.pass(); c.ranges() == "" {
		t.Error("it is not tried again")
	}
}

// TestV2NoBlockOfAFamilyWithoutAPoolIsAskedFor, which the hub could only refuse.
func TestV2NoBlockOfAFamilyWithoutAPoolIsAskedFor(t *testing.T) {
	c := newCluster(t, "preferred", nil)
	c.Families = func(context.Context) ([]corev1.IPFamily, error) { return kube.BothFamilies, nil }
	if c.pass(); c.property(clusterset.PropertyBlocks) != "ipv4=1 ipv6=0" {
		t.Errorf("it asks for %s", c.property(clusterset.PropertyBlocks))
	}
}

// TestAUsersPropertyStays.
func TestAUsersPropertyStays(t *testing.T) {
	p := &aboutv1beta1.ClusterProperty{
		ObjectMeta: metav1.ObjectMeta{Name: clusterset.PropertyServiceRanges},
		Spec:       aboutv1beta1.ClusterPropertySpec{Value: "10.0.0.0/8"},
	}
	c := newCluster(t, "shared", nil, p)
	if c.pass(); c.property(clusterset.PropertyServiceRanges) != "10.0.0.0/8" {
		t.Error(c.property(clusterset.PropertyServiceRanges))
	}
}
