package packets

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestF5WhoIsCutOffIsDownForClientsOutside in every cluster, itself too, because the two others say so on the hub,
// which all see; and up again after it returns.
func TestF5WhoIsCutOffIsDownForClientsOutside(t *testing.T) {
	f := newFailover(t)
	t.Cleanup(func() { f.power(t, f.c, true) })
	svc := service(f.ns, tcp("http", 80))
	svc.Spec.Type = corev1.ServiceTypeLoadBalancer
	f.c.create(t, svc)
	f.c.create(t, f.c.endpoints(svc, "c1")...)
	svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.3"}}
	if err := f.c.Status().Update(t.Context(), svc); err != nil {
		t.Fatal(err)
	}
	outside := export(svc)
	outside.Annotations = map[string]string{"clusterset-dns.io/external": "true"}
	f.c.create(t, outside)
	isUp := func(c *cluster) (up bool, err error) {
		var list discoveryv1.EndpointSliceList
		err = c.List(t.Context(), &list, client.InNamespace(f.ns),
			client.MatchingLabels{"clusterset-dns.io/external": svc.Name})
		if err == nil && len(list.Items) != 1 {
			err = fmt.Errorf("%d slices", len(list.Items))
		}
		return err == nil && *list.Items[0].Endpoints[0].Conditions.Ready, err
	}
	want := func(want bool, clusters ...*cluster) {
		t.Helper()
		for _, c := range clusters {
			eventually(t, fmt.Sprintf("%s: c is up: %v", c.ID, want), func() error {
				up, err := isUp(c)
				if err == nil && up != want {
					err = fmt.Errorf("it is %v", up)
				}
				return err
			})
		}
	}
	want(true, f.clusters...)
	cut := time.Now()
	f.power(t, f.c, false)
	want(false, f.clusters...)
	took := time.Since(cut)
	t.Logf("down after %v", took)
	if took > 20*time.Second {
		t.Errorf("down only after %v", took)
	}
	f.power(t, f.c, true)
	want(true, f.clusters...)
}
