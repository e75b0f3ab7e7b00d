// Package preview predicts what a change of an export makes of its name in every member, once agents have nothing left
// to do. Agents' own functions decide. The package reads and writes nothing. It goes by what the hub shows: not by what
// it has lost, nor by whether a member has and admits the namespace, or another program owns the name there.
package preview

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/endpoints"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/imports"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/liveness"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
	"github.com/clusterset-dns/clusterset-dns/controllers/serviceexport"
)

// State is what the hub shows of one name.
type State struct {
	types.NamespacedName
	kube.Published
	Expired map[string]liveness.State // by cluster ID
	Now     time.Time                 // by the hub's clock
}

// Exporter is a cluster that exports the name.
type Exporter struct {
	clusterset.Export
	sources  []*endpoints.Source
	external *clusterset.External
}

// Exporters returns who exports the name. It leaves out records that members refuse.
func (s *State) Exporters() (out []Exporter) {
	for _, cluster := range slices.Sorted(maps.Keys(s.Records)) {
		if rec := s.Records[cluster]; !rec.Spec.Withdrawn {
			groups, _ := s.Groups(cluster)
			out = add(out, rec, groups)
		}
	}
	return out
}

// After returns who exports the name once the export of one cluster is as given, and the condition Valid of its
// ServiceExport, if it has one.
func (s *State) After(g *serviceexport.Given) (out []Exporter, valid metav1.Condition) {
	out = slices.DeleteFunc(s.Exporters(), func(x Exporter) bool { return x.Cluster == g.Cluster.Cluster })
	if g.Export == nil {
		return out, valid
	}
	rec, valid := serviceexport.Preview(g, s.Now)
	if rec != nil {
		out = add(out, rec, rec.Spec.Endpoints)
	}
	return out, valid
}

func add(to []Exporter, rec *hubv1alpha1.ServiceExportRecord, groups []hubv1alpha1.EndpointGroup) []Exporter {
	e, err := clusterset.ParseExport(rec)
	if err != nil {
		return to
	}
	e.Published = rec.CreationTimestamp.UTC()
	x := Exporter{Export: e}
	x.external, _ = clusterset.ParseExternal(&rec.Spec, nil) // the exporter reports what is invalid
	for i := range groups {
		if g, _, err := clusterset.ParseGroup(&groups[i], nil); err == nil {
			name := endpoints.SourceName(i, e.Cluster)
			x.sources = append(x.sources, &endpoints.Source{Name: name, ClusterID: e.Cluster, EndpointGroup: g})
		}
	}
	return append(to, x)
}

// Import is what a member has of a name.
type Import struct {
	mcsv1beta1.ServiceImport          // without IPs
	Order                    []string // who exports it, in order of precedence (C1)
	Conflicts                []conflict.Conflict
	External                 map[string]*clusterset.External // for clients outside the clusters, by cluster ID
	Slices                   []*discoveryv1.EndpointSlice    // imported ones, also of the member's own endpoints
}

// In returns what a member has of the name; nil if nobody exports it to that one. families are those that its API
// server supports; nil if they are not known.
func (s *State) In(member clusterset.Place, families []corev1.IPFamily, exporters []Exporter) *Import {
	var exports []clusterset.Export
	var sources []*endpoints.Source
	outside := map[string]*clusterset.External{}
	for i := range exporters {
		if x := &exporters[i]; x.GoesTo(member) {
			exports = append(exports, x.Export)
			sources = append(sources, x.sources...)
			if x.external != nil {
				outside[x.Cluster] = x.external
			}
		}
	}
	if len(exports) == 0 {
		return nil
	}
	m, conflicts := conflict.Merge(exports)
	out := &Import{Conflicts: conflicts, External: outside}
	conflict.Order(exports)
	for i := range exports {
		out.Order = append(out.Order, exports[i].Cluster)
	}
	if families == nil {
		families = m.Families
	}
	imports.Metadata(&out.ServiceImport, &m, derived.Name(s.Namespace, s.Name), kube.Manager)
	out.Spec = imports.Spec(&m, derived.Families(m.Families, families), nil)
	expired := maps.Clone(s.Expired)
	delete(expired, member.Cluster)
	sources, _, _ = endpoints.Prefer(endpoints.Expire(sources, expired), member, &m, nil, s.Now)
	out.Slices = s.slices(sources, &m, kube.Manager)
	return out
}

func (s *State) slices(in []*endpoints.Source, m *conflict.Merged, by string) (out []*discoveryv1.EndpointSlice) {
	imp := &endpoints.Import{Namespace: s.Namespace, Name: s.Name, Derived: derived.Name(s.Namespace, s.Name),
		Manager: by, Merged: m}
	for _, src := range in {
		out = append(out, endpoints.Desired(src, imp))
	}
	return out
}

// Service returns a Service and slices that a cluster would export as it does now; nil if it exports none. They stand
// in for those of a cluster that was not read.
func (s *State) Service(cluster string) (*corev1.Service, []*discoveryv1.EndpointSlice) {
	all := s.Exporters()
	i := slices.IndexFunc(all, func(x Exporter) bool { return x.Cluster == cluster })
	if i < 0 {
		return nil, nil
	}
	rec, svc := &s.Records[cluster].Spec, &corev1.Service{}
	svc.Namespace, svc.Name = s.Namespace, s.Name
	svc.Spec = corev1.ServiceSpec{IPFamilies: rec.IPFamilies, SessionAffinity: rec.SessionAffinity,
		SessionAffinityConfig: rec.SessionAffinityConfig, InternalTrafficPolicy: rec.InternalTrafficPolicy,
		TrafficDistribution: rec.TrafficDistribution}
	if len(rec.IPFamilies) > 1 {
		svc.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicyPreferDualStack)
	}
	if rec.Type == mcsv1beta1.Headless {
		svc.Spec.ClusterIP = corev1.ClusterIPNone
	}
	for _, p := range rec.Ports {
		svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: p.Name, Protocol: p.Protocol, Port: p.Port,
			AppProtocol: p.AppProtocol})
	}
	if x := all[i].external; x != nil {
		svc.Spec.Type = corev1.ServiceTypeLoadBalancer
		at := &svc.Status.LoadBalancer
		for _, ip := range x.IPs {
			at.Ingress = append(at.Ingress, corev1.LoadBalancerIngress{IP: ip})
		}
		for _, name := range x.Hostnames {
			at.Ingress = append(at.Ingress, corev1.LoadBalancerIngress{Hostname: name})
		}
	}
	m, _ := conflict.Merge([]clusterset.Export{all[i].Export})
	return svc, s.slices(all[i].sources, &m, clusterset.ManagerOfService)
}

// Apply returns a Service as a cluster with these IP families has it once it was applied, as far as an export depends
// on that, and its slices: those of before, with its ports. was is the Service before; nil if there was none.
func Apply(svc, was *corev1.Service, in []*discoveryv1.EndpointSlice, families []corev1.IPFamily) (
	*corev1.Service, []*discoveryv1.EndpointSlice) {
	svc = svc.DeepCopy()
	spec := &svc.Spec
	if was != nil {
		svc.Status = was.Status
		spec.ClusterIP = cmp.Or(spec.ClusterIP, was.Spec.ClusterIP)
		spec.IPFamilyPolicy = cmp.Or(spec.IPFamilyPolicy, was.Spec.IPFamilyPolicy)
		if len(spec.IPFamilies) == 0 {
			spec.IPFamilies = was.Spec.IPFamilies
		}
	}
	all := slices.Concat(spec.IPFamilies, families)
	spec.IPFamilies = nil
	single := ptr.Deref(spec.IPFamilyPolicy, corev1.IPFamilyPolicySingleStack) == corev1.IPFamilyPolicySingleStack
	for _, f := range all {
		if !slices.Contains(spec.IPFamilies, f) && (len(spec.IPFamilies) == 0 || !single) {
			spec.IPFamilies = append(spec.IPFamilies, f)
		}
	}
	if spec.SessionAffinity == corev1.ServiceAffinityClientIP && spec.SessionAffinityConfig == nil {
		seconds := &corev1.ClientIPConfig{TimeoutSeconds: ptr.To(corev1.DefaultClientIPServiceAffinitySeconds)}
		spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: seconds}
	}
	var out []*discoveryv1.EndpointSlice
	for _, s := range in {
		if s.Labels[discoveryv1.LabelManagedBy] == clusterset.ManagerOfService {
			s = s.DeepCopy()
			before := s.Ports
			s.Ports = nil
			for _, p := range spec.Ports {
				var number *int32 // only Pods say that of a named targetPort: as before, or unknown
				same := func(b discoveryv1.EndpointPort) bool { return ptr.Deref(b.Name, "") == p.Name }
				if i := slices.IndexFunc(before, same); p.TargetPort.Type == intstr.Int {
					number = ptr.To(cmp.Or(p.TargetPort.IntVal, p.Port))
				} else if i >= 0 {
					number = before[i].Port
				}
				s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: &p.Name, AppProtocol: p.AppProtocol,
					Protocol: ptr.To(cmp.Or(p.Protocol, corev1.ProtocolTCP)), Port: number})
			}
		}
		out = append(out, s)
	}
	return svc, out
}
