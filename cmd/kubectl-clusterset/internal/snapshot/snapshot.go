// Package snapshot reads what status, explain, doctor and gather look at: each part once, of one member and of its hub.
// A part that cannot be read is in Unread with the reason. The package decides nothing and writes nothing. A Snapshot
// can be stored in an archive, redacted, and gives the same answers when it is loaded.
package snapshot

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/dns"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/facts"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/reach"
)

// Part is something that is read as a whole, named as for a user who may not read it.
type Part string

// The parts of a member.
const (
	Properties Part = "clusterproperties"
	Membership Part = "memberships"
	Agent      Part = "the agent's Deployment"
	Leases     Part = "leases in clusterset-system"
	Exports    Part = "serviceexports"
	Imports    Part = "serviceimports"
	Others     Part = "serviceimports in other namespaces"
	Records    Part = "serviceexportrecords in clusterset-system"
	Slices     Part = "endpointslices"
	Services   Part = "services"
	Namespaces Part = "namespaces"
	Nodes      Part = "nodes"
	Ranges     Part = "servicecidrs"
	Secret     Part = "the Secret with the credentials for the hub"
	DNS        Part = "the cluster's DNS"
	Corefile   Part = "the Corefile of the cluster's DNS"
	Drift      Part = "policies and roles"
)

// The parts of the hub.
const (
	OfHub    Part = "the hub"
	HubAdmin Part = "the hub, as its admin"
	Leader   Part = "the leader of the hub's controller"
	HubDrift Part = "policies and roles of the hub"
)

// OnHub reports whether a part is of the hub.
func (p Part) OnHub() bool { return p == OfHub || p == HubAdmin || p == Leader || p == HubDrift }

// NotNamed is why HubAdmin is unread if no flag names the hub.
const NotNamed = "to check this as well, name the hub, as its admin, with --hub-kubeconfig or --hub-context"

// NoCoreDNS is why Corefile is unread if there is none.
const NoCoreDNS = "there is no CoreDNS in kube-system with a Corefile: DNS may run elsewhere"

// Lack is why a part was not read.
type Lack struct {
	Why   string `json:"why"`
	Right string `json:"right,omitempty"` // that the user lacks, such as "list nodes"; "" if it is another reason
	// Credentials reports that those for the hub were refused, or that the agent's cannot be used.
	Credentials bool `json:"credentials,omitempty"`
}

type Snapshot struct {
	Release      string        `json:"release"` // of this program
	Flags        report.Flags  `json:"flags"`   // by which the user named the clusters
	Namespace    string        `json:"namespace"`
	HubNamed     bool          `json:"hubNamed,omitempty"`
	HubHere      []string      `json:"hubHere,omitempty"` // ClusterSets whose hub this cluster is, if it is no member
	Member       *Member       `json:"member,omitempty"`  // nil for a hub alone
	Hub          *Hub          `json:"hub,omitempty"`     // nil if it was not read
	Unread       map[Part]Lack `json:"unread,omitempty"`
	MemberEvents []eventsv1.Event
	HubEvents    []eventsv1.Event
}

// Member is the cluster that --context names.
type Member struct {
	Version     string                            `json:"version"` // of Kubernetes
	Now         time.Time                         `json:"now"`     // by the clock of its API server
	Unserved    []string                          `json:"unserved,omitempty"`
	Properties  []aboutv1beta1.ClusterProperty    `json:"properties,omitempty"`
	Membership  hubv1alpha1.Membership            `json:"membership"`
	Agent       *appsv1.Deployment                `json:"agent,omitempty"`
	AgentPods   []corev1.Pod                      `json:"agentPods,omitempty"`
	Leases      []coordinationv1.Lease            `json:"leases,omitempty"` // of clusterset-system
	Exports     []mcsv1beta1.ServiceExport        `json:"exports,omitempty"`
	Imports     []mcsv1beta1.ServiceImport        `json:"imports,omitempty"`
	Records     []hubv1alpha1.ServiceExportRecord `json:"records,omitempty"` // its copies
	Slices      []discoveryv1.EndpointSlice       `json:"slices,omitempty"`  // imported
	Outside     []discoveryv1.EndpointSlice       `json:"outside,omitempty"` // for clients outside the clusters
	Services    []Service                         `json:"services,omitempty"`
	Namespaces  []Namespace                       `json:"namespaces,omitempty"`
	PodRanges   []netip.Prefix                    `json:"podRanges,omitempty"`
	CIDRs       []networkingv1.ServiceCIDR        `json:"cidrs,omitempty"`
	DNS         dns.State                         `json:"dns"`
	DNSPods     []corev1.Pod                      `json:"dnsPods,omitempty"`
	BesidePods  []corev1.Pod                      `json:"besidePods,omitempty"`
	DNSRefusal  string                            `json:"dnsRefusal,omitempty"` // why CoreDNS refuses its Corefile
	Drift       []string                          `json:"drift,omitempty"`      // from the manifests of this release
	DNSDrift    []string                          `json:"dnsDrift,omitempty"`
	BesideDrift []string                          `json:"besideDrift,omitempty"` // whether or not ours is there
}

// Service is what is read of a Service that is not of the agent.
type Service struct {
	Namespace string             `json:"namespace"`
	Name      string             `json:"name"`
	Type      corev1.ServiceType `json:"type"`
	Selector  map[string]string  `json:"selector,omitempty"`
}

// Namespace is what is read of a namespace.
type Namespace struct {
	Name    string `json:"name"`
	Refuses bool   `json:"refuses,omitempty"` // imports
}

// Hub is a clusterset's namespace on the hub.
type Hub struct {
	Server   string                             `json:"server"` // the URL at which it was read
	Version  string                             `json:"version"`
	Now      time.Time                          `json:"now"`      // by its clock
	Ahead    time.Duration                      `json:"ahead"`    // of the member's clock
	Sets     []hubv1alpha1.ClusterSet           `json:"sets"`     //
	Profiles []inventoryv1alpha1.ClusterProfile `json:"profiles"` // without those of other managers
	Leases   []coordinationv1.Lease             `json:"leases"`   //
	Leader   *coordinationv1.Lease              `json:"leader"`   //
	Records  []hubv1alpha1.ServiceExportRecord  `json:"records"`  //
	Pages    []hubv1alpha1.EndpointPage         `json:"pages"`    //
	Role     facts.Role                         `json:"role"`     // without Sets, if the user named it
	Unserved []string                           `json:"unserved"` //
	Deployed *appsv1.Deployment                 `json:"deployed"` // the controller, for an admin
	Pods     []corev1.Pod                       `json:"pods"`     // of the controller
	Drift    []string                           `json:"drift"`    // from the manifests of this release
}

// HasRead reports whether a part was read.
func (s *Snapshot) HasRead(p Part) bool {
	_, unread := s.Unread[p]
	return !unread && (p.OnHub() && s.Hub != nil || !p.OnHub() && s.Member != nil)
}

// Failed returns why parts were not read for another reason than a right. Of the hub as a whole, the checks say it.
func (s *Snapshot) Failed() (out []string) {
	for p, lack := range s.Unread {
		if lack.Right == "" && lack.Why != NotNamed && lack.Why != NoCoreDNS && p != OfHub {
			out = append(out, fmt.Sprintf("reading %s failed: %s", p, lack.Why))
		}
	}
	slices.Sort(out)
	return out
}

// handOver is how long no replica of the agent may have its Lease in a rolling update.
const handOver = 10 * time.Second

// AgentStopped reports whether no agent renews its Lease. Who may not read Leases does not see it.
func (s *Snapshot) AgentStopped() bool {
	lease := facts.Named(s.Member.Leases, facts.AgentLease)
	return s.HasRead(Leases) && facts.Expired(lease, s.Member.Now.Add(-handOver))
}

// Now returns the time from which ages are counted.
func (s *Snapshot) Now() time.Time {
	if s.Hub != nil {
		return s.Hub.Now
	}
	return s.Member.Now
}

func (m *Member) property(name string) *aboutv1beta1.ClusterProperty {
	p := facts.Find(m.Properties, func(p *aboutv1beta1.ClusterProperty) bool { return p.Name == name })
	return cmp.Or(p, &aboutv1beta1.ClusterProperty{})
}

// ID returns the cluster ID, or "".
func (m *Member) ID() string { return m.property(clusterset.PropertyID).Spec.Value }

// Set returns the ClusterSet that the cluster is a member of, or "".
func (m *Member) Set() string { return m.property(clusterset.PropertySet).Spec.Value }

// Leaving reports whether the cluster is leaving its ClusterSet.
func (m *Member) Leaving() bool {
	return m.property(clusterset.PropertySet).Annotations[clusterset.AnnotationLeaving] != ""
}

// Place returns the cluster as exports and preferences select it.
func (m *Member) Place() clusterset.Place {
	out := clusterset.Place{Cluster: m.ID(), Properties: map[string]string{}}
	for i := range m.Properties {
		out.Properties[m.Properties[i].Name] = m.Properties[i].Spec.Value
	}
	return out
}

// Lease returns a member's Lease, or nil.
func (h *Hub) Lease(member string) *coordinationv1.Lease { return facts.Named(h.Leases, member) }

// Live reports whether a member renews its Lease.
func (h *Hub) Live(member string) bool { return !facts.Expired(h.Lease(member), h.Now) }

// Reports are what the other live members state of a member.
type Reports struct {
	Others      int                  // how many they are
	Unreachable map[string]time.Time // those that do not reach it, and since when
}

// Cut reports whether more than half of them do not reach the member (SPEC F5).
func (r *Reports) Cut() bool { return 2*len(r.Unreachable) > r.Others }

// Reports returns what is stated of each member.
func (h *Hub) Reports() map[string]*Reports {
	out := map[string]*Reports{}
	for i := range h.Profiles {
		out[h.Profiles[i].Name] = &Reports{Unreachable: map[string]time.Time{}}
	}
	for from := range out {
		if !h.Live(from) {
			continue
		}
		since, _ := reach.ReadUnreachable(h.Lease(from)) // a finding says that it is invalid
		for of, r := range out {
			if of != from {
				r.Others++
			}
			if at, is := since[of]; is && of != from {
				r.Unreachable[from] = at
			}
		}
	}
	return out
}

// Profile returns a member's ClusterProfile, or nil.
func (h *Hub) Profile(member string) *inventoryv1alpha1.ClusterProfile {
	return facts.Find(h.Profiles, func(p *inventoryv1alpha1.ClusterProfile) bool { return p.Name == member })
}

// Set returns the only ClusterSet, or nil.
func (h *Hub) Set() *hubv1alpha1.ClusterSet {
	if len(h.Sets) != 1 {
		return nil
	}
	return &h.Sets[0]
}

// Origin is a name that a cluster exports.
type Origin struct {
	types.NamespacedName
	Cluster string
}

// Endpoints returns how many endpoints of each exporter are on the hub, in records and in the pages that they count.
func (h *Hub) Endpoints() map[Origin]Count {
	type key struct {
		Origin
		discoveryv1.AddressType
	}
	byType, pages := map[key]Count{}, map[Origin]int32{}
	of := func(o *hubv1alpha1.Origin) Origin {
		return Origin{types.NamespacedName{Namespace: o.ServiceNamespace, Name: o.ServiceName}, o.ClusterID}
	}
	add := func(o Origin, g *hubv1alpha1.EndpointGroup) {
		c := byType[key{o, g.AddressType}]
		for i := range g.Endpoints {
			if r := g.Endpoints[i].Ready; r == nil || *r {
				c.Ready++
			} else {
				c.NotReady++
			}
		}
		byType[key{o, g.AddressType}] = c
	}
	for i := range h.Records {
		s := &h.Records[i].Spec
		pages[of(&s.Origin)] = s.Pages
		for j := range s.Endpoints {
			add(of(&s.Origin), &s.Endpoints[j])
		}
	}
	for i := range h.Pages {
		if s := &h.Pages[i].Spec; s.Number < pages[of(&s.Origin)] {
			add(of(&s.Origin), &s.EndpointGroup)
		}
	}
	out := map[Origin]Count{}
	for k, c := range byType { // a dual-stack Pod is in a group of each family
		most := out[k.Origin]
		out[k.Origin] = Count{max(most.Ready, c.Ready), max(most.NotReady, c.NotReady)}
	}
	return out
}

// Count is a number of endpoints.
type Count struct{ Ready, NotReady int }

// namespace returns that of the clusterset on the hub. The agent's credentials are for theirs alone; without them, it
// is the agent's, or the ClusterSet's name.
func (r *reader) namespace(m *Member) string {
	agents, s := cmp.Or(r.account, facts.Flag(m.Agent, "hub-namespace")), &r.Source
	if s.Hub == nil {
		return cmp.Or(agents, s.Given, m.Set(), s.Namespace)
	}
	return cmp.Or(s.Given, agents, m.Set(), s.Namespace)
}
