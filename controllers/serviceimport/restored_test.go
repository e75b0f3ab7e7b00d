package serviceimport

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/endpoints"
)

// addresses are those of all imported endpoints, sorted.
func (m *member) addresses() string {
	m.t.Helper()
	var out []string
	for _, slice := range m.slices() {
		if slice.Labels[mcsv1beta1.LabelServiceName] != "web" {
			continue
		}
		for _, e := range slice.Endpoints {
			out = append(out, e.Addresses[0])
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// paged has cluster c export pages with one endpoint each, 10.0.2.N.
func paged(t *testing.T, pages int32) *member {
	t.Helper()
	m := newMember(t)
	m.export("b", "10.2.0.1")
	m.export("c", "10.3.0.1")
	m.edit("c", func(rec *hubv1alpha1.ServiceExportRecord) { rec.Spec.Endpoints, rec.Spec.Pages = nil, pages })
	for number := range pages {
		m.page("c", number, fmt.Sprint("10.0.2.", number))
		m.page("c", number, fmt.Sprint("10.0.2.", number)) // revision 2
	}
	for range 3 {
		if err := m.pass(); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// TestS2WhatARestoredHubShowsIsNotFollowed: what is older than what was imported stays, and so does what is missing.
// What the latest record does not state goes.
func TestS2WhatARestoredHubShowsIsNotFollowed(t *testing.T) {
	record := func(change func(*hubv1alpha1.ServiceExportRecord)) func(*member) {
		return func(m *member) {
			m.edit("c", func(rec *hubv1alpha1.ServiceExportRecord) {
				rec.Spec.Revision-- // that edit has added
				change(rec)
			})
		}
	}
	page := func(number int32, change func(*hubv1alpha1.EndpointPage)) func(*member) {
		return func(m *member) {
			page := &hubv1alpha1.EndpointPage{}
			page.Namespace, page.Name = "set", clusterset.PageName(number, "web", "shop", "c")
			edited(m, m.hub, page, client.ObjectKeyFromObject(page), change)
		}
	}
	lose := func(number int32) func(*member) {
		return func(m *member) {
			page := &hubv1alpha1.EndpointPage{}
			page.Namespace, page.Name = "set", clusterset.PageName(number, "web", "shop", "c")
			if err := m.hub.Delete(m.t.Context(), page); err != nil {
				m.t.Fatal(err)
			}
		}
	}
	for what, c := range map[string]struct {
		changes []func(*member)
		want    string // of cluster c, by the last octet
	}{
		"nothing": {nil, "0 1 2"},
		"an older record without pages": {[]func(*member){record(func(rec *hubv1alpha1.ServiceExportRecord) {
			rec.Spec.Revision, rec.Spec.Pages = 1, 0
		})}, "0 1 2"},
		"an older record with fewer pages": {[]func(*member){record(func(rec *hubv1alpha1.ServiceExportRecord) {
			rec.Spec.Revision, rec.Spec.Pages = 1, 1
		}), lose(1), lose(2)}, "0 1 2"},
		"no record": {[]func(*member){func(m *member) {
			rec := &hubv1alpha1.ServiceExportRecord{}
			if err := m.records("c", rec).Delete(m.t.Context(), rec); err != nil {
				m.t.Fatal(err)
			}
		}}, "0 1 2"},
		"nothing at all": {[]func(*member){func(m *member) {
			rec := &hubv1alpha1.ServiceExportRecord{}
			if err := m.records("c", rec).Delete(m.t.Context(), rec); err != nil {
				m.t.Fatal(err)
			}
		}, lose(0), lose(1), lose(2)}, "0 1 2"},
		"an older page": {[]func(*member){page(1, func(p *hubv1alpha1.EndpointPage) {
			p.Spec.Revision, p.Spec.Endpoints[0].Address = 1, "10.0.2.9"
		})}, "0 1 2"},
		"an older page, and another one that changes": {[]func(*member){page(1, func(p *hubv1alpha1.EndpointPage) {
			p.Spec.Revision, p.Spec.Endpoints[0].Address = 1, "10.0.2.9"
		}), page(2, func(p *hubv1alpha1.EndpointPage) {
			p.Spec.Revision, p.Spec.Endpoints[0].Address = 3, "10.0.2.9"
		})}, "0 1 2"},
		"two pages that exchange their families, and one of them is missing": {[]func(*member){
			page(0, func(p *hubv1alpha1.EndpointPage) {
				p.Spec.Revision, p.Spec.AddressType = 3, discoveryv1.AddressTypeIPv6
			}), lose(1),
		}, "0 1 2"},
		"a missing page": {[]func(*member){lose(1)}, "0 1 2"},
		"a missing page, and another one that changes": {[]func(*member){lose(1), page(2,
			func(p *hubv1alpha1.EndpointPage) {
				p.Spec.Revision, p.Spec.Endpoints[0].Address = 3, "10.0.2.9"
			})}, "0 1 2"}, // which may be in the missing one by now
		"a missing page, and another one that was recreated": {[]func(*member){lose(0), lose(1), func(m *member) {
			m.page("c", 0, "10.0.2.9")
			page(0, func(p *hubv1alpha1.EndpointPage) {
				p.CreationTimestamp.Time = p.CreationTimestamp.Add(time.Minute)
				p.Spec.Revision = 3
			})(m)
		}}, "0 1 2"},
		"a page that says that it is another one": {[]func(*member){page(1, func(p *hubv1alpha1.EndpointPage) {
			p.Spec.Revision, p.Spec.Number = 3, 2
		})}, "0 1 2"},
		"a page that nobody states": {[]func(*member){func(m *member) {
			m.edit("c", func(rec *hubv1alpha1.ServiceExportRecord) { rec.Spec.Pages = 2 })
		}}, "0 1"},
		"a page that nobody states, and that goes": {[]func(*member){func(m *member) {
			m.edit("c", func(rec *hubv1alpha1.ServiceExportRecord) { rec.Spec.Pages = 2 })
		}, lose(2)}, "0 1"},
		"back in the record": {[]func(*member){func(m *member) {
			m.edit("c", func(rec *hubv1alpha1.ServiceExportRecord) {
				rec.Spec.Revision, rec.Spec.Pages = 10, 0
				rec.Spec.Endpoints = []hubv1alpha1.EndpointGroup{{
					AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []hubv1alpha1.Endpoint{{Address: "10.0.2.7"}},
				}}
			})
		}, lose(0), lose(1), lose(2)}, "7"},
		"no endpoints any more": {[]func(*member){func(m *member) {
			m.edit("c", func(rec *hubv1alpha1.ServiceExportRecord) { rec.Spec.Revision, rec.Spec.Pages = 10, 0 })
		}}, ""},
	} {
		t.Run(what, func(t *testing.T) {
			m := paged(t, 3)
			for _, change := range c.changes {
				change(m)
			}
			for range 3 {
				if err := m.pass(); err != nil {
					t.Fatal(err)
				}
			}
			want := strings.TrimSpace("10.0.2." + strings.Join(strings.Fields(c.want), " 10.0.2.") + " 10.2.0.1")
			if c.want == "" {
				want = "10.2.0.1"
			}
			if got := m.addresses(); got != want {
				t.Errorf("imported %s, want %s", got, want)
			}
			m.edit(
				"b",
				func(rec *hubv1alpha1.ServiceExportRecord) { rec.Spec.Endpoints[0].Endpoints[0].Address = "10.2.0.2" },
			)
			if err := m.pass(); err != nil || m.addresses() != strings.TrimSuffix(want, "1")+"2" {
				t.Errorf("then another cluster's endpoint changes: %v, %s", err, m.addresses())
			}
			before := m.writes
			if err := m.pass(); err != nil || m.writes != before {
				t.Errorf("it is not settled: %v, %d writes", err, m.writes-before)
			}
		})
	}
}

// TestS2WhatAPassLeftUnfinishedIsHeld: an agent ends after some writes of a pass that imports a change and a new group,
// and the hub loses the record. The imported slices say what is held: no projection has an endpoint that they lack.
func TestS2WhatAPassLeftUnfinishedIsHeld(t *testing.T) {
	projected := func(m *member) (out []string) {
		for _, slice := range m.slices() {
			for _, e := range slice.Endpoints {
				if endpoints.IsProjection(slice.Name) {
					out = append(out, slice.Name+" "+e.Addresses[0])
				}
			}
		}
		return out
	}
	ended := errors.New("the agent has ended")
	for writes, failed := 0, true; failed; writes++ {
		m := newMember(t)
		m.Addresses, m.Gateways = &ranges{}, func() bool { return true }
		m.export("c", "10.3.0.1")
		m.edit("c", func(rec *hubv1alpha1.ServiceExportRecord) { rec.Spec.Type = mcsv1beta1.ClusterSetIP })
		m.mustPass()
		m.edit("c", func(rec *hubv1alpha1.ServiceExportRecord) {
			another := rec.Spec.Endpoints[0].DeepCopy()
			another.Endpoints[0].Address, another.Ports[0].Target = "10.3.0.3", new(int32(9090))
			rec.Spec.Endpoints[0].Endpoints = append(
				rec.Spec.Endpoints[0].Endpoints, hubv1alpha1.Endpoint{Address: "10.3.0.2"})
			rec.Spec.Endpoints = append(rec.Spec.Endpoints, *another)
		})
		left := writes
		write := func(do func() error) error {
			if left--; left < 0 {
				return ended
			}
			return do()
		}
		m.Local = interceptor.NewClient(m.local, interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				return write(func() error { return c.Create(ctx, o, opts...) })
			},
			Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
				return write(func() error { return c.Update(ctx, o, opts...) })
			},
		})
		failed = m.pass() != nil
		m.Local = m.local
		clear(m.unseen)
		before := projected(m)
		rec := &hubv1alpha1.ServiceExportRecord{}
		if err := m.records("c", rec).Delete(t.Context(), rec); err != nil {
			t.Fatal(err)
		}
		m.mustPass()
		is := projected(m)
		for _, endpoint := range before {
			if !slices.Contains(is, endpoint) {
				t.Errorf("after %d writes, without the record %s goes", writes, endpoint)
			}
		}
	}
}

// TestS2ARecreatedRecordMayHaveALowerRevision: on a hub that was emptied, an owner that was restarted may not know the
// revision of its last change.
func TestS2ARecreatedRecordMayHaveALowerRevision(t *testing.T) {
	m := newMember(t)
	m.export("c", "10.3.0.1")
	m.edit("c", func(rec *hubv1alpha1.ServiceExportRecord) { rec.Spec.Revision = 10 })
	change := func(revision int64, address string) {
		t.Helper()
		m.edit("c", func(rec *hubv1alpha1.ServiceExportRecord) {
			rec.UID, rec.CreationTimestamp = "another", metav1.NewTime(rec.CreationTimestamp.Add(time.Minute))
			rec.Spec.Revision, rec.Spec.Endpoints[0].Endpoints[0].Address = revision, address
		})
		for range 2 {
			if err := m.pass(); err != nil {
				t.Fatal(err)
			}
		}
		if m.addresses() != address {
			t.Errorf("revision %d: imported %s, want %s", revision, m.addresses(), address)
		}
	}
	if err := m.pass(); err != nil || m.addresses() != "10.3.0.1" {
		t.Fatalf("%v, %s", err, m.addresses())
	}
	change(5, "10.3.0.2")
	m.edit("c", func(rec *hubv1alpha1.ServiceExportRecord) {
		rec.Spec.Revision, rec.Spec.Endpoints[0].Endpoints[0].Address = 6, "10.3.0.3"
	})
	if err := m.pass(); err != nil || m.addresses() != "10.3.0.3" {
		t.Errorf("then it changes: %v, %s", err, m.addresses())
	}
	change(4, "10.3.0.4")
}

// TestS2AnInlineRecordThatIsOlder, or that a backup without endpoints brought back, takes no endpoint.
func TestS2AnInlineRecordThatIsOlder(t *testing.T) {
	for what, change := range map[string]func(*hubv1alpha1.ServiceExportRecord){
		"other endpoints": func(rec *hubv1alpha1.ServiceExportRecord) {
			rec.Spec.Endpoints[0].Endpoints[0].Address = "10.3.0.9"
		},
		"no endpoints": func(rec *hubv1alpha1.ServiceExportRecord) { rec.Spec.Endpoints = nil },
		"pages":        func(rec *hubv1alpha1.ServiceExportRecord) { rec.Spec.Endpoints, rec.Spec.Pages = nil, 1 },
		"withdrawn": func(rec *hubv1alpha1.ServiceExportRecord) {
			rec.Spec.Withdrawn, rec.Spec.Endpoints = true,
				nil
		},
	} {
		m := newMember(t)
		m.export("c", "10.3.0.1")
		m.edit("c", func(rec *hubv1alpha1.ServiceExportRecord) { rec.Spec.Revision = 5 })
		if err := m.pass(); err != nil {
			t.Fatal(err)
		}
		// Endpoints alone change: the copy stays as it is, and only the imported slice knows revision 7.
		m.edit("c", func(rec *hubv1alpha1.ServiceExportRecord) {
			rec.Spec.Revision, rec.Spec.Endpoints[0].Endpoints[0].Address = 7, "10.3.0.2"
		})
		for _, older := range []int64{6, 4} {
			if err := m.pass(); err != nil || m.addresses() != "10.3.0.2" {
				t.Fatalf("%s: %v, %s", what, err, m.addresses())
			}
			if older == 6 && what == "withdrawn" {
				continue // the copy is of revision 5, so nothing shows that this withdrawal is older
			}
			m.edit("c", func(rec *hubv1alpha1.ServiceExportRecord) {
				change(rec)
				rec.Spec.Revision = older
			})
			for range 2 {
				if err := m.pass(); err != nil {
					t.Fatal(err)
				}
			}
			if m.addresses() != "10.3.0.2" {
				t.Errorf("%s of revision %d: imported %s", what, older, m.addresses())
			}
			m.edit("c", func(rec *hubv1alpha1.ServiceExportRecord) {
				rec.Spec.Withdrawn, rec.Spec.Pages, rec.Spec.Revision = false, 0, 7
				rec.Spec.Endpoints = []hubv1alpha1.EndpointGroup{{
					AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []hubv1alpha1.Endpoint{{Address: "10.3.0.2"}},
				}}
			})
		}
	}
}

// TestAChangeWithTheSameRevisionIsFollowed: the owner of a record whose revision a thief has set to the highest one
// writes with that.
func TestAChangeWithTheSameRevisionIsFollowed(t *testing.T) {
	m := newMember(t)
	m.export("c", "10.3.0.1")
	for _, address := range []string{"10.3.0.2", "10.3.0.3"} {
		m.edit("c", func(rec *hubv1alpha1.ServiceExportRecord) {
			rec.Spec.Revision, rec.Spec.Endpoints[0].Endpoints[0].Address = clusterset.MaxRevision, address
		})
		if err := m.pass(); err != nil || m.addresses() != address {
			t.Errorf("%v: imported %s, want %s", err, m.addresses(), address)
		}
	}
	m.edit("c", func(rec *hubv1alpha1.ServiceExportRecord) {
		rec.Spec.Withdrawn, rec.Spec.Endpoints = true, nil
	})
	for range 2 {
		if err := m.pass(); err != nil {
			t.Fatal(err)
		}
	}
	if m.addresses() != "" {
		t.Errorf("withdrawn, and imported %s", m.addresses())
	}
}

// TestE10AHeldRecordSaysSo: the copy has condition Held while the hub shows an older record or none, and not after.
func TestE10AHeldRecordSaysSo(t *testing.T) {
	m := newMember(t)
	m.export("c", "10.3.0.1")
	m.edit("c", func(rec *hubv1alpha1.ServiceExportRecord) { rec.Spec.Revision = 5 })
	held := func() string {
		t.Helper()
		if err := m.pass(); err != nil {
			t.Fatal(err)
		}
		rec := &hubv1alpha1.ServiceExportRecord{}
		rec.Namespace, rec.Name = "clusterset-system", "web.shop.c"
		c := meta.FindStatusCondition(m.read(rec).(*hubv1alpha1.ServiceExportRecord).Status.Conditions, "Held")
		if c == nil {
			return ""
		}
		return string(c.Status) + " " + c.Reason
	}
	if got := held(); got != "" {
		t.Errorf("at first %q", got)
	}
	m.edit("c", func(rec *hubv1alpha1.ServiceExportRecord) { rec.Spec.Revision = 4 })
	if got := held(); got != "True OlderRevision" {
		t.Errorf("an older revision: %q", got)
	}
	m.edit("c", func(rec *hubv1alpha1.ServiceExportRecord) { rec.Spec.Revision = 6 })
	if got := held(); got != "False Current" {
		t.Errorf("a newer revision: %q", got)
	}
	if err := m.hub.DeleteAllOf(
		t.Context(),
		&hubv1alpha1.ServiceExportRecord{},
		client.InNamespace("set"),
	); err != nil {
		t.Fatal(err)
	}
	if got := held(); got != "True Absent" || m.addresses() != "10.3.0.1" {
		t.Errorf("no record: %q, %s", got, m.addresses())
	}
	if n := len(m.told); n != 2 || m.told[0] != "RecordHeld" {
		t.Errorf("Events %v", m.told)
	}
}

// TestE11ARecordThatGoesToOthersIsHeldNoLonger once its owner has published again, though nothing of it is imported.
func TestE11ARecordThatGoesToOthersIsHeldNoLonger(t *testing.T) {
	m := newMember(t)
	m.export("b", "10.2.0.1")
	m.export("c", "10.3.0.1")
	for _, c := range []struct {
		revision int64
		held     bool
	}{{5, false}, {4, true}, {6, false}} {
		m.edit("c", func(rec *hubv1alpha1.ServiceExportRecord) {
			rec.Spec.ExportTo, rec.Spec.Revision = "cluster=z", c.revision
		})
		m.mustPass()
		m.mustPass()
		rec := &hubv1alpha1.ServiceExportRecord{}
		rec.Namespace, rec.Name = "clusterset-system", "web.shop.c"
		conditions := m.read(rec).(*hubv1alpha1.ServiceExportRecord).Status.Conditions
		if meta.IsStatusConditionTrue(conditions, "Held") != c.held {
			t.Errorf("revision %d: %+v", c.revision, conditions)
		}
	}
}

// TestI2ACopyThatCannotBeWrittenHoldsOnlyItsCluster: a quota of clusterset-system, say. The endpoints of that cluster
// and what it published before stay, and all others are followed.
func TestI2ACopyThatCannotBeWrittenHoldsOnlyItsCluster(t *testing.T) {
	m := newMember(t)
	for i, cluster := range []string{"b", "c", "d"} {
		m.export(cluster, fmt.Sprintf("10.%d.0.1", i+2))
	}
	if err := m.pass(); err != nil {
		t.Fatal(err)
	}
	quota := apierrors.NewForbidden(hubv1alpha1.GroupVersion.WithResource("serviceexportrecords").GroupResource(),
		"x", errors.New("exceeded quota"))
	refused := func(o client.Object) bool {
		return o.GetNamespace() == "clusterset-system" && (o.GetName() == "web.shop.c" || o.GetName() == "web.shop.e")
	}
	m.Local = interceptor.NewClient(m.local, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if refused(o) {
				return quota
			}
			return c.Create(ctx, o, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			if refused(o) {
				return quota
			}
			return c.Update(ctx, o, opts...)
		},
	})
	affinity := func(rec *hubv1alpha1.ServiceExportRecord) { rec.Spec.SessionAffinity = corev1.ServiceAffinityClientIP }
	m.edit("c", affinity)     // a change that its copy cannot follow
	m.export("e", "10.5.0.1") // a new one that cannot be copied
	m.edit("b", func(rec *hubv1alpha1.ServiceExportRecord) { rec.Spec.Endpoints[0].Endpoints[0].Address = "10.2.0.2" })
	m.edit("d", func(rec *hubv1alpha1.ServiceExportRecord) { rec.Spec.Withdrawn, rec.Spec.Endpoints = true, nil })
	for range 2 {
		if err := m.pass(); !errors.Is(err, quota) || m.addresses() != "10.2.0.2 10.3.0.1" {
			t.Errorf("%v, %s", err, m.addresses())
		}
	}
	m.edit("c", func(rec *hubv1alpha1.ServiceExportRecord) { rec.Spec.Withdrawn, rec.Spec.Endpoints = true, nil })
	if err := m.pass(); !errors.Is(err, quota) || m.addresses() != "10.2.0.2 10.3.0.1" {
		t.Errorf("withdrawn, and the copy cannot say so: %v, %s", err, m.addresses())
	}
	m.Local = m.local
	for range 2 {
		if err := m.pass(); err != nil {
			t.Fatal(err)
		}
	}
	if m.addresses() != "10.2.0.2 10.5.0.1" {
		t.Errorf("then: %s", m.addresses())
	}
}

// TestC9APortThatGetsAnotherNameIsNeverCut here: an exporter's record has names and endpoints in one object, and this
// cluster's own Service, slices and copy get a new name one after the other, in any order.
func TestC9APortThatGetsAnotherNameIsNeverCut(t *testing.T) {
	port := func(name string, number int32) corev1.ServicePort {
		return corev1.ServicePort{Name: name, Protocol: corev1.ProtocolTCP, Port: number}
	}
	of := func(ports []corev1.ServicePort) (slice []discoveryv1.EndpointPort, record []hubv1alpha1.ServicePort) {
		for _, p := range ports {
			slice = append(
				slice,
				discoveryv1.EndpointPort{Name: &p.Name, Protocol: &p.Protocol, Port: new(p.Port + 8000)},
			)
			record = append(record, hubv1alpha1.ServicePort{Name: p.Name, Protocol: p.Protocol, Port: p.Port})
		}
		return slice, record
	}
	for what, c := range map[string]struct{ before, after []corev1.ServicePort }{
		"renamed": {[]corev1.ServicePort{port("http", 80)}, []corev1.ServicePort{port("web", 80)}},
		"a second one": {[]corev1.ServicePort{port("", 80)}, []corev1.ServicePort{port("http", 80), port("metrics",
			90)}},
	} {
		for _, order := range [][3]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
			m := newMember(t)
			m.Addresses = &ranges{}
			native := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{
				Namespace: "shop",
				Name:      "web-1",
				Labels: map[string]string{
					discoveryv1.LabelServiceName: "web",
					discoveryv1.LabelManagedBy:   "endpointslice-controller.k8s.io",
				},
			}, AddressType: discoveryv1.AddressTypeIPv4,
				Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.1.0.1"}}}}
			native.Ports, _ = of(c.before)
			service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
			service.Spec.Ports = c.before
			m.export("a", "")
			m.export("c", "10.3.0.1")
			for _, cluster := range []string{"a", "c"} {
				m.edit(cluster, func(rec *hubv1alpha1.ServiceExportRecord) {
					rec.Spec.Type = mcsv1beta1.ClusterSetIP
					_, rec.Spec.Ports = of(c.before)
				})
			}
			if err := errors.Join(
				m.local.Create(t.Context(), native),
				m.local.Create(t.Context(), service),
			); err != nil {
				t.Fatal(err)
			}
			check := func(step string) {
				t.Helper()
				for range 3 {
					if err := m.pass(); err != nil {
						t.Fatal(err)
					}
					for cluster, slice := range m.traffic() {
						is80 := func(p discoveryv1.EndpointPort) bool {
							return *p.Name == "clusterset-tcp-80" &&
								*p.Port == 8080
						}
						if cluster != "" && !slices.ContainsFunc(slice.Ports, is80) {
							t.Errorf(
								"%s, order %v, %s: the slice of %s has ports %+v",
								what,
								order,
								step,
								cluster,
								slice.Ports,
							)
						}
					}
				}
			}
			check("before")
			steps := []func(){
				func() {
					edited(
						m,
						m.local,
						service,
						client.ObjectKeyFromObject(service),
						func(s *corev1.Service) { s.Spec.Ports = c.after },
					)
				},
				func() {
					edited(
						m,
						m.local,
						native,
						client.ObjectKeyFromObject(native),
						func(s *discoveryv1.EndpointSlice) { s.Ports, _ = of(c.after) },
					)
				},
				func() { m.edit("a", func(rec *hubv1alpha1.ServiceExportRecord) { _, rec.Spec.Ports = of(c.after) }) },
			}
			for _, i := range order {
				steps[i]()
				check(fmt.Sprint("after step ", i))
			}
			m.edit("c", func(rec *hubv1alpha1.ServiceExportRecord) { _, rec.Spec.Ports = of(c.after) })
			check("the other cluster, too")
		}
	}
}
