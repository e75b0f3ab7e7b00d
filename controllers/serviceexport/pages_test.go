package serviceexport

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/pages"
)

// small are limits with which four endpoints need pages.
var small = pages.Limits{Endpoints: 3, Groups: 2}

// addresses sets the endpoints of a slice.
func addresses(m *member, name string, numbers ...int) {
	m.Helper()
	edit(m, slice(name), func(s *discoveryv1.EndpointSlice) { s.Endpoints = slice(name, numbers...).Endpoints })
}

// TestS2EndpointsMoveIntoPagesAndBack: pages come before the record that states them, and go after it.
func TestS2EndpointsMoveIntoPagesAndBack(t *testing.T) {
	m := newMember(t, nil, export(), svc(nil), slice("web-1", 1, 2, 3))
	m.restart(small)
	for _, c := range []struct {
		what, want, wrote string
		addresses         []int
	}{
		{"few", "inline: 1 2 3", "create web.shop.east", from(1, 3)},
		{"too many", "2 pages: 1 2 3 | 4", "create 0.web.shop.east, create 1.web.shop.east, update web.shop.east",
			from(1, 4)},
		{"one more", "2 pages: 1 2 3 | 4 5", "update 1.web.shop.east", from(1, 5)},
		{"another page", "3 pages: 1 2 3 | 4 5 6 | 7",
			"update 1.web.shop.east, create 2.web.shop.east, update web.shop.east", from(1, 7)},
		{"a hole", "3 pages: 1 3 | 4 5 6 | 7", "update 0.web.shop.east", []int{1, 3, 4, 5, 6, 7}},
		{"the last page ends", "2 pages: 1 3 | 4 5 6", "update web.shop.east, delete 2.web.shop.east", []int{1, 3, 4,
			5, 6}},
		{"still too many for the record", "1 pages: 1 3", "update web.shop.east, delete 1.web.shop.east", []int{1, 3}},
		{"half", "inline: 1", "update web.shop.east, delete 0.web.shop.east", []int{1}},
		{"none", "inline: ", "update web.shop.east", nil},
	} {
		addresses(m, "web-1", c.addresses...)
		m.now = m.now.Add(time.Minute)
		wrote, _, err := m.pass()
		if err != nil || wrote != c.wrote || m.endpoints() != c.want {
			t.Errorf("%s: %v, it wrote %s, want %s: %s, want %s", c.what, err, wrote, c.wrote, m.endpoints(), c.want)
		}
		if wrote := m.settle(2); wrote != "" {
			t.Errorf("%s: it is not settled: %s", c.what, wrote)
		}
	}
	if copied := m.copied(); len(copied.Spec.Endpoints) > 0 || copied.Spec.Pages > 0 || copied.ResourceVersion == "" {
		t.Errorf("the copy has endpoints: %+v", copied.Spec)
	}
}

// TestTheCopyChangesWithFactsOnly: a change of endpoints is one write to the hub, and none here.
func TestTheCopyChangesWithFactsOnly(t *testing.T) {
	m := newMember(t, nil, export(), svc(nil), slice("web-1", 1))
	m.settle(3)
	was, revision := m.copied(), m.record().Spec.Revision
	addresses(m, "web-1", 1, 2)
	wrote := ""
	for range 3 {
		m.now = m.now.Add(time.Minute)
		now, _, err := m.pass()
		if err != nil {
			t.Fatal(err)
		}
		wrote += now
	}
	if is := m.copied(); wrote != "update web.shop.east" || is.ResourceVersion != was.ResourceVersion ||
		m.record().Spec.Revision <= revision {
		t.Errorf("it wrote %q, and the copy %+v became %+v", wrote, was, is)
	}
	edit(m, svc(nil), func(s *corev1.Service) { s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP })
	m.settle(3)
	if is := m.copied(); is.Spec.Revision <= was.Spec.Revision || is.Spec.Revision > m.record().Spec.Revision {
		t.Errorf(
			"the copy has revision %d after %d, the hub %d",
			is.Spec.Revision,
			was.Spec.Revision,
			m.record().Spec.Revision,
		)
	}
}

// TestE4WhatTheHubRefusesIsNotStated: endpoints that went are dropped elsewhere all the same, and Ready says why others
// are missing. A cache that lags does not hide that.
func TestE4WhatTheHubRefusesIsNotStated(t *testing.T) {
	for _, lags := range []bool{false, true} {
		m := newMember(t, nil, export(), svc(nil), slice("web-1", from(1, 5)...))
		m.restart(small)
		full := true
		m.refuse = func(verb string, o client.Object) error {
			if full && verb == "create" && o.GetName() == "2.web.shop.east" {
				return quota(o)
			}
			return nil
		}
		sync := func() {
			if lags {
				m.syncCaches()
			}
		}
		m.settle(3)
		if lags {
			m.now = m.now.Add(time.Minute)
			sync()
			m.settle(1)
		}
		if m.endpoints() != "2 pages: 1 2 3 | 4 5" || m.ready().Status != metav1.ConditionTrue {
			t.Fatalf("%s, %+v", m.endpoints(), m.ready())
		}
		addresses(m, "web-1", 2, 3, 4, 5, 6, 7, 8, 9) // 1 went, and the hub does not take all others
		failed := func(what, want string) {
			t.Helper()
			for i := range 4 { // the first pass, and those that its error brings
				_, _, err := m.pass()
				if ready := m.ready(); ready.Reason != "Failed" || !strings.Contains(ready.Message, "exceeded quota") {
					t.Errorf("lags %v, %s, pass %d: %v, Ready is %+v", lags, what, i, err, ready)
				}
				m.now = m.now.Add(20 * time.Millisecond)
			}
			if m.endpoints() != want || !m.record().Spec.Incomplete {
				t.Errorf("lags %v, %s: %s, want %s; others are told that some are missing: %v", lags, what,
					m.endpoints(), want, m.record().Spec.Incomplete)
			}
			m.now = m.now.Add(time.Minute)
			sync()
		}
		failed("one too many", "2 pages: 2 3 6 | 4 5 7")
		addresses(m, "web-1", 3, 4, 5, 6, 7, 8, 9)
		failed("another one went", "2 pages: 3 6 8 | 4 5 7")
		full = false
		_, _, err := m.pass()
		sync()
		m.settle(1)
		if err != nil || m.endpoints() != "3 pages: 3 6 8 | 4 5 7 | 9" || m.record().Spec.Incomplete ||
			m.ready().Status != metav1.ConditionTrue {
			t.Errorf("lags %v, with less: %v, %s, %+v", lags, err, m.endpoints(), m.ready())
		}
	}
}

// TestE4AHubThatTakesNoPages gets as many endpoints as the record takes.
func TestE4AHubThatTakesNoPages(t *testing.T) {
	m := newMember(t, nil, export(), svc(nil), slice("web-1", from(1, 5)...))
	m.restart(small)
	m.refuse = func(verb string, o client.Object) error {
		if _, page := o.(*hubv1alpha1.EndpointPage); page {
			return quota(o)
		}
		return nil
	}
	for range 3 {
		if _, _, err := m.pass(); err == nil {
			t.Fatal("no error")
		}
	}
	wrote, _, _ := m.pass()
	if m.endpoints() != "inline: 1 2 3 | " || strings.Contains(wrote, " web.shop.east") ||
		m.ready().Reason != "Failed" {
		t.Errorf("%s, %+v; it wrote %s", m.endpoints(), m.ready(), wrote)
	}
	if at := clusterset.Published(m.copied()); !at.Equal(m.record().CreationTimestamp.Time) {
		t.Errorf("the copy says that the hub has had the record since %v: it ranks last here only", at)
	}
	addresses(m, "web-1", 2, 3, 4, 5)
	if _, _, err := m.pass(); err == nil || m.endpoints() != "inline: 2 3 4 | " {
		t.Errorf("1 went: %v, %s", err, m.endpoints())
	}
}

// TestS2PagesAreNewerThanTheRecordThatHadTheirEndpoints: other members import a group from the record and then from its
// page, into the same slice.
func TestS2PagesAreNewerThanTheRecordThatHadTheirEndpoints(t *testing.T) {
	m := newMember(t, nil, export(), svc(nil), slice("web-1", from(1, 5)...))
	m.restart(small)
	m.settle(3)
	lost := errors.New("connection lost")
	m.refuse = func(verb string, _ client.Object) error {
		if verb == "delete" {
			return lost
		}
		return nil
	}
	addresses(m, "web-1", 1)
	if _, _, err := m.pass(); !errors.Is(err, lost) || m.endpoints() != "inline, 2 more: 1" {
		t.Fatalf("%v, %s", err, m.endpoints())
	}
	inline := m.record().Spec.Revision
	addresses(m, "web-1", from(1, 5)...)
	m.now = m.now.Add(time.Minute)
	m.settle(3)
	var list hubv1alpha1.EndpointPageList
	if err := m.hub.List(t.Context(), &list); err != nil || m.endpoints() != "2 pages: 1 2 3 | 4 5" {
		t.Fatalf("%v, %s", err, m.endpoints())
	}
	for _, page := range list.Items {
		if page.Spec.Revision <= inline {
			t.Errorf("page %d has revision %d, and the record had %d", page.Spec.Number, page.Spec.Revision, inline)
		}
	}
}

// TestS2APageGoesAfterItsEndpointsAreInAnother: packing moves them to earlier pages, and no write that fails loses any.
func TestS2APageGoesAfterItsEndpointsAreInAnother(t *testing.T) {
	m := newMember(t, nil, export(), svc(nil), slice("web-1", from(1, 9)...))
	m.restart(small)
	m.settle(3)
	addresses(m, "web-1", 1, 4, 7)
	lost := errors.New("connection lost")
	m.refuse = func(_ string, o client.Object) error {
		if o.GetName() == "0.web.shop.east" {
			return lost
		}
		return nil
	}
	if wrote, _, err := m.pass(); !errors.Is(err, lost) || m.endpoints() != "3 pages: 1 2 3 | 4 5 6 | 7 8 9" {
		t.Errorf("the first page fails: %v, it wrote %s: %s", err, wrote, m.endpoints())
	}
	m.refuse = nil
	m.now = m.now.Add(time.Minute)
	if _, again, err := m.pass(); err != nil || again <= 0 || !strings.HasPrefix(m.endpoints(), "3 pages: 1 7 4 | ") {
		t.Errorf("the first page is written: %v, again in %v: %s", err, again, m.endpoints())
	}
	if _, _, err := m.pass(); err != nil || m.endpoints() != "1 pages: 1 7 4" {
		t.Errorf("then the others go: %v, %s", err, m.endpoints())
	}
}

// TestS2AFirstRecordWaitsForItsPages, as on a hub that was emptied: members hold endpoints of all pages.
func TestS2AFirstRecordWaitsForItsPages(t *testing.T) {
	for _, page := range []string{"0.web.shop.east", "2.web.shop.east"} {
		m := newMember(t, nil, export(), svc(nil), slice("web-1", from(1, 9)...))
		m.restart(small)
		lost := errors.New("connection lost")
		m.refuse = func(_ string, o client.Object) error {
			if o.GetName() == page {
				return lost
			}
			return nil
		}
		if wrote, _, err := m.pass(); !errors.Is(err, lost) || m.record() != nil {
			t.Errorf("page %s fails: %v, it wrote %s: %s", page, err, wrote, m.endpoints())
		}
		m.refuse = nil
		m.now = m.now.Add(time.Minute)
		if m.settle(3); m.endpoints() != "3 pages: 1 2 3 | 4 5 6 | 7 8 9" {
			t.Errorf("then: %s", m.endpoints())
		}
	}
}

// TestS2APageThatTheHubLostComesBack though another page could take its endpoints.
func TestS2APageThatTheHubLostComesBack(t *testing.T) {
	m := newMember(t, nil, export(), svc(nil), slice("web-1", from(1, 9)...))
	m.restart(small)
	m.settle(3)
	for number, left := range map[int][]int{0: {3, 4, 5, 7, 8}, 1: {1, 2, 3, 7, 8}} {
		m := newMember(t, nil, export(), svc(nil), slice("web-1", from(1, 9)...))
		m.restart(small)
		m.settle(3)
		addresses(m, "web-1", left...)
		m.settle(2)
		page := &hubv1alpha1.EndpointPage{ObjectMeta: metav1.ObjectMeta{
			Namespace: "prod", Name: clusterset.PageName(int32(number), "web", "shop", "east"),
		}}
		if err := m.hub.Delete(t.Context(), page); err != nil {
			t.Fatal(err)
		}
		if wrote := m.settle(4); wrote != "" || strings.Contains(m.endpoints(), "?") {
			t.Errorf("page %d: it wrote %q: %s", number, wrote, m.endpoints())
		}
		for _, n := range left {
			if !strings.Contains(m.endpoints()+" ", fmt.Sprintf(" %d ", n)) {
				t.Errorf("page %d: %d is lost: %s", number, n, m.endpoints())
			}
		}
	}
}

// TestS2EndpointsOfALostPageAreNeverMissing: other members keep them until that page is back. It comes after the pages
// that get some of them, whatever fails.
func TestS2EndpointsOfALostPageAreNeverMissing(t *testing.T) {
	for _, c := range []struct {
		lost  int
		left  []int
		fails string
		wrote string
		want  string
	}{
		{0, []int{1, 2, 4, 5, 7, 8, 9}, "", "update 1.web.shop.east, create 0.web.shop.east",
			"3 pages: 2 | 4 5 1 | 7 8 9"},
		{0, []int{1, 2, 4, 5, 7, 8, 9}, "1.web.shop.east", "update 1.web.shop.east", "3 pages: ? | 4 5 6 | 7 8 9"},
		{1, []int{1, 2, 4, 5, 7, 8}, "", "update 0.web.shop.east, update 2.web.shop.east, create 1.web.shop.east",
			"3 pages: 1 2 4 |  | 7 8 5"},
		{1, []int{1, 4, 7}, "", "update 0.web.shop.east, update 2.web.shop.east, create 1.web.shop.east",
			"3 pages: 1 4 |  | 7"},
	} {
		m := newMember(t, nil, export(), svc(nil), slice("web-1", from(1, 9)...))
		m.restart(small)
		m.settle(3)
		page := &hubv1alpha1.EndpointPage{ObjectMeta: metav1.ObjectMeta{
			Namespace: "prod", Name: clusterset.PageName(int32(c.lost), "web", "shop", "east"),
		}}
		m.admin = true
		if err := m.hub.Delete(t.Context(), page); err != nil {
			t.Fatal(err)
		}
		m.admin = false
		m.now = m.now.Add(time.Minute)
		addresses(m, "web-1", c.left...)
		m.refuse = func(_ string, o client.Object) error {
			if o.GetName() == c.fails {
				return errors.New("connection lost")
			}
			return nil
		}
		if wrote, _, err := m.pass(); wrote != c.wrote || m.endpoints() != c.want || (err != nil) != (c.fails != "") {
			t.Errorf("page %d is lost, %v: %v, it wrote %s, want %s: %s, want %s",
				c.lost, c.left, err, wrote, c.wrote, m.endpoints(), c.want)
		}
	}
}

// TestE4APageThatTheHubRefusesIsTheLastThatIsTried: a later one would be created and deleted by each pass.
func TestE4APageThatTheHubRefusesIsTheLastThatIsTried(t *testing.T) {
	m := newMember(t, nil, export(), svc(nil), slice("web-1", from(1, 12)...))
	m.restart(small)
	m.refuse = func(verb string, o client.Object) error {
		if o.GetName() == "1.web.shop.east" {
			return quota(o)
		}
		return nil
	}
	for _, want := range []string{
		"create 0.web.shop.east, create 1.web.shop.east, create web.shop.east", "create 1.web.shop.east",
	} {
		if wrote, _, err := m.pass(); err == nil || wrote != want || m.endpoints() != "1 pages: 1 2 3" {
			t.Errorf("%v, it wrote %s, want %s: %s", err, wrote, want, m.endpoints())
		}
		m.now = m.now.Add(time.Minute)
	}
}

// TestASlowHubDoesNotHoldUpAPass: the next passes go on.
func TestASlowHubDoesNotHoldUpAPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMember(t, nil, export(), svc(nil), slice("web-1", from(1, 18)...))
		m.restart(small)
		m.refuse = func(string, client.Object) error {
			time.Sleep(4 * time.Second)
			return nil
		}
		passes := 0
		for began := time.Now(); ; began = time.Now() {
			_, _, err := m.pass()
			if took := time.Since(began); took > 12*time.Second {
				t.Fatalf("a pass took %v: %v, %s", took, err, m.endpoints())
			}
			if passes++; err == nil {
				break
			}
			m.now = m.now.Add(time.Minute)
		}
		if passes != 4 || m.endpoints() != "6 pages: 1 2 3 | 4 5 6 | 7 8 9 | 10 11 12 | 13 14 15 | 16 17 18" {
			t.Errorf("after %d passes: %s", passes, m.endpoints())
		}
	})
}

// TestE10PagesGoWithTheirExport, and after it.
func TestE10PagesGoWithTheirExport(t *testing.T) {
	m := newMember(t, nil, export(), svc(nil), slice("web-1", from(1, 5)...))
	m.restart(small)
	m.settle(3)
	if err := m.local.Delete(t.Context(), export()); err != nil {
		t.Fatal(err)
	}
	refuses := errors.New("not now")
	m.refuse = func(verb string, _ client.Object) error {
		if verb == "update" {
			return refuses
		}
		return nil
	}
	if wrote, _, err := m.pass(); !errors.Is(err, refuses) || wrote != "update web.shop.east" {
		t.Errorf("the hub refuses the withdrawal: %v, it wrote %s", err, wrote)
	}
	m.refuse = nil
	wrote, _, err := m.pass()
	if err != nil || wrote != "update web.shop.east, delete 0.web.shop.east, delete 1.web.shop.east" ||
		!m.record().Spec.Withdrawn {
		t.Errorf("%v, it wrote %s", err, wrote)
	}
}
