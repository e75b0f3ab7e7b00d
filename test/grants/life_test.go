package grants

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/withdrawal"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

const shop = "shop"

// exports has both members export web, which conflicts, and a also a headless Service; an export without a Service
// is told twice that it
// is none.
func (s *set) exports(t *testing.T) {
	for _, m := range []*member{s.a, s.b} {
		m.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shop}})
	}
	s.a.exported(t, service("web", 80), "10.1.0.1")
	db := service("db", 5432)
	db.Spec.ClusterIP = corev1.ClusterIPNone
	s.a.exported(t, db, "10.1.0.2")
	s.b.imports(t, "web", "a")
	s.b.imports(t, "db", "a")
	s.b.exported(t, service("web", 81), "10.2.0.1")
	s.a.imports(t, "web", "a", "b")
	s.b.imports(t, "web", "a", "b")
	until(t, "the conflict is told", func() error {
		var e mcsv1beta1.ServiceExport
		err := s.a.Get(t.Context(), key("web"), &e)
		if err == nil &&
			!meta.IsStatusConditionTrue(e.Status.Conditions, string(mcsv1beta1.ServiceExportConditionConflict)) {
			return fmt.Errorf("%+v", e.Status.Conditions)
		}
		return err
	})
	s.a.create(t, export("missing"))
	told(t, s.a.Client, shop, "NoService", "missing", 1)
	s.a.remove(t, export("db"))
	until(t, "db is imported no more", func() error { return gone(t, s.b, &mcsv1beta1.ServiceImport{}, key("db")) })
	s.a.remove(t, slice(service("web", 80)))
	s.b.endpoints(t, "b/10.2.0.1")
	s.a.create(t, slice(service("web", 80), "10.1.0.1"))
	s.b.endpoints(t, "a/10.1.0.1", "b/10.2.0.1")
}

// edits are an admin's, in b, of all that the agent made there; and a derived Service vanishes.
func (s *set) edits(t *testing.T) {
	ctx := t.Context()
	imp := s.b.imports(t, "web", "a", "b")
	change(t, s.b, imp, func(i *mcsv1beta1.ServiceImport) { i.Spec.Ports[0].Port = 99 })
	right := func(why string, ok func(*mcsv1beta1.ServiceImport, *corev1.Service) bool) {
		t.Helper()
		until(t, why, func() error {
			imp, svc := &mcsv1beta1.ServiceImport{}, &corev1.Service{}
			if err := s.b.Get(ctx, key("web"), imp); err != nil {
				return err
			}
			if err := s.b.Get(
				ctx,
				key(imp.Annotations["multicluster.kubernetes.io/derived-service"]),
				svc,
			); err != nil {
				return err
			}
			if !ok(imp, svc) {
				return fmt.Errorf("%+v, %+v", imp.Spec, svc.Spec)
			}
			return nil
		})
	}
	right(
		"the import is restored",
		func(i *mcsv1beta1.ServiceImport, _ *corev1.Service) bool { return i.Spec.Ports[0].Port == 80 },
	)
	derived := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: shop,
			Name:      imp.Annotations["multicluster.kubernetes.io/derived-service"],
		},
	}
	const agent = "--as=system:serviceaccount:clusterset-system:clusterset-controller" // the policy lets nobody else
	_, err := s.b.Cluster.Kubectl(
		ctx,
		"",
		"-n",
		shop,
		"patch",
		"service",
		derived.Name,
		agent,
		"--as-group=system:masters",
		"--type=merge",
		"-p",
		`{"spec":{"selector":{"app":"x"}}}`,
	)
	must(t, err)
	right(
		"the derived Service is restored",
		func(_ *mcsv1beta1.ServiceImport, svc *corev1.Service) bool { return len(svc.Spec.Selector) == 0 },
	)
	must(t, s.b.Get(ctx, client.ObjectKeyFromObject(derived), derived))
	was := derived.UID
	_, err = s.b.Cluster.Kubectl(ctx, "", "-n", shop, "delete", "service", derived.Name, agent)
	must(t, err)
	right(
		"the derived Service is made again",
		func(_ *mcsv1beta1.ServiceImport, svc *corev1.Service) bool { return svc.UID != was },
	)

	imported := s.b.slices(t)
	change(t, s.b, &imported[0], func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses[0] = "10.9.9.9" })
	s.b.endpoints(t, "a/10.1.0.1", "b/10.2.0.1")
	// No list shows it, not even as one that the agent made, and its name is taken. The agent may have it (I10).
	change(t, s.b, &imported[0], func(s *discoveryv1.EndpointSlice) {
		s.Labels, s.Annotations = nil, map[string]string{kube.AnnotationAdopt: "true"}
	})
	s.b.endpoints(t, "a/10.1.0.1", "b/10.2.0.1")
	s.b.remove(t, &imported[0])
	s.b.endpoints(t, "a/10.1.0.1", "b/10.2.0.1")
}

// refused is an address of a's that b has reserved, in as many revisions as it takes for the same Event of the
// same import to come again.
func (s *set) refused(t *testing.T) {
	svc := service("odd", 80)
	s.a.exported(t, svc, "10.77.1.1")
	for n := 7; n < 200 && again(t, s.b.Client, shop, "EndpointsRefused", svc.Name, 2) != nil; n++ {
		address := fmt.Sprintf("10.1.0.%d", n)
		change(t, s.a, slice(svc, ""), func(s *discoveryv1.EndpointSlice) {
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{address}})
		})
		until(t, "b has "+address, func() error {
			var imported discoveryv1.EndpointSliceList
			err := s.b.List(
				t.Context(),
				&imported,
				client.InNamespace(shop),
				client.MatchingLabels{mcsv1beta1.LabelServiceName: svc.Name},
			)
			if err == nil && !strings.Contains(fmt.Sprint(imported.Items), address) {
				err = fmt.Errorf("it has %v", imported.Items)
			}
			return err
		})
	}
	told(t, s.b.Client, shop, "EndpointsRefused", svc.Name, 2)
	s.a.remove(t, export("odd"))
	until(
		t,
		"odd is imported no more",
		func() error { return gone(t, s.b, &mcsv1beta1.ServiceImport{}, key("odd")) },
	)
}

// namespaces come and go.
func (s *set) namespaces(t *testing.T) {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shop}}
	s.b.remove(t, ns)
	s.a.imports(t, "web", "a")
	until(t, "the namespace is gone", func() error { return gone(t, s.b, ns, client.ObjectKeyFromObject(ns)) })
	s.b.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shop}})
	s.b.imports(t, "web", "a")
	s.b.exported(t, service("web", 80), "10.2.0.1")
	s.a.imports(t, "web", "a", "b")
}

// declared is an import in b that another program declared.
func (s *set) declared(t *testing.T) {
	set := &hubv1alpha1.ClusterSet{}
	change(t, &member{&lab.Member{ID: "hub"}, s.hub}, named(set, lab.HubNamespace, lab.HubNamespace),
		func(c *hubv1alpha1.ClusterSet) { c.Spec.DeclaredImports = hubv1alpha1.DeclaredImportsFill })
	declared := &mcsv1beta1.ServiceImport{
		ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: "declared"},
		Spec: mcsv1beta1.ServiceImportSpec{
			Type: mcsv1beta1.ClusterSetIP, Ports: []mcsv1beta1.ServicePort{{Port: 80}},
		},
	}
	s.b.create(t, declared)
	s.a.exported(t, service("declared", 80), "10.1.0.3")
	vips := func(want int) {
		t.Helper()
		until(t, fmt.Sprintf("the declared import has %d VIPs", want), func() error {
			err := s.b.Get(t.Context(), key("declared"), declared)
			if err == nil && len(declared.Spec.IPs) != want {
				return fmt.Errorf("%+v", declared)
			}
			return err
		})
	}
	vips(1)
	s.a.remove(t, export("declared"))
	vips(0)
}

// missing is a namespace that b lacks.
func (s *set) missing(t *testing.T) {
	set := &hubv1alpha1.ClusterSet{}
	change(t, &member{&lab.Member{ID: "hub"}, s.hub}, named(set, lab.HubNamespace, lab.HubNamespace),
		func(c *hubv1alpha1.ClusterSet) { c.Spec.Namespaces.Missing = hubv1alpha1.MissingNamespacesCreate })
	s.a.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "later"}},
		named(service("web", 80), "later", "web"), named(export("web"), "later", "web"))
	until(t, "b has the namespace, and the import", func() error {
		return s.b.Get(t.Context(), client.ObjectKey{Namespace: "later", Name: "web"}, &mcsv1beta1.ServiceImport{})
	})
	s.a.remove(t, named(export("web"), "later", "web"))
}

// withdrawn are records that a has withdrawn long ago, as a hub brings them back that was restored from a backup.
func (s *set) withdrawn(t *testing.T) {
	long := metav1.NewTime(time.Now().Add(-2 * withdrawal.MaxRetention))
	origin := hubv1alpha1.Origin{
		ClusterID:        "a",
		ServiceNamespace: shop,
		ServiceName:      "old",
		Revision:         1,
	}
	records := []client.Object{
		&hubv1alpha1.ServiceExportRecord{
			Spec: hubv1alpha1.ServiceExportRecordSpec{Origin: origin, Withdrawn: true, WithdrawnAt: &long},
		},
		&hubv1alpha1.EndpointPage{
			Spec: hubv1alpha1.EndpointPageSpec{
				Origin: origin, EndpointGroup: hubv1alpha1.EndpointGroup{AddressType: discoveryv1.AddressTypeIPv4},
			},
		},
	}
	for i, name := range []string{"old.shop.a", "0.old.shop.a"} {
		records[i].SetNamespace(lab.HubNamespace)
		records[i].SetName(name)
		must(t, s.hub.Create(t.Context(), records[i]))
	}
	for _, r := range records {
		until(
			t,
			r.GetName()+" is deleted",
			func() error { return gone(t, s.hub, r, client.ObjectKeyFromObject(r)) },
		)
	}
}

// inventory has a property of a's shown on the hub.
func (s *set) inventory(t *testing.T) {
	region := &aboutv1beta1.ClusterProperty{Spec: aboutv1beta1.ClusterPropertySpec{Value: "eu-west"}}
	region.Name = "region.example.com"
	s.a.create(t, region)
	until(t, "the hub shows the region", func() error {
		p, err := s.profile(t, "a")
		if err == nil &&
			!slices.Contains(p.Status.Properties, inventoryv1alpha1.Property{Name: region.Name, Value: "eu-west"}) {
			return fmt.Errorf("%+v", p.Status.Properties)
		}
		return err
	})
}

// silence is b's agent's death and return. Leases are short meanwhile: with those, who is slow is dead, and other steps
// need both.
func (s *set) silence(t *testing.T) {
	lease := func(spec string) {
		t.Helper()
		_, err := s.Hub.Kubectl(t.Context(), "", "-n", lab.HubNamespace, "patch", "clusterset", lab.HubNamespace,
			"--type=merge", "-p", `{"spec":{"lease":`+spec+`}}`)
		must(t, err)
	}
	lease(`{"renewSeconds":2,"durationSeconds":6,"graceSeconds":2}`)
	s.b.Agent.Kill()
	s.a.endpoints(t, "a/10.1.0.1")
	told(t, s.a.Client, kube.SystemNamespace, "SourceExpired", "source-b", 1)
	until(t, "the hub calls b silent", func() error {
		p, err := s.profile(t, "b")
		if err == nil &&
			!meta.IsStatusConditionPresentAndEqual(
				p.Status.Conditions,
				inventoryv1alpha1.ConditionControlPlaneHealthy,
				metav1.ConditionUnknown,
			) {
			return fmt.Errorf("%+v", p.Status.Conditions)
		}
		return err
	})
	must(t, s.b.Agent.Start(t.Context()))
	s.a.endpoints(t, "a/10.1.0.1", "b/10.2.0.1")
	lease("null")
}

// ranges are of VIPs: both members make a range of their block, b's runs short of addresses, and each reports of a
// range that its admin makes.
func (s *set) ranges(t *testing.T) {
	set := &hubv1alpha1.ClusterSet{}
	change(
		t,
		&member{&lab.Member{ID: "hub"}, s.hub},
		named(set, lab.HubNamespace, lab.HubNamespace),
		func(c *hubv1alpha1.ClusterSet) {
			c.Spec.VIPs.Mode, c.Spec.VIPs.Pools = hubv1alpha1.VIPModePreferred, []string{"10.200.0.0/24"}
		},
	)
	until(t, "blocks", func() error { // the hub's program writes there too, and keeps what stands there
		if err := s.hub.Get(t.Context(), client.ObjectKeyFromObject(set), set); err != nil {
			return err
		}
		set.Status.Blocks = []hubv1alpha1.Block{
			{ClusterID: "a", CIDR: "10.200.0.0/28"},
			{ClusterID: "b", CIDR: "10.200.0.16/30"},
		}
		return s.hub.Status().Update(t.Context(), set)
	})
	for _, name := range []string{"one", "two"} {
		s.a.exported(t, service(name, 80), "10.1.0.1")
		for _, m := range []*member{s.a, s.b} {
			until(t, "the VIP of "+name, func() error {
				imp := &mcsv1beta1.ServiceImport{}
				err := m.Get(t.Context(), key(name), imp)
				if err == nil && (len(imp.Spec.IPs) == 0 || !strings.HasPrefix(imp.Spec.IPs[0], "10.200.")) {
					return fmt.Errorf("%+v %+v", imp.Spec, imp.Status)
				}
				return err
			})
		}
	}
	property := func(m *member, name, want string) {
		t.Helper()
		until(t, m.ID+" says "+name, func() error {
			p := &aboutv1beta1.ClusterProperty{}
			err := m.Get(t.Context(), client.ObjectKey{Name: name}, p)
			if err == nil && p.Spec.Value != want {
				return errors.New(p.Spec.Value)
			}
			return err
		})
	}
	property(s.b, clusterset.PropertyBlocks, "ipv4=2 ipv6=0")
	byHand := &networkingv1.ServiceCIDR{Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.201.0.0/28"}}}
	byHand.Name = "by-hand"
	s.b.create(t, byHand)
	property(
		s.b,
		clusterset.PropertyServiceRanges,
		"10.96.0.0/16 10.200.0.16/30 10.201.0.0/28",
	) // with the block that it uses
}

func named[T client.Object](o T, namespace, name string) T {
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

// leave takes b out, as its own admin does, and join takes it in again.
func (s *set) leave(t *testing.T) {
	property := &aboutv1beta1.ClusterProperty{}
	property.Name = clusterset.PropertySet
	change(t, s.b, property, func(p *aboutv1beta1.ClusterProperty) {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, clusterset.AnnotationLeaving, "true")
	})
	until(t, "b has left", func() error {
		_, err := s.profile(t, "b")
		return errors.Join(
			gone(t, s.b, property, client.ObjectKey{Name: property.Name}),
			absent("ClusterProfile b", err),
		)
	})
	s.a.imports(t, "web", "a")
	until(t, "b's Membership says so", func() error {
		m := &hubv1alpha1.Membership{}
		err := s.b.Get(t.Context(), client.ObjectKey{Name: hubv1alpha1.MembershipName}, m)
		if err == nil && (meta.IsStatusConditionTrue(m.Status.Conditions, hubv1alpha1.ConditionAdmitted) ||
			!meta.IsStatusConditionFalse(m.Status.Conditions, hubv1alpha1.ConditionMembershipReady)) {
			return fmt.Errorf("%+v", m.Status.Conditions)
		}
		return err
	})
	s.join(t, s.b)
	s.a.imports(t, "web", "a", "b")
	s.b.imports(t, "web", "a", "b")
}

// pages are of an export with more endpoints than a record has. When a is evicted, it has some.
func (s *set) pages(t *testing.T) {
	svc := service("many", 80)
	all := slice(svc)
	for n := range 250 {
		all.Endpoints = append(all.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.1.1.%d", n)}})
	}
	s.a.create(t, svc, all, export("many"))
	imported := func(want int) {
		t.Helper()
		until(t, fmt.Sprintf("b has %d endpoints", want), func() error {
			var list discoveryv1.EndpointSliceList
			err := s.b.List(t.Context(), &list, client.InNamespace(shop),
				client.MatchingLabels{mcsv1beta1.LabelServiceName: "many"})
			have := 0
			for _, slice := range list.Items {
				have += len(slice.Endpoints)
			}
			if err == nil && have != want {
				err = fmt.Errorf("it has %d, in %d slices", have, len(list.Items))
			}
			return err
		})
	}
	imported(250)
	for _, left := range []int{240, 180} { // a page changes, and goes
		change(t, s.a, slice(svc), func(s *discoveryv1.EndpointSlice) { s.Endpoints = s.Endpoints[:left] })
		imported(left)
	}
}

// evict takes a out, as the hub's admin does, while its agent runs.
func (s *set) evict(t *testing.T) {
	p, err := s.profile(t, "a")
	must(t, err)
	must(t, s.hub.Delete(t.Context(), p))
	until(t, "a is evicted", func() error { _, err := s.profile(t, "a"); return absent("ClusterProfile a", err) })
	s.b.imports(t, "web", "b")
	s.a.Agent.Terminate()
	s.join(t, s.a)
	must(t, s.a.Agent.Start(t.Context()))
	s.b.imports(t, "web", "a", "b")
}

// join gives a member its claim and its credentials again; the agent reads these from the file that it was started
// with.
func (s *set) join(t *testing.T, m *member) {
	must(t, s.Hub.Apply(t.Context(), lab.HubMember(s.root, m.ID)))
	_, err := s.Hub.ServiceAccountKubeconfig(t.Context(), lab.HubNamespace, clusterset.AccountPrefix+m.ID, m.ToHub)
	must(t, err)
}

func (s *set) profile(t *testing.T, id string) (*inventoryv1alpha1.ClusterProfile, error) {
	p := &inventoryv1alpha1.ClusterProfile{}
	return p, s.hub.Get(t.Context(), client.ObjectKey{Namespace: lab.HubNamespace, Name: id}, p)
}

// absent is nil for the error of what is not there.
func absent(what string, err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("%s is there: %w", what, err)
}

func gone(t *testing.T, in client.Client, o client.Object, name client.ObjectKey) error {
	return absent(fmt.Sprintf("%T %s", o, name), in.Get(t.Context(), name, o))
}

// told waits for an Event that was seen so many times.
func told(t *testing.T, in client.Client, ns, reason, about string, times int) {
	t.Helper()
	until(
		t,
		fmt.Sprintf("Event %s about %s, %d times", reason, about, times),
		func() error { return again(t, in, ns, reason, about, times) },
	)
}

// again reports whether an Event came so many times about the same object, of the same version.
func again(t *testing.T, in client.Client, ns, reason, about string, times int) error {
	var events corev1.EventList
	if err := in.List(t.Context(), &events, client.InNamespace(ns)); err != nil {
		return err
	}
	var seen []string
	for _, e := range events.Items {
		n := 1
		if e.Series != nil {
			n = int(e.Series.Count)
		}
		if e.InvolvedObject.Name == about && e.Reason == reason && n >= times {
			return nil
		}
		seen = append(seen, fmt.Sprintf("%s %s %d", e.InvolvedObject.Name, e.Reason, n))
	}
	return errors.New("only " + strings.Join(seen, ", "))
}
