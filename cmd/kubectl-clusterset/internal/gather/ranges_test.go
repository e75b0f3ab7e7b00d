package gather

import (
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

func TestV6StatusCountsWhatRestsAsTaken(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	address := func(manager, resource string, kept time.Duration) *networkingv1.IPAddress {
		ip := &networkingv1.IPAddress{}
		ip.Name, ip.Labels = "10.128.0.7", map[string]string{networkingv1.LabelManagedBy: manager}
		ip.Spec.ParentRef = &networkingv1.ParentReference{Resource: resource, Name: "x"}
		if kept != 0 {
			ipam.Keep(ip, ipam.Owner{Namespace: "shop", Name: "web"}, now.Add(kept))
		}
		return ip
	}
	for _, tt := range []struct {
		name string
		ip   *networkingv1.IPAddress
		want bool
	}{
		{"a reservation", address(kube.Manager, "servicecidrs", 0), true},
		{"one that is kept", address(kube.Manager, "servicecidrs", time.Second), false},
		{"one that was", address(kube.Manager, "servicecidrs", -time.Second), true},
		{"a Service's", address(ipam.APIServer, "services", 0), false},
		{"another controller's", address("other", "servicecidrs", 0), false},
	} {
		if got := free(tt.ip, now); got != tt.want {
			t.Errorf("%s: free %v, want %v", tt.name, got, tt.want)
		}
	}
}
