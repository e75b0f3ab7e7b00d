package kube

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
)

// FamiliesKept is how long Families caches its result, which changes only with the API server's flags.
const FamiliesKept = 10 * time.Minute

// Families returns a function that reports the IP families of this cluster's Services. It creates a
// dual-stack Service in a dry run: ServiceCIDRs do not exist in every supported version, and an
// IPv6 ServiceCIDR does not prove that the API server allocates from it. If the API server does not
// answer, the function returns its last result, or an error if there is none.
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
			ObjectMeta: metav1.ObjectMeta{
				Namespace: SystemNamespace, GenerateName: "families-",
				Labels: map[string]string{derived.LabelManagedBy: Manager}, // the policy clusterset-agent asks for it
			},
			Spec: corev1.ServiceSpec{IPFamilyPolicy: &both, Ports: []corev1.ServicePort{{Port: 1}}},
		}
		if err := c.Create(ctx, probe, client.DryRunAll); err != nil {
			if known != nil {
				return known, nil
			}
			return nil, fmt.Errorf(
				"finding the IP families of this cluster failed: dry run of a Service in namespace %s: %w",
				SystemNamespace,
				err,
			)
		}
		known, asked = probe.Spec.IPFamilies, now()
		return known, nil
	}
}
