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
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation"
	netutils "k8s.io/utils/net"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
)

// RecordOf returns the record of a Service that own exports, without revision and exportedAt. Optional parts that
// ParseExport would refuse, or that have no effect, are left out; leftOut has an error for each. A preference or an
// export-to that is invalid changes nothing: that of last stays, which was published last. The record shares memory
// with export and svc.
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
	for _, p := range ServicePorts(svc) {
		if !slices.Contains(protocols, p.Protocol) {
			unknown("protocol", string(p.Protocol))
			continue
		}
		spec.Ports = append(spec.Ports, p)
	}
	if err := checkCount("ports", len(spec.Ports)); err != nil {
		leftOut = append(leftOut, err)
		spec.Ports = mostNamed(spec.Ports, last.Ports)
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
		spec.Preference, err = parseOwnPreference(text)
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

func ServicePorts(svc *corev1.Service) []hubv1alpha1.ServicePort {
	out := make([]hubv1alpha1.ServicePort, 0, len(svc.Spec.Ports))
	for _, p := range svc.Spec.Ports {
		out = append(out, hubv1alpha1.ServicePort{
			Name: p.Name, Protocol: cmp.Or(p.Protocol, corev1.ProtocolTCP), Port: p.Port, AppProtocol: p.AppProtocol,
		})
	}
	return out
}

// Facts returns the parts of a record that a copy of it has: all but its endpoints.
func Facts(spec hubv1alpha1.ServiceExportRecordSpec) hubv1alpha1.ServiceExportRecordSpec {
	spec.Endpoints, spec.Pages = nil, 0
	return spec
}

// SameFacts reports whether two records differ in nothing but endpoints and revision.
func SameFacts(a, b *hubv1alpha1.ServiceExportRecordSpec) bool {
	x, y := Facts(*a), Facts(*b)
	x.Revision, y.Revision = 0, 0
	return equality.Semantic.DeepEqual(x, y)
}

// exportAnnotations are ours that a ServiceExport may have. annotationPrefix begins all of ours.
var exportAnnotations = []string{
	AnnotationPreference, AnnotationMinReady, AnnotationExportTo, AnnotationExternal, AnnotationExternalWeight,
}

const annotationPrefix = "clusterset-dns.io/"

// mostNamed returns the first maxItems of ports, beginning with those whose name or number exported has: they may carry
// traffic.
func mostNamed(ports, exported []hubv1alpha1.ServicePort) []hubv1alpha1.ServicePort {
	rank := func(p hubv1alpha1.ServicePort) int {
		if slices.ContainsFunc(exported, func(e hubv1alpha1.ServicePort) bool {
			return e.Name == p.Name || e.Protocol == p.Protocol && e.Port == p.Port
		}) {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(ports, func(a, b hubv1alpha1.ServicePort) int { return rank(a) - rank(b) })
	return ports[:maxItems]
}

// ManagerOfService makes slices from the selector of a Service. The other manager that Kubernetes has copies Endpoints,
// whose port names a user wrote.
const ManagerOfService = "endpointslice-controller.k8s.io"

// GroupOf returns the endpoints of one slice of a Service as they are published. Its ports get the numbers of those
// ports of the Service that have their names. A Service has new names before Kubernetes gives them to its slices: in a
// slice that Kubernetes made from the selector, a name that is none of the Service's stands for the number that its
// target had in was, the ports that were published last. Other slices go by their names alone, as in cluster.local.
// What no other cluster can import is left out; leftOut has an error for each. ok is false if nothing can be imported:
// the addresses are not IP addresses (FQDN). The group shares memory with slice.
func GroupOf(
	ports []hubv1alpha1.ServicePort, was []hubv1alpha1.EndpointPort, slice *discoveryv1.EndpointSlice,
) (group hubv1alpha1.EndpointGroup, leftOut []error, ok bool) {
	leave := func(format string, args ...any) {
		leftOut = append(leftOut, fmt.Errorf("EndpointSlice %s: "+format, append([]any{slice.Name}, args...)...))
	}
	if slice.AddressType != discoveryv1.AddressTypeIPv4 && slice.AddressType != discoveryv1.AddressTypeIPv6 {
		leave("addressType %s has no IP addresses", slice.AddressType)
		return group, leftOut, false
	}
	group.AddressType = slice.AddressType
	trigger := slice.Annotations[corev1.EndpointsLastChangeTriggerTime]
	if _, err := time.Parse(time.RFC3339Nano, trigger); err == nil && len(trigger) <= 64 { // as the hub's CRDs say
		group.LastChangeTriggerTime = trigger
	}
	byUser := slice.Labels[discoveryv1.LabelManagedBy] != ManagerOfService
	if byUser {
		was = nil
	}
	group.Ports = portsOf(ports, was, slice, func(p discoveryv1.EndpointPort, why string) {
		if byUser { // Kubernetes removes a port that is no longer one of the Service in a moment
			leave("port %q: %s", ptr.Deref(p.Name, ""), why)
		}
	})
	for i := range slice.Endpoints {
		e := &slice.Endpoints[i]
		if len(e.Addresses) == 0 {
			continue
		}
		out := endpointOf(e)
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
		group.Endpoints = append(group.Endpoints, out)
	}
	return group, leftOut, true
}

// portsOf returns the ports of a slice by the numbers of the Service's, sorted.
func portsOf(
	ports []hubv1alpha1.ServicePort, was []hubv1alpha1.EndpointPort, slice *discoveryv1.EndpointSlice,
	leave func(p discoveryv1.EndpointPort, why string),
) (out []hubv1alpha1.EndpointPort) {
	used := map[PortKey]bool{}
	add := func(key PortKey, p discoveryv1.EndpointPort) {
		used[key] = true
		port := hubv1alpha1.EndpointPort{
			Protocol:    key.Protocol,
			Port:        key.Number,
			Target:      p.Port,
			AppProtocol: p.AppProtocol,
		}
		if checkPort("", nil, ptr.Deref(p.AppProtocol, "")) != nil {
			port.AppProtocol = nil
		}
		out = append(out, port)
	}
	var unnamed []discoveryv1.EndpointPort // by the Service
	for _, p := range slice.Ports {
		protocol := cmp.Or(ptr.Deref(p.Protocol, ""), corev1.ProtocolTCP)
		i := slices.IndexFunc(ports, func(s hubv1alpha1.ServicePort) bool { return s.Name == ptr.Deref(p.Name, "") })
		switch number := ptr.Deref(p.Port, 1); {
		case number < 1 || number > 65535:
			leave(p, fmt.Sprintf("%d is not within 1..65535", number))
		case i < 0:
			unnamed = append(unnamed, p)
		case ports[i].Protocol != protocol:
			leave(p, fmt.Sprintf("its protocol is not %s", ports[i].Protocol))
		default:
			add(PortKey{protocol, ports[i].Port}, p)
		}
	}
	for _, p := range unnamed {
		protocol := cmp.Or(ptr.Deref(p.Protocol, ""), corev1.ProtocolTCP)
		i := slices.IndexFunc(was, func(w hubv1alpha1.EndpointPort) bool {
			return w.Protocol == protocol && ptr.Equal(w.Target, p.Port) && !used[PortKey{protocol, w.Port}] &&
				slices.ContainsFunc(ports, func(s hubv1alpha1.ServicePort) bool {
					return s.Protocol == protocol && s.Port == w.Port
				})
		})
		if i < 0 {
			leave(p, "the Service exports no such port")
			continue
		}
		add(PortKey{protocol, was[i].Port}, p)
	}
	slices.SortFunc(out, func(a, b hubv1alpha1.EndpointPort) int {
		return cmp.Or(cmp.Compare(a.Port, b.Port), cmp.Compare(a.Protocol, b.Protocol))
	})
	return out
}

// endpointOf returns an endpoint of a slice as it is published: what is so by default is not stated.
func endpointOf(e *discoveryv1.Endpoint) hubv1alpha1.Endpoint {
	out := hubv1alpha1.Endpoint{
		Address: Canonical(e.Addresses[0]), Hostname: ptr.Deref(e.Hostname, ""), Zone: ptr.Deref(e.Zone, ""),
	}
	ready := ptr.Deref(e.Conditions.Ready, true)
	if !ready {
		out.Ready = &ready
	}
	if serving := ptr.Deref(e.Conditions.Serving, ready); serving != ready {
		out.Serving = &serving
	}
	if terminating := ptr.Deref(e.Conditions.Terminating, false); terminating {
		out.Terminating = &terminating
	}
	if t := e.TargetRef; t != nil && t.Kind == "Pod" && len(validation.IsDNS1123Subdomain(t.Name)) == 0 {
		out.PodName = t.Name
	}
	return out
}

// Canonical returns an address of an EndpointSlice as Kubernetes writes it today. It once accepted others, such as
// 10.0.0.01, and keeps them.
func Canonical(address string) string {
	if ip := netutils.ParseIPSloppy(address); ip != nil {
		return ip.String()
	}
	return address
}
