package check

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/pmezard/go-difflib/difflib"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/facts"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/snapshot"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conditions"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// soon is how long an agent may take to read a new ServiceExport.
const soon = 15 * time.Second

// noAgent are the causes for which no agent imports; for those that unwell adds, it publishes and reads no change.
var (
	noAgent = slices.Concat(stopped, []string{"leaving", "agent-outdated"})
	unwell  = slices.Concat(noAgent, unreached, []string{"not-on-hub", "drift"})
)

// each returns a look that calls is for each name. is reports whether the check finds the name, with the detail. do
// returns the step of a name, if the check has none of its own.
func each(is func(w *World, n *Name) (bool, string), do ...func(w *World, n *Name) report.Step) func(*World) []Hit {
	return func(w *World) (out []Hit) {
		for _, n := range w.Names {
			if found, detail := is(w, n); found {
				h := Hit{On: n.String(), Detail: detail}
				for _, step := range do {
					h.Do = step(w, n)
				}
				out = append(out, h)
			}
		}
		return out
	}
}

// in returns a step in a cluster, which may be this one.
func (w *World) in(cluster, command string) report.Step {
	s := report.Here(command)
	if w.Member == nil || cluster != w.Member.ID() {
		s.At = cluster
	}
	return s
}

// prefer returns the step that changes a preference: that of the oldest export is in effect.
func prefer(w *World, n *Name) report.Step { return w.in(n.Exporters[0].Cluster, editExport) }

const editExport = "kubectl -n {namespace} edit serviceexport {name}"

// lacks returns the reason and message of a condition that is there and not True.
func lacks[T ~string](all []metav1.Condition, kind T) (bool, string) {
	c := meta.FindStatusCondition(all, string(kind))
	if c == nil || c.Status == metav1.ConditionTrue {
		return false, ""
	}
	return true, c.Reason + ": " + strings.TrimSuffix(c.Message, ".")
}

// conditions returns those of this cluster's ServiceExport, if there is one.
func (n *Name) conditions() []metav1.Condition {
	if n.Export == nil {
		return nil
	}
	return n.Export.Status.Conditions
}

// notImported returns why a name is not imported, or not completely, by a condition of a record.
func notImported(n *Name, kind string) (bool, string) {
	for _, rec := range n.records {
		if meta.IsStatusConditionFalse(rec.Status.Conditions, kind) {
			return lacks(rec.Status.Conditions, kind)
		}
	}
	return false, ""
}

var nameChecks = []Check{
	{
		ID: "export-invalid", Scope: Names, Level: report.Error, Needs: parts{snapshot.Exports},
		One: "the export of %s here is not valid", Many: "%d exports here are not valid",
		Do: report.Here("kubectl -n {namespace} get services"),
		Look: each(func(w *World, n *Name) (bool, string) {
			return lacks(n.conditions(), mcsv1beta1.ServiceExportConditionValid)
		}),
	},
	{
		ID: "export-unpublished", Scope: Names, Level: report.Error, Needs: parts{snapshot.Exports},
		After: append([]string{"export-invalid", "hub-unread"}, unwell...), One: "the export of %s is not on the hub",
		Many: "%d exports are not on the hub", Do: agentLog,
		Look: each(func(w *World, n *Name) (bool, string) {
			return lacks(n.conditions(), mcsv1beta1.ServiceExportConditionReady)
		}),
	},
	{
		ID: "export-unseen", Scope: Names, Level: report.Error, Needs: parts{snapshot.Exports, snapshot.Properties},
		After: unwell, One: "the agent has not read the export of %s", Many: "the agent has not read %d exports",
		Do: agentLog,
		Look: each(func(w *World, n *Name) (bool, string) {
			return w.Member.Set() != "" && n.Export != nil && len(n.Export.Status.Conditions) == 0 &&
				w.Member.Now.Sub(n.Export.CreationTimestamp.Time) >= soon, ""
		}),
	},
	{
		ID: "export-part", Scope: Names, Level: report.Warning, Needs: parts{snapshot.Exports},
		One: "a part of the export of %s is invalid and has no effect", Many: "parts of %d exports have no effect",
		Do: report.Here(editExport),
		Look: each(func(w *World, n *Name) (bool, string) {
			c := meta.FindStatusCondition(n.conditions(), string(mcsv1beta1.ServiceExportConditionValid))
			if c == nil {
				return false, ""
			}
			what := conditions.LeftOut(c)
			return what != "", what
		}),
	},
	{
		ID: "export-to", Scope: Names, Level: report.Warning, Needs: parts{snapshot.Exports, snapshot.Leases},
		One:  "the export of %s goes to a cluster that is no member",
		Many: "%d exports go to clusters that are no members",
		Do:   report.Here(editExport),
		Look: each(func(w *World, n *Name) (bool, string) {
			if n.Export == nil {
				return false, ""
			}
			for _, entry := range strings.Split(n.Export.Annotations[clusterset.AnnotationExportTo], ",") {
				id, ok := strings.CutPrefix(strings.TrimSpace(entry), "cluster=")
				if ok && id != w.Member.ID() && w.Source(id) == nil {
					return true, id
				}
			}
			return false, ""
		}),
	},
	{
		ID: "record-invalid", Scope: Names, Level: report.Error, One: "an export of %s cannot be read",
		Many: "exports of %d names cannot be read",
		Look: each(func(w *World, n *Name) (bool, string) {
			if len(n.Invalid) == 0 {
				return false, ""
			}
			return true, "of cluster " + n.Invalid[0].Cluster + ": " + n.Invalid[0].Why
		}),
	},
	{
		ID: "not-imported", Scope: Names, Level: report.Error, Needs: parts{snapshot.Records}, After: []string{"drift"},
		One: "%s is not imported", Many: "%d names are not imported",
		Look: each(func(w *World, n *Name) (bool, string) { return notImported(n, hubv1alpha1.ConditionImported) }),
	},
	{
		ID: "change-refused", Scope: Names, Level: report.Error, Needs: parts{snapshot.Records},
		After: []string{"drift"}, One: "the API server refuses a change of the import of %s",
		Many: "%d imports are not as they are exported",
		Look: each(func(w *World, n *Name) (bool, string) {
			for _, rec := range n.records {
				c := meta.FindStatusCondition(rec.Status.Conditions, hubv1alpha1.ConditionImported)
				if c != nil && c.Reason == hubv1alpha1.ReasonChangeRefused {
					return true, c.Reason + ": " + c.Message
				}
			}
			return false, ""
		}),
	},
	{
		ID: "endpoints-lost", Scope: Names, Level: report.Error, Needs: parts{snapshot.Records},
		One: "endpoints of %s are not imported", Many: "endpoints of %d names are not imported",
		Look: each(func(w *World, n *Name) (bool, string) {
			return notImported(n, hubv1alpha1.ConditionEndpointsImported)
		}),
	},
	{
		ID: "import-foreign", Scope: Names, Level: report.Warning, Needs: parts{snapshot.Imports},
		After: []string{"not-imported"}, One: "the agent did not create the ServiceImport %s",
		Many: "the agent did not create %d ServiceImports",
		Do:   report.Here("kubectl -n {namespace} get serviceimport {name} -o yaml"),
		Look: each(func(w *World, n *Name) (bool, string) { return n.Import != nil && !kube.Manages(n.Import), "" }),
	},
	{
		ID: "import-orphan", Scope: Names, Level: report.Warning,
		Needs: parts{snapshot.Imports, snapshot.Records, snapshot.Properties},
		After: unwell, One: "nobody exports %s to this cluster, and it is imported",
		Many: "%d names are imported, and nobody exports them here", Do: agentLog,
		Look: each(func(w *World, n *Name) (bool, string) {
			return w.joined() && n.Import != nil && kube.Manages(n.Import) && len(n.Exporters)+len(n.Invalid) == 0, ""
		}),
	},
	{
		ID: "import-not-ready", Scope: Names, Level: report.Error, Needs: parts{snapshot.Imports},
		After: noAgent, One: "the import of %s is not ready",
		Many: "%d imports are not ready", Do: report.Here("kubectl -n {namespace} describe serviceimport {name}"),
		Look: each(func(w *World, n *Name) (bool, string) {
			if n.Import == nil {
				return false, ""
			}
			return lacks(n.Import.Status.Conditions, mcsv1beta1.ServiceImportConditionReady)
		}),
	},
	{
		ID: "no-endpoint", Scope: Names, Level: report.Error, After: []string{"endpoints-lost", "not-imported"},
		One:  "no cluster has a ready endpoint of %s, so connections fail",
		Many: "no cluster has a ready endpoint of %d names",
		Look: func(w *World) (out []Hit) {
			for _, n := range w.Names {
				lost := slices.ContainsFunc(n.Exporters, func(x Exporter) bool { return x.Lost })
				if len(n.Exporters) > 0 && !n.served() && !lost {
					out = append(out, w.idle(n))
				}
			}
			return out
		},
	},
	{
		ID: "no-endpoint-seen", Scope: Names, Level: report.Error, Needs: parts{snapshot.Imports, snapshot.Slices},
		One: "no endpoint of %s is ready, so connections fail", Many: "no endpoint of %d names is ready",
		Do: report.Here("kubectl -n {namespace} describe endpointslices -l " + mcsv1beta1.LabelServiceName + "={name}"),
		Look: each(func(w *World, n *Name) (bool, string) {
			return !w.HasRead(snapshot.Records) && n.Import != nil && len(n.Import.Status.Clusters) > 0 &&
				!slices.ContainsFunc(n.Slices, func(s *discoveryv1.EndpointSlice) bool {
					return slices.ContainsFunc(s.Endpoints, func(e discoveryv1.Endpoint) bool { return Ready(&e) })
				}), ""
		}),
	},
	{
		ID: "no-preferred", Scope: Names, Level: report.Error, Needs: parts{snapshot.Imports, snapshot.Slices},
		After: []string{"endpoints-lost"}, One: "the preference of %s selects no cluster with a ready endpoint",
		Many: "the preferences of %d names select no cluster with a ready endpoint",
		Look: each(func(w *World, n *Name) (bool, string) {
			ready := func(x Exporter) bool { return x.Ready > 0 }
			return n.Imports() && !n.Headless() && slices.ContainsFunc(n.Exporters, ready) &&
				!slices.ContainsFunc(n.Exporters, func(x Exporter) bool { return ready(x) && !x.Standby }), ""
		}, prefer),
	},
	{
		ID: "exporter-idle", Scope: Names, Level: report.Warning, After: []string{"no-preferred"},
		One: "%s has no ready endpoint in some clusters", Many: "%d names have no ready endpoint in some clusters",
		Look: func(w *World) (out []Hit) {
			for _, n := range w.Names {
				if len(n.idle()) > 0 && n.served() {
					out = append(out, w.idle(n))
				}
			}
			return out
		},
	},
	{
		ID: "preference-unknown", Scope: Names, Level: report.Warning,
		One:  "the preference of %s names a cluster that does not export it",
		Many: "the preferences of %d names name clusters that do not export them",
		Look: each(func(w *World, n *Name) (bool, string) {
			for _, tier := range clusterset.Tiers(n.Merged.Preference) {
				id, ok := strings.CutPrefix(string(tier), "cluster=")
				if ok && !n.Headless() && !slices.Contains(n.Merged.Clusters, id) {
					return true, id
				}
			}
			return false, ""
		}, prefer),
	},
	{
		ID: "conflict", Scope: Names, Level: report.Warning, One: "the clusters disagree about %s",
		Many: "the clusters disagree about %d names", Look: each(disagree, agree),
	},
	{
		ID: "held", Scope: Names, Level: report.Warning, Needs: parts{snapshot.Records},
		One:   "the hub no longer shows the export of %s, and this cluster holds it",
		Many:  "the hub no longer shows exports of %d names, and they are kept",
		After: []string{"no-endpoint", "set-none"},
		Do:    report.Here("kubectl -n clusterset-system get serviceexportrecords -o wide"),
		Look: each(func(w *World, n *Name) (bool, string) {
			for i := range n.Exporters {
				if x := &n.Exporters[i]; x.Held != "" {
					return true, x.Cluster + ": " + x.Held
				}
			}
			return false, ""
		}),
	},
	{
		ID: "ranges-here", Scope: Member, Level: report.Error, Needs: parts{snapshot.Ranges, snapshot.Nodes},
		After: []string{"Overlap"}, One: "the Pod range and the Service range of this cluster overlap",
		Look: func(w *World) []Hit {
			ranges, _ := ipam.AllRanges(w.Member.CIDRs)
			for _, p := range w.Member.PodRanges {
				for _, s := range ranges {
					if p.Overlaps(s.Prefix) {
						return one(true, "%s and %s", p, s.Prefix)
					}
				}
			}
			return nil
		},
	},
	{
		ID: "address-here", Scope: Set, Level: report.Error,
		Needs: parts{snapshot.Ranges, snapshot.Nodes, snapshot.Slices, snapshot.Properties}, After: []string{"Overlap"},
		One:  "cluster %s exports endpoints in this cluster's own ranges",
		Many: "%d clusters export endpoints in this cluster's own ranges",
		Look: addressesHere,
	},
}

// idle returns the hit of a name that lacks ready endpoints, with where to look.
func (w *World) idle(n *Name) Hit {
	h := Hit{On: n.String()}
	var all []string
	if none := n.idle(); len(none) > 0 {
		all = append(all, "none ready in "+strings.Join(none, ", "))
		h.Do = report.Here("kubectl clusterset explain {}").In(none[0])
		if w.Member != nil && slices.Contains(none, w.Member.ID()) {
			h.Do = report.Here("kubectl -n {namespace} get pods --show-labels")
		}
	}
	for i := range n.Exporters {
		x := &n.Exporters[i]
		if x.Expired != "" && x.Ready == 0 {
			all = append(all, x.Cluster+" has expired")
			if len(h.Do.Argv) == 0 {
				h.Do = report.Here("kubectl clusterset doctor").In(x.Cluster)
			}
		} else if x.Held != "" && x.Ready == 0 {
			all = append(all, x.Cluster+" is held: "+x.Held)
		} else if x.Ready > 0 && !n.takes(x) {
			all = append(all, "the VIP has no port or IP family of "+x.Cluster)
		} else if s := w.service(n.NamespacedName); x.Counted && x.Ready+x.NotReady == 0 && s != nil &&
			len(s.Selector) > 0 && x.Cluster == w.Member.ID() && !x.Lost && !w.AgentStopped() &&
			!w.states("RightsMissingHere") { // what is imported may be from before
			all = append(all, "no Pod here that has an address matches the Service's selector "+pairs(s.Selector))
		}
	}
	h.Detail = strings.Join(all, "; ")
	if !slices.ContainsFunc(n.Exporters, func(x Exporter) bool { return x.Ready == 0 && x.Expired == "" }) {
		// All exporters without a ready endpoint have expired.
		h.After = []string{"cluster-expired"}
	}
	return h
}

// disputed returns the properties that the clusters disagree about, as far as all of them export to this cluster.
func disputed(n *Name) []Property {
	if len(n.Elsewhere) > 0 {
		return nil
	}
	return slices.DeleteFunc(Properties(n.All, &n.Merged), func(p Property) bool { return len(p.Others) == 0 })
}

// agree returns the step that makes a cluster agree about the first of them: this one, or else the first that does not.
func agree(w *World, n *Name) report.Step {
	all := disputed(n)
	if len(all) == 0 || all[0].kind == "" {
		return report.Step{} // the page says what to do
	}
	clusters := slices.Sorted(maps.Keys(all[0].Others))
	if w.Member != nil && slices.Contains(clusters, w.Member.ID()) {
		clusters[0] = w.Member.ID()
	}
	return w.in(clusters[0], "kubectl -n {namespace} edit "+all[0].kind+" {name}")
}

// disagree reports whether the clusters disagree, with each cluster's value and the one in effect.
func disagree(_ *World, n *Name) (bool, string) {
	if len(n.Conflicts) == 0 {
		return false, ""
	}
	var out []string
	for _, p := range disputed(n) {
		out = append(out, p.String())
	}
	if len(out) == 0 {
		for _, c := range n.Conflicts {
			out = append(out, strings.TrimSuffix(c.Message, "."))
		}
	}
	return true, strings.Join(out, "; ")
}

// ownRanges returns the ranges of this cluster's Pods and Services.
func (w *World) ownRanges() []netip.Prefix {
	out := slices.Clone(w.Member.PodRanges)
	ranges, _ := ipam.AllRanges(w.Member.CIDRs) // the agent reports invalid ones in Events
	for _, r := range ranges {
		out = append(out, r.Prefix)
	}
	return out
}

func addressesHere(w *World) (out []Hit) {
	own := w.ownRanges()
	seen := map[string]bool{"": true, w.Member.ID(): true}
	var all []*discoveryv1.EndpointSlice
	for _, n := range w.Names {
		all = append(all, n.Slices...)
	}
	for _, s := range all {
		cluster := s.Labels[mcsv1beta1.LabelSourceCluster]
		for _, e := range s.Endpoints {
			for _, text := range e.Addresses {
				addr, _ := netip.ParseAddr(text) // an invalid one is in no range
				in := slices.IndexFunc(own, func(r netip.Prefix) bool { return r.Contains(addr) })
				if in >= 0 && !seen[cluster] {
					seen[cluster] = true
					out = append(out, Hit{On: cluster, Detail: fmt.Sprintf("%s is in %s", addr, own[in])})
				}
			}
		}
	}
	return out
}

// askedChecks are of explain: it alone has read what they need.
var askedChecks = []Check{
	{
		ID: "namespace-missing", Scope: Asked, Level: report.Error, Needs: parts{snapshot.Namespaces}, After: noAgent,
		One: "this cluster has no namespace for %s", Do: report.Here("kubectl create namespace {namespace}"),
		Look: each(func(w *World, n *Name) (bool, string) { return w.namespace(n) == nil && len(n.Exporters) > 0, "" }),
	},
	{
		ID: "namespace-refuses", Scope: Asked, Level: report.Warning, Needs: parts{snapshot.Namespaces}, After: noAgent,
		One: "the namespace of %s refuses imports in this cluster",
		Do:  report.Here("kubectl annotate namespace {namespace} " + clusterset.AnnotationNamespaceImport + "-"),
		Look: each(func(w *World, n *Name) (bool, string) {
			ns := w.namespace(n)
			return ns != nil && ns.Refuses && (len(n.Exporters) > 0 || !w.HasRead(snapshot.Records)), ""
		}),
	},
	{
		ID: "exported-elsewhere", Scope: Asked, Level: report.Error, Needs: parts{snapshot.Imports, snapshot.Records},
		After: unwell, One: "%s is not exported to this cluster",
		Look: each(func(w *World, n *Name) (bool, string) {
			if n.Import != nil || len(n.Exporters)+len(n.Invalid) > 0 || len(n.Elsewhere) == 0 {
				return false, ""
			}
			e := &n.Elsewhere[0]
			return true, fmt.Sprintf("cluster %s exports it to %s only", e.Cluster, e.ExportTo)
		}),
	},
	{
		ID: "not-exported", Scope: Asked, Level: report.Error, Needs: parts{snapshot.Imports},
		After: slices.Concat(unwell, []string{"exported-elsewhere", "export-invalid", "export-unpublished",
			"export-unseen"}),
		One: "no export of %s is seen here", Look: notExported,
	},
	{
		ID: "import-missing", Scope: Asked, Level: report.Error,
		Needs: parts{snapshot.Imports, snapshot.Records, snapshot.Namespaces},
		After: append([]string{"not-imported"}, unwell...),
		One:   "the agent has not created a ServiceImport of %s", Do: agentLog,
		Look: each(func(w *World, n *Name) (bool, string) {
			ns := w.namespace(n)
			return n.Import == nil && len(n.Exporters) > 0 && ns != nil && !ns.Refuses &&
					!slices.Contains(w.Member.Unserved, "ServiceImport"),
				fmt.Sprintf("%s of it", report.Number(len(n.Exporters), "export"))
		}),
	},
	{
		ID: "service-unexported", Scope: Asked, Level: report.Warning,
		Needs: parts{snapshot.Services, snapshot.Exports}, After: unwell,
		One: "this cluster's Service %s gets no traffic from other clusters: it has no ServiceExport",
		Do:  report.Here("kubectl clusterset export {name} -n {namespace}"),
		Look: each(func(w *World, n *Name) (bool, string) {
			s := w.service(n.NamespacedName)
			return s != nil && s.Type != corev1.ServiceTypeExternalName && n.Export == nil &&
				len(n.Exporters) > 0, ""
		}),
	},
}

func (w *World) namespace(n *Name) *snapshot.Namespace {
	return facts.Find(w.Member.Namespaces, func(ns *snapshot.Namespace) bool { return ns.Name == n.Namespace })
}

func (w *World) service(name types.NamespacedName) *snapshot.Service {
	if w.Member == nil {
		return nil
	}
	return facts.Find(w.Member.Services, func(s *snapshot.Service) bool {
		return s.Namespace == name.Namespace && s.Name == name.Name
	})
}

// notExported says why no export of the name is seen here, and names that the user may have meant.
func notExported(w *World) []Hit {
	n := w.Asked()
	if n.Import != nil || len(n.All)+len(n.Invalid) > 0 || n.Export != nil ||
		!w.HasRead(snapshot.Records) && !w.HasRead(snapshot.Services) {
		return nil
	}
	h := Hit{On: n.String()}
	s := w.service(n.NamespacedName)
	rules, excludes := hubv1alpha1.NamespaceRules{}, "ClusterSets exclude namespace %s by default"
	if w.Hub != nil && !w.wrongHub() && w.Hub.Set() != nil {
		rules, excludes = w.Hub.Set().Spec.Namespaces, "the ClusterSet excludes namespace %s"
	}
	excluded := !clusterset.MayUse(rules, n.Namespace)
	switch {
	case excluded:
		h.Detail = fmt.Sprintf(excludes, n.Namespace)
	case s != nil && s.Type == corev1.ServiceTypeExternalName:
		h.Detail = "this cluster's Service is of type ExternalName, which cannot be exported"
	case s != nil:
		h.Detail, h.Do = "this cluster has a Service without a ServiceExport",
			report.Here("kubectl clusterset export {name} -n {namespace}")
	}
	for i := range w.Member.Imports {
		imp := &w.Member.Imports[i]
		other := types.NamespacedName{Namespace: imp.Namespace, Name: imp.Name}
		if Similar(n.NamespacedName, other) {
			h.Detail = strings.TrimPrefix(h.Detail+"; there is "+imp.Name+"."+imp.Namespace, "; ")
			if len(h.Do.Argv) == 0 {
				h.Do = report.Here("kubectl clusterset explain " + imp.Name + "." + imp.Namespace)
			}
		}
	}
	if len(h.Do.Argv) == 0 && !excluded { // without a namespace, it is that of the context
		h.Do = report.Here("kubectl clusterset status -o name")
	}
	return []Hit{h}
}

// Similar reports whether a user who types name may mean other: another namespace, or a few wrong letters.
func Similar(name, other types.NamespacedName) bool {
	if name.Namespace != other.Namespace {
		return name.Name == other.Name
	}
	letters := difflib.NewMatcher(strings.Split(name.Name, ""), strings.Split(other.Name, ""))
	return name.Name != other.Name && letters.Ratio() > 0.6
}

// Table has all checks, causes before consequences.
var Table = slices.Concat(hubChecks, memberChecks, dnsChecks, setChecks, stateChecks(), lateChecks, nameChecks,
	askedChecks)
