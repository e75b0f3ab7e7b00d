package vips

import (
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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// What spoil breaks, each in a way of its own.
const (
	spoiled = "spoiled"     // the namespace
	unknown = "10.240.0.33" // ours by its label, of what only another version may know
	theirs  = "10.240.0.31"
)

// And in each family.
var (
	leaked    = []string{"10.240.0.30", "fd00:240::30"} // as an API server leaves it that ends in the middle of a deletion
	stale     = []string{"10.240.0.32", "fd00:240::32"} // of the fence of a ServiceCIDR that is gone
	uncovered = []string{"10.240.0.0/28", "fd00:240::/124"}
	spoils    = map[string]netip.Addr{}
)

// spoil breaks what TestV4WhatIsBrokenIsMended finds mended: nothing is judged before it is a minute old, so that the other tests come in
// between.
func (e *env) spoil(t *testing.T) {
	t.Helper()
	e.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: spoiled}})
	for name, families := range map[string][]corev1.IPFamily{
		"missing": v4, "missing-six": v6, "foreign": v4, "foreign-six": v6, "doubled": v4, "doubled-six": v6,
	} {
		e.export(t, spoiled, name, families)
		spoils[name] = e.wantVIPs(t, spoiled, name, families)[0]
	}
	e.mode(t, ipam.ModePreferred)
	e.create(t, cidr("uncovered", ipam.Shared, uncovered...))
	for _, p := range uncovered {
		e.wantMetric(t, e.series("range_available", "range", p), nil)
	}
	for name, families := range map[string][]corev1.IPFamily{"outside": v4, "outside-six": v6} {
		e.export(t, spoiled, name, families)
		spoils[name] = e.wantVIPs(t, spoiled, name, families)[0]
		wantIn(t, []netip.Addr{spoils[name]}, uncovered...)
	}

	for _, name := range []string{"foreign", "foreign-six"} {
		e.remove(t, spoils[name].String())
		e.create(t, address(spoils[name].String(), kube.Manager, networkingv1.ParentReference{Resource: "services", Namespace: spoiled, Name: "nobody"}))
	}
	for name, families := range map[string][]corev1.IPFamily{"doubled": v4, "doubled-six": v6} {
		e.remove(t, spoils[name].String())
		second := service(spoiled, "second-"+name, families)
		second.Spec.ClusterIP = spoils[name].String()
		e.create(t, second)
	}
	for i := range leaked {
		e.create(t,
			address(leaked[i], "ipallocator.k8s.io", networkingv1.ParentReference{Resource: "services", Namespace: spoiled, Name: derivedOf(spoiled, "nobody").Name}),
			address(stale[i], kube.Manager, networkingv1.ParentReference{Group: networkingv1.GroupName, Resource: "servicecidrs", Name: "nothing"}))
	}
	e.create(t,
		address(unknown, kube.Manager, networkingv1.ParentReference{Group: "multicluster.x-k8s.io", Resource: "serviceimports", Namespace: spoiled, Name: "nobody"}),
		address(theirs, "somebody", networkingv1.ParentReference{Resource: "widgets", Name: "theirs"}))
	c := cidr("uncovered", ipam.Shared)
	if err := e.Delete(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a range is torn away", func() error {
		if err := e.Get(t.Context(), client.ObjectKeyFromObject(c), c); err != nil {
			if apierrors.IsNotFound(err) {
				return nil
			}
			return err
		}
		c.Finalizers = nil
		return errors.Join(e.Update(t.Context(), c), errors.New("it is there"))
	})
}

// TestV4WhatIsBrokenIsMended: an IPAddress that is missing, one that nobody uses, one that names somebody else, a VIP that no range covers,
// and one that a Service has as well, in each family. What is in use stays, and nothing is freed before the grace is over.
func TestV4WhatIsBrokenIsMended(t *testing.T) {
	e := start(t)
	e.wantMissed(t, "missing")
	e.wantMissed(t, "missing-six")
	for _, name := range []string{"missing", "missing-six", "foreign", "foreign-six"} {
		eventually(t, "IPAddress of "+name, func() error {
			ip := &networkingv1.IPAddress{}
			err := e.Get(t.Context(), client.ObjectKey{Name: spoils[name].String()}, ip)
			if err == nil && (ip.Spec.ParentRef.Namespace != spoiled || ip.Spec.ParentRef.Name != derivedOf(spoiled, name).Name) {
				err = fmt.Errorf("it refers to %+v", ip.Spec.ParentRef)
			}
			return err
		})
	}
	for _, gone := range stale { // at once: nobody but the agent makes reservations
		e.wantGone(t, address(gone, "", networkingv1.ParentReference{}))
	}
	for _, gone := range append(slices.Clone(leaked), unknown) { // the former may be Kubernetes' doing, after the same grace
		e.wantGone(t, address(gone, "", networkingv1.ParentReference{}))
		e.wantGrace(t, gone)
	}
	for name, reason := range map[string]string{
		"foreign": "VIPReferencesSomeother", "foreign-six": "VIPReferencesSomeother", "outside": "VIPOutOfRange", "outside-six": "VIPOutOfRange",
		"doubled": "VIPDoubled", "doubled-six": "VIPDoubled",
	} {
		e.wantEvent(t, spoiled, derivedOf(spoiled, name).Name, reason, spoils[name].String())
	}
	e.wantEvent(t, "default", unknown, "VIPLeaked", unknown)
	if err := e.Get(t.Context(), client.ObjectKey{Name: theirs}, &networkingv1.IPAddress{}); err != nil {
		t.Errorf("what is another controller's was touched: %v", err)
	}
	for name, vip := range spoils {
		svc := &corev1.Service{}
		if err := e.Get(t.Context(), client.ObjectKeyFromObject(derivedOf(spoiled, name)), svc); err != nil || svc.Spec.ClusterIP != vip.String() {
			t.Errorf("%s moved from %s to %s: %v", name, vip, svc.Spec.ClusterIP, err)
		}
	}
}

// wantMissed takes away the IPAddress of a VIP until the agent was the one that made it again: Kubernetes does so, too, every few minutes.
func (e *env) wantMissed(t *testing.T, name string) {
	t.Helper()
	ip := &networkingv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Name: spoils[name].String()}}
	eventually(t, "VIPMissing of "+name, func() error {
		var events corev1.EventList
		if err := e.List(t.Context(), &events, client.InNamespace(spoiled)); err != nil {
			return err
		}
		for _, one := range events.Items {
			if one.Reason == "VIPMissing" && one.InvolvedObject.Name == derivedOf(spoiled, name).Name {
				return nil
			}
		}
		return errors.Join(client.IgnoreNotFound(e.Delete(t.Context(), ip.DeepCopy())), errors.New("it was not missed"))
	})
}

// wantGrace fails if an IPAddress was deleted before it was a minute old, as the audit log tells. Creation times are whole seconds.
func (e *env) wantGrace(t *testing.T, name string) {
	t.Helper()
	eventually(t, "audit of "+name, func() error { // it is written behind
		var made, gone time.Time
		err := e.audit(func(event *request) {
			switch ref := event.ObjectRef; {
			case ref.Resource != "ipaddresses" || event.ResponseStatus.Code/100 != 2:
			case event.Verb == "create" && ref.Name == name:
				made = event.StageTimestamp.Time
			case event.Verb == "delete" && ref.Name == name:
				gone = event.RequestReceivedTimestamp.Time
			}
		})
		if err == nil && (made.IsZero() || gone.IsZero()) {
			err = errors.New("it does not tell")
		}
		if age := gone.Sub(made); err == nil && age < ipam.Grace-time.Second {
			t.Errorf("%s was freed at the age of %s", name, age)
		}
		return err
	})
}

func address(name, manager string, parent networkingv1.ParentReference) *networkingv1.IPAddress {
	ip := &networkingv1.IPAddress{}
	ip.Name = name
	family := corev1.IPv4Protocol
	if netip.MustParseAddr(name).Is6() {
		family = corev1.IPv6Protocol
	}
	ip.Labels = map[string]string{networkingv1.LabelIPAddressFamily: string(family), networkingv1.LabelManagedBy: manager}
	ip.Spec.ParentRef = &parent
	return ip
}
