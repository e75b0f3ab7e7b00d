// Package facts holds what more than one report reads of a hub or a member, and the findings that follow from it
// alone. It reads no cluster itself.
package facts

import (
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/grants"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// Remedies that several findings have.
const (
	NameHub     = "name the hub of this cluster with --hub-context"
	Join        = "kubectl clusterset join --hub-context=HUB"
	Init        = "kubectl clusterset init --hub-context=HUB"
	AgentLog    = "kubectl -n clusterset-system logs deployment/clusterset-controller --all-pods --tail=50"
	HubLog      = "on the hub: kubectl -n clusterset-system logs -l app.kubernetes.io/name=clusterset-hub --tail=50"
	StartAgent  = "kubectl -n clusterset-system scale deployment clusterset-controller --replicas=2"
	GoOnLeaving = "to continue: kubectl clusterset leave --hub-context=HUB; without access to the hub, unless it has " +
		"evicted this cluster: kubectl clusterset leave"
	Readmit = "to be a member again with its cluster ID and VIPs: " + Join + "; to remove what is left here: kubectl " +
		"clusterset leave --hub-context=HUB"
	DoctorThere = "in that cluster: kubectl clusterset doctor"
)

// Membership is what a cluster's ClusterProperties say.
type Membership struct {
	ID, Set string // "" if there is none
	Leaving bool
	// Properties are all ClusterProperties, which select clusters for export and traffic.
	Properties map[string]string
}

// Join returns the command that makes the cluster a member. Without a cluster ID, the UID of kube-system would become
// one.
func (m *Membership) Join() string {
	if m.ID == "" {
		return Join + " --cluster-id ID"
	}
	return Join
}

// Finish returns what to do in a cluster with an agent that is no member: one command joins it, the other removes what
// is left. Nothing tells an unfinished join from an unfinished leave.
func (m *Membership) Finish() string {
	return "to finish joining: " + m.Join() + "; to finish leaving: kubectl clusterset leave --hub-context=HUB"
}

// Place returns the cluster as exports and preferences select it.
func (m *Membership) Place() clusterset.Place {
	return clusterset.Place{Cluster: m.ID, Properties: m.Properties}
}

// Hub is a clusterset's namespace on the hub.
type Hub struct {
	Version   string
	Now       time.Time // by its clock
	Namespace string
	Sets      []hubv1alpha1.ClusterSet
	Profiles  []inventoryv1alpha1.ClusterProfile // without those of other cluster managers
	Leases    []coordinationv1.Lease
	Leader    *coordinationv1.Lease // of clusterset-controller hub; empty if there is none, nil if it was not read
	Role      Role                  // of the cluster; read only without Sets, if the user named it
}

// Role is what a cluster is in ClusterSets. What could not be read is missing.
type Role struct {
	HubOf    []string // ClusterSets
	MemberOf string   // a ClusterSet, or ""
	Server   string   // the URL of that ClusterSet's hub, or ""
}

// NoSet finds that a cluster that was named as the hub has no ClusterSet in a namespace. The remedy is for a cluster
// that could become the hub.
func (r *Role) NoSet(namespace, remedy string) report.Finding {
	switch {
	case len(r.HubOf) > 0:
		return report.Errorf("name another with --hub-namespace", "namespace %s of the hub holds no ClusterSet; it is "+
			"the hub of: %s", namespace, strings.Join(r.HubOf, ", "))
	case r.MemberOf != "":
		return report.Errorf("name that hub with --hub-context", "the cluster that you named as the hub %s; its "+
			"namespace %s holds no ClusterSet", r, namespace)
	}
	return report.Errorf(remedy, "namespace %s of the hub holds no ClusterSet", namespace)
}

// OnlyHub is the error of a command for a member in a hub that is none.
func (r *Role) OnlyHub() error {
	if r.MemberOf != "" || len(r.HubOf) == 0 {
		return nil
	}
	return report.WithRemedy(fmt.Errorf("this cluster is no member: it is the hub of ClusterSet %s",
		strings.Join(r.HubOf, ", ")), "name a member with --context")
}

// String says what a member is.
func (r *Role) String() string {
	s := "is a member of ClusterSet " + r.MemberOf
	if r.Server != "" {
		s += ", whose hub is " + r.Server
	}
	return s
}

// Lease returns a member's Lease, or nil.
func (h *Hub) Lease(member string) *coordinationv1.Lease {
	for i := range h.Leases {
		if h.Leases[i].Name == member {
			return &h.Leases[i]
		}
	}
	return nil
}

// Live reports whether a member renews its Lease.
func (h *Hub) Live(member string) bool {
	lease := h.Lease(member)
	return lease != nil && !Expired(lease, h.Now)
}

// StartHub is the remedy if the hub's controller, a Deployment in clusterset-system, does not run.
func StartHub(deployment string) string {
	return fmt.Sprintf("on the hub: kubectl -n %[1]s get deployment %[2]s; if it is scaled to 0: kubectl -n %[1]s "+
		"scale deployment %[2]s --replicas=2; else: kubectl -n %[1]s logs deployment/%[2]s --all-pods --tail=50; if "+
		"there is none: %[3]s", kube.SystemNamespace, deployment, Init)
}

// KeepOne is the remedy for several ClusterSets in a namespace.
func KeepOne(namespace string) string {
	return "keep one, on the hub: kubectl -n " + namespace + " delete clusterset NAME"
}

// SetFindings finds that there is not exactly one ClusterSet.
func (h *Hub) SetFindings() []report.Finding {
	switch {
	case len(h.Sets) == 0:
		return []report.Finding{h.Role.NoSet(h.Namespace, Init)}
	case len(h.Sets) > 1:
		return []report.Finding{report.Errorf(KeepOne(h.Namespace),
			"namespace %s of the hub holds %d ClusterSets: agents wait until there is one", h.Namespace, len(h.Sets))}
	}
	return nil
}

// leaderless is how long the hub's controller may be without a leader: another replica takes over within half a minute.
const leaderless = time.Minute

// Stopped reports whether clusterset-controller hub does not run, and for how long nobody has renewed its Lease.
// Without a renewal, that counts from the creation of the ClusterSet.
func (h *Hub) Stopped() (time.Duration, bool) {
	if h.Leader == nil || len(h.Sets) != 1 {
		return 0, false
	}
	began := h.Sets[0].CreationTimestamp.Time
	if at, _, ok := Renewed(h.Leader); ok {
		began = at
	}
	return h.Now.Sub(began), h.Now.Sub(began) > leaderless
}

// LeaderFindings finds that clusterset-controller hub does not run.
func (h *Hub) LeaderFindings(remedy string) []report.Finding {
	idle, stopped := h.Stopped()
	if !stopped {
		return nil
	}
	const what = "clusterset-controller hub does not run: nobody has renewed its Lease %s%s in clusterset-system " +
		"for %s. Members that leave are not cleaned up, no member gets a block, and conditions of ClusterProfiles " +
		"are out of date"
	return []report.Finding{report.Warningf(remedy, what, clusterset.LeaseHubPrefix, h.Namespace, report.Age(idle))}
}

// Idle reports whether no ClusterProfile has got a condition, although the hub's controller had the time for it.
func (h *Hub) Idle() bool {
	for i := range h.Profiles {
		if p := &h.Profiles[i]; len(p.Status.Conditions) > 0 || h.Now.Sub(p.CreationTimestamp.Time) <= time.Minute {
			return false
		}
	}
	_, stopped := h.Stopped()
	return len(h.Profiles) > 0 && !stopped
}

// Skew is how far clocks may differ without a finding: they are compared in whole seconds, and a write takes time.
const Skew = 10 * time.Second

// ClockFindings finds members whose clocks differ from the hub's.
func (h *Hub) ClockFindings() (out []report.Finding) {
	for i := range h.Leases {
		l := &h.Leases[i]
		_, ahead, ok := Renewed(l)
		if !ok || ahead.Abs() <= Skew || Expired(l, h.Now) {
			continue
		}
		what := fmt.Sprintf("the clock of cluster %s is %v behind the hub's", l.Name, ahead.Abs())
		if ahead > 0 {
			// Renewals never go back: a clock that was set continues from the last renewal that it wrote.
			what = fmt.Sprintf("the clock of cluster %s is %v ahead of the hub's; if it was corrected since, this "+
				"finding ends at %s", l.Name, ahead, l.Spec.RenewTime.UTC().Format(time.RFC3339))
		}
		out = append(out, report.Warningf(ClockRemedy, "%s", what).On(l.Name))
	}
	return out
}

// ClockRemedy is what to do about clocks.
const ClockRemedy = "set the clocks of that cluster's nodes (NTP): the age of exports decides conflicts, and tokens " +
	"have dates"

// PoolFindings finds what is wrong with pools and blocks. They come from the function by which the hub's controller
// decides. It omits overlaps with ranges of the member named by except.
func (h *Hub) PoolFindings(except string) (out []report.Finding) {
	if len(h.Sets) != 1 {
		return nil
	}
	set := &h.Sets[0]
	plan := grants.Decide(grants.Facts{Set: set, Profiles: h.Profiles})
	edit := "on the hub: kubectl -n " + h.Namespace + " edit clusterset " + set.Name
	pools := edit + ", and set spec.vips.pools to ranges that no cluster uses; " + report.DocsRanges
	if mode := set.Spec.VIPs.Mode; mode != "" && mode != hubv1alpha1.VIPModeShared && len(plan.Pools) == 0 {
		out = append(out, report.Warningf(pools,
			"mode %s has no usable pool: VIPs come only from ServiceCIDRs that an admin has labelled",
			mode).On("pools"))
	}
	for _, why := range plan.Unusable {
		out = append(out, report.Errorf(pools, "%s", why).On("pools"))
	}
	var met []string
	for _, m := range plan.PoolOverlaps {
		if except == "" || m.With.Member != except {
			met = append(met, m.String())
		}
	}
	if len(met) > 0 {
		out = append(out, report.Warningf(pools,
			"%s: no block is cut there, and packets to VIPs would not arrive in that cluster",
			grants.Summary(met)).On("pools"))
	}
	for _, r := range plan.Refused {
		out = append(out, report.Errorf(pools, "cluster %s asks for a block and cannot have one: %v", r.Member,
			r.Err).On(r.Member))
	}
	for _, o := range plan.Overlaps {
		out = append(out, report.Errorf("free or renumber that range; the block stays, because VIPs in it may be in "+
			"use", "cluster %s: %s", o.Member, o.Message).On(o.Member))
	}
	for _, u := range plan.Unreadable {
		out = append(out, report.Warningf("in that cluster: kubectl get clusterproperties; "+AgentLog,
			"cluster %s: %s", u.Member, u.Message).On(u.Member))
	}
	for _, id := range grants.Lost(set, h.Profiles) {
		out = append(out, report.Warningf("join it again; if it is permanently lost, "+
			edit+" --subresource=status, and remove its blocks",
			"cluster %s owns blocks and has no ClusterProfile: its blocks are kept", id).On(id))
	}
	return out
}
