package stub

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// Clusters is how many source clusters a headless Service's endpoints are spread over.
const Clusters = 5

// sliceSize is the most endpoints in one EndpointSlice, as Kubernetes' own controller has it.
const sliceSize = 100

// perNamespace is how many ClusterSetIP imports share a namespace.
const perNamespace = 100

// HeadlessNamespace holds all headless imports.
const HeadlessNamespace = "db"

// created is fixed, so that the same data set has the same octets in every run.
var created = metav1.NewTime(time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC))

// Shape is what a data set holds.
type Shape struct {
	Imports  int // of type ClusterSetIP, with one address and one port
	Headless []Headless
	Services int // of the cluster itself, with one address and one port

	MoreImports []*mcsv1beta1.ServiceImport
	MoreSlices  []*discoveryv1.EndpointSlice
}

// ClusterSetIP names import i.
func ClusterSetIP(i int) (name, namespace string) {
	return fmt.Sprintf("svc-%05d", i), fmt.Sprintf("ns-%03d", i/perNamespace)
}

func clusterSetIP(i int) *mcsv1beta1.ServiceImport {
	name, namespace := ClusterSetIP(i)
	s := serviceImport(
		name,
		namespace,
		mcsv1beta1.ClusterSetIP,
		mcsv1beta1.ServicePort{Name: "https", Protocol: corev1.ProtocolTCP, Port: 443},
	)
	s.Spec.IPs = []string{v4(10<<24 | 64<<16 | uint32(i))}
	s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol}
	return s
}

// Headless is one headless import with endpoints that have host names.
type Headless struct {
	Name      string
	Endpoints int
	DualStack bool // every endpoint has an IPv6 address as well, in slices of their own
	First     int  // number of the first endpoint's address
}

// Host names endpoint i and its cluster.
func (h Headless) Host(i int) (host, clusterID string) {
	return "db-" + strconv.Itoa(i/Clusters), cluster(i)
}

func cluster(i int) string { return "cluster-" + strconv.Itoa(i%Clusters+1) }

// Import is the headless ServiceImport.
func (h Headless) Import() *mcsv1beta1.ServiceImport {
	s := serviceImport(h.Name, HeadlessNamespace, mcsv1beta1.Headless,
		mcsv1beta1.ServicePort{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80})
	s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol}
	if h.DualStack {
		s.Spec.IPFamilies = append(s.Spec.IPFamilies, corev1.IPv6Protocol)
	}
	return s
}

// Slices are all EndpointSlices of the Service.
func (h Headless) Slices() []*discoveryv1.EndpointSlice {
	families := []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4}
	if h.DualStack {
		families = append(families, discoveryv1.AddressTypeIPv6)
	}
	var slices []*discoveryv1.EndpointSlice
	for _, family := range families {
		for c := range min(Clusters, h.Endpoints) {
			var s *discoveryv1.EndpointSlice
			for i := c; i < h.Endpoints; i += Clusters {
				if s == nil || len(s.Endpoints) == sliceSize {
					s = h.slice(family, cluster(i), len(slices))
					slices = append(slices, s)
				}
				s.Endpoints = append(s.Endpoints, h.endpoint(family, i))
			}
		}
	}
	return slices
}

func (h Headless) slice(family discoveryv1.AddressType, cluster string, n int) *discoveryv1.EndpointSlice {
	name := fmt.Sprintf("%s-%s-%03d", h.Name, cluster, n)
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name:              name,
			Namespace:         HeadlessNamespace,
			UID:               uid(name),
			CreationTimestamp: created,
			Generation:        1,
			Labels: map[string]string{
				discoveryv1.LabelManagedBy:    "clusterset-controller.clusterset-dns.io",
				mcsv1beta1.LabelServiceName:   h.Name,
				mcsv1beta1.LabelSourceCluster: cluster,
			},
			ManagedFields: managed(
				"discovery.k8s.io/v1",
				`{"f:addressType":{},"f:endpoints":{},"f:metadata":{"f:labels":{".":{},`+
					`"f:endpointslice.kubernetes.io/managed-by":{},"f:multicluster.kubernetes.io/service-name":{},`+
					`"f:multicluster.kubernetes.io/source-cluster":{}}},"f:ports":{}}`,
			),
		},
		AddressType: family,
		Ports: []discoveryv1.EndpointPort{
			{Name: new("http"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(8080))},
		},
	}
}

func (h Headless) endpoint(family discoveryv1.AddressType, i int) discoveryv1.Endpoint {
	host, _ := h.Host(i)
	address := v4(10<<24 | 128<<16 + uint32(h.First+i))
	if family == discoveryv1.AddressTypeIPv6 {
		address = v6(uint32(h.First + i))
	}
	return discoveryv1.Endpoint{
		Addresses:  []string{address},
		Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
		Hostname:   &host,
		Zone:       new("zone-a"),
	}
}

func serviceImport(
	name, namespace string,
	t mcsv1beta1.ServiceImportType,
	port mcsv1beta1.ServicePort,
) *mcsv1beta1.ServiceImport {
	s := &mcsv1beta1.ServiceImport{
		ObjectMeta: metav1.ObjectMeta{
			Name:              name,
			Namespace:         namespace,
			UID:               uid(namespace + "/" + name),
			CreationTimestamp: created,
			Generation:        1,
			Annotations: map[string]string{
				"multicluster.kubernetes.io/derived-service": "derived-" + string(uid(name))[:8],
			},
			ManagedFields: managed("multicluster.x-k8s.io/v1beta1", `{"f:metadata":{"f:annotations":{".":{},`+
				`"f:multicluster.kubernetes.io/derived-service":{}}},"f:spec":{".":{},`+
				`"f:ips":{},"f:ipFamilies":{},"f:ports":{},"f:type":{}}}`),
		},
		Spec: mcsv1beta1.ServiceImportSpec{
			Type:            t,
			Ports:           []mcsv1beta1.ServicePort{port},
			SessionAffinity: corev1.ServiceAffinityNone,
		},
	}
	for i := range 2 {
		s.Status.Clusters = append(s.Status.Clusters, mcsv1beta1.ClusterStatus{Cluster: cluster(i)})
	}
	s.Status.Conditions = []metav1.Condition{{
		Type: "Ready", Status: metav1.ConditionTrue, Reason: "Ready", LastTransitionTime: created,
	}}
	return s
}

func managed(apiVersion, fields string) []metav1.ManagedFieldsEntry {
	return []metav1.ManagedFieldsEntry{{
		Manager: "clusterset-controller", Operation: metav1.ManagedFieldsOperationApply, APIVersion: apiVersion,
		Time: &created, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields),
	}}
}

// uid is of the form of a UUID and different for different names.
func uid(name string) types.UID {
	h := uint64(14695981039346656037) // FNV-1a
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * 1099511628211
	}
	return types.UID(
		fmt.Sprintf("%08x-%04x-4%03x-8%03x-%012x", h>>32, h>>16&0xffff, h>>4&0xfff, h&0xfff, h&0xffffffffffff),
	)
}

func v4(n uint32) string {
	return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, n))).String()
}

func v6(n uint32) string {
	b := [16]byte{0: 0xfd, 7: 1}
	binary.BigEndian.PutUint32(b[12:], n+1)
	return netip.AddrFrom16(b).String()
}

// ServiceImports of the data set.
func (s Shape) ServiceImports() []*mcsv1beta1.ServiceImport {
	var all []*mcsv1beta1.ServiceImport
	for i := range s.Imports {
		all = append(all, clusterSetIP(i))
	}
	for _, h := range s.Headless {
		all = append(all, h.Import())
	}
	return append(all, s.MoreImports...)
}

// EndpointSlices of the data set.
func (s Shape) EndpointSlices() []*discoveryv1.EndpointSlice {
	var all []*discoveryv1.EndpointSlice
	for _, h := range s.Headless {
		all = append(all, h.Slices()...)
	}
	return append(all, s.MoreSlices...)
}

// ClusterServices of the data set, with the names of the imports.
func (s Shape) ClusterServices() []*corev1.Service {
	var all []*corev1.Service
	for i := range s.Services {
		name, namespace := ClusterSetIP(i)
		ip := v4(10<<24 | 96<<16 | uint32(i))
		all = append(all, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{
				Name: name, Namespace: namespace, UID: uid("own/" + namespace + "/" + name),
				CreationTimestamp: created,
			},
			Spec: corev1.ServiceSpec{
				Type:       corev1.ServiceTypeClusterIP,
				ClusterIP:  ip,
				ClusterIPs: []string{ip},
				IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
				Ports:      []corev1.ServicePort{{Name: "https", Protocol: corev1.ProtocolTCP, Port: 443}},
			},
		})
	}
	return all
}

// Namespaces that the data set's objects are in.
func (s Shape) Namespaces() []*corev1.Namespace {
	names := []string{HeadlessNamespace}
	for i := 0; i < max(s.Imports, s.Services); i += perNamespace {
		_, ns := ClusterSetIP(i)
		names = append(names, ns)
	}
	var all []*corev1.Namespace
	for _, name := range names {
		all = append(all, &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid(name), CreationTimestamp: created,
				Labels: map[string]string{corev1.LabelMetadataName: name}},
			Status: corev1.NamespaceStatus{Phase: corev1.NamespaceActive},
		})
	}
	return all
}
