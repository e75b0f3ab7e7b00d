package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/withdrawal"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
	"github.com/clusterset-dns/clusterset-dns/test/sim/api"
)

// liar is a member in other hands: no agent, but its credentials for the hub. Before each quiet it repents: what it
// says then, everybody must make the same of.
type liar struct {
	*World
	member   *member
	revision int64
	says     map[string]client.Object      // what it stands by, by record name
	said     map[types.NamespacedName]bool // names that the hub ever had a record of; an agent may still have seen it
	renewed  time.Time
}

func newLiar(w *World) *liar {
	m := w.members[len(w.members)-1]
	for _, a := range slices.Clone(m.agents) {
		a.die()
	}
	w.note("%s is a liar", m.id)
	return &liar{
		World: w, member: m, says: map[string]client.Object{}, said: map[types.NamespacedName]bool{}, revision: 1,
	}
}

func (l *liar) user() string { return api.Member + l.member.id }

// publish writes a record, whatever is there.
func (l *liar) publish(o client.Object) error {
	o.SetNamespace(hubNamespace)
	var err error
	if there := l.World.hub.Get(api.KeyOf(o)); there != nil {
		o.SetResourceVersion(there.GetResourceVersion())
		o.SetUID(there.GetUID())
		err = l.World.hub.Update(l.user(), o, false)
	} else {
		o.SetResourceVersion("")
		err = l.World.hub.Create(l.user(), o, false)
	}
	l.note("liar publishes %s: %v", api.KeyOf(o), err)
	if rec, ok := o.(*hubv1alpha1.ServiceExportRecord); ok && err == nil {
		l.said[nameOf(rec)] = true
	}
	return err
}

func (l *liar) origin(n types.NamespacedName) hubv1alpha1.Origin {
	l.revision++
	return hubv1alpha1.Origin{
		ClusterID:        l.member.id,
		ServiceNamespace: n.Namespace,
		ServiceName:      n.Name,
		Revision:         l.revision,
	}
}

// acts does something to one name.
func (l *liar) acts(n types.NamespacedName) {
	switch l.rng.IntN(11) {
	case 0, 1:
		_ = l.publish(l.export(n, l.chance(0.5)))
	case 2, 3: // pages; its record may state more or fewer
		rec := l.export(n, false)
		rec.Spec.Endpoints, rec.Spec.Pages = nil, int32(l.rng.IntN(3))
		_ = l.publish(l.page(n))
		_ = l.publish(rec)
	case 4: // an old revision, or an unchanged one with other content
		rec := l.export(n, false)
		rec.Spec.Revision = max(1, rec.Spec.Revision-int64(l.rng.IntN(10)))
		_ = l.publish(rec)
	case 5:
		l.vanish()
	case 6:
		rec := &hubv1alpha1.ServiceExportRecord{ObjectMeta: metav1.ObjectMeta{Name: l.recordName(n)}}
		rec.Spec.Origin = l.origin(n)
		rec.Spec.Withdrawn = true
		_ = l.publish(rec)
	case 7:
		l.acknowledges("7 of nothing")
	default:
		l.forges()
	}
}

// forges says something in another member's name, of any name at all, which the hub's policies refuse.
func (l *liar) forges() {
	n := pick(l.World, names)
	rec := l.export(n, false)
	rec.Spec.ClusterID = pick(l.World, l.honest()).id
	rec.Name = recordName(n, rec.Spec.ClusterID)
	rec.Spec.Revision = l.now.Add(time.Hour).UnixMilli()
	_ = l.publish(rec)
}

func (l *liar) recordName(n types.NamespacedName) string { return recordName(n, l.member.id) }

// export is a record of what it claims to export; nonsense passes the schema of the CRD, and nothing more.
func (l *liar) export(n types.NamespacedName, nonsense bool) *hubv1alpha1.ServiceExportRecord {
	at := metav1.NewTime(l.now.Add(time.Duration(l.rng.IntN(200)-180) * time.Hour).Truncate(time.Second))
	rec := &hubv1alpha1.ServiceExportRecord{ObjectMeta: metav1.ObjectMeta{Name: l.recordName(n)}}
	rec.Spec = hubv1alpha1.ServiceExportRecordSpec{
		Origin:          l.origin(n),
		ExportedAt:      &at,
		Type:            pick(l.World, []mcsv1beta1.ServiceImportType{mcsv1beta1.ClusterSetIP, mcsv1beta1.Headless}),
		IPFamilies:      pick(l.World, families),
		SessionAffinity: corev1.ServiceAffinityNone,
		ExportedLabels:  l.labels(),
	}
	defer func() { // of the ports that it has then
		for range l.rng.IntN(3) {
			rec.Spec.Endpoints = append(rec.Spec.Endpoints, l.group(rec.Spec.Ports, nonsense && l.chance(0.5)))
		}
	}()
	for _, p := range l.ports() {
		rec.Spec.Ports = append(
			rec.Spec.Ports,
			hubv1alpha1.ServicePort{Name: p.Name, Protocol: p.Protocol, Port: p.Port, AppProtocol: p.AppProtocol},
		)
	}
	if !nonsense {
		return rec
	}
	sideways := "Sideways"
	switch l.rng.IntN(6) {
	case 0:
		rec.Spec.Ports = append(rec.Spec.Ports, rec.Spec.Ports[0])
	case 1:
		rec.Spec.Ports[0].Name = "No Port!"
	case 2:
		rec.Spec.TrafficDistribution = &sideways
	case 3:
		rec.Spec.ExportedLabels = map[string]string{"team": "not a label value"}
	case 4:
		rec.Spec.Ports[0].AppProtocol = &[]string{"a b"}[0]
	case 5:
		rec.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv4Protocol}
	}
	return rec
}

// noPeer are addresses that no peer may claim (S4).
var noPeer = []string{"127.0.0.1", "169.254.169.254", "0.0.0.0", "224.0.0.1", "10.200.1.1"}

// group has the endpoints that it claims to have; nobody may claim some of them.
func (l *liar) group(ports []hubv1alpha1.ServicePort, nonsense bool) hubv1alpha1.EndpointGroup {
	out := hubv1alpha1.EndpointGroup{AddressType: discoveryv1.AddressTypeIPv4}
	for _, p := range ports {
		number := 8000 + p.Port
		out.Ports = append(out.Ports, hubv1alpha1.EndpointPort{Protocol: p.Protocol, Port: p.Port, Target: &number})
	}
	for i := range l.rng.IntN(4) {
		address := fmt.Sprintf("10.99.0.%d", i+1)
		if l.chance(0.3) {
			address = pick(l.World, noPeer)
		}
		out.Endpoints = append(out.Endpoints, hubv1alpha1.Endpoint{Address: address})
	}
	if nonsense && len(out.Ports) > 0 {
		out.Ports = append(out.Ports, out.Ports[0])
	}
	return out
}

// page is one of an export that may not exist.
func (l *liar) page(n types.NamespacedName) *hubv1alpha1.EndpointPage {
	page := &hubv1alpha1.EndpointPage{}
	page.Spec.Origin, page.Spec.Number = l.origin(n), int32(l.rng.IntN(2))
	page.Name = fmt.Sprintf("%d.%s", page.Spec.Number, l.recordName(n))
	page.Spec.EndpointGroup = l.group(
		[]hubv1alpha1.ServicePort{{Protocol: corev1.ProtocolTCP, Port: 80}},
		l.chance(0.3),
	)
	return page
}

// vanish deletes one of its records without a word.
func (l *liar) vanish() {
	own := l.records()
	if len(own) == 0 {
		return
	}
	o := pick(l.World, own)
	l.note("liar deletes %s: %v", api.KeyOf(o), l.World.hub.Delete(l.user(), api.KeyOf(o), nil))
}

// records are those of its that the hub has.
func (l *liar) records() (out []client.Object) {
	for _, kind := range []string{api.ServiceExportRecord, api.EndpointPage} {
		for _, o := range l.World.hub.List(kind) {
			if strings.HasSuffix(o.GetName(), "."+l.member.id) {
				out = append(out, o)
			}
		}
	}
	return out
}

// acknowledges renews the Lease, with an acknowledgement.
func (l *liar) acknowledges(version string) {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: l.member.id}}
	now := metav1.NewMicroTime(l.now)
	lease.Spec.RenewTime, l.renewed = &now, l.now
	lease.Annotations = map[string]string{withdrawal.AnnotationAcknowledged: version}
	_ = l.publish(lease)
}

// repents makes what it has said one thing for everybody: per name a valid export, or nothing at all. It
// says so as an honest member would, by higher revisions, withdrawals and its Lease; names in keep stay as they are.
func (l *liar) repents(keep map[types.NamespacedName]bool) {
	maps.DeleteFunc(l.says, func(_ string, o client.Object) bool { return !keep[nameOf(o)] })
	for _, n := range names {
		if keep[n] || l.chance(0.5) {
			continue
		}
		rec := l.export(n, false)
		l.says[rec.Name] = rec
	}
	for _, name := range slices.Sorted(maps.Keys(l.says)) {
		o := l.says[name]
		l.revision++
		originOf(o).Revision = l.revision
		if l.publish(o) != nil { // the hub lets no record get older (C1)
			l.must(l.World.hub.Delete(l.user(), api.KeyOf(o), nil))
			l.must(l.publish(o))
		}
	}
	for _, n := range names {
		if rec := l.says[l.recordName(n)]; rec != nil {
			l.revision++
			originOf(rec).Revision = l.revision
			l.must(l.publish(rec))
		} else if l.said[n] {
			l.must(l.publish(l.withdrawal(n)))
		}
	}
	for _, o := range l.records() {
		if l.says[o.GetName()] == nil && api.KeyOf(o).Kind == api.EndpointPage {
			l.must(l.World.hub.Delete(l.user(), api.KeyOf(o), nil))
		}
	}
	l.confirms()
}

func (l *liar) withdrawal(n types.NamespacedName) client.Object {
	l.revision++
	origin := l.origin(n)
	return &hubv1alpha1.ServiceExportRecord{
		ObjectMeta: metav1.ObjectMeta{Name: l.recordName(n)}, Spec: clusterset.Withdrawn(origin, time.Unix(0, 0)),
	}
}

// confirms renews the Lease where that is due, and acknowledges what is withdrawn.
func (l *liar) confirms() {
	if l.now.Sub(l.renewed) < 10*time.Second && l.quiet {
		return
	}
	var tombstones []*hubv1alpha1.ServiceExportRecord
	for _, rec := range all[*hubv1alpha1.ServiceExportRecord](l.World.hub, api.ServiceExportRecord) {
		if rec.Spec.Withdrawn {
			tombstones = append(tombstones, rec)
		}
	}
	version := ""
	applied := func(*hubv1alpha1.ServiceExportRecord) bool { return true }
	if newest := withdrawal.Newest(tombstones, applied); newest != nil {
		version = kube.Version(newest)
	}
	l.acknowledges(version)
}

func originOf(o client.Object) *hubv1alpha1.Origin {
	switch rec := o.(type) {
	case *hubv1alpha1.ServiceExportRecord:
		return &rec.Spec.Origin
	case *hubv1alpha1.EndpointPage:
		return &rec.Spec.Origin
	}
	panic(fmt.Sprintf("%T is no record", o))
}

func nameOf(o client.Object) types.NamespacedName {
	origin := originOf(o)
	return types.NamespacedName{Namespace: origin.ServiceNamespace, Name: origin.ServiceName}
}
