// Package derived decides what the derived Service of an import is: the Service whose clusterIP is the VIP (DESIGN §5, SPEC I3, I6, V).
// Pure: the merged export, what this cluster supports, and the Service as it is, in; the Service as it ought to be out.
package derived

import (
	"crypto/sha256"
	"encoding/base32"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
)

const (
	// LabelManagedBy marks what the agent made; the admission policy on deletion goes by it.
	LabelManagedBy = "app.kubernetes.io/managed-by"
	// AnnotationImport names the import (namespace/name) that a derived Service belongs to.
	AnnotationImport = "clusterset-dns.io/import"
	// AnnotationUnusedSince is when the import went: the VIP is kept for the quarantine from then on (RFC 3339).
	AnnotationUnusedSince = "clusterset-dns.io/unused-since"
)

// Quarantine is how long a VIP outlives its import: longer than any answer with it may live in a cache (the plugin's ttl is at most an
// hour, from an answer that it gives while it has not seen the import go), and long enough for an exporter that comes back.
const Quarantine = time.Hour + time.Minute

// Name of the derived Service (DESIGN §11).
func Name(namespace, name string) string {
	sum := sha256.Sum256([]byte(namespace + "/" + name))
	return "derived-" + strings.ToLower(base32.HexEncoding.EncodeToString(sum[:]))[:10]
}

// Named tells whether a name has the form of Name. A user's Service may have it, too.
func Named(name string) bool {
	sum, found := strings.CutPrefix(name, "derived-")
	return found && len(sum) == 10 && strings.Trim(sum, "0123456789abcdefghijklmnopqrstuv") == ""
}

// Is tells whether manager made svc as the derived Service of an import.
func Is(svc *corev1.Service, manager string) bool {
	return svc.Labels[LabelManagedBy] == manager && strings.HasPrefix(svc.Name, "derived-")
}

// youth is a second of the API server's, whole, and one by which two clocks may differ.
const youth = 2 * time.Second

// Young tells whether a derived Service may have been made in this very second, in which it is to get no address: the API server's repair
// goes by creationTimestamps, which are whole seconds, and takes back at once what it finds to be no younger than a Service that it does not
// show to have it yet (Kubernetes 1.36, syncIPAddress). Where clocks differ by more, it is what else guards a VIP that helps (V4).
func Young(svc *corev1.Service, now time.Time) bool {
	return now.Sub(svc.CreationTimestamp.Time).Abs() < youth
}

// Families are those of the import: what was merged, as far as this cluster supports it (C7), in the merged order.
func Families(merged, supported []corev1.IPFamily) []corev1.IPFamily {
	var out []corev1.IPFamily
	for _, f := range merged {
		if slices.Contains(supported, f) {
			out = append(out, f)
		}
	}
	return out
}

// Service is the derived Service of a ClusterSetIP import with these families (at least one). existing may be nil, and is not changed;
// what the result has of it (addresses, primary family, families once held) must not change while the import lives. asked are addresses
// to ask for, of families that existing has none of: their families come before others, since an address can be asked for only together
// with those before it.
func Service(namespace, name, manager string, m *conflict.Merged, families []corev1.IPFamily, existing *corev1.Service, asked []string) *corev1.Service {
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: Name(namespace, name)}}
	if existing != nil {
		svc.ObjectMeta = *existing.ObjectMeta.DeepCopy()
		svc.Spec.ClusterIP, svc.Spec.ClusterIPs = existing.Spec.ClusterIP, slices.Clone(existing.Spec.ClusterIPs)
		svc.Spec.IPFamilies = slices.Clone(existing.Spec.IPFamilies)
		svc.Status = existing.Status
	}
	for _, vip := range asked {
		svc.Spec.ClusterIPs, svc.Spec.IPFamilies = append(svc.Spec.ClusterIPs, vip), append(svc.Spec.IPFamilies, family(vip))
		svc.Spec.ClusterIP = svc.Spec.ClusterIPs[0]
	}
	if svc.Labels == nil {
		svc.Labels = map[string]string{}
	}
	svc.Labels[LabelManagedBy] = manager
	if svc.Annotations == nil {
		svc.Annotations = map[string]string{}
	}
	svc.Annotations[AnnotationImport] = namespace + "/" + name
	delete(svc.Annotations, AnnotationUnusedSince)
	fill(&svc.Spec, m, families)
	return svc
}

func family(address string) corev1.IPFamily {
	if strings.Contains(address, ":") {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}

func fill(spec *corev1.ServiceSpec, m *conflict.Merged, families []corev1.IPFamily) {
	spec.Type = corev1.ServiceTypeClusterIP
	for _, f := range families {
		if !slices.Contains(spec.IPFamilies, f) {
			spec.IPFamilies = append(spec.IPFamilies, f)
		}
	}
	policy := corev1.IPFamilyPolicySingleStack
	if len(spec.IPFamilies) > 1 {
		policy = corev1.IPFamilyPolicyRequireDualStack
	}
	spec.IPFamilyPolicy = &policy
	spec.Ports = ports(m)
	spec.SessionAffinity = m.SessionAffinity
	if m.SessionAffinity == corev1.ServiceAffinityClientIP {
		if spec.SessionAffinityConfig = m.SessionAffinityConfig.DeepCopy(); spec.SessionAffinityConfig == nil {
			timeout := corev1.DefaultClientIPServiceAffinitySeconds
			spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &timeout}}
		}
	}
	traffic := m.InternalTrafficPolicy
	spec.InternalTrafficPolicy = &traffic
	if m.TrafficDistribution != "" {
		distribution := m.TrafficDistribution
		spec.TrafficDistribution = &distribution
	}
}

// PortName is what the derived Service calls a port. It never changes while the port lives, whatever exporters call it: kube-proxy joins
// Services and slices by name, and hears of changes to the two in any order, so that no order of writes could change a name without
// cutting traffic (C9, docs/decisions/0006).
func PortName(protocol corev1.Protocol, number int32) string {
	return strings.ToLower(string(protocol)) + "-" + strconv.Itoa(int(number))
}

func ports(m *conflict.Merged) []corev1.ServicePort {
	var out []corev1.ServicePort
	for _, p := range m.Ports {
		port := corev1.ServicePort{Name: PortName(p.Protocol, p.Number), Protocol: p.Protocol, Port: p.Number, TargetPort: intstr.FromInt32(p.Number)}
		if p.AppProtocol != "" {
			app := p.AppProtocol
			port.AppProtocol = &app
		}
		out = append(out, port)
	}
	return out
}

// Same tells whether writing desired over existing would change nothing.
func Same(desired, existing *corev1.Service) bool {
	return equality.Semantic.DeepEqual(desired.Spec, existing.Spec) &&
		equality.Semantic.DeepEqual(desired.Labels, existing.Labels) &&
		equality.Semantic.DeepEqual(desired.Annotations, existing.Annotations)
}

// Held are those of these families that svc has an address of. svc may be nil.
func Held(svc *corev1.Service, families []corev1.IPFamily) []corev1.IPFamily {
	var out []corev1.IPFamily
	for _, f := range families {
		if svc != nil && IPs(svc, []corev1.IPFamily{f}) != nil {
			out = append(out, f)
		}
	}
	return out
}

// IPs are the VIPs in the order of the import's families (I3); none until the API server has given all of them.
func IPs(svc *corev1.Service, families []corev1.IPFamily) []string {
	var out []string
	for _, f := range families {
		i := slices.Index(svc.Spec.IPFamilies, f)
		if i < 0 || i >= len(svc.Spec.ClusterIPs) {
			return nil
		}
		out = append(out, svc.Spec.ClusterIPs[i])
	}
	return out
}

// Expired tells when an unused derived Service may go: after left, which is not positive once it may. A Service without a readable
// date is given one by the caller.
func Expired(svc *corev1.Service, now time.Time) (left time.Duration, dated bool) {
	since, err := time.Parse(time.RFC3339, svc.Annotations[AnnotationUnusedSince])
	if err != nil {
		return Quarantine, false
	}
	return since.Add(Quarantine).Sub(now), true
}

// Import names the import that a derived Service with these annotations belongs to.
func Import(annotations map[string]string) (name types.NamespacedName) {
	name.Namespace, name.Name, _ = strings.Cut(annotations[AnnotationImport], "/")
	return name
}
