// Package explain shows what one name of clusterset.local answers in a cluster, and why. It reads nothing itself: it
// makes a Report of what was read. Decisions come from the code of the agent (controllers/decide) and of CoreDNS
// (plugin/multicluster) itself.
package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/check"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/dns"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/snapshot"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
)

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
	NotRead         []snapshot.Part  `json:"notRead,omitempty"` // for lack of a right
	Failed          []string         `json:"failed,omitempty"`  // why other parts were not read
	Exporters       []Exporter       `json:"exporters,omitempty"`
	Properties      []check.Property `json:"properties,omitempty"`
	Withheld        []Withheld       `json:"withheld,omitempty"`
	External        []External       `json:"external,omitempty"` // for clients outside the clusters
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
	NotCounted  bool      `json:"notCounted,omitempty"` // not imported, or not readable: Ready and NotReady are unknown
	Here        bool      `json:"here,omitempty"`
	Held        string    `json:"held,omitempty"`        // why it counts although the hub does not show it
	Expired     string    `json:"expired,omitempty"`     // since when, and the state of its endpoints
	AgentSilent string    `json:"agentSilent,omitempty"` // since when its endpoints answer, and its agent does not
	Silent      string    `json:"silent,omitempty"`      // since when its agent does not; endpoints cannot be tried
	NoTraffic   bool      `json:"noTraffic,omitempty"`   // from the VIP, by preference
	Preferred   string    `json:"preferred,omitempty"`   // the preference by which it gets the VIP's traffic
}

// Withheld is what a cluster exports and the name does not answer. Exporter counts the endpoints that are not ready.
type Withheld struct {
	Cluster string `json:"cluster"`
	What    string `json:"what"`
	Why     string `json:"why"`
}

// ParseName accepts web.shop, web.shop.svc, web.shop.svc.clusterset.local with or without a final dot, names below the
// latter, or web with a namespace. A name of cluster.local means the same Service.
func ParseName(name, namespace string) (types.NamespacedName, error) {
	short := strings.ToLower(strings.TrimSuffix(name, "."))
	full := false
	for _, domain := range []string{dns.Zone, "cluster.local"} {
		var cut bool
		if short, cut = strings.CutSuffix(short, ".svc."+domain); cut {
			full = true
		}
	}
	labels := strings.Split(short, ".")
	switch n := len(labels); {
	case full && n > 2: // of an endpoint or a port
		labels = labels[n-2:]
	case !full && n > 2 && labels[n-1] == "svc": // web.svc is in a namespace of that name
		labels = labels[:n-1]
	case !full && n == 1 && namespace != "":
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
				"or SERVICE with -n NAMESPACE", name, dns.Zone)
	}
	return types.NamespacedName{Namespace: labels[1], Name: labels[0]}, nil
}

// Explain returns the report of the name that was asked for.
func Explain(w *check.World, results []check.Result) Report {
	n, m := w.Asked(), w.Member
	r := Report{
		TypeMeta: report.Kind("Explanation"), Name: n.String() + ".svc." + dns.Zone, Cluster: m.ID(),
		ClusterSet: m.Set(), Outcome: NameError, Findings: check.Findings(results), Failed: w.Failed(),
	}
	for p, lack := range w.Unread {
		if lack.Right != "" && !p.OnHub() {
			r.NotRead = append(r.NotRead, p)
		}
	}
	slices.Sort(r.NotRead)
	d := readDNS(w)
	switch {
	case d.notServed:
		r.Outcome = NotServed
	case !d.hidden && !w.HasRead(snapshot.Imports):
		r.Outcome = Unknown
	}
	if n.Import != nil {
		r.Type = string(n.Import.Spec.Type)
		r.Unsure = d.unsure
		switch {
		case d.hidden:
		case !w.HasRead(snapshot.Slices) && n.Headless():
			r.Outcome = Unknown
		default:
			r.answer(n, &d)
		}
	}
	if len(n.Exporters) > 0 {
		var exports []clusterset.Export
		for i := range n.Exporters {
			exports = append(exports, n.Exporters[i].Export)
		}
		r.exporters(n, m.ID())
		r.Properties = append(check.Properties(exports, &n.Merged), families(n, exports)...)
		r.Withheld = withheld(n)
		if n.Headless() && !d.hidden {
			r.Properties = append(r.Properties, d.prefer...)
		}
	}
	for _, x := range n.Invalid {
		r.Withheld = append(r.Withheld, Withheld{x.Cluster, "its export", "the record is not valid: " + x.Why})
	}
	for _, e := range n.Elsewhere {
		r.Withheld = append(r.Withheld, Withheld{e.Cluster, "its export", "it goes to " + e.ExportTo + " only"})
	}
	r.external(w)
	return r
}

func (r *Report) exporters(n *check.Name, own string) {
	standby := slices.ContainsFunc(n.Exporters, func(x check.Exporter) bool { return x.Standby })
	for i := range n.Exporters {
		e := &n.Exporters[i]
		x := Exporter{
			Cluster: e.Cluster, Since: e.Since, Type: string(e.Type), Here: e.Cluster == own, Expired: e.Expired,
			Held: e.Held, AgentSilent: e.AgentSilent, Silent: e.OnlyEvents, NotCounted: !e.Counted, Ready: e.Ready,
			NotReady: e.NotReady, NoTraffic: e.Standby,
		}
		for _, p := range e.Ports {
			x.Ports = append(x.Ports, check.PortText(p))
		}
		if standby && !e.Standby && e.Ready > 0 {
			x.Preferred = string(n.Merged.Preference)
		}
		r.Exporters = append(r.Exporters, x)
	}
}

// families returns the IP families in effect here: the import's, or what the exports have in common. A Headless name
// has those of its endpoints.
func families(n *check.Name, exports []clusterset.Export) []check.Property {
	if n.Merged.Type == mcsv1beta1.Headless {
		return nil
	}
	in := n.Merged.Families
	if n.Import != nil && len(n.Import.Spec.IPFamilies) > 0 {
		in = n.Import.Spec.IPFamilies
	}
	out := check.Property{Name: "ipFamilies", Value: check.FamiliesText(in), From: exports[0].Cluster}
	for i := range exports {
		out.Differs(exports[i].Cluster, check.FamiliesText(exports[i].Families))
	}
	if len(out.Others) > 0 {
		out.From = "what all have"
	}
	return []check.Property{out}
}

// withheld returns the ports and EndpointSlices that are not served.
func withheld(n *check.Name) (out []Withheld) {
	for i := range n.Exporters {
		e := &n.Exporters[i]
		for _, p := range e.Ports {
			if _, ok := n.Merged.Names[e.Cluster][p.Key()]; !ok {
				out = append(out, Withheld{e.Cluster, "port " + check.PortText(p),
					"an older export uses this port's name for another port: rename it in " + e.Cluster})
			}
		}
	}
	for _, s := range n.Slices {
		if c := s.Labels[mcsv1beta1.LabelSourceCluster]; clusterset.CheckID(c) != nil {
			out = append(out, Withheld{c, "EndpointSlice " + s.Name, "its label " + mcsv1beta1.LabelSourceCluster +
				" is no cluster ID, so DNS skips it; the agent did not create it"})
		}
	}
	return out
}
