// Package plan shows what a change of exports would change in every member. Package preview predicts; this package
// gathers the input of the prediction, and compares before and after.
package plan

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/snapshot"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conditions"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/endpoints"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/imports"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/liveness"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
	"github.com/clusterset-dns/clusterset-dns/controllers/preview"
	"github.com/clusterset-dns/clusterset-dns/controllers/serviceexport"
)

// Report is what would change. The findings are about the exports.
type Report struct {
	metav1.TypeMeta `json:",inline"`
	Cluster         string           `json:"cluster"`   // in which the exports change
	Members         int              `json:"members"`   // of the ClusterSet
	TakesAway       bool             `json:"takesAway"` // something from a member
	Changes         []Change         `json:"changes"`   // first what takes away
	Findings        []report.Finding `json:"findings"`
}

// Change is one thing that changes in members.
type Change struct {
	Name      string   `json:"name"`
	What      string   `json:"what"`
	Was       string   `json:"was,omitempty"` // "" if it is new
	Is        string   `json:"is,omitempty"`  // "" if it is removed
	TakesAway bool     `json:"takesAway,omitempty"`
	Members   []string `json:"members"`
}

// Applied has the objects of one name that are applied. One that is nil stays as the cluster has it.
type Applied struct {
	Export  *mcsv1beta1.ServiceExport
	Service *corev1.Service
}

// Planner predicts changes from a snapshot.
type Planner struct {
	*snapshot.Snapshot
	Live    client.Reader // of the snapshot's member; nil for an archive
	Cluster string        // the cluster ID; exports change there
	Delete  bool          // the exports are deleted
}

// Plan returns what changes if all is applied.
func (p *Planner) Plan(ctx context.Context, all map[types.NamespacedName]Applied) (Report, error) {
	r := Report{TypeMeta: report.Kind("Plan"), Cluster: p.Cluster, Members: len(p.Hub.Profiles), Changes: []Change{},
		Findings: []report.Finding{}}
	byName := func(a, b types.NamespacedName) int { return cmp.Compare(a.String(), b.String()) }
	for _, n := range slices.SortedFunc(maps.Keys(all), byName) {
		s, name := p.state(n), n.Name+"."+n.Namespace
		given, err := p.given(ctx, s, all[n])
		if err != nil {
			return r, err
		}
		if given == nil {
			continue
		}
		before := s.Exporters()
		after, valid := s.After(given)
		if without := conditions.LeftOut(&valid); without != "" {
			r.Findings = append(r.Findings, report.Warningf("", "%s would be exported without: %s", name, without))
		} else if valid.Status == metav1.ConditionFalse {
			r.Findings = append(r.Findings, report.Errorf("", "%s would not be exported: %s", name, valid.Message))
		}
		for i := range p.Hub.Profiles {
			at := p.place(p.Hub.Profiles[i].Name)
			for _, c := range compare(name, s.In(at, nil, before), s.In(at, nil, after)) {
				k := slices.IndexFunc(r.Changes, func(o Change) bool {
					c.Members = o.Members
					return reflect.DeepEqual(o, c)
				})
				if k < 0 {
					c.Members, k = nil, len(r.Changes)
					r.Changes, r.TakesAway = append(r.Changes, c), r.TakesAway || c.TakesAway
				}
				r.Changes[k].Members = append(r.Changes[k].Members, at.Cluster)
			}
		}
	}
	key := func(c Change) string { return fmt.Sprint(!c.TakesAway, c.Name, " ", c.What) }
	slices.SortStableFunc(r.Changes, func(a, b Change) int { return cmp.Compare(key(a), key(b)) })
	return r, nil
}

// place returns a member as exports select it.
func (p *Planner) place(id string) clusterset.Place {
	out := clusterset.Place{Cluster: id, Properties: map[string]string{}}
	if profile := p.Hub.Profile(id); profile != nil {
		for _, property := range profile.Status.Properties {
			out.Properties[property.Name] = property.Value
		}
	}
	return out
}

func (p *Planner) rules() (out hubv1alpha1.ClusterSetSpec) {
	if set := p.Hub.Set(); set != nil {
		out = set.Spec
	}
	return out
}

func (p *Planner) state(n types.NamespacedName) *preview.State {
	s := &preview.State{NamespacedName: n, Now: p.Hub.Now, Expired: map[string]liveness.State{}}
	s.Records, s.Pages = map[string]*hubv1alpha1.ServiceExportRecord{}, map[string]*hubv1alpha1.EndpointPage{}
	for i := range p.Hub.Records {
		if rec := &p.Hub.Records[i]; kube.Exported(rec) == n {
			s.Records[rec.Spec.ClusterID] = rec
		}
	}
	for i := range p.Hub.Pages {
		s.Pages[p.Hub.Pages[i].Name] = &p.Hub.Pages[i]
	}
	for i := range p.Hub.Profiles {
		if id := p.Hub.Profiles[i].Name; !p.Hub.Live(id) {
			s.Expired[id] = liveness.State{Expired: true, OnExpiry: p.rules().Lease.OnExpiry}
		}
	}
	return s
}

// given returns the input of the agent's decision in p.Cluster once this is applied; nil for a Service without export.
func (p *Planner) given(ctx context.Context, s *preview.State, applied Applied) (*serviceexport.Given, error) {
	g := &serviceexport.Given{Cluster: p.place(p.Cluster), Shown: s.Records[p.Cluster], Rules: p.rules()}
	since, families := metav1.Time{Time: p.Hub.Now}, []corev1.IPFamily{corev1.IPv4Protocol}
	if g.Service, g.Slices = s.Service(p.Cluster); g.Service != nil {
		since, families = *g.Shown.Spec.ExportedAt, g.Service.Spec.IPFamilies
	}
	m := p.Member
	here := m != nil && m.ID() == p.Cluster
	live := here && p.Live != nil
	if here {
		if lack, unread := p.Unread[snapshot.Exports]; unread {
			return nil, report.Fail("if you lack a right, run the command as a cluster admin",
				"reading the ServiceExports of cluster %s failed: %s", p.Cluster, lack.Why)
		}
		since.Time = m.Now
		for i := range m.Exports {
			if e := &m.Exports[i]; e.Namespace == s.Namespace && e.Name == s.Name {
				g.Export, since = e.DeepCopy(), e.CreationTimestamp
			}
		}
		for i := range m.CIDRs {
			if m.CIDRs[i].Name != "kubernetes" { // every API server makes this one
				continue
			}
			families = nil
			for _, text := range m.CIDRs[i].Spec.CIDRs {
				if prefix, err := netip.ParsePrefix(text); err == nil {
					families = append(families, ipam.Family(prefix.Addr()))
				}
			}
		}
	}
	if live {
		if err := read(ctx, p.Live, s.NamespacedName, g); err != nil {
			return nil, err
		}
	}
	if p.Delete && applied == (Applied{}) && g.Export == nil && g.Shown == nil {
		return nil, report.Fail("kubectl -n "+s.Namespace+" get serviceexports",
			"there is no ServiceExport %s in cluster %s", s, p.Cluster)
	}
	switch isExported := g.Export != nil || !here && g.Service != nil; {
	case applied.Export != nil:
		g.Export = applied.Export
	case applied.Service != nil && !isExported:
		return nil, nil
	case g.Export == nil && here:
		g.Export = &mcsv1beta1.ServiceExport{} // as kubectl clusterset export creates
	}
	if p.Delete {
		g.Export = nil
		return g, nil
	}
	if g.Export == nil || g.Service == nil && applied.Service == nil && !live {
		return nil, report.Fail("kubectl clusterset plan -f FILE; or name that cluster with --context",
			"cluster %s was not read, so a file must have its ServiceExport and Service %s", p.Cluster, s)
	}
	g.Export.Namespace, g.Export.Name, g.Export.CreationTimestamp = s.Namespace, s.Name, since.Rfc3339Copy()
	if applied.Service != nil {
		applied.Service.Namespace, applied.Service.Name = s.Namespace, s.Name
		g.Service, g.Slices = preview.Apply(applied.Service, g.Service, g.Slices, families)
	}
	return g, nil
}

// read reads the Service and its slices.
func read(ctx context.Context, from client.Reader, n types.NamespacedName, g *serviceexport.Given) (err error) {
	if g.Service, err = kube.Get[*corev1.Service](ctx, from, n); err != nil {
		return err
	}
	var list discoveryv1.EndpointSliceList
	err = from.List(ctx, &list, client.InNamespace(n.Namespace),
		client.MatchingLabels{discoveryv1.LabelServiceName: n.Name})
	g.Slices = nil
	for i := range list.Items {
		if kube.SourceOf(&list.Items[i]) == n {
			g.Slices = append(g.Slices, &list.Items[i])
		}
	}
	return err
}

const (
	yes     = "yes"                    // the value of what has no value but is there
	outside = "external addresses of " // and a cluster ID: for clients outside the clusters
)

// describe returns what a member has of a name, by part, and "<part> <address>" for each address that gets traffic.
func describe(imp *preview.Import) (out map[string]string, addresses map[string]bool) {
	out, addresses = map[string]string{}, map[string]bool{}
	if imp == nil {
		return out, addresses
	}
	var fields map[string]json.RawMessage
	text, _ := json.Marshal(imp.Spec)
	_ = json.Unmarshal(text, &fields) // it is JSON
	delete(fields, "ports")
	delete(fields, "ipFamilies")
	for name, value := range fields {
		if text := strings.Trim(string(value), `"`); text != "None" && text != "Cluster" { // the defaults
			out[name] = text
		}
	}
	out["name"], out["order"] = yes, strings.Join(imp.Order, ", ")
	for kind, all := range map[string]map[string]string{"label ": imp.Labels, "annotation ": imp.Annotations} {
		for key, value := range all {
			if key != derived.LabelManagedBy && key != imports.AnnotationDerived && key != imports.AnnotationExported {
				out[kind+key] = value
			}
		}
	}
	for _, c := range imp.Conflicts {
		out[string(c.Reason)] = c.Message
	}
	for cluster, x := range imp.External {
		what, all := outside+cluster, slices.Concat(x.IPs, x.Hostnames)
		out[what] = fmt.Sprintf("%s, weight %d", strings.Join(all, " "), *x.Weight)
		for _, address := range all {
			if *x.Weight > 0 {
				addresses[what+" "+address] = true
			}
		}
	}
	ports := map[string]string{}
	for _, p := range imp.Spec.Ports {
		ports[p.Name] = strings.TrimSpace(fmt.Sprintf("%s %d/%s", p.Name, p.Port, p.Protocol))
		out["port "+ports[p.Name]] = ptr.Deref(p.AppProtocol, yes)
		for _, f := range imp.Spec.IPFamilies {
			if imp.Spec.Type == mcsv1beta1.ClusterSetIP {
				out["VIP "+string(f)] = yes
			}
		}
	}
	if len(ports) == 0 { // a Headless Service needs none
		ports[""] = "the name"
	}
	for port, text := range ports {
		to, ready, all := "traffic to "+text, map[string]int{}, []string{}
		for _, s := range imp.Slices {
			from := s.Labels[mcsv1beta1.LabelSourceCluster]
			i := slices.IndexFunc(s.Ports, func(p discoveryv1.EndpointPort) bool { return *p.Name == port })
			if i >= 0 && s.Ports[i].Port != nil {
				from += fmt.Sprintf(" at %d", *s.Ports[i].Port)
			}
			for _, e := range s.Endpoints {
				if *e.Conditions.Ready && !endpoints.Standby(s) && (i >= 0 || len(imp.Spec.Ports) == 0) {
					addresses[to+" "+e.Addresses[0]] = true
					ready[from]++
				}
			}
		}
		for _, from := range slices.Sorted(maps.Keys(ready)) {
			all = append(all, fmt.Sprintf("%d of %s", ready[from], from))
		}
		out[to] = strings.Join(all, ", ")
	}
	return out, addresses
}

// compare returns what changes in a member.
func compare(name string, before, after *preview.Import) (out []Change) {
	was, had := describe(before)
	is, has := describe(after)
	if before != nil && after == nil {
		return []Change{{Name: name, What: "name", Was: yes, TakesAway: true}}
	}
	all := maps.Clone(was)
	maps.Copy(all, is)
	for _, what := range slices.Sorted(maps.Keys(all)) {
		c := Change{Name: name, What: what, Was: was[what], Is: is[what]}
		c.TakesAway = what == "type" && before != nil || c.Is == "" && slices.ContainsFunc(
			[]string{"port ", "VIP ", outside}, func(kind string) bool { return strings.HasPrefix(what, kind) })
		for address := range had {
			c.TakesAway = c.TakesAway || strings.HasPrefix(address, what+" ") && !has[address]
		}
		if c.Was != c.Is {
			out = append(out, c)
		}
	}
	return out
}

// Print writes the report for people.
func Print(out io.Writer, r *Report) {
	summary := map[bool]string{true: ", and something is taken away (-)"}[r.TakesAway]
	fmt.Fprintf(out, "Applied in cluster %s: %s%s\n", r.Cluster, report.Number(len(r.Changes), "change"), summary)
	report.Print(out, r.Findings)
	var rows [][]string
	for _, c := range r.Changes {
		mark, value := "~", strings.TrimPrefix(c.Was+" → "+c.Is, " → ")
		in := strings.Join(c.Members[:min(len(c.Members), 4)], ", ")
		switch more := len(c.Members) - 4; {
		case len(c.Members) == r.Members:
			in = "every member"
		case more > 0:
			in += fmt.Sprintf(" and %d more", more)
		}
		switch {
		case c.TakesAway:
			mark = "-"
		case c.Was == "":
			mark = "+"
		}
		if c.Is == "" {
			c.What, value = c.What+" goes", c.Was
		}
		if value != yes {
			c.What += ": " + value
		}
		rows = append(rows, []string{mark, c.Name, in, c.What})
	}
	report.Table(out, "CHANGES", []string{"", "NAME", "IN", "WHAT"}, rows)
}
