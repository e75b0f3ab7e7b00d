package ui

import (
	"fmt"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/check"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/snapshot"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/reach"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "blue", Name: name, CreationTimestamp: metav1.NewTime(now.Add(-time.Hour))}
}

func lease(name string, ago time.Duration) coordinationv1.Lease {
	at, renewed, seconds := metav1.NewTime(now.Add(-ago)), metav1.NewMicroTime(now.Add(-ago)), int32(40)
	l := coordinationv1.Lease{ObjectMeta: named(name)}
	l.Annotations, l.ManagedFields = map[string]string{}, []metav1.ManagedFieldsEntry{{Time: &at}}
	l.Spec.RenewTime, l.Spec.LeaseDurationSeconds = &renewed, &seconds
	reach.WriteAddresses(&l, []string{"10.1.0.1:8080"})
	return l
}

// hub is what its admin sees of members that are well, and export nothing.
func hub(members ...string) *snapshot.Snapshot {
	set, leader := hubv1alpha1.ClusterSet{ObjectMeta: named("blue")}, lease(clusterset.LeaseHubPrefix+"blue", 0)
	s := &snapshot.Snapshot{Release: "v0.1.0", Namespace: "blue", HubNamed: true,
		Flags: report.Flags{HubKubeconfig: "/home/jane/kubeconfig", HubContext: "hub"},
		Hub: &snapshot.Hub{Version: "v1.36.0", Now: now, Sets: []hubv1alpha1.ClusterSet{set}, Leader: &leader,
			Records: []hubv1alpha1.ServiceExportRecord{}},
		Unread: map[snapshot.Part]snapshot.Lack{snapshot.HubAdmin: {Why: snapshot.NotNamed},
			snapshot.HubDrift: {Why: snapshot.NotNamed}}}
	for _, id := range members {
		p := inventoryv1alpha1.ClusterProfile{ObjectMeta: named(id)}
		p.Annotations = map[string]string{clusterset.AnnotationClusterUID: "uid-of-" + id}
		p.Spec.ClusterManager.Name = clusterset.ClusterManager
		p.Status.Version.Kubernetes = "v1.36.3"
		for _, kind := range []string{
			inventoryv1alpha1.ConditionJoined, inventoryv1alpha1.ConditionControlPlaneHealthy,
		} {
			p.Status.Conditions = append(
				p.Status.Conditions,
				metav1.Condition{Type: kind, Status: metav1.ConditionTrue},
			)
		}
		s.Hub.Profiles, s.Hub.Leases = append(s.Hub.Profiles, p), append(s.Hub.Leases, lease(id, 3*time.Second))
	}
	return s
}

// export adds what a cluster exports, with so many endpoints, and returns it.
func export(s *snapshot.Snapshot, cluster, name string, ready, notReady int) *hubv1alpha1.ServiceExportRecordSpec {
	at := metav1.NewTime(now.Add(-time.Duration(60-len(s.Hub.Records)%50) * time.Minute))
	rec := hubv1alpha1.ServiceExportRecord{ObjectMeta: named(name + ".shop." + cluster)}
	rec.CreationTimestamp = at
	rec.Spec = hubv1alpha1.ServiceExportRecordSpec{
		Origin:     hubv1alpha1.Origin{ClusterID: cluster, ServiceNamespace: "shop", ServiceName: name, Revision: 1},
		ExportedAt: &at, Type: mcsv1beta1.ClusterSetIP, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
		Ports: []hubv1alpha1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}},
	}
	group := hubv1alpha1.EndpointGroup{AddressType: discoveryv1.AddressTypeIPv4}
	for i := range ready + notReady {
		yes := i < ready
		group.Endpoints = append(group.Endpoints, hubv1alpha1.Endpoint{
			Address: fmt.Sprintf("10.%d.0.%d", cluster[0], i+1), Ready: &yes})
	}
	rec.Spec.Endpoints = []hubv1alpha1.EndpointGroup{group}
	s.Hub.Records = append(s.Hub.Records, rec)
	return &s.Hub.Records[len(s.Hub.Records)-1].Spec
}

// unreach has a cluster report that it does not reach others.
func unreach(s *snapshot.Snapshot, from string, to ...string) {
	since := map[string]time.Time{}
	for _, id := range to {
		since[id] = now.Add(-3 * time.Minute)
	}
	reach.WriteUnreachable(s.Hub.Lease(from), since)
}

func look(s *snapshot.Snapshot) *View {
	w := check.See(s, nil)
	return Look(w, check.Run(w))
}

func (v *View) cluster(t *testing.T, id string) Cluster {
	t.Helper()
	i, is := v.at[id]
	if !is {
		t.Fatalf("no cluster %s in %+v", id, v.Clusters)
	}
	return v.Clusters[i]
}

// cells returns what the page shows of each cluster in the row of a name.
func (v *View) cells(name string) (out []string) {
	for _, n := range v.Names {
		for _, c := range n.Cells {
			if n.Name == name {
				out = append(
					out,
					fmt.Sprintf("%s %d/%d %d%% %s", v.Clusters[c.Cluster].Cluster, c.Ready, c.Total, c.Share,
						c.State),
				)
			}
		}
	}
	return out
}
