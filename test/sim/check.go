package sim

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
	"github.com/clusterset-dns/clusterset-dns/test/model/resolution"
	"github.com/clusterset-dns/clusterset-dns/test/sim/api"
)

// check compares the settled world with the truth, and ends the run with all that differs.
func (w *World) check() {
	var problems []error
	if err := w.checkReach(); err != nil {
		problems = append(problems, err)
	}
	state := ""
	records := map[string]bool{}
	for _, n := range names {
		t := w.truthOf(n)
		before := len(problems)
		maps.Copy(records, t.records())
		for _, m := range w.honest() {
			here := t.in(m)
			for _, err := range []error{
				w.checkAges(m, &t), w.checkImport(m, &here), w.checkService(m, &here), w.checkSlices(m, &here),
				w.checkJoins(m, &here), w.checkExport(m, &here),
			} {
				if err != nil {
					problems = append(problems, fmt.Errorf("%s in %s: %w", n, m.id, err))
				}
			}
		}
		if len(problems) > before {
			state += w.describe(n)
		}
	}
	problems = append(problems, w.checkRecords(records))
	for _, m := range w.honest() {
		problems = append(problems, w.checkProfile(m))
		for _, what := range w.checkAddresses(m) {
			problems = append(problems, fmt.Errorf("%s: %s", m.id, what))
		}
	}
	if err := errors.Join(problems...); err != nil {
		w.fail("the settled state is not what the exports come to:\n%v\n%s", err, state)
	}
}

// differ compares; nil and empty are the same.
func differ(what string, want, got any) error {
	if equality.Semantic.DeepEqual(want, got) {
		return nil
	}
	return fmt.Errorf("%s is %s, want %s", what, show(got), show(want))
}

func (w *World) checkImport(m *member, t *truth) error {
	imp := get[*mcsv1beta1.ServiceImport](m, api.ServiceImport, t.name)
	wanted := len(t.exports) > 0 && m.namespace(t.name.Namespace) != nil
	switch {
	case !wanted && imp == nil:
		return nil
	case !wanted:
		return fmt.Errorf("there is a ServiceImport, though nobody exports it or its namespace is gone (I1, I2)")
	case imp == nil:
		return fmt.Errorf("there is no ServiceImport, though %v export it (I1)", t.merged.Clusters)
	}
	families := t.families(m)
	want := resolution.Spec(t.merged, families)
	status, reason := metav1.ConditionTrue, "Ready"
	switch {
	case len(families) == 0:
		status, reason = metav1.ConditionFalse, "IPFamilyNotSupported"
	case t.merged.Type == mcsv1beta1.ClusterSetIP && len(want.Ports) == 0:
		status, reason = metav1.ConditionFalse, "Pending"
	case t.merged.Type == mcsv1beta1.ClusterSetIP:
		want.IPs = m.vips(t.name, families)
		if len(want.IPs) != len(families) {
			return fmt.Errorf("the derived Service has %v for %v", want.IPs, families)
		}
	}
	var clusters []string
	for _, c := range imp.Status.Clusters {
		clusters = append(clusters, c.Cluster)
	}
	return errors.Join(
		differ("spec of the ServiceImport (I3)", want, imp.Spec),
		differ("status.clusters (I4)", t.merged.Clusters, clusters),
		differ(
			"status.endpointSliceObjects (I5)",
			mcsv1beta1.EndpointSliceObjectsPresent,
			imp.Status.EndpointSliceObjects,
		),
		differ("annotation derived-service", derivedName(t.name), imp.Annotations[resolution.AnnotationDerived]),
		exported("label", t.merged.Labels, imp.Labels),
		exported("annotation", t.merged.Annotations, imp.Annotations),
		condition(imp.Status.Conditions, "Ready", status, reason, imp.Generation),
	)
}

// exported is C8 for one of the two maps: all that was exported is there, except the keys of the field and ours.
func exported(what string, want, got map[string]string) error {
	for k, v := range want {
		if !strings.Contains(k, "clusterset-dns.io/") && got[k] != v {
			return fmt.Errorf("exported %s %s is %q, want %q (C8)", what, k, got[k], v)
		}
	}
	if _, ours := want["team"]; !ours && got["team"] != "" {
		return fmt.Errorf("%s team=%s is there, though the oldest does not export it (C8)", what, got["team"])
	}
	return nil
}

// condition is E8, too: it must be of the current generation.
func condition(
	in []metav1.Condition,
	kind string,
	status metav1.ConditionStatus,
	reason string,
	generation int64,
) error {
	c := meta.FindStatusCondition(in, kind)
	if c == nil || c.Status != status || c.Reason != reason || c.ObservedGeneration != generation {
		return fmt.Errorf("condition %s is %s, want %s/%s of generation %d", kind, show(c), status, reason, generation)
	}
	return nil
}

// vips are the derived Service's addresses in the order of families.
func (m *member) vips(n types.NamespacedName, families []corev1.IPFamily) []string {
	svc := get[*corev1.Service](m, api.Service, types.NamespacedName{Namespace: n.Namespace, Name: derivedName(n)})
	if svc == nil {
		return nil
	}
	var out []string
	for _, f := range families {
		if i := slices.Index(svc.Spec.IPFamilies, f); i >= 0 {
			out = append(out, svc.Spec.ClusterIPs[i])
		}
	}
	return out
}

func (w *World) checkService(m *member, t *truth) error {
	svc := get[*corev1.Service](
		m,
		api.Service,
		types.NamespacedName{Namespace: t.name.Namespace, Name: derivedName(t.name)},
	)
	if len(t.exports) == 0 || m.namespace(t.name.Namespace) == nil || t.merged.Type == mcsv1beta1.Headless ||
		len(t.families(m)) == 0 ||
		len(t.merged.Ports) == 0 {
		return nil // one that is there stays for a while, or for the VIP's next use
	}
	if svc == nil {
		return fmt.Errorf("there is no derived Service")
	}
	return errors.Join(
		differ("derived Service", resolution.DerivedSpec(&t.merged, svc), svc.Spec),
		differ("derived Service's managed-by", kube.Manager, svc.Labels["app.kubernetes.io/managed-by"]),
	)
}

// checkSlices: the own cluster's slices are imported one by one. Of another cluster, all its endpoints are imported with
// their ports, in slices of at most as many endpoints as a group has.
func (w *World) checkSlices(m *member, t *truth) error {
	imp := get[*mcsv1beta1.ServiceImport](m, api.ServiceImport, t.name)
	own, got, want := map[string]*discoveryv1.EndpointSlice{}, map[string][]string{}, map[string][]string{}
	var problems []error
	add := func(to map[string][]string, cluster string, family discoveryv1.AddressType, silent bool,
		ports []discoveryv1.EndpointPort, endpoints []discoveryv1.Endpoint) {
		key := fmt.Sprintf(
			"%s %s silent %v ports %s",
			cluster,
			family,
			silent,
			show(append([]discoveryv1.EndpointPort{}, ports...)),
		)
		for _, e := range endpoints {
			to[key] = append(to[key], show(e))
		}
	}
	for _, s := range m.imported(t.name) {
		of, cluster := s.Annotations["clusterset-dns.io/source"], s.Labels[mcsv1beta1.LabelSourceCluster]
		if cluster == m.id {
			own[of] = s
			continue
		}
		_, silent := s.Labels["clusterset-dns.io/standby"]
		ports := slices.SortedFunc(slices.Values(s.Ports), byPortName)
		add(got, cluster, s.AddressType, silent, ports, s.Endpoints)
		labels := resolution.SliceLabels(&t.merged, t.name.Namespace, t.name.Name, cluster, kube.Manager, silent)
		problems = append(problems, differ("labels of "+s.Name, labels, s.Labels))
		if imp != nil {
			problems = append(problems, differ("owners of "+s.Name, resolution.Owners(imp), s.OwnerReferences))
		}
		if !slices.ContainsFunc(t.sources, func(src source) bool { return src.cluster == cluster }) &&
			cluster != w.liarID() {
			problems = append(
				problems,
				fmt.Errorf("slice %s is there, of %q, which no cluster exports (S2)", s.Name, of),
			)
		}
		if len(s.Endpoints) > limits.Endpoints && cluster != w.liarID() {
			problems = append(problems, fmt.Errorf("slice %s has %d endpoints", s.Name, len(s.Endpoints)))
		}
	}
	if imp != nil {
		for _, src := range t.sources {
			if src.cluster == m.id {
				problems = append(problems, t.checkOwn(m, imp, src, own[src.own]))
				delete(own, src.own)
				continue
			}
			ports, silent := t.carried(src)
			add(want, src.cluster, src.slice.AddressType, silent, ports, t.endpoints(src, m.id))
		}
	}
	for _, of := range slices.Sorted(maps.Keys(own)) {
		problems = append(
			problems,
			fmt.Errorf("slice %s is there, of %q, which no cluster exports (S2)", own[of].Name, of),
		)
	}
	for _, of := range []map[string][]string{got, want} {
		for key := range of {
			slices.Sort(of[key])
		}
	}
	problems = append(problems, m.checkTraffic(t))
	return errors.Join(
		append(problems, differ("imported endpoints (S1, S2, S4, C3, C4), or which no cluster exports,", want, got))...)
}

// checkTraffic: kube-proxy reads what is imported, each slice in one of its own, and nothing else, and so does Envoy
// Gateway where it is (S6).
func (m *member) checkTraffic(t *truth) error {
	var got, want []string
	text := func(s *discoveryv1.EndpointSlice) string {
		return show(s.Labels) + show(s.AddressType) + show(append([]discoveryv1.EndpointPort{}, s.Ports...)) +
			show(append([]discoveryv1.Endpoint{}, s.Endpoints...))
	}
	for _, s := range m.imported(t.name) {
		if f, ok := resolution.ForKubeProxy(&t.merged, t.name.Namespace, t.name.Name,
			s.Labels[mcsv1beta1.LabelSourceCluster], kube.Manager, s); ok {
			want = append(want, text(f))
		}
		if g, ok := resolution.ForGateways(s); ok && m.gateways {
			want = append(want, text(g))
		}
	}
	for _, s := range all[*discoveryv1.EndpointSlice](m.server, api.EndpointSlice) {
		_, hidden := s.Labels[corev1.IsHeadlessService]
		of, found := s.Labels[discoveryv1.LabelServiceName]
		forKubeProxy := of == derivedName(t.name) && !hidden
		forGateways := !found && s.Labels[mcsv1beta1.LabelServiceName] == t.name.Name
		if s.Namespace == t.name.Namespace && (forKubeProxy || forGateways) &&
			s.Labels[discoveryv1.LabelManagedBy] == kube.Manager {
			got = append(got, text(s))
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	return differ("what kube-proxy and gateways read (S6)", want, got)
}

// checkOwn looks at the imported slice of one of the own cluster's.
func (t *truth) checkOwn(m *member, imp *mcsv1beta1.ServiceImport, src source, s *discoveryv1.EndpointSlice) error {
	if s == nil {
		return fmt.Errorf("no imported slice of %s (S1)", src.own)
	}
	ports, silent := t.carried(src)
	labels := resolution.SliceLabels(&t.merged, t.name.Namespace, t.name.Name, src.cluster, kube.Manager, silent)
	if err := errors.Join(
		differ("labels", labels, s.Labels),
		differ("owners", resolution.Owners(imp), s.OwnerReferences),
		differ("addressType", src.slice.AddressType, s.AddressType),
		differ("ports (C3, C4)", ports, slices.SortedFunc(slices.Values(s.Ports), byPortName)),
		differ("endpoints (S2, S4)", t.endpoints(src, m.id), s.Endpoints),
	); err != nil {
		return fmt.Errorf("slice %s of %s: %w", s.Name, src.own, err)
	}
	return nil
}

func (w *World) checkExport(m *member, t *truth) error {
	_, v := exportOf(m, t.name)
	if v == "" {
		return nil
	}
	export := get[*mcsv1beta1.ServiceExport](m, api.ServiceExport, t.name)
	conditions, generation := export.Status.Conditions, export.Generation
	if v != valid {
		return errors.Join(
			condition(conditions, "Valid", metav1.ConditionFalse, string(v), generation),
			condition(conditions, "Ready", metav1.ConditionFalse, "Pending", generation))
	}
	status, reason := metav1.ConditionFalse, "NoConflicts"
	if len(t.reasons) > 0 {
		status, reason = metav1.ConditionTrue, strings.Join(t.reasons, ",")
	}
	return errors.Join(
		condition(conditions, "Valid", metav1.ConditionTrue, "Valid", generation),
		condition(conditions, "Ready", metav1.ConditionTrue, "Exported", generation),
		condition(conditions, "Conflict", status, reason, generation))
}

func recordName(n types.NamespacedName, cluster string) string {
	return n.Name + "." + n.Namespace + "." + cluster
}

// checkRecords: the hub has the records in effect and no other, and so has every member.
func (w *World) checkRecords(wanted map[string]bool) error {
	var problems []error
	have := func(where string, kind string, o interface{ GetName() string }, withdrawn bool) {
		if !withdrawn && !wanted[o.GetName()] {
			problems = append(
				problems,
				fmt.Errorf("%s %s of %s is in effect, though nobody exports that", kind, o.GetName(), where),
			)
		}
	}
	for _, rec := range all[*hubv1alpha1.ServiceExportRecord](w.hub, api.ServiceExportRecord) {
		have("the hub", api.ServiceExportRecord, rec, rec.Spec.Withdrawn)
	}
	for _, page := range all[*hubv1alpha1.EndpointPage](w.hub, api.EndpointPage) {
		if !w.isStated(page) {
			problems = append(problems, fmt.Errorf("page %s of the hub is stated by no record", page.Name))
		}
	}
	for _, m := range w.honest() {
		for _, rec := range all[*hubv1alpha1.ServiceExportRecord](m.server, api.ServiceExportRecord) {
			have(m.id, api.ServiceExportRecord, rec, rec.Spec.Withdrawn)
			if c := meta.FindStatusCondition(rec.Status.Conditions, hubv1alpha1.ConditionImported); c != nil {
				problems = append(
					problems,
					fmt.Errorf("record %s in %s is still not imported: %s", rec.Name, m.id, show(c)),
				)
			}
			held := meta.IsStatusConditionTrue(rec.Status.Conditions, hubv1alpha1.ConditionHeld)
			if held && rec.Spec.ClusterID != w.liarID() { // which need not publish again
				problems = append(
					problems,
					fmt.Errorf("record %s in %s is still held: %s", rec.Name, m.id, show(rec.Status.Conditions)),
				)
			}
		}
	}
	return errors.Join(problems...)
}

// checkProfile: the inventory has a member's version and properties (P3, ID5).
func (w *World) checkProfile(m *member) error {
	profile, _ := w.hub.Get(api.Key{Kind: api.ClusterProfile, NamespacedName: types.NamespacedName{Namespace: hubNamespace, Name: m.id}}).(*inventoryv1alpha1.ClusterProfile)
	var want []inventoryv1alpha1.Property
	for _, p := range all[*aboutv1beta1.ClusterProperty](m.server, api.ClusterProperty) {
		want = append(want, inventoryv1alpha1.Property{Name: p.Name, Value: p.Spec.Value})
	}
	return errors.Join(
		differ("version of "+m.id+" in its ClusterProfile", version, profile.Status.Version.Kubernetes),
		differ("properties of "+m.id+" in its ClusterProfile", want, profile.Status.Properties),
	)
}

// checkForgotten: a day later nothing is left of what was withdrawn, nor of VIPs that nobody needs.
func (w *World) checkForgotten() {
	servers := []*api.Server{w.hub}
	for _, m := range w.honest() {
		servers = append(servers, m.server)
		for _, svc := range all[*corev1.Service](m.server, api.Service) {
			if svc.Annotations["clusterset-dns.io/unused-since"] != "" {
				w.fail("the VIP of %s %s was not needed for a day and is still held", m.id, svc.Name)
			}
		}
	}
	for _, s := range servers {
		for _, o := range s.List(api.ServiceExportRecord) {
			if withdrawn(o) && originOf(o).ClusterID != w.liarID() {
				w.fail("%s of %s was withdrawn a day ago and is still there", api.KeyOf(o), s.Name)
			}
		}
	}
}

func (w *World) liarID() string {
	if w.liar == nil {
		return ""
	}
	return w.liar.member.id
}
