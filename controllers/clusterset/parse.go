package clusterset

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
)

// ParseExport checks a record that is not withdrawn. It is the only way from a record to an Export: a peer is not trusted, and what
// passes here can be written to this cluster's API server. The error joins all that is wrong.
func ParseExport(rec *hubv1alpha1.ServiceExportRecord) (Export, error) {
	s := &rec.Spec
	if err := checkOrigin(&s.Origin); err != nil {
		return Export{}, err
	}
	if want := RecordName(s.ServiceName, s.ServiceNamespace, s.ClusterID); rec.Name != want {
		return Export{}, fmt.Errorf("the record is named %q, which does not fit its content (%q)", rec.Name, want)
	}
	e := Export{
		Cluster: s.ClusterID, Namespace: s.ServiceNamespace, Name: s.ServiceName, Type: s.Type,
		SessionAffinity: s.SessionAffinity, InternalTrafficPolicy: corev1.ServiceInternalTrafficPolicyCluster,
		Preference: s.Preference, Probe: s.Probe, Families: s.IPFamilies, Labels: s.ExportedLabels, Annotations: s.ExportedAnnotations,
	}
	var problems []error
	refuse := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }

	if s.ExportedAt.IsZero() { // also of what is not nil: it is read, and written as null
		refuse("exportedAt is missing")
	} else {
		e.Created = s.ExportedAt.UTC()
	}
	if s.Type != mcsv1beta1.ClusterSetIP && s.Type != mcsv1beta1.Headless {
		refuse("type %q is neither ClusterSetIP nor Headless", s.Type)
	}
	if e.SessionAffinity == "" {
		e.SessionAffinity = corev1.ServiceAffinityNone
	}
	if e.SessionAffinity != corev1.ServiceAffinityNone && e.SessionAffinity != corev1.ServiceAffinityClientIP {
		refuse("sessionAffinity %q is neither None nor ClientIP", s.SessionAffinity)
	}
	if c := s.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil {
		if t := *c.ClientIP.TimeoutSeconds; t < 1 || t > 86400 {
			refuse("sessionAffinityConfig: a timeout of %d s is not within 1..86400", t)
		}
		e.SessionAffinityConfig = c
	}
	if p := s.InternalTrafficPolicy; p != nil {
		if e.InternalTrafficPolicy = *p; *p != corev1.ServiceInternalTrafficPolicyCluster && *p != corev1.ServiceInternalTrafficPolicyLocal {
			refuse("internalTrafficPolicy %q is neither Cluster nor Local", *p)
		}
	}
	if d := s.TrafficDistribution; d != nil {
		if e.TrafficDistribution = *d; !knownDistributions[*d] {
			refuse("trafficDistribution %q is unknown", *d)
		}
	}
	if e.Preference == "" {
		e.Preference = hubv1alpha1.PreferNone
	}
	if !knownPreference(e.Preference) {
		refuse("preference %q is none of none, prefer-local and local-only", s.Preference)
	}
	if e.Probe != "" && !knownProbe(e.Probe) {
		refuse("probe %q is none of none, tcp and grpc", s.Probe)
	}
	if err := checkFamilies(s.IPFamilies); err != nil {
		refuse("%w", err)
	}
	var err error
	if e.Ports, err = parsePorts(s.Ports); err != nil {
		refuse("%w", err)
	}
	for _, of := range []struct {
		what string
		n    int
	}{{"ports", len(s.Ports)}, {"exportedLabels", len(s.ExportedLabels)}, {"exportedAnnotations", len(s.ExportedAnnotations)}} {
		if of.n > maxParts {
			refuse("%s: %d, of which there may be %d", of.what, of.n, maxParts)
		}
	}
	if err := checkMetadata(s.ExportedLabels, s.ExportedAnnotations); err != nil {
		refuse("%w", err)
	}
	if len(problems) > 0 {
		return Export{}, errors.Join(problems...)
	}
	return e, nil
}

// maxParts is how many ports, labels and annotations a record has at most: its CRD's bounds.
const maxParts = 256

// knownDistributions are the values that an API server may accept; "" is the same as none.
var knownDistributions = map[string]bool{
	"": true,
	corev1.ServiceTrafficDistributionPreferClose:    true,
	corev1.ServiceTrafficDistributionPreferSameZone: true,
	corev1.ServiceTrafficDistributionPreferSameNode: true,
}

func checkOrigin(o *hubv1alpha1.Origin) error {
	if err := CheckID(o.ClusterID); err != nil {
		return err
	}
	if p := validation.IsDNS1123Label(o.ServiceNamespace); len(p) > 0 {
		return fmt.Errorf("serviceNamespace %q: %s", o.ServiceNamespace, p[0])
	}
	// An RFC 1123 label, though most API servers ask RFC 1035 of a Service: ServiceImports may bear any.
	if p := validation.IsDNS1123Label(o.ServiceName); len(p) > 0 {
		return fmt.Errorf("serviceName %q: %s", o.ServiceName, p[0])
	}
	return nil
}

func checkFamilies(families []corev1.IPFamily) error {
	if len(families) < 1 || len(families) > 2 {
		return fmt.Errorf("ipFamilies %v: one or two are needed", families)
	}
	for i, f := range families {
		if f != corev1.IPv4Protocol && f != corev1.IPv6Protocol || slices.Contains(families[:i], f) {
			return fmt.Errorf("ipFamilies %v: must be IPv4, IPv6 or both", families)
		}
	}
	return nil
}

func parsePorts(in []hubv1alpha1.ServicePort) ([]Port, error) {
	type key struct {
		protocol corev1.Protocol
		number   int32
	}
	names, keys := map[string]bool{}, map[key]bool{}
	var out []Port
	for _, p := range in {
		port := Port{Name: p.Name, Protocol: p.Protocol, Number: p.Port}
		if p.AppProtocol != nil {
			port.AppProtocol = *p.AppProtocol
		}
		k := key{port.Protocol, port.Number}
		if err := checkPort(port.Name, port.Protocol, &port.Number, port.AppProtocol); err != nil {
			return nil, err
		}
		if port.Name == "" && len(in) > 1 {
			return nil, errors.New("ports: all need names where there are several")
		}
		if names[port.Name] || keys[k] {
			return nil, fmt.Errorf("ports: %s %d/%s is there twice, by name or by number", port.Name, port.Number, port.Protocol)
		}
		names[port.Name], keys[k] = true, true
		out = append(out, port)
	}
	return out, nil
}

func checkPort(name string, protocol corev1.Protocol, number *int32, appProtocol string) error {
	switch protocol {
	case corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP:
	default:
		return fmt.Errorf("port %q: protocol %q is none of TCP, UDP, SCTP", name, protocol)
	}
	if number != nil && (*number < 1 || *number > 65535) {
		return fmt.Errorf("port %q: %d is not within 1..65535", name, *number)
	}
	if name != "" {
		if p := validation.IsDNS1123Label(name); len(p) > 0 {
			return fmt.Errorf("port %q: %s", name, p[0])
		}
	}
	if appProtocol != "" {
		if p := validation.IsQualifiedName(appProtocol); len(p) > 0 {
			return fmt.Errorf("port %q: appProtocol %q: %s", name, appProtocol, p[0])
		}
	}
	return nil
}

// maxAnnotations is half of what an API server takes of one object: the ServiceImport bears those of others, too, and an export that does
// not fit there would stop every change of it. It bears the keys twice: one annotation lists those of labels and annotations (C8).
const maxAnnotations = 128 << 10

func checkMetadata(labels, annotations map[string]string) error {
	size := 0
	for k, v := range annotations {
		size += len(k) + len(v)
	}
	for _, m := range []map[string]string{labels, annotations} {
		for k := range m {
			size += len(k) + 1
		}
	}
	if size > maxAnnotations {
		return fmt.Errorf("exportedAnnotations, and the keys of both, which a ServiceImport lists: %d bytes, of which there may be %d", size, maxAnnotations)
	}
	errs := metav1validation.ValidateLabels(labels, field.NewPath("exportedLabels"))
	errs = append(errs, apivalidation.ValidateAnnotations(annotations, field.NewPath("exportedAnnotations"))...)
	return errs.ToAggregate()
}
