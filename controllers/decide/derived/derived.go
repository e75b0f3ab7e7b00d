// Package derived decides what the derived Service of a ServiceImport looks like: the Service whose clusterIP is the
// VIP (DESIGN §5, SPEC I3, I6, V). The input is the merged export, the families of this cluster and the existing
// Service. It is pure and writes nothing.
package derived

import (
	"crypto/sha256"
	"encoding/base32"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
)

const (
	// LabelManagedBy marks what the agent created. The admission policy on deletion checks it.
	LabelManagedBy = clusterset.LabelManagedBy
	// LabelServiceProxy names another service proxy than kube-proxy, which then ignores the object.
	LabelServiceProxy = "service.kubernetes.io/service-proxy-name"
	// AnnotationAdopt gives an object to the agent (kube.Writable). The agent removes it from what it writes.
	AnnotationAdopt = "clusterset-dns.io/adopt"
	// AnnotationImport names the import (namespace/name) that a derived Service belongs to.
	AnnotationImport = "clusterset-dns.io/import"
	// AnnotationUnusedSince is when the import was deleted (RFC 3339). The quarantine of the VIP begins then.
	AnnotationUnusedSince = "clusterset-dns.io/unused-since"
)

// Quarantine is how long a VIP outlives its import: longer than caches keep an answer with it (the plugin's TTL is at
// most an hour), and long enough for an exporter to return.
const Quarantine = time.Hour + time.Minute

// Name returns the name of the derived Service (DESIGN §11).
func Name(namespace, name string) string {
	sum := sha256.Sum256([]byte(namespace + "/" + name))
	return "derived-" + strings.ToLower(base32.HexEncoding.EncodeToString(sum[:]))[:10]
}

// Named reports whether a name has the form of Name. A user's Service may have such a name, too.
func Named(name string) bool {
	sum, found := strings.CutPrefix(name, "derived-")
	return found && len(sum) == 10 && strings.Trim(sum, "0123456789abcdefghijklmnopqrstuv") == ""
}

// youth is one second, because creation times are whole seconds, plus one second for a difference between clocks.
const youth = 2 * time.Second

// Young reports whether a derived Service was created within this second. It must not get another address yet: the
// API server's repair releases an address that is no younger than the Service if the Service does not show it yet
// (Kubernetes 1.36, syncIPAddress).
func Young(svc *corev1.Service, now time.Time) bool {
	return now.Sub(svc.CreationTimestamp.Time).Abs() < youth
}

// Families returns the merged families that this cluster supports, in the merged order (C7).
func Families(merged, supported []corev1.IPFamily) []corev1.IPFamily {
	var out []corev1.IPFamily
	for _, f := range merged {
		if slices.Contains(supported, f) {
			out = append(out, f)
		}
	}
	return out
}

// Service returns the derived Service of a ClusterSetIP import with at least one family. existing may be nil and is
// not changed. Its addresses, primary family and families stay, because they must not change while the import exists.
// vips are addresses to request, of families that existing has no address of. These families come first: an address
// can be requested only together with those before it.
func Service(
	namespace, name, manager string,
	m *conflict.Merged,
	families []corev1.IPFamily,
	existing *corev1.Service,
	vips []netip.Addr,
) *corev1.Service {
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: Name(namespace, name)}}
	if existing != nil {
		svc.ObjectMeta = *existing.ObjectMeta.DeepCopy()
		svc.Spec.ClusterIP, svc.Spec.ClusterIPs = existing.Spec.ClusterIP, slices.Clone(existing.Spec.ClusterIPs)
		svc.Spec.IPFamilies = slices.Clone(existing.Spec.IPFamilies)
		svc.Status = existing.Status
	}
	for _, vip := range vips {
		svc.Spec.ClusterIPs = append(svc.Spec.ClusterIPs, vip.String())
		svc.Spec.IPFamilies = append(svc.Spec.IPFamilies, ipam.Family(vip))
		svc.Spec.ClusterIP = svc.Spec.ClusterIPs[0]
	}
	if svc.Labels == nil {
		svc.Labels = map[string]string{}
	}
	svc.Labels[LabelManagedBy] = manager
	delete(svc.Labels, LabelServiceProxy)
	if svc.Annotations == nil {
		svc.Annotations = map[string]string{}
	}
	svc.Annotations[AnnotationImport] = namespace + "/" + name
	delete(svc.Annotations, AnnotationUnusedSince)
	delete(svc.Annotations, AnnotationAdopt)
	fill(&svc.Spec, m, families)
	return svc
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
			spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{
				TimeoutSeconds: ptr.To(corev1.DefaultClientIPServiceAffinitySeconds),
			}}
		}
	}
	spec.InternalTrafficPolicy = ptr.To(m.InternalTrafficPolicy)
	if m.TrafficDistribution != "" {
		spec.TrafficDistribution = ptr.To(m.TrafficDistribution)
	}
}

// portPrefix begins the names of the derived Service's ports, and no protocol does: service meshes read one there.
const portPrefix = "clusterset-"

// PortName returns the name of a port on the derived Service. It does not depend on those of exporters. kube-proxy
// joins Services and slices by port name and sees changes to both in any order, so a rename would always cut traffic
// (C9).
func PortName(p clusterset.Port) string { return portPrefix + conflict.GivenName(p) }

func ports(m *conflict.Merged) []corev1.ServicePort {
	var out []corev1.ServicePort
	for _, p := range m.Ports {
		port := corev1.ServicePort{
			Name:       PortName(p),
			Protocol:   p.Protocol,
			Port:       p.Number,
			TargetPort: intstr.FromInt32(p.Number),
		}
		if p.AppProtocol != "" {
			port.AppProtocol = ptr.To(p.AppProtocol)
		}
		out = append(out, port)
	}
	return out
}

// Same reports whether writing desired over existing would change nothing.
func Same(desired, existing *corev1.Service) bool {
	return equality.Semantic.DeepEqual(desired.Spec, existing.Spec) &&
		equality.Semantic.DeepEqual(desired.Labels, existing.Labels) &&
		equality.Semantic.DeepEqual(desired.Annotations, existing.Annotations)
}

// Held returns the given families that svc has an address of. svc may be nil.
func Held(svc *corev1.Service, families []corev1.IPFamily) []corev1.IPFamily {
	var out []corev1.IPFamily
	for _, f := range families {
		if svc != nil && IPs(svc, []corev1.IPFamily{f}) != nil {
			out = append(out, f)
		}
	}
	return out
}

// IPs returns the VIPs in the order of the import's families (I3), or nil until the Service has all of them.
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

// QuarantineLeft returns how long an unused derived Service must stay; it may be deleted if left is not positive.
// dated is false if the Service has no valid AnnotationUnusedSince, which the caller then sets.
func QuarantineLeft(svc *corev1.Service, now time.Time) (left time.Duration, dated bool) {
	since, err := time.Parse(time.RFC3339, svc.Annotations[AnnotationUnusedSince])
	if err != nil {
		return Quarantine, false
	}
	return since.Add(Quarantine).Sub(now), true
}

// Import returns the name of the import from the annotations of its derived Service.
func Import(annotations map[string]string) (name types.NamespacedName) {
	name.Namespace, name.Name, _ = strings.Cut(annotations[AnnotationImport], "/")
	return name
}
