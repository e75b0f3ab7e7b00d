package sim

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conditions"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/endpoints"
	"github.com/clusterset-dns/clusterset-dns/controllers/preview"
	"github.com/clusterset-dns/clusterset-dns/controllers/serviceexport"
	"github.com/clusterset-dns/clusterset-dns/test/sim/api"
)

var previews = flag.Int("previews", 100, "how many changes TestPreviewsComeTrue predicts")

// TestPreviewsComeTrue: what is predicted of a change is what all members have after it. Nothing fails meanwhile.
func TestPreviewsComeTrue(t *testing.T) {
	const perWorld = 40
	kinds := map[string]int{}
	began := time.Now()
	for done, s := 0, *first; done < *previews; done, s = done+perWorld, s+1 {
		if err := foretell(s, min(perWorld, *previews-done), kinds); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d changes in %s: %v", *previews, time.Since(began).Round(time.Millisecond), kinds)
	for _, k := range changeKinds {
		if kinds[k.name] == 0 {
			t.Errorf("nobody tried to %s", k.name)
		}
	}
	for _, what := range []string{"(nothing changes)", "(conflict)", "(standby)", "(late)", "(not for all)"} {
		if kinds[what] == 0 {
			t.Errorf("%s did not occur", what)
		}
	}
}

// calmChange is how long nothing is written once a change is done: longer than traffic waits for a better cluster.
const calmChange = 25 * time.Second

// foretell plays one world.
func foretell(seed uint64, changes int, kinds map[string]int) (err error) {
	w := newWorld(Options{Seed: seed, Without: map[string]bool{"ranges": true, "liar": true}})
	defer func() {
		switch r := recover().(type) {
		case nil:
		case *Violation:
			r.Trace = w.trace.String()
			err = r
		default:
			panic(r)
		}
	}()
	w.settle()
	w.quiet = true
	for _, n := range names {
		w.createNamespace(w.members[0], n) // if nobody has it
	}
	for _, m := range w.members {
		for _, n := range names {
			if w.chance(0.6) {
				w.export(m, n)
				w.createSlice(m, n)
			}
		}
	}
	w.calmDown(calmChange)
	for range changes {
		if w.chance(0.1) {
			w.now = w.now.Add(conflict.Window)
			w.calmDown(calmChange)
		}
		n := pick(w, names)
		w.notSoonLate(n)
		m, c := w.anyChange(n)
		w.note("== predicted: %s of %s in %s", c.kind, n, m.id)
		was := w.stateOf(n)
		before := was.Exporters()
		after, valid := was.After(&c.given)
		vips := map[string][]string{}
		for _, o := range w.members {
			vips[o.id] = o.addressesOf(n)
		}
		w.must(c.apply())
		w.calmDown(calmChange)
		problems := []error{w.checkValid(m, n, valid)}
		differs := false
		for _, o := range w.members {
			have, want := w.in(o, was, before), w.in(o, was, after)
			differs = differs || show(have) != show(want)
			problems = append(problems, w.checkPreview(o, n, want, have, vips[o.id], kinds))
		}
		if err := errors.Join(problems...); err != nil {
			w.fail("%s of %s in %s was predicted wrongly:\n%v\n%s", c.kind, n, m.id, err, w.describe(n))
		}
		if kinds[c.kind]++; !differs {
			kinds["(nothing changes)"]++
		}
	}
	return nil
}

// stateOf is what the hub shows of a name.
func (w *World) stateOf(n types.NamespacedName) *preview.State {
	s := &preview.State{NamespacedName: n, Now: w.now}
	s.Records, s.Pages = map[string]*hubv1alpha1.ServiceExportRecord{}, map[string]*hubv1alpha1.EndpointPage{}
	for _, rec := range all[*hubv1alpha1.ServiceExportRecord](w.hub, api.ServiceExportRecord) {
		if nameOf(rec) == n {
			s.Records[rec.Spec.ClusterID] = rec
		}
	}
	for _, page := range all[*hubv1alpha1.EndpointPage](w.hub, api.EndpointPage) {
		s.Pages[page.Name] = page
	}
	return s
}

// place is a member as the hub knows it.
func (w *World) place(m *member) clusterset.Place {
	out := clusterset.Place{Cluster: m.id, Properties: map[string]string{}}
	for _, profile := range all[*inventoryv1alpha1.ClusterProfile](w.hub, api.ClusterProfile) {
		for _, p := range profile.Status.Properties {
			if profile.Name == m.id {
				out.Properties[p.Name] = p.Value
			}
		}
	}
	return out
}

// in is what a member has, as far as it has the namespace.
func (w *World) in(m *member, s *preview.State, exporters []preview.Exporter) *preview.Import {
	if m.namespace(s.Namespace) == nil {
		return nil
	}
	return s.In(w.place(m), m.server.Families, exporters)
}

// notSoonLate waits if an export of a name would be late or not by how long the agent takes.
func (w *World) notSoonLate(n types.NamespacedName) {
	for _, x := range w.stateOf(n).Exporters() {
		if left := x.Published.Add(conflict.Window).Sub(w.now); left > -2*time.Second && left < time.Minute {
			w.calmDown(left + 5*time.Second)
			w.notSoonLate(n)
			return
		}
	}
}

// change is what preview is told of, and how a user makes it.
type change struct {
	kind  string
	given serviceexport.Given
	apply func() error
}

var changeKinds = []struct {
	name string
	// of returns how to make the change, and sets what is given after it; nil where it does not apply.
	of func(w *World, m *member, g *serviceexport.Given, n types.NamespacedName) (apply func() error)
}{
	{"export", func(w *World, m *member, g *serviceexport.Given, n types.NamespacedName) func() error {
		if g.Export != nil {
			return nil
		}
		g.Export = &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: n.Namespace, Name: n.Name}}
		g.Export.Annotations = w.selection()
		g.Export.Spec.ExportedLabels, g.Export.Spec.ExportedAnnotations = w.labels(), w.labels()
		made := g.Export.DeepCopy()
		g.Export.CreationTimestamp = metav1.NewTime(w.now.Add(m.skew).Truncate(time.Second))
		return func() error { return m.server.Create("user", made, false) }
	}},
	{"unexport", func(_ *World, m *member, g *serviceexport.Given, _ types.NamespacedName) func() error {
		e := g.Export
		if e == nil {
			return nil
		}
		g.Export = nil
		return func() error { return m.server.Delete("user", api.KeyOf(e), nil) }
	}},
	{"edit the export", func(w *World, m *member, g *serviceexport.Given, _ types.NamespacedName) func() error {
		if g.Export == nil {
			return nil
		}
		g.Export = g.Export.DeepCopy()
		g.Export.Annotations = w.selection()
		g.Export.Spec.ExportedLabels, g.Export.Spec.ExportedAnnotations = w.labels(), w.labels()
		if w.chance(0.1) {
			g.Export.Annotations[clusterset.AnnotationPreference] = "any,local" // invalid: an earlier one stays
		}
		edited := g.Export.DeepCopy()
		return func() error { return m.server.Update("user", edited, false) }
	}},
	{"create the Service", func(w *World, m *member, g *serviceexport.Given, n types.NamespacedName) func() error {
		if g.Service != nil {
			return nil
		}
		svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: n.Namespace, Name: n.Name}}
		svc.Spec = w.serviceSpec(m)
		g.Service, g.Slices = preview.Apply(svc, nil, g.Slices, m.server.Families)
		return func() error { return m.follow(w, n, m.server.Create("user", svc, false)) }
	}},
	{"edit the Service", func(w *World, m *member, g *serviceexport.Given, n types.NamespacedName) func() error {
		if g.Service == nil || g.Service.Spec.Type == corev1.ServiceTypeExternalName {
			return nil
		}
		svc := g.Service.DeepCopy() // as in a file, which says nothing of what the API server has filled in
		svc.Spec.ClusterIP, svc.Spec.ClusterIPs, svc.Spec.IPFamilies, svc.Spec.IPFamilyPolicy = "", nil, nil, nil
		switch w.rng.IntN(4) {
		case 0, 1:
			svc.Spec.Ports = w.ports()
		case 2:
			w.properties(&svc.Spec)
		case 3:
			both := corev1.IPFamilyPolicyPreferDualStack
			svc.Spec.IPFamilyPolicy = &both
		}
		g.Service, g.Slices = preview.Apply(svc, g.Service, g.Slices, m.server.Families)
		return func() error { return m.follow(w, n, m.server.Update("user", svc, false)) }
	}},
	{"delete the Service", func(w *World, m *member, g *serviceexport.Given, _ types.NamespacedName) func() error {
		svc := g.Service
		if svc == nil || w.chance(0.5) {
			return nil
		}
		g.Service = nil
		return func() error { return m.server.Delete("user", api.KeyOf(svc), nil) }
	}},
	{"create endpoints", func(w *World, m *member, g *serviceexport.Given, n types.NamespacedName) func() error {
		if g.Service == nil || g.Service.Spec.Type == corev1.ServiceTypeExternalName || len(g.Slices) > 2 {
			return nil
		}
		s := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressType(pick(w, m.server.Families))}
		s.Namespace, s.Name = n.Namespace, fmt.Sprintf("%s.%d", n.Name, w.steps)
		s.Labels = map[string]string{discoveryv1.LabelServiceName: n.Name,
			discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io"}
		s.Ports, s.Endpoints = slicePorts(g.Service), w.endpoints(m, s.AddressType)
		g.Slices = append(g.Slices, s.DeepCopy())
		return func() error { return m.server.Create("user", s, false) }
	}},
	{"edit endpoints", func(w *World, m *member, g *serviceexport.Given, _ types.NamespacedName) func() error {
		if len(g.Slices) == 0 {
			return nil
		}
		i := w.rng.IntN(len(g.Slices))
		s := g.Slices[i].DeepCopy()
		s.Endpoints = w.endpoints(m, s.AddressType)
		g.Slices[i] = s.DeepCopy()
		return func() error { return m.server.Update("user", s, false) }
	}},
	{"delete endpoints", func(w *World, m *member, g *serviceexport.Given, _ types.NamespacedName) func() error {
		if len(g.Slices) == 0 || w.chance(0.5) {
			return nil
		}
		i := w.rng.IntN(len(g.Slices))
		key := api.KeyOf(g.Slices[i])
		g.Slices = slices.Delete(g.Slices, i, i+1)
		return func() error { return m.server.Delete("user", key, nil) }
	}},
}

// follow has the slices of a Service follow it, as those of Kubernetes do.
func (m *member) follow(w *World, n types.NamespacedName, err error) error {
	w.followService(m, n)
	return err
}

// anyChange returns a change of a name that is possible in some member.
func (w *World) anyChange(n types.NamespacedName) (*member, *change) {
	for range 10_000 {
		m, kind := pick(w, w.members), pick(w, changeKinds)
		if m.namespace(n.Namespace) == nil {
			continue
		}
		c := &change{kind: kind.name, given: serviceexport.Given{
			Cluster: w.place(m), Export: get[*mcsv1beta1.ServiceExport](m, api.ServiceExport, n),
			Service: get[*corev1.Service](m, api.Service, n), Slices: m.slicesOf(n), Shown: w.stateOf(n).Records[m.id],
		}}
		if c.apply = kind.of(w, m, &c.given, n); c.apply != nil {
			return m, c
		}
	}
	w.fail("the simulation itself: nobody has namespace %s", n.Namespace)
	return nil, nil
}

func (m *member) addressesOf(n types.NamespacedName) []string {
	if imp := get[*mcsv1beta1.ServiceImport](m, api.ServiceImport, n); imp != nil {
		return imp.Spec.IPs
	}
	return nil
}

// checkValid compares the condition Valid.
func (w *World) checkValid(m *member, n types.NamespacedName, want metav1.Condition) error {
	e := get[*mcsv1beta1.ServiceExport](m, api.ServiceExport, n)
	if e == nil {
		return differ("condition Valid of what is not exported", metav1.Condition{}, want)
	}
	got := meta.FindStatusCondition(e.Status.Conditions, "Valid")
	if got == nil {
		return errors.New("there is no condition Valid")
	}
	return differ("condition Valid", [3]string{string(want.Status), want.Reason, want.Message},
		[3]string{string(got.Status), got.Reason, got.Message})
}

// checkPreview compares what was predicted with what a member has.
func (w *World) checkPreview(
	m *member, n types.NamespacedName, want, before *preview.Import, vips []string, kinds map[string]int,
) error {
	imp := get[*mcsv1beta1.ServiceImport](m, api.ServiceImport, n)
	if want == nil || imp == nil {
		return differ("whether "+m.id+" has an import", want != nil, imp != nil)
	}
	spec := imp.Spec.DeepCopy()
	spec.IPs = nil
	wantSlices, standby := facts(want.Slices)
	gotSlices, _ := facts(m.imported(n))
	problems := []error{
		differ("spec in "+m.id, want.Spec, *spec), differ("labels in "+m.id, want.Labels, imp.Labels),
		differ("annotations in "+m.id, want.Annotations, imp.Annotations),
		differ("endpoints in "+m.id, wantSlices, gotSlices), differ("order in "+m.id, want.Order, w.orderIn(m, n)),
	}
	vip := func(i *preview.Import) int {
		if i == nil || i.Spec.Type == mcsv1beta1.Headless || len(i.Spec.Ports) == 0 {
			return 0
		}
		return len(i.Spec.IPFamilies)
	}
	problems = append(problems, differ("number of VIPs in "+m.id, vip(want), len(imp.Spec.IPs)))
	if vip(before) > 0 && vip(want) > 0 && slices.Equal(before.Spec.IPFamilies, want.Spec.IPFamilies) {
		problems = append(problems, differ("VIPs that are kept in "+m.id, vips, imp.Spec.IPs))
	}
	e := get[*mcsv1beta1.ServiceExport](m, api.ServiceExport, n)
	if e != nil && meta.IsStatusConditionTrue(e.Status.Conditions, "Valid") {
		predicted := conditions.Conflict(want.Conflicts)
		got := meta.FindStatusCondition(e.Status.Conditions, "Conflict")
		problems = append(problems, differ("conflict in "+m.id, predicted.Reason+predicted.Message,
			got.Reason+got.Message))
	}
	for what, occurs := range map[string]bool{
		"(conflict)": len(want.Conflicts) > 0, "(standby)": standby,
		"(not for all)": len(want.Order) < len(w.stateOf(n).Exporters()),
		"(late)":        w.someLate(n),
	} {
		if occurs {
			kinds[what]++
		}
	}
	return errors.Join(problems...)
}

// someLate returns whether an export ranks behind the others because it came late.
func (w *World) someLate(n types.NamespacedName) bool {
	var exports []clusterset.Export
	for _, x := range w.stateOf(n).Exporters() {
		exports = append(exports, x.Export)
	}
	late := conflict.Late(exports)
	return slices.ContainsFunc(exports, func(e clusterset.Export) bool { return late(&e) })
}

// orderIn is the order of exporters by a member's copies.
func (w *World) orderIn(m *member, n types.NamespacedName) (out []string) {
	var exports []clusterset.Export
	for _, rec := range all[*hubv1alpha1.ServiceExportRecord](m.server, api.ServiceExportRecord) {
		if nameOf(rec) != n || rec.Spec.Withdrawn {
			continue
		}
		e, err := clusterset.ParseExport(rec)
		w.must(err)
		if e.GoesTo(w.place(m)) {
			exports = append(exports, e)
		}
	}
	conflict.Order(exports)
	for _, e := range exports {
		out = append(out, e.Cluster)
	}
	return out
}

// facts are what slices say of each endpoint, without what only its own cluster has.
func facts(all []*discoveryv1.EndpointSlice) (out []string, standby bool) {
	for _, s := range all {
		var ports []string
		for _, p := range s.Ports {
			ports = append(ports, show(p))
		}
		slices.Sort(ports)
		standby = standby || endpoints.Standby(s)
		for _, e := range s.Endpoints {
			isReady := ready(e)
			serving, terminating := isReady, false
			if e.Conditions.Serving != nil {
				serving = *e.Conditions.Serving
			}
			if e.Conditions.Terminating != nil {
				terminating = *e.Conditions.Terminating
			}
			out = append(out, fmt.Sprint(s.Labels[mcsv1beta1.LabelSourceCluster], s.AddressType, endpoints.Standby(s),
				ports, e.Addresses, isReady, serving, terminating, show(e.Hostname), show(e.Zone), show(e.Hints)))
		}
	}
	slices.Sort(out)
	return out, standby
}
