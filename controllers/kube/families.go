package kube

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
)

// FamiliesKept is how long a successful result of Families is cached. It changes only with the API server's flags.
const FamiliesKept = 10 * time.Minute

// familiesRetry is how long a failure is cached: thousands of names ask.
const familiesRetry = time.Second

// BothFamilies is what to assume while the families of the cluster are not known.
var BothFamilies = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}

// FamiliesDenied returns whether an error of Families is that a policy, a webhook or a quota denies the dry run. That
// may last for ever. An allocator that is not ready denies nothing: since Kubernetes 1.37, clusterIPs are invalid then.
func FamiliesDenied(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) ||
		apierrors.IsInvalid(err) && !InvalidField(err, "spec.clusterIP")
}

// Families returns a function that reports the IP families of this cluster's Services. It creates a
// dual-stack Service in a dry run: ServiceCIDRs do not exist in every supported version, and an
// IPv6 ServiceCIDR does not prove that the API server allocates from it. If the API server does not
// answer, the function returns its last result, or an error if there is none.
func Families(c client.Client, now func() time.Time) func(context.Context) ([]corev1.IPFamily, error) {
	var (
		mu     sync.Mutex
		known  []corev1.IPFamily
		failed error
		next   time.Time // when the API server is asked again
		asking bool      // a caller waits for its answer; the others get the last result
	)
	return func(ctx context.Context) ([]corev1.IPFamily, error) {
		mu.Lock()
		defer mu.Unlock()
		if now().Before(next) || asking && (known != nil || failed != nil) {
			return known, failed
		}
		both := corev1.IPFamilyPolicyPreferDualStack
		probe := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: SystemNamespace, GenerateName: "families-",
				Labels: map[string]string{derived.LabelManagedBy: Manager}, // the policy clusterset-agent asks for it
			},
			Spec: corev1.ServiceSpec{IPFamilyPolicy: &both, Ports: []corev1.ServicePort{{Port: 1}}},
		}
		asking = true
		mu.Unlock()
		err := c.Create(ctx, probe, client.DryRunAll)
		mu.Lock()
		if asking = false; err != nil {
			next = now().Add(familiesRetry)
			if known != nil {
				return known, nil
			}
			failed = fmt.Errorf("finding the IP families of this cluster failed: "+
				"dry run of a Service in namespace %s: %w", SystemNamespace, err)
			return nil, failed
		}
		known, failed, next = probe.Spec.IPFamilies, nil, now().Add(FamiliesKept)
		return known, nil
	}
}
