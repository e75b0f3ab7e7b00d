package clusterset

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
)

// RecordOf returns the record of a Service that own exports, without revision and exportedAt. Optional parts that
// ParseExport would refuse are left out; leftOut has an error for each. A preference or an export-to that is invalid
// changes nothing: that of last stays, which was published last. The record shares memory with export and svc.
func RecordOf(
	own Place, last *hubv1alpha1.ServiceExportRecordSpec, export *mcsv1beta1.ServiceExport, svc *corev1.Service,
) (spec hubv1alpha1.ServiceExportRecordSpec, leftOut []error) {
	spec = hubv1alpha1.ServiceExportRecordSpec{
		Origin: hubv1alpha1.Origin{
			ClusterID: own.Cluster, ServiceNamespace: svc.Namespace, ServiceName: svc.Name,
		},
		Properties:            Stated(own.Properties),
		Type:                  mcsv1beta1.ClusterSetIP,
		SessionAffinity:       svc.Spec.SessionAffinity,
		SessionAffinityConfig: svc.Spec.SessionAffinityConfig,
		InternalTrafficPolicy: svc.Spec.InternalTrafficPolicy,
		IPFamilies:            svc.Spec.IPFamilies,
	}
	if svc.Spec.ClusterIP == corev1.ClusterIPNone {
		spec.Type = mcsv1beta1.Headless
	}
	for _, p := range svc.Spec.Ports {
		spec.Ports = append(spec.Ports, hubv1alpha1.ServicePort{
			Name:        p.Name,
			Protocol:    cmp.Or(p.Protocol, corev1.ProtocolTCP),
			Port:        p.Port,
			AppProtocol: p.AppProtocol,
		})
	}
	spec.ExportedLabels, spec.ExportedAnnotations, leftOut = exportable(
		export.Spec.ExportedLabels, export.Spec.ExportedAnnotations)
	if d := ptr.Deref(svc.Spec.TrafficDistribution, ""); knownDistributions[d] {
		spec.TrafficDistribution = svc.Spec.TrafficDistribution
	} else {
		leftOut = append(leftOut, fmt.Errorf("trafficDistribution %q is not known to this version of the agent", d))
	}
	invalid := func(annotation string, err error) {
		if err != nil {
			leftOut = append(leftOut, fmt.Errorf("annotation %s: %w", annotation, err))
		}
	}
	minReady, err := ParseMinReady(export.Annotations[AnnotationMinReady])
	spec.MinReady = string(minReady)
	invalid(AnnotationMinReady, err)
	if text := export.Annotations[AnnotationPreference]; text != "" && err == nil {
		spec.Preference, err = ParsePreference(text)
		invalid(AnnotationPreference, err)
	}
	if err != nil {
		spec.Preference, spec.MinReady = last.Preference, last.MinReady
	}
	if spec.ExportTo, err = ParseExportTo(export.Annotations[AnnotationExportTo]); err != nil {
		spec.ExportTo = last.ExportTo
		invalid(AnnotationExportTo, err)
	}
	for _, key := range slices.Sorted(maps.Keys(export.Annotations)) {
		if strings.HasPrefix(key, annotationPrefix) && !slices.Contains(exportAnnotations, key) {
			leftOut = append(leftOut, fmt.Errorf("annotation %s is not known to this version of the agent", key))
		}
	}
	var problems []error
	if spec.External, problems = externalOf(own, export, svc); spec.External != nil {
		spec.Properties = Stated(own.Properties, propertyRegion, propertyContinent, propertyLocation)
	}
	return spec, append(leftOut, problems...)
}

// exportAnnotations are ours that a ServiceExport may have. annotationPrefix begins all of ours.
var exportAnnotations = []string{
	AnnotationPreference, AnnotationMinReady, AnnotationExportTo, AnnotationExternal, AnnotationExternalWeight,
}

const annotationPrefix = "clusterset-dns.io/"

// EndpointsOf returns the record of one slice of the Service, without a revision. ok is false if its addresses are
// not IP addresses (FQDN). The record shares memory with slice.
func EndpointsOf(
	cluster, service string, slice *discoveryv1.EndpointSlice,
) (spec hubv1alpha1.EndpointRecordSpec, ok bool) {
	if slice.AddressType != discoveryv1.AddressTypeIPv4 && slice.AddressType != discoveryv1.AddressTypeIPv6 {
		return spec, false
	}
	spec = hubv1alpha1.EndpointRecordSpec{
		Origin: hubv1alpha1.Origin{
			ClusterID:        cluster,
			ServiceNamespace: slice.Namespace,
			ServiceName:      service,
		},
		AddressType: slice.AddressType,
	}
	trigger := slice.Annotations[corev1.EndpointsLastChangeTriggerTime]
	if _, err := time.Parse(time.RFC3339Nano, trigger); err == nil {
		spec.LastChangeTriggerTime = trigger
	}
	for _, p := range slice.Ports {
		spec.Ports = append(spec.Ports, hubv1alpha1.EndpointPort{
			Name: ptr.Deref(p.Name, ""), Protocol: ptr.Deref(p.Protocol, corev1.ProtocolTCP),
			Port: p.Port, AppProtocol: p.AppProtocol,
		})
	}
	for i := range slice.Endpoints {
		e := &slice.Endpoints[i]
		if len(e.Addresses) == 0 {
			continue
		}
		out := hubv1alpha1.Endpoint{
			Address: e.Addresses[0], Hostname: ptr.Deref(e.Hostname, ""), Zone: ptr.Deref(e.Zone, ""),
			Ready: e.Conditions.Ready, Serving: e.Conditions.Serving, Terminating: e.Conditions.Terminating,
		}
		if e.TargetRef != nil && e.TargetRef.Kind == "Pod" {
			out.PodName = e.TargetRef.Name
		}
		spec.Endpoints = append(spec.Endpoints, out)
	}
	return spec, true
}
