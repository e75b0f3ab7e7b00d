package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/facts"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/snapshot"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/endpoints"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/liveness"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/reach"
)

// Name is one name of the clusterset, as the checks and the reports see it.
type Name struct {
	types.NamespacedName
	Import    *mcsv1beta1.ServiceImport          // nil if there is none
	Export    *mcsv1beta1.ServiceExport          // this cluster's own, or nil
	All       []clusterset.Export                // of all clusters, in order of precedence
	Exporters []Exporter                         // those whose export goes to this cluster, in order of precedence
	Elsewhere []clusterset.Export                // the others
	Invalid   []Invalid                          // exports that do not parse
	Merged    conflict.Merged                    // of Exporters
	Conflicts []conflict.Conflict                // between any of All that some cluster imports
	External  []string                           // clusters whose load balancers are for clients outside the clusters
	Slices    []*discoveryv1.EndpointSlice       // imported
	records   []*hubv1alpha1.ServiceExportRecord // this cluster's copies
}

// Exporter is a cluster that exports a name, with what this cluster sees of it.
type Exporter struct {
	clusterset.Export
	Since                   time.Time // by which it ranks (conflict.Order)
	snapshot.Count                    // of what is imported here, or else of the hub
	Counted                 bool      // else neither was read
	copied                  bool      // this cluster has its record
	Imported                bool      // some of its slices are here
	Standby                 bool      // its slices get no traffic from the VIP, by preference
	Lost                    bool      // this cluster lacks endpoints of it
	Held                    string    // why it counts although the hub does not show it
	Expired                 string    // since when, and what follows
	AgentSilent, OnlyEvents string    // since when only its endpoints answer here; since when its agent does not
}

// Invalid is an export that does not parse.
type Invalid struct{ Cluster, Why string }

// String returns the name as users write it.
func (n *Name) String() string { return n.Name + "." + n.Namespace }

// Imports reports whether this cluster imports the name: the import exists, and all that it needs is the agent's.
func (n *Name) Imports() bool {
	return n.Import != nil && !slices.ContainsFunc(n.records, func(r *hubv1alpha1.ServiceExportRecord) bool {
		return meta.IsStatusConditionFalse(r.Status.Conditions, hubv1alpha1.ConditionImported) && !r.Spec.Withdrawn
	})
}

// Headless reports whether the import, or else the oldest export, is Headless.
func (n *Name) Headless() bool {
	if n.Import != nil {
		return n.Import.Spec.Type == mcsv1beta1.Headless
	}
	return n.Merged.Type == mcsv1beta1.Headless
}

// idle returns the exporters without a ready endpoint, unless this cluster knows another reason than their Pods.
func (n *Name) idle() (out []string) {
	for i := range n.Exporters {
		if x := &n.Exporters[i]; x.Counted && x.Ready == 0 && x.Expired+x.Held == "" && !x.Lost {
			out = append(out, x.Cluster)
		}
	}
	return out
}

// served reports whether an exporter has a ready endpoint that clients can use, or whether that is not known.
func (n *Name) served() bool {
	return len(n.Exporters) == 0 || slices.ContainsFunc(n.Exporters, func(x Exporter) bool {
		return !x.Counted || x.Ready > 0 && n.takes(&x)
	})
}

// takes reports whether the VIP, if there is one, has a port and an IP family of an exporter.
func (n *Name) takes(x *Exporter) bool {
	port := func(p clusterset.Port) bool { _, is := n.Merged.Names[x.Cluster][p.Key()]; return is }
	family := func(f corev1.IPFamily) bool { return slices.Contains(n.Merged.Families, f) }
	return n.Merged.Type == mcsv1beta1.Headless ||
		slices.ContainsFunc(x.Ports, port) && slices.ContainsFunc(x.Families, family)
}

// namesOf merges what the snapshot has of each name, or of one.
func namesOf(w *World, only *types.NamespacedName) []*Name {
	all := map[types.NamespacedName]*Name{}
	get := func(namespace, name string) *Name {
		k := types.NamespacedName{Namespace: namespace, Name: name}
		if all[k] == nil {
			all[k] = &Name{NamespacedName: k}
		}
		return all[k]
	}
	if only != nil {
		get(only.Namespace, only.Name)
	}
	if m := w.Member; m != nil {
		for i := range m.Imports {
			get(m.Imports[i].Namespace, m.Imports[i].Name).Import = &m.Imports[i]
		}
		for i := range m.Exports {
			get(m.Exports[i].Namespace, m.Exports[i].Name).Export = &m.Exports[i]
		}
		for i := range m.Slices {
			s := &m.Slices[i]
			n := get(s.Namespace, s.Labels[mcsv1beta1.LabelServiceName])
			n.Slices = append(n.Slices, s)
		}
	}
	records, copies := recordsOf(w)
	for i := range records {
		rec := &records[i]
		s := &rec.Spec
		if s.Withdrawn {
			if i < copies && meta.IsStatusConditionFalse(
				rec.Status.Conditions, hubv1alpha1.ConditionEndpointsImported) { // the API server keeps its slices
				n := get(s.ServiceNamespace, s.ServiceName)
				n.records = append(n.records, rec)
			}
			continue
		}
		n := get(s.ServiceNamespace, s.ServiceName)
		e, err := clusterset.ParseExport(rec)
		if err != nil {
			n.Invalid = append(n.Invalid, Invalid{s.ClusterID, strings.ReplaceAll(err.Error(), "\n", "; ")})
			continue
		}
		if i >= copies {
			e.Published = rec.CreationTimestamp.Time
		} else {
			n.records = append(n.records, rec)
		}
		if s.External != nil {
			n.External = append(n.External, s.ClusterID)
		}
		n.All = append(n.All, e)
	}
	var onTheHub map[snapshot.Origin]snapshot.Count
	if w.Hub != nil && only == nil {
		onTheHub = w.Hub.Endpoints()
	}
	var out []*Name
	for k, n := range all {
		if only == nil || k == *only {
			w.exporters(n, onTheHub)
			out = append(out, n)
		}
	}
	slices.SortFunc(out, func(a, b *Name) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// recordsOf returns this cluster's copies first, and then what only the hub shows.
func recordsOf(w *World) (out []hubv1alpha1.ServiceExportRecord, copies int) {
	known := map[string]bool{}
	if w.Member != nil {
		out = slices.Clone(w.Member.Records)
		for i := range out {
			known[out[i].Name] = true
		}
	}
	copies = len(out)
	if w.Hub != nil && !w.wrongHub() && w.asked == nil { // explain shows what is here
		for i := range w.Hub.Records {
			if !known[w.Hub.Records[i].Name] {
				out = append(out, w.Hub.Records[i])
			}
		}
	}
	return out, copies
}

// exporters fills what follows from the exports of a name.
func (w *World) exporters(n *Name, onTheHub map[snapshot.Origin]snapshot.Count) {
	if len(n.All) == 0 {
		return
	}
	conflict.Order(n.All)
	slices.Sort(n.External)
	var mine []clusterset.Export
	for _, e := range n.All {
		if w.Member != nil && w.Member.ID() != "" && !e.GoesTo(w.Member.Place()) {
			n.Elsewhere = append(n.Elsewhere, e)
		} else {
			mine = append(mine, e)
		}
	}
	n.Conflicts = conflicts(n.All)
	if len(mine) == 0 {
		return
	}
	conflict.Order(mine) // without the others, fewer may be late
	n.Merged, _ = conflict.Merge(mine)
	late := conflict.Late(mine)
	for i := range mine {
		x := Exporter{Export: mine[i], Since: mine[i].Created}
		if late(&mine[i]) && mine[i].Published.Before(w.Now()) { // else it is not on the hub yet
			x.Since = mine[i].Published
		}
		for _, rec := range n.records {
			if rec.Spec.ClusterID == x.Cluster {
				x.copied = true
				if c := meta.FindStatusCondition(rec.Status.Conditions, hubv1alpha1.ConditionHeld); c != nil &&
					c.Status == metav1.ConditionTrue {
					x.Held = c.Message
				}
				x.Lost = meta.IsStatusConditionFalse(rec.Status.Conditions, hubv1alpha1.ConditionEndpointsImported)
			}
		}
		if lease := w.Source(x.Cluster); lease != nil {
			x.Expired = expired(lease)
			if s := reach.Read(lease); x.Expired == "" && s.State == reach.Serving {
				x.AgentSilent = s.Since.UTC().Format(time.RFC3339)
			} else if x.Expired == "" && s.State == reach.Silent {
				x.OnlyEvents = s.Since.UTC().Format(time.RFC3339)
			}
		}
		w.count(n, &x, onTheHub)
		n.Exporters = append(n.Exporters, x)
	}
}

// count counts an exporter's endpoints: those that are imported here, or else those on the hub.
func (w *World) count(n *Name, x *Exporter, onTheHub map[snapshot.Origin]snapshot.Count) {
	byType, traffic := map[discoveryv1.AddressType]snapshot.Count{}, false
	for _, s := range n.Slices {
		if s.Labels[mcsv1beta1.LabelSourceCluster] != x.Cluster {
			continue
		}
		x.Imported, traffic = true, traffic || !endpoints.Standby(s)
		c := byType[s.AddressType]
		for i := range s.Endpoints {
			if Ready(&s.Endpoints[i]) {
				c.Ready++
			} else {
				c.NotReady++
			}
		}
		byType[s.AddressType] = c
	}
	x.Standby = n.Merged.Type == mcsv1beta1.ClusterSetIP && x.Imported && !traffic
	if w.HasRead(snapshot.Slices) && n.Imports() && (x.copied || x.Imported) {
		x.Counted = true
		for _, c := range byType { // a dual-stack pod is in a slice of each family
			x.Ready, x.NotReady = max(x.Ready, c.Ready), max(x.NotReady, c.NotReady)
		}
	} else if (n.Import == nil || !x.copied) && onTheHub != nil {
		x.Count = onTheHub[snapshot.Origin{NamespacedName: n.NamespacedName, Cluster: x.Cluster}]
		x.Counted = w.Hub.Records != nil
	}
}

// Ready reports whether an endpoint is: unset means ready (KEP-1645, DNS specification).
func Ready(e *discoveryv1.Endpoint) bool { return e.Conditions.Ready == nil || *e.Conditions.Ready }

// Source returns this cluster's Lease for a source cluster, or nil.
func (w *World) Source(cluster string) *coordinationv1.Lease {
	if w.Member == nil {
		return nil
	}
	return facts.Find(w.Member.Leases, func(l *coordinationv1.Lease) bool {
		return l.Labels[liveness.LabelSource] == cluster
	})
}

// expired returns since when a source cluster has expired here, and what becomes of its endpoints; "" while it is live.
func expired(lease *coordinationv1.Lease) string {
	v := liveness.StateOf(lease)
	if !v.Expired {
		return ""
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
		return fmt.Sprintf("it expired repeatedly, renews its Lease on the hub again since %s, and counts as live at "+
			"most %v after that; %s", back.UTC().Format(time.RFC3339), liveness.MaxDamping, said)
	}
	if seen := lease.Spec.RenewTime; seen != nil {
		return fmt.Sprintf("it has not renewed its Lease on the hub since %s or earlier; %s",
			seen.UTC().Format(time.RFC3339), said)
	}
	return said
}

// conflicts returns those that the exporters are told of. Each is told of conflicts with what it may import.
func conflicts(exports []clusterset.Export) (out []conflict.Conflict) {
	for i := range exports {
		own := clusterset.Place{Cluster: exports[i].Cluster, Properties: exports[i].Properties}
		seen := slices.DeleteFunc(slices.Clone(exports), func(e clusterset.Export) bool { return !e.GoesTo(own) })
		if len(seen) == 0 {
			continue
		}
		_, found := conflict.Merge(seen)
		for _, c := range found {
			if !slices.Contains(out, c) {
				out = append(out, c)
			}
		}
		if len(seen) == len(exports) {
			break // those that see all see the same
		}
	}
	return out
}

// Property is something that clusters may disagree on, with the value in effect.
type Property struct {
	Name   string            `json:"name"`
	Value  string            `json:"value"`
	From   string            `json:"from"`
	Others map[string]string `json:"others,omitempty"` // other values, by cluster
	kind   string            // that kubectl edits for it, or ""
}

// String returns the value in effect, and the others with their clusters.
func (p *Property) String() string {
	return fmt.Sprintf("%s %s (%s) is in effect, %s", p.Name, cmp.Or(p.Value, "none"), p.From, p.Differing())
}

// Differing says which other values clusters have.
func (p *Property) Differing() string {
	var others []string
	for _, c := range slices.Sorted(maps.Keys(p.Others)) {
		others = append(others, c+" has "+cmp.Or(p.Others[c], "none"))
	}
	return strings.Join(others, ", ")
}

// properties are those whose value in the oldest export wins.
var properties = []struct {
	name string
	kind string // that kubectl edits for it, or ""
	of   func(e *clusterset.Export) string
}{
	{"type", "", func(e *clusterset.Export) string { return string(e.Type) }},
	{"sessionAffinity", "service", func(e *clusterset.Export) string { return string(e.SessionAffinity) }},
	{"sessionAffinityConfig", "service", func(e *clusterset.Export) string {
		if c := e.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil {
			return fmt.Sprintf("%ds", *c.ClientIP.TimeoutSeconds)
		}
		return ""
	}},
	{"internalTrafficPolicy", "service",
		func(e *clusterset.Export) string { return string(e.InternalTrafficPolicy) }},
	{"trafficDistribution", "service", func(e *clusterset.Export) string { return e.TrafficDistribution }},
	{"preference", "serviceexport", func(e *clusterset.Export) string {
		if e.Preference == hubv1alpha1.PreferNone {
			return ""
		}
		return string(e.Preference)
	}},
	{"preference-min-ready", "serviceexport", func(e *clusterset.Export) string { return string(e.MinReady) }},
	{"labels", "serviceexport", func(e *clusterset.Export) string { return pairs(e.Labels) }},
	{"annotations", "serviceexport", func(e *clusterset.Export) string { return pairs(e.Annotations) }},
}

// Properties returns those that have a value, or that differ.
func Properties(exports []clusterset.Export, m *conflict.Merged) (out []Property) {
	oldest := &exports[0]
	for _, r := range properties {
		p := Property{Name: r.name, Value: r.of(oldest), From: oldest.Cluster, kind: r.kind}
		for i := range exports[1:] {
			p.Differs(exports[i+1].Cluster, r.of(&exports[i+1]))
		}
		if p.Value != "" || len(p.Others) > 0 {
			out = append(out, p)
		}
	}
	for _, port := range m.Ports {
		p := Property{Name: "port", kind: "service"}
		for i := range exports {
			e := &exports[i]
			served := slices.IndexFunc(e.Ports, func(own clusterset.Port) bool {
				name, ok := m.Names[e.Cluster][own.Key()]
				return ok && name == port.Name
			})
			lost := slices.IndexFunc(e.Ports, func(own clusterset.Port) bool { return own.Name == port.Name })
			switch {
			case served < 0 && lost >= 0 && port.Name != "":
				p.Differs(e.Cluster, PortText(e.Ports[lost]))
			case served < 0:
				p.Differs(e.Cluster, "no such port")
			case p.From == "": // its own words: the merge names a port that has no name, as tcp-80
				p.From, p.Value = e.Cluster, PortText(e.Ports[served])
			default:
				p.Differs(e.Cluster, PortText(e.Ports[served]))
			}
		}
		out = append(out, p)
	}
	return out
}

// Differs adds the value that a cluster has, if it is another one.
func (p *Property) Differs(cluster, value string) {
	if value == p.Value {
		return
	}
	if p.Others == nil {
		p.Others = map[string]string{}
	}
	p.Others[cluster] = value
}

func pairs(m map[string]string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, k+"="+m[k])
	}
	return strings.Join(out, ",")
}

// PortText returns a port as users write it.
func PortText(p clusterset.Port) string {
	s := fmt.Sprintf("%d/%s", p.Number, p.Protocol)
	if p.Name != "" {
		s = p.Name + " " + s
	}
	if p.AppProtocol != "" {
		s += " (" + p.AppProtocol + ")"
	}
	return s
}

// FamiliesText returns IP families as users write them.
func FamiliesText(in []corev1.IPFamily) string {
	var out []string
	for _, f := range in {
		out = append(out, string(f))
	}
	return strings.Join(out, ",")
}
