package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/endpoints"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
	"github.com/clusterset-dns/clusterset-dns/test/model/resolution"
)

// truth is what the users have made.
type truth struct {
	members   []string
	exporters map[string]map[string][]string // name → cluster → addresses
	vips      map[pair]string
	refused   map[string]bool // names with a refused record: what that changes is no failure
}

func (w *world) truth() *truth {
	t := &truth{exporters: map[string]map[string][]string{}, vips: map[pair]string{}, refused: w.refusedNames()}
	for _, m := range w.members {
		t.members = append(t.members, m.ID)
	}
	for _, name := range names {
		t.exporters[name] = w.oracle.Exporters(name)
		if !slices.Contains(vips, name) {
			continue
		}
		for _, id := range t.members {
			t.vips[pair{name, id}] = w.oracle.AddressOf(name, id)
		}
		for cluster := range t.exporters[name] {
			t.exporters[name][cluster] = w.behind[pair{name, cluster}]
		}
	}
	return t
}

func (t *truth) clusters(name string) []string {
	return slices.Sorted(maps.Keys(t.exporters[name]))
}

// check is what the simulation's invariants come to here: what differs from the truth, and from what the model of
// the text makes of the
// users' objects.
func (s *state) check(t *truth) (wrong []string) {
	bad := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	said := map[string]string{} // by name: the reasons of conflict
	for _, name := range names {
		merged, reasons, own := s.merged(t, name)
		said[name] = reasons
		for _, id := range t.members {
			m := s.members[id]
			imp := find(m.imports, func(i *mcsv1beta1.ServiceImport) bool { return i.Name == name })
			switch want := t.clusters(name); {
			case imp == nil && len(want) == 0:
				continue
			case imp == nil:
				bad("no ServiceImport %s in %s, and %v export it (I1)", name, id, want)
				continue
			case len(want) == 0:
				bad("ServiceImport %s in %s, and nobody exports it (I2)", name, id)
				continue
			}
			wrong = append(wrong, m.checkSpec(name, id, imp, &merged)...)
			wrong = append(wrong, m.checkSlices(t, name, id, imp, own, &merged)...)
			wrong = append(wrong, m.checkTraffic(name, id, &merged)...)
			wrong = append(wrong, m.checkImport(t, name, id, imp)...)
			wrong = append(wrong, m.checkDerived(t, name, id, &merged)...)
		}
	}
	for _, id := range t.members {
		wrong = append(wrong, s.members[id].checkShares(t, id)...)
		wrong = append(wrong, s.members[id].checkExports(t, id, said)...)
	}
	return append(wrong, s.checkRecords(t)...)
}

func find[T any](in []T, is func(*T) bool) *T {
	if i := slices.IndexFunc(in, func(v T) bool { return is(&v) }); i >= 0 {
		return &in[i]
	}
	return nil
}

// merged is what the members export under a name, and on what they disagree, by their users' objects and the model
// of the text; own are the
// slices that it is made of, by cluster.
func (s *state) merged(
	t *truth,
	name string,
) (m conflict.Merged, reasons string, own map[string]*discoveryv1.EndpointSlice) {
	var exports []clusterset.Export
	own = map[string]*discoveryv1.EndpointSlice{}
	for _, id := range t.clusters(name) {
		o := s.members[id]
		export := find(o.exports, func(e *mcsv1beta1.ServiceExport) bool { return e.Name == name })
		svc := find(o.services, func(s *corev1.Service) bool { return s.Name == name })
		own[id] = find(o.slices, func(s *discoveryv1.EndpointSlice) bool { return s.Name == sliceName(name) })
		if export != nil && svc != nil {
			record := name + "." + ns + "." + id
			copied := find(o.records, func(r *hubv1alpha1.ServiceExportRecord) bool { return r.Name == record })
			exports = append(exports, resolution.Aged(resolution.Of(id, export, svc), copied))
		}
	}
	m, all := resolution.Resolve(exports)
	var text []string
	for _, r := range all {
		text = append(text, string(r))
	}
	return m, strings.Join(text, ","), own
}

// checkSpec compares an import with what was exported (I3), but for the VIPs.
func (o *objects) checkSpec(name, id string, imp *mcsv1beta1.ServiceImport, m *conflict.Merged) (wrong []string) {
	have, want := imp.Spec.DeepCopy(), resolution.Spec(*m, families(m))
	have.IPs = nil
	if !equality.Semantic.DeepEqual(*have, want) {
		wrong = append(
			wrong,
			fmt.Sprintf("ServiceImport %s in %s says %s, want %s (I3, C3-C7)", name, id, show(have), show(want)),
		)
	}
	prefers, preference := imp.Annotations[resolution.Annotation], string(m.Preference)
	if preference == string(hubv1alpha1.PreferNone) {
		preference = "" // the default is not annotated
	}
	if prefers != preference {
		wrong = append(
			wrong,
			fmt.Sprintf("ServiceImport %s in %s prefers %q, want %q (T2)", name, id, prefers, preference),
		)
	}
	return wrong
}

// families are those of an import here, where clusters have IPv4 only: a headless Service without a selector asks
// for both all the same.
func families(m *conflict.Merged) []corev1.IPFamily {
	return slices.DeleteFunc(
		slices.Clone(m.Families),
		func(f corev1.IPFamily) bool { return f != corev1.IPv4Protocol },
	)
}

func show(v any) string {
	text, _ := json.Marshal(v) // cannot fail: kinds of Kubernetes
	return string(text)
}

// checkSlices: what is imported is marked as what it is, is its import's, and serves each port of its source by the
// import's name for it (C4). Where the import prefers the member's own endpoints and it has some, all others are
// silent (T2): here every source serves every port.
func (o *objects) checkSlices(
	t *truth,
	name, id string,
	imp *mcsv1beta1.ServiceImport,
	own map[string]*discoveryv1.EndpointSlice,
	m *conflict.Merged,
) (wrong []string) {
	near := m.Preference == hubv1alpha1.PreferLocal && len(t.exporters[name][id]) > 0
	for i := range o.slices {
		s := &o.slices[i]
		cluster := s.Labels[mcsv1beta1.LabelSourceCluster]
		source := own[cluster]
		if source == nil || s.Labels[mcsv1beta1.LabelServiceName] != name {
			continue
		}
		bad := func(what string, have, want any) {
			if !equality.Semantic.DeepEqual(have, want) {
				wrong = append(
					wrong,
					fmt.Sprintf(
						"slice %s of %s of %s in %s: %s are %s, want %s",
						s.Name,
						name,
						cluster,
						id,
						what,
						show(have),
						show(want),
					),
				)
			}
		}
		bad(
			"labels (S1, T2)",
			s.Labels,
			resolution.SliceLabels(m, ns, name, cluster, kube.Manager, near && cluster != id),
		)
		bad("owners (S1)", s.OwnerReferences, resolution.Owners(imp))
		bad("addresses' types (S2)", s.AddressType, source.AddressType)
		svc, _ := service(name, cluster)
		for _, p := range source.Ports {
			at := slices.IndexFunc(svc.Spec.Ports, func(q corev1.ServicePort) bool { return q.Name == *p.Name })
			key := clusterset.PortKey{Protocol: *p.Protocol, Number: svc.Spec.Ports[at].Port}
			as, served := m.Names[cluster][key]
			same := func(q *discoveryv1.EndpointPort) bool {
				return *q.Name == as && *q.Port == *p.Port && *q.Protocol == *p.Protocol
			}
			if served && find(s.Ports, same) == nil {
				wrong = append(
					wrong,
					fmt.Sprintf("slice %s in %s does not serve %s/%d as %q (C4)", s.Name, id, *p.Name, *p.Port, as),
				)
			}
		}
	}
	return wrong
}

// checkTraffic: kube-proxy reads what is imported, each slice in one of its own, and nothing else (S6).
func (o *objects) checkTraffic(name, id string, m *conflict.Merged) (wrong []string) {
	text := func(s *discoveryv1.EndpointSlice) string { return show(s.Labels) + show(s.Ports) + show(s.Endpoints) }
	var have, want []string
	for i := range o.slices {
		s := &o.slices[i]
		_, hidden := s.Labels[corev1.IsHeadlessService]
		if s.Labels[discoveryv1.LabelServiceName] == resolution.DerivedName(ns, name) && !hidden {
			have = append(have, text(s))
		}
		if s.Labels[mcsv1beta1.LabelServiceName] == name {
			cluster := s.Labels[mcsv1beta1.LabelSourceCluster]
			if read, ok := resolution.ForKubeProxy(m, ns, name, cluster, kube.Manager, s); ok {
				want = append(want, text(read))
			}
		}
	}
	slices.Sort(have)
	slices.Sort(want)
	if !slices.Equal(have, want) {
		wrong = append(wrong, fmt.Sprintf("kube-proxy reads %v of %s in %s, want %v (S6)", have, name, id, want))
	}
	return wrong
}

func (o *objects) checkImport(t *truth, name, id string, imp *mcsv1beta1.ServiceImport) (wrong []string) {
	bad := func(format string, args ...any) {
		wrong = append(wrong, fmt.Sprintf("ServiceImport "+name+" in "+id+": "+format, args...))
	}
	var clusters []string
	for _, c := range imp.Status.Clusters {
		clusters = append(clusters, c.Cluster)
	}
	if want := t.clusters(name); !slices.Equal(clusters, want) {
		bad("clusters %v, want %v (I4)", clusters, want)
	}
	if !meta.IsStatusConditionTrue(imp.Status.Conditions, string(mcsv1beta1.ServiceImportConditionReady)) {
		bad("not Ready: %v", imp.Status.Conditions)
	}
	if have, want := imp.Status.EndpointSliceObjects, mcsv1beta1.EndpointSliceObjectsPresent; have != want {
		bad("EndpointSlices are %q, want %q (I5)", have, want)
	}
	if have, want := imp.Annotations[resolution.AnnotationDerived], resolution.DerivedName(ns, name); have != want {
		bad("names %q as the derived Service, want %q", have, want)
	}
	vip := t.vips[pair{name, id}]
	if vip == "" {
		if len(imp.Spec.IPs) > 0 {
			bad("%v, want none", imp.Spec.IPs)
		}
		return wrong
	}
	if !slices.Equal(imp.Spec.IPs, []string{vip}) {
		bad("%v, want the VIP that it had at first, %s (I6)", imp.Spec.IPs, vip)
	}
	return wrong
}

// checkDerived compares the Service behind a VIP with what was exported.
func (o *objects) checkDerived(t *truth, name, id string, m *conflict.Merged) (wrong []string) {
	vip := t.vips[pair{name, id}]
	if vip == "" {
		return nil
	}
	svc := find(o.services, func(s *corev1.Service) bool { return s.Name == resolution.DerivedName(ns, name) })
	if svc == nil || svc.Spec.ClusterIP != vip {
		return []string{
			fmt.Sprintf(
				"ServiceImport %s in %s: the derived Service has not the VIP %s: %s",
				name,
				id,
				vip,
				show(svc),
			),
		}
	}
	if want := resolution.DerivedSpec(m, svc); !equality.Semantic.DeepEqual(svc.Spec, want) {
		wrong = append(
			wrong,
			fmt.Sprintf(
				"the derived Service of %s in %s is %s, want %s (I3, C3-C6)",
				name,
				id,
				show(svc.Spec),
				show(want),
			),
		)
	}
	if have := svc.Labels["app.kubernetes.io/managed-by"]; have != kube.Manager {
		wrong = append(
			wrong,
			fmt.Sprintf("the derived Service of %s in %s is managed by %q, want %q", name, id, have, kube.Manager),
		)
	}
	return wrong
}

// checkShares compares what is imported of each cluster with what that exports.
func (o *objects) checkShares(t *truth, id string) (wrong []string) {
	got := map[string][]string{}
	for _, s := range o.slices {
		if cluster, ok := s.Labels[mcsv1beta1.LabelSourceCluster]; ok {
			key := s.Labels[mcsv1beta1.LabelServiceName] + " of " + cluster
			got[key] = append(got[key], addresses(&s)...)
		}
	}
	for _, name := range names {
		for cluster, want := range t.exporters[name] {
			key := name + " of " + cluster
			have := slices.Sorted(slices.Values(got[key]))
			delete(got, key)
			if !slices.Equal(have, want) {
				wrong = append(wrong, fmt.Sprintf("%s has %v of %s, want %v (S1, S2)", id, have, key, want))
			}
		}
	}
	for key, have := range got {
		wrong = append(wrong, fmt.Sprintf("%s has %v of %s, which is not exported (S2)", id, have, key))
	}
	return wrong
}

func addresses(s *discoveryv1.EndpointSlice) (out []string) {
	for _, e := range s.Endpoints {
		if e.Conditions.Ready == nil || *e.Conditions.Ready {
			out = append(out, e.Addresses...)
		}
	}
	return out
}

// checkExports looks at the conditions that users read, by the reasons of conflict of each name.
func (o *objects) checkExports(t *truth, id string, said map[string]string) (wrong []string) {
	for i := range o.exports {
		e := &o.exports[i]
		conflict := metav1.Condition{
			Type:   string(mcsv1beta1.ServiceExportConditionConflict),
			Status: metav1.ConditionFalse,
			Reason: "NoConflicts",
		}
		if reasons := said[e.Name]; reasons != "" {
			conflict.Status, conflict.Reason = metav1.ConditionTrue, reasons
		}
		for _, want := range []metav1.Condition{
			{Type: string(mcsv1beta1.ServiceExportConditionValid), Status: metav1.ConditionTrue, Reason: "Valid"},
			{Type: string(mcsv1beta1.ServiceExportConditionReady), Status: metav1.ConditionTrue, Reason: "Exported"},
			conflict,
		} {
			c := meta.FindStatusCondition(e.Status.Conditions, want.Type)
			if t.refused[e.Name] && want.Type == string(mcsv1beta1.ServiceExportConditionReady) {
				continue
			}
			if c == nil || c.Status != want.Status || c.Reason != want.Reason ||
				c.ObservedGeneration != e.Generation {
				wrong = append(
					wrong,
					fmt.Sprintf("ServiceExport %s in %s: %s is %v, want %s/%s of generation %d (E3-E5, E8)",
						e.Name, id, want.Type, c, want.Status, want.Reason, e.Generation),
				)
			}
		}
	}
	return wrong
}

// checkRecords: the hub has the records of what is exported, every member has its copies, and all members are well.
func (s *state) checkRecords(t *truth) (wrong []string) {
	var want []string
	for _, name := range names {
		for _, c := range t.clusters(name) {
			want = append(want, name+"."+ns+"."+c)
		}
	}
	slices.Sort(want)
	inEffect := func(where string, records []hubv1alpha1.ServiceExportRecord) {
		var have []string
		for i := range records {
			if !records[i].Spec.Withdrawn {
				have = append(have, records[i].Name)
			}
			if meta.IsStatusConditionTrue(records[i].Status.Conditions, hubv1alpha1.ConditionHeld) &&
				!t.refused[records[i].Spec.ServiceName] {
				wrong = append(
					wrong,
					fmt.Sprintf(
						"record %s in %s is held: %v",
						records[i].Name,
						where,
						records[i].Status.Conditions,
					),
				)
			}
		}
		slices.Sort(have)
		if !slices.Equal(have, want) {
			wrong = append(wrong, fmt.Sprintf("records in effect in %s: %v, want %v", where, have, want))
		}
	}
	inEffect("the hub", s.hub.records)
	for _, id := range t.members {
		inEffect(id, s.members[id].records)
		// those that are over, too: what is still to be published, or followed, will be written
		for _, rec := range s.members[id].records {
			shown := find(
				s.hub.records,
				func(r *hubv1alpha1.ServiceExportRecord) bool { return r.Name == rec.Name },
			)
			if shown != nil && !t.refused[rec.Spec.ServiceName] && (shown.Spec.Revision < rec.Spec.Revision ||
				!clusterset.SameFacts(&shown.Spec, &rec.Spec)) {
				wrong = append(
					wrong,
					fmt.Sprintf(
						"record %s in %s, of revision %d, differs from the hub's, of %d",
						rec.Name,
						id,
						rec.Spec.Revision,
						shown.Spec.Revision,
					),
				)
			}
		}
	}
	published := map[string][]string{} // by record of an export: of each group in effect, the addresses
	for i := range s.hub.records {
		rec := &s.hub.records[i]
		for j := range rec.Spec.Endpoints {
			has := endpoints.ReadyAddresses(&rec.Spec.Endpoints[j])
			slices.Sort(has)
			published[rec.Name] = append(published[rec.Name], strings.Join(has, " "))
		}
	}
	for i := range s.hub.pages { // no export here has so many endpoints
		wrong = append(
			wrong,
			fmt.Sprintf("EndpointPage %s is on the hub, and no export has pages", s.hub.pages[i].Name),
		)
	}
	for _, name := range names {
		for cluster, has := range t.exporters[name] {
			of := name + "." + ns + "." + cluster
			if have, want := published[of], []string{strings.Join(has, " ")}; !slices.Equal(have, want) {
				wrong = append(
					wrong,
					fmt.Sprintf(
						"endpoints of %s in effect on the hub: %q, want %q: one group of each export",
						of,
						have,
						want,
					),
				)
			}
			delete(published, of)
		}
	}
	for of, have := range published {
		wrong = append(
			wrong,
			fmt.Sprintf(
				"endpoints of %s are in effect on the hub, %q, though that is not exported",
				of,
				have,
			),
		)
	}
	for i := range s.hub.profiles {
		p := &s.hub.profiles[i]
		if !meta.IsStatusConditionTrue(p.Status.Conditions, "ControlPlaneHealthy") {
			wrong = append(wrong, fmt.Sprintf("ClusterProfile %s: %v (P3)", p.Name, p.Status.Conditions))
		}
	}
	return wrong
}

// short is a list for people.
func short(list []string, most int) string {
	if len(list) <= most {
		return strings.Join(list, "\n")
	}
	return strings.Join(list[:most], "\n") + fmt.Sprintf("\n… and %d more", len(list)-most)
}
