package clustersetip

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

var ofWeb = types.NamespacedName{Namespace: "shop", Name: derived.Name("shop", "web")}

// living is the derived Service of the import web, as an agent makes it.
func living(vip string) *corev1.Service {
	svc := derivedService(vip)
	svc.Labels = map[string]string{derived.LabelManagedBy: kube.Manager}
	svc.Annotations = map[string]string{derived.AnnotationImport: "shop/web"}
	return svc
}

// setOf is the ClusterSet with a mode, and a range by hand for that.
func setOf(mode ipam.Mode, prefix string) (*hubv1alpha1.ClusterSet, *networkingv1.ServiceCIDR) {
	set, cidr := exclusiveSet(), exclusiveRange("vips", prefix)
	set.Spec.VIPs.Mode, cidr.Labels[ipam.LabelVIPs] = hubv1alpha1.VIPMode(mode), string(use(mode))
	return set, cidr
}

func use(m ipam.Mode) ipam.Use {
	if m == ipam.ModeExclusive {
		return ipam.Exclusive
	}
	return ipam.Shared
}

// started is a Room that has looked at its ranges, on this clock.
func started(t *testing.T, now *time.Time, objects ...client.Object) *Room {
	t.Helper()
	r := roomOn(t, objects...)
	r.view, r.Now = nil, func() time.Time { return *now }
	if _, err := r.lay(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

// on puts somebody between the Room and its API server.
func on(r *Room, do interceptor.Funcs) {
	r.Local = interceptor.NewClient(r.Local.(client.WithWatch), do)
}

func parent(t *testing.T, r *Room, address string) string {
	t.Helper()
	ip, err := kube.Get[*networkingv1.IPAddress](t.Context(), r.Local, types.NamespacedName{Name: address})
	if err != nil {
		t.Fatal(err)
	}
	if ip == nil {
		return ""
	}
	return ip.Spec.ParentRef.Name
}

// TestI6AVIPOfACreationWithoutAnAnswerIsNobodyElses: the API server made the Service, and took its IPAddress back when the client was gone.
// Nobody but the import is given the address, from before the caches show the Service until they do.
func TestI6AVIPOfACreationWithoutAnAnswerIsNobodyElses(t *testing.T) {
	for _, mode := range []ipam.Mode{ipam.ModeExclusive, ipam.ModePreferred} {
		for _, seen := range []bool{false, true} {
			set, cidr := setOf(mode, "10.0.0.0/30")
			objects := []client.Object{set, cidr, imported("web")}
			if mode == ipam.ModeExclusive {
				objects = append(objects, reservation("10.0.0.1", "vips"), reservation("10.0.0.2", "vips"))
			}
			now := time.Now()
			r := started(t, &now, objects...)
			q := kube.VIPRequest{Import: imported("web"), Service: ofWeb, Families: []corev1.IPFamily{corev1.IPv4Protocol}}
			grant, err := r.Reserve(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			a := grant.Addresses[0]
			ip := ipam.Reference(a, ofWeb)
			if err := r.Local.Create(t.Context(), ip); err != nil {
				t.Fatal(err)
			}
			if seen {
				if _, err := r.address(t.Context(), a.String()); err != nil {
					t.Fatal(err)
				}
			}
			if err := r.Local.Delete(t.Context(), ip); err != nil {
				t.Fatal(err)
			}
			if err := r.Settle(t.Context(), q, grant, nil, context.DeadlineExceeded); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
			if _, err := r.address(t.Context(), a.String()); err != nil {
				t.Fatal(err)
			}
			for i := range 2 {
				if got := reserved(t, r, fmt.Sprint("other", i)); got == a.String() {
					t.Errorf("%s, seen %v: another import gets %s", mode, seen, got)
				}
			}
			if got := reserved(t, r, "web"); got != a.String() {
				t.Errorf("%s, seen %v: the import itself gets %q, want %s", mode, seen, got, a)
			}
		}
	}
}

// TestI6AVIPThatIsAskedForTwiceIsNoOther: a pass whose cache does not show the Service yet is refused what is that Service's. Once that is
// gone, its import has the address again.
func TestI6AVIPThatIsAskedForTwiceIsNoOther(t *testing.T) {
	set, cidr := setOf(ipam.ModePreferred, "10.0.0.0/30")
	now := time.Now()
	r := started(t, &now, set, cidr)
	q := kube.VIPRequest{Import: imported("web"), Service: ofWeb, Families: []corev1.IPFamily{corev1.IPv4Protocol}}
	grant, err := r.Reserve(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	a := grant.Addresses[0]
	if err := r.Settle(t.Context(), q, grant, living(a.String()), nil); err != nil {
		t.Fatal(err)
	}
	if again, err := r.Reserve(t.Context(), q); err != nil || again.Addresses[0] != a {
		t.Fatalf("%v: %v, want %s", err, again.Addresses, a)
	}
	refused := apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Service").GroupKind(), ofWeb.Name, field.ErrorList{
		field.Invalid(field.NewPath("spec", "clusterIPs").Index(0), a.String(), "failed to allocate IP "+a.String()+": provided IP is already allocated")})
	if err := r.Settle(t.Context(), q, grant, nil, refused); !errors.Is(err, kube.ErrVIPBusy) {
		t.Errorf("%v, want %v", err, kube.ErrVIPBusy)
	}
	if got := reserved(t, r, "other"); got == a.String() {
		t.Errorf("another import gets %s", got)
	}
	if got := reserved(t, r, "web", a.String()); got != a.String() {
		t.Errorf("the import itself gets %q, want %s", got, a)
	}
}

// TestI6WhatTheAPIServerChoseIsRemembered from its answer on: a derived Service may be deleted before the caches show it.
func TestI6WhatTheAPIServerChoseIsRemembered(t *testing.T) {
	set, cidr := setOf(ipam.ModeShared, "10.0.0.0/30")
	for name, missing := range map[string]error{"with IPAddresses": nil, "without": errors.New("there are none here")} {
		now := time.Now()
		r := roomOn(t, set.DeepCopy(), cidr.DeepCopy())
		r.view, r.Now, r.Served = nil, func() time.Time { return now }, func(client.Object) error { return missing }
		q := kube.VIPRequest{Import: imported("web"), Service: ofWeb, Families: []corev1.IPFamily{corev1.IPv4Protocol}}
		grant, err := r.Reserve(t.Context(), q)
		if err != nil || len(grant.Addresses) > 0 {
			t.Fatalf("%s: %v, %v", name, err, grant.Addresses)
		}
		if err := r.Settle(t.Context(), q, grant, living("10.0.0.1"), nil); err != nil {
			t.Fatal(err)
		}
		if got := reserved(t, r, "web"); got != "10.0.0.1" {
			t.Errorf("%s: its import asks for %q", name, got)
		}
	}
}

// TestI6WhatWasKeptOfOneFamilyIsNotLost: the API server refuses what it had kept of the Service's last life, and that is freed for it.
func TestI6WhatWasKeptOfOneFamilyIsNotLost(t *testing.T) {
	set, _ := setOf(ipam.ModeShared, "10.0.0.0/30")
	kept := ipam.Reference(netip.MustParseAddr("fd00::1"), ofWeb)
	now := time.Now()
	kept.UID, kept.CreationTimestamp = "of-its-last-life", metav1.NewTime(now) // too young to have leaked
	r := started(t, &now, set, exclusiveRange("four", "10.0.0.0/29"), exclusiveRange("six", "fd00::/120"), kept)
	want := []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")}
	q := kube.VIPRequest{Import: imported("web"), Service: ofWeb, Families: []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}, Previous: want}
	if _, err := r.Reserve(t.Context(), q); !errors.Is(err, kube.ErrVIPBusy) {
		t.Fatalf("at first %v", err)
	}
	now = now.Add(patience)
	for i, said := range []error{apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Service").GroupKind(), ofWeb.Name, field.ErrorList{
		field.Invalid(field.NewPath("spec", "clusterIPs").Index(1), "fd00::1", "failed to allocate IP fd00::1: provided IP is already allocated")}), nil} {
		grant, err := r.Reserve(t.Context(), q)
		if err != nil || !slices.Equal(grant.Addresses, want) {
			t.Fatalf("%d: %v, asks for %v, want %v", i, err, grant.Addresses, want)
		}
		if err := r.Settle(t.Context(), q, grant, living("10.0.0.1"), said); errors.Is(err, kube.ErrVIPBusy) != (said != nil) {
			t.Fatal(err)
		}
		if _, err := r.address(t.Context(), "fd00::1"); err != nil {
			t.Fatal(err)
		}
	}
	if got := parent(t, r, "fd00::1"); got != "" {
		t.Errorf("the IPAddress is of %q", got)
	}
}

// TestV2AnAnswerThatNothingWasMadeKeepsNothing: the address goes to whoever asks next.
func TestV2AnAnswerThatNothingWasMadeKeepsNothing(t *testing.T) {
	set, cidr := setOf(ipam.ModePreferred, "10.0.0.0/30") // of two addresses
	for name, said := range map[string]error{
		"a quota":   apierrors.NewForbidden(corev1.Resource("services"), ofWeb.Name, errors.New("exceeded quota")),
		"allocator": apierrors.NewInternalError(errors.New("failed to allocate a serviceIP: no")),
	} {
		now := time.Now()
		r := started(t, &now, set.DeepCopy(), cidr.DeepCopy())
		q := kube.VIPRequest{Import: imported("web"), Service: ofWeb, Families: []corev1.IPFamily{corev1.IPv4Protocol}}
		grant, err := r.Reserve(t.Context(), q)
		if err != nil || len(grant.Addresses) != 1 {
			t.Fatal(err, grant)
		}
		if err := r.Settle(t.Context(), q, grant, nil, said); err == nil {
			t.Fatal("settled")
		}
		for i := range 2 {
			if reserved(t, r, fmt.Sprint("other", i)) == "" {
				t.Errorf("%s: %d other imports have one of the two addresses", name, i)
			}
		}
	}
}

// TestV4ALostVIPIsMendedAtOnce, and again as soon as that has failed: without its IPAddress anybody may be given it.
func TestV4ALostVIPIsMendedAtOnce(t *testing.T) {
	for _, mode := range []ipam.Mode{ipam.ModeShared, ipam.ModePreferred, ipam.ModeExclusive} {
		set, cidr := setOf(mode, "10.0.0.0/30")
		ip := ipam.Reference(netip.MustParseAddr("10.0.0.1"), ofWeb)
		ip.UID = "first"
		now := time.Now()
		r := started(t, &now, set, cidr, living("10.0.0.1"), imported("web", "10.0.0.1"), ip, reservation("10.0.0.2", "vips"))
		now = now.Add(time.Second)
		if err := r.Local.Delete(t.Context(), ip); err != nil {
			t.Fatal(err)
		}
		fails := 1
		on(r, interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if fails--; fails >= 0 {
				return apierrors.NewServerTimeout(networkingv1.Resource("ipaddresses"), "create", 1)
			}
			return c.Create(ctx, o, opts...)
		}})
		if _, err := r.address(t.Context(), "10.0.0.1"); !apierrors.IsServerTimeout(err) {
			t.Errorf("%s: %v, want what keeps it from being tried again no longer than a moment", mode, err)
		}
		if _, err := r.address(t.Context(), "10.0.0.1"); err != nil {
			t.Error(err)
		}
		if got := parent(t, r, "10.0.0.1"); got != ofWeb.Name {
			t.Errorf("%s: the IPAddress is of %q", mode, got)
		}
	}
}

// TestV4AMendThatFailsIsTriedAgain by the backoff of the controller, and not after a patrol.
func TestV4AMendThatFailsIsTriedAgain(t *testing.T) {
	set, cidr := setOf(ipam.ModeShared, "10.0.0.0/30")
	r := roomOn(t, set, cidr, living("10.0.0.1"), imported("web", "10.0.0.1"))
	r.view = nil
	fails := 1
	on(r, interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
		if _, is := o.(*networkingv1.IPAddress); is {
			if fails--; fails >= 0 {
				return apierrors.NewServerTimeout(networkingv1.Resource("ipaddresses"), "create", 1)
			}
		}
		return c.Create(ctx, o, opts...)
	}})
	if _, err := r.lay(t.Context()); !apierrors.IsServerTimeout(err) {
		t.Errorf("%v, want the failure", err)
	}
	if _, err := r.lay(t.Context()); err != nil || parent(t, r, "10.0.0.1") != ofWeb.Name {
		t.Errorf("%v: the next pass leaves it of %q", err, parent(t, r, "10.0.0.1"))
	}
}

// TestV4AFenceGivesWayToItsVIP though the room sees it go, and would fence the address again. Where somebody else was faster, nobody is told
// that it was mended.
func TestV4AFenceGivesWayToItsVIP(t *testing.T) {
	for _, faster := range []bool{false, true} {
		set, cidr := setOf(ipam.ModeExclusive, "10.0.0.0/30")
		r := roomOn(t, set, cidr, living("10.0.0.1"), imported("web", "10.0.0.1"), reservation("10.0.0.1", "vips"), reservation("10.0.0.2", "vips"))
		r.view = nil
		on(r, interceptor.Funcs{Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			err := c.Delete(ctx, o, opts...)
			if faster {
				err = errors.Join(err, c.Create(ctx, ipam.Reference(netip.MustParseAddr("10.0.0.1"), types.NamespacedName{Namespace: "shop", Name: "db"})))
			}
			_, failed := r.address(ctx, o.GetName())
			return errors.Join(err, failed)
		}})
		want := ofWeb.Name
		if faster {
			want = "db"
		}
		if _, err := r.lay(t.Context()); apierrors.IsAlreadyExists(err) != faster || err != nil && !faster {
			t.Errorf("somebody faster %v: %v", faster, err)
		}
		if got := parent(t, r, "10.0.0.1"); got != want {
			t.Errorf("somebody faster %v: the IPAddress is of %q", faster, got)
		}
	}
}

// TestV4WhatIsMadeInBetweenIsNotLost: a Service that is made, or made again, while the API server is asked.
func TestV4WhatIsMadeInBetweenIsNotLost(t *testing.T) {
	a := netip.MustParseAddr("10.0.0.7")
	for _, action := range []ipam.Action{ipam.Create, ipam.Replace} {
		f := &ipam.Finding{Kind: ipam.Missing, Action: action, Service: ofWeb, Address: a, Message: "lost"}
		var there []client.Object
		if action == ipam.Replace {
			there, f.UID = append(there, reservation("10.0.0.7", "vips")), "fence-10.0.0.7"
		}
		r := roomOn(t, there...)
		var events told
		r.Events = &events
		asked := 0
		r.LocalNow = interceptor.NewClient(r.Local.(client.WithWatch), interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			err := c.List(ctx, l, opts...)
			if asked++; asked == 1 {
				for _, o := range there {
					err = errors.Join(err, c.Delete(ctx, o))
				}
				err = errors.Join(err, c.Create(ctx, ipam.Reference(a, ofWeb)), c.Create(ctx, living("10.0.0.7")))
			}
			return err
		}})
		if _, err := r.mend(t.Context(), f); err != nil || len(events) > 0 {
			t.Errorf("%s: %v, told %q", action, err, events)
		}
	}
}

// TestV7RangesThatAppearAreReadWholeOrNotAtAll: a request that is under way goes by what was known.
func TestV7RangesThatAppearAreReadWholeOrNotAtAll(t *testing.T) {
	set, _ := setOf(ipam.ModeShared, "10.0.0.0/30")
	r := roomOn(t, set)
	r.view, r.Served = nil, func(client.Object) error { return errors.New("there are none here") }
	q := kube.VIPRequest{Import: imported("web"), Service: ofWeb, Families: []corev1.IPFamily{corev1.IPv4Protocol}}
	grant, err := r.Reserve(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	r.Served = func(client.Object) error { return nil }
	on(r, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
		if _, is := l.(*networkingv1.IPAddressList); is {
			return errors.New("the cache ends")
		}
		return c.List(ctx, l, opts...)
	}})
	if _, err := r.lay(t.Context()); err == nil {
		t.Error("they were read")
	}
	if err := r.Settle(t.Context(), q, grant, derivedService("10.0.0.1"), nil); err != nil {
		t.Error(err)
	}
}
