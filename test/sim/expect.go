package sim

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
	"github.com/clusterset-dns/clusterset-dns/test/model/resolution"
	"github.com/clusterset-dns/clusterset-dns/test/sim/api"
)

// truth is what one name must come to, in every cluster: computed from the users' objects and the text, not by the
// reconcilers.
type truth struct {
	name    types.NamespacedName
	exports []clusterset.Export // of all clusters
	merged  conflict.Merged
	reasons []string // of conflict
	sources []source
	own     resolution.Place // who looks at it
}

// place is an exporter as others select it.
func (t *truth) place(cluster string) resolution.Place {
	for _, e := range t.exports {
		if e.Cluster == cluster {
			return resolution.Place{ID: cluster, Properties: e.Properties}
		}
	}
	return resolution.Place{ID: cluster}
}

// placeOf is a member as it sees itself.
func placeOf(id string) resolution.Place {
	if regions[id] == "" {
		return resolution.Place{ID: id}
	}
	return resolution.Place{ID: id, Properties: map[string]string{"region": regions[id]}}
}

// source is one EndpointSlice of one exporter. Its own cluster imports it as it is; others import its endpoints, in slices
// of any number.
type source struct {
	cluster string
	own     string // what its own cluster's imported slice says that it is of
	slice   *discoveryv1.EndpointSlice
	keys    map[string]clusterset.PortKey // by name of the slice's ports
	peer    bool                          // of the liar's: of its addresses, not all may be imported
}

// name is the import's for a port of the source; ok is false if its cluster does not serve that (C4).
func (t *truth) nameOf(s source, port string) (name string, ok bool) {
	key, named := s.keys[port]
	if named {
		name, ok = t.merged.Names[s.cluster][key]
	}
	return name, ok
}

// verdict is what must become of one ServiceExport (E3).
type verdict string

const (
	valid       verdict = "Valid"
	noService   verdict = "NoService"
	invalidType verdict = "InvalidServiceType"
)

// exportOf is what a member exports under a name, and what its ServiceExport must say of that; "" where there is none.
func exportOf(m *member, n types.NamespacedName) (e clusterset.Export, v verdict) {
	export := get[*mcsv1beta1.ServiceExport](m, api.ServiceExport, n)
	svc := get[*corev1.Service](m, api.Service, n)
	switch {
	case export == nil:
		return e, ""
	case svc == nil:
		return e, noService
	case svc.Spec.Type == corev1.ServiceTypeExternalName:
		return e, invalidType
	}
	e = resolution.Of(m.id, export, svc)
	e.Properties = placeOf(m.id).Properties
	return e, valid
}

// truthOf resolves one name.
func (w *World) truthOf(n types.NamespacedName) truth {
	t := truth{name: n}
	for _, m := range w.honest() {
		e, v := exportOf(m, n)
		if v != valid {
			continue
		}
		t.exports = append(t.exports, e)
		for _, s := range m.slicesOf(n) {
			if s.AddressType != discoveryv1.AddressTypeFQDN {
				keys := map[string]clusterset.PortKey{}
				for _, p := range s.Ports {
					for _, q := range e.Ports {
						if q.Name == *p.Name && q.Protocol == *p.Protocol {
							keys[q.Name] = q.Key()
						}
					}
				}
				t.sources = append(
					t.sources,
					source{cluster: m.id, own: string(s.UID) + "." + m.id, slice: s, keys: keys},
				)
			}
		}
	}
	if w.liar != nil {
		w.liar.exports(&t)
	}
	merged, reasons := resolution.Resolve(t.exports)
	t.merged = merged
	for _, r := range reasons {
		t.reasons = append(t.reasons, string(r))
	}
	return t
}

// in is the truth as a member must see it: exports rank by the ages that its copies state (C1), which checkAges compares
// with the hub's.
func (t truth) in(m *member) truth {
	t.own = placeOf(m.id)
	t.exports = slices.DeleteFunc(slices.Clone(t.exports), func(e clusterset.Export) bool {
		return !resolution.Imports(e, t.own)
	})
	t.sources = slices.DeleteFunc(slices.Clone(t.sources), func(s source) bool {
		return !slices.ContainsFunc(t.exports, func(e clusterset.Export) bool { return e.Cluster == s.cluster })
	})
	for i := range t.exports {
		name := types.NamespacedName{Namespace: kube.SystemNamespace, Name: recordName(t.name, t.exports[i].Cluster)}
		copied := get[*hubv1alpha1.ServiceExportRecord](m, api.ServiceExportRecord, name)
		t.exports[i] = resolution.Aged(t.exports[i], copied)
	}
	merged, reasons := resolution.Resolve(t.exports)
	t.merged, t.reasons = merged, nil
	for _, r := range reasons {
		t.reasons = append(t.reasons, string(r))
	}
	return t
}

// checkAges is what the order of exports stands on (C1): a copy has the age of the hub's record, and says when the hub
// got the export, which is when the hub created the record, or earlier where the hub lost it meanwhile. An owner never
// states more than the age of its ServiceExport.
func (w *World) checkAges(m *member, t *truth) error {
	var problems []error
	for _, e := range t.exports {
		name := recordName(t.name, e.Cluster)
		copied := get[*hubv1alpha1.ServiceExportRecord](
			m, api.ServiceExportRecord, types.NamespacedName{Namespace: kube.SystemNamespace, Name: name})
		shown, _ := w.hub.Get(api.Key{
			Kind:           api.ServiceExportRecord,
			NamespacedName: types.NamespacedName{Namespace: hubNamespace, Name: name},
		}).(*hubv1alpha1.ServiceExportRecord)
		if copied == nil || shown == nil {
			problems = append(problems, fmt.Errorf("no record or no copy of %s", name))
			continue
		}
		created, first := shown.CreationTimestamp.Time, resolution.Stated(copied, "published")
		problems = append(problems,
			differ("exportedAt of the copy of "+name, shown.Spec.ExportedAt, copied.Spec.ExportedAt),
			differ("when the hub created "+name, created.UTC().String(), resolution.Stated(copied, "created").String()))
		lossless := w.history.Events["(hub restored)"]+w.history.Events["(hub emptied)"] == 0 && e.Cluster != w.liarID()
		if first.IsZero() || first.After(created) || lossless && !first.Equal(created) {
			problems = append(problems,
				fmt.Errorf("the hub created %s at %s, and its copy says %s (C1)", name, created.UTC(), first))
		}
		if shown.Spec.ExportedAt.Time.Before(e.Created) {
			problems = append(
				problems,
				fmt.Errorf(
					"%s states %s, before its ServiceExport at %s",
					name,
					shown.Spec.ExportedAt.UTC(),
					e.Created.UTC(),
				),
			)
		}
	}
	return errors.Join(problems...)
}

// records are the names of those that say all of it.
func (t *truth) records() map[string]bool {
	out := map[string]bool{}
	for _, e := range t.exports {
		out[recordName(t.name, e.Cluster)] = true
	}
	return out
}

// has returns whether a cluster has endpoints.
func (t *truth) has(cluster string) bool {
	return slices.ContainsFunc(
		t.sources,
		func(s source) bool { return s.cluster == cluster && len(s.slice.Endpoints) > 0 },
	)
}

// exports adds what the liar stands by.
func (l *liar) exports(t *truth) {
	rec, _ := l.says[l.recordName(t.name)].(*hubv1alpha1.ServiceExportRecord)
	if rec == nil {
		return
	}
	e := exportOfRecord(rec)
	t.exports = append(t.exports, e)
	for i := range rec.Spec.Endpoints {
		t.sources = append(t.sources, sourceOf(l.member.id, &rec.Spec.Endpoints[i]))
	}
}

// exportOfRecord is what a valid record says.
func exportOfRecord(rec *hubv1alpha1.ServiceExportRecord) clusterset.Export {
	e := clusterset.Export{
		Cluster:               rec.Spec.ClusterID,
		Namespace:             rec.Spec.ServiceNamespace,
		Name:                  rec.Spec.ServiceName,
		Created:               rec.Spec.ExportedAt.Time,
		Type:                  rec.Spec.Type,
		SessionAffinity:       rec.Spec.SessionAffinity,
		SessionAffinityConfig: rec.Spec.SessionAffinityConfig,
		InternalTrafficPolicy: corev1.ServiceInternalTrafficPolicyCluster,
		Families:              rec.Spec.IPFamilies,
		Labels:                rec.Spec.ExportedLabels,
		Annotations:           rec.Spec.ExportedAnnotations,
		Preference:            hubv1alpha1.Preference(cmp.Or(rec.Spec.Preference, "none")),
		MinReady:              clusterset.MinReady(rec.Spec.MinReady),
		ExportTo:              rec.Spec.ExportTo,
		Properties:            rec.Spec.Properties,
	}
	if p := rec.Spec.InternalTrafficPolicy; p != nil {
		e.InternalTrafficPolicy = *p
	}
	if d := rec.Spec.TrafficDistribution; d != nil {
		e.TrafficDistribution = *d
	}
	for _, p := range rec.Spec.Ports {
		port := clusterset.Port{Name: p.Name, Protocol: p.Protocol, Number: p.Port}
		if p.AppProtocol != nil {
			port.AppProtocol = *p.AppProtocol
		}
		e.Ports = append(e.Ports, port)
	}
	return e
}

// sourceOf is the slice that a group would be of.
func sourceOf(cluster string, group *hubv1alpha1.EndpointGroup) source {
	out := source{
		cluster: cluster, slice: &discoveryv1.EndpointSlice{AddressType: group.AddressType}, peer: true,
		keys: map[string]clusterset.PortKey{},
	}
	for _, p := range group.Ports {
		name := fmt.Sprint(p.Protocol, p.Port)
		out.keys[name] = clusterset.PortKey{Protocol: p.Protocol, Number: p.Port}
		out.slice.Ports = append(out.slice.Ports, discoveryv1.EndpointPort{
			Name: &name, Protocol: &p.Protocol, Port: p.Target, AppProtocol: p.AppProtocol,
		})
	}
	for _, e := range group.Endpoints {
		ready := e.Ready == nil || *e.Ready
		out.slice.Endpoints = append(out.slice.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{e.Address}, Conditions: discoveryv1.EndpointConditions{Ready: &ready},
		})
	}
	return out
}

func derivedName(n types.NamespacedName) string { return resolution.DerivedName(n.Namespace, n.Name) }

// claimable is S4, as far as the liar tries it.
func claimable(address string) bool {
	a, err := netip.ParseAddr(address)
	return err == nil && !a.IsLoopback() && !a.IsLinkLocalUnicast() && !a.IsUnspecified() && !a.IsMulticast() &&
		!reserved[0].Contains(a)
}

// ports are those of a source's slice as the importer calls them (C4): where a cluster lost a port, no endpoint of it
// serves that.
func (t *truth) ports(s source) []discoveryv1.EndpointPort {
	out := []discoveryv1.EndpointPort{}
	add := func(name string, p discoveryv1.EndpointPort) {
		if !slices.ContainsFunc(out, func(q discoveryv1.EndpointPort) bool { return *q.Name == name }) {
			out = append(
				out,
				discoveryv1.EndpointPort{Name: &name, Protocol: p.Protocol, Port: p.Port, AppProtocol: p.AppProtocol},
			)
		}
	}
	for _, p := range s.slice.Ports {
		if name, ok := t.nameOf(s, *p.Name); ok {
			add(name, p)
		}
	}
	slices.SortFunc(out, byPortName)
	return out
}

func byPortName(a, b discoveryv1.EndpointPort) int { return cmp.Compare(*a.Name, *b.Name) }

// endpoints are a source's as an importer must have them: what only its own cluster can know stays at home, and hints
// say where traffic is to be kept near (DESIGN §4).
func (t *truth) endpoints(s source, importer string) []discoveryv1.Endpoint {
	out := []discoveryv1.Endpoint{}
	for _, e := range s.slice.Endpoints {
		e = *e.DeepCopy()
		if t.merged.Type == mcsv1beta1.ClusterSetIP { // Istio's ambient mode would send to the VIP's port of the Pod
			e.TargetRef = nil
		}
		if s.peer && !claimable(e.Addresses[0]) {
			continue
		}
		if s.cluster != importer {
			e.NodeName, e.TargetRef = nil, nil
			c := &e.Conditions // what is so by default is said
			is := ready(e)
			c.Ready = &is
			if c.Serving == nil {
				c.Serving = &is
			}
			if c.Terminating == nil {
				c.Terminating = new(bool)
			}
		}
		e.Hints = nil
		if t.merged.TrafficDistribution != "" {
			zone := "elsewhere.clusterset-dns.io"
			if e.Zone != nil {
				zone = *e.Zone
			}
			e.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: zone}}}
		}
		out = append(out, e)
	}
	return out
}

// carried returns the ports of a source that get traffic (T2); silent, with all its ports, if none does.
func (t *truth) carried(s source) (ports []discoveryv1.EndpointPort, silent bool) {
	if t.merged.Type == mcsv1beta1.Headless {
		return t.ports(s), false
	}
	backends := map[string][]resolution.Backends{} // by the import's name of the port
	for _, other := range t.sources {
		if other.slice.AddressType != s.slice.AddressType {
			continue
		}
		b := resolution.Backends{Cluster: t.place(other.cluster)}
		for _, e := range t.endpoints(other, t.own.ID) {
			switch {
			case ready(e):
				b.Ready, b.All = b.Ready+1, b.All+1
			case e.Conditions.Terminating == nil || !*e.Conditions.Terminating:
				b.All++
			}
		}
		counted := map[string]bool{}
		for _, p := range other.slice.Ports {
			name, ok := t.nameOf(other, *p.Name)
			inProtocol := func(u clusterset.Port) bool { return u.Name == name && u.Protocol == *p.Protocol }
			if ok && !counted[name] && slices.ContainsFunc(t.merged.Ports, inProtocol) {
				counted[name] = true
				backends[name] = append(backends[name], b)
			}
		}
	}
	known := false
	slice := *s.slice
	slice.Ports = slices.DeleteFunc(slices.Clone(slice.Ports), func(p discoveryv1.EndpointPort) bool {
		name, ok := t.nameOf(s, *p.Name)
		known = known || ok
		return !ok || !resolution.Carries(&t.merged, t.place(s.cluster), t.own, backends[name])
	})
	switch {
	case !known:
		return t.ports(s), !resolution.InSomeTier(&t.merged, t.place(s.cluster), t.own)
	case len(slice.Ports) == 0:
		return t.ports(s), true
	}
	s.slice = &slice
	return t.ports(s), false
}

// families are those of the import in one cluster (C7).
func (t *truth) families(m *member) []corev1.IPFamily {
	var out []corev1.IPFamily
	for _, f := range t.merged.Families {
		if slices.Contains(m.server.Families, f) {
			out = append(out, f)
		}
	}
	return out
}
