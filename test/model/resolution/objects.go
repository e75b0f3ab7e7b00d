package resolution

import (
	"cmp"
	"crypto/sha256"
	"encoding/base32"
	"maps"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
)

// Annotation is that of T2, on exports and imports.
const Annotation = "clusterset-dns.io/preference"

// AnnotationDerived names the derived Service on a ServiceImport.
const AnnotationDerived = "multicluster.kubernetes.io/derived-service"

// Of is what a cluster exports by its user's objects, as an API server has them: with defaults filled in.
func Of(cluster string, export *mcsv1beta1.ServiceExport, svc *corev1.Service) clusterset.Export {
	e := clusterset.Export{
		Cluster:               cluster,
		Namespace:             svc.Namespace,
		Name:                  svc.Name,
		Created:               export.CreationTimestamp.Time,
		Type:                  mcsv1beta1.ClusterSetIP,
		SessionAffinity:       svc.Spec.SessionAffinity,
		SessionAffinityConfig: svc.Spec.SessionAffinityConfig,
		InternalTrafficPolicy: *svc.Spec.InternalTrafficPolicy,
		Families:              svc.Spec.IPFamilies,
		Labels:                exportable(export.Spec.ExportedLabels),
		Annotations:           exportable(export.Spec.ExportedAnnotations),
		Preference:            hubv1alpha1.Preference(cmp.Or(export.Annotations[Annotation], "none")),
		MinReady:              clusterset.MinReady(export.Annotations[AnnotationMinReady]),
		ExportTo:              export.Annotations[AnnotationExportTo],
	}
	if svc.Spec.ClusterIP == corev1.ClusterIPNone {
		e.Type = mcsv1beta1.Headless
	}
	if d := svc.Spec.TrafficDistribution; d != nil {
		e.TrafficDistribution = *d
	}
	for _, p := range svc.Spec.Ports {
		port := clusterset.Port{Name: p.Name, Protocol: p.Protocol, Number: p.Port}
		if p.AppProtocol != nil {
			port.AppProtocol = *p.AppProtocol
		}
		e.Ports = append(e.Ports, port)
	}
	return e
}

// exportable are those that travel (E3): no key of the agents.
func exportable(in map[string]string) map[string]string {
	out := maps.Clone(in)
	maps.DeleteFunc(out, func(key, _ string) bool {
		prefix, _, _ := strings.Cut(key, "/")
		return key == "app.kubernetes.io/managed-by" || prefix == "clusterset-dns.io" ||
			prefix == "multicluster.kubernetes.io"
	})
	return out
}

// Aged is an export with the age that a copy of its record states (C1); copied may be nil. What the hub does not have
// yet comes last.
func Aged(e clusterset.Export, copied *hubv1alpha1.ServiceExportRecord) clusterset.Export {
	if copied != nil && copied.Spec.ExportedAt != nil {
		e.Created, e.Published = copied.Spec.ExportedAt.Time, Stated(copied, "published")
		if e.Published.IsZero() {
			e.Published = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
		}
	}
	return e
}

// Stated is a time of the hub's record that a copy states: when it was created or, for the first time, published.
func Stated(copied *hubv1alpha1.ServiceExportRecord, what string) time.Time {
	at, _ := time.Parse(time.RFC3339, copied.Annotations["clusterset-dns.io/"+what])
	return at
}

// Spec is that of the ServiceImport in a cluster that serves these families, but for its VIPs (I3).
func Spec(m conflict.Merged, families []corev1.IPFamily) mcsv1beta1.ServiceImportSpec {
	spec := mcsv1beta1.ServiceImportSpec{
		Type:                  m.Type,
		IPFamilies:            families,
		Ports:                 []mcsv1beta1.ServicePort{},
		InternalTrafficPolicy: &m.InternalTrafficPolicy,
		SessionAffinity:       m.SessionAffinity,
		SessionAffinityConfig: m.SessionAffinityConfig,
	}
	for _, p := range m.Ports {
		port := mcsv1beta1.ServicePort{Name: p.Name, Protocol: p.Protocol, Port: p.Number}
		if p.AppProtocol != "" {
			port.AppProtocol = &p.AppProtocol
		}
		spec.Ports = append(spec.Ports, port)
	}
	if m.TrafficDistribution != "" {
		spec.TrafficDistribution = &m.TrafficDistribution
	}
	return spec
}

// DerivedName is DESIGN §11's.
func DerivedName(namespace, name string) string {
	sum := sha256.Sum256([]byte(namespace + "/" + name))
	return "derived-" + strings.ToLower(base32.HexEncoding.EncodeToString(sum[:]))[:10]
}

// ProxyName is the name of a port between the derived Service and kube-proxy (docs/decisions/0006).
func ProxyName(p clusterset.Port) string {
	return "clusterset-" + strings.ToLower(string(p.Protocol)) + "-" + strconv.Itoa(int(p.Number))
}

// DerivedSpec is that of the derived Service svc; its addresses and families are as they are.
func DerivedSpec(m *conflict.Merged, svc *corev1.Service) corev1.ServiceSpec {
	spec := *svc.Spec.DeepCopy()
	spec.Type, spec.Selector, spec.Ports = corev1.ServiceTypeClusterIP, nil, nil
	for _, p := range m.Ports {
		port := corev1.ServicePort{
			Name:       ProxyName(p),
			Protocol:   p.Protocol,
			Port:       p.Number,
			TargetPort: intstr.FromInt32(p.Number),
		}
		if p.AppProtocol != "" {
			port.AppProtocol = &p.AppProtocol
		}
		spec.Ports = append(spec.Ports, port)
	}
	spec.SessionAffinity, spec.InternalTrafficPolicy, spec.TrafficDistribution = m.SessionAffinity,
		&m.InternalTrafficPolicy, nil
	if m.SessionAffinity == corev1.ServiceAffinityNone {
		spec.SessionAffinityConfig = nil
	} else if m.SessionAffinityConfig != nil {
		spec.SessionAffinityConfig = m.SessionAffinityConfig
	}
	if m.TrafficDistribution != "" {
		spec.TrafficDistribution = &m.TrafficDistribution
	}
	return spec
}

// SliceLabels are those of a slice that is imported of cluster. kube-proxy leaves all of them out.
func SliceLabels(m *conflict.Merged, namespace, name, cluster, manager string, silent bool) map[string]string {
	labels := map[string]string{
		mcsv1beta1.LabelServiceName: name, mcsv1beta1.LabelSourceCluster: cluster,
		discoveryv1.LabelServiceName: DerivedName(namespace, name), discoveryv1.LabelManagedBy: manager,
		corev1.IsHeadlessService: "", "service.kubernetes.io/service-proxy-name": "none",
	}
	if silent && m.Type != mcsv1beta1.Headless {
		labels["clusterset-dns.io/standby"] = "true"
	}
	return labels
}

// ForKubeProxy is the part of an imported slice that kube-proxy reads, in a slice of its own: labels, ports and
// endpoints (S6). ok is false if there is none.
func ForKubeProxy(m *conflict.Merged, namespace, name, cluster, manager string, s *discoveryv1.EndpointSlice) (
	out *discoveryv1.EndpointSlice, ok bool,
) {
	if _, silent := s.Labels["clusterset-dns.io/standby"]; silent || m.Type == mcsv1beta1.Headless {
		return nil, false
	}
	out = &discoveryv1.EndpointSlice{AddressType: s.AddressType}
	out.Labels = map[string]string{
		"clusterset-dns.io/service-import": name, "clusterset-dns.io/source-cluster": cluster,
		discoveryv1.LabelServiceName: DerivedName(namespace, name), discoveryv1.LabelManagedBy: manager,
	}
	for _, p := range s.Ports {
		for _, u := range m.Ports {
			if *p.Name == u.Name {
				p.Name = new(ProxyName(u))
				out.Ports = append(out.Ports, p)
				break
			}
		}
	}
	out.Endpoints = s.Endpoints
	return out, true
}

// ForGateways is the part of an imported slice that Envoy Gateway reads, in a slice of its own (S6). ok is false if
// there is none.
func ForGateways(s *discoveryv1.EndpointSlice) (out *discoveryv1.EndpointSlice, ok bool) {
	if _, silent := s.Labels["clusterset-dns.io/standby"]; silent {
		return nil, false
	}
	out = &discoveryv1.EndpointSlice{AddressType: s.AddressType}
	out.Labels = maps.Clone(s.Labels)
	delete(out.Labels, discoveryv1.LabelServiceName)
	out.Ports = s.Ports
	for _, e := range s.Endpoints {
		serving := e.Conditions.Ready == nil || *e.Conditions.Ready
		terminating := e.Conditions.Terminating != nil && *e.Conditions.Terminating
		out.Endpoints = append(out.Endpoints, discoveryv1.Endpoint{
			Addresses: e.Addresses, Zone: e.Zone, Hints: e.Hints, Conditions: discoveryv1.EndpointConditions{
				Ready: new(bool), Serving: &serving, Terminating: &terminating,
			},
		})
	}
	return out, true
}

// Owners are those of an imported slice.
func Owners(imp *mcsv1beta1.ServiceImport) []metav1.OwnerReference {
	return []metav1.OwnerReference{
		{
			APIVersion: "multicluster.x-k8s.io/v1beta1",
			Kind:       "ServiceImport",
			Name:       imp.Name,
			UID:        imp.UID,
			Controller: new(bool),
		},
	}
}
