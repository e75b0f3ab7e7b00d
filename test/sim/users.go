package sim

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/test/model/resolution"
	"github.com/clusterset-dns/clusterset-dns/test/sim/api"
)

// action is something that a user, or a part of Kubernetes, does to one name in one member. It does nothing where it
// does not apply.
type action struct {
	name   string
	weight int
	do     func(w *World, m *member, n types.NamespacedName)
}

var actions []action

func init() { // they reach each other
	actions = []action{
		{"service", 6, (*World).createService},
		{"edit service", 6, (*World).editService},
		{"delete service", 1, (*World).deleteService},
		{"recreate service", 2, (*World).recreateService},
		{"export", 8, (*World).export},
		{"edit export", 2, (*World).editExport},
		{"unexport", 3, (*World).unexport},
		{"slice", 6, (*World).createSlice},
		{"edit slice", 8, (*World).editSlice},
		{"delete slice", 2, (*World).deleteSlice},
		{"relabel slice", 1, (*World).relabelSlice},
		{"namespace", 2, (*World).createNamespace},
		{"delete namespace", 1, (*World).deleteNamespace},
		{"tamper", 5, (*World).tamper},
		{"another implementation", 4, (*World).createBeside},
	}
}

// someoneActs lets one action happen to a name that is not frozen.
func (w *World) someoneActs() {
	n := pick(w, names)
	if w.frozen[n] {
		return
	}
	if w.liar != nil && w.chance(0.2) {
		w.liar.acts(n)
		return
	}
	m := pick(w, w.honest())
	total := 0
	for _, a := range actions {
		total += a.weight
	}
	r := w.rng.IntN(total)
	for _, a := range actions {
		if r -= a.weight; r < 0 {
			if !w.Without[a.name] {
				a.do(w, m, n)
			}
			return
		}
	}
}

// user tells of what a user did, and what the API server said.
func (w *World) user(m *member, what string, o client.Object, err error) {
	if err != nil {
		w.note("user in %s: %s %s: %v", m.id, what, api.KeyOf(o), err)
		return
	}
	w.note("user in %s: %s %s", m.id, what, api.KeyOf(o))
}

func (w *World) create(m *member, o client.Object) {
	w.user(m, "creates", o, m.server.Create("user", o, false))
}
func (w *World) update(m *member, o client.Object) {
	w.user(m, "edits", o, m.server.Update("user", o, false))
}
func (w *World) remove(m *member, o client.Object) {
	w.user(m, "deletes", o, m.server.Delete("user", api.KeyOf(o), nil))
}

func (w *World) createService(m *member, n types.NamespacedName) {
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: n.Namespace, Name: n.Name, Labels: map[string]string{"app": n.Name}},
	}
	svc.Spec = w.serviceSpec(m)
	if get[*corev1.Service](m, api.Service, n) == nil {
		w.create(m, svc)
	}
}

func (w *World) serviceSpec(m *member) corev1.ServiceSpec {
	spec := corev1.ServiceSpec{Ports: w.ports()}
	switch n := w.rng.IntN(20); {
	case n < 3:
		spec.ClusterIP = corev1.ClusterIPNone
	case n < 4:
		spec.Type = corev1.ServiceTypeLoadBalancer
	case n < 5:
		return corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.com"}
	}
	if policy := pick(
		w,
		[]corev1.IPFamilyPolicy{"", corev1.IPFamilyPolicyPreferDualStack, corev1.IPFamilyPolicySingleStack},
	); policy != "" {
		spec.IPFamilyPolicy = &policy
	}
	if w.chance(0.3) {
		spec.IPFamilies = []corev1.IPFamily{pick(w, m.server.Families)}
	}
	w.properties(&spec)
	return spec
}

// properties are those on which clusters may disagree, beside ports and families.
func (w *World) properties(spec *corev1.ServiceSpec) {
	if w.chance(0.3) {
		timeout := pick(w, []int32{60, 10800})
		spec.SessionAffinity = corev1.ServiceAffinityClientIP
		spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{
			ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &timeout},
		}
	} else {
		spec.SessionAffinity, spec.SessionAffinityConfig = corev1.ServiceAffinityNone, nil
	}
	spec.InternalTrafficPolicy, spec.TrafficDistribution = nil, nil
	if w.chance(0.2) {
		local := corev1.ServiceInternalTrafficPolicyLocal
		spec.InternalTrafficPolicy = &local
	}
	if w.chance(0.2) {
		near := corev1.ServiceTrafficDistributionPreferClose
		spec.TrafficDistribution = &near
	}
}

// ports are one to three, unnamed only where there is one.
func (w *World) ports() []corev1.ServicePort {
	var out []corev1.ServicePort
	for i := range 1 + w.rng.IntN(3) {
		p := corev1.ServicePort{
			Name:     pick(w, []string{"http", "web", "tcp-80", "clusterset-tcp-80", "x"}),
			Port:     pick(w, []int32{80, 81, 443}),
			Protocol: pick(w, []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolTCP, corev1.ProtocolUDP}),
		}
		if i == 0 && w.chance(0.2) {
			p.Name = ""
		}
		p.TargetPort = intstr.FromInt32(8000 + p.Port)
		if w.chance(0.2) {
			app := pick(w, []string{"http", "kubernetes.io/h2c"})
			p.AppProtocol = &app
		}
		clash := slices.ContainsFunc(out, func(q corev1.ServicePort) bool {
			return q.Name == p.Name || q.Name == "" || q.Port == p.Port && q.Protocol == p.Protocol
		})
		if !clash {
			out = append(out, p)
		}
	}
	return out
}

func (w *World) editService(m *member, n types.NamespacedName) {
	svc := get[*corev1.Service](m, api.Service, n)
	if svc == nil || svc.Spec.Type == corev1.ServiceTypeExternalName {
		return
	}
	svc = svc.DeepCopy()
	switch w.rng.IntN(4) {
	case 0, 1:
		svc.Spec.Ports = w.ports()
	case 2:
		w.properties(&svc.Spec)
	case 3:
		both := corev1.IPFamilyPolicyPreferDualStack
		svc.Spec.IPFamilyPolicy = &both
	}
	w.update(m, svc)
	if w.chance(0.6) { // the EndpointSlice controller follows, at once or later
		w.followService(m, n)
	}
}

func (w *World) deleteService(m *member, n types.NamespacedName) {
	if svc := get[*corev1.Service](m, api.Service, n); svc != nil {
		w.remove(m, svc)
	}
}

// recreateService is how a Service becomes headless, or gets back its cluster IP.
func (w *World) recreateService(m *member, n types.NamespacedName) {
	svc := get[*corev1.Service](m, api.Service, n)
	if svc == nil {
		return
	}
	w.remove(m, svc)
	again := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: n.Namespace, Name: n.Name},
		Spec:       w.serviceSpec(m),
	}
	w.create(m, again)
}

func (w *World) export(m *member, n types.NamespacedName) {
	if get[*mcsv1beta1.ServiceExport](m, api.ServiceExport, n) != nil {
		return
	}
	e := &mcsv1beta1.ServiceExport{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: n.Namespace,
			Name:      n.Name,
			Labels:    map[string]string{"private": "yes"},
		},
	}
	e.Spec.ExportedLabels, e.Spec.ExportedAnnotations = w.labels(), w.labels()
	e.Annotations = w.selection()
	w.create(m, e)
	if w.chance(0.8) {
		w.createService(m, n)
		w.createSlice(m, n)
	}
}

func (w *World) labels() map[string]string {
	if w.chance(0.6) {
		return nil
	}
	out := map[string]string{"team": pick(w, []string{"red", "blue"})}
	if w.chance(0.3) {
		out["clusterset-dns.io/import"] = "forged" // a key that nobody can export over
	}
	return out
}

// selection are annotations that say which clusters carry the traffic (T2), and which may import (E11).
func (w *World) selection() map[string]string {
	out := map[string]string{}
	if w.can("preferences", 0.3) {
		out[resolution.Annotation] = pick(w, []string{
			"prefer-local",
			"local-only",
			"cluster=a,any",
			"same:region,any",
			"local,region=eu",
			"cluster=b.c,cluster=a0",
		})
		if w.chance(0.3) {
			out[resolution.AnnotationMinReady] = pick(w, []string{"2", "50%"})
		}
	}
	if w.can("export-to", 0.15) {
		out[resolution.AnnotationExportTo] = pick(w, []string{"cluster=a", "cluster=a-b,region=us", "region=eu"})
	}
	return out
}

func (w *World) editExport(m *member, n types.NamespacedName) {
	if e := get[*mcsv1beta1.ServiceExport](m, api.ServiceExport, n); e != nil {
		e = e.DeepCopy()
		e.Spec.ExportedLabels, e.Spec.ExportedAnnotations = w.labels(), w.labels()
		if w.chance(0.5) {
			e.Annotations = w.selection()
		}
		w.update(m, e)
	}
}

func (w *World) unexport(m *member, n types.NamespacedName) {
	if e := get[*mcsv1beta1.ServiceExport](m, api.ServiceExport, n); e != nil {
		w.remove(m, e)
	}
}

// shared tells whether a namespace holds a name that nobody may touch.
func (w *World) shared(n types.NamespacedName) bool {
	return slices.ContainsFunc(
		names,
		func(other types.NamespacedName) bool { return other.Namespace == n.Namespace && w.frozen[other] },
	)
}

func (w *World) createNamespace(m *member, n types.NamespacedName) {
	if w.shared(n) {
		return
	}
	w.user(m, "creates", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: n.Namespace}},
		m.server.Create("user", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: n.Namespace}}, false))
}

func (w *World) deleteNamespace(m *member, n types.NamespacedName) {
	if ns := m.namespace(n.Namespace); ns != nil && !w.shared(n) {
		w.remove(m, ns)
	}
}

// slicesOf are those of a member's own Service.
func (m *member) slicesOf(n types.NamespacedName) []*discoveryv1.EndpointSlice {
	return slices.DeleteFunc(
		all[*discoveryv1.EndpointSlice](m.server, api.EndpointSlice),
		func(s *discoveryv1.EndpointSlice) bool {
			return s.Namespace != n.Namespace || s.Labels[discoveryv1.LabelServiceName] != n.Name ||
				s.Labels[mcsv1beta1.LabelServiceName] != ""
		},
	)
}

func (w *World) createSlice(m *member, n types.NamespacedName) {
	svc := get[*corev1.Service](m, api.Service, n)
	if svc == nil || len(m.slicesOf(n)) > 2 || m.namespace(n.Namespace) == nil {
		return
	}
	s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{
		Namespace: n.Namespace,
		Name:      fmt.Sprintf("%s.%d", n.Name, w.steps),
		Labels: map[string]string{
			discoveryv1.LabelServiceName: n.Name,
			discoveryv1.LabelManagedBy:   "endpointslice-controller.k8s.io",
		},
	}}
	s.AddressType = discoveryv1.AddressType(pick(w, m.server.Families))
	if w.chance(0.05) {
		s.AddressType = discoveryv1.AddressTypeFQDN
	}
	s.Ports = slicePorts(svc)
	s.Endpoints = w.endpoints(m, s.AddressType)
	w.create(m, s)
}

func slicePorts(svc *corev1.Service) []discoveryv1.EndpointPort {
	var out []discoveryv1.EndpointPort
	for _, p := range svc.Spec.Ports {
		number := p.TargetPort.IntVal
		out = append(
			out,
			discoveryv1.EndpointPort{Name: &p.Name, Protocol: &p.Protocol, Port: &number, AppProtocol: p.AppProtocol},
		)
	}
	return out
}

func (w *World) endpoints(m *member, family discoveryv1.AddressType) []discoveryv1.Endpoint {
	out := []discoveryv1.Endpoint{}
	at := slices.Index(w.members, m)
	for range w.rng.IntN(4) {
		host := w.rng.IntN(250) + 1
		address := fmt.Sprintf("10.%d.0.%d", at, host)
		switch family {
		case discoveryv1.AddressTypeIPv6:
			address = fmt.Sprintf("fd00:%d::%x", 1+at, host)
		case discoveryv1.AddressTypeFQDN:
			address = fmt.Sprintf("host-%d.example.com", host)
		}
		ready, node, zone := w.chance(0.8), "node-1", pick(w, []string{"z1", "z2"})
		e := discoveryv1.Endpoint{
			Addresses:  []string{address},
			NodeName:   &node,
			Conditions: discoveryv1.EndpointConditions{Ready: &ready},
		}
		e.TargetRef = &corev1.ObjectReference{Kind: "Pod", Name: fmt.Sprintf("pod-%d", host)}
		if w.chance(0.8) {
			e.Zone = &zone
		}
		if w.chance(0.3) {
			serving, terminating := !ready, !ready
			hostname := fmt.Sprintf("h-%d", host)
			e.Conditions.Serving, e.Conditions.Terminating, e.Hostname = &serving, &terminating, &hostname
		}
		out = append(out, e)
	}
	return out
}

func (w *World) editSlice(m *member, n types.NamespacedName) {
	own := m.slicesOf(n)
	if len(own) == 0 {
		return
	}
	if w.chance(0.4) {
		w.followService(m, n)
		return
	}
	s := pick(w, own).DeepCopy()
	s.Endpoints = w.endpoints(m, s.AddressType)
	w.update(m, s)
}

// followService gives a Service's slices its ports, as the EndpointSlice controller does.
func (w *World) followService(m *member, n types.NamespacedName) {
	svc := get[*corev1.Service](m, api.Service, n)
	for _, s := range m.slicesOf(n) {
		if s = s.DeepCopy(); svc != nil {
			s.Ports = slicePorts(svc)
			w.update(m, s)
		}
	}
}

// relabelSlice gives a slice to another Service, of which there may be none.
func (w *World) relabelSlice(m *member, n types.NamespacedName) {
	to := pick(w, names)
	own := m.slicesOf(n)
	if len(own) == 0 || to == n || to.Namespace != n.Namespace || w.frozen[to] {
		return
	}
	s := pick(w, own).DeepCopy()
	s.Labels[discoveryv1.LabelServiceName] = to.Name
	w.update(m, s)
}

func (w *World) deleteSlice(m *member, n types.NamespacedName) {
	if own := m.slicesOf(n); len(own) > 0 {
		w.remove(m, pick(w, own))
	}
}
