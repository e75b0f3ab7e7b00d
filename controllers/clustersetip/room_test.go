package clustersetip

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
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

type silent struct{}

func (silent) Event(runtime.Object, string, string, string) {}

// roomOn is a Room on a cluster, and beside a hub, that have these objects.
func roomOn(t *testing.T, objects ...client.Object) *Room {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, networkingv1.AddToScheme, mcsv1beta1.Install, aboutv1beta1.AddToScheme, hubv1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	named := func(o client.Object) []string { return []string{o.GetName()} }
	c := fake.NewClientBuilder().WithScheme(s).WithObjects(objects...).WithIndex(&corev1.Service{}, "metadata.name", named).WithIndex(&networkingv1.IPAddress{}, "metadata.name", named).
		WithInterceptorFuncs(interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			o.SetUID(types.UID("uid-of-" + o.GetName()))
			return c.Create(ctx, o, opts...)
		}}).Build()
	r := New(&kube.Env{
		Cluster: "east", HubNamespace: "set", Local: c, LocalNow: c, Hub: func() client.Client { return c }, Events: silent{}, Now: time.Now,
		Served:   func(client.Object) error { return nil },
		Families: func(context.Context) ([]corev1.IPFamily, error) { return []corev1.IPFamily{corev1.IPv4Protocol}, nil },
		Together: func(n int, do func(int)) {
			for i := range n {
				do(i)
			}
		},
	})
	r.view = &view{addresses: map[netip.Addr]entry{}}
	r.fit(ipam.ModeShared, nil)
	return r
}

func derivedService(vip string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: derived.Name("shop", "web")}, Spec: corev1.ServiceSpec{ClusterIPs: []string{vip}}}
}

// TestV4NoLiveVIPIsFreed: what caches say of a Service that has the address, or no longer has it, is asked of the API server first.
func TestV4NoLiveVIPIsFreed(t *testing.T) {
	a := netip.MustParseAddr("10.0.0.7")
	service := types.NamespacedName{Namespace: "shop", Name: derived.Name("shop", "web")}
	for _, c := range []struct {
		name   string
		action ipam.Action
		vip    string // that the Service has
		want   string // whom the IPAddress is of then
	}{
		{"leaked, and in use", ipam.Delete, "10.0.0.7", "db"},
		{"leaked", ipam.Delete, "10.0.0.8", ""},
		{"another's, and not the Service's", ipam.Replace, "10.0.0.8", "db"},
		{"another's", ipam.Replace, "10.0.0.7", service.Name},
	} {
		ip := ipam.Reference(a, types.NamespacedName{Namespace: "shop", Name: "db"})
		r := roomOn(t, derivedService(c.vip), ip)
		if _, err := r.mend(t.Context(), &ipam.Finding{Kind: ipam.Leaked, Action: c.action, Service: service, Address: a, UID: ip.UID}); err != nil {
			t.Fatal(err)
		}
		got := ""
		now, err := kube.Get[*networkingv1.IPAddress](t.Context(), r.Local, types.NamespacedName{Name: a.String()})
		if err != nil {
			t.Fatal(err)
		}
		if now != nil {
			got = now.Spec.ParentRef.Name
		}
		if got != c.want {
			t.Errorf("%s: the IPAddress is of %q, want %q", c.name, got, c.want)
		}
	}
}

// TestV4OnlyAVIPThatIsLostIsMadeAgain: of a Service just made, caches may show the IPAddress late, or the fence that was there before it.
func TestV4OnlyAVIPThatIsLostIsMadeAgain(t *testing.T) {
	a := netip.MustParseAddr("10.0.0.7")
	service := types.NamespacedName{Namespace: "shop", Name: derived.Name("shop", "web")}
	own := ipam.Reference(a, service)
	own.UID = "own"
	for _, c := range []struct {
		name   string
		action ipam.Action
		uid    types.UID
		there  []client.Object
		want   types.UID // of the IPAddress then; "" for none
		told   bool
	}{
		{"lost", ipam.Create, "", []client.Object{derivedService("10.0.0.7")}, "uid-of-10.0.0.7", true},
		{"late", ipam.Create, "", []client.Object{derivedService("10.0.0.7"), own}, "own", false},
		{"of a Service that is gone", ipam.Create, "", nil, "", false},
		{"fenced", ipam.Replace, "fence-10.0.0.7", []client.Object{derivedService("10.0.0.7"), reservation("10.0.0.7", "vips")}, "uid-of-10.0.0.7", true},
		{"fenced before", ipam.Replace, "fence-10.0.0.7", []client.Object{derivedService("10.0.0.7"), own}, "own", false},
		{"fenced before, and late", ipam.Replace, "fence-10.0.0.7", []client.Object{derivedService("10.0.0.7")}, "", false},
	} {
		r := roomOn(t, c.there...)
		var events told
		r.Events = &events
		if _, err := r.mend(t.Context(), &ipam.Finding{Kind: ipam.Missing, Action: c.action, Service: service, Address: a, UID: c.uid}); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		var got types.UID
		now, err := kube.Get[*networkingv1.IPAddress](t.Context(), r.Local, types.NamespacedName{Name: a.String()})
		if err != nil {
			t.Fatal(err)
		}
		if now != nil {
			got = now.UID
		}
		if got != c.want || len(events) > 0 != c.told {
			t.Errorf("%s: the IPAddress is %q, want %q; told %q", c.name, got, c.want, events)
		}
	}
}

// TestV2TheHubIsToldOfBlocksInUse, and of ranges whose block it forgot, restored from a backup: else it would grant them to another member.
func TestV2TheHubIsToldOfBlocksInUse(t *testing.T) {
	cidr := func(name, prefix string, ours bool) *networkingv1.ServiceCIDR {
		c := &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{prefix}}}
		if ours {
			c.Labels = map[string]string{derived.LabelManagedBy: kube.Manager}
		}
		return c
	}
	cidrs := []*networkingv1.ServiceCIDR{cidr("kubernetes", "10.96.0.0/16", false), cidr("a", "10.200.0.0/24", true), cidr("b", "10.200.4.0/24", true)}
	for _, c := range []struct {
		name string
		seen bool
		want string
	}{{"the hub is not seen", false, ""}, {"the hub knows of one block", true, "10.96.0.0/16 10.200.0.0/22 10.200.4.0/24"}} {
		r := roomOn(t)
		s := ipam.Standing{Mode: ipam.ModePreferred, Blocks: []netip.Prefix{netip.MustParsePrefix("10.200.0.0/22")}}
		if err := r.tell(t.Context(), s, ipam.Layout{}, cidrs, c.seen); err != nil {
			t.Fatal(err)
		}
		p, err := kube.Get[*aboutv1beta1.ClusterProperty](t.Context(), r.Local, types.NamespacedName{Name: clusterset.PropertyServiceRanges})
		got := ""
		if p != nil {
			got = p.Spec.Value
		}
		if err != nil || got != c.want {
			t.Errorf("%s: %v, %q, want %q", c.name, err, got, c.want)
		}
	}
}

// TestI6AVIPWithoutItsServiceKeepsItsRange, also in an agent that has not seen the Service go. A reservation of a fence is nobody's.
func TestI6AVIPWithoutItsServiceKeepsItsRange(t *testing.T) {
	others := &mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "theirs"}, Spec: mcsv1beta1.ServiceImportSpec{IPs: []string{"10.0.0.9"}}}
	owner := types.NamespacedName{Namespace: "shop", Name: derived.Name("shop", "web")}
	four, six := netip.MustParseAddr("10.0.0.7"), netip.MustParseAddr("fd00::7")
	for _, c := range []struct {
		name      string
		addresses map[netip.Addr]entry
		gifts     map[netip.Addr]gift
		want      []netip.Addr
	}{
		{"both are free", nil, nil, []netip.Addr{four, six}},
		{"one is fenced", map[netip.Addr]entry{four: {fence: true, uid: "f"}}, nil, []netip.Addr{four, six}},
		{"one is held", map[netip.Addr]entry{four: {held: ipam.Held{Owner: owner, Address: four}, uid: "h"}}, nil, []netip.Addr{six}},
		{"one is given out", nil, map[netip.Addr]gift{six: {to: owner}}, []netip.Addr{four}},
	} {
		r := roomOn(t, imported("web", "10.0.0.7", "fd00::7"), others)
		r.view.addresses, r.gifts = c.addresses, c.gifts
		all, err := r.claimants(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		vips := r.keep(all)
		var got []netip.Addr
		for _, h := range vips {
			if h.Owner != owner || h.Foreign {
				t.Errorf("%s: %+v", c.name, h)
			}
			got = append(got, h.Address)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestI6AVIPThatNoIPAddressSpeaksForIsNobodyElses: somebody deleted it, and an agent that starts finds the address free, or fenced.
func TestI6AVIPThatNoIPAddressSpeaksForIsNobodyElses(t *testing.T) {
	lives := derivedService("10.0.0.1")
	lives.Labels = map[string]string{derived.LabelManagedBy: kube.Manager}
	for name, whose := range map[string]client.Object{"of a Service": lives, "of an import without its Service": imported("web", "10.0.0.1")} {
		for _, c := range []struct {
			name           string
			fenced, passes bool
		}{{"as it starts", true, false}, {"a pass later", true, true}, {"fenced by that", false, true}} {
			objects := []client.Object{whose, exclusiveSet(), exclusiveRange("vips", "10.0.0.0/30"), reservation("10.0.0.2", "vips")}
			if c.fenced {
				objects = append(objects, reservation("10.0.0.1", "vips"))
			}
			r := roomOn(t, objects...)
			if r.view = nil; c.passes {
				if err := r.load(t.Context()); err != nil {
					t.Fatal(err)
				}
				clear(r.rests)
				if _, err := r.lay(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			for i, want := range []string{"10.0.0.2", ""} {
				if got := reserved(t, r, fmt.Sprint("other", i)); got != want {
					t.Errorf("%s, %s: another import gets %q, want %q", name, c.name, got, want)
				}
			}
			if got := reserved(t, r, "web", "10.0.0.1"); got != "10.0.0.1" {
				t.Errorf("%s, %s: its own import gets %q", name, c.name, got)
			}
		}
	}
}

// TestV3ARangeThatIsToGoIsWatchedLessAndLess while nothing leaves it, since VIPs may be in it for years; and at once when something does.
func TestV3ARangeThatIsToGoIsWatchedLessAndLess(t *testing.T) {
	set := exclusiveSet()
	set.Spec.VIPs.Mode = hubv1alpha1.VIPModeShared
	left := exclusiveRange("clusterset-vips-exclusive-10-0-0-0-30", "10.0.0.0/30")
	left.Labels[derived.LabelManagedBy] = kube.Manager
	web, other := ipam.Reference(netip.MustParseAddr("10.0.0.1"), ipam.Owner{Namespace: "shop", Name: derived.Name("shop", "web")}), reservation("10.0.0.2", left.Name)
	web.UID, web.CreationTimestamp = "uid-of-web", metav1.NewTime(time.Now().Add(time.Hour)) // too young to have leaked
	r := roomOn(t, set, left, web, other)
	now := time.Now()
	r.view, r.Now = nil, func() time.Time { return now }
	var waits []time.Duration
	for range 7 {
		again, err := r.lay(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		waits = append(waits, again.RequeueAfter)
	}
	if want := []time.Duration{2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 32 * time.Second, time.Minute, time.Minute}; !slices.Equal(waits, want) {
		t.Errorf("looked at again after %s, want %s", waits, want)
	}
	if err := r.Local.Delete(t.Context(), web); err != nil {
		t.Fatal(err)
	}
	if asked := r.ofAddress(t.Context(), web); !slices.Contains(asked, reconcile.Request{NamespacedName: ranges}) {
		t.Errorf("nobody looks at the range that something left: %v", asked)
	}
	if again, err := r.lay(t.Context()); err != nil || again.RequeueAfter != attentive {
		t.Errorf("%v: before the address was looked at, it is looked at again after %s", err, again.RequeueAfter)
	}
}

// TestV3WhatIsMadeAgainIsNotToBeDeleted: of a drained range that the agent made the Event says so, while it has a use for it.
func TestV3WhatIsMadeAgainIsNotToBeDeleted(t *testing.T) {
	const leave, free = "Leave it, drained", "it can be deleted"
	for _, c := range []struct {
		name, range_, want string
		unseen             bool
	}{
		{"a block", ipam.Named(netip.MustParsePrefix("10.200.0.0/24"), ipam.Shared).Name, leave, false},
		{"a block, before the hub is seen", ipam.Named(netip.MustParsePrefix("10.200.0.0/24"), ipam.Shared).Name, leave, true},
		{"by hand", "hand", free, false},
		{"by hand, before the hub is seen", "hand", free, true},
		{"the cluster's own", "ordinary", free, false},
	} {
		set := exclusiveSet()
		set.Spec.VIPs.Mode, set.Status.Blocks = hubv1alpha1.VIPModePreferred, []hubv1alpha1.Block{{ClusterID: "east", CIDR: "10.200.0.0/24"}}
		drained := exclusiveRange(c.range_, "10.200.0.0/24")
		drained.Annotations = map[string]string{ipam.AnnotationDrain: ""}
		drained.Labels[ipam.LabelVIPs] = string(ipam.Shared)
		switch c.range_ {
		case "hand":
		case "ordinary":
			drained.Finalizers = nil
			delete(drained.Labels, ipam.LabelVIPs)
		default:
			drained.Labels[derived.LabelManagedBy] = kube.Manager
		}
		mode := &aboutv1beta1.ClusterProperty{ObjectMeta: metav1.ObjectMeta{Name: clusterset.PropertySet, Annotations: map[string]string{clusterset.AnnotationVIPMode: string(ipam.ModePreferred)}}}
		r := roomOn(t, set, mode, drained)
		var events told
		r.view, r.Events = nil, &events
		if c.unseen {
			r.Hub = func() client.Client { return nil }
		}
		if _, err := r.lay(t.Context()); err != nil {
			t.Fatal(err)
		}
		if said := strings.Join(events, "\n"); strings.Count(said, "VIPRangeDrained") != 1 || !strings.Contains(said, c.want) {
			t.Errorf("%s: %q, want %q", c.name, said, c.want)
		}
		if err := r.Local.Get(t.Context(), client.ObjectKeyFromObject(drained), drained); err != nil || (len(drained.Finalizers) > 0) == (c.range_ == "ordinary") {
			t.Errorf("%s: finalizers %v (%v)", c.name, drained.Finalizers, err)
		}
	}
}

// reserved is the address that an import is given; "" for none.
func reserved(t *testing.T, r *Room, name string, previous ...string) string {
	t.Helper()
	q := kube.VIPRequest{Import: imported(name), Service: types.NamespacedName{Namespace: "shop", Name: derived.Name("shop", name)}, Families: []corev1.IPFamily{corev1.IPv4Protocol}}
	for _, p := range previous {
		q.Previous = append(q.Previous, netip.MustParseAddr(p))
	}
	grant, err := r.Reserve(t.Context(), q)
	if err != nil && !errors.Is(err, ipam.ErrFull) && !errors.Is(err, kube.ErrVIPBusy) {
		t.Fatal(err)
	}
	if len(grant.Addresses) == 0 {
		return ""
	}
	return grant.Addresses[0].String()
}

func imported(name string, vips ...string) *mcsv1beta1.ServiceImport {
	return &mcsv1beta1.ServiceImport{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{derived.LabelManagedBy: kube.Manager}},
		Spec:       mcsv1beta1.ServiceImportSpec{IPs: vips},
	}
}

func exclusiveSet() *hubv1alpha1.ClusterSet {
	return &hubv1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Namespace: "set", Name: "set"}, Spec: hubv1alpha1.ClusterSetSpec{VIPs: hubv1alpha1.VIPs{Mode: hubv1alpha1.VIPModeExclusive}}}
}

func exclusiveRange(name, prefix string) *networkingv1.ServiceCIDR {
	return &networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{ipam.LabelVIPs: string(ipam.Exclusive)}, Finalizers: []string{clusterset.FinalizerVIPs}},
		Spec:       networkingv1.ServiceCIDRSpec{CIDRs: []string{prefix}},
	}
}

func reservation(address, cidr string) *networkingv1.IPAddress {
	ip := &networkingv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Name: address, UID: types.UID("fence-" + address), CreationTimestamp: metav1.Now(), Labels: map[string]string{networkingv1.LabelManagedBy: kube.Manager}}}
	ip.Spec.ParentRef = &networkingv1.ParentReference{Group: networkingv1.GroupName, Resource: "servicecidrs", Name: cidr}
	return ip
}

// TestV2OfTwoClusterSetsNoneIsMeant: the mode stays what it was.
func TestV2OfTwoClusterSetsNoneIsMeant(t *testing.T) {
	set := func(name string, mode ipam.Mode) *hubv1alpha1.ClusterSet {
		return &hubv1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Namespace: "set", Name: name}, Spec: hubv1alpha1.ClusterSetSpec{VIPs: hubv1alpha1.VIPs{Mode: hubv1alpha1.VIPMode(mode)}}}
	}
	r := roomOn(t, set("b", ipam.ModeExclusive))
	for _, want := range []ipam.Mode{ipam.ModeExclusive, ipam.ModeExclusive} {
		if v, err := r.hubView(t.Context()); err != nil || v.mode != want {
			t.Fatalf("%v, mode %s, want %s", err, v.mode, want)
		}
		if err := client.IgnoreAlreadyExists(r.Local.Create(t.Context(), set("a", ipam.ModePreferred))); err != nil {
			t.Fatal(err)
		}
	}
}

// TestV7RangesThatAppearAreFound: the two kinds are served one after the other, and events of the second ask only for addresses.
func TestV7RangesThatAppearAreFound(t *testing.T) {
	r, missing := roomOn(t, exclusiveSet(), exclusiveRange("vips", "10.0.0.0/30")), true
	r.view, r.Served = nil, func(o client.Object) error {
		if _, is := o.(*networkingv1.IPAddress); is && missing {
			return errors.New("there are no IPAddresses here")
		}
		return nil
	}
	again, err := r.lay(t.Context())
	if err != nil || again.RequeueAfter == 0 || r.view.unsupported == nil {
		t.Fatalf("%v: it is looked at again after %s", err, again.RequeueAfter)
	}
	missing = false
	if _, err := r.lay(t.Context()); err != nil || r.view.unsupported != nil || r.view.size[corev1.IPv4Protocol] != 2 {
		t.Errorf("%v, %v: %v addresses", err, r.view.unsupported, r.view.size)
	}
}
