package kube

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
)

// LeaseSpec is the ClusterSet's, or T1's where the hub shows none, or two of which nobody knows which is meant; found tells.
func LeaseSpec(ctx context.Context, env *Env) (spec hubv1alpha1.LeaseSpec, found bool, err error) {
	spec = hubv1alpha1.LeaseSpec{RenewSeconds: 10, DurationSeconds: 40, GraceSeconds: 10, OnExpiry: hubv1alpha1.ExpiryRemove}
	var sets hubv1alpha1.ClusterSetList
	if err := env.Hub().List(ctx, &sets, client.InNamespace(env.HubNamespace)); err != nil {
		return spec, false, err
	}
	if len(sets.Items) == 1 && sets.Items[0].Spec.Lease.RenewSeconds > 0 {
		spec = sets.Items[0].Spec.Lease
	}
	if spec.OnExpiry == "" { // written before there was one
		spec.OnExpiry = hubv1alpha1.ExpiryRemove
	}
	return spec, len(sets.Items) == 1, nil
}

// ProbeSpec is the ClusterSet's, with its defaults; nil where it lets nobody probe.
func ProbeSpec(ctx context.Context, env *Env) (spec *hubv1alpha1.ProbeSpec, found bool, err error) {
	var sets hubv1alpha1.ClusterSetList
	if err := env.Hub().List(ctx, &sets, client.InNamespace(env.HubNamespace)); err != nil || len(sets.Items) != 1 {
		return nil, false, err
	}
	if sets.Items[0].Spec.Probe == nil {
		return nil, true, nil
	}
	spec = sets.Items[0].Spec.Probe.DeepCopy()
	spec.IntervalSeconds, spec.TimeoutSeconds = max(spec.IntervalSeconds, 1), max(spec.TimeoutSeconds, 1)
	return spec, true, nil
}
