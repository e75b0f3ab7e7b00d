package gather

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
)

// TestDNSIsLostWhereItWasSetUp: a cluster that only exports needs none, and what imports other files may have it there.
func TestDNSIsLostWhereItWasSetUp(t *testing.T) {
	const stock = ".:53 {\n kubernetes cluster.local\n forward . 10.0.0.1\n}\n"
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "clusterset-dns:coredns"}}
	for name, c := range map[string]struct {
		corefile string
		objects  []client.Object
		lost     bool
	}{
		"never set up":       {stock, nil, false},
		"lost":               {stock, []client.Object{role}, true},
		"there":              {stock + "clusterset.local:53 {\n multicluster\n}\n", []client.Object{role}, false},
		"maybe in a file":    {stock + "import custom/*.server\n", []client.Object{role}, false},
		"no CoreDNS is seen": {"", []client.Object{role}, false},
	} {
		objects := append(c.objects, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "coredns"},
			Data:       map[string]string{"Corefile": c.corefile},
		})
		here := &cluster.Cluster{Name: "this cluster", Client: fake.NewClientBuilder().WithScheme(cluster.Scheme()).
			WithObjects(objects...).Build()}
		if got, _ := dnsState(t.Context(), here); got != c.lost {
			t.Errorf("%s: %v", name, got)
		}
	}
}

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
		if _, down := dnsState(t.Context(), here); down != nil {
			got = down.Severity
		}
		if got != want {
			t.Errorf("%d available: %q, want %q", available, got, want)
		}
	}
}
