package explain

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/facts"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/liveness"
)

// addFindings adds what keeps the name from working as users expect, causes first. Of what is exported, invalid cannot
// be parsed, and elsewhere goes to other clusters only. denied are the reasons why DNS answers NXDOMAIN.
func (r *Report) addFindings(
	f *Facts, exports []clusterset.Export, merged *conflict.Merged, invalid, elsewhere []Withheld,
	denied []report.Finding,
) {
	ns, name := f.Name.Namespace, f.Name.Name
	exported := len(exports)+len(invalid) > 0
	at, expired, _ := facts.HubSeen(f.Leases, f.Now)
	switch {
	case f.Set == "" || f.Leaving:
	case f.AgentStopped:
		r.error(facts.StartAgent, "this cluster's agent is scaled to 0: what it has imported is as it left it, this "+
			"cluster's own endpoints included")
	case len(f.Known) > 0: // they say why
	case expired && f.Import != nil && exported:
		r.warn(f.doctor(), "this cluster's agent last saw the hub at %s: later changes are missing "+
			"here, those of this cluster included if the agent does not run", at.UTC().Format(time.RFC3339))
	}
	r.Findings = append(r.Findings, f.Known...)
	switch {
	case f.Set == "" && len(f.Known) > 0:
	case f.Set == "" && !f.unread(Membership):
		remedy := f.Join()
		switch {
		case f.NoAdmin: // it may also be the hub
			remedy = f.doctor()
		case f.Agent:
			remedy = f.Finish()
		}
		r.error(remedy, "this cluster is a member of no ClusterSet")
	case f.Leaving:
		r.warn(facts.GoOnLeaving,
			"this cluster is leaving ClusterSet %s: its agent deletes its imports, and creates no others", f.Set)
	case !f.NamespaceExists && !f.unread(Namespace) && exported:
		r.error("kubectl create namespace "+ns,
			"this cluster has no namespace %s: exports are imported only into namespaces that exist", ns)
	case f.Refuses && (exported || f.unread(Records)):
		r.warn(f.asAdmin("to import it", "kubectl annotate namespace "+ns+" "+clusterset.AnnotationNamespaceImport+"-"),
			"namespace %s of this cluster refuses imports", ns)
	case f.Import == nil && len(exports) > 0 && len(f.notImported()) == 0:
		remedy := f.doctor()
		if !f.NoAdmin {
			remedy = facts.AgentLog + "; " + remedy
		}
		r.error(remedy,
			"%s, and this cluster's agent has not created a ServiceImport", exporting(exports))
	case f.Import == nil && !exported && len(elsewhere) > 0:
		first := elsewhere[0]
		remedy := "to import it, change the annotation " + clusterset.AnnotationExportTo +
			" of the ServiceExport in cluster " + first.Cluster
		r.error(remedy, "cluster %s exports the name, but not to this cluster: %s", first.Cluster, first.Why)
	case f.Import == nil && !exported && (!f.unread(Records) || !f.unread(Services) && !f.unread(Exports)):
		r.addNotExported(f)
	}
	for _, x := range invalid {
		r.error("use the same version of clusterset-controller in "+x.Cluster+" and here, and of kubectl clusterset; "+
			report.DocsUpgrade, "parsing the export of cluster %s failed: %s", x.Cluster, x.Why)
	}
	for _, found := range append(f.notImported(),
		facts.NotImported(f.Records, hubv1alpha1.ConditionEndpointsImported)...) {
		r.Findings = append(r.Findings, found.On(""))
	}
	r.Findings = append(r.Findings, denied...)
	if f.Import != nil {
		for _, c := range f.Import.Status.Conditions {
			if c.Type == string(mcsv1beta1.ServiceImportConditionReady) && c.Status != metav1.ConditionTrue {
				r.error("the message names the cause; the agent retries", "the ServiceImport is not Ready (%s): %s",
					c.Reason, c.Message)
			}
		}
		if !exported && f.Set != "" && !f.Leaving && !f.unread(Records) {
			first, seen := f.lastSeen()
			r.warn(fmt.Sprintf("%s%s; if another program created it: kubectl -n %s delete serviceimport %s", first,
				facts.AgentLog, ns, name),
				"%sno cluster exports the name to this cluster, but there is a ServiceImport", seen)
		}
		if r.Outcome == NameError && denied == nil && f.Import.Spec.Type == mcsv1beta1.Headless && r.unready() != "" &&
			f.imports() {
			r.error(r.pods(f, r.idle(false)), "%s: a Headless name without ready endpoints does not exist",
				r.unready())
		}
		if f.Import.Spec.Type == mcsv1beta1.ClusterSetIP && len(exports) > 0 && f.imports() {
			r.addTraffic(f, merged)
			r.addFamilies(exports, merged)
		}
		if f.imports() && !f.unread(Endpoints) {
			r.addIdle(f)
		}
		if f.unread(Records) && !f.unread(Endpoints) {
			r.addUnserved(f)
		}
	}
	if f.Service != nil && f.Service.Spec.Type != corev1.ServiceTypeExternalName && f.Export == nil &&
		len(exports) > 0 && !f.unread(Exports) {
		r.warn(export(f.Name), "this cluster has a Service %s/%s without a ServiceExport: the name sends its Pods no "+
			"traffic", ns, name)
	}
	r.addOwnExport(f)
}

// addUnserved adds that no imported endpoint is ready, for users who may not read the records.
func (r *Report) addUnserved(f *Facts) {
	var clusters []string
	for _, c := range f.Import.Status.Clusters {
		clusters = append(clusters, c.Cluster)
	}
	for i := range f.Slices {
		if slices.ContainsFunc(f.Slices[i].Endpoints, func(e discoveryv1.Endpoint) bool { return isReady(&e) }) {
			return
		}
	}
	if len(clusters) > 0 {
		r.error(r.pods(f, clusters), "no endpoint is ready in a cluster that exports it, or that cluster has expired: "+
			"connections fail")
	}
}

// addTraffic adds why connections to the VIP fail, or reach some clusters only.
func (r *Report) addTraffic(f *Facts, merged *conflict.Merged) {
	ready := func(x Exporter) bool { return x.Ready > 0 }
	switch {
	case f.unread(Endpoints):
	case !slices.ContainsFunc(r.Exporters, ready) && r.unready() == "": // findings say that endpoints are lost
	case !slices.ContainsFunc(r.Exporters, ready):
		r.error(r.pods(f, r.idle(false)), "%s: connections to its VIP fail", r.unready())
	case !slices.ContainsFunc(r.Exporters, func(x Exporter) bool { return ready(x) && !x.NoTraffic }):
		remedy := "change the annotation " + clusterset.AnnotationPreference
		if r.unready() != "" {
			remedy += "; or " + r.pods(f, r.idle(false))
		}
		r.error(remedy, "the preference selects no cluster that has a ready endpoint: connections to its VIP fail")
	}
	for _, tier := range clusterset.Tiers(merged.Preference) {
		if id, ok := strings.CutPrefix(string(tier), "cluster="); ok && !slices.Contains(merged.Clusters, id) {
			r.warn("export it there, or change the annotation "+clusterset.AnnotationPreference,
				"the preference names cluster %s, which does not export the name", id)
		}
	}
	var some []string
	for _, p := range merged.Ports {
		var served []string
		for _, c := range merged.Clusters {
			if slices.Contains(slices.Collect(maps.Values(merged.Names[c])), p.Name) {
				served = append(served, c)
			}
		}
		if len(served) < len(merged.Clusters) {
			some = append(some, fmt.Sprintf("port %d/%s reaches only %s", p.Number, p.Protocol,
				strings.Join(served, ", ")))
		}
	}
	if len(some) > 0 {
		r.warn("make the ports of the Services the same in all clusters, or accept it", "%s", strings.Join(some, "; "))
	}
}

// addFamilies adds that the name lacks an IP family that some exporters have.
func (r *Report) addFamilies(exports []clusterset.Export, merged *conflict.Merged) {
	for _, family := range []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} {
		var with, without []string
		for i := range exports {
			if e := &exports[i]; slices.Contains(e.Families, family) {
				with = append(with, e.Cluster)
			} else {
				without = append(without, e.Cluster)
			}
		}
		if len(with) > 0 && len(merged.Families) > 0 && !slices.Contains(merged.Families, family) {
			r.warn("make the ipFamilies of the Services the same in all clusters, or accept it",
				"the name has no %s VIP, because not all exporters have that family (with it: %s; without it: %s)",
				family, strings.Join(with, ", "), strings.Join(without, ", "))
		}
	}
}

// idle returns the exporters without a ready endpoint here: the expired ones, or the others. A finding says why those
// lack endpoints that are lost on the way.
func (r *Report) idle(expired bool) (clusters []string) {
	for i := range r.Exporters {
		if x := &r.Exporters[i]; x.Ready == 0 && (x.Expired != "") == expired && (expired || !x.Lost) {
			clusters = append(clusters, x.Cluster)
		}
	}
	return clusters
}

// unready is which exporters serve no endpoint, and why; "" if all serve one.
func (r *Report) unready() string {
	var all []string
	if none := r.idle(false); len(none) > 0 {
		all = append(all, "no ready endpoint of "+strings.Join(none, ", ")+" is imported")
	}
	for _, id := range r.idle(true) {
		all = append(all, id+" has expired")
	}
	return strings.Join(all, ", and ")
}

// addIdle adds that some clusters export the name and have no ready endpoint, while others have.
func (r *Report) addIdle(f *Facts) {
	if idle := r.unready(); idle != "" &&
		slices.ContainsFunc(r.Exporters, func(x Exporter) bool { return x.Ready > 0 }) {
		r.warn(r.pods(f, r.idle(false)), "%s: the other clusters serve the name", idle)
	}
}

// pods is where to look for endpoints of clusters that are not ready here, and for exporters that have expired. Whether
// another cluster's Pods are not ready, or its endpoints are not on the hub, is seen there.
func (r *Report) pods(f *Facts, clusters []string) string {
	var all []string
	others := slices.DeleteFunc(slices.Clone(clusters), func(id string) bool { return id == f.ID })
	if len(others) < len(clusters) {
		all = append(all, fmt.Sprintf("kubectl -n %s get pods; kubectl -n %[1]s get endpointslices -l %s=%s",
			f.Name.Namespace, discoveryv1.LabelServiceName, f.Name.Name))
	}
	if len(others) > 0 {
		all = append(all, "in cluster "+strings.Join(others, ", ")+": kubectl clusterset explain "+f.Name.Name+"."+
			f.Name.Namespace)
	}
	if gone := r.idle(true); len(gone) > 0 {
		all = append(all, "in cluster "+strings.Join(gone, ", ")+": kubectl clusterset doctor")
	}
	return strings.Join(all, "; ")
}

// doctor is the command that names the cause in this cluster.
func (f *Facts) doctor() string { return f.asAdmin("", "kubectl clusterset doctor") }

// asAdmin returns a command, or for a user without an admin's rights to ask for it.
func (f *Facts) asAdmin(purpose, command string) string {
	if purpose != "" {
		purpose += ": "
	}
	if f.NoAdmin {
		return purpose + "ask a cluster admin to run: " + command
	}
	return purpose + command
}

// soon is how long an agent may take to read a new ServiceExport.
const soon = 15 * time.Second

// export is the command that exports a Service of this cluster.
func export(name types.NamespacedName) string {
	return fmt.Sprintf("kubectl clusterset export %s -n %s", name.Name, name.Namespace)
}

func (r *Report) error(remedy, what string, args ...any) {
	r.Findings = append(r.Findings, report.Errorf(remedy, what, args...))
}

func (r *Report) warn(remedy, what string, args ...any) {
	r.Findings = append(r.Findings, report.Warningf(remedy, what, args...))
}

func exporting(exports []clusterset.Export) string {
	if len(exports) == 1 {
		return "cluster " + exports[0].Cluster + " exports it"
	}
	var ids []string
	for i := range exports {
		ids = append(ids, exports[i].Cluster)
	}
	return "clusters " + strings.Join(ids, ", ") + " export it"
}

// lastSeen returns what precedes the remedy and the text of a finding that an export is missing: the agent may not have
// read it yet if it does not see the hub.
func (f *Facts) lastSeen() (first, seen string) {
	at, expired, _ := facts.HubSeen(f.Leases, f.Now)
	if !expired {
		return "", ""
	}
	if !f.NoAdmin {
		first = f.doctor() + "; then: "
	}
	return first, "when this cluster's agent last saw the hub, at " +
		at.UTC().Format(time.RFC3339) + ": "
}

// addNotExported adds why no cluster exports the name, and names that the user may have meant.
func (r *Report) addNotExported(f *Facts) {
	ns, name := f.Name.Namespace, f.Name.Name
	first, seen := f.lastSeen()
	if f.unread(Records) {
		seen += "as far as you may read, "
	}
	switch {
	case f.Export != nil: // addOwnExport has the reason
	case !clusterset.MayUse(hubv1alpha1.NamespaceRules{}, ns):
		r.error("use another namespace, or see spec.namespaces of the ClusterSet on the hub",
			"%sno cluster exports the name, and ClusterSets exclude namespace %s by default", seen, ns)
	case f.Service != nil && f.Service.Spec.Type == corev1.ServiceTypeExternalName:
		r.error("create the Service in each cluster", "%sno cluster exports the name, and this cluster's "+
			"Service %s/%s is of type ExternalName, which cannot be exported", seen, ns, name)
	case f.Service != nil && !f.unread(Exports):
		r.error(first+export(f.Name),
			"%sno cluster exports the name; this cluster has a Service %s/%s without a ServiceExport", seen, ns, name)
	default:
		r.error(first+"in the cluster of the Service: "+export(f.Name)+"; there, if it has a "+
			"ServiceExport already: kubectl clusterset explain "+name+"."+ns, "%sno cluster exports the name", seen)
	}
	for _, other := range f.Similar {
		r.warn("kubectl clusterset explain "+other.Name+"."+other.Namespace, "there is a similar name, %s.%s.svc.%s",
			other.Name, other.Namespace, Zone)
	}
}

// addOwnExport adds what is wrong with this cluster's ServiceExport.
func (r *Report) addOwnExport(f *Facts) {
	if f.Export == nil {
		return
	}
	switch member := f.Set != "" || f.unread(Membership); {
	case !member || f.Leaving || len(f.Export.Status.Conditions) > 0:
	case f.Now.Sub(f.Export.CreationTimestamp.Time) < soon:
		r.warn("wait a moment and run the command again", "the agent has not read this cluster's new ServiceExport yet")
	default:
		r.error(f.doctor(), "the agent has set no condition on this cluster's ServiceExport")
	}
	for _, entry := range strings.Split(f.Export.Annotations[clusterset.AnnotationExportTo], ",") {
		id, ok := strings.CutPrefix(strings.TrimSpace(entry), "cluster=")
		if ok && id != f.ID && !f.unread(Leases) && !slices.ContainsFunc(f.Leases, func(l coordinationv1.Lease) bool {
			return l.Labels[liveness.LabelSource] == id
		}) {
			r.warn("change the annotation "+clusterset.AnnotationExportTo+"; to list members: kubectl clusterset "+
				"status", "export-to names cluster %s, and this cluster knows no such member", id)
		}
	}
	r.Findings = append(r.Findings, facts.LeftOut(f.Export)...)
	valid := !meta.IsStatusConditionFalse(f.Export.Status.Conditions, string(mcsv1beta1.ServiceExportConditionValid))
	for _, c := range f.Export.Status.Conditions {
		ok := c.Status == metav1.ConditionTrue
		switch kind := mcsv1beta1.ServiceExportConditionType(c.Type); {
		case kind == mcsv1beta1.ServiceExportConditionValid && !ok:
			first := "make the Service exportable"
			if c.Reason == string(mcsv1beta1.ServiceExportReasonNoService) {
				first = "create the Service"
			}
			r.error(fmt.Sprintf("%s, or kubectl -n %s delete serviceexport %s", first, f.Name.Namespace, f.Name.Name),
				"this cluster's ServiceExport is not valid (%s): %s", c.Reason, c.Message)
		case kind == mcsv1beta1.ServiceExportConditionReady && !ok && valid: // else it cannot be on the hub
			r.error(f.doctor(), "this cluster's ServiceExport is not on the hub (%s): %s", c.Reason,
				c.Message)
		case kind == mcsv1beta1.ServiceExportConditionConflict && ok:
			r.warn("make the Services and ServiceExports of all clusters the same, or accept the oldest", "%s",
				c.Message)
		}
	}
}
