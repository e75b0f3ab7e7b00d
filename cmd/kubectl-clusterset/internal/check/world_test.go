package check_test

import (
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/dns"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/facts"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/platform"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/snapshot"
	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/health"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/liveness"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

var (
	now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	web = types.NamespacedName{Namespace: "shop", Name: "web"}
)

func named(ns, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: ns, Name: name, CreationTimestamp: metav1.NewTime(now.Add(-time.Hour))}
}

// lease is one that was renewed so long ago.
func lease(name string, ago time.Duration) coordinationv1.Lease {
	at, renewed, seconds := metav1.NewTime(now.Add(-ago)), metav1.NewMicroTime(now.Add(-ago)), int32(40)
	l := coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{},
		Annotations: map[string]string{}, ManagedFields: []metav1.ManagedFieldsEntry{{Time: &at}}}}
	l.Spec.RenewTime, l.Spec.LeaseDurationSeconds = &renewed, &seconds
	return l
}

// source is east's own Lease for another cluster.
func source(cluster string, expired bool) coordinationv1.Lease {
	l := lease(liveness.LeaseName(cluster), 0)
	l.Labels[liveness.LabelSource] = cluster
	liveness.State{Expired: expired, OnExpiry: hubv1alpha1.ExpiryRemove}.Write(l.Annotations)
	return l
}

func deployment(ns, name string, available int32) *appsv1.Deployment {
	replicas := int32(2)
	d := &appsv1.Deployment{ObjectMeta: named(ns, name)}
	d.Spec.Replicas = &replicas
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: name, Image: "registry.example/" + name + ":v0.1.0"}}
	d.Status = appsv1.DeploymentStatus{Replicas: 2, UpdatedReplicas: 2, AvailableReplicas: available}
	return d
}

func record(cluster string, age int) hubv1alpha1.ServiceExportRecord {
	at := metav1.NewTime(now.Add(-time.Duration(age) * time.Minute))
	rec := hubv1alpha1.ServiceExportRecord{ObjectMeta: named("clusterset-system", "web.shop."+cluster)}
	rec.Spec = hubv1alpha1.ServiceExportRecordSpec{
		Origin:     hubv1alpha1.Origin{ClusterID: cluster, ServiceNamespace: "shop", ServiceName: "web", Revision: 1},
		ExportedAt: &at, Type: mcsv1beta1.ClusterSetIP, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
		Ports: []hubv1alpha1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}},
	}
	return rec
}

func slice(cluster string, ready, notReady int) discoveryv1.EndpointSlice {
	name, proto, number := "http", corev1.ProtocolTCP, int32(8080)
	s := discoveryv1.EndpointSlice{ObjectMeta: named("shop", "derived-"+cluster),
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Protocol: &proto, Port: &number}}}
	s.Labels = map[string]string{mcsv1beta1.LabelServiceName: "web", mcsv1beta1.LabelSourceCluster: cluster}
	for i := range ready + notReady {
		yes := i < ready
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{fmt.Sprintf("10.0.%d.%d", cluster[0], i+1)},
			Conditions: discoveryv1.EndpointConditions{Ready: &yes}})
	}
	return s
}

func property(name, value string) aboutv1beta1.ClusterProperty {
	return aboutv1beta1.ClusterProperty{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}},
		Spec: aboutv1beta1.ClusterPropertySpec{Value: value}}
}

func profile(id string) inventoryv1alpha1.ClusterProfile {
	p := inventoryv1alpha1.ClusterProfile{ObjectMeta: named("blue", id)}
	p.Annotations = map[string]string{clusterset.AnnotationClusterUID: "uid-of-" + id}
	p.Spec.ClusterManager.Name = clusterset.ClusterManager
	p.Status.Conditions = []metav1.Condition{
		{Type: inventoryv1alpha1.ConditionJoined, Status: metav1.ConditionTrue},
		{Type: inventoryv1alpha1.ConditionControlPlaneHealthy, Status: metav1.ConditionTrue},
	}
	return p
}

// state has the agent say this, with the reason.
func state(s *snapshot.Snapshot, reason, message string) {
	of := health.Reasons[reason].Condition
	for i := range s.Member.Membership.Status.Conditions {
		if c := &s.Member.Membership.Status.Conditions[i]; c.Type == of {
			c.Status, c.Reason = metav1.ConditionFalse, reason
			c.Message = message + ". " + health.URL(reason)
		}
	}
}

const corefile = ".:53 {\n errors\n ready\n multicluster clusterset.local\n kubernetes cluster.local\n forward . " +
	"/etc/resolv.conf\n reload\n}\n"

// healthy is east, a member beside west, as its admin sees it: both export web, and all is well.
func healthy(t *testing.T) *snapshot.Snapshot {
	t.Helper()
	imp := mcsv1beta1.ServiceImport{ObjectMeta: named("shop", "web")}
	imp.Labels = map[string]string{derived.LabelManagedBy: kube.Manager}
	imp.Spec = mcsv1beta1.ServiceImportSpec{Type: mcsv1beta1.ClusterSetIP, IPs: []string{"10.96.0.7"},
		Ports: []mcsv1beta1.ServicePort{{Name: "http", Protocol: "TCP", Port: 80}}}
	imp.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue}}
	own := mcsv1beta1.ServiceExport{ObjectMeta: named("shop", "web")}
	own.Status.Conditions = []metav1.Condition{{Type: "Valid", Status: metav1.ConditionTrue},
		{Type: "Ready", Status: metav1.ConditionTrue}}
	agent := deployment("clusterset-system", "clusterset-controller", 2)
	coredns := deployment("kube-system", "coredns", 2)
	coredns.Annotations = map[string]string{platform.AnnotationImage: "registry.k8s.io/coredns/coredns:v1.14.0"}
	m := &snapshot.Member{
		Version: "v1.36.0",
		Now:     now,
		Agent:   agent,
		Properties: []aboutv1beta1.ClusterProperty{property(clusterset.PropertyID, "east"),
			property(clusterset.PropertySet, "blue")},
		Leases: []coordinationv1.Lease{lease(facts.AgentLease, time.Second),
			lease(clusterset.LeaseRenewed, time.Second), source("west", false)},
		Exports:    []mcsv1beta1.ServiceExport{own},
		Imports:    []mcsv1beta1.ServiceImport{imp},
		Records:    []hubv1alpha1.ServiceExportRecord{record("east", 20), record("west", 15)},
		Slices:     []discoveryv1.EndpointSlice{slice("east", 1, 0), slice("west", 2, 0)},
		Services:   []snapshot.Service{{Namespace: "shop", Name: "web"}},
		Namespaces: []snapshot.Namespace{{Name: "shop"}},
		DNS: dns.State{ConfigKey: "Corefile", Objects: platform.Objects{Deployment: coredns,
			Config: &corev1.ConfigMap{ObjectMeta: named("kube-system", "coredns"),
				Data: map[string]string{"Corefile": corefile}}}},
	}
	m.Membership.Status.HubNamespace = "blue"
	for _, of := range health.Order {
		m.Membership.Status.Conditions = append(m.Membership.Status.Conditions, metav1.Condition{Type: of,
			Status: metav1.ConditionTrue})
	}
	set := hubv1alpha1.ClusterSet{ObjectMeta: named("blue", "blue")}
	set.Spec.Lease.DurationSeconds, set.Spec.Lease.GraceSeconds = 40, 20
	set.Spec.VIPs.Blocks = hubv1alpha1.BlockSize{IPv4Bits: 22, IPv6Bits: 112}
	leader := lease(clusterset.LeaseHubPrefix+"blue", time.Second)
	return &snapshot.Snapshot{
		Release: "v0.1.0", Namespace: "blue", HubNamed: true, Member: m, Unread: map[snapshot.Part]snapshot.Lack{},
		Flags: report.Flags{Context: "east", HubContext: "hub", HubNamespace: "blue"},
		Hub: &snapshot.Hub{
			Server: "https://hub", Version: "v1.36.0", Now: now, Sets: []hubv1alpha1.ClusterSet{set}, Leader: &leader,
			Profiles: []inventoryv1alpha1.ClusterProfile{profile("east"), profile("west")},
			Leases:   []coordinationv1.Lease{lease("east", time.Second), lease("west", time.Second)},
			Records:  []hubv1alpha1.ServiceExportRecord{record("east", 20), record("west", 15)},
			Deployed: deployment("clusterset-system", "clusterset-hub-blue", 2),
		},
	}
}
