// Package status shows the state of a clusterset: findings first, then members and what they export. It is pure: what
// follows from a snapshot in, a Report out.
package status

import (
	"cmp"
	"slices"
	"sort"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/check"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/facts"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/snapshot"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/grants"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/health"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/reach"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// Report is the state of a clusterset.
type Report struct {
	metav1.TypeMeta `json:",inline"`
	ClusterSet      string           `json:"clusterSet,omitempty"`
	Cluster         string           `json:"cluster,omitempty"`
	Findings        []report.Finding `json:"findings"`
	Lacks           []string         `json:"lacks,omitempty"`  // rights, without which parts were not read
	Failed          []string         `json:"failed,omitempty"` // why other parts were not read
	Members         []MemberRow      `json:"members,omitempty"`
	HubVersion      string           `json:"hubVersion,omitempty"` // of the hub's controller, for its admin
	Client          string           `json:"client"`               // version of this program
	VIPMode         string           `json:"vipMode,omitempty"`
	Pools           []PoolRow        `json:"pools,omitempty"`
	Names           []NameRow        `json:"names,omitempty"`
	Here            *Here            `json:"here,omitempty"`
}

// MemberRow is one member as the hub shows it.
type MemberRow struct {
	Cluster    string     `json:"cluster"`
	Joined     string     `json:"joined"`
	Healthy    string     `json:"healthy"`
	Ready      string     `json:"ready"`
	Kubernetes string     `json:"kubernetes,omitempty"`
	Version    string     `json:"version,omitempty"` // of the agent here
	DNS        string     `json:"dns,omitempty"`     // answers, fails, not installed, or "" if that is not known
	Exports    int        `json:"exports"`
	Endpoints  int        `json:"endpoints"`
	LastSeen   *time.Time `json:"lastSeen,omitempty"` // last renewal of its Lease, by the hub's clock
	Since      time.Time  `json:"since"`
	Here       bool       `json:"here,omitempty"`
	Blocks     []string   `json:"blocks,omitempty"` // its VIPs are in these
	// Reach is what the cluster that --context names knows of it: Answers, Silent, Serving or Unreachable; absent if
	// its agent never answered. ReachSince is since when.
	Reach      string     `json:"reach,omitempty"`
	ReachSince *time.Time `json:"reachSince,omitempty"`
	// Unreachable are the members that it does not reach, and since when.
	Unreachable map[string]time.Time `json:"unreachable,omitempty"`
}

// PoolRow is one pool that members' blocks are cut from.
type PoolRow struct {
	Pool    string `json:"pool"`
	Bits    int    `json:"blockBits"` // prefix length of new blocks
	Granted int    `json:"granted"`
	Free    uint64 `json:"free"` // blocks, at most the largest number there is
}

// NameRow is one name of the clusterset.
type NameRow struct {
	Name      string         `json:"name"`
	Namespace string         `json:"namespace"`
	Type      string         `json:"type"`
	Exporters []ExporterCell `json:"exporters"`
	Imported  bool           `json:"imported,omitempty"` // in the cluster that --context names
	IPs       []string       `json:"ips,omitempty"`      // there
	// External are the clusters whose load balancers are published for clients outside the clusters.
	External  []string `json:"external,omitempty"`
	Conflicts int      `json:"conflicts,omitempty"`
	Problem   bool     `json:"problem,omitempty"` // a finding is about it
}

// ExporterCell is a cluster that exports a name.
type ExporterCell struct {
	Cluster string `json:"cluster"`
	To      string `json:"exportTo,omitempty"` // its export-to list
	Counted bool   `json:"counted"`            // else its endpoints are not known here
	Ready   int    `json:"ready"`
	Total   int    `json:"total"`
	Expired bool   `json:"expired,omitempty"` // here
}

// Here is the cluster that --context names.
type Here struct {
	Exports int        `json:"exports"`
	Imports int        `json:"imports"`
	Unread  bool       `json:"importsUnread,omitempty"` // so that they are not known
	VIPs    int        `json:"vips"`
	DNS     string     `json:"dns,omitempty"`
	Version string     `json:"version,omitempty"` // of the agent
	DNSTag  string     `json:"dnsVersion,omitempty"`
	HubSeen *time.Time `json:"hubSeen,omitempty"` // when the agent last renewed its Lease
}

func Examine(w *check.World, results []check.Result) Report {
	r := Report{TypeMeta: report.Kind("Status"), Findings: check.Findings(results), Client: w.Release,
		Failed: w.Failed()}
	if why := w.HubUnread(results); why != "" {
		r.Failed = append(r.Failed, "reading the hub failed: "+why)
	}
	about := map[string]bool{}
	for _, f := range r.Findings {
		for _, on := range f.About {
			about[on] = true
		}
	}
	for _, lack := range w.Unread {
		if lack.Right != "" && !slices.Contains(r.Lacks, lack.Right) {
			r.Lacks = append(r.Lacks, lack.Right)
		}
	}
	slices.Sort(r.Lacks)
	if w.Member != nil {
		r.Cluster, r.ClusterSet = w.Member.ID(), w.Member.Set()
		r.Here = here(w, results)
	}
	if w.Hub != nil {
		r.HubVersion = facts.Version(w.Hub.Deployed)
		r.Members = members(w, r.Here)
		r.set(w.Hub)
	}
	for i := range r.Members {
		if r.Members[i].Here {
			r.Here.HubSeen = r.Members[i].LastSeen
		}
	}
	for _, n := range w.Names {
		if len(n.All) > 0 {
			r.Names = append(r.Names, row(w, n, about[n.String()]))
		}
	}
	sort.SliceStable(r.Names, func(i, j int) bool { return r.Names[i].Problem && !r.Names[j].Problem })
	return r
}

// set fills what the ClusterSet says.
func (r *Report) set(h *snapshot.Hub) {
	set := h.Set()
	if set == nil {
		return
	}
	r.ClusterSet = set.Name
	r.VIPMode = cmp.Or(string(set.Spec.VIPs.Mode), string(hubv1alpha1.VIPModeShared))
	for _, p := range grants.Decide(grants.Facts{Set: set, Profiles: h.Profiles}).Pools {
		bits := grants.Size(&set.Spec.VIPs, p.Prefix)
		r.Pools = append(r.Pools, PoolRow{Pool: p.Prefix.String(), Bits: bits, Granted: p.Granted, Free: p.Free})
	}
	for i := range r.Members {
		for _, b := range set.Status.Blocks {
			if b.ClusterID == r.Members[i].Cluster {
				r.Members[i].Blocks = append(r.Members[i].Blocks, b.CIDR)
			}
		}
	}
}

func here(w *check.World, results []check.Result) *Here {
	m := w.Member
	h := &Here{Exports: len(m.Exports), Version: facts.Version(m.Agent), DNS: dnsHere(w, results),
		DNSTag: facts.Tag(m.DNS.Running()), Unread: !w.HasRead(snapshot.Imports)}
	for i := range m.Imports {
		if imp := &m.Imports[i]; kube.Manages(imp) {
			h.Imports, h.VIPs = h.Imports+1, h.VIPs+len(imp.Spec.IPs)
		}
	}
	if at, _, ok := facts.HubSeen(m.Leases, m.Now); ok {
		h.HubSeen = &at
	}
	return h
}

// dnsHere returns whether the cluster's DNS answers the zone, by the agent or else by what was found.
func dnsHere(w *check.World, results []check.Result) string {
	found := func(id string) bool {
		return slices.ContainsFunc(results, func(r check.Result) bool { return r.ID == id && len(r.Finding) > 0 })
	}
	_, line := w.Member.Plugin()
	switch says := w.Says(hubv1alpha1.ConditionDNSAnswers); {
	case found("dns-none"):
		return "not installed"
	case found("dns-down"):
		return "fails"
	case says == metav1.ConditionTrue: // also with an earlier Corefile than one that it cannot use
		return "answers"
	case says == metav1.ConditionFalse || found("dns-corefile") || found("dns-refused"):
		return "fails"
	case line != nil:
		return "installed"
	}
	return ""
}

func members(w *check.World, here *Here) (out []MemberRow) {
	counts := w.Hub.Endpoints()
	for i := range w.Hub.Profiles {
		p := &w.Hub.Profiles[i]
		row := MemberRow{
			Cluster: p.Name, Since: p.CreationTimestamp.Time, Kubernetes: p.Status.Version.Kubernetes,
			Joined:  condition(p, inventoryv1alpha1.ConditionJoined),
			Healthy: condition(p, inventoryv1alpha1.ConditionControlPlaneHealthy),
			Ready:   condition(p, inventoryv1alpha1.ConditionMemberReady),
			Here:    w.Member != nil && w.Member.Set() != "" && w.Member.ID() == p.Name,
		}
		// Of other members, the hub shows only the first thing that they lack.
		if c := meta.FindStatusCondition(p.Status.Conditions, inventoryv1alpha1.ConditionMemberReady); c != nil &&
			health.Reasons[c.Reason].Condition == hubv1alpha1.ConditionDNSAnswers {
			row.DNS = "fails"
		}
		if row.Here {
			row.DNS, row.Version = here.DNS, here.Version
		}
		for j := range w.Hub.Records {
			if rec := &w.Hub.Records[j]; rec.Spec.ClusterID == p.Name && !rec.Spec.Withdrawn {
				row.Exports++
			}
		}
		for of, n := range counts {
			if of.Cluster == p.Name {
				row.Endpoints += n.Ready + n.NotReady
			}
		}
		if lease := w.Hub.Lease(p.Name); lease != nil {
			if at, _, ok := facts.Renewed(lease); ok {
				row.LastSeen = &at
			}
			row.Unreachable, _ = reach.ReadUnreachable(lease) // a finding says that it is invalid
		}
		if lease := w.Source(p.Name); lease != nil {
			if s := reach.Read(lease); s.State != reach.Unknown {
				row.Reach, row.ReachSince = string(s.State), &s.Since
			}
		}
		out = append(out, row)
	}
	slices.SortFunc(out, func(a, b MemberRow) int { return cmp.Compare(a.Cluster, b.Cluster) })
	return out
}

func condition(p *inventoryv1alpha1.ClusterProfile, kind string) string {
	if c := meta.FindStatusCondition(p.Status.Conditions, kind); c != nil {
		return string(c.Status)
	}
	return "-"
}

func row(w *check.World, n *check.Name, problem bool) NameRow {
	out := NameRow{
		Namespace: n.Namespace,
		Name:      n.NamespacedName.Name,
		Type:      string(cmp.Or(n.Merged.Type, n.All[0].Type)),
		External:  n.External,
		Conflicts: len(n.Conflicts),
		Problem:   problem,
	}
	if n.Import != nil && kube.Manages(n.Import) {
		out.Imported, out.IPs = true, n.Import.Spec.IPs
	}
	for i := range n.Exporters {
		x := &n.Exporters[i]
		out.Exporters = append(out.Exporters, ExporterCell{Cluster: x.Cluster, To: x.ExportTo, Counted: x.Counted,
			Ready: x.Ready, Total: x.Ready + x.NotReady, Expired: x.Expired != ""})
	}
	for _, e := range n.Elsewhere {
		out.Exporters = append(out.Exporters, ExporterCell{Cluster: e.Cluster, To: e.ExportTo})
	}
	slices.SortFunc(out.Exporters, func(a, b ExporterCell) int { return cmp.Compare(a.Cluster, b.Cluster) })
	return out
}
