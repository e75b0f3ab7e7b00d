package kube

import (
	"context"
	"reflect"

	"sigs.k8s.io/controller-runtime/pkg/client"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
)

// NamespaceRules returns the namespace rules of the ClusterSet in namespace. If the hub is nil or does not have
// exactly one ClusterSet, known is false, and the rules are the defaults. Then do not end what is in effect.
func NamespaceRules(
	ctx context.Context, hub client.Reader, namespace string,
) (rules hubv1alpha1.NamespaceRules, known bool, err error) {
	if hub == nil {
		return rules, false, nil
	}
	var sets hubv1alpha1.ClusterSetList
	if err := hub.List(ctx, &sets, client.InNamespace(namespace)); err != nil || len(sets.Items) != 1 {
		return rules, false, err
	}
	return sets.Items[0].Spec.Namespaces, true, nil
}

// SameNamespaceRules is the Alike of a Watch of ClusterSets that reads their namespace rules only.
func SameNamespaceRules(was, is client.Object) bool {
	before, after := was.(*hubv1alpha1.ClusterSet), is.(*hubv1alpha1.ClusterSet)
	return reflect.DeepEqual(before.Spec.Namespaces, after.Spec.Namespaces) // an empty list is not a missing one
}

// LeaseSpec returns the Lease settings of the ClusterSet in namespace. If there is not exactly one
// ClusterSet, it returns the defaults (SPEC T1), and found is false.
func LeaseSpec(
	ctx context.Context,
	hub client.Reader,
	namespace string,
) (spec hubv1alpha1.LeaseSpec, found bool, err error) {
	spec = hubv1alpha1.LeaseSpec{
		RenewSeconds:    10,
		DurationSeconds: 40,
		GraceSeconds:    10,
		OnExpiry:        hubv1alpha1.ExpiryRemove,
	}
	var sets hubv1alpha1.ClusterSetList
	if err := hub.List(ctx, &sets, client.InNamespace(namespace)); err != nil {
		return spec, false, err
	}
	if len(sets.Items) == 1 && sets.Items[0].Spec.Lease.RenewSeconds > 0 {
		spec = sets.Items[0].Spec.Lease
	}
	if spec.OnExpiry == "" { // created before the field existed
		spec.OnExpiry = hubv1alpha1.ExpiryRemove
	}
	return spec, len(sets.Items) == 1, nil
}

// ProbeSpec returns the probe settings of the ClusterSet in namespace, with defaults, or nil if it
// allows no probes. If there is not exactly one ClusterSet, found is false.
func ProbeSpec(
	ctx context.Context,
	hub client.Reader,
	namespace string,
) (spec *hubv1alpha1.ProbeSpec, found bool, err error) {
	var sets hubv1alpha1.ClusterSetList
	if err := hub.List(ctx, &sets, client.InNamespace(namespace)); err != nil || len(sets.Items) != 1 {
		return nil, false, err
	}
	if sets.Items[0].Spec.Probe == nil {
		return nil, true, nil
	}
	spec = sets.Items[0].Spec.Probe.DeepCopy()
	spec.IntervalSeconds, spec.TimeoutSeconds = max(spec.IntervalSeconds, 1), max(spec.TimeoutSeconds, 1)
	return spec, true, nil
}
