// Package ui shows a clusterset as a page: view.go makes one document of a snapshot and of what the checks found,
// server.go serves the page of that document on loopback, and file.go writes it as one file. It reads no cluster and
// writes to none.
package ui

import (
	"cmp"
	"maps"
	"slices"
	"time"

	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/bundle"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/check"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/explain"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/snapshot"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/status"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/reach"
)

// View is what the page shows. It has no age and no time of its own, so that it is equal while nothing changes.
type View struct {
	ClusterSet string           `json:"clusterSet,omitempty"`
	Cluster    string           `json:"cluster,omitempty"` // that --context names; "" for a hub alone
	Release    string           `json:"release"`           // of this program
	Clusters   []Cluster        `json:"clusters"`
	Names      []Name           `json:"names"`    // worst first
	Findings   []report.Finding `json:"findings"` // worst first
	Lacks      []string         `json:"lacks,omitempty"`
	Failed     []string         `json:"failed,omitempty"`
	HubUnread  bool             `json:"hubUnread,omitempty"` // so members are not known

	at     map[string]int // of each cluster: its index
	others string         // the state of clusters that are not among the members
}

// Cluster is a member, or a cluster that exports and is none any more.
type Cluster struct {
	status.MemberRow
	Level report.Severity `json:"level,omitempty"` // "" if nothing is wrong with it
	State string          `json:"state"`           // a word or two
	// UnreachableFrom are the live members that do not reach it, and since when.
	UnreachableFrom map[string]time.Time `json:"unreachableFrom,omitempty"`

	out bool // as far as the hub shows, others send no traffic to its endpoints
}

// Name is one name of the clusterset.
type Name struct {
	Name     string          `json:"name"`
	Type     string          `json:"type,omitempty"`
	Prefer   string          `json:"prefer,omitempty"`
	Level    report.Severity `json:"level,omitempty"`
	Findings []int           `json:"findings,omitempty"` // about it: indexes into View.Findings
	Cells    []Cell          `json:"cells,omitempty"`
}

// Cell is what one cluster has of a name. Its keys are short, because there may be hundreds of thousands.
type Cell struct {
	Cluster int `json:"c"`           // index into View.Clusters
	Ready   int `json:"r"`           // endpoints
	Total   int `json:"t"`           // endpoints; -1 if that is not known
	Share   int `json:"s,omitempty"` // of new connections, in percent; -1 if it depends on the client's cluster
	// State is "" unless the cluster gets no traffic, or exports to others only.
	State string `json:"x,omitempty"`
}

// States of a cell.
const (
	expired   = "expired"
	withheld  = "port conflict"
	standby   = "standby"
	elsewhere = "not here"
)

// Look returns what the page shows. Text in it has nothing that looks like a credential.
func Look(w *check.World, results []check.Result) *View {
	all := status.Examine(w, results)
	v := &View{ClusterSet: all.ClusterSet, Cluster: all.Cluster, Release: all.Client, Lacks: all.Lacks,
		Findings: []report.Finding{}, Clusters: []Cluster{}, Names: []Name{}, at: map[string]int{},
		others: "no member"}
	for _, why := range all.Failed {
		v.Failed = append(v.Failed, redacted(why))
	}
	names, clusters := v.findings(results)
	v.members(w, all.Members, clusters)
	for _, n := range w.Names {
		if len(n.All)+len(n.Invalid) > 0 || n.Import != nil {
			v.Names = append(v.Names, v.name(w, n, names[n.String()]))
		}
	}
	slices.SortStableFunc(v.Names, func(a, b Name) int {
		return cmp.Or(cmp.Compare(rank(a.Level), rank(b.Level)), cmp.Compare(b.outs(), a.outs()))
	})
	return v
}

// findings fills in those of the results, and returns which are about each name and each cluster.
func (v *View) findings(results []check.Result) (names, clusters map[string][]int) {
	names, clusters = map[string][]int{}, map[string][]int{}
	for _, level := range []report.Severity{report.Error, report.Warning} {
		for _, r := range results {
			about := clusters
			if r.Scope == check.Names {
				about = names
			}
			for _, f := range r.Finding {
				if f.Severity != level {
					continue
				}
				for _, on := range f.About {
					about[on] = append(about[on], len(v.Findings))
				}
				f.What, f.Remedy = redacted(f.What), redacted(f.Remedy)
				v.Findings = append(v.Findings, f)
			}
		}
	}
	return names, clusters
}

func redacted(text string) string { return string(bundle.Redact([]byte(text))) }

// worst returns the level of the first of these findings, which is the worst.
func (v *View) worst(findings []int) report.Severity {
	if len(findings) == 0 {
		return ""
	}
	return v.Findings[findings[0]].Severity
}

func rank(level report.Severity) int {
	return slices.Index([]report.Severity{report.Error, report.Warning, ""}, level)
}

// members fills in the members, and what others say of each.
func (v *View) members(w *check.World, rows []status.MemberRow, findings map[string][]int) {
	if w.Hub == nil {
		v.others, v.HubUnread = "hub not read", true
		return
	}
	reports := w.Hub.Reports()
	for _, row := range rows {
		c := Cluster{MemberRow: row, Level: v.worst(findings[row.Cluster])}
		c.classify(w.Hub, reports[row.Cluster])
		v.add(c)
	}
}

// classify sets the state of a member: whether it renews its Lease, and whether more than half of the other live
// members do not reach it. If its agent has no address, nobody can say, and its Lease decides alone (SPEC F4).
func (c *Cluster) classify(h *snapshot.Hub, others *snapshot.Reports) {
	lease, renews, cut := h.Lease(c.Cluster), h.Live(c.Cluster), others.Cut()
	c.UnreachableFrom = others.Unreachable
	c.out = cut || !renews && (others.Others == 0 || len(reach.ReadAddresses(lease, nil)) == 0)
	if set := h.Set(); set != nil && set.Spec.Lease.OnExpiry == hubv1alpha1.ExpiryKeep {
		c.out = false
	}
	warning := cmp.Or(c.Level, report.Warning)
	switch {
	case lease == nil:
		c.State = "joining"
	case cut && !renews:
		c.State, c.Level = "expired, unreachable", report.Error
	case cut:
		c.State, c.Level = "unreachable", report.Error
	case c.out:
		c.State, c.Level = "expired", report.Error
	case !renews:
		c.State, c.Level = "expired, still used", report.Error
	case len(c.UnreachableFrom) > 0:
		c.State, c.Level = "unreachable from "+report.Few(slices.Sorted(maps.Keys(c.UnreachableFrom))), warning
	case c.DNS == "fails":
		c.State, c.Level = "DNS fails", warning
	case c.Level != "":
		c.State = "live, with findings"
	default:
		c.State = "live"
	}
}

// index returns that of a cluster, which it adds if it is no member.
func (v *View) index(id string) int {
	i, there := v.at[id]
	if !there {
		i = v.add(Cluster{MemberRow: status.MemberRow{Cluster: id}, State: v.others})
	}
	return i
}

func (v *View) add(c Cluster) int {
	v.Clusters, v.at[c.Cluster] = append(v.Clusters, c), len(v.Clusters)
	return len(v.Clusters) - 1
}

// name returns the row of a name.
func (v *View) name(w *check.World, n *check.Name, findings []int) Name {
	out := Name{Name: n.String(), Findings: findings, Level: v.worst(findings)}
	if len(n.All) > 0 {
		out.Type = string(n.All[0].Type)
	}
	vip := n.Merged.Type == mcsv1beta1.ClusterSetIP
	if p := n.Merged.Preference; vip && p != hubv1alpha1.PreferNone {
		out.Prefer = string(p)
	}
	sum := 0
	for i := range n.Exporters {
		x := &n.Exporters[i]
		cell := Cell{Cluster: v.index(x.Cluster), Ready: x.Ready, Total: x.Ready + x.NotReady}
		switch c := &v.Clusters[cell.Cluster]; {
		case x.Expired != "" || w.Member == nil && c.out:
			cell.State = expired
		case vip && len(x.Ports) > 0 && len(n.Merged.Names[x.Cluster]) == 0:
			cell.State = withheld
		case x.Standby:
			cell.State = standby
		case x.Counted:
			sum += x.Ready
		}
		if !x.Counted {
			cell.Total = -1
		}
		out.Cells = append(out.Cells, cell)
	}
	for i := range out.Cells {
		switch c := &out.Cells[i]; {
		case c.State != "" || c.Total < 1:
		case out.Prefer != "" && n.Import == nil: // which cluster's clients it is about is not known
			c.Share = -1
		case sum > 0:
			c.Share = (100*c.Ready + sum/2) / sum
		}
	}
	for _, e := range n.Elsewhere {
		out.Cells = append(out.Cells, Cell{Cluster: v.index(e.Cluster), Total: -1, State: elsewhere})
	}
	slices.SortFunc(out.Cells, func(a, b Cell) int { return cmp.Compare(a.Cluster, b.Cluster) })
	return out
}

// outs returns how many clusters of a name get no traffic because of what is wrong with them.
func (n *Name) outs() (out int) {
	for _, c := range n.Cells {
		if c.State == expired || c.State == "" && c.Ready == 0 && c.Total >= 0 {
			out++
		}
	}
	return out
}

// Explain returns what explain says of a name, without what looks like a credential, or nil if there is no such name.
// Of a hub alone, it knows what is exported, and no answer.
func Explain(w *check.World, name string) (any, error) {
	i := slices.IndexFunc(w.Names, func(n *check.Name) bool { return n.String() == name })
	if i < 0 {
		return nil, nil
	}
	s := *w.Snapshot
	if s.Member == nil {
		s.Member = &snapshot.Member{Now: w.Now()}
		s.Unread = map[snapshot.Part]snapshot.Lack{snapshot.Corefile: {Why: "no member was read"}}
	}
	r := explain.Explain(&check.World{Snapshot: &s, Names: w.Names[i : i+1]}, nil)
	if w.Member == nil {
		r.Outcome = explain.Unknown
	}
	return bundle.Clean(r)
}
