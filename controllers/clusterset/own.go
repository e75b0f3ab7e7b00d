package clusterset

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
)

// RecordOf is what other clusters need to know of an exported Service (E6, E7). Revision is left to the caller. The result shares
// memory with its arguments.
func RecordOf(cluster string, export *mcsv1beta1.ServiceExport, svc *corev1.Service) hubv1alpha1.ServiceExportRecordSpec {
	spec := hubv1alpha1.ServiceExportRecordSpec{
		Origin:                hubv1alpha1.Origin{ClusterID: cluster, ServiceNamespace: svc.Namespace, ServiceName: svc.Name},
		ExportedAt:            &export.CreationTimestamp,
		Type:                  mcsv1beta1.ClusterSetIP,
		SessionAffinity:       svc.Spec.SessionAffinity,
		SessionAffinityConfig: svc.Spec.SessionAffinityConfig,
		InternalTrafficPolicy: svc.Spec.InternalTrafficPolicy,
		TrafficDistribution:   svc.Spec.TrafficDistribution,
		IPFamilies:            svc.Spec.IPFamilies,
		ExportedLabels:        export.Spec.ExportedLabels,
		ExportedAnnotations:   export.Spec.ExportedAnnotations,
	}
	spec.Preference, _ = PreferenceOf(export)
	spec.Probe, _ = ProbeOf(export)
	if svc.Spec.ClusterIP == corev1.ClusterIPNone {
		spec.Type = mcsv1beta1.Headless
	}
	for _, p := range svc.Spec.Ports {
		protocol := p.Protocol
		if protocol == "" {
			protocol = corev1.ProtocolTCP
		}
		spec.Ports = append(spec.Ports, hubv1alpha1.ServicePort{Name: p.Name, Protocol: protocol, Port: p.Port, AppProtocol: p.AppProtocol})
	}
	return spec
}

// AnnotationPreference of a ServiceExport, and of the ServiceImport that comes of it (T2).
const AnnotationPreference = "clusterset-dns.io/preference"

// PreferenceOf is what an export asks for, "" for nothing. What is not known is not asked for: an export does not end for a slip of the
// pen.
func PreferenceOf(export *mcsv1beta1.ServiceExport) (hubv1alpha1.Preference, error) {
	p := hubv1alpha1.Preference(export.Annotations[AnnotationPreference])
	if p == "" || knownPreference(p) {
		return p, nil
	}
	return "", fmt.Errorf("annotation %s: %q is none of %s, %s and %s, and has no effect", AnnotationPreference, p, hubv1alpha1.PreferNone, hubv1alpha1.PreferLocal, hubv1alpha1.LocalOnly)
}

func knownPreference(p hubv1alpha1.Preference) bool {
	return p == hubv1alpha1.PreferNone || p == hubv1alpha1.PreferLocal || p == hubv1alpha1.LocalOnly
}

// AnnotationProbe of a ServiceExport, and of the ServiceImport that comes of it (F4).
const AnnotationProbe = "clusterset-dns.io/probe"

// ProbeOf is what an export asks for, "" for nothing, as PreferenceOf.
func ProbeOf(export *mcsv1beta1.ServiceExport) (hubv1alpha1.Probe, error) {
	p := hubv1alpha1.Probe(export.Annotations[AnnotationProbe])
	if p == "" || knownProbe(p) {
		return p, nil
	}
	return "", fmt.Errorf("annotation %s: %q is none of %s, %s and %s, and has no effect", AnnotationProbe, p, hubv1alpha1.ProbeNone, hubv1alpha1.ProbeTCP, hubv1alpha1.ProbeGRPC)
}

func knownProbe(p hubv1alpha1.Probe) bool {
	return p == hubv1alpha1.ProbeNone || p == hubv1alpha1.ProbeTCP || p == hubv1alpha1.ProbeGRPC
}

// EndpointsOf is what other clusters need to know of a slice of the Service namespace/service; ok is false for addresses that are not
// IP (FQDN). Revision is left to the caller. The result shares memory with slice.
func EndpointsOf(cluster, service string, slice *discoveryv1.EndpointSlice) (spec hubv1alpha1.EndpointRecordSpec, ok bool) {
	if slice.AddressType != discoveryv1.AddressTypeIPv4 && slice.AddressType != discoveryv1.AddressTypeIPv6 {
		return spec, false
	}
	spec = hubv1alpha1.EndpointRecordSpec{
		Origin:      hubv1alpha1.Origin{ClusterID: cluster, ServiceNamespace: slice.Namespace, ServiceName: service},
		AddressType: slice.AddressType,
	}
	for _, p := range slice.Ports {
		port := hubv1alpha1.EndpointPort{Protocol: corev1.ProtocolTCP, Port: p.Port, AppProtocol: p.AppProtocol}
		if p.Name != nil {
			port.Name = *p.Name
		}
		if p.Protocol != nil {
			port.Protocol = *p.Protocol
		}
		spec.Ports = append(spec.Ports, port)
	}
	for i := range slice.Endpoints {
		e := &slice.Endpoints[i]
		if len(e.Addresses) == 0 {
			continue
		}
		out := hubv1alpha1.Endpoint{
			Address: e.Addresses[0],
			Ready:   e.Conditions.Ready, Serving: e.Conditions.Serving, Terminating: e.Conditions.Terminating,
		}
		if e.Hostname != nil {
			out.Hostname = *e.Hostname
		}
		if e.Zone != nil {
			out.Zone = *e.Zone
		}
		if e.TargetRef != nil && e.TargetRef.Kind == "Pod" {
			out.PodName = e.TargetRef.Name
		}
		spec.Endpoints = append(spec.Endpoints, out)
	}
	return spec, true
}
