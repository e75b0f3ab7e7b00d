package policies

import (
	"context"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

func origin(id, service string) hubv1alpha1.Origin {
	return hubv1alpha1.Origin{ClusterID: id, ServiceNamespace: "shop", ServiceName: service, Revision: 1}
}

// exportRecord is a valid record of cluster id for shop/service.
func exportRecord(id, service string) *hubv1alpha1.ServiceExportRecord {
	since := metav1.NewTime(time.Unix(1_700_000_000, 0))
	return &hubv1alpha1.ServiceExportRecord{
		ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: service + ".shop." + id},
		Spec: hubv1alpha1.ServiceExportRecordSpec{
			Origin:     origin(id, service),
			ExportedAt: &since,
			Type:       mcsv1beta1.ClusterSetIP,
			Ports:      []hubv1alpha1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Endpoints:  []hubv1alpha1.EndpointGroup{endpointGroup("10.0.0.1")},
		},
	}
}

// endpointPage is a valid page of cluster id for shop/service.
func endpointPage(id, service string) *hubv1alpha1.EndpointPage {
	return &hubv1alpha1.EndpointPage{
		ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: clusterset.PageName(7, service, "shop", id)},
		Spec: hubv1alpha1.EndpointPageSpec{
			Origin:        origin(id, service),
			Number:        7,
			EndpointGroup: endpointGroup("10.0.0.1"),
		},
	}
}

// endpointGroup is a valid group of endpoints.
func endpointGroup(addresses ...string) hubv1alpha1.EndpointGroup {
	target := int32(8080)
	group := hubv1alpha1.EndpointGroup{
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []hubv1alpha1.EndpointPort{{Protocol: corev1.ProtocolTCP, Port: 80, Target: &target}},
	}
	for _, a := range addresses {
		group.Endpoints = append(group.Endpoints, hubv1alpha1.Endpoint{Address: a})
	}
	return group
}

func lease(namespace, name string) *coordinationv1.Lease {
	holder := "pod"
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder},
	}
}

func property(name, value string) *aboutv1beta1.ClusterProperty {
	return &aboutv1beta1.ClusterProperty{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       aboutv1beta1.ClusterPropertySpec{Value: value},
	}
}

func profile(id string) *inventoryv1alpha1.ClusterProfile {
	return &inventoryv1alpha1.ClusterProfile{
		ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: id},
		Spec: inventoryv1alpha1.ClusterProfileSpec{
			ClusterManager: inventoryv1alpha1.ClusterManager{Name: clusterset.ClusterManager},
		},
	}
}

// derivedService looks like one that the agent made.
func derivedService(namespace, name string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name,
			Labels:      map[string]string{"app.kubernetes.io/managed-by": kube.Manager},
			Annotations: map[string]string{"clusterset-dns.io/import": namespace + "/web"},
		},
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}
}

// requestToken asks for a token of a ServiceAccount; what it gets is thrown away.
func requestToken(ctx context.Context, as client.Client, namespace, account string, seconds int64) error {
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account}}
	return as.SubResource("token").
		Create(ctx, sa, &authenticationv1.TokenRequest{
			Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds},
		})
}
