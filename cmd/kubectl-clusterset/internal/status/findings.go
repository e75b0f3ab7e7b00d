package status

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/facts"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/manifest"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/liveness"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/reach"
)

// unfinished is how long a join may take.
const unfinished = 10 * time.Minute

const (
	onHub  = "hub"
	onHere = "this cluster"
	doctor = "kubectl clusterset doctor"
	join   = facts.Join
)

func (r *Report) add(about string, found ...report.Finding) {
	for _, f := range found {
		r.Findings = append(r.Findings, f.On(about))
	}
}

// findings adds those about the clusterset, its members, this cluster and names, in that order.
func (r *Report) findings(f *Facts, unreadable map[string]invalid) {
	switch {
	case f.Hub != nil && f.Member != nil && f.Member.Set != "" && facts.RenewsElsewhere(f.Member.Leases, f.Member.Now,
		f.Hub.Lease(f.Member.ID), f.Hub.Now) && !forgotten(f.Member, f.Hub):
		if len(f.Hub.Sets) == 0 {
			r.add(onHub, f.Hub.Role.NoSet(f.Hub.Namespace, facts.NameHub))
			break
		}
		r.add(onHub, report.Errorf(facts.NameHub, "this cluster's agent does not renew its Lease on this hub, but on "+
			"another one: what is shown of members and names is not of its ClusterSet"))
	case f.Hub != nil:
		r.hubFindings(f.Hub)
	case f.HubError != "":
		remedy := doctor + "; or name the hub: --hub-kubeconfig, --hub-context"
		if f.HubDenied {
			remedy = "name the hub with its admin's credentials: --hub-kubeconfig, --hub-context; or name the " +
				"ClusterSet's namespace with --hub-namespace"
		}
		r.add(onHub, report.Errorf(remedy,
			"reading the hub failed, so members are not shown: %s", f.HubError))
	}
	if m := f.Member; m != nil {
		if m.HubNamespace != "" && f.GivenNamespace != "" && f.GivenNamespace != m.HubNamespace {
			r.add(onHere, report.Warningf("omit --hub-namespace, or name a member of that ClusterSet with --context",
				"--hub-namespace is %s, and its credentials for the hub are for %s", f.GivenNamespace, m.HubNamespace))
		}
		r.memberFindings(m, f.Hub)
	}
	for _, id := range slices.Sorted(maps.Keys(unreadable)) {
		r.add(id, report.Errorf("use the same version of clusterset-controller in all clusters, and of kubectl "+
			"clusterset; "+report.DocsUpgrade,
			"parsing %s of cluster %s failed, so NAMES omits them: %s", report.Number(unreadable[id].count, "export"),
			id, unreadable[id].first))
	}
	if f.Hub != nil {
		r.emptyFinding()
	}
	for i := range r.Names {
		n := &r.Names[i]
		for _, message := range n.Conflicts {
			r.add(n.Name+"."+n.Namespace, report.Warningf(r.explain(n), "%s", message))
		}
	}
}

// explain returns the command that explains a name. With --hub-only, one of its exporters can: the hub is no member.
func (r *Report) explain(n *NameRow) string {
	command := "kubectl clusterset explain " + n.Name + "." + n.Namespace
	if r.Here == nil {
		command = "in cluster " + n.Clusters[0] + ": " + command
	}
	return command
}

func (r *Report) hubFindings(h *Hub) {
	r.add(onHub, h.SetFindings()...)
	r.Findings = append(r.Findings, h.PoolFindings("")...)
	profiles := slices.Clone(h.Profiles)
	slices.SortFunc(profiles, func(a, b inventoryv1alpha1.ClusterProfile) int { return cmp.Compare(a.Name, b.Name) })
	for i := range profiles {
		if found, ok := profileFinding(h, &profiles[i], r.here(profiles[i].Name)); ok {
			r.add(profiles[i].Name, found)
		}
	}
	start := facts.StartHub(manifest.HubDeployment(h.Namespace))
	r.add(onHub, h.LeaderFindings(start)...)
	if h.Idle() {
		r.add(onHub, report.Warningf(start,
			"no member has a condition: clusterset-controller hub does not run, or waits"))
	}
	r.silentFinding(h)
	r.Findings = append(r.Findings, h.ClockFindings()...)
}

// named is how many names a finding about several lists.
const named = 5

// emptyFinding finds names that no cluster serves: the hub has no ready endpoint of them.
func (r *Report) emptyFinding() {
	var empty []string
	remedy := ""
	for i := range r.Names {
		if n := &r.Names[i]; len(n.Idle) == len(n.Clusters) {
			empty, remedy = append(empty, n.Name+"."+n.Namespace), cmp.Or(remedy, r.explain(n))
		}
	}
	if len(empty) == 0 {
		return
	}
	list := strings.Join(empty[:min(len(empty), named)], ", ")
	if more := len(empty) - named; more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	r.add("", report.Errorf(remedy, "no cluster has a ready endpoint of %s: connections fail", list))
}

// unselectedFindings finds imports whose preference selects no cluster that has a ready endpoint, while others have.
// Only exports to this cluster count.
func (r *Report) unselectedFindings(exports map[key][]clusterset.Export, own clusterset.Place) {
	for _, n := range r.Names {
		of := slices.DeleteFunc(slices.Clone(exports[key{n.Namespace, n.Name}]),
			func(e clusterset.Export) bool { return !e.GoesTo(own) })
		if len(of) == 0 {
			continue
		}
		if merged, _ := conflict.Merge(of); !n.Imported || merged.Type == mcsv1beta1.Headless ||
			len(n.Idle) == len(n.Clusters) || selects(merged.Preference, of, n.Idle, own) {
			continue
		}
		name, what := n.Name+"."+n.Namespace, "its preference selects no cluster that has a ready endpoint"
		if !slices.ContainsFunc(of, func(e clusterset.Export) bool { return !slices.Contains(n.Idle, e.Cluster) }) {
			what = "no cluster that exports it to this one has a ready endpoint"
		}
		r.add(name, report.Errorf("kubectl clusterset explain "+name, "%s: connections to its VIP fail in this cluster",
			what))
	}
}

// selects reports whether a preference selects an exporter that is not idle.
func selects(p hubv1alpha1.Preference, of []clusterset.Export, idle []string, own clusterset.Place) bool {
	tiers := clusterset.Tiers(p)
	return slices.ContainsFunc(of, func(e clusterset.Export) bool {
		place := clusterset.Place{Cluster: e.Cluster, Properties: e.Properties}
		return !slices.Contains(idle, e.Cluster) &&
			slices.ContainsFunc(tiers, func(t clusterset.Tier) bool { return t.Selects(place, own) })
	})
}

// silentFinding finds that most members do not renew. If they stopped together, live members keep their endpoints.
func (r *Report) silentFinding(h *Hub) {
	members, silent := 0, 0
	for i := range h.Profiles {
		if lease := h.Lease(h.Profiles[i].Name); lease != nil {
			members++
			if facts.Expired(lease, h.Now) {
				silent++
			}
		}
	}
	expire := len(h.Sets) == 1 && h.Sets[0].Spec.Lease.MostSilent == hubv1alpha1.MostSilentExpire
	if silent < 2 || 2*silent <= members-1 || expire {
		return
	}
	r.add(onHub, report.Errorf("restore the hub's network; for members that are permanently lost: kubectl clusterset "+
		"leave NAME --evict --hub-context=HUB, or set spec.lease.mostSilent of the ClusterSet to Expire",
		"%d of %d members do not renew their Leases: if they stopped together, "+
			"live members keep the endpoints of those that answer", silent, members))
}

// here reports whether a member is the cluster that is asked, by its ID.
func (r *Report) here(member string) bool {
	return slices.ContainsFunc(r.Members, func(m MemberRow) bool { return m.Here && m.Cluster == member })
}

func profileFinding(h *Hub, p *inventoryv1alpha1.ClusterProfile, here bool) (report.Finding, bool) {
	lease := h.Lease(p.Name)
	age := h.Now.Sub(p.CreationTimestamp.Time)
	evict := "kubectl clusterset leave " + p.Name + " --evict --hub-context=HUB"
	switch {
	case p.DeletionTimestamp != nil:
		ago := h.Now.Sub(p.DeletionTimestamp.Time)
		return report.Warningf(facts.HubLog, "it left or was evicted %s ago, and its records on the hub still exist",
			report.Age(ago)), ago >= time.Minute
	case p.Annotations[clusterset.AnnotationLeft] != "":
		return report.Warningf(facts.HubLog, "it has left, and its records on the hub still exist"), true
	case p.Annotations[clusterset.AnnotationClusterUID] == "":
		return report.Warningf(facts.DoctorThere+"; or give up the cluster ID: "+evict,
			"its join began %s ago, and no agent has claimed the cluster ID", report.Age(age)), age > unfinished
	case lease == nil:
		return report.Errorf(facts.DoctorThere, "it has claimed its cluster ID, and has never renewed its Lease"), true
	case facts.Expired(lease, h.Now):
		at, _, _ := facts.Renewed(lease)
		remedy := facts.DoctorThere + "; if it is permanently lost: " + evict
		if here {
			remedy = doctor
		}
		ago := h.Now.Sub(at)
		return report.Errorf(remedy, "it last renewed its Lease %s ago: %s", report.Age(ago), h.silence(ago)), true
	case meta.IsStatusConditionFalse(p.Status.Conditions, inventoryv1alpha1.ConditionControlPlaneHealthy):
		c := meta.FindStatusCondition(p.Status.Conditions, inventoryv1alpha1.ConditionControlPlaneHealthy)
		return report.Errorf(facts.DoctorThere, "%s: %s", c.Reason, c.Message), true
	}
	unreachable, err := reach.ReadUnreachable(lease)
	if err != nil {
		return report.Warningf(facts.DoctorThere, "what it does not reach is invalid: %v", err), true
	}
	if len(unreachable) == 0 {
		return report.Finding{}, false
	}
	var out []string
	for _, id := range slices.Sorted(maps.Keys(unreachable)) {
		out = append(out, fmt.Sprintf("%s (for %s)", id, report.Age(h.Now.Sub(unreachable[id]))))
	}
	return report.Warningf("check these clusters, and the network between; "+report.DocsReach,
		"it does not reach %s: the endpoints there follow spec.lease.onExpiry of the ClusterSet",
		strings.Join(out, ", ")), true
}

// silence returns what clients in other clusters get of a member that has not renewed its Lease for so long.
func (h *Hub) silence(ago time.Duration) string {
	const evidence = "while its agent or an endpoint answers there"
	if len(h.Sets) != 1 {
		return "clients elsewhere get its endpoints " + evidence
	}
	l := &h.Sets[0].Spec.Lease
	left := time.Duration(l.DurationSeconds+l.GraceSeconds)*time.Second - ago
	switch {
	case l.OnExpiry == hubv1alpha1.ExpiryKeep:
		return "clients elsewhere still get its endpoints (onExpiry: Keep)"
	case left > 0:
		return "clients elsewhere get its endpoints " + evidence + "; where neither can be tried, " +
			report.Age(left) + " more"
	}
	return "clients elsewhere get its endpoints only " + evidence
}

func (r *Report) memberFindings(m *Member, hub *Hub) {
	switch {
	case m.Set == "" && len(m.Known) > 0: // they say why
	case m.Set == "":
		why := "it is a member of no ClusterSet"
		if n := len(m.Exports); n > 0 {
			why += fmt.Sprintf(", and has %s without effect", report.Number(n, "ServiceExport"))
		}
		remedy := m.Join()
		if m.Agent != nil {
			remedy = m.Finish()
			if m.Agent.Status.AvailableReplicas == 0 {
				remedy, why = doctor, why+" yet: no replica of its agent is available"
			}
		}
		if len(m.HubOf) > 0 {
			remedy = "kubectl clusterset status --hub-only"
			why += "; it is the hub of " + strings.Join(m.HubOf, ", ")
		}
		r.add(onHere, report.Errorf(remedy, "%s", why))
	case m.Leaving:
		r.add(onHere, report.Warningf(facts.GoOnLeaving,
			"it is leaving ClusterSet %s", m.Set))
	case forgotten(m, hub):
		r.add(onHere, report.Errorf(facts.Readmit, "the hub has no ClusterProfile %s: it was evicted, or the hub was "+
			"restored from an earlier backup, or this is another hub", m.ID))
	}
	if m.Set != "" && !m.Leaving && len(m.Unserved) > 0 {
		r.add(onHere, report.Errorf(join, "its API server has no kind %s: exports or imports do not work here",
			strings.Join(m.Unserved, ", ")))
	}
	r.add(onHere, m.Known...)
	if stopped := m.Agent != nil && ptr.Deref(m.Agent.Spec.Replicas, 1) == 0; m.Set != "" && stopped {
		r.add(onHere, report.Errorf(facts.StartAgent,
			"the agent's Deployment is scaled to 0: exports and imports are not updated"))
	} else if _, expired, seen := facts.HubSeen(m.Leases, m.Now); m.Set != "" && (expired || !seen) &&
		(hub == nil || !hub.Live(m.ID)) {
		switch {
		case m.Agent == nil:
			r.add(onHere, report.Errorf(join,
				"there is no Deployment clusterset-system/clusterset-controller: exports and imports are not updated"))
		case m.Agent.Status.AvailableReplicas == 0:
			r.add(onHere, report.Errorf("kubectl -n clusterset-system get pods; "+facts.AgentLog,
				"no replica of its agent is available: exports and imports are not updated"))
		}
	}
	if r.Here.Held > 0 {
		r.add(onHere, report.Warningf("kubectl -n clusterset-system get serviceexportrecords -o wide",
			"it keeps %s of other clusters that the hub no longer shows", report.Number(r.Here.Held, "record")))
	}
	r.Findings = append(r.Findings, facts.NotImported(m.Records, hubv1alpha1.ConditionImported)...)
	r.Findings = append(r.Findings, facts.NotImported(m.Records, hubv1alpha1.ConditionEndpointsImported)...)
	for i := range m.Leases {
		lease := &m.Leases[i]
		if v := reach.Read(lease); v.State == reach.Serving && !liveness.StateOf(lease).Expired {
			id := lease.Labels[liveness.LabelSource]
			r.add(onHere, report.Warningf("in cluster "+id+": kubectl clusterset doctor",
				"since %s only the endpoints of cluster %s answer here, not its agent: they stay for an hour",
				v.Since.UTC().Format(time.RFC3339), id))
		}
	}
	r.fullRanges(m)
	r.exportFindings(m)
	for i := range m.Imports {
		imp := &m.Imports[i]
		c := meta.FindStatusCondition(imp.Status.Conditions, string(mcsv1beta1.ServiceImportConditionReady))
		if name := imp.Name + "." + imp.Namespace; c != nil && c.Status != metav1.ConditionTrue {
			r.add(name, report.Errorf("kubectl clusterset explain "+name, "its import here is not Ready (%s): %s",
				c.Reason, c.Message))
		}
	}
}

// forgotten reports whether the hub of this cluster's ClusterSet does not know it as a member.
func forgotten(m *Member, hub *Hub) bool {
	return hub != nil && len(hub.Sets) == 1 && hub.Sets[0].Name == m.Set &&
		!slices.ContainsFunc(hub.Profiles, func(p inventoryv1alpha1.ClusterProfile) bool { return p.Name == m.ID })
}

// fullRanges finds IP families whose ranges for VIPs are all full.
func (r *Report) fullRanges(m *Member) {
	if m.VIPMode != ipam.ModePreferred {
		return
	}
	for _, f := range []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} {
		ranges, free := 0, uint64(0)
		for _, u := range m.Ranges {
			if u.Range.Prefix.Addr().Is4() == (f == corev1.IPv4Protocol) && u.Range.State == ipam.Ready {
				ranges, free = ranges+1, max(free, u.Available)
			}
		}
		if ranges > 0 && free == 0 {
			r.add(onHere, report.Warningf("add a pool to the ClusterSet, or a ServiceCIDR with the label "+
				ipam.LabelVIPs+" here; "+report.DocsRanges,
				"no %s address is free in its %s for VIPs: new VIPs come from the cluster's own ranges", f,
				report.Number(ranges, "range")))
		}
	}
}

func (r *Report) exportFindings(m *Member) {
	kinds := []mcsv1beta1.ServiceExportConditionType{mcsv1beta1.ServiceExportConditionValid,
		mcsv1beta1.ServiceExportConditionReady}
	for i := range m.Exports {
		e := &m.Exports[i]
		name := e.Name + "." + e.Namespace
		for _, kind := range kinds {
			c := meta.FindStatusCondition(e.Status.Conditions, string(kind))
			if c != nil && c.Status != metav1.ConditionTrue {
				r.add(name, report.Errorf("kubectl clusterset explain "+name, "its export here is not %s (%s): %s",
					kind, c.Reason, c.Message))
				break
			}
		}
		r.add(name, facts.LeftOut(e)...)
	}
}
