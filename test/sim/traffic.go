package sim

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
	"github.com/clusterset-dns/clusterset-dns/test/model/resolution"
	"github.com/clusterset-dns/clusterset-dns/test/sim/api"
)

// backend is what clients of a VIP reach: a port in a family.
type backend struct {
	family   discoveryv1.AddressType
	protocol corev1.Protocol
	number   int32
}

// flow is what a pass of serviceimport knows of ready endpoints when it begins, and which of them are without traffic
// before its next write. No write of its own may make that more (C9): additions come first, removals last.
type flow struct {
	name   types.NamespacedName
	known  map[backend]bool
	before []backend
	wrote  []*discoveryv1.EndpointSlice
}

// watchTraffic looks at the writes of one pass; what it returns ends that.
func (a *agent) watchTraffic(l *loop, req reconcile.Request) (end func()) {
	outer := a.flow
	a.flow = nil
	if l.Name == "serviceimport" {
		a.flow = &flow{name: req.NamespacedName, known: a.known(req.NamespacedName)}
	}
	return func() { a.flow = outer }
}

// known are the backends with a ready endpoint in what the agent's caches show of a name, as it is resolved by the
// text.
func (a *agent) known(n types.NamespacedName) map[backend]bool {
	t := truth{name: n, own: placeOf(a.id)}
	copies := a.copiesOf(n)
	for _, cluster := range slices.Sorted(maps.Keys(copies)) {
		if copies[cluster].Spec.Withdrawn {
			continue
		}
		if e := exportOfRecord(copies[cluster]); resolution.Imports(e, t.own) {
			t.exports = append(t.exports, resolution.Aged(e, copies[cluster]))
		}
	}
	t.merged, _ = resolution.Resolve(t.exports)
	out := map[backend]bool{}
	if copies[a.id] == nil && slices.ContainsFunc(a.local.All(api.ServiceExport), func(o client.Object) bool {
		return client.ObjectKeyFromObject(o) == n
	}) {
		return out // its own copy is lost, and its part of the import stands in for it
	}
	if t.merged.Type != mcsv1beta1.ClusterSetIP {
		return out
	}
	seen := map[string]word{} // by cluster: the latest that an imported slice was made by
	for _, o := range a.local.All(api.EndpointSlice) {
		s := o.(*discoveryv1.EndpointSlice)
		if own := kube.SourceOf(s); own == n {
			if copied := copies[a.id]; copied != nil {
				src := source{cluster: a.id, slice: s, keys: map[string]clusterset.PortKey{}}
				for _, p := range s.Ports {
					for _, q := range copied.Spec.Ports {
						if q.Name == *p.Name && q.Protocol == *p.Protocol {
							src.keys[q.Name] = clusterset.PortKey{Protocol: q.Protocol, Number: q.Port}
						}
					}
				}
				t.count(out, src)
			}
		}
		if cluster := s.Labels[mcsv1beta1.LabelSourceCluster]; kube.ImportOf(s) == n &&
			seen[cluster].before(wordOf(s)) {
			seen[cluster] = wordOf(s)
		}
	}
	if a.hub == nil {
		return out
	}
	for _, o := range a.hub.All(api.ServiceExportRecord) {
		rec := o.(*hubv1alpha1.ServiceExportRecord)
		cluster := rec.Spec.ClusterID
		is := wordOfRecord(rec)
		if nameOf(rec) != n || cluster == a.id || is.before(seen[cluster]) || is.before(a.heard[rec.Name]) ||
			copies[cluster] == nil || is.before(word{revision: copies[cluster].Spec.Revision}) || rec.Spec.Pages > 0 {
			continue
		}
		if _, err := clusterset.ParseExport(rec); err != nil {
			continue
		}
		for i := range rec.Spec.Endpoints {
			if !nonsense(&rec.Spec.Endpoints[i]) {
				t.count(out, sourceOf(cluster, &rec.Spec.Endpoints[i]))
			}
		}
	}
	return out
}

// copiesOf are the copies of a name's records as a pass has them that begins now: it follows those of the hub.
func (a *agent) copiesOf(n types.NamespacedName) map[string]*hubv1alpha1.ServiceExportRecord {
	out := map[string]*hubv1alpha1.ServiceExportRecord{}
	for _, o := range a.local.All(api.ServiceExportRecord) {
		if rec := o.(*hubv1alpha1.ServiceExportRecord); nameOf(rec) == n {
			out[rec.Spec.ClusterID] = rec
		}
	}
	if a.hub == nil {
		return out
	}
	for _, o := range a.hub.All(api.ServiceExportRecord) {
		shown := o.(*hubv1alpha1.ServiceExportRecord)
		cluster := shown.Spec.ClusterID
		copied := out[cluster]
		older := copied != nil && shown.Spec.Revision < copied.Spec.Revision &&
			!shown.CreationTimestamp.After(resolution.Stated(copied, "created"))
		if nameOf(shown) != n || cluster == a.id || older || copied == nil && shown.Spec.Withdrawn {
			continue
		}
		if _, err := clusterset.ParseExport(shown); err != nil && !shown.Spec.Withdrawn {
			continue
		}
		followed := &hubv1alpha1.ServiceExportRecord{}
		if copied != nil {
			followed = copied.DeepCopy()
		}
		clusterset.SetPublished(followed, shown, time.Time{})
		followed.Name, followed.Spec = shown.Name, shown.Spec
		out[cluster] = followed
	}
	return out
}

// word is when an owner said something: in which of the records that the hub had of one name, one after the other, and
// which revision.
type word struct{ created, revision int64 }

func (w word) before(other word) bool {
	return w.created <= other.created && w.revision < other.revision
}

func wordOfRecord(o client.Object) word {
	created := o.GetCreationTimestamp()
	return word{created.Unix(), originOf(o).Revision}
}

// hears notes the last word on a record, also one that withdraws it: a hub that was restored from a backup shows
// earlier ones again.
func (a *agent) hears(o client.Object) {
	switch o.(type) {
	case *hubv1alpha1.ServiceExportRecord, *hubv1alpha1.EndpointPage:
		if !wordOfRecord(o).before(a.heard[o.GetName()]) {
			a.heard[o.GetName()] = wordOfRecord(o)
		}
	}
}

// wordOf is the one that an imported slice was made by; the first ever where a user has removed what tells.
func wordOf(s *discoveryv1.EndpointSlice) (w word) {
	if _, err := fmt.Sscanf(s.Annotations["clusterset-dns.io/revision"], "%d %d", &w.created, &w.revision); err != nil {
		return word{}
	}
	return w
}

// nonsense returns whether a group is of the liar's making, and not imported.
func nonsense(group *hubv1alpha1.EndpointGroup) bool {
	used := map[clusterset.PortKey]bool{}
	for _, p := range group.Ports {
		key := clusterset.PortKey{Protocol: p.Protocol, Number: p.Port}
		if used[key] {
			return true
		}
		used[key] = true
	}
	return false
}

// count adds the backends that a source has a ready endpoint for, of the families that the exporters have in common: a
// VIP has no other, though a user may add slices of them.
func (t *truth) count(out map[backend]bool, src source) {
	families := t.merged.Families
	if len(families) > 0 && !slices.Contains(families, corev1.IPFamily(src.slice.AddressType)) {
		return
	}
	serves := func(e discoveryv1.Endpoint) bool { return ready(e) && claimable(e.Addresses[0]) }
	if !resolution.InSomeTier(&t.merged, t.place(src.cluster), t.own) ||
		!slices.ContainsFunc(src.slice.Endpoints, serves) {
		return
	}
	for _, p := range src.slice.Ports {
		name, ok := t.nameOf(src, *p.Name)
		i := slices.IndexFunc(t.merged.Ports, func(u clusterset.Port) bool { return u.Name == name })
		if ok && i >= 0 {
			out[backend{src.slice.AddressType, t.merged.Ports[i].Protocol, t.merged.Ports[i].Number}] = true
		}
	}
}

func ready(e discoveryv1.Endpoint) bool { return e.Conditions.Ready == nil || *e.Conditions.Ready }

// without are the backends that the derived Service offers and the agent knows an endpoint for, while kube-proxy finds
// none.
func (a *agent) without(f *flow) []backend {
	svc := get[*corev1.Service](
		a.member,
		api.Service,
		types.NamespacedName{Namespace: f.name.Namespace, Name: derivedName(f.name)},
	)
	if svc == nil {
		return nil
	}
	var out []backend
	for _, family := range svc.Spec.IPFamilies {
		for _, p := range svc.Spec.Ports {
			b := backend{discoveryv1.AddressType(family), p.Protocol, p.Port}
			if f.known[b] && !reached(all[*discoveryv1.EndpointSlice](a.server, api.EndpointSlice), svc, p, b) {
				out = append(out, b)
			}
		}
	}
	return out
}

// reached tells whether kube-proxy finds a ready endpoint for a Service's port: it joins by the port's name.
func reached(among []*discoveryv1.EndpointSlice, svc *corev1.Service, p corev1.ServicePort, b backend) bool {
	for _, s := range among {
		_, headless := s.Labels[corev1.IsHeadlessService]
		if s.Namespace != svc.Namespace || s.Labels[discoveryv1.LabelServiceName] != svc.Name || headless ||
			s.AddressType != b.family {
			continue
		}
		joins := func(q discoveryv1.EndpointPort) bool { return *q.Name == p.Name && *q.Protocol == p.Protocol }
		if slices.ContainsFunc(s.Ports, joins) && slices.ContainsFunc(s.Endpoints, ready) {
			return true
		}
	}
	return false
}

// aboutToWrite notes how traffic flows before a write.
func (a *agent) aboutToWrite() {
	a.writing = a
	if a.flow != nil {
		a.flow.before = a.without(a.flow)
	}
}

// wrote compares.
func (w *World) wrote(c *api.Write) {
	a := w.writing
	if a == nil || a.flow == nil || c.User != api.Agent ||
		a.namespace(c.Key.Namespace) == nil { // it takes no new slices
		return
	}
	if s, ok := c.New.(*discoveryv1.EndpointSlice); ok {
		a.flow.wrote = append(a.flow.wrote, s)
	}
	for _, b := range a.without(a.flow) {
		if svc, ok := c.New.(*corev1.Service); ok && a.believes(svc, b) {
			continue // somebody else has just taken the endpoints away, whose pass comes next
		}
		if !slices.Contains(a.flow.before, b) {
			w.fail(
				"C9: %s %ss %s, after which %s/%d (%s) of live import %s in %s has no endpoint, though one is known and ready",
				a.name,
				c.Verb(),
				c.Key,
				b.protocol,
				b.number,
				b.family,
				a.flow.name,
				a.id,
			)
		}
	}
}

// believes reports whether the agent's cache, or what this pass has written, has endpoints for a backend of its derived
// Service.
func (a *agent) believes(svc *corev1.Service, b backend) bool {
	cached := slices.Clone(a.flow.wrote)
	for _, o := range a.local.All(api.EndpointSlice) {
		cached = append(cached, o.(*discoveryv1.EndpointSlice))
	}
	return slices.ContainsFunc(svc.Spec.Ports, func(p corev1.ServicePort) bool {
		return p.Protocol == b.protocol && p.Port == b.number && reached(cached, svc, p, b)
	})
}
