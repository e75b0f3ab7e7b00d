package kube

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// FamiliesKept is how long an answer about IP families is kept: it changes only with the API server's flags.
const FamiliesKept = 10 * time.Minute

// Families asks the API server which IP families it gives a Service that prefers both, by a dry run, so that nothing is
// written; no other source says so on every supported version (an IPv6 ServiceCIDR on an IPv4-only API server is
// refused all the same). The answer is kept for FamiliesKept.
func Families(c client.Client, now func() time.Time) func(context.Context) ([]corev1.IPFamily, error) {
	var (
		mu    sync.Mutex
		known []corev1.IPFamily
		asked time.Time
	)
	return func(ctx context.Context) ([]corev1.IPFamily, error) {
		mu.Lock()
		defer mu.Unlock()
		if known != nil && now().Sub(asked) < FamiliesKept {
			return known, nil
		}
		both := corev1.IPFamilyPolicyPreferDualStack
		probe := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: SystemNamespace, GenerateName: "families-"},
			Spec:       corev1.ServiceSpec{IPFamilyPolicy: &both, Ports: []corev1.ServicePort{{Port: 1}}},
		}
		if err := c.Create(ctx, probe, client.DryRunAll); err != nil {
			if known != nil {
				return known, nil // the last answer stands while the API server is away
			}
			return nil, fmt.Errorf(
				"which IP families this cluster has cannot be told: dry run of a Service in %s: %w",
				SystemNamespace,
				err,
			)
		}
		known, asked = probe.Spec.IPFamilies, now()
		return known, nil
	}
}
