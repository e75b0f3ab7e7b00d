package sim

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
	"github.com/clusterset-dns/clusterset-dns/test/sim/api"
)

// Stats are for the reader of a run.
type Stats struct {
	Steps, Settled int
	Faults         int           // that happened in trouble; those at writes are not counted
	Slowest        time.Duration // to settle, simulated
	Events         map[string]int
}

func (s *Stats) add(o Stats) {
	s.Steps, s.Settled, s.Faults = s.Steps+o.Steps, s.Settled+o.Settled, s.Faults+o.Faults
	s.Slowest = max(s.Slowest, o.Slowest)
	for k, n := range o.Events {
		s.Events[k] += n
	}
}

type history struct{ Stats }

func newHistory() history { return history{Stats{Events: map[string]int{}}} }

// place is a name in a member.
type place struct {
	member string
	name   types.NamespacedName
}

// guard is what must hold at every write.
type guard struct {
	vips     map[types.UID]map[corev1.IPFamily]string // of each import, since it was made
	forgiven map[place]bool                           // where users have destroyed what a VIP is kept by
	deleted  map[place]bool                           // where an admin deleted the derived Service
	last     map[place]time.Time                      // when the import was last there
	life     map[place]types.UID                      // of the import that is there, or was last
	excused  map[address]bool                         // that an import had and may lose
	effect   map[place]time.Time                      // when a record of a name was last known to be in effect there
}

func newGuard() guard {
	return guard{
		map[types.UID]map[corev1.IPFamily]string{},
		map[place]bool{},
		map[place]bool{},
		map[place]time.Time{},
		map[place]types.UID{},
		map[address]bool{},
		map[place]time.Time{},
	}
}

func (g *guard) forgive(m *member, n types.NamespacedName)      { g.forgiven[place{m.id, n}] = true }
func (g *guard) adminDeleted(m *member, n types.NamespacedName) { g.deleted[place{m.id, n}] = true }

// settled: what users destroyed has been made again, and counts from now on.
func (g *guard) settled() {
	for p := range g.forgiven {
		delete(g.vips, g.life[p])
	}
	clear(g.forgiven)
	clear(g.deleted)
}

// watch looks at one change; m is nil for the hub's.
func (w *World) watch(m *member, c *api.Write) {
	if m == nil {
		w.watchHub(c)
		return
	}
	if imp, ok := c.Old.(*mcsv1beta1.ServiceImport); ok {
		w.guard.last[place{m.id, client.ObjectKeyFromObject(imp)}] = w.now
	}
	if rec, ok := c.Old.(*hubv1alpha1.ServiceExportRecord); ok && !rec.Spec.Withdrawn {
		w.guard.effect[place{m.id, nameOf(rec)}] = w.now
	}
	w.watchRanges(m, c)
	if c.User != api.Agent {
		return
	}
	w.watchOwnership(m, c)
	w.watchAddresses(m, c)
	w.watchImports(m, c)
	w.watchFrozen(m, c)
	w.watchReach(m, c)
	w.watchVIP(m, c)
}

// watchHub: a record of what nobody touched is not withdrawn, and keeps its pages, whatever the hub has been through.
func (w *World) watchHub(c *api.Write) {
	id, member := strings.CutPrefix(c.User, api.Member)
	if !member || id == w.liarID() || c.Old == nil ||
		c.Key.Kind != api.ServiceExportRecord && c.Key.Kind != api.EndpointPage ||
		!w.frozen[nameOf(c.Old)] {
		return
	}
	if page, ok := c.Old.(*hubv1alpha1.EndpointPage); ok {
		if c.New == nil && w.isStated(page) {
			w.fail("%s takes %s from the hub, though its record counts it and nobody touched it", c.User, c.Key)
		}
		return
	}
	if withdrawn(c.Old) || c.New != nil && !withdrawn(c.New) || c.New == nil && w.isEarlier(id, c.Old) {
		return
	}
	if t := w.truthOf(nameOf(c.Old)); t.records()[c.Key.Name] {
		w.fail("%s takes %s from the hub, though what it is of is there and nobody touched it", c.User, c.Key)
	}
}

// isStated returns whether a record of the hub counts a page.
func (w *World) isStated(page *hubv1alpha1.EndpointPage) bool {
	name := recordName(nameOf(page), page.Spec.ClusterID)
	at := types.NamespacedName{Namespace: hubNamespace, Name: name}
	rec, _ := w.hub.Get(api.Key{Kind: api.ServiceExportRecord, NamespacedName: at}).(*hubv1alpha1.ServiceExportRecord)
	return rec != nil && page.Spec.Number < rec.Spec.Pages
}

// isEarlier returns whether a record is of an earlier export than the member's own copy: a restored hub shows one that
// has ended, and the owner replaces it.
func (w *World) isEarlier(id string, o client.Object) bool {
	i := slices.IndexFunc(w.members, func(m *member) bool { return m.id == id })
	rec, ok := o.(*hubv1alpha1.ServiceExportRecord)
	if !ok || i < 0 {
		return false
	}
	at := types.NamespacedName{Namespace: kube.SystemNamespace, Name: rec.Name}
	own := get[*hubv1alpha1.ServiceExportRecord](w.members[i], api.ServiceExportRecord, at)
	return own != nil && rec.Spec.ExportedAt.Before(own.Spec.ExportedAt)
}

// withdrawn returns whether a record is a tombstone.
func withdrawn(o client.Object) bool {
	rec, ok := o.(*hubv1alpha1.ServiceExportRecord)
	return ok && rec.Spec.Withdrawn
}

// watchOwnership: an agent writes its own objects, and of a ServiceExport the status.
func (w *World) watchOwnership(m *member, c *api.Write) {
	ours := func(o client.Object, label string) bool { return o == nil || o.GetLabels()[label] == kube.Manager }
	given := func(o client.Object, label string) bool {
		return ours(o, label) || o.GetAnnotations()["clusterset-dns.io/adopt"] == "true"
	}
	ok := false
	switch c.Key.Kind {
	case api.ServiceExport:
		ok = c.Status
	case api.ServiceImport:
		ok = ours(c.New, derived.LabelManagedBy) && given(c.Old, derived.LabelManagedBy)
	case api.Service:
		ok = strings.HasPrefix(c.Key.Name, "derived-") && ours(c.New, derived.LabelManagedBy) &&
			given(c.Old, derived.LabelManagedBy)
	case api.EndpointSlice:
		ok = ours(c.New, discoveryv1.LabelManagedBy) && given(c.Old, discoveryv1.LabelManagedBy)
	case api.ServiceExportRecord, api.Lease:
		ok = c.Key.Namespace == kube.SystemNamespace
	case api.ServiceCIDR: // of others', only the finalizer
		ok = ours(c.New, derived.LabelManagedBy) && ours(c.Old, derived.LabelManagedBy) ||
			c.Old != nil && (c.New == nil || sameRange(c.Old, c.New))
	case api.IPAddress:
		ok = true // watchRanges
	case api.ClusterProperty: // of the clusterset's, only the mode
		ok = ours(c.New, derived.LabelManagedBy) || c.Key.Name == clusterset.PropertySet
	}
	if !ok {
		w.fail("the agent of %s %ss %s, which is not its own", m.id, c.Verb(), c.Key)
	}
}

// sameRange: a range that goes with its last finalizer, or whose finalizers alone change.
func sameRange(was, is client.Object) bool {
	a, b := was.(*networkingv1.ServiceCIDR), is.(*networkingv1.ServiceCIDR)
	return equality.Semantic.DeepEqual(a.Spec, b.Spec) && equality.Semantic.DeepEqual(a.Labels, b.Labels) &&
		equality.Semantic.DeepEqual(a.Annotations, b.Annotations)
}

// watchAddresses is S4, for every slice that is imported from somebody else.
func (w *World) watchAddresses(m *member, c *api.Write) {
	s, ok := c.New.(*discoveryv1.EndpointSlice)
	if !ok || s.Labels[mcsv1beta1.LabelSourceCluster] == m.id {
		return
	}
	for _, e := range s.Endpoints {
		if !claimable(e.Addresses[0]) {
			w.fail("%s imports %s, which no peer may claim (S4)", m.id, e.Addresses[0])
		}
	}
}

// watchImports is I2: an import is made where a record of its name is in effect, or was until lately, for who reads an
// old cache.
func (w *World) watchImports(m *member, c *api.Write) {
	imp, ok := c.New.(*mcsv1beta1.ServiceImport)
	if !ok || c.Old != nil {
		return
	}
	n := client.ObjectKeyFromObject(imp)
	for _, rec := range all[*hubv1alpha1.ServiceExportRecord](m.server, api.ServiceExportRecord) {
		if nameOf(rec) == n && !rec.Spec.Withdrawn {
			return
		}
	}
	if last, ok := w.guard.effect[place{m.id, n}]; !ok || w.now.Sub(last) > 15*time.Minute {
		w.fail("I2: the agent of %s makes an import %s, of which no record is in effect there", m.id, n)
	}
}

// importOf is the name that a member's object belongs to.
func importOf(c *api.Write) (n types.NamespacedName, ok bool) {
	o := c.New
	if o == nil {
		o = c.Old
	}
	n.Namespace = o.GetNamespace()
	switch o := o.(type) {
	case *mcsv1beta1.ServiceImport:
		return client.ObjectKeyFromObject(o), true
	case *discoveryv1.EndpointSlice:
		n.Name = o.Labels[mcsv1beta1.LabelServiceName]
		return n, n.Name != ""
	case *hubv1alpha1.ServiceExportRecord:
		return nameOf(o), true
	case *corev1.Service:
		for _, known := range names {
			if known.Namespace == o.Namespace && derivedName(known) == o.Name {
				return known, true
			}
		}
	}
	return n, false
}

// watchFrozen: what nobody touches does not change, whatever fails. Absence is not deletion.
func (w *World) watchFrozen(m *member, c *api.Write) {
	n, ok := importOf(c)
	if !ok || !w.frozen[n] {
		return
	}
	if c.Key.Kind == api.EndpointSlice {
		if was, is := w.backends(m, c, n, c.Old), w.backends(m, c, n, c.New); !maps.Equal(was, is) {
			w.fail("nobody touches %s, and the agent of %s %ss %s:\n  all endpoints were %s\n  and are %s",
				n, m.id, c.Verb(), c.Key, show(slices.Sorted(maps.Keys(was))), show(slices.Sorted(maps.Keys(is))))
		}
		return
	}
	if c.Old == nil || c.New == nil {
		imp := get[*mcsv1beta1.ServiceImport](m, api.ServiceImport, n)
		if c.Key.Kind == api.Service && c.New == nil && (imp == nil || !kube.Owned(imp) && !w.exportedTo(m, n)) {
			return // a VIP that is not needed any more
		}
		if rec, ok := c.Old.(*hubv1alpha1.ServiceExportRecord); ok && rec.Spec.Withdrawn {
			return
		}
		if rec, ok := c.New.(*hubv1alpha1.ServiceExportRecord); ok && rec.Spec.Withdrawn {
			return
		}
		w.fail("nobody touches %s, and the agent of %s %ss %s", n, m.id, c.Verb(), c.Key)
	}
	if was, is := w.essence(c.Old), w.essence(c.New); !equality.Semantic.DeepEqual(was, is) {
		w.fail(
			"nobody touches %s, and the agent of %s %ss %s:\n  was %s\n  is  %s",
			n,
			m.id,
			c.Verb(),
			c.Key,
			show(was),
			show(is),
		)
	}
}

// backends are the endpoints of all imported slices of a name, with changed as the slice that c writes: which slice has an
// endpoint is nobody's concern.
func (w *World) backends(m *member, c *api.Write, n types.NamespacedName, changed client.Object) map[string]bool {
	out := map[string]bool{}
	add := func(s *discoveryv1.EndpointSlice) {
		for _, e := range s.Endpoints {
			out[show([]any{s.Labels, s.AddressType, s.Ports, e})] = true
		}
	}
	if s, ok := changed.(*discoveryv1.EndpointSlice); ok {
		add(s)
	}
	for _, s := range all[*discoveryv1.EndpointSlice](m.server, api.EndpointSlice) {
		if s.Name != c.Key.Name && s.Namespace == n.Namespace && s.Labels[mcsv1beta1.LabelServiceName] == n.Name {
			add(s)
		}
	}
	return out
}

// essence is what others go by, and what may not change for any other reason than its owner's.
func (w *World) essence(o client.Object) any {
	switch o := o.(type) {
	case *mcsv1beta1.ServiceImport:
		return []any{o.Spec, o.Labels, o.Status.Clusters}
	case *corev1.Service:
		return o.Spec
	case *hubv1alpha1.ServiceExportRecord:
		spec := *o.Spec.DeepCopy()
		spec.Revision, spec.WithdrawnAt = 0, nil
		return spec
	}
	return nil
}

// watchVIP is I6: an address once given out is the import's for its life; and it is kept for an hour after that.
func (w *World) watchVIP(m *member, c *api.Write) {
	n, ok := importOf(c)
	if !ok {
		return
	}
	imp, isImport := c.New.(*mcsv1beta1.ServiceImport)
	if isImport {
		w.guard.life[place{m.id, n}] = imp.UID
	}
	if w.guard.forgiven[place{m.id, n}] {
		return
	}
	if isImport {
		given := w.guard.vips[imp.UID]
		if given == nil {
			given = map[corev1.IPFamily]string{}
			w.guard.vips[imp.UID] = given
		}
		if w.guard.deleted[place{m.id, n}] && len(imp.Spec.IPs) < len(given) {
			// The address was in the import only, which became Headless or lost a family before the Service was back.
			w.guard.forgive(m, n)
			return
		}
		for i, ip := range imp.Spec.IPs {
			f := api.FamilyOf(ip)
			if i >= len(imp.Spec.IPFamilies) || imp.Spec.IPFamilies[i] != f {
				w.fail(
					"I3: import %s in %s has ips %v in another order than ipFamilies %v",
					n,
					m.id,
					imp.Spec.IPs,
					imp.Spec.IPFamilies,
				)
			}
			if given[f] != "" && given[f] != ip && !w.guard.excused[address{m.id, n, given[f]}] {
				w.fail("I6: the %s VIP of import %s in %s was %s and is %s", f, n, m.id, given[f], ip)
			}
			given[f] = ip
		}
	}
	svc, ok := c.Old.(*corev1.Service)
	if !ok || c.New != nil || svc.Spec.ClusterIP == corev1.ClusterIPNone {
		return
	}
	last := w.guard.last[place{m.id, n}]
	imported := get[*mcsv1beta1.ServiceImport](m, api.ServiceImport, n)
	ours := imported != nil && imported.Labels[derived.LabelManagedBy] == kube.Manager // else somebody took it
	if ours || w.now.Sub(last) < time.Hour-15*time.Minute {
		w.fail(
			"I6: the agent of %s gives up the VIP %v of %s, whose import was there %s ago",
			m.id,
			svc.Spec.ClusterIPs,
			n,
			w.now.Sub(last),
		)
	}
}

// show is an object for a person.
func show(v any) string {
	if c, ok := v.([]string); ok {
		return fmt.Sprintf("%q", c)
	}
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprintf("%+v", v)
	}
	return string(data)
}
