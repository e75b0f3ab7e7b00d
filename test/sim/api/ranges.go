package api

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// What Kubernetes' own parts are called.
const (
	Allocator       = "ipallocator.k8s.io"
	rangeController = "service-cidr-controller"
	rangeFinalizer  = "networking.k8s.io/service-cidr-finalizer"
	// RepairAge is how old an IPAddress that no Service has must be for the API server's repair loop to free it.
	RepairAge = 3 * time.Minute
)

// WithRanges gives a server ServiceCIDRs and IPAddresses, which are then how cluster IPs are given out (DESIGN §5): what it says of them
// was measured on the real one.
func (s *Server) WithRanges() {
	s.ranges = true
	own := &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"}}
	for _, f := range s.Families {
		own.Spec.CIDRs = append(
			own.Spec.CIDRs,
			map[corev1.IPFamily]string{corev1.IPv4Protocol: "10.96.0.0/16", corev1.IPv6Protocol: "fd00:96::/112"}[f],
		)
	}
	if err := s.Create("admin", own, false); err != nil {
		panic(err) // the store is empty
	}
	if err := s.Tend(KeyOf(own)); err != nil {
		panic(err)
	}
}

// Ready tells whether a range gives out addresses.
func Ready(c *networkingv1.ServiceCIDR) bool {
	return c.DeletionTimestamp == nil && slices.ContainsFunc(c.Status.Conditions, func(c metav1.Condition) bool {
		return c.Type == networkingv1.ServiceCIDRConditionReady && c.Status == metav1.ConditionTrue
	})
}

// within tells whether a range that is ready, or only any range, holds an address.
func (s *Server) within(a netip.Addr, will func(*networkingv1.ServiceCIDR) bool) bool {
	for _, o := range s.List(ServiceCIDR) {
		c := o.(*networkingv1.ServiceCIDR)
		if will(c) &&
			slices.ContainsFunc(c.Spec.CIDRs, func(p string) bool { return netip.MustParsePrefix(p).Contains(a) }) {
			return true
		}
	}
	return false
}

// Owner is the Service that an IPAddress is of; "" where it is somebody else's.
func (s *Server) Owner(address string) (of types.NamespacedName, there bool) {
	ip, there := s.Get(Key{IPAddress, types.NamespacedName{Name: address}}).(*networkingv1.IPAddress)
	if there && ip.Labels[networkingv1.LabelManagedBy] == Allocator && ip.Spec.ParentRef.Resource == "services" {
		of = types.NamespacedName{Namespace: ip.Spec.ParentRef.Namespace, Name: ip.Spec.ParentRef.Name}
	}
	return of, there
}

// reserve takes one address for a Service, or any of a family where none is named.
func (s *Server) reserve(k Key, asked string, f corev1.IPFamily) (string, error) {
	path := field.NewPath("spec", "clusterIPs").Index(0)
	if asked == "" {
		a, ok := s.anyFree(f)
		if !ok {
			return "", apierrors.NewInternalError(
				fmt.Errorf("failed to allocate a serviceIP for Service %q: range is full", k.Name),
			)
		}
		return a, nil
	}
	a := netip.MustParseAddr(asked)
	if !s.within(a, Ready) {
		return "", s.invalid(
			k,
			field.Invalid(
				path,
				asked,
				fmt.Sprintf("failed to allocate IP %s: the provided IP (%s) is not in a valid range", a, a),
			),
		)
	}
	if _, taken := s.Owner(asked); taken {
		return "", s.invalid(
			k,
			field.Invalid(path, asked, fmt.Sprintf("failed to allocate IP %s: provided IP is already allocated", a)),
		)
	}
	return asked, nil
}

// anyFree is any address of the ranges that are ready: of the small ones as often as of the cluster's own, so that ordinary Services meet
// VIPs.
func (s *Server) anyFree(f corev1.IPFamily) (string, bool) {
	var all []netip.Prefix
	for _, o := range s.List(ServiceCIDR) {
		c := o.(*networkingv1.ServiceCIDR)
		for _, text := range c.Spec.CIDRs {
			if p := netip.MustParsePrefix(text); Ready(c) && p.Addr().Is4() == (f == corev1.IPv4Protocol) {
				all = append(all, p)
			}
		}
	}
	s.turn++
	for i := range all {
		p := all[(s.turn+i)%len(all)]
		for a, n := p.Addr().Next(), 0; p.Contains(a) && n < 1<<12; a, n = a.Next(), n+1 {
			if p.Addr().Is4() && !p.Contains(a.Next()) {
				break // the broadcast address
			}
			if _, taken := s.Owner(a.String()); !taken || s.dry { // a dry run looks for nothing
				return a.String(), true
			}
		}
	}
	return "", false
}

// assignAddresses is allocate with ranges: where the second of two families cannot be had, the address of the first stays taken
// (Kubernetes 1.36, txnAllocClusterIPs).
func (s *Server) assignAddresses(k Key, old *corev1.Service, spec *corev1.ServiceSpec) error {
	for i, f := range spec.IPFamilies {
		asked := ""
		if i < len(spec.ClusterIPs) {
			if asked = spec.ClusterIPs[i]; old != nil && slices.Contains(old.Spec.ClusterIPs, asked) {
				continue
			}
		}
		got, err := s.reserve(k, asked, f)
		if err != nil {
			return err
		}
		if !s.dry && i+1 < len(spec.IPFamilies) {
			s.hold(got, k.NamespacedName)
		}
		if asked == "" {
			spec.ClusterIPs = append(spec.ClusterIPs, got)
		}
	}
	spec.ClusterIP = spec.ClusterIPs[0]
	return nil
}

// hold makes the IPAddress of a Service, unless it is there.
func (s *Server) hold(address string, of types.NamespacedName) {
	a, err := netip.ParseAddr(address)
	if err != nil { // None
		return
	}
	if owner, _ := s.Owner(address); owner == of {
		return
	}
	ip := &networkingv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Name: address, Labels: map[string]string{
		networkingv1.LabelManagedBy: Allocator, networkingv1.LabelIPAddressFamily: string(FamilyOf(a.String()))}}}
	ip.Spec.ParentRef = &networkingv1.ParentReference{Resource: "services", Namespace: of.Namespace, Name: of.Name}
	if err := s.Create(Allocator, ip, false); err != nil && !apierrors.IsAlreadyExists(err) {
		panic(err) // it was found free
	}
}

// Tended are the objects that Kubernetes' own parts are about to look at: ranges that are to become ready or to go, and IPAddresses whose
// Service is gone. An address is not free before they have: the API server's allocator goes by watches, too.
func (s *Server) Tended() (out []Key) {
	if !s.ranges {
		return nil
	}
	for _, o := range s.List(ServiceCIDR) {
		c := o.(*networkingv1.ServiceCIDR)
		if c.DeletionTimestamp == nil && !Ready(c) ||
			c.DeletionTimestamp != nil && slices.Contains(c.Finalizers, rangeFinalizer) && !s.inUse(c) {
			out = append(out, KeyOf(c))
		}
	}
	for _, o := range s.List(IPAddress) {
		of, _ := s.Owner(o.GetName())
		if of.Name == "" {
			continue
		}
		svc, _ := s.Get(Key{Service, of}).(*corev1.Service)
		if svc != nil && slices.Contains(svc.Spec.ClusterIPs, o.GetName()) {
			continue
		}
		if s.freed[o.GetName()] == of || s.Now().Sub(o.GetCreationTimestamp().Time) > RepairAge {
			out = append(out, KeyOf(o))
		}
	}
	return out
}

// inUse tells whether a Service has an address of a range that no other holds.
func (s *Server) inUse(c *networkingv1.ServiceCIDR) bool {
	for _, o := range s.List(IPAddress) {
		a := netip.MustParseAddr(o.GetName())
		of, _ := s.Owner(o.GetName())
		in := slices.ContainsFunc(c.Spec.CIDRs, func(p string) bool { return netip.MustParsePrefix(p).Contains(a) })
		if of.Name != "" && in && !s.within(a, Ready) {
			return true
		}
	}
	return false
}

// Tend lets Kubernetes' own parts look at one of Tended.
func (s *Server) Tend(k Key) error {
	o := s.Get(k)
	if k.Kind == IPAddress {
		delete(s.freed, k.Name)
		return s.Delete(Allocator, k, nil)
	}
	c := clone(o).(*networkingv1.ServiceCIDR)
	if c.DeletionTimestamp != nil {
		c.Finalizers = slices.DeleteFunc(c.Finalizers, func(f string) bool { return f == rangeFinalizer })
		return s.Update(rangeController, c, false)
	}
	if !slices.Contains(c.Finalizers, rangeFinalizer) {
		c.Finalizers = append(c.Finalizers, rangeFinalizer)
		if err := s.Update(rangeController, c, false); err != nil {
			return err
		}
	}
	c.Status.Conditions = []metav1.Condition{
		{Type: networkingv1.ServiceCIDRConditionReady, Status: metav1.ConditionTrue, Reason: "ReadyForUse"},
	}
	return s.Update(rangeController, c, true)
}

// addressesOf follows a Service that was written: what it has is held, what it had is free once the allocator has looked.
func (s *Server) addressesOf(old, svc *corev1.Service) {
	if old != nil {
		for _, ip := range old.Spec.ClusterIPs {
			if svc == nil || !slices.Contains(svc.Spec.ClusterIPs, ip) {
				s.freed[ip] = types.NamespacedName{Namespace: old.Namespace, Name: old.Name}
			}
		}
	}
	if svc != nil {
		for _, ip := range svc.Spec.ClusterIPs {
			delete(s.freed, ip)
			if old == nil || !slices.Contains(old.Spec.ClusterIPs, ip) {
				s.hold(ip, types.NamespacedName{Namespace: svc.Namespace, Name: svc.Name})
			}
		}
	}
}

// serviceCIDR refuses what the API does.
func serviceCIDR(s *Server, old, object *networkingv1.ServiceCIDR) error {
	if old != nil && !slices.Equal(old.Spec.CIDRs, object.Spec.CIDRs) {
		return s.invalid(
			KeyOf(object),
			field.Invalid(field.NewPath("spec", "cidrs"), object.Spec.CIDRs, "field is immutable"),
		)
	}
	for _, text := range object.Spec.CIDRs {
		if p, err := netip.ParsePrefix(text); err != nil || p != p.Masked() {
			return s.invalid(
				KeyOf(object),
				field.Invalid(field.NewPath("spec", "cidrs"), text, "must be a CIDR without host bits"),
			)
		}
	}
	return nil
}

// ipAddress refuses what the API does: the name is the address in its canonical form, and what it is of never changes.
func ipAddress(s *Server, old, object *networkingv1.IPAddress) error {
	a, err := netip.ParseAddr(object.Name)
	if err != nil || a.String() != object.Name || object.Spec.ParentRef == nil || object.Spec.ParentRef.Name == "" ||
		object.Spec.ParentRef.Resource == "" {
		return s.invalid(
			KeyOf(object),
			field.Invalid(
				field.NewPath("metadata", "name"),
				object.Name,
				"must be a canonical IP address, with a parentRef",
			),
		)
	}
	if old != nil && *old.Spec.ParentRef != *object.Spec.ParentRef {
		return s.invalid(
			KeyOf(object),
			field.Invalid(field.NewPath("spec", "parentRef"), object.Spec.ParentRef, "field is immutable"),
		)
	}
	return nil
}
