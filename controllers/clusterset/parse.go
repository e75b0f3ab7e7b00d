package clusterset

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
)

// ParseExport returns the Export of a member's copy of a record that is not withdrawn. It is the only way from a
// record to an Export: other members are not trusted, and only what an API server accepts may pass. For a record on
// the hub, set Published afterwards: its owner writes its annotations. The error may join several.
func ParseExport(rec *hubv1alpha1.ServiceExportRecord) (Export, error) {
	s := &rec.Spec
	if err := checkOrigin(&s.Origin); err != nil {
		return Export{}, err
	}
	if want := RecordName(s.ServiceName, s.ServiceNamespace, s.ClusterID); rec.Name != want {
		return Export{}, fmt.Errorf("the record is named %q, but its content asks for %q", rec.Name, want)
	}
	ports, err := parsePorts(s.Ports)
	e := Export{
		Cluster: s.ClusterID, Namespace: s.ServiceNamespace, Name: s.ServiceName, Type: s.Type, Ports: ports,
		SessionAffinity:       oneOf(s.SessionAffinity, affinities),
		InternalTrafficPolicy: oneOf(ptr.Deref(s.InternalTrafficPolicy, ""), policies),
		TrafficDistribution:   distributions[ptr.Deref(s.TrafficDistribution, "")],
		Properties:            s.Properties,
		Families:              s.IPFamilies, Labels: s.ExportedLabels, Annotations: s.ExportedAnnotations,
		Published: Published(rec).UTC(),
	}
	if c := s.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil {
		e.SessionAffinityConfig = c
	}
	if s.ExportedAt != nil {
		e.Created = s.ExportedAt.UTC()
	}
	if err := errors.Join(err, check(&e), parseSelection(&e, s)); err != nil {
		return Export{}, err
	}
	return e, nil
}

// parseSelection sets which clusters carry an export's traffic and which may import it, and checks its properties.
func parseSelection(e *Export, s *hubv1alpha1.ServiceExportRecordSpec) error {
	var err error
	if e.Preference, err = ParsePreference(string(s.Preference)); err != nil {
		return fmt.Errorf("preference: %w", err)
	}
	if e.MinReady, err = ParseMinReady(s.MinReady); err != nil {
		return fmt.Errorf("minReady: %w", err)
	}
	if e.ExportTo, err = ParseExportTo(s.ExportTo); err != nil {
		return fmt.Errorf("exportTo: %w", err)
	}
	return checkProperties(s.Properties)
}

// check returns everything that is wrong with an export, except for its origin and its ports.
func check(e *Export) error {
	var problems []error
	refuse := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }

	if e.Created.IsZero() {
		refuse("exportedAt is missing")
	}
	if e.Type != mcsv1beta1.ClusterSetIP && e.Type != mcsv1beta1.Headless {
		refuse("type %q is neither ClusterSetIP nor Headless", e.Type)
	}
	if c := e.SessionAffinityConfig; c != nil {
		if t := *c.ClientIP.TimeoutSeconds; t < 1 || t > 86400 {
			refuse("sessionAffinityConfig: a timeout of %d s is not within 1..86400", t)
		}
	}
	return errors.Join(append(problems, checkFamilies(e.Families), checkMetadata(e.Labels, e.Annotations))...)
}

// maxItems is how many ports, labels and annotations a record may have: the bound in its CRD.
const maxItems = 256

func checkCount(what string, n int) error {
	if n > maxItems {
		return fmt.Errorf("%s: %d are too many; the limit is %d", what, n, maxItems)
	}
	return nil
}

// What Kubernetes knows today. A value of a later version has no effect, and its exporter reports that.
var (
	affinities = []corev1.ServiceAffinity{corev1.ServiceAffinityNone, corev1.ServiceAffinityClientIP}
	policies   = []corev1.ServiceInternalTrafficPolicy{
		corev1.ServiceInternalTrafficPolicyCluster, corev1.ServiceInternalTrafficPolicyLocal,
	}
	protocols = []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}
)

// oneOf returns value, or the first of known if it is not among them.
func oneOf[T comparable](value T, known []T) T {
	if slices.Contains(known, value) {
		return value
	}
	return known[0]
}

// distributions maps each trafficDistribution that an API server may accept to the oldest name of its meaning:
// PreferClose and PreferSameZone are one (KEP-3015).
var distributions = map[string]string{
	corev1.ServiceTrafficDistributionPreferClose:    corev1.ServiceTrafficDistributionPreferClose,
	corev1.ServiceTrafficDistributionPreferSameZone: corev1.ServiceTrafficDistributionPreferClose,
	corev1.ServiceTrafficDistributionPreferSameNode: corev1.ServiceTrafficDistributionPreferSameNode,
}

func checkOrigin(o *hubv1alpha1.Origin) error {
	if err := CheckID(o.ClusterID); err != nil {
		return err
	}
	if p := validation.IsDNS1123Label(o.ServiceNamespace); len(p) > 0 {
		return fmt.Errorf("serviceNamespace %q: %s", o.ServiceNamespace, p[0])
	}
	// RFC 1123, although a Service's name must satisfy RFC 1035: a ServiceImport may have any such name.
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
	if err := checkCount("ports", len(in)); err != nil {
		return nil, err
	}
	names, keys := map[string]bool{}, map[PortKey]bool{}
	var out []Port
	for _, p := range in {
		if !slices.Contains(protocols, p.Protocol) {
			continue
		}
		port := Port{Name: p.Name, Protocol: p.Protocol, Number: p.Port, AppProtocol: ptr.Deref(p.AppProtocol, "")}
		if err := checkPort(port.Name, &port.Number, port.AppProtocol); err != nil {
			return nil, fmt.Errorf("port %q: %w", port.Name, err)
		}
		if port.Name == "" && len(in) > 1 {
			return nil, errors.New("ports: if there are several, each needs a name")
		}
		if names[port.Name] || keys[port.Key()] {
			return nil, fmt.Errorf("ports: the name or the number of %s %d/%s is used twice",
				port.Name, port.Number, port.Protocol)
		}
		names[port.Name], keys[port.Key()] = true, true
		out = append(out, port)
	}
	return out, nil
}

// checkPort returns why a port is invalid, without naming it.
func checkPort(name string, number *int32, appProtocol string) error {
	if number != nil && (*number < 1 || *number > 65535) {
		return fmt.Errorf("%d is not within 1..65535", *number)
	}
	if name != "" {
		if p := validation.IsDNS1123Label(name); len(p) > 0 {
			return errors.New(p[0])
		}
	}
	if appProtocol != "" {
		if p := validation.IsQualifiedName(appProtocol); len(p) > 0 {
			return fmt.Errorf("appProtocol %q: %s", appProtocol, p[0])
		}
	}
	return nil
}
