package ipam

import networkingv1 "k8s.io/api/networking/v1"

// Reserves tells whether an IPAddress is this manager's reservation of an address of a fenced range.
func Reserves(ip *networkingv1.IPAddress, manager string) bool {
	ref := ip.Spec.ParentRef
	return ip.Labels[networkingv1.LabelManagedBy] == manager && ref != nil && ref.Resource == "servicecidrs"
}
