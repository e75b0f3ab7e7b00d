// Package explain tells what one name of clusterset.local answers in a cluster, and why. Pure: what was read from the cluster in, a
// Report out. The decisions are those of the agent (controllers/decide) and of CoreDNS (plugin/multicluster/catalog) themselves.
package explain

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/liveness"
)

// Zone is the one that every cluster of a clusterset answers.
const Zone = "clusterset.local"

// Facts are read in one cluster.
type Facts struct {
	Name           types.NamespacedName
	Now            time.Time // by the cluster's clock
	Cluster, Set   string    // by its ClusterProperties; Set is "" where it is no member
	Leaving        bool      // it is taken out of its clusterset
	NamespaceThere bool
	Service        *corev1.Service                   // this cluster's own of that name
	Export         *mcsv1beta1.ServiceExport         // of that Service
	Import         *mcsv1beta1.ServiceImport         // what CoreDNS answers from
	Slices         []discoveryv1.EndpointSlice       // those of the import
	Records        []hubv1alpha1.ServiceExportRecord // what each cluster exports under the name, as this one believes it
	Alike          []types.NamespacedName            // imports that may have been meant
	Corefile       string                            // of this cluster's CoreDNS
	CorefileUnread string                            // why it is not known, "" if it is
	Unread         []Part                            // what the user may not read; nothing is concluded from its absence
	Ranges         []ipam.Range                      // of this cluster's ServiceCIDRs; none where they cannot be read
	Leases         []coordinationv1.Lease            // of its system namespace: what it has seen of the others' lives, and of the hub
}

// Part is one kind of what is read in a cluster, as it is told.
type Part string

// The parts that a user of the cluster may not be allowed to read (deploy/member/users.yaml).
const (
	Membership Part = "ClusterProperties"
	Namespace  Part = "the Namespace"
	Services   Part = "the Service"
	Exports    Part = "the ServiceExport"
	Endpoints  Part = "EndpointSlices"
	Records    Part = "ServiceExportRecords"
	Lives      Part = "Leases"
	Others     Part = "other ServiceImports"
)

func (f *Facts) unread(p Part) bool { return slices.Contains(f.Unread, p) }

// Report is the explanation.
type Report struct {
	Name       string     `json:"name"`
	Cluster    string     `json:"cluster,omitempty"`
	ClusterSet string     `json:"clusterSet,omitempty"`
	Outcome    Outcome    `json:"outcome"`
	Unsure     []string   `json:"asFarAsKnown,omitempty"` // what may make the outcome another one, and was not looked at
	Type       string     `json:"type,omitempty"`
	Answers    []Answer   `json:"answers,omitempty"`
	Hosts      []string   `json:"hosts,omitempty"`
	NotRead    []Part     `json:"notRead,omitempty"`
	Exporters  []Exporter `json:"exporters,omitempty"`
	Properties []Property `json:"properties,omitempty"`
	VIPs       []VIP      `json:"vips,omitempty"`
	Withheld   []Withheld `json:"withheld,omitempty"`
	Problems   []Problem  `json:"problems,omitempty"`
}

// Outcome is what a question for the name's addresses gets.
type Outcome string

// The outcomes.
const (
	Success   Outcome = "Success"
	NoData    Outcome = "NoData"
	NameError Outcome = "NameError"
	Unknown   Outcome = "Unknown" // what decides it was not read
)

// Answer is one question below the name that is answered, and with what.
type Answer struct {
	Question string   `json:"question"`
	Type     string   `json:"type"`
	Data     []string `json:"data"`
}

// Exporter is one cluster's share. The first is the oldest, which wins conflicts.
type Exporter struct {
	Cluster  string    `json:"cluster"`
	Since    time.Time `json:"since"`
	Type     string    `json:"type"`
	Ports    []string  `json:"ports,omitempty"`
	Ready    int       `json:"ready"`
	NotReady int       `json:"notReady"`
	Here     bool      `json:"here,omitempty"`   // this cluster itself
	Held     string    `json:"held,omitempty"`   // why it stands although the hub does not show it so
	Dead     string    `json:"dead,omitempty"`   // since when its cluster counts as dead, and what becomes of its endpoints
	Silent   bool      `json:"silent,omitempty"` // the VIP sends it no traffic, by preference
	// Preferred is by what its endpoints, or some of them, stand before others here: the VIP sends them all traffic, or they are answered first.
	Preferred string `json:"preferred,omitempty"`
	Unreached string `json:"unreached,omitempty"` // which members do not reach which of its endpoints
}

// Property is one thing that the clusters may disagree on, and what came of it.
type Property struct {
	Name   string            `json:"name"`
	Value  string            `json:"value"`
	From   string            `json:"from"`
	Others map[string]string `json:"others,omitempty"` // by cluster, where it differs
}

// VIP is an address of the name, and the range that it comes from.
type VIP struct {
	Address     string `json:"address"`
	Range       string `json:"range"`
	ServiceCIDR string `json:"serviceCIDR"`
	Use         string `json:"use"` // for whom the range is
}

// Withheld is what a cluster has and the name does not answer, or sends no traffic to.
type Withheld struct {
	Cluster string `json:"cluster"`
	What    string `json:"what"`
	Why     string `json:"why"`
}

// Problem is why the name does not do what a user may expect, and what to do.
type Problem struct {
	What   string `json:"what"`
	Remedy string `json:"remedy"`
}

// ParseName reads web.shop, web.shop.svc, web.shop.svc.clusterset.local with or without a dot at its end, or web in a namespace.
func ParseName(name, namespace string) (types.NamespacedName, error) {
	short := strings.ToLower(strings.TrimSuffix(name, "."))
	short = strings.TrimSuffix(strings.TrimSuffix(short, "."+Zone), ".svc")
	labels := strings.Split(short, ".")
	if len(labels) == 1 && namespace != "" {
		labels = append(labels, namespace)
	}
	for _, l := range labels {
		if len(validation.IsDNS1123Label(l)) > 0 {
			labels = nil
		}
	}
	if len(labels) != 2 {
		return types.NamespacedName{}, fmt.Errorf("%q is no name of a Service: give SERVICE.NAMESPACE, such as web.shop or web.shop.svc.%s, or SERVICE with -n NAMESPACE", name, Zone)
	}
	return types.NamespacedName{Namespace: labels[1], Name: labels[0]}, nil
}

// Alike tells whether somebody who asks for name may mean other: the namespace is forgotten, or up to two letters are mistyped.
func Alike(name, other types.NamespacedName) bool {
	if name.Namespace != other.Namespace {
		return name.Name == other.Name
	}
	return name.Name != other.Name && distance(name.Name, other.Name) <= min(2, len(name.Name)/2)
}

// distance is how many letters must be changed, added, left out, or swapped with the next one.
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

// Explain makes the report.
func Explain(f *Facts) Report {
	r := Report{Name: f.Name.Name + "." + f.Name.Namespace + ".svc." + Zone, Cluster: f.Cluster, ClusterSet: f.Set, Outcome: NameError, NotRead: f.Unread}
	exports, refused := f.exports()
	d := f.dns()
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
	if len(exports) > 0 {
		slices.SortFunc(exports, precedes)
		merged, _ := conflict.Merge(exports)
		r.exporters(f, exports, &merged)
		r.Properties = properties(exports, &merged, f.families(&merged))
		r.Withheld = withheld(f, exports, &merged)
		if d.denied == nil {
			r.near(f, d.topology)
		}
	}
	r.Withheld = append(r.Withheld, refused...)
	r.Problems = problems(f, exports, refused, d.denied, r.Outcome)
	return r
}

// vips are the import's, with the smallest range that each is in.
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
				vip = VIP{Address: text, Range: r.Prefix.String(), ServiceCIDR: r.Name, Use: map[ipam.Use]string{
					ipam.Ordinary: "any Service", ipam.Shared: "VIPs first"}[r.Use]}
			}
		}
		out = append(out, vip)
	}
	return out
}

// precedes is the order of conflict.Merge (C1), in which exporters are shown.
func precedes(a, b clusterset.Export) int {
	return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Cluster, b.Cluster))
}

// exports are the records that count, and what is wrong with those that do not.
func (f *Facts) exports() (out []clusterset.Export, refused []Withheld) {
	for i := range f.Records {
		rec := &f.Records[i]
		if rec.Spec.Withdrawn {
			continue
		}
		e, err := clusterset.ParseExport(rec)
		if err != nil {
			refused = append(refused, Withheld{rec.Spec.ClusterID, "its export", "the record is not valid: " + strings.ReplaceAll(err.Error(), "\n", "; ")})
			continue
		}
		out = append(out, e)
	}
	return out, refused
}

// exporters counts every exporter's endpoints as they were imported.
func (r *Report) exporters(f *Facts, exports []clusterset.Export, m *conflict.Merged) {
	for i := range exports {
		e := &exports[i]
		x := Exporter{
			Cluster: e.Cluster, Since: e.Created, Type: string(e.Type), Here: e.Cluster == f.Cluster,
			Held: f.says(e.Cluster, hubv1alpha1.ConditionHeld, "True"), Dead: f.dead(e.Cluster),
			Unreached: f.says(e.Cluster, hubv1alpha1.ConditionReached, "False"),
		}
		for _, p := range e.Ports {
			x.Ports = append(x.Ports, portText(p))
		}
		byType := map[discoveryv1.AddressType]struct{ ready, notReady int }{}
		for j := range f.Slices {
			s := &f.Slices[j]
			if s.Labels[mcsv1beta1.LabelSourceCluster] != e.Cluster {
				continue
			}
			if _, silent := s.Labels[corev1.IsHeadlessService]; silent && m.Type == mcsv1beta1.ClusterSetIP {
				x.Silent = true
			}
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
		for _, n := range byType { // a pod of both families is in a slice of each
			x.Ready, x.NotReady = max(x.Ready, n.ready), max(x.NotReady, n.notReady)
		}
		r.Exporters = append(r.Exporters, x)
	}
	r.chosen(exports[0].Preference)
}

// chosen marks this cluster's share where the VIP sends traffic to it alone.
func (r *Report) chosen(p hubv1alpha1.Preference) {
	if slices.ContainsFunc(r.Exporters, func(x Exporter) bool { return x.Silent }) {
		for i := range r.Exporters {
			if x := &r.Exporters[i]; x.Here && !x.Silent {
				x.Preferred = string(p)
			}
		}
	}
}

// families are in effect here: the import's, which a cluster may narrow to its own, or what the exports have in common.
func (f *Facts) families(m *conflict.Merged) []corev1.IPFamily {
	if f.Import != nil && len(f.Import.Spec.IPFamilies) > 0 {
		return f.Import.Spec.IPFamilies
	}
	return m.Families
}

// says is the message of a condition of a cluster's record where it has this status, else "".
func (f *Facts) says(cluster, condition, status string) string {
	for i := range f.Records {
		if f.Records[i].Spec.ClusterID != cluster {
			continue
		}
		for _, c := range f.Records[i].Status.Conditions {
			if c.Type == condition && string(c.Status) == status {
				return c.Message
			}
		}
	}
	return ""
}

// unreached are the addresses (votes.All for all) of a cluster's endpoints that too few members reach.
func (f *Facts) unreached(cluster string) (addresses []string) {
	for i := range f.Records {
		if f.Records[i].Spec.ClusterID == cluster {
			addresses = f.Records[i].Status.Withheld
		}
	}
	return addresses
}

// dead says since when a cluster counts as dead here, and what becomes of its endpoints; "" while it lives.
func (f *Facts) dead(cluster string) string {
	for i := range f.Leases {
		lease := &f.Leases[i]
		v := liveness.StateOf(lease)
		if lease.Labels[liveness.LabelSource] != cluster || !v.Expired {
			continue
		}
		said := "its endpoints here: onExpiry " + string(v.OnExpiry)
		if v.KeepLast {
			said += ", but for those of ports that nobody else serves (keepLast)"
		}
		if back := liveness.RenewingSince(lease); !back.IsZero() {
			said = fmt.Sprintf("it died again and again, has been renewing its Lease on the hub again since %s, and is let back in within %v of that; ",
				back.UTC().Format(time.RFC3339), liveness.MaxDamping) + said
		} else if seen := lease.Spec.RenewTime; seen != nil {
			said = fmt.Sprintf("it has not renewed its Lease on the hub since %s; ", seen.UTC().Format(time.RFC3339)) + said
		}
		return said
	}
	return ""
}

// isReady is N16.
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
