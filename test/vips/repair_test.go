package vips

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

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
	spoiled   = "spoiled" // the namespace
	leaked    = "10.240.0.30"
	theirs    = "10.240.0.31"
	uncovered = "10.240.0.0/28"
)

var spoils = map[string]netip.Addr{}

// spoil breaks what TestV4WhatIsBrokenIsMended finds mended: nothing is judged before it is a minute old, so that the other tests come in
// between.
func (e *env) spoil(t *testing.T) {
	t.Helper()
	e.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: spoiled}})
	for _, name := range []string{"missing", "foreign"} {
		e.export(t, spoiled, name, v4)
		spoils[name] = e.wantVIPs(t, spoiled, name, v4)[0]
	}
	e.mode(t, ipam.ModePreferred)
	e.create(t, cidr("uncovered", ipam.Shared, uncovered))
	e.wantMetric(t, e.series("range_available", "range", uncovered), nil)
	e.export(t, spoiled, "outside", v4)
	spoils["outside"] = e.wantVIPs(t, spoiled, "outside", v4)[0]
	wantIn(t, []netip.Addr{spoils["outside"]}, uncovered)

	e.remove(t, spoils["missing"].String())
	e.remove(t, spoils["foreign"].String())
	e.create(t,
		address(spoils["foreign"].String(), kube.Manager, networkingv1.ParentReference{Resource: "services", Namespace: spoiled, Name: "nobody"}),
		address(leaked, kube.Manager, networkingv1.ParentReference{Group: "multicluster.x-k8s.io", Resource: "serviceimports", Namespace: spoiled, Name: "nobody"}),
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

// TestV4WhatIsBrokenIsMended: an IPAddress that is missing, one that nobody uses, one that names somebody else, a VIP that no range covers.
// What is in use stays.
func TestV4WhatIsBrokenIsMended(t *testing.T) {
	e := start(t)
	for _, name := range []string{"missing", "foreign"} {
		eventually(t, "IPAddress of "+name, func() error {
			ip := &networkingv1.IPAddress{}
			err := e.Get(t.Context(), client.ObjectKey{Name: spoils[name].String()}, ip)
			if err == nil && (ip.Spec.ParentRef.Namespace != spoiled || ip.Spec.ParentRef.Name != derivedOf(spoiled, name).Name) {
				err = fmt.Errorf("it refers to %+v", ip.Spec.ParentRef)
			}
			return err
		})
	}
	e.wantGone(t, address(leaked, "", networkingv1.ParentReference{}))
	e.wantEvent(t, spoiled, derivedOf(spoiled, "foreign").Name, "VIPReferencesSomeother", "nobody")
	e.wantEvent(t, spoiled, derivedOf(spoiled, "outside").Name, "VIPOutOfRange", spoils["outside"].String())
	e.wantEvent(t, "default", leaked, "VIPLeaked", leaked)
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

func address(name, manager string, parent networkingv1.ParentReference) *networkingv1.IPAddress {
	ip := &networkingv1.IPAddress{}
	ip.Name = name
	ip.Labels = map[string]string{networkingv1.LabelIPAddressFamily: "IPv4", networkingv1.LabelManagedBy: manager}
	ip.Spec.ParentRef = &parent
	return ip
}
