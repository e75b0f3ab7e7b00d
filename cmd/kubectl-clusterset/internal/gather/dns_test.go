package gather

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
)

// TestOurDNSBesideTheClustersIsDown: status says so, though the cluster's own DNS is fine.
func TestOurDNSBesideTheClustersIsDown(t *testing.T) {
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "clusterset-dns:coredns"}}
	replicas := int32(2)
	ours := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "clusterset-dns", Name: "coredns"},
		Spec: appsv1.DeploymentSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{}}}
	for available, want := range map[int32]report.Severity{0: report.Error, 1: report.Warning, 2: ""} {
		ours.Status = appsv1.DeploymentStatus{Replicas: 2, UpdatedReplicas: 2, AvailableReplicas: available}
		here := &cluster.Cluster{Name: "this cluster", Client: fake.NewClientBuilder().WithScheme(cluster.Scheme()).
			WithObjects(role, ours).Build()}
		var got report.Severity
		if down := dnsDown(t.Context(), here); down != nil {
			got = down.Severity
		}
		if got != want {
			t.Errorf("%d available: %q, want %q", available, got, want)
		}
	}
}
