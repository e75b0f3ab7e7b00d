package resolution

import (
	corev1 "k8s.io/api/core/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
)

// Annotation is that of T2, on exports and imports.
const Annotation = "clusterset-dns.io/preference"

// Of is what a cluster exports by its user's objects, as an API server has them: with defaults filled in.
func Of(cluster string, export *mcsv1beta1.ServiceExport, svc *corev1.Service) clusterset.Export {
	e := clusterset.Export{
		Cluster: cluster, Namespace: svc.Namespace, Name: svc.Name, Created: export.CreationTimestamp.Time, Type: mcsv1beta1.ClusterSetIP,
		SessionAffinity: svc.Spec.SessionAffinity, SessionAffinityConfig: svc.Spec.SessionAffinityConfig,
		InternalTrafficPolicy: *svc.Spec.InternalTrafficPolicy, Families: svc.Spec.IPFamilies,
		Labels: export.Spec.ExportedLabels, Annotations: export.Spec.ExportedAnnotations,
		Preference: hubv1alpha1.Preference(export.Annotations[Annotation]),
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

// Spec is that of the ServiceImport in a cluster that serves these families, but for its VIPs (I3).
func Spec(m conflict.Merged, families []corev1.IPFamily) mcsv1beta1.ServiceImportSpec {
	spec := mcsv1beta1.ServiceImportSpec{
		Type: m.Type, IPFamilies: families, Ports: []mcsv1beta1.ServicePort{}, InternalTrafficPolicy: &m.InternalTrafficPolicy,
		SessionAffinity: m.SessionAffinity, SessionAffinityConfig: m.SessionAffinityConfig,
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
