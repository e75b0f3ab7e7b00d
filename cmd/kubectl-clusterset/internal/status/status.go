// Package status tells how a clusterset stands: problems first, then members and what they export. Pure: what was read on the hub and
// in one member in, a Report out.
package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/clock"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/liveness"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/votes"
)

// Facts are what was read.
type Facts struct {
	Hub      *Hub    // nil where it was not read
	HubError string  // why not
	Asked    string  // the namespace on the hub that was asked for, "" where none was
	Member   *Member // nil where only a hub was named
}

// Hub is a clusterset's namespace there.
type Hub struct {
	Now       time.Time // by its clock
	Namespace string
	Sets      []hubv1alpha1.ClusterSet
	Profiles  []inventoryv1alpha1.ClusterProfile // of ours, no other cluster manager's
	Leases    []coordinationv1.Lease
	// Leader is the Lease that clusterset-controller hub elects its leader by, empty where there is none; nil where it may not be read.
	Leader    *coordinationv1.Lease
	Records   []hubv1alpha1.ServiceExportRecord
	Endpoints []hubv1alpha1.EndpointRecord
}

// Member is the cluster from which is asked.
type Member struct {
	Now          time.Time // by its clock
	Cluster, Set string    // by its ClusterProperties; "" where it is no member
	Leaving      bool
	Agent        *appsv1.Deployment
	TokenExpires *time.Time // of the credentials for the hub
	HubNamespace string     // theirs
	Exports      []mcsv1beta1.ServiceExport
	Imports      []mcsv1beta1.ServiceImport
	Records      []hubv1alpha1.ServiceExportRecord // its copies
	Ranges       []ipam.Usage                      // those for VIPs
	VIPMode      ipam.Mode                         // that its agent goes by; "" for shared
	Leases       []coordinationv1.Lease            // of its system namespace
	Events       []eventsv1.Event                  // Warnings of its agent
	EventsUnread error                             // why there are none of these
}

// Report is what is told.
type Report struct {
	ClusterSet string      `json:"clusterSet,omitempty"`
	Cluster    string      `json:"cluster,omitempty"` // where it was asked
	Problems   []Problem   `json:"problems,omitempty"`
	Members    []MemberRow `json:"members,omitempty"`
	VIPMode    string      `json:"vipMode,omitempty"`
	Pools      []PoolRow   `json:"pools,omitempty"`
	Names      []NameRow   `json:"names,omitempty"`
	Here       *Here       `json:"here,omitempty"`
}

// Problem is about a member or a name, or about the whole clusterset.
type Problem struct {
	About  string `json:"about"`
	What   string `json:"what"`
	Remedy string `json:"remedy"`
}

// MemberRow is one member as the hub knows it.
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
	Blocks    []string   `json:"blocks,omitempty"`    // in which its VIPs are
	Unreached votes.Vote `json:"unreached,omitempty"` // what it does not reach of others' endpoints: its vote
}

// NameRow is one name of the clusterset.
type NameRow struct {
	Name      string   `json:"name"`
	Namespace string   `json:"namespace"`
	Type      string   `json:"type"`
	Clusters  []string `json:"clusters"`
	IPs       []string `json:"ips,omitempty"` // in the cluster where it was asked
	Conflicts []string `json:"conflicts,omitempty"`
}

// Here is the cluster where it was asked.
type Here struct {
	Exports int      `json:"exports"`
	Imports int      `json:"imports"`
	VIPs    int      `json:"vips"`
	Held    int      `json:"held"` // records that the hub does not show as they are in effect here
	Ranges  []Range  `json:"ranges,omitempty"`
	Dead    []string `json:"dead,omitempty"` // clusters whose endpoints are treated as dead here
	// HubSeen is when this cluster's agent last renewed its Lease: what is seen here is not older.
	HubSeen  *time.Time `json:"hubSeen,omitempty"`
	Warnings []Warning  `json:"warnings,omitempty"`       // the newest first
	Unread   string     `json:"warningsUnread,omitempty"` // why there are no warnings
	now      time.Time  // by its clock
}

// Range is one for VIPs, and how much room it has.
type Range struct {
	ServiceCIDR string `json:"serviceCIDR"`
	Range       string `json:"range"`
	Use         string `json:"use"`
	State       string `json:"state"`
	Allocated   uint64 `json:"allocated"`
	Available   uint64 `json:"available"`
	Moving      []VIP  `json:"moving,omitempty"` // that are in it while it is draining or being deleted
}

// VIP is an import's.
type VIP struct {
	IP     string `json:"ip"`
	Import string `json:"import"`
}

// Tell makes the report.
func Tell(f *Facts) Report {
	var r Report
	if f.Member != nil {
		r.Cluster, r.ClusterSet = f.Member.Cluster, f.Member.Set
		r.Here = here(f.Member)
	}
	var records []hubv1alpha1.ServiceExportRecord
	switch {
	case f.Hub != nil:
		if len(f.Hub.Sets) == 1 {
			r.ClusterSet = f.Hub.Sets[0].Name
		}
		r.Members = members(f)
		ranges(f.Hub, &r)
		records = f.Hub.Records
		if r.Here != nil {
			for i := range r.Members {
				if r.Members[i].Here {
					r.Here.HubSeen = r.Members[i].LastSeen
				}
			}
		}
	case f.Member != nil:
		records = f.Member.Records
		if at, _, ok := clock.Seen(f.Member.Leases, f.Member.Now); ok {
			r.Here.HubSeen = &at
		}
	}
	exports, unread := read(records)
	r.Names = names(exports, f.Member)
	r.Problems = problems(f, &r, unread)
	return r
}

func here(m *Member) *Here {
	h := &Here{Exports: len(m.Exports), Imports: len(m.Imports), Warnings: warnings(m.Events), now: m.Now}
	if m.EventsUnread != nil {
		h.Unread = m.EventsUnread.Error()
	}
	for i := range m.Imports {
		h.VIPs += len(m.Imports[i].Spec.IPs)
	}
	for _, u := range m.Ranges {
		h.Ranges = append(h.Ranges, Range{
			Moving:      moving(m, u.Range),
			ServiceCIDR: u.Range.Name, Range: u.Range.Prefix.String(), Use: string(u.Range.Use), Allocated: u.Allocated, Available: u.Available,
			State: map[ipam.State]string{ipam.Ready: "ready", ipam.NotReady: "not ready", ipam.Draining: "draining", ipam.Terminating: "being deleted"}[u.Range.State],
		})
	}
	for i := range m.Records {
		if meta.IsStatusConditionTrue(m.Records[i].Status.Conditions, hubv1alpha1.ConditionHeld) {
			h.Held++
		}
	}
	for i := range m.Leases {
		if liveness.StateOf(&m.Leases[i]).Expired {
			h.Dead = append(h.Dead, m.Leases[i].Labels[liveness.LabelSource])
		}
	}
	return h
}

func members(f *Facts) (out []MemberRow) {
	for i := range f.Hub.Profiles {
		p := &f.Hub.Profiles[i]
		row := MemberRow{
			Cluster: p.Name, Since: p.CreationTimestamp.Time, Version: p.Status.Version.Kubernetes,
			Joined: condition(p, inventoryv1alpha1.ConditionJoined), Healthy: condition(p, inventoryv1alpha1.ConditionControlPlaneHealthy),
			Here: f.Member != nil && f.Member.Set != "" && f.Member.Cluster == p.Name,
		}
		for j := range f.Hub.Records {
			if rec := &f.Hub.Records[j]; rec.Spec.ClusterID == p.Name && !rec.Spec.Withdrawn {
				row.Exports++
			}
		}
		for j := range f.Hub.Endpoints {
			if rec := &f.Hub.Endpoints[j]; rec.Spec.ClusterID == p.Name && !rec.Spec.Withdrawn {
				row.Endpoints += len(rec.Spec.Endpoints)
			}
		}
		if lease := f.Hub.lease(p.Name); lease != nil {
			if at, _, ok := clock.Renewed(lease); ok {
				row.LastSeen = &at
			}
			row.Unreached, _ = votes.Parse(votes.Said(lease)) // nonsense does not count
		}
		out = append(out, row)
	}
	slices.SortFunc(out, func(a, b MemberRow) int { return cmp.Compare(a.Cluster, b.Cluster) })
	return out
}

func (h *Hub) lease(name string) *coordinationv1.Lease {
	for i := range h.Leases {
		if h.Leases[i].Name == name {
			return &h.Leases[i]
		}
	}
	return nil
}

func condition(p *inventoryv1alpha1.ClusterProfile, kind string) string {
	if c := meta.FindStatusCondition(p.Status.Conditions, kind); c != nil {
		return string(c.Status)
	}
	return "-"
}

type key struct{ namespace, name string }

// unreadable are a cluster's records that this program cannot read.
type unreadable struct {
	count int
	first string // name and what is wrong with it
}

// read sorts what is exported by name, and what cannot be read by cluster.
func read(records []hubv1alpha1.ServiceExportRecord) (exports map[key][]clusterset.Export, unread map[string]unreadable) {
	exports, unread = map[key][]clusterset.Export{}, map[string]unreadable{}
	for i := range records {
		s := &records[i].Spec
		if s.Withdrawn {
			continue
		}
		e, err := clusterset.ParseExport(&records[i])
		if err == nil {
			k := key{e.Namespace, e.Name}
			exports[k] = append(exports[k], e)
			continue
		}
		u := unread[s.ClusterID]
		if u.count++; u.count == 1 {
			u.first = fmt.Sprintf("%s.%s: %s", s.ServiceName, s.ServiceNamespace, strings.ReplaceAll(err.Error(), "\n", "; "))
		}
		unread[s.ClusterID] = u
	}
	return exports, unread
}

// names are what the exports come to, by the same Merge that every agent computes.
func names(exports map[key][]clusterset.Export, m *Member) (out []NameRow) {
	for k, of := range exports {
		merged, conflicts := conflict.Merge(of)
		row := NameRow{Namespace: k.namespace, Name: k.name, Type: string(merged.Type), Clusters: merged.Clusters}
		for _, c := range conflicts {
			row.Conflicts = append(row.Conflicts, c.Message)
		}
		if m != nil {
			for i := range m.Imports {
				if m.Imports[i].Namespace == k.namespace && m.Imports[i].Name == k.name {
					row.IPs = m.Imports[i].Spec.IPs
				}
			}
		}
		out = append(out, row)
	}
	slices.SortFunc(out, func(a, b NameRow) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return out
}
