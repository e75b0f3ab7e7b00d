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
	"k8s.io/apimachinery/pkg/util/validation"
	netutils "k8s.io/utils/net"
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
	unknown := func(what, value string) {
		const text = "%s %q is not known to this version of the agent"
		leftOut = append(leftOut, fmt.Errorf(text, what, value))
	}
	for _, p := range svc.Spec.Ports {
		protocol := cmp.Or(p.Protocol, corev1.ProtocolTCP)
		if !slices.Contains(protocols, protocol) {
			unknown("protocol", string(protocol))
			continue
		}
		port := hubv1alpha1.ServicePort{Name: p.Name, Protocol: protocol, Port: p.Port, AppProtocol: p.AppProtocol}
		spec.Ports = append(spec.Ports, port)
	}
	if err := checkCount("ports", len(spec.Ports)); err != nil {
		leftOut = append(leftOut, err)
		spec.Ports = mostNamed(spec.Ports, func(p hubv1alpha1.ServicePort) string { return p.Name }, last.Ports)
	}
	if a := svc.Spec.SessionAffinity; a != "" && !slices.Contains(affinities, a) {
		unknown("sessionAffinity", string(a))
		spec.SessionAffinity, spec.SessionAffinityConfig = affinities[0], nil
	}
	if p := svc.Spec.InternalTrafficPolicy; p != nil && !slices.Contains(policies, *p) {
		unknown("internalTrafficPolicy", string(*p))
		spec.InternalTrafficPolicy = nil
	}
	labels, annotations, invalidMetadata := exportable(export.Spec.ExportedLabels, export.Spec.ExportedAnnotations)
	spec.ExportedLabels, spec.ExportedAnnotations = labels, annotations
	leftOut = append(leftOut, invalidMetadata...)
	if d := ptr.Deref(svc.Spec.TrafficDistribution, ""); d == "" || distributions[d] != "" {
		spec.TrafficDistribution = svc.Spec.TrafficDistribution
	} else {
		unknown("trafficDistribution", d)
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

// mostNamed returns the first maxItems of ports, beginning with those that exported names: they may carry traffic.
func mostNamed[P any](ports []P, name func(P) string, exported []hubv1alpha1.ServicePort) []P {
	rank := func(p P) int {
		if slices.ContainsFunc(exported, func(e hubv1alpha1.ServicePort) bool { return e.Name == name(p) }) {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(ports, func(a, b P) int { return rank(a) - rank(b) })
	return ports[:maxItems]
}

// EndpointsOf returns the record of one slice of a Service that is exported with these ports, without a revision.
// What no other cluster can import is left out; leftOut has an error for each. ok is false if nothing can be imported:
// the addresses are not IP addresses (FQDN). The record shares memory with slice.
func EndpointsOf(
	cluster, service string, exported []hubv1alpha1.ServicePort, slice *discoveryv1.EndpointSlice,
) (spec hubv1alpha1.EndpointRecordSpec, leftOut []error, ok bool) {
	leave := func(format string, args ...any) {
		leftOut = append(leftOut, fmt.Errorf("EndpointSlice %s: "+format, append([]any{slice.Name}, args...)...))
	}
	if slice.AddressType != discoveryv1.AddressTypeIPv4 && slice.AddressType != discoveryv1.AddressTypeIPv6 {
		leave("addressType %s has no IP addresses", slice.AddressType)
		return spec, leftOut, false
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
		port := hubv1alpha1.EndpointPort{
			Name: ptr.Deref(p.Name, ""), Protocol: ptr.Deref(p.Protocol, corev1.ProtocolTCP),
			Port: p.Port, AppProtocol: p.AppProtocol,
		}
		err := checkPort(port.Name, p.Port, ptr.Deref(p.AppProtocol, ""))
		switch {
		case err != nil:
			leave("%w", err)
		case !slices.Contains(protocols, port.Protocol):
			leave("port %q: protocol %q is not known to this version of the agent", port.Name, port.Protocol)
		default:
			spec.Ports = append(spec.Ports, port)
		}
	}
	if err := checkCount("ports", len(spec.Ports)); err != nil {
		leave("%w", err)
		spec.Ports = mostNamed(spec.Ports, func(p hubv1alpha1.EndpointPort) string { return p.Name }, exported)
	}
	for i := range slice.Endpoints {
		e := &slice.Endpoints[i]
		if len(e.Addresses) == 0 {
			continue
		}
		out := hubv1alpha1.Endpoint{
			Address: Canonical(e.Addresses[0]), Hostname: ptr.Deref(e.Hostname, ""), Zone: ptr.Deref(e.Zone, ""),
			Ready: e.Conditions.Ready, Serving: e.Conditions.Serving, Terminating: e.Conditions.Terminating,
		}
		if t := e.TargetRef; t != nil && t.Kind == "Pod" && len(validation.IsDNS1123Subdomain(t.Name)) == 0 {
			out.PodName = t.Name
		}
		if n := len(e.Addresses) - 1; n > 0 {
			leave("address %s: %d more addresses of the endpoint; Kubernetes gives no meaning to them", out.Address, n)
		}
		if len(validation.IsValidLabelValue(out.Zone)) > 0 {
			leave("address %s: its zone, which is no label value", out.Address)
			out.Zone = ""
		}
		if err := checkEndpoint(&out, slice.AddressType, nil); err != nil {
			leave("%w", err)
			continue
		}
		spec.Endpoints = append(spec.Endpoints, out)
	}
	return spec, leftOut, true
}

// Canonical returns an address of an EndpointSlice as Kubernetes writes it today. It once accepted others, such as
// 10.0.0.01, and keeps them.
func Canonical(address string) string {
	if ip := netutils.ParseIPSloppy(address); ip != nil {
		return ip.String()
	}
	return address
}
