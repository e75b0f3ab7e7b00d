// Package status shows the state of a clusterset: findings first, then members and what they export. It is pure: what
// was read of the hub and of one member in, a Report out.
package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/facts"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/grants"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/liveness"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/reach"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// Facts are what was read.
type Facts struct {
	Hub            *Hub    // nil if it was not read
	HubError       string  // why not
	HubDenied      bool    // the user named the hub, and may not read it
	Namespace      string  // of the ClusterSet on the hub, read or not
	GivenNamespace string  // --hub-namespace, if it was given
	Member         *Member // nil with --hub-only
}

// Hub is a clusterset's namespace there, with what its members export.
type Hub struct {
	facts.Hub
	Records []hubv1alpha1.ServiceExportRecord
	Pages   []hubv1alpha1.EndpointPage
}

// Member is the cluster that --context names.
type Member struct {
	facts.Membership
	Now          time.Time // by its clock
	Agent        *appsv1.Deployment
	Known        []report.Finding // what its agent knows that it lacks
	HubNamespace string           // of the credentials
	HubOf        []string         // ClusterSets whose hub it is; unknown for a member
	Unserved     []string         // kinds of a member that its API server does not serve
	Exports      []mcsv1beta1.ServiceExport
	Imports      []mcsv1beta1.ServiceImport
	Records      []hubv1alpha1.ServiceExportRecord // its copies
	Ranges       []ipam.Usage                      // for VIPs
	VIPMode      ipam.Mode                         // of its agent; "" for shared
	Leases       []coordinationv1.Lease            // of clusterset-system
}

// Report is the state of a clusterset.
type Report struct {
	metav1.TypeMeta `json:",inline"`
	ClusterSet      string           `json:"clusterSet,omitempty"`
	Cluster         string           `json:"cluster,omitempty"`
	Findings        []report.Finding `json:"findings"`
	Members         []MemberRow      `json:"members,omitempty"`
	VIPMode         string           `json:"vipMode,omitempty"`
	Pools           []PoolRow        `json:"pools,omitempty"`
	Names           []NameRow        `json:"names,omitempty"`
	Here            *Here            `json:"here,omitempty"`
}

// MemberRow is one member as the hub shows it.
type MemberRow struct {
	Cluster   string     `json:"cluster"`
	Joined    string     `json:"joined"`
	Healthy   string     `json:"healthy"`
	Version   string     `json:"version,omitempty"`
	Exports   int        `json:"exports"`
	Endpoints int        `json:"endpoints"`
	LastSeen  *time.Time `json:"lastSeen,omitempty"` // last renewal of its Lease, by the hub's clock
	Since     time.Time  `json:"since"`
	Here      bool       `json:"here,omitempty"`
	Blocks    []string   `json:"blocks,omitempty"` // its VIPs are in these
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
	Name      string   `json:"name"`
	Namespace string   `json:"namespace"`
	Type      string   `json:"type"`
	Clusters  []string `json:"clusters"`
	// Idle are those of Clusters that have no ready endpoint on the hub, if the hub was read.
	Idle     []string `json:"idle,omitempty"`
	Imported bool     `json:"imported,omitempty"` // in the cluster that --context names
	IPs      []string `json:"ips,omitempty"`      // there
	// ExportTo is the export-to list of each exporter that has one, by cluster ID.
	ExportTo map[string]string `json:"exportTo,omitempty"`
	// External are the clusters whose load balancers are published for clients outside the clusters.
	External  []string `json:"external,omitempty"`
	Conflicts []string `json:"conflicts,omitempty"`
}

// Here is the cluster that --context names.
type Here struct {
	Exports int        `json:"exports"`
	Imports int        `json:"imports"`
	VIPs    int        `json:"vips"`
	Held    int        `json:"held"` // records that are in effect here although the hub does not show them
	Ranges  []Range    `json:"ranges,omitempty"`
	Expired []string   `json:"expired,omitempty"` // source clusters that have expired here
	HubSeen *time.Time `json:"hubSeen,omitempty"` // when the agent last renewed its Lease
}

// Range is one for VIPs.
type Range struct {
	ServiceCIDR string `json:"serviceCIDR"`
	Range       string `json:"range"`
	State       string `json:"state"`
	Allocated   uint64 `json:"allocated"`
	Available   uint64 `json:"available"`
}

// Examine returns the report.
func Examine(f *Facts) Report {
	r := Report{TypeMeta: report.Kind("Status"), Findings: []report.Finding{}}
	if f.Member != nil {
		r.Cluster, r.ClusterSet = f.Member.ID, f.Member.Set
		r.Here = here(f.Member)
	}
	var records []hubv1alpha1.ServiceExportRecord
	switch {
	case f.Hub != nil:
		r.Members = members(f)
		if len(f.Hub.Sets) == 1 {
			r.set(f.Hub)
		}
		records = f.Hub.Records
	case f.Member != nil:
		records = f.Member.Records
		if at, _, ok := facts.HubSeen(f.Member.Leases, f.Member.Now); ok {
			r.Here.HubSeen = &at
		}
	}
	for i := range r.Members {
		if r.Members[i].Here {
			r.Here.HubSeen = r.Members[i].LastSeen
		}
	}
	exports, unreadable := parse(records, f.Hub != nil)
	r.Names = names(exports, records, f.Member)
	if f.Hub != nil {
		r.idle(f.Hub)
	}
	r.findings(f, unreadable)
	if f.Hub != nil && f.Member != nil {
		r.unselectedFindings(exports, f.Member.Place())
	}
	return r
}

// set fills what the ClusterSet says.
func (r *Report) set(h *Hub) {
	set := &h.Sets[0]
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

var states = map[ipam.State]string{
	ipam.Ready: "ready", ipam.NotReady: "not ready", ipam.Terminating: "being deleted",
}

func here(m *Member) *Here {
	h := &Here{Exports: len(m.Exports)}
	for i := range m.Imports {
		if imp := &m.Imports[i]; kube.Manages(imp) {
			h.Imports, h.VIPs = h.Imports+1, h.VIPs+len(imp.Spec.IPs)
		}
	}
	for _, u := range m.Ranges {
		h.Ranges = append(h.Ranges, Range{
			ServiceCIDR: u.Range.Name, Range: u.Range.Prefix.String(), State: states[u.Range.State],
			Allocated: u.Allocated, Available: u.Available,
		})
	}
	for i := range m.Records {
		if meta.IsStatusConditionTrue(m.Records[i].Status.Conditions, hubv1alpha1.ConditionHeld) {
			h.Held++
		}
	}
	for i := range m.Leases {
		if liveness.StateOf(&m.Leases[i]).Expired {
			h.Expired = append(h.Expired, m.Leases[i].Labels[liveness.LabelSource])
		}
	}
	return h
}

func members(f *Facts) (out []MemberRow) {
	groups := f.Hub.groups()
	for i := range f.Hub.Profiles {
		p := &f.Hub.Profiles[i]
		row := MemberRow{
			Cluster: p.Name, Since: p.CreationTimestamp.Time, Version: p.Status.Version.Kubernetes,
			Joined:  condition(p, inventoryv1alpha1.ConditionJoined),
			Healthy: condition(p, inventoryv1alpha1.ConditionControlPlaneHealthy),
			Here:    f.Member != nil && f.Member.Set != "" && f.Member.ID == p.Name,
		}
		for j := range f.Hub.Records {
			if rec := &f.Hub.Records[j]; rec.Spec.ClusterID == p.Name && !rec.Spec.Withdrawn {
				row.Exports++
			}
		}
		for _, g := range groups {
			if g.cluster == p.Name {
				row.Endpoints += len(g.group.Endpoints)
			}
		}
		if lease := f.Hub.Lease(p.Name); lease != nil {
			if at, _, ok := facts.Renewed(lease); ok {
				row.LastSeen = &at
			}
			row.Unreachable, _ = reach.ReadUnreachable(lease) // a finding says that it is invalid
		}
		if f.Member != nil {
			row.setReach(f.Member.Leases)
		}
		out = append(out, row)
	}
	slices.SortFunc(out, func(a, b MemberRow) int { return cmp.Compare(a.Cluster, b.Cluster) })
	return out
}

// setReach sets what a member's own Leases say of the cluster.
func (m *MemberRow) setReach(leases []coordinationv1.Lease) {
	for i := range leases {
		if leases[i].Labels[liveness.LabelSource] != m.Cluster {
			continue
		}
		if s := reach.Read(&leases[i]); s.State != reach.Unknown {
			m.Reach, m.ReachSince = string(s.State), &s.Since
		}
	}
}

func condition(p *inventoryv1alpha1.ClusterProfile, kind string) string {
	if c := meta.FindStatusCondition(p.Status.Conditions, kind); c != nil {
		return string(c.Status)
	}
	return "-"
}

type key struct{ namespace, name string }

// invalid are the records of one cluster that do not parse.
type invalid struct {
	count int
	first string // its name and the error
}

// parse returns exports by name, and by cluster what does not parse. The records are the hub's own (onHub) or a
// member's copies.
func parse(records []hubv1alpha1.ServiceExportRecord, onHub bool) (map[key][]clusterset.Export, map[string]invalid) {
	exports, unreadable := map[key][]clusterset.Export{}, map[string]invalid{}
	for i := range records {
		s := &records[i].Spec
		if s.Withdrawn {
			continue
		}
		e, err := clusterset.ParseExport(&records[i])
		if err == nil {
			if onHub {
				e.Published = records[i].CreationTimestamp.Time
			}
			k := key{e.Namespace, e.Name}
			exports[k] = append(exports[k], e)
			continue
		}
		u := unreadable[s.ClusterID]
		if u.count++; u.count == 1 {
			u.first = fmt.Sprintf("%s.%s: %s", s.ServiceName, s.ServiceNamespace,
				strings.ReplaceAll(err.Error(), "\n", "; "))
		}
		unreadable[s.ClusterID] = u
	}
	return exports, unreadable
}

// conflicts returns those that the exporters are told of. Each is told of conflicts with what it may import.
func conflicts(exports []clusterset.Export) (out []string) {
	for i := range exports {
		own := clusterset.Place{Cluster: exports[i].Cluster, Properties: exports[i].Properties}
		seen := slices.DeleteFunc(slices.Clone(exports), func(e clusterset.Export) bool { return !e.GoesTo(own) })
		_, found := conflict.Merge(seen)
		for _, c := range found {
			if !slices.Contains(out, c.Message) {
				out = append(out, c.Message)
			}
		}
		if len(seen) == len(exports) {
			break // those that see all see the same
		}
	}
	return out
}

// exporter is a cluster that exports a name.
type exporter struct {
	key
	cluster string
}

// exportedGroup is one group of an exporter's endpoints.
type exportedGroup struct {
	exporter
	group *hubv1alpha1.EndpointGroup
}

// groups returns all endpoints on the hub: those in records, and those in the pages that a record counts.
func (h *Hub) groups() (out []exportedGroup) {
	of := func(o *hubv1alpha1.Origin) exporter {
		return exporter{key{o.ServiceNamespace, o.ServiceName}, o.ClusterID}
	}
	pages := map[exporter]int32{}
	for i := range h.Records {
		s := &h.Records[i].Spec
		pages[of(&s.Origin)] = s.Pages
		for j := range s.Endpoints {
			out = append(out, exportedGroup{of(&s.Origin), &s.Endpoints[j]})
		}
	}
	for i := range h.Pages {
		s := &h.Pages[i].Spec
		if s.Number < pages[of(&s.Origin)] {
			out = append(out, exportedGroup{of(&s.Origin), &s.EndpointGroup})
		}
	}
	return out
}

// idle sets which exporters of each name have no ready endpoint.
func (r *Report) idle(h *Hub) {
	ready := map[exporter]bool{}
	for _, g := range h.groups() {
		if slices.ContainsFunc(
			g.group.Endpoints,
			func(e hubv1alpha1.Endpoint) bool { return ptr.Deref(e.Ready, true) },
		) {
			ready[g.exporter] = true
		}
	}
	for i := range r.Names {
		n := &r.Names[i]
		n.Idle = slices.DeleteFunc(slices.Clone(n.Clusters), func(cluster string) bool {
			return ready[exporter{key{n.Namespace, n.Name}, cluster}]
		})
	}
}

// names merges all exports of each name, also those that not every cluster may import.
func names(exports map[key][]clusterset.Export, records []hubv1alpha1.ServiceExportRecord, m *Member) (out []NameRow) {
	external := map[key][]string{}
	for i := range records {
		if s := &records[i].Spec; s.External != nil && !s.Withdrawn {
			k := key{s.ServiceNamespace, s.ServiceName}
			external[k] = append(external[k], s.ClusterID)
		}
	}
	imports := map[key]*mcsv1beta1.ServiceImport{}
	if m != nil {
		for i := range m.Imports {
			if kube.Manages(&m.Imports[i]) {
				imports[key{m.Imports[i].Namespace, m.Imports[i].Name}] = &m.Imports[i]
			}
		}
	}
	for k, of := range exports {
		merged, _ := conflict.Merge(of)
		row := NameRow{
			Namespace: k.namespace, Name: k.name, Type: string(merged.Type), Clusters: merged.Clusters,
			ExportTo: map[string]string{}, External: external[k], Conflicts: conflicts(of),
		}
		for i := range of {
			if of[i].ExportTo != "" {
				row.ExportTo[of[i].Cluster] = of[i].ExportTo
			}
		}
		if imp := imports[k]; imp != nil {
			row.Imported, row.IPs = true, imp.Spec.IPs
		}
		slices.Sort(row.External)
		out = append(out, row)
	}
	slices.SortFunc(out, func(a, b NameRow) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return out
}
