package serviceimport

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// refusal returns the message of the condition EndpointsImported of a cluster's copy, or "".
func (m *member) refusal(cluster string) string {
	m.t.Helper()
	reason, message := m.lost(cluster)
	if message != "" && reason != hubv1alpha1.ReasonEndpointsRefused {
		m.t.Error(reason)
	}
	return message
}

// lost returns why endpoints of a cluster are not imported, or "".
func (m *member) lost(cluster string) (reason, message string) {
	m.t.Helper()
	rec := &hubv1alpha1.ServiceExportRecord{}
	name := types.NamespacedName{Namespace: kube.SystemNamespace, Name: clusterset.RecordName("web", "shop", cluster)}
	if err := m.local.Get(m.t.Context(), name, rec); err != nil {
		m.t.Fatal(err)
	}
	c := meta.FindStatusCondition(rec.Status.Conditions, hubv1alpha1.ConditionEndpointsImported)
	if c == nil {
		return "", ""
	}
	if c.Status != "False" {
		m.t.Errorf("%+v", c)
	}
	return c.Reason, c.Message
}

// TestS4TheCopySaysWhyEndpointsAreMissing, in each way in which they get lost between their cluster and this one, as
// long as they are.
func TestS4TheCopySaysWhyEndpointsAreMissing(t *testing.T) {
	hold := func(m *member, cluster string) { // which says nothing about another one
		rec := &hubv1alpha1.ServiceExportRecord{}
		if err := m.records(cluster, rec).Delete(t.Context(), rec); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		what         string
		change, then func(*member)
		want         string
	}{
		{"a page is lost", func(m *member) {
			page := &hubv1alpha1.EndpointPage{}
			page.Namespace, page.Name = "set", clusterset.PageName(1, "web", "shop", "c")
			if err := m.hub.Delete(t.Context(), page); err != nil {
				t.Fatal(err)
			}
		}, func(m *member) {
			m.page("c", 1, "10.0.2.1")
			m.page("c", 1, "10.0.2.1")
			hold(m, "b")
		}, hubv1alpha1.ReasonEndpointsMissing},
		{"an address is refused", func(m *member) { m.page("c", 1, "127.0.0.1") }, func(m *member) {
			m.page("c", 1, "10.0.2.1")
			hold(m, "b")
		}, hubv1alpha1.ReasonEndpointsRefused},
		{"a page is older, as after a restore", func(m *member) {
			page := &hubv1alpha1.EndpointPage{}
			name := client.ObjectKey{Namespace: "set", Name: clusterset.PageName(1, "web", "shop", "c")}
			edited(m, m.hub, page, name, func(p *hubv1alpha1.EndpointPage) { p.Spec.Revision = 1 })
		}, func(m *member) { m.page("c", 1, "10.0.2.1") }, hubv1alpha1.ReasonEndpointsMissing},
		{"the hub refuses a page", func(m *member) {
			m.edit("c", func(rec *hubv1alpha1.ServiceExportRecord) { rec.Spec.Incomplete = true })
		}, func(m *member) {
			m.edit("c", func(rec *hubv1alpha1.ServiceExportRecord) { rec.Spec.Incomplete = false })
		}, hubv1alpha1.ReasonRefusedByHub},
		{"a quota here refuses a slice", func(m *member) {
			m.page("c", 3, "10.0.2.3")
			m.edit("c", func(rec *hubv1alpha1.ServiceExportRecord) { rec.Spec.Pages = 4 })
			m.refuse = apierrors.NewForbidden(schema.GroupResource{}, "x", errors.New("exceeded quota"))
		}, func(m *member) { m.refuse = nil }, hubv1alpha1.ReasonSliceRefused},
	} {
		m := paged(t, 3)
		want := func(when, want string) {
			t.Helper()
			for range 2 {
				if err := m.pass(); err != nil && m.refuse == nil {
					t.Fatal(err)
				}
			}
			reason, message := m.lost("c")
			says := want != hubv1alpha1.ReasonSliceRefused || strings.Contains(message, "exceeded quota")
			if reason != want || !says {
				t.Errorf("%s, %s: %q %q, want %q", c.what, when, reason, message, want)
			}
			if reason, _ := m.lost("b"); reason != "" {
				t.Errorf("%s, %s: cluster b: %s", c.what, when, reason)
			}
			if before := m.writes; m.pass() == nil && m.writes != before {
				t.Errorf("%s, %s: a pass without a change wrote %d times", c.what, when, m.writes-before)
			}
		}
		want("before", "")
		c.change(m)
		want("then", c.want)
		if _, was := m.lost("c"); m.refuse != nil { // each write would start another pass
			m.refuse = apierrors.NewForbidden(schema.GroupResource{}, "x", errors.New("exceeded quota: another text"))
			if err := m.pass(); err == nil {
				t.Errorf("%s: no error", c.what)
			}
			if _, is := m.lost("c"); is != was {
				t.Errorf("%s: the message %q became %q", c.what, was, is)
			}
		}
		c.then(m)
		want("after it", "")
	}
}

// TestS4TheCopySaysThatAChangeIsRefused, as by a webhook that is down: endpoints that are gone stay imported until the
// API server takes the change, whether the name was settled before or not.
func TestS4TheCopySaysThatAChangeIsRefused(t *testing.T) {
	for _, refusal := range []error{
		apierrors.NewInternalError(errors.New("failed calling webhook")),
		apierrors.NewForbidden(schema.GroupResource{}, "x", errors.New("failed calling webhook")),
	} {
		for what, change := range map[string]func(*member){
			"an endpoint is not ready": func(m *member) {
				m.editGroup("c", func(g *hubv1alpha1.EndpointGroup) { g.Endpoints[0].Ready = new(false) })
			},
			"an endpoint is gone": func(m *member) {
				m.editGroup("c", func(g *hubv1alpha1.EndpointGroup) { g.Endpoints = g.Endpoints[1:] })
			},
			"a group is gone": func(m *member) {
				m.edit("c", func(rec *hubv1alpha1.ServiceExportRecord) { rec.Spec.Endpoints = nil })
			},
			"the export is gone": func(m *member) {
				m.edit("c", func(rec *hubv1alpha1.ServiceExportRecord) { rec.Spec.Withdrawn = true })
			},
		} {
			m := newMember(t)
			m.export("b", "10.2.0.1")
			m.export("c", "10.3.0.1")
			for range 2 {
				m.mustPass()
			}
			whole := m.Local
			m.keep = refusal
			m.refuseWrites(func(o client.Object) error {
				if _, slice := o.(*discoveryv1.EndpointSlice); slice {
					return refusal
				}
				return nil
			})
			change(m)
			for pass := range 4 {
				before := m.writes
				if err := m.pass(); !errors.Is(err, refusal) || pass > 2 && m.writes != before {
					t.Errorf("%s, %v: a pass returns %v and writes %d times", what, refusal, err, m.writes-before)
				}
			}
			if reason, message := m.lost("c"); reason != hubv1alpha1.ReasonSliceRefused ||
				!strings.Contains(message, "failed calling webhook") || !m.has("c", "10.3.0.1") {
				t.Errorf("%s, %v: %q %q", what, refusal, reason, message)
			}
			if reason, _ := m.lost("b"); reason != "" {
				t.Errorf("%s, %v: cluster b: %s", what, refusal, reason)
			}
			m.keep, m.Local = nil, whole
			m.mustPass()
			if reason, _ := m.lost("c"); reason != "" {
				t.Errorf("%s, %v, then: %s", what, refusal, reason)
			}
		}
	}
}

// TestS4TheCopySaysAllThatIsMissing: the first cause is the reason, and the message names the others.
func TestS4TheCopySaysAllThatIsMissing(t *testing.T) {
	for what, c := range map[string]struct {
		change func(*member)
		reason string
		says   []string
	}{
		"a page, and held addresses are reserved by now": {func(m *member) {
			m.Reserved = []netip.Prefix{netip.MustParsePrefix("10.0.2.0/24")}
			page := &hubv1alpha1.EndpointPage{}
			page.Namespace, page.Name = "set", clusterset.PageName(1, "web", "shop", "c")
			if err := m.hub.Delete(t.Context(), page); err != nil {
				t.Fatal(err)
			}
		}, hubv1alpha1.ReasonEndpointsMissing, []string{"does not show all", "10.0.2.0, which", "10.0.2.1, which"}},
		"addresses of two pages": {func(m *member) {
			m.page("c", 0, "127.0.0.1")
			m.page("c", 1, "127.0.0.2")
		}, hubv1alpha1.ReasonEndpointsRefused, []string{"127.0.0.1", "127.0.0.2"}},
		"an address, and endpoints that the hub refuses": {func(m *member) {
			m.page("c", 0, "127.0.0.1")
			m.edit("c", func(rec *hubv1alpha1.ServiceExportRecord) { rec.Spec.Incomplete = true })
		}, hubv1alpha1.ReasonEndpointsRefused, []string{"the hub does not take all", "127.0.0.1"}},
	} {
		m := paged(t, 2)
		c.change(m)
		m.mustPass()
		reason, message := m.lost("c")
		if reason != c.reason {
			t.Errorf("%s: reason %q, want %q", what, reason, c.reason)
		}
		for _, text := range c.says {
			if !strings.Contains(message, text) {
				t.Errorf("%s: %q does not say %q", what, message, text)
			}
		}
	}
}

// TestS4AnInvalidGroupIsReportedOnce, and again if it is invalid for another cause.
func TestS4AnInvalidGroupIsReportedOnce(t *testing.T) {
	m := newMember(t)
	m.export("c", "10.3.0.1")
	for i, protocol := range []string{"a b", "c d"} {
		m.editGroup("c", func(g *hubv1alpha1.EndpointGroup) { g.Ports[0].AppProtocol = new(protocol) })
		for range 3 {
			m.mustPass()
		}
		if n := len(m.told); n != i+1 || m.told[i] != "RecordRefused" {
			t.Errorf("appProtocol %q: Events %v", protocol, m.told)
		}
	}
}

// TestS4NothingIsMissingOfWhatIsNotImported: the condition ends with the import, but not for want of the hub.
func TestS4NothingIsMissingOfWhatIsNotImported(t *testing.T) {
	for what, end := range map[string]func(*member){
		"the namespace goes": func(m *member) {
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
			if err := m.local.Delete(t.Context(), ns); err != nil {
				t.Fatal(err)
			}
		},
		"the namespace refuses imports": func(m *member) {
			edited(m, m.local, &corev1.Namespace{}, client.ObjectKey{Name: "shop"}, func(n *corev1.Namespace) {
				n.Annotations = map[string]string{"clusterset-dns.io/import": "false"}
			})
		},
	} {
		m := paged(t, 3)
		m.edit("c", func(rec *hubv1alpha1.ServiceExportRecord) { rec.Spec.Incomplete = true })
		passes := func() (reason string) {
			t.Helper()
			for range 2 {
				if err := m.pass(); err != nil {
					t.Fatal(err)
				}
			}
			reason, _ = m.lost("c")
			return reason
		}
		if reason := passes(); reason != hubv1alpha1.ReasonRefusedByHub {
			t.Fatalf("%s: before: %q", what, reason)
		}
		m.seesHub = false
		if reason := passes(); reason != hubv1alpha1.ReasonRefusedByHub {
			t.Errorf("%s: while the hub is away: %q", what, reason)
		}
		m.seesHub = true
		if end(m); passes() != "" {
			t.Errorf("%s: the condition stays", what)
		}
	}
}

// TestS4TheCopySaysWhatIsRefused as long as it is, whether the name was settled before or not: who looks for endpoints
// that are ready elsewhere finds it here.
func TestS4TheCopySaysWhatIsRefused(t *testing.T) {
	m := newMember(t)
	m.Reserved = []netip.Prefix{netip.MustParsePrefix("172.20.0.0/16")}
	m.export("b", "10.2.0.1")
	m.export("c", "10.3.0.1")
	for _, step := range []struct {
		what    string
		change  func(*hubv1alpha1.EndpointGroup)
		refusal string
	}{
		{"nothing", func(*hubv1alpha1.EndpointGroup) {}, ""},
		{"a reserved address", func(g *hubv1alpha1.EndpointGroup) {
			g.Endpoints = append(g.Endpoints, hubv1alpha1.Endpoint{Address: "172.20.0.9"})
		}, "address 172.20.0.9 is in 172.20.0.0/16"},
		{"a loopback address", func(g *hubv1alpha1.EndpointGroup) {
			g.Endpoints = []hubv1alpha1.Endpoint{{Address: "127.0.0.1"}}
		}, "address 127.0.0.1 is a loopback address"},
		{"a port that is none", func(g *hubv1alpha1.EndpointGroup) {
			g.Endpoints = []hubv1alpha1.Endpoint{{Address: "10.3.0.1"}}
			g.Ports[0].AppProtocol = new("a b")
		}, "importing endpoints of cluster c failed: port 80/TCP: appProtocol"},
		{"what is right", func(g *hubv1alpha1.EndpointGroup) { g.Ports[0].AppProtocol = nil }, ""},
	} {
		m.editGroup("c", step.change)
		for range 3 { // it settles
			if err := m.pass(); err != nil {
				t.Fatal(err)
			}
		}
		if got := m.refusal("c"); got == "" != (step.refusal == "") || !strings.Contains(got, step.refusal) {
			t.Errorf("%s: %q, want %q", step.what, got, step.refusal)
		}
		if _, remedy, found := strings.Cut(m.refusal("c"), "; "); step.refusal != "" && (!found || remedy == "") {
			t.Errorf("%s: %q names no remedy", step.what, m.refusal("c"))
		}
		if got := m.refusal("b"); got != "" {
			t.Errorf("%s: cluster b: %q", step.what, got)
		}
		if before := m.writes; m.pass() != nil || m.writes != before {
			t.Errorf("%s: a pass without a change wrote %d times", step.what, m.writes-before)
		}
	}
}

// TestU6ACopyThatThisClusterRefusesSaysSo: CRDs here may be older than what another member publishes. The last copy
// stays until they take the record.
func TestU6ACopyThatThisClusterRefusesSaysSo(t *testing.T) {
	m := newMember(t)
	m.export("b", "10.2.0.1")
	if err := m.pass(); err != nil {
		t.Fatal(err)
	}
	m.export("c", "10.3.0.1")
	name := types.NamespacedName{Namespace: "set", Name: clusterset.RecordName("web", "shop", "b")}
	rec := &hubv1alpha1.ServiceExportRecord{}
	if err := m.hub.Get(t.Context(), name, rec); err != nil {
		t.Fatal(err)
	}
	rec.Spec.SessionAffinity = "Cookie"
	rec.Spec.Revision++
	if err := m.hub.Update(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	refused := apierrors.NewInvalid(schema.GroupKind{Kind: "ServiceExportRecord"}, rec.Name, nil)
	m.Local = interceptor.NewClient(m.local, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if _, is := o.(*hubv1alpha1.ServiceExportRecord); is {
				return refused
			}
			return c.Create(ctx, o, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			if _, is := o.(*hubv1alpha1.ServiceExportRecord); is {
				return refused
			}
			return c.Update(ctx, o, opts...)
		},
	})
	if err := m.pass(); !apierrors.IsInvalid(err) {
		t.Fatal(err)
	}
	held := func() (message string) {
		copied := &hubv1alpha1.ServiceExportRecord{}
		name.Namespace = kube.SystemNamespace
		if err := m.local.Get(t.Context(), name, copied); err != nil {
			t.Fatal(err)
		}
		if c := meta.FindStatusCondition(copied.Status.Conditions, hubv1alpha1.ConditionHeld); c != nil &&
			c.Status == "True" && c.Reason == "Refused" {
			return c.Message
		}
		return ""
	}
	if !strings.Contains(held(), "Apply the CRDs") || !slices.Contains(m.told, "RecordRefused") {
		t.Errorf("the copy of b says %q, Events %v", held(), m.told)
	}
	m.Local = m.local
	err := errors.Join(m.pass(), m.pass()) // the second one sees what the first has written
	if err != nil || held() != "" {
		t.Errorf("%v: it still says %q", err, held())
	}
}

// TestU6ARecordThatThisClusterRefusedIsCopiedOnceItMay, though nothing else of the name changes.
func TestU6ARecordThatThisClusterRefusedIsCopiedOnceItMay(t *testing.T) {
	m := newMember(t)
	m.export("b", "10.2.0.1")
	m.mustPass()
	m.export("c", "10.3.0.1")
	m.refuseWrites(func(o client.Object) error {
		if _, is := o.(*hubv1alpha1.ServiceExportRecord); is {
			return apierrors.NewInvalid(schema.GroupKind{Kind: "ServiceExportRecord"}, o.GetName(), nil)
		}
		return nil
	})
	for range 2 {
		if err := m.pass(); !apierrors.IsInvalid(err) {
			t.Fatal(err)
		}
	}
	m.Local = m.local
	m.mustPass()
	name := types.NamespacedName{Namespace: kube.SystemNamespace, Name: clusterset.RecordName("web", "shop", "c")}
	if err := m.local.Get(t.Context(), name, &hubv1alpha1.ServiceExportRecord{}); err != nil {
		t.Error(err)
	}
}

// TestU6AnImportThatThisClusterRefusesSaysSo, once, though the words always differ, and until it is written.
func TestU6AnImportThatThisClusterRefusesSaysSo(t *testing.T) {
	for what, c := range map[string]struct {
		refuses func(client.Object) bool
		prepare func(*member)
		reason  string
	}{
		"the creation of the import": {isImport, func(*member) {}, hubv1alpha1.ReasonImportRefused},
		"a change of it": {isImport, func(m *member) {
			m.mustPass()
			m.edit("c", func(rec *hubv1alpha1.ServiceExportRecord) { rec.Spec.Ports[0].Port = 81 })
		}, hubv1alpha1.ReasonChangeRefused},
		"its namespace": {isNamespace, (*member).loseNamespace, hubv1alpha1.ReasonImportRefused},
	} {
		m, attempts := newMember(t), 0
		m.export("c", "10.3.0.1")
		c.prepare(m)
		m.refuseWrites(func(o client.Object) error {
			if !c.refuses(o) {
				return nil
			}
			attempts++
			return apierrors.NewForbidden(schema.GroupResource{}, o.GetName(), fmt.Errorf("attempt %d", attempts))
		})
		for range 3 {
			before := m.writes
			if err := m.pass(); !apierrors.IsForbidden(err) || len(m.told) == 1 && attempts > 2 && m.writes > before {
				t.Errorf("%s: %v, %d writes in attempt %d", what, err, m.writes-before, attempts)
			}
		}
		if m.reason() != c.reason || !slices.Equal(m.told, []string{c.reason}) {
			t.Errorf("%s: condition %q, Events %v", what, m.reason(), m.told)
		}
		m.Local = m.local
		if m.mustPass(); m.reason() != "" {
			t.Errorf("%s: then the condition %q stays", what, m.reason())
		}
	}
}

// TestU6WhatElseIsRefusedIsReportedToo: the words of the refusal before do not stay.
func TestU6WhatElseIsRefusedIsReportedToo(t *testing.T) {
	m := newMember(t)
	m.export("c", "10.3.0.1")
	m.loseNamespace()
	m.refuseWrites(func(o client.Object) error {
		if isNamespace(o) || isImport(o) {
			return apierrors.NewForbidden(schema.GroupResource{}, o.GetName(), fmt.Errorf("no %T", o))
		}
		return nil
	})
	for _, want := range []string{"no *v1.Namespace", "no *v1beta1.ServiceImport"} {
		if err := m.pass(); !apierrors.IsForbidden(err) || !strings.Contains(m.says(), want) {
			t.Errorf("%v: the condition says %q, want %q", err, m.says(), want)
		}
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
		if err := client.IgnoreAlreadyExists(m.local.Create(t.Context(), ns)); err != nil { // by hand
			t.Fatal(err)
		}
	}
	if !slices.Equal(m.told, []string{"ImportRefused", "ImportRefused"}) {
		t.Errorf("Events %v", m.told)
	}
}

// TestC9ARefusedChangeToHeadlessKeepsTheTrafficOfTheVIP: clients have the VIP still, and its slices follow the exports.
func TestC9ARefusedChangeToHeadlessKeepsTheTrafficOfTheVIP(t *testing.T) {
	m := newMember(t)
	m.Addresses = &ranges{}
	m.export("c", "10.3.0.1")
	m.edit("c", func(rec *hubv1alpha1.ServiceExportRecord) { rec.Spec.Type = mcsv1beta1.ClusterSetIP })
	m.mustPass()
	m.edit("c", func(rec *hubv1alpha1.ServiceExportRecord) { rec.Spec.Type = mcsv1beta1.Headless })
	m.refuseWrites(func(o client.Object) error {
		if !isImport(o) {
			return nil
		}
		return apierrors.NewForbidden(schema.GroupResource{}, o.GetName(), errors.New("a policy"))
	})
	for _, address := range []string{"10.3.0.1", "10.3.0.2"} {
		m.editGroup("c", func(g *hubv1alpha1.EndpointGroup) { g.Endpoints[0].Address = address })
		for range 2 {
			if err := m.pass(); !apierrors.IsForbidden(err) {
				t.Error(err)
			}
			if slice := m.traffic()["c"]; slice == nil || slice.Endpoints[0].Addresses[0] != address ||
				len(slice.Ports) != 1 {
				t.Errorf("the VIP's traffic goes to %v, want %s", slice, address)
			}
		}
	}
	m.Local = m.local
	m.mustPass()
	if imp := m.read(declaredImport()).(*mcsv1beta1.ServiceImport); imp.Spec.Type != mcsv1beta1.Headless ||
		len(imp.Spec.IPs) > 0 || m.traffic()["c"] != nil || !m.has("c", "10.3.0.2") {
		t.Errorf("then the import is %+v, slices %v", imp.Spec, m.slices())
	}
}

// TestE2ARefusedDeletionKeepsNothingElse of an import that nobody exports any more, and an Event says so.
func TestE2ARefusedDeletionKeepsNothingElse(t *testing.T) {
	of := func(cluster string) func(client.Object) bool {
		return func(o client.Object) bool {
			slice, is := o.(*discoveryv1.EndpointSlice)
			return is && sourceCluster(slice) == cluster
		}
	}
	for what, keeps := range map[string]func(client.Object) bool{
		"the import": isImport, "the slice of c": of("c"), "the slice of d": of("d"),
	} {
		m := newMember(t)
		withdraw := func(rec *hubv1alpha1.ServiceExportRecord) { rec.Spec.Withdrawn = true }
		m.export("c", "10.3.0.1")
		m.export("d", "10.4.0.1")
		m.mustPass()
		m.edit("c", withdraw)
		m.edit("d", withdraw)
		m.Local = interceptor.NewClient(m.local, interceptor.Funcs{Delete: func(
			ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption,
		) error {
			if keeps(o) {
				return apierrors.NewForbidden(schema.GroupResource{}, o.GetName(), errors.New("a policy"))
			}
			return c.Delete(ctx, o, opts...)
		}})
		m.told = nil
		if err := m.pass(); !apierrors.IsForbidden(err) || !slices.Equal(m.told, []string{"ChangeRefused"}) {
			t.Errorf("%s is refused: %v, Events %v", what, err, m.told)
		}
		var left []string
		for _, slice := range m.slices() {
			if !keeps(&slice) {
				left = append(left, sourceCluster(&slice))
			}
		}
		if imp := m.read(declaredImport()); len(left) > 0 || (imp != nil) != (what == "the import") {
			t.Errorf("%s is refused: the import is %v, and slices of %v are left", what, imp, left)
		}
		m.Local = m.local
		if m.mustPass(); len(m.slices()) > 0 || m.read(declaredImport()) != nil {
			t.Errorf("%s was refused: something stays", what)
		}
	}
}

// TestI6TheQuarantineBeginsWhenTheImportGoes, though an earlier pass, whose cache did not show the import yet, has
// begun it already.
func TestI6TheQuarantineBeginsWhenTheImportGoes(t *testing.T) {
	m := newMember(t)
	m.Addresses = &ranges{}
	m.export("c", "10.3.0.1")
	m.edit("c", func(rec *hubv1alpha1.ServiceExportRecord) { rec.Spec.Type = mcsv1beta1.ClusterSetIP })
	m.mustPass()
	unused := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: derived.Name("shop", "web")}}
	svc := m.read(unused).(*corev1.Service)
	long := m.Now().Add(-2 * derived.Quarantine).UTC().Format(time.RFC3339)
	metav1.SetMetaDataAnnotation(&svc.ObjectMeta, derived.AnnotationUnusedSince, long)
	if err := m.local.Update(t.Context(), svc); err != nil {
		t.Fatal(err)
	}
	m.edit("c", func(rec *hubv1alpha1.ServiceExportRecord) { rec.Spec.Withdrawn = true })
	m.keep = errors.New("not now") // a slice stays at first
	if err := errors.Join(m.pass(), m.pass()); !errors.Is(err, m.keep) {
		t.Error(err)
	}
	m.keep = nil
	if m.mustPass(); m.read(declaredImport()) != nil || len(m.slices()) > 0 || m.read(unused) == nil {
		t.Errorf("import %v, Service %v", m.read(declaredImport()), m.read(unused))
	}
}

// TestI9TheVIPStaysAsLongAsItsImport, which a finalizer of another program keeps: DNS still names the VIP.
func TestI9TheVIPStaysAsLongAsItsImport(t *testing.T) {
	m := newMember(t)
	m.Addresses = &ranges{}
	m.export("c", "10.3.0.1")
	m.edit("c", func(rec *hubv1alpha1.ServiceExportRecord) { rec.Spec.Type = mcsv1beta1.ClusterSetIP })
	m.mustPass()
	imp := m.read(declaredImport())
	imp.SetFinalizers([]string{"example.com/theirs"})
	if err := m.local.Update(t.Context(), imp); err != nil {
		t.Fatal(err)
	}
	m.edit("c", func(rec *hubv1alpha1.ServiceExportRecord) { rec.Spec.Withdrawn = true })
	unused := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: derived.Name("shop", "web")}}
	m.mustPass()
	dated := m.read(unused).(*corev1.Service) // as by a pass whose cache did not show the import
	metav1.SetMetaDataAnnotation(&dated.ObjectMeta, derived.AnnotationUnusedSince, m.Now().UTC().Format(time.RFC3339))
	if err := m.local.Update(t.Context(), dated); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		m.mustPass()
		m.later += derived.Quarantine + time.Second
	}
	m.mustPass()
	imp = m.read(declaredImport())
	if imp == nil || imp.GetDeletionTimestamp() == nil || len(m.slices()) > 0 || m.read(unused) == nil {
		t.Fatalf("import %v, slices %v, Service %v", imp, m.slices(), m.read(unused))
	}
	imp.SetFinalizers(nil)
	if err := m.local.Update(t.Context(), imp); err != nil {
		t.Fatal(err)
	}
	m.mustPass()
	if svc := m.read(unused); svc == nil || svc.GetAnnotations()[derived.AnnotationUnusedSince] == "" {
		t.Errorf("after the import: Service %v", svc)
	}
	m.later += derived.Quarantine + time.Second
	if m.mustPass(); m.read(unused) != nil {
		t.Error("after the quarantine, the Service stays")
	}
}

// loseNamespace deletes the namespace, which the ClusterSet wants created.
func (m *member) loseNamespace() {
	m.t.Helper()
	m.set("", hubv1alpha1.MissingNamespacesCreate)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
	if err := m.local.Delete(m.t.Context(), ns); err != nil {
		m.t.Fatal(err)
	}
}

// refuseWrites has the API server refuse to create or update objects.
func (m *member) refuseWrites(refused func(client.Object) error) {
	m.Local = interceptor.NewClient(m.local, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if err := refused(o); err != nil {
				return err
			}
			return c.Create(ctx, o, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			if err := refused(o); err != nil {
				return err
			}
			return c.Update(ctx, o, opts...)
		},
	})
}

func isImport(o client.Object) bool { _, is := o.(*mcsv1beta1.ServiceImport); return is }

func isNamespace(o client.Object) bool { _, is := o.(*corev1.Namespace); return is }
