package status

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/clock"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/table"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/liveness"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/votes"
)

// unfinished is how long a join may take before it is reported.
const unfinished = 10 * time.Minute

type adder func(about, remedy, what string, args ...any)

// problems are ordered: the clusterset, its members, this cluster, names.
func problems(f *Facts, r *Report, unread map[string]unreadable) (out []Problem) {
	add := func(about, remedy, what string, args ...any) {
		out = append(out, Problem{about, fmt.Sprintf(what, args...), remedy})
	}
	if f.Hub != nil {
		hubProblems(f.Hub, add)
	} else if f.HubError != "" {
		add("hub", "kubectl clusterset doctor; or name the hub: --hub-kubeconfig, --hub-context", "the hub was not read, so members are not shown: %s", f.HubError)
	}
	if f.Member != nil && f.Member.HubNamespace != "" && f.Asked != "" && f.Asked != f.Member.HubNamespace {
		add("this cluster", "leave --hub-namespace off, or name a member of that clusterset with --context", "--hub-namespace is %s, and its credentials for the hub are for %s", f.Asked, f.Member.HubNamespace)
	}
	if f.Member != nil {
		memberProblems(f.Member, f.Hub, add)
	}
	for _, id := range slices.Sorted(maps.Keys(unread)) {
		add(id, "use the same version of clusterset-controller in all clusters, and of kubectl clusterset", "%s of cluster %s cannot be read here, and NAMES leaves them out: %s", table.Count(unread[id].count, "export"), id, unread[id].first)
	}
	for _, n := range r.Names {
		for _, message := range n.Conflicts {
			add(n.Name+"."+n.Namespace, "kubectl clusterset explain "+n.Name+"."+n.Namespace, "%s", message)
		}
	}
	return out
}

func hubProblems(h *Hub, add adder) {
	switch {
	case len(h.Sets) == 0:
		add("hub", "kubectl clusterset init --hub-context=HUB", "namespace %s of the hub holds no ClusterSet", h.Namespace)
	case len(h.Sets) > 1:
		add("hub", "keep one: kubectl -n "+h.Namespace+" delete clusterset NAME", "namespace %s of the hub holds %d ClusterSets: agents wait until there is one", h.Namespace, len(h.Sets))
	}
	rangeProblems(h, add)
	quiet := len(h.Profiles) > 0
	profiles := slices.Clone(h.Profiles)
	slices.SortFunc(profiles, func(a, b inventoryv1alpha1.ClusterProfile) int { return cmp.Compare(a.Name, b.Name) })
	for i := range profiles {
		quiet = quiet && len(profiles[i].Status.Conditions) == 0 && h.Now.Sub(profiles[i].CreationTimestamp.Time) > time.Minute
		profileProblems(h, &profiles[i], add)
	}
	pods := "on the hub: kubectl -n clusterset-system get pods -l app.kubernetes.io/name=clusterset-hub,app.kubernetes.io/instance=" + h.Namespace
	if idle, stopped := h.leaderless(); stopped {
		add("hub", pods+"; where there are none: kubectl clusterset init --hub-context=HUB",
			"clusterset-controller hub does not run: nobody has renewed its Lease %s%s in clusterset-system for %s. Who leaves or is evicted is not cleaned up, nobody gets a block, and JOINED and HEALTHY stand still",
			clusterset.LeaseHubPrefix, h.Namespace, table.Age(idle))
	} else if quiet {
		add("hub", pods, "no member has a condition: clusterset-controller hub does not run, or waits")
	}
	silentProblem(h, add)
	for i := range h.Leases {
		if _, ahead, ok := clock.Renewed(&h.Leases[i]); ok && ahead.Abs() > tolerance && !clock.Expired(&h.Leases[i], h.Now) {
			add(h.Leases[i].Name, "set that cluster's clock: the age of its exports decides conflicts", "its clock is %v %s the hub's%s", ahead.Abs(), direction(ahead), clock.OrWas(&h.Leases[i], ahead))
		}
	}
}

// leaderless tells whether clusterset-controller hub does not run, and for how long, as far as that can be seen from here.
func (h *Hub) leaderless() (time.Duration, bool) {
	if h.Leader == nil || len(h.Sets) != 1 {
		return 0, false
	}
	return clock.Leaderless(h.Leader, h.Sets[0].CreationTimestamp.Time, h.Now)
}

// silentProblem tells what those that live make of it that most members are silent, if they fell silent together (decision 0013).
func silentProblem(h *Hub, add adder) {
	members, silent := 0, 0
	for i := range h.Profiles {
		if lease := h.lease(h.Profiles[i].Name); lease != nil {
			members++
			if clock.Expired(lease, h.Now) {
				silent++
			}
		}
	}
	if silent >= 2 && 2*silent > members-1 && (len(h.Sets) != 1 || h.Sets[0].Spec.Lease.MostSilent != hubv1alpha1.MostSilentExpire) {
		add("hub", "mend the hub's network; if they are gone for good: kubectl clusterset leave NAME --evict, or the ClusterSet's spec.lease.mostSilent: Expire",
			"%d of %d members are not seen: if they fell silent together, those that are seen keep their endpoints", silent, members)
	}
}

// tolerance of clocks: what is compared is whole seconds, and a write takes its time.
const tolerance = 10 * time.Second

func direction(ahead time.Duration) string {
	if ahead < 0 {
		return "behind"
	}
	return "ahead of"
}

func profileProblems(h *Hub, p *inventoryv1alpha1.ClusterProfile, add adder) {
	lease := h.lease(p.Name)
	age := table.Age(h.Now.Sub(p.CreationTimestamp.Time))
	switch {
	case p.DeletionTimestamp != nil || p.Annotations[clusterset.AnnotationLeft] != "":
		since := "it has left"
		if p.DeletionTimestamp != nil {
			since = "it was evicted or left " + table.Age(h.Now.Sub(p.DeletionTimestamp.Time)) + " ago"
			if h.Now.Sub(p.DeletionTimestamp.Time) < time.Minute {
				return
			}
		}
		add(p.Name, "on the hub: kubectl -n clusterset-system logs -l app.kubernetes.io/name=clusterset-hub --tail=50", "%s, and its records on the hub are not gone yet", since)
	case p.Annotations[clusterset.AnnotationClusterUID] == "":
		if h.Now.Sub(p.CreationTimestamp.Time) > unfinished {
			add(p.Name, "in that cluster: kubectl clusterset doctor; or give the id up: kubectl clusterset leave "+p.Name+" --evict", "its join was begun %s ago, and no agent has come", age)
		}
	case lease == nil:
		add(p.Name, "in that cluster: kubectl clusterset doctor", "it has claimed its id, and has never renewed its Lease")
	case clock.Expired(lease, h.Now):
		at, _, _ := clock.Renewed(lease)
		add(p.Name, "in that cluster: kubectl clusterset doctor; if it is gone for good: kubectl clusterset leave "+p.Name+" --evict",
			"not seen for %s", table.Age(h.Now.Sub(at)))
	case meta.IsStatusConditionFalse(p.Status.Conditions, inventoryv1alpha1.ConditionControlPlaneHealthy):
		c := meta.FindStatusCondition(p.Status.Conditions, inventoryv1alpha1.ConditionControlPlaneHealthy)
		add(p.Name, "in that cluster: kubectl clusterset doctor", "%s: %s", c.Reason, c.Message)
	case votes.Said(lease) != "":
		v, err := votes.Parse(votes.Said(lease))
		if err != nil {
			add(p.Name, "upgrade or look at that cluster", "what it says it does not reach is nonsense, and does not count: %v", err)
			break
		}
		add(p.Name, "kubectl clusterset explain NAME, in a cluster where endpoints are withheld; docs/troubleshoot.md says whose fault it may be", "it does not reach %s", unreached(v))
	}
}

// unreached is a vote in words: everything of c, 2 endpoints of web.shop.d.
func unreached(v votes.Vote) string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(v)) {
		what := table.Count(len(v[key]), "endpoint")
		if slices.Contains(v[key], votes.All) {
			what = "everything"
		}
		out = append(out, what+" of "+key)
	}
	if len(out) > 5 {
		out = append(out[:5], fmt.Sprintf("and of %d more", len(out)-5))
	}
	return strings.Join(out, ", ")
}

func memberProblems(m *Member, hub *Hub, add adder) {
	about := "this cluster"
	switch {
	case m.Set == "" && len(m.Exports) > 0:
		add(about, "kubectl clusterset join", "it is a member of no clusterset, so its %d ServiceExports export nothing", len(m.Exports))
	case m.Set == "":
		add(about, "kubectl clusterset join", "it is a member of no clusterset")
	case m.Leaving:
		add(about, "kubectl clusterset leave goes on with it", "it is leaving clusterset %s", m.Set)
	case forgotten(m, hub):
		add(about, "kubectl clusterset join takes it in again with its id and VIPs; kubectl clusterset leave if it is to stay out",
			"the hub has no ClusterProfile %s: it was evicted, or the hub was restored to before it joined, or this is another hub", m.Cluster)
	}
	if m.Set != "" && !works(m, hub) {
		switch {
		case m.Agent == nil:
			add(about, "kubectl clusterset join", "there is no Deployment clusterset-system/clusterset-controller: nobody keeps exports and imports in step")
		case m.Agent.Status.AvailableReplicas == 0:
			add(about, "kubectl -n clusterset-system get pods; kubectl -n clusterset-system logs deployment/clusterset-controller --all-pods --tail=50", "no replica of its agent is available: imports stand still as they are")
		}
	}
	if t := m.TokenExpires; t != nil && m.Set != "" {
		if left := t.Sub(m.Now); left <= 0 {
			add(about, "kubectl clusterset join --renew", "its token for the hub ran out %s ago: imports stand as they were then", table.Age(-left))
		}
	}
	if h := here(m); h.Held > 0 {
		add(about, "kubectl -n clusterset-system get serviceexportrecords -o wide", "%s of peers held: the hub does not show what it showed before", table.Count(h.Held, "record"))
	}
	for i := range m.Records {
		rec := &m.Records[i]
		if c := meta.FindStatusCondition(rec.Status.Conditions, hubv1alpha1.ConditionReached); c != nil && c.Status == metav1.ConditionFalse {
			name := rec.Spec.ServiceName + "." + rec.Spec.ServiceNamespace
			add(name, "kubectl clusterset explain "+name, "endpoints of cluster %s are withheld here: %s", rec.Spec.ClusterID, c.Message)
		}
	}
	for i := range m.Leases {
		deadProblem(m, &m.Leases[i], add)
	}
	fullRanges(m, add)
	exportProblems(m, add)
	for i := range m.Imports {
		imp := &m.Imports[i]
		if c := meta.FindStatusCondition(imp.Status.Conditions, string(mcsv1beta1.ServiceImportConditionReady)); c != nil && c.Status != metav1.ConditionTrue {
			add(imp.Name+"."+imp.Namespace, "kubectl clusterset explain "+imp.Name+"."+imp.Namespace, "its import here is not Ready (%s): %s", c.Reason, c.Message)
		}
	}
}

// deadProblem is a source that counts as dead here: it is silent, or was so often that it is let back in later (T3).
func deadProblem(m *Member, lease *coordinationv1.Lease, add adder) {
	id, back := lease.Labels[liveness.LabelSource], liveness.RenewingSince(lease)
	remedy := "kubectl -n clusterset-system get events --field-selector reason=SourceExpired; look after the agent of " + id
	switch {
	case !liveness.StateOf(lease).Expired:
	case back.IsZero():
		add("this cluster", remedy, "cluster %s counts as dead here: it has not renewed its Lease on the hub for longer than it may", id)
	default:
		add("this cluster", "wait; if it goes on dying: "+remedy, "cluster %s still counts as dead here: it died again and again, has been renewing its Lease on the hub again for %s, and is let back in within %v of that",
			id, table.Age(m.Now.Sub(back)), liveness.MaxDamping)
	}
}

// forgotten tells whether the hub of this cluster's own clusterset does not know it as a member.
func forgotten(m *Member, hub *Hub) bool {
	return hub != nil && len(hub.Sets) == 1 && hub.Sets[0].Name == m.Set &&
		!slices.ContainsFunc(hub.Profiles, func(p inventoryv1alpha1.ClusterProfile) bool { return p.Name == m.Cluster })
}

// works tells whether the hub shows that this cluster's agent does, wherever it runs.
func works(m *Member, hub *Hub) bool {
	if hub == nil {
		return false
	}
	lease := hub.lease(m.Cluster)
	return lease != nil && !clock.Expired(lease, hub.Now)
}

func exportProblems(m *Member, add adder) {
	for i := range m.Exports {
		e := &m.Exports[i]
		name := e.Name + "." + e.Namespace
		for _, kind := range []mcsv1beta1.ServiceExportConditionType{mcsv1beta1.ServiceExportConditionValid, mcsv1beta1.ServiceExportConditionReady} {
			c := meta.FindStatusCondition(e.Status.Conditions, string(kind))
			if c != nil && c.Status != metav1.ConditionTrue {
				add(name, "kubectl clusterset explain "+name, "its export here is not %s (%s): %s", kind, c.Reason, c.Message)
				break
			}
		}
	}
}
