// Package explain shows what one name of clusterset.local answers in a cluster, and why. It is pure: what was read of
// the cluster in, a Report out. Decisions come from the code of the agent (controllers/decide) and of CoreDNS
// (plugin/multicluster) itself.
package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/facts"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/endpoints"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/liveness"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/reach"
)

// Zone is the one that every cluster of a clusterset answers.
const Zone = "clusterset.local"

// Facts were read in one cluster.
type Facts struct {
	Name types.NamespacedName
	Now  time.Time // by the cluster's clock
	facts.Membership
	NamespaceExists bool
	Refuses         bool                        // the namespace refuses imports, by its annotation
	Service         *corev1.Service             // this cluster's own of that name
	Export          *mcsv1beta1.ServiceExport   // of that Service
	Import          *mcsv1beta1.ServiceImport   // from which CoreDNS answers
	Slices          []discoveryv1.EndpointSlice // of the import
	Outside         []discoveryv1.EndpointSlice // for clients outside the clusters
	From            netip.Addr                  // such a client, if one was asked for
	// this cluster's copies of what each cluster exports under the name
	Records        []hubv1alpha1.ServiceExportRecord
	Similar        []types.NamespacedName // imports that the user may have meant
	Corefile       string                 // of this cluster's CoreDNS
	Config         string                 // the ConfigMap of the Corefile, in kube-system
	CorefileUnread string                 // why it was not read
	Unread         []Part                 // what the user may not read; its absence proves nothing
	Ranges         []ipam.Range           // of this cluster's ServiceCIDRs, if they can be read
	Leases         []coordinationv1.Lease // of clusterset-system
	Agent          bool                   // there is a Deployment of the agent
	AgentStopped   bool                   // the agent's Deployment is scaled to 0
	Known          []report.Finding       // what the agent knows that this cluster lacks
	NoAdmin        bool                   // the user may not read the agent's Deployment
}

// Part is what is read in a cluster, as kubectl names it.
type Part string

// The parts that users may lack rights for (deploy/member/users.yaml).
const (
	Membership Part = "clusterproperties"
	Namespace  Part = "namespaces"
	Services   Part = "services"
	Exports    Part = "serviceexports"
	Endpoints  Part = "endpointslices"
	Records    Part = "serviceexportrecords in clusterset-system"
	Leases     Part = "leases in clusterset-system"
	Others     Part = "serviceimports in other namespaces"
)

func (f *Facts) unread(p Part) bool { return slices.Contains(f.Unread, p) }

// Report is the explanation.
type Report struct {
	metav1.TypeMeta `json:",inline"`
	Name            string           `json:"name"`
	Cluster         string           `json:"cluster,omitempty"`
	ClusterSet      string           `json:"clusterSet,omitempty"`
	Outcome         Outcome          `json:"outcome"`
	Unsure          []string         `json:"asFarAsKnown,omitempty"` // what was not checked and may change the outcome
	Type            string           `json:"type,omitempty"`
	Answers         []Answer         `json:"answers,omitempty"`
	Hosts           []string         `json:"hosts,omitempty"`
	NotRead         []Part           `json:"notRead,omitempty"`
	Exporters       []Exporter       `json:"exporters,omitempty"`
	Endpoints       []Endpoint       `json:"endpoints,omitempty"` // some of each exporter
	Properties      []Property       `json:"properties,omitempty"`
	VIPs            []VIP            `json:"vips,omitempty"`
	Withheld        []Withheld       `json:"withheld,omitempty"`
	External        []External       `json:"external,omitempty"` // for clients outside the clusters
	Chosen          []Chosen         `json:"chosen,omitempty"`   // for one of them
	Findings        []report.Finding `json:"findings"`
}

// Outcome is the answer to a question for the name's addresses.
type Outcome string

// The outcomes.
const (
	Success   Outcome = "Success"
	NoData    Outcome = "NoData"
	NameError Outcome = "NameError"
	NotServed Outcome = "NotServed" // the cluster's DNS is not configured for the zone
	Unknown   Outcome = "Unknown"   // what decides it was not read
)

// Answer is a question at or below the name, with its answer.
type Answer struct {
	Question string   `json:"question"`
	Type     string   `json:"type"`
	Data     []string `json:"data"`
}

// Exporter is one cluster that exports the name. The first is the oldest, which wins conflicts.
type Exporter struct {
	Cluster     string    `json:"cluster"`
	Since       time.Time `json:"since"` // by which it ranks (conflict.Order)
	Type        string    `json:"type"`
	Ports       []string  `json:"ports,omitempty"`
	Ready       int       `json:"ready"` // of what is imported here
	NotReady    int       `json:"notReady"`
	NotCounted  bool      `json:"notCounted,omitempty"` // not imported, or not to be read: both are unknown
	Here        bool      `json:"here,omitempty"`
	Held        string    `json:"held,omitempty"`        // why it counts although the hub does not show it
	Expired     string    `json:"expired,omitempty"`     // since when, and the state of its endpoints
	AgentSilent string    `json:"agentSilent,omitempty"` // since when only its endpoints answer here
	Silent      string    `json:"silent,omitempty"`      // since when its agent does not; endpoints cannot be tried
	NoTraffic   bool      `json:"noTraffic,omitempty"`   // from the VIP, by preference
	Preferred   string    `json:"preferred,omitempty"`   // the preference by which it gets the VIP's traffic
	Lost        bool      `json:"lost,omitempty"`        // this cluster lacks endpoints of it: a finding says why
	imported    bool      // some of its slices are here
}

// Endpoint is one of an exporter's. More is how many others its slices have that are not listed; it has no address
// then.
type Endpoint struct {
	Cluster string   `json:"cluster"`
	Address string   `json:"address,omitempty"`
	Ports   []string `json:"ports,omitempty"`
	Ready   bool     `json:"ready"`
	More    int      `json:"more,omitempty"`
}

// Property is something that clusters may disagree on, with the value in effect.
type Property struct {
	Name   string            `json:"name"`
	Value  string            `json:"value"`
	From   string            `json:"from"`
	Others map[string]string `json:"others,omitempty"` // other values, by cluster
}

// VIP is an address of the name, and the range that holds it.
type VIP struct {
	Address     string `json:"address"`
	Range       string `json:"range"`
	ServiceCIDR string `json:"serviceCIDR"`
	Use         string `json:"use"` // of the range
}

// Withheld is what a cluster exports and the name does not answer, or sends no traffic to.
type Withheld struct {
	Cluster string `json:"cluster"`
	What    string `json:"what"`
	Why     string `json:"why"`
}

// ParseName accepts web.shop, web.shop.svc, web.shop.svc.clusterset.local with or without a final dot, names below the
// latter, or web with a namespace.
func ParseName(name, namespace string) (types.NamespacedName, error) {
	short, full := strings.CutSuffix(strings.ToLower(strings.TrimSuffix(name, ".")), ".svc."+Zone)
	labels := strings.Split(strings.TrimSuffix(short, ".svc"), ".")
	if full && len(labels) > 2 { // of an endpoint or a port
		labels = labels[len(labels)-2:]
	}
	if len(labels) == 1 && namespace != "" {
		labels = append(labels, namespace)
	}
	for _, l := range labels {
		if len(validation.IsDNS1123Label(l)) > 0 {
			labels = nil
		}
	}
	if len(labels) != 2 {
		return types.NamespacedName{},
			fmt.Errorf("%q is no name of a Service\n  → SERVICE.NAMESPACE, such as web.shop or web.shop.svc.%s, "+
				"or SERVICE with -n NAMESPACE", name, Zone)
	}
	return types.NamespacedName{Namespace: labels[1], Name: labels[0]}, nil
}

// Similar reports whether a user who types name may mean other: another namespace, or up to two wrong letters.
func Similar(name, other types.NamespacedName) bool {
	if name.Namespace != other.Namespace {
		return name.Name == other.Name
	}
	return name.Name != other.Name && distance(name.Name, other.Name) <= min(2, len(name.Name)/2)
}

// distance is the number of letters that are changed, added, missing, or swapped with the next one.
func distance(a, b string) int {
	var before, last, row []int
	for i := range len(a) + 1 {
		before, last, row = last, row, make([]int, len(b)+1)
		for j := range row {
			if i == 0 || j == 0 {
				row[j] = i + j
				continue
			}
			row[j] = min(last[j], row[j-1]) + 1
			if a[i-1] == b[j-1] {
				row[j] = min(row[j], last[j-1])
			} else {
				row[j] = min(row[j], last[j-1]+1)
			}
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return row[len(b)]
}

// Explain returns the report.
func Explain(f *Facts) Report {
	r := Report{
		TypeMeta: report.Kind("Explanation"), Name: f.Name.Name + "." + f.Name.Namespace + ".svc." + Zone,
		Cluster: f.ID, ClusterSet: f.Set, Outcome: NameError, NotRead: f.Unread, Findings: []report.Finding{},
	}
	exports, invalid, elsewhere := f.exports()
	d := f.dns()
	if d.notServed {
		r.Outcome = NotServed
	}
	if f.Import != nil {
		r.Type = string(f.Import.Spec.Type)
		r.VIPs = f.vips()
		r.Unsure = d.unsure
		switch {
		case d.denied != nil:
		case f.unread(Endpoints) && f.Import.Spec.Type == mcsv1beta1.Headless:
			r.Outcome = Unknown
		default:
			r.answer(f, &d)
		}
	}
	var merged conflict.Merged
	if len(exports) > 0 {
		conflict.Order(exports)
		merged, _ = conflict.Merge(exports)
		r.exporters(f, exports, &merged)
		r.endpoints(f)
		r.Properties = properties(exports, &merged, f.families(&merged))
		r.Withheld = withheld(f, exports, r.Exporters, &merged)
		if r.Type == string(mcsv1beta1.Headless) && d.denied == nil {
			r.Properties = append(r.Properties, d.prefer...)
		}
	}
	r.Withheld = append(append(r.Withheld, invalid...), elsewhere...)
	r.external(f)
	r.addFindings(f, exports, &merged, invalid, elsewhere, d.denied)
	return r
}

// vips returns those of the import, with the smallest range that holds each.
func (f *Facts) vips() (out []VIP) {
	for _, text := range f.Import.Spec.IPs {
		a, err := netip.ParseAddr(text)
		if err != nil || len(f.Ranges) == 0 {
			continue
		}
		vip, bits := VIP{Address: text, Range: "none", ServiceCIDR: "-", Use: "no ServiceCIDR covers it"}, -1
		for _, r := range f.Ranges {
			if r.Prefix.Contains(a) && r.Prefix.Bits() > bits {
				bits = r.Prefix.Bits()
				vip = VIP{Address: text, Range: r.Prefix.String(), ServiceCIDR: r.Name, Use: "VIPs first"}
				if !r.VIPs {
					vip.Use = "any Service"
				}
			}
		}
		out = append(out, vip)
	}
	return out
}

// exports returns the records that count; those that do not parse; and those that go to other clusters only.
func (f *Facts) exports() (out []clusterset.Export, invalid, elsewhere []Withheld) {
	for i := range f.Records {
		rec := &f.Records[i]
		if rec.Spec.Withdrawn {
			continue
		}
		e, err := clusterset.ParseExport(rec)
		switch {
		case err != nil:
			why := "the record is not valid: " + strings.ReplaceAll(err.Error(), "\n", "; ")
			invalid = append(invalid, Withheld{rec.Spec.ClusterID, "its export", why})
		case f.ID != "" && !e.GoesTo(f.Place()):
			elsewhere = append(elsewhere, Withheld{e.Cluster, "its export", "it goes to " + e.ExportTo + " only"})
		default:
			out = append(out, e)
		}
	}
	return out, invalid, elsewhere
}

// imports reports whether this cluster imports the name: the import exists, and all that it needs is the agent's.
func (f *Facts) imports() bool { return f.Import != nil && len(f.notImported()) == 0 }

func (f *Facts) notImported() []report.Finding {
	return facts.NotImported(f.Records, hubv1alpha1.ConditionImported)
}

// exporters counts every exporter's imported endpoints.
func (r *Report) exporters(f *Facts, exports []clusterset.Export, m *conflict.Merged) {
	late := conflict.Late(exports)
	for i := range exports {
		e := &exports[i]
		since := e.Created
		if late(e) && e.Published.Before(f.Now) { // else it is not on the hub yet
			since = e.Published
		}
		x := Exporter{
			Cluster: e.Cluster, Since: since, Type: string(e.Type), Here: e.Cluster == f.ID,
			Expired: f.expired(e.Cluster), Held: f.message(e.Cluster, hubv1alpha1.ConditionHeld, metav1.ConditionTrue),
			Lost:        f.message(e.Cluster, hubv1alpha1.ConditionEndpointsImported, metav1.ConditionFalse) != "",
			AgentSilent: f.since(e.Cluster, reach.Serving), Silent: f.since(e.Cluster, reach.Silent),
			NotCounted: !f.imports() || f.unread(Endpoints),
		}
		for _, p := range e.Ports {
			x.Ports = append(x.Ports, portText(p))
		}
		byType := map[discoveryv1.AddressType]struct{ ready, notReady int }{}
		withTraffic := false
		for j := range f.Slices {
			s := &f.Slices[j]
			if s.Labels[mcsv1beta1.LabelSourceCluster] != e.Cluster {
				continue
			}
			x.imported, withTraffic = true, withTraffic || !endpoints.Standby(s)
			n := byType[s.AddressType]
			for k := range s.Endpoints {
				if isReady(&s.Endpoints[k]) {
					n.ready++
				} else {
					n.notReady++
				}
			}
			byType[s.AddressType] = n
		}
		x.NoTraffic = m.Type == mcsv1beta1.ClusterSetIP && x.imported && !withTraffic
		for _, n := range byType { // a dual-stack pod is in a slice of each family
			x.Ready, x.NotReady = max(x.Ready, n.ready), max(x.NotReady, n.notReady)
		}
		r.Exporters = append(r.Exporters, x)
	}
	if !slices.ContainsFunc(r.Exporters, func(x Exporter) bool { return x.NoTraffic }) {
		return
	}
	for i := range r.Exporters {
		if x := &r.Exporters[i]; !x.NoTraffic && x.Ready > 0 {
			x.Preferred = string(exports[0].Preference)
		}
	}
}

// listed is how many endpoints of a cluster are shown.
const listed = 20

// endpoints lists the first of every exporter.
func (r *Report) endpoints(f *Facts) {
	for i := range r.Exporters {
		own, more := []Endpoint{}, 0
		for j := range f.Slices {
			s := &f.Slices[j]
			if s.Labels[mcsv1beta1.LabelSourceCluster] != r.Exporters[i].Cluster {
				continue
			}
			var ports []string
			for _, p := range s.Ports {
				ports = append(ports, fmt.Sprintf("%d/%s", ptr.Deref(p.Port, 0),
					ptr.Deref(p.Protocol, corev1.ProtocolTCP)))
			}
			slices.Sort(ports)
			ports = slices.Compact(ports)
			for k := range s.Endpoints {
				if len(own) == listed || len(s.Endpoints[k].Addresses) == 0 {
					more++
					continue
				}
				own = append(own, Endpoint{Cluster: r.Exporters[i].Cluster, Address: s.Endpoints[k].Addresses[0],
					Ports: ports, Ready: isReady(&s.Endpoints[k])})
			}
		}
		if more > 0 {
			own = append(own, Endpoint{Cluster: r.Exporters[i].Cluster, More: more})
		}
		r.Endpoints = append(r.Endpoints, own...)
	}
}

// families returns those in effect here: the import's, or what the exports have in common.
func (f *Facts) families(m *conflict.Merged) []corev1.IPFamily {
	if f.Import != nil && len(f.Import.Spec.IPFamilies) > 0 {
		return f.Import.Spec.IPFamilies
	}
	return m.Families
}

// message returns that of a condition of a cluster's record, or "" if it has not that status.
func (f *Facts) message(cluster, kind string, status metav1.ConditionStatus) string {
	for i := range f.Records {
		c := meta.FindStatusCondition(f.Records[i].Status.Conditions, kind)
		if f.Records[i].Spec.ClusterID == cluster && c != nil && c.Status == status {
			return c.Message
		}
	}
	return ""
}

// expired returns since when a cluster has expired here, and the state of its endpoints; "" while it is live.
func (f *Facts) expired(cluster string) string {
	for i := range f.Leases {
		lease := &f.Leases[i]
		v := liveness.StateOf(lease)
		if lease.Labels[liveness.LabelSource] != cluster || !v.Expired {
			continue
		}
		said := "clients here do not get its endpoints"
		if v.OnExpiry == hubv1alpha1.ExpiryKeep {
			said = "clients here still get its endpoints"
		}
		said += " (onExpiry: " + string(v.OnExpiry) + ")"
		if v := reach.Read(lease); v.State == reach.Unreachable {
			return fmt.Sprintf("neither its agent nor its endpoints answered here at %s, while others did; %s",
				v.Since.UTC().Format(time.RFC3339), said)
		}
		if back := liveness.RenewingSince(lease); !back.IsZero() {
			return fmt.Sprintf("it expired repeatedly, renews its Lease on the hub again since %s, and counts as "+
				"live at most %v after that; %s", back.UTC().Format(time.RFC3339), liveness.MaxDamping, said)
		}
		if seen := lease.Spec.RenewTime; seen != nil {
			return fmt.Sprintf("it has not renewed its Lease on the hub since %s or earlier; %s",
				seen.UTC().Format(time.RFC3339), said)
		}
		return said
	}
	return ""
}

// since returns since when what is known of a live cluster is state; "" if it is not.
func (f *Facts) since(cluster string, state reach.State) string {
	for i := range f.Leases {
		v := reach.Read(&f.Leases[i])
		if f.Leases[i].Labels[liveness.LabelSource] == cluster && v.State == state &&
			!liveness.StateOf(&f.Leases[i]).Expired {
			return v.Since.UTC().Format(time.RFC3339)
		}
	}
	return ""
}

// isReady: unset means ready (KEP-1645, DNS specification).
func isReady(e *discoveryv1.Endpoint) bool { return e.Conditions.Ready == nil || *e.Conditions.Ready }

func portText(p clusterset.Port) string {
	s := fmt.Sprintf("%d/%s", p.Number, p.Protocol)
	if p.Name != "" {
		s = p.Name + " " + s
	}
	if p.AppProtocol != "" {
		s += " (" + p.AppProtocol + ")"
	}
	return s
}
