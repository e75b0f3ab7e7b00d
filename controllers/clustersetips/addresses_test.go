package clustersetips

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

const (
	v4 = corev1.IPv4Protocol
	v6 = corev1.IPv6Protocol
)

var (
	start   = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	service = types.NamespacedName{Namespace: "shop", Name: "derived-web"}
)

// cluster is a member with these objects, in this mode.
type cluster struct {
	*Addresses
	client.Client
	missing error
	now     time.Time
	told    []string
}

func (c *cluster) Event(_ runtime.Object, _, reason, message string) {
	c.told = append(c.told, reason+": "+message)
}

func newCluster(t *testing.T, mode hubv1alpha1.VIPMode, objects ...client.Object) *cluster {
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
	set := &hubv1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Namespace: "set", Name: "set"}}
	set.Spec.VIPs.Mode = mode
	byName := func(o client.Object) []string { return []string{o.GetName()} }
	c := &cluster{now: start}
	c.Client = fake.NewClientBuilder().WithScheme(s).WithObjects(slices.Concat(objects, []client.Object{set})...).
		WithIndex(&networkingv1.IPAddress{}, "metadata.name", byName).Build()
	c.Addresses = New(kube.Member{
		Cluster:      "a",
		HubNamespace: "set",
		Local:        c.Client,
		LocalNow:     c.Client,
		Hub:          func() client.Client { return c.Client },
		Events:       c,
		Now:          func() time.Time { return c.now },
		Missing:      func(client.Object) error { return c.missing },
	})
	return c
}

func cidr(name, use, prefix string, change ...func(*networkingv1.ServiceCIDR)) client.Object {
	c := &networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{ipam.LabelVIPs: use}},
	}
	c.Spec.CIDRs = []string{prefix}
	for _, f := range change {
		f(c)
	}
	return c
}

func deleting(c *networkingv1.ServiceCIDR) {
	c.DeletionTimestamp, c.Finalizers = &metav1.Time{Time: start}, []string{"test"}
}

func notReady(c *networkingv1.ServiceCIDR) {
	c.Status.Conditions = []metav1.Condition{
		{Type: networkingv1.ServiceCIDRConditionReady, Status: metav1.ConditionFalse},
	}
}

func address(name string, owner types.NamespacedName) client.Object {
	ip := &networkingv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Name: name}}
	ip.Spec.ParentRef = &networkingv1.ParentReference{
		Resource:  "services",
		Namespace: owner.Namespace,
		Name:      owner.Name,
	}
	return ip
}

// request is of an import that had these addresses.
func request(families []corev1.IPFamily, ips ...string) *ipam.Request {
	imp := &mcsv1beta1.ServiceImport{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", CreationTimestamp: metav1.NewTime(start)},
	}
	imp.Spec.IPs = ips
	return &ipam.Request{Import: imp, Service: service, Families: families}
}

// pending returns the request of an import that has not been Ready since start.
func pending(q *ipam.Request) *ipam.Request {
	q.Import.Status.Conditions = []metav1.Condition{{
		Type: string(mcsv1beta1.ServiceImportConditionReady), Status: metav1.ConditionFalse,
		LastTransitionTime: metav1.NewTime(start),
	}}
	return q
}

func text(addresses []netip.Addr) string {
	var out []string
	for _, a := range addresses {
		out = append(out, a.String())
	}
	return strings.Join(out, " ")
}

func TestPick(t *testing.T) {
	other := types.NamespacedName{Namespace: "shop", Name: "other"}
	own := cidr("kubernetes", "", "10.96.0.0/16")
	for name, c := range map[string]struct {
		mode     hubv1alpha1.VIPMode
		objects  []client.Object
		q        *ipam.Request
		unserved bool
		later    time.Duration
		want     string // "" means that the API server chooses
		err      error
		event    string
	}{
		"shared, a new import": {
			"shared", []client.Object{own}, request([]corev1.IPFamily{v4}), false, 0, "", nil, "",
		},
		"shared, its previous addresses": {
			"shared", []client.Object{own}, request([]corev1.IPFamily{v4, v6}, "10.96.0.9", "fd00::9"), false, 0,
			"10.96.0.9 fd00::9", nil, "",
		},
		"preferred, from the range": {
			"preferred", []client.Object{own, cidr("vips", "shared", "10.1.0.0/30"), address("10.1.0.1", other)},
			request([]corev1.IPFamily{v4}), false, 0, "10.1.0.2", nil, "",
		},
		"preferred, the range is full": {
			"preferred",
			[]client.Object{
				own, cidr("vips", "shared", "10.1.0.0/30"), address("10.1.0.1", other), address("10.1.0.2", other),
			},
			request([]corev1.IPFamily{v4}), false, 0, "", nil, "VIPRangeOverflow",
		},
		"preferred, nobody wants ranges of the family": {
			"preferred", []client.Object{own, cidr("vips", "shared", "10.1.0.0/30")}, request([]corev1.IPFamily{v6}),
			false, 0, "", nil, "",
		},
		"preferred, previous of another mode": {
			"preferred", []client.Object{own, cidr("vips", "shared", "10.1.0.0/30")},
			request([]corev1.IPFamily{v4}, "10.96.0.9"), false, 0, "10.96.0.9", nil, "",
		},
		"a range is being made": {
			"preferred", []client.Object{own, cidr("vips", "shared", "10.1.0.0/30", notReady)},
			request([]corev1.IPFamily{v4}), false, 0, "", ipam.ErrPending, "",
		},
		"it takes too long": {
			"preferred", []client.Object{own, cidr("vips", "shared", "10.1.0.0/30", notReady)},
			request([]corev1.IPFamily{v4}), false, building, "", nil, "VIPRangeOverflow",
		},
		"it takes too long, by a clock that is behind the API server's": {
			"preferred", []client.Object{own, cidr("vips", "shared", "10.1.0.0/30", notReady)},
			request([]corev1.IPFamily{v4}), false, -building, "", nil, "VIPRangeOverflow",
		},
		"not released yet": {
			"shared", []client.Object{own, address("10.96.0.9", service)}, request([]corev1.IPFamily{v4}, "10.96.0.9"),
			false, 0, "", ipam.ErrPending, "",
		},
		"being deleted, its previous address": {
			"preferred",
			[]client.Object{
				cidr("a", "shared", "10.1.0.0/30"), cidr("b", "shared", "10.2.0.0/30", deleting),
				address("10.1.0.1", other),
			},
			request([]corev1.IPFamily{v4}, "10.2.0.1"), false, 0, "10.1.0.2", nil, "",
		},
		"being deleted, but covered": {
			"preferred",
			[]client.Object{cidr("a", "shared", "10.2.0.0/29"), cidr("b", "shared", "10.2.0.0/30", deleting)},
			request([]corev1.IPFamily{v4}, "10.2.0.1"), false, 0, "10.2.0.1", nil, "",
		},
		"without ServiceCIDRs": {
			"preferred", nil, pending(request([]corev1.IPFamily{v4, v6}, "10.96.0.9")), true, releasing, "10.96.0.9",
			nil, "",
		},
		"without ServiceCIDRs, just deleted": {
			"preferred", nil, request([]corev1.IPFamily{v4, v6}, "10.96.0.9"), true, 0, "", ipam.ErrPending, "",
		},
	} {
		m := newCluster(t, c.mode, c.objects...)
		m.now = start.Add(c.later)
		if c.unserved {
			m.missing = errors.New("before 1.33")
		}
		got, err := m.Pick(t.Context(), c.q)
		if text(got) != c.want || !errors.Is(err, c.err) || (len(m.told) > 0) != (c.event != "") ||
			len(m.told) > 0 && !strings.HasPrefix(m.told[0], c.event) {
			t.Errorf("%s: %q %v, told %v; want %q %v %s", name, text(got), err, m.told, c.want, c.err, c.event)
		}
	}
}

// TestPickTakesTheLastFreeAddress: also where more are taken than are looked up one by one.
func TestPickTakesTheLastFreeAddress(t *testing.T) {
	m := newCluster(t, "preferred", cidr("vips", "shared", "10.1.0.0/24"))
	for i := range 253 {
		if err := m.Create(
			t.Context(),
			address(netip.AddrFrom4([4]byte{10, 1, 0, byte(i + 1)}).String(), types.NamespacedName{Name: "other"}),
		); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := m.Pick(t.Context(), request([]corev1.IPFamily{v4})); err != nil || text(got) != "10.1.0.254" {
		t.Errorf("%v %v", got, err)
	}
}

// invalid is how an API server refuses cluster IPs.
func invalid(path string) error {
	return apierrors.NewInvalid(
		schema.GroupKind{Kind: "Service"},
		"derived-web",
		field.ErrorList{field.Invalid(field.NewPath("spec", path), "", "no")},
	)
}

// TestRefused: what an API server's refusal means shows in its cause and in the IPAddresses, not in its words.
func TestRefused(t *testing.T) {
	other := types.NamespacedName{Namespace: "shop", Name: "other"}
	waiting := func(q *ipam.Request) *ipam.Request {
		q.Import.Status.Conditions = []metav1.Condition{
			{Type: "Ready", Status: metav1.ConditionFalse, LastTransitionTime: metav1.NewTime(start)},
		}
		return q
	}
	full := []client.Object{
		cidr("kubernetes", "", "10.1.0.0/30"),
		address("10.1.0.1", other),
		address("10.1.0.2", other),
	}
	one := []corev1.IPFamily{v4}
	for name, c := range map[string]struct {
		objects []client.Object
		q       *ipam.Request
		asked   string
		cause   error
		later   time.Duration
		err     error // nil: another attempt
		lost    bool
	}{
		"somebody has the previous address": {
			[]client.Object{address("10.1.0.9", other)}, request(one, "10.1.0.9"), "10.1.0.9", invalid("clusterIPs"), 0,
			nil, true,
		},
		"somebody has the fresh address": {
			[]client.Object{address("10.1.0.9", other)}, request(one), "10.1.0.9", invalid("clusterIPs"), 0, nil, true,
		},
		"its own last Service has it": {
			[]client.Object{address("10.1.0.9", service)}, request(one, "10.1.0.9"), "10.1.0.9", invalid("clusterIPs"),
			time.Hour, ipam.ErrPending, false,
		},
		"a fresh one that was left of an attempt": {
			[]client.Object{address("10.1.0.9", service)}, request(one), "10.1.0.9", invalid("clusterIPs"), 0, nil,
			true,
		},
		"nobody has the previous address": {
			nil, waiting(request(one, "10.1.0.9")), "10.1.0.9", invalid("clusterIPs"), 0, ipam.ErrPending, false,
		},
		"nobody has it, for long": {
			nil, waiting(request(one, "10.1.0.9")), "10.1.0.9", invalid("clusterIPs"), patience, nil, true,
		},
		"nobody has the fresh address": {
			nil, request(one), "10.1.0.9", invalid("clusterIPs"), 0, nil, true,
		},
		"another field is refused": {
			nil, request(one), "10.1.0.9", invalid("ports"), 0, apierrors.NewInvalid(schema.GroupKind{}, "", nil),
			false,
		},
		"the Service is there": {
			nil, request(one), "10.1.0.9", apierrors.NewAlreadyExists(schema.GroupResource{}, "x"), 0,
			apierrors.NewAlreadyExists(schema.GroupResource{}, ""), false,
		},
		"the API server chose, all ranges are full": {
			full, request(one), "", apierrors.NewInternalError(errors.New("whatever")), 0, ipam.ErrFull, false,
		},
		"the API server chose, there is more": {
			full[:2], request(one), "", apierrors.NewInternalError(errors.New("whatever")), 0,
			apierrors.NewInternalError(errors.New("")), false,
		},
	} {
		m := newCluster(t, "shared", c.objects...)
		m.now = start.Add(c.later)
		var asked []netip.Addr
		if c.asked != "" {
			asked = append(asked, netip.MustParseAddr(c.asked))
		}
		err := m.Refused(t.Context(), c.q, asked, c.cause)
		same := errors.Is(err, c.err) ||
			c.err != nil && apierrors.ReasonForError(err) == apierrors.ReasonForError(c.err) &&
				!errors.Is(err, ipam.ErrFull)
		if !same || (len(c.q.Lost) > 0) != c.lost {
			t.Errorf("%s: %v, lost %v; want %v", name, err, c.q.Lost, c.err)
		}
	}
}

// TestTheAPIServerChoosesAfterSomeTries, and an Event says so. A new import waits first: the API server's allocator may
// not know a new range yet.
func TestTheAPIServerChoosesAfterSomeTries(t *testing.T) {
	for _, young := range []bool{true, false} {
		m, q := newCluster(t, "preferred", cidr("vips", "shared", "10.1.0.0/24")), request([]corev1.IPFamily{v4})
		if !young {
			m.now = start.Add(building)
		}
		refused := 0
		asked, err := m.Pick(t.Context(), q)
		for ; len(asked) > 0 && refused <= tries; asked, err = m.Pick(t.Context(), q) {
			if refused++; m.Refused(t.Context(), q, asked, invalid("clusterIPs")) != nil {
				t.Fatal("no other attempt")
			}
		}
		told := len(m.told) == 1 && strings.HasPrefix(m.told[0], "VIPRangeOverflow")
		if refused != tries || errors.Is(err, ipam.ErrPending) != young || told == young || !young && err != nil {
			t.Errorf("young %v: after %d refusals %v %v, told %v", young, refused, asked, err, m.told)
		}
	}
}

// TestAnAddressOfAnotherServiceIsLostThoughThereIsNoOther: DNS must not name it while the API server gives no other.
func TestAnAddressOfAnotherServiceIsLostThoughThereIsNoOther(t *testing.T) {
	other := types.NamespacedName{Namespace: "shop", Name: "other"}
	const was = "10.1.0.1"
	taken := []client.Object{cidr("kubernetes", "", "10.1.0.0/30"), address(was, other)}
	for name, c := range map[string]struct {
		objects []client.Object
		cause   error
		lost    bool
	}{
		"a full range":  {append(taken, address("10.1.0.2", other)), apierrors.NewInternalError(errors.New("x")), true},
		"a quota":       {taken, apierrors.NewForbidden(schema.GroupResource{}, "x", errors.New("y")), true},
		"a wait":        {append(taken, cidr("vips", "shared", "10.2.0.0/30", notReady)), nil, true},
		"nobody has it": {taken[:1], apierrors.NewForbidden(schema.GroupResource{}, "x", errors.New("y")), false},
		"its range is being deleted": {
			[]client.Object{cidr("b", "", "10.1.0.0/30", deleting)}, apierrors.NewInternalError(errors.New("x")), false,
		},
	} {
		m, q := newCluster(t, "preferred", c.objects...), request([]corev1.IPFamily{v4}, was)
		asked, err := m.Pick(t.Context(), q)
		if err == nil {
			err = m.Refused(t.Context(), q, asked, c.cause)
		}
		told := len(m.told) == 1 && strings.HasPrefix(m.told[0], "VIPLost") && strings.Contains(m.told[0], "shop/other")
		if errors.Is(err, ipam.LostError(was)) != c.lost || told != c.lost || !c.lost && len(m.told) > 0 {
			t.Errorf("%s: asked for %v, %v, told %v", name, asked, err, m.told)
		}
		if c.cause != nil && apierrors.ReasonForError(err) != apierrors.ReasonForError(c.cause) {
			t.Errorf("%s: %v hides %v", name, err, c.cause)
		}
	}
}

// TestALostVIPIsReported, with the reason.
func TestALostVIPIsReported(t *testing.T) {
	m, q := newCluster(t, "shared"), request([]corev1.IPFamily{v4}, "10.1.0.9")
	svc := &corev1.Service{}
	svc.Spec.ClusterIPs = []string{"10.1.0.9"}
	m.Allocated(t.Context(), q, svc, time.Second)
	if len(m.told) > 0 {
		t.Errorf("%v", m.told)
	}
	q.Lose(netip.MustParseAddr("10.1.0.9"), fmt.Errorf("%w Service shop/other", ipam.ErrTaken))
	svc.Spec.ClusterIPs = []string{"10.1.0.10"}
	m.Allocated(t.Context(), q, svc, time.Second)
	if len(m.told) != 1 || !strings.Contains(m.told[0], "VIPLost") || !strings.Contains(m.told[0], "shop/other") {
		t.Errorf("%v", m.told)
	}
}

// TestAnAddressOfAnotherServiceIsNotAskedFor, because that could leave the one of the other family allocated; unless
// only the cache shows it.
func TestAnAddressOfAnotherServiceIsNotAskedFor(t *testing.T) {
	another := types.NamespacedName{Namespace: "shop", Name: "derived-db"}
	for _, c := range []struct {
		released bool
		want     string
	}{{false, "fd00:96::2"}, {true, "10.96.0.3 fd00:96::2"}} {
		cached := newCluster(t, hubv1alpha1.VIPModeShared, address("10.96.0.3", another))
		if c.released {
			cached.LocalNow = newCluster(t, hubv1alpha1.VIPModeShared).Client
		}
		q := request([]corev1.IPFamily{v4, v6}, "10.96.0.3", "fd00:96::2")
		got, err := cached.Pick(t.Context(), q)
		if err != nil || text(got) != c.want || (len(q.Lost) == 0) != c.released {
			t.Errorf("released %v: asked for %s, lost %v, %v", c.released, text(got), q.Lost, err)
		}
	}
}
