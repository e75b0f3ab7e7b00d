package api

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// addresses are the cluster IPs in use. An address is not given out twice before the range is used up, so that a VIP
// that changes is seen to change.
type addresses struct {
	taken map[string]bool
	last  int
}

func (a *addresses) next(f corev1.IPFamily) string {
	for {
		a.last++
		ip := fmt.Sprintf("10.%d.%d.%d", 96+a.last>>16, a.last>>8&255, a.last&255)
		if f == corev1.IPv6Protocol {
			ip = fmt.Sprintf("fd00:96::%x", a.last)
		}
		if !a.taken[ip] {
			return ip
		}
	}
}

func (a *addresses) take(svc *corev1.Service) {
	for _, ip := range svc.Spec.ClusterIPs {
		a.taken[ip] = ip != corev1.ClusterIPNone
	}
}

func (a *addresses) release(svc *corev1.Service) {
	for _, ip := range svc.Spec.ClusterIPs {
		delete(a.taken, ip)
	}
}

// FamilyOf tells an address's family.
func FamilyOf(ip string) corev1.IPFamily {
	if a, err := netip.ParseAddr(ip); err == nil && a.Is6() {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}

// service is defaulting, validation and the allocation of cluster IPs, as far as the agent and its users can meet them.
func (s *Server) service(oldObject, object client.Object) error {
	svc := object.(*corev1.Service)
	old, _ := oldObject.(*corev1.Service)
	k := KeyOf(svc)
	if len(validation.IsDNS1035Label(svc.Name)) > 0 {
		return s.invalid(k, field.Invalid(field.NewPath("metadata", "name"), svc.Name, "must be a DNS-1035 label"))
	}
	defaultService(&svc.Spec)
	if errs := checkService(&svc.Spec); len(errs) > 0 {
		return s.invalid(k, errs...)
	}
	if svc.Spec.Type == corev1.ServiceTypeExternalName {
		svc.Spec.ClusterIP, svc.Spec.ClusterIPs, svc.Spec.IPFamilies, svc.Spec.IPFamilyPolicy = "", nil, nil, nil
		return nil
	}
	if old != nil && old.Spec.Type != corev1.ServiceTypeExternalName {
		keepAllocated(&svc.Spec, &old.Spec)
		if len(svc.Spec.ClusterIPs) == 0 || svc.Spec.ClusterIPs[0] != old.Spec.ClusterIPs[0] {
			return s.invalid(
				k,
				field.Invalid(
					field.NewPath("spec", "clusterIPs").Index(0),
					svc.Spec.ClusterIPs,
					"may not change once set",
				),
			)
		}
		if len(svc.Spec.IPFamilies) == 0 || svc.Spec.IPFamilies[0] != old.Spec.IPFamilies[0] {
			return s.invalid(
				k,
				field.Invalid(
					field.NewPath("spec", "ipFamilies").Index(0),
					svc.Spec.IPFamilies,
					"primary ipFamily can not be changed",
				),
			)
		}
	}
	if err := s.families(k, &svc.Spec); err != nil {
		return err
	}
	return s.allocate(k, old, &svc.Spec)
}

func defaultService(spec *corev1.ServiceSpec) {
	if spec.Type == "" {
		spec.Type = corev1.ServiceTypeClusterIP
	}
	if spec.SessionAffinity == "" {
		spec.SessionAffinity = corev1.ServiceAffinityNone
	}
	if spec.SessionAffinity == corev1.ServiceAffinityClientIP &&
		(spec.SessionAffinityConfig == nil || spec.SessionAffinityConfig.ClientIP == nil || spec.SessionAffinityConfig.ClientIP.TimeoutSeconds == nil) {
		timeout := corev1.DefaultClientIPServiceAffinitySeconds
		spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{
			ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &timeout},
		}
	}
	if spec.InternalTrafficPolicy == nil && spec.Type != corev1.ServiceTypeExternalName {
		cluster := corev1.ServiceInternalTrafficPolicyCluster
		spec.InternalTrafficPolicy = &cluster
	}
	for i := range spec.Ports {
		if spec.Ports[i].Protocol == "" {
			spec.Ports[i].Protocol = corev1.ProtocolTCP
		}
		if spec.Ports[i].TargetPort == (intstr.IntOrString{}) {
			spec.Ports[i].TargetPort = intstr.FromInt32(spec.Ports[i].Port)
		}
	}
}

func checkService(spec *corev1.ServiceSpec) (errs field.ErrorList) {
	path := field.NewPath("spec", "ports")
	if len(spec.Ports) == 0 && spec.ClusterIP != corev1.ClusterIPNone && spec.Type != corev1.ServiceTypeExternalName {
		errs = append(errs, field.Required(path, ""))
	}
	for i, p := range spec.Ports {
		if p.Name == "" && len(spec.Ports) > 1 {
			errs = append(errs, field.Required(path.Index(i).Child("name"), ""))
		}
		if p.Port < 1 || p.Port > 65535 {
			errs = append(errs, field.Invalid(path.Index(i).Child("port"), p.Port, "must be between 1 and 65535"))
		}
		for _, q := range spec.Ports[:i] {
			if p.Name == q.Name && p.Name != "" || p.Protocol == q.Protocol && p.Port == q.Port {
				errs = append(errs, field.Duplicate(path.Index(i), p))
			}
		}
	}
	if spec.SessionAffinity == corev1.ServiceAffinityNone && spec.SessionAffinityConfig != nil {
		errs = append(
			errs,
			field.Forbidden(
				field.NewPath("spec", "sessionAffinityConfig"),
				"must not be set when session affinity is None",
			),
		)
	}
	distributions := []string{
		corev1.ServiceTrafficDistributionPreferClose,
		corev1.ServiceTrafficDistributionPreferSameZone,
		corev1.ServiceTrafficDistributionPreferSameNode,
	}
	if d := spec.TrafficDistribution; d != nil && !slices.Contains(distributions, *d) {
		errs = append(errs, field.NotSupported(field.NewPath("spec", "trafficDistribution"), *d, distributions))
	}
	return errs
}

// keepAllocated is what an update that says nothing of addresses and families keeps, and what a turn to one family
// trims.
func keepAllocated(spec, old *corev1.ServiceSpec) {
	if spec.ClusterIP == "" {
		spec.ClusterIP, spec.ClusterIPs = old.ClusterIP, slices.Clone(old.ClusterIPs)
	}
	if len(spec.IPFamilies) == 0 {
		spec.IPFamilies = slices.Clone(old.IPFamilies)
	}
	if spec.IPFamilyPolicy == nil {
		spec.IPFamilyPolicy = old.IPFamilyPolicy
	}
	if p := spec.IPFamilyPolicy; p != nil && *p == corev1.IPFamilyPolicySingleStack && old.IPFamilyPolicy != nil &&
		*old.IPFamilyPolicy != *p {
		spec.IPFamilies, spec.ClusterIPs = spec.IPFamilies[:1], spec.ClusterIPs[:min(1, len(spec.ClusterIPs))]
	}
}

// families fills in ipFamilies and ipFamilyPolicy from each other and from what the cluster has.
func (s *Server) families(k Key, spec *corev1.ServiceSpec) error {
	path := field.NewPath("spec", "ipFamilies")
	for i, f := range spec.IPFamilies {
		if !slices.Contains(s.Families, f) {
			return s.invalid(k, field.Invalid(path.Index(i), f, "not configured on this cluster"))
		}
	}
	policy := corev1.IPFamilyPolicySingleStack
	if spec.IPFamilyPolicy != nil {
		policy = *spec.IPFamilyPolicy
	}
	spec.IPFamilyPolicy = &policy
	switch policy {
	case corev1.IPFamilyPolicySingleStack:
		if len(spec.IPFamilies) > 1 || len(spec.ClusterIPs) > 1 {
			return s.invalid(
				k,
				field.Invalid(path, spec.IPFamilies, "may only hold one family where the policy is SingleStack"),
			)
		}
	case corev1.IPFamilyPolicyRequireDualStack:
		if len(s.Families) < 2 {
			return s.invalid(
				k,
				field.Invalid(
					field.NewPath("spec", "ipFamilyPolicy"),
					policy,
					"this cluster is not configured for dual-stack services",
				),
			)
		}
	}
	if len(spec.IPFamilies) == 0 && len(spec.ClusterIPs) > 0 && spec.ClusterIPs[0] != corev1.ClusterIPNone {
		spec.IPFamilies = []corev1.IPFamily{FamilyOf(spec.ClusterIPs[0])}
	}
	for _, f := range s.Families {
		full := len(spec.IPFamilies) > 0 && policy == corev1.IPFamilyPolicySingleStack
		if !full && !slices.Contains(spec.IPFamilies, f) {
			spec.IPFamilies = append(spec.IPFamilies, f)
		}
	}
	return nil
}

// allocate takes the addresses that are asked for, and any for families that none is asked for.
func (s *Server) allocate(k Key, old *corev1.Service, spec *corev1.ServiceSpec) error {
	if spec.ClusterIP == corev1.ClusterIPNone {
		spec.ClusterIPs = []string{corev1.ClusterIPNone}
		return nil
	}
	path := field.NewPath("spec", "clusterIPs")
	if spec.ClusterIP != "" && len(spec.ClusterIPs) == 0 {
		spec.ClusterIPs = []string{spec.ClusterIP}
	}
	if len(spec.ClusterIPs) > len(spec.IPFamilies) || len(spec.ClusterIPs) > 0 && spec.ClusterIP != spec.ClusterIPs[0] {
		return s.invalid(k, field.Invalid(path, spec.ClusterIPs, "must fit clusterIP and ipFamilies"))
	}
	if s.ranges {
		for i, ip := range spec.ClusterIPs {
			if FamilyOf(ip) != spec.IPFamilies[i] {
				return s.invalid(
					k,
					field.Invalid(path.Index(i), ip, "is not of the family "+string(spec.IPFamilies[i])),
				)
			}
		}
		return s.assignAddresses(k, old, spec)
	}
	for i, ip := range spec.ClusterIPs {
		held := old != nil && slices.Contains(old.Spec.ClusterIPs, ip)
		if FamilyOf(ip) != spec.IPFamilies[i] {
			return s.invalid(k, field.Invalid(path.Index(i), ip, "is not of the family "+string(spec.IPFamilies[i])))
		}
		if s.ips.taken[ip] && !held {
			return s.invalid(
				k,
				field.Invalid(path.Index(i), ip, "failed to allocate IP: provided IP is already allocated"),
			)
		}
	}
	for i := len(spec.ClusterIPs); i < len(spec.IPFamilies); i++ {
		spec.ClusterIPs = append(spec.ClusterIPs, s.ips.next(spec.IPFamilies[i]))
	}
	spec.ClusterIP = spec.ClusterIPs[0]
	return nil
}
