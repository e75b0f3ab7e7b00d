package vips

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// TestV4WhatIsBrokenIsMended: an IPAddress that is missing, one that nobody uses, one that names somebody else, a VIP that no range covers.
// What is in use stays.
func TestV4WhatIsBrokenIsMended(t *testing.T) {
	if testing.Short() {
		t.Log("the grace is a minute")
	}
	e := start(t)
	ns := e.namespace(t)
	e.mode(t, ipam.ModePreferred)
	e.create(t, cidr("repair", ipam.Shared, "10.240.0.0/28"))
	vips := map[string]string{}
	for _, name := range []string{"missing", "foreign", "outside"} {
		e.export(t, ns, name, v4)
		vips[name] = e.wantVIPs(t, ns, name, v4)[0].String()
	}
	e.remove(t, vips["missing"])
	e.remove(t, vips["foreign"])
	e.create(t,
		address(vips["foreign"], kube.Manager, networkingv1.ParentReference{Resource: "services", Namespace: ns, Name: "nobody"}),
		address("10.240.0.30", kube.Manager, networkingv1.ParentReference{Group: "multicluster.x-k8s.io", Resource: "serviceimports", Namespace: ns, Name: "nobody"}),
		address("10.240.0.31", "somebody", networkingv1.ParentReference{Resource: "widgets", Name: "theirs"}))

	for _, name := range []string{"missing", "foreign"} {
		eventually(t, "IPAddress of "+name, func() error {
			ip := &networkingv1.IPAddress{}
			err := e.Get(t.Context(), client.ObjectKey{Name: vips[name]}, ip)
			if err == nil && (ip.Spec.ParentRef.Namespace != ns || ip.Spec.ParentRef.Name != derivedOf(ns, name).Name) {
				err = fmt.Errorf("it refers to %+v", ip.Spec.ParentRef)
			}
			return err
		})
	}
	e.wantGone(t, address("10.240.0.30", "", networkingv1.ParentReference{}))
	e.wantEvent(t, ns, derivedOf(ns, "foreign").Name, "VIPReferencesSomeother", "nobody")
	e.wantEvent(t, "default", "10.240.0.30", "VIPLeaked", "10.240.0.30")
	if err := e.Get(t.Context(), client.ObjectKey{Name: "10.240.0.31"}, &networkingv1.IPAddress{}); err != nil {
		t.Errorf("what is another controller's was touched: %v", err)
	}
	for name, vip := range vips {
		svc := &corev1.Service{}
		if err := e.Get(t.Context(), client.ObjectKeyFromObject(derivedOf(ns, name)), svc); err != nil || svc.Spec.ClusterIP != vip {
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
