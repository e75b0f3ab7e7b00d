package serviceimport

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/endpoints"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// foreignObjects have names that an import of shop/web from cluster c needs.
func foreignObjects() map[string]client.Object {
	service := derived.Name("shop", "web")
	at := func(name string, labels map[string]string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: labels}
	}
	theirs := map[string]string{derived.LabelManagedBy: "lighthouse"}
	return map[string]client.Object{
		"import":         &mcsv1beta1.ServiceImport{ObjectMeta: at("web", nil)},
		"their import":   &mcsv1beta1.ServiceImport{ObjectMeta: at("web", theirs)},
		"Service":        &corev1.Service{ObjectMeta: at(service, nil)},
		"headless":       &corev1.Service{ObjectMeta: at(service, nil), Spec: corev1.ServiceSpec{ClusterIP: "None"}},
		"their Service":  &corev1.Service{ObjectMeta: at(service, theirs)},
		"a user's slice": foreignSlice(nil),
		"their slice": foreignSlice(map[string]string{
			discoveryv1.LabelManagedBy: "lighthouse", mcsv1beta1.LabelServiceName: "web",
			discoveryv1.LabelServiceName: service,
		}),
	}
}

func foreignSlice(labels map[string]string) *discoveryv1.EndpointSlice {
	record := endpoints.SourceName(0, "c")
	return &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Labels: labels,
		Name: endpoints.SliceName(derived.Name("shop", "web"), record, discoveryv1.AddressTypeIPv4),
	}, AddressType: discoveryv1.AddressTypeIPv4}
}

// beside is a member with a foreign object, in which cluster c exports shop/web.
func beside(t *testing.T, foreign client.Object) *member {
	t.Helper()
	m := newMember(t)
	m.Addresses = &ranges{}
	m.export("c", "10.3.0.1")
	m.edit("c", func(rec *hubv1alpha1.ServiceExportRecord) { rec.Spec.Type = mcsv1beta1.ClusterSetIP })
	if err := m.local.Create(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	return m
}

// read returns the object as it is now; nil if it does not exist.
func (m *member) read(like client.Object) client.Object {
	m.t.Helper()
	o := like.DeepCopyObject().(client.Object)
	if err := m.local.Get(m.t.Context(), client.ObjectKeyFromObject(like), o); client.IgnoreNotFound(err) != nil {
		m.t.Fatal(err)
	} else if err != nil {
		return nil
	}
	return o
}

// reason is that of the condition Imported of the copy of c's record.
func (m *member) reason() string { return m.condition().Reason }

// says is the message of that condition.
func (m *member) says() string { return m.condition().Message }

func (m *member) condition() metav1.Condition {
	name := types.NamespacedName{Namespace: kube.SystemNamespace, Name: clusterset.RecordName("web", "shop", "c")}
	rec, err := kube.Get[*hubv1alpha1.ServiceExportRecord](m.t.Context(), m.local, name)
	if err != nil || rec == nil {
		m.t.Fatal(rec, err)
	}
	if c := meta.FindStatusCondition(rec.Status.Conditions, hubv1alpha1.ConditionImported); c != nil {
		return *c
	}
	return metav1.Condition{}
}

// TestI10WhatSomebodyElseMadeStays, whatever it is and whoever writes it again and again. The first pass reports it,
// and no pass writes anything else, until its owner gives it to the agent.
func TestI10WhatSomebodyElseMadeStays(t *testing.T) {
	for name, foreign := range foreignObjects() {
		t.Run(name, func(t *testing.T) {
			m := beside(t, foreign)
			m.writes = 0
			if err := m.pass(); err != nil || m.writes != 2 ||
				m.reason() != "NotOwned" || // the copy, and its condition
				!slices.Equal(m.told, []string{"NotOwned"}) {
				t.Fatalf("%v: %d writes, told %v, condition %q", err, m.writes, m.told, m.reason())
			}
			for _, label := range []string{"1", "2"} { // its owner writes it
				was := m.read(foreign)
				labels := map[string]string{"edit": label}
				maps.Copy(labels, was.GetLabels())
				was.SetLabels(labels)
				if err := m.local.Update(t.Context(), was); err != nil {
					t.Fatal(err)
				}
				m.writes = 0
				if err := m.pass(); err != nil || m.writes > 0 || len(m.told) > 1 ||
					m.read(foreign).GetResourceVersion() != was.GetResourceVersion() {
					t.Fatalf("%v: %d writes, told %v", err, m.writes, m.told)
				}
			}

			given := m.read(foreign)
			given.SetAnnotations(map[string]string{kube.AnnotationAdopt: "true"})
			if err := m.local.Update(t.Context(), given); err != nil {
				t.Fatal(err)
			}
			for range 2 { // a headless Service is deleted first
				if err := m.pass(); err != nil {
					t.Fatal(err)
				}
			}
			is := m.read(foreign)
			if is == nil || !kube.Owned(is) || is.GetAnnotations()[kube.AnnotationAdopt] != "" || m.reason() != "" {
				t.Errorf("after it was given: %+v, condition %q", is, m.reason())
			}
			if m.imported()["c"] == nil || len(m.told) > 1 {
				t.Errorf("after it was given, %v are imported, and told is %v", m.imported(), m.told)
			}
		})
	}
}

// TestI10NobodyExports: what somebody else made stays as well when nobody exports the name, or nobody does any more.
// Given to the agent, it waits for an export.
func TestI10NobodyExports(t *testing.T) {
	for _, adopt := range []string{"", "true"} {
		for name, foreign := range foreignObjects() {
			foreign.SetAnnotations(map[string]string{kube.AnnotationAdopt: adopt})
			m := beside(t, foreign)
			m.edit("c", func(rec *hubv1alpha1.ServiceExportRecord) { rec.Spec.Withdrawn = true })
			was := m.read(foreign)
			m.writes = 0
			if err := m.pass(); err != nil || m.writes > 0 {
				t.Errorf("%s, adopt %q: %d writes: %v", name, adopt, m.writes, err)
			}
			if is := m.read(foreign); is == nil || is.GetResourceVersion() != was.GetResourceVersion() {
				t.Errorf("%s, adopt %q, is %v", name, adopt, is)
			}
		}
	}
}

// TestI10TheExportSaysSoOnce: the user who exports the name here sees it there. Another program that removes the
// condition keeps it removed.
func TestI10TheExportSaysSoOnce(t *testing.T) {
	foreign := &mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	m := beside(t, foreign)
	export := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	if err := m.local.Create(t.Context(), export); err != nil {
		t.Fatal(err)
	}
	imported := func() *metav1.Condition {
		t.Helper()
		if err := m.pass(); err != nil {
			t.Fatal(err)
		}
		conditions := m.read(export).(*mcsv1beta1.ServiceExport).Status.Conditions
		return meta.FindStatusCondition(conditions, hubv1alpha1.ConditionImported)
	}
	if c := imported(); c == nil || c.Reason != "NotOwned" {
		t.Fatalf("the condition is %v", c)
	}
	wiped := m.read(export).(*mcsv1beta1.ServiceExport)
	wiped.Status.Conditions = nil
	if err := m.local.Status().Update(t.Context(), wiped); err != nil {
		t.Fatal(err)
	}
	if c := imported(); c != nil {
		t.Errorf("the condition is back: %v", c)
	}
	wiped.Status.Conditions = []metav1.Condition{notOwned(foreign)}
	if err := m.local.Status().Update(t.Context(), wiped); err != nil {
		t.Fatal(err)
	}
	if err := m.local.Delete(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	if c := imported(); c != nil || m.reason() != "" || m.imported()["c"] == nil {
		t.Errorf("after the import is gone: %v, %q", c, m.reason())
	}
}

// TestI10TheNameRecoversWhileAnExportIsPending: serviceexport writes Valid False, which ends the wait, only after the
// condition Imported is gone.
func TestI10TheNameRecoversWhileAnExportIsPending(t *testing.T) {
	m := newMember(t)
	m.export("c", "10.3.0.1")
	m.export("a", "10.1.0.1")
	export := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	native := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1",
		Labels: map[string]string{discoveryv1.LabelServiceName: "web"}}, AddressType: discoveryv1.AddressTypeIPv4}
	if err := errors.Join(
		m.local.Create(t.Context(), export), m.local.Create(t.Context(), native), m.pass(),
	); err != nil {
		t.Fatal(err)
	}
	imp := &mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	taken := m.read(imp)
	taken.SetLabels(nil)
	if err := errors.Join(m.local.Update(t.Context(), taken), m.pass()); err != nil || m.reason() != "NotOwned" {
		t.Fatalf("%v, condition %q", err, m.reason())
	}
	own := &hubv1alpha1.ServiceExportRecord{ObjectMeta: metav1.ObjectMeta{
		Namespace: kube.SystemNamespace, Name: clusterset.RecordName("web", "shop", "a"),
	}}
	if err := errors.Join(m.local.Delete(t.Context(), own), m.local.Delete(t.Context(), imp), m.pass()); err != nil {
		t.Fatal(err)
	}
	if m.reason() != "" {
		t.Errorf("the condition stays: %q", m.reason())
	}
}

// TestI10AnExportThatComesLaterSaysSoAsWell: that the name is not imported was reported before this cluster exported
// it, or before it did so again.
func TestI10AnExportThatComesLaterSaysSoAsWell(t *testing.T) {
	m := beside(t, &mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}})
	export := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	own := func(withdrawn bool) {
		m.edit("a", func(rec *hubv1alpha1.ServiceExportRecord) { rec.Spec.Withdrawn = withdrawn })
	}
	create := func() {
		if err := m.local.Create(t.Context(), export.DeepCopy()); err != nil {
			t.Fatal(err)
		}
	}
	for i, step := range []struct {
		name   string
		change func()
		export bool
		events int
	}{
		{"c exports", func() {}, false, 1},
		{"this cluster exports", func() { create(); m.export("a", "10.1.0.1") }, true, 2},
		{"nothing", func() {}, true, 2},
		{"the export ends", func() {
			own(true)
			if err := m.local.Delete(t.Context(), export.DeepCopy()); err != nil {
				t.Fatal(err)
			}
		}, false, 2},
		{"it begins again", func() { create(); own(false) }, true, 3},
		{"it is replaced at once", func() {
			if err := m.local.Delete(t.Context(), export.DeepCopy()); err != nil {
				t.Fatal(err)
			}
			export.CreationTimestamp, m.later = metav1.NewTime(time.Now().Add(time.Minute)), time.Hour
			create()
		}, true, 4},
		{"nothing", func() {}, true, 4},
	} {
		step.change()
		if err := m.pass(); err != nil {
			t.Fatal(err)
		}
		reported := false
		if is := m.read(export); is != nil {
			conditions := is.(*mcsv1beta1.ServiceExport).Status.Conditions
			reported = meta.FindStatusCondition(conditions, hubv1alpha1.ConditionImported) != nil
		}
		if reported != step.export || len(m.told) != step.events {
			t.Errorf("step %d, %s: condition %v, told %v", i, step.name, reported, m.told)
		}
	}
}

// TestI10OfSeveralOneIsNamed, in whichever order the cache has them: another one would be written and told again.
func TestI10OfSeveralOneIsNamed(t *testing.T) {
	one, other := foreignSlice(nil), foreignSlice(nil)
	other.AddressType = discoveryv1.AddressTypeIPv6
	other.Name = endpoints.SliceName(
		derived.Name("shop", "web"), endpoints.SourceName(0, "c"), discoveryv1.AddressTypeIPv6,
	)
	name := types.NamespacedName{Namespace: "shop", Name: "web"}
	s := &snapshot{name: name, strays: []*discoveryv1.EndpointSlice{one, other}}
	first := s.foreign()
	if slices.Reverse(s.strays); first == nil || s.foreign() != first {
		t.Errorf("%v is named, and then %v", first, s.foreign())
	}
}
