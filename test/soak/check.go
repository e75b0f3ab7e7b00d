package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
)

// truth is what the users have made.
type truth struct {
	members   []string
	exporters map[string]map[string][]string // name → cluster → addresses
	vips      map[pair]string
	affinity  map[string]corev1.ServiceAffinity // of quarrel
}

func (w *world) truth() *truth {
	t := &truth{exporters: map[string]map[string][]string{}, vips: map[pair]string{}, affinity: w.affinity}
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

// check is what the simulation's invariants come to here: what differs from the truth, and between members.
func (s *state) check(t *truth) (wrong []string) {
	bad := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	for _, name := range names {
		var first *mcsv1beta1.ServiceImport
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
			if first == nil {
				first = imp
			}
			if why := same(first, imp); why != "" {
				bad("ServiceImport %s in %s is another than in %s: %s", name, id, t.members[0], why)
			}
			wrong = append(wrong, m.checkImport(t, name, id, imp)...)
		}
	}
	for _, id := range t.members {
		wrong = append(wrong, s.members[id].checkShares(t, id)...)
		wrong = append(wrong, s.members[id].checkExports(t, id)...)
	}
	return append(wrong, s.checkRecords(t)...)
}

func find[T any](in []T, is func(*T) bool) *T {
	if i := slices.IndexFunc(in, func(v T) bool { return is(&v) }); i >= 0 {
		return &in[i]
	}
	return nil
}

// same compares two members' imports, but for what is each cluster's own.
func same(a, b *mcsv1beta1.ServiceImport) string {
	one, other := a.Spec.DeepCopy(), b.Spec.DeepCopy()
	one.IPs, other.IPs = nil, nil
	if !equality.Semantic.DeepEqual(one, other) {
		return fmt.Sprintf("%+v and %+v", other, one)
	}
	return ""
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
	vip := t.vips[pair{name, id}]
	if vip == "" {
		if imp.Spec.Type != mcsv1beta1.Headless || len(imp.Spec.IPs) > 0 {
			bad("%s %v, want Headless", imp.Spec.Type, imp.Spec.IPs)
		}
		return wrong
	}
	if imp.Spec.Type != mcsv1beta1.ClusterSetIP || !slices.Equal(imp.Spec.IPs, []string{vip}) {
		bad("%s %v, want the VIP that it had at first, %s (I6)", imp.Spec.Type, imp.Spec.IPs, vip)
	}
	derived := find(o.services, func(s *corev1.Service) bool { return s.Annotations["clusterset-dns.io/import"] == ns+"/"+name })
	if derived == nil || derived.Spec.ClusterIP != vip {
		bad("the derived Service has not the VIP %s: %v", vip, derived)
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

// checkExports looks at the conditions that users read.
func (o *objects) checkExports(t *truth, id string) (wrong []string) {
	for i := range o.exports {
		e := &o.exports[i]
		want := map[mcsv1beta1.ServiceExportConditionType]string{
			mcsv1beta1.ServiceExportConditionValid: "True", mcsv1beta1.ServiceExportConditionReady: "True", mcsv1beta1.ServiceExportConditionConflict: "False",
		}
		if e.Name == "quarrel" && t.quarrels() {
			want[mcsv1beta1.ServiceExportConditionConflict] = "True"
		}
		for kind, status := range want {
			c := meta.FindStatusCondition(e.Status.Conditions, string(kind))
			if c == nil || string(c.Status) != status {
				wrong = append(wrong, fmt.Sprintf("ServiceExport %s in %s: %s is %v, want %s (E3-E5)", e.Name, id, kind, c, status))
			}
		}
	}
	return wrong
}

// quarrels tells whether the members want different session affinities.
func (t *truth) quarrels() bool {
	wanted := map[bool]bool{}
	for _, id := range t.members {
		wanted[t.affinity[id] == corev1.ServiceAffinityClientIP] = true
	}
	return len(wanted) == 2
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
			if meta.IsStatusConditionTrue(records[i].Status.Conditions, hubv1alpha1.ConditionHeld) {
				wrong = append(wrong, fmt.Sprintf("record %s in %s is held: %v", records[i].Name, where, records[i].Status.Conditions))
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
		for _, rec := range s.members[id].records { // those that are over, too: what is still to be published, or followed, will be written
			shown := find(s.hub.records, func(r *hubv1alpha1.ServiceExportRecord) bool { return r.Name == rec.Name })
			if shown != nil && shown.Spec.Revision != rec.Spec.Revision {
				wrong = append(wrong, fmt.Sprintf("record %s in %s is of revision %d, the hub's of %d", rec.Name, id, rec.Spec.Revision, shown.Spec.Revision))
			}
		}
	}
	var shares int
	for i := range s.hub.shares {
		if !s.hub.shares[i].Spec.Withdrawn {
			shares++
		}
	}
	if shares != len(want) {
		wrong = append(wrong, fmt.Sprintf("%d EndpointRecords are in effect on the hub, want %d: one slice of each export", shares, len(want)))
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
