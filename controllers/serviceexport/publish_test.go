package serviceexport

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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/pages"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// TestAnExportIsWrittenOnce: each write is an event for all members. Passes that follow wait until the hub's caches
// show the write, or for two seconds: a hub that was restored never shows it.
func TestAnExportIsWrittenOnce(t *testing.T) {
	for what, c := range map[string]struct {
		endpoints int
		want      string
	}{
		"few":   {3, "create web.shop.east"},
		"pages": {4, "create 0.web.shop.east, create 1.web.shop.east, create web.shop.east"},
	} {
		m := newMember(t, nil, export(), svc(nil), slice("web-1", from(1, c.endpoints)...))
		m.restart(small)
		m.syncCaches()
		if wrote, _, err := m.pass(); err != nil || wrote != c.want {
			t.Errorf("%s: %v, it wrote %s", what, err, wrote)
		}
		for range 9 { // its own writes here bring passes
			m.now = m.now.Add(200 * time.Millisecond)
			wrote, again, err := m.pass()
			if err != nil || wrote != "" || again <= 0 || m.now.Add(again) != start.Add(kube.CacheDelay) {
				t.Errorf(
					"%s, after %v: %v, it wrote %s, and looks again in %v",
					what,
					m.now.Sub(start),
					err,
					wrote,
					again,
				)
			}
			if m.ready().Status != metav1.ConditionTrue {
				t.Errorf("%s: %+v", what, m.ready())
			}
		}
		addresses(m, "web-1", from(2, c.endpoints+1)...)
		m.syncCaches() // they show it, and a change waits for nothing
		if wrote := m.settle(1); wrote == "" || strings.Contains(wrote, "create") {
			t.Errorf("%s: a change wrote %s", what, wrote)
		}
		if wrote := m.settle(2); wrote != "" {
			t.Errorf("%s: it was not shown yet, and the next pass wrote %s", what, wrote)
		}
		revision := m.record().Spec.Revision
		m.empty()
		m.syncCaches()
		m.now = m.now.Add(kube.CacheDelay)
		if wrote, _, err := m.pass(); err != nil || wrote != c.want || m.record().Spec.Revision <= revision {
			t.Errorf(
				"%s, restored: %v, it wrote %s, revision %d after %d",
				what,
				err,
				wrote,
				m.record().Spec.Revision,
				revision,
			)
		}
	}
}

// TestNothingIsPublishedWithoutTheLease: names wait. The export is in its own cluster.
func TestNothingIsPublishedWithoutTheLease(t *testing.T) {
	m := newMember(t, nil, export(), svc(nil), slice("web-1", 1))
	m.lease.silent = true
	wrote, again, err := m.pass()
	if err != nil || again != askAgain || wrote != "" || m.copied() == nil || m.ready().Reason != "Pending" {
		t.Errorf("%v, again in %v; it wrote %s: %+v", err, again, wrote, m.ready())
	}
	m.lease.silent = false
	if wrote := m.settle(1); wrote != "create web.shop.east" || m.ready().Reason != "Exported" {
		t.Errorf("it wrote %s: %+v", wrote, m.ready())
	}
}

// TestE4AFailureWhoseTextDiffersIsWrittenOnce, and what it has become a minute later: each write brings the next
// attempt before its time.
func TestE4AFailureWhoseTextDiffersIsWrittenOnce(t *testing.T) {
	m := newMember(t, nil, export(), svc(nil), slice("web-1", 1))
	attempts := 0
	m.refuse = func(string, client.Object) error {
		attempts++
		return fmt.Errorf("read tcp 10.0.0.5:%d: connection reset by peer", 40000+attempts)
	}
	version := ""
	for i, c := range []struct {
		after time.Duration
		says  string
		write bool
	}{{0, ":40001", true}, {time.Second, ":40001", false}, {30 * time.Second, ":40001", false}, {time.Minute,
		":40004", true},
		{time.Second, ":40004", false}} {
		m.now = m.now.Add(c.after)
		if _, _, err := m.pass(); err == nil {
			t.Fatal("the hub took it")
		}
		is := find[*mcsv1beta1.ServiceExport](m, m.local, "shop", "web").ResourceVersion
		if ready := m.ready(); ready.Reason != "Failed" || !strings.Contains(ready.Message, c.says) ||
			(is != version) != c.write {
			t.Errorf("pass %d: version %s after %s: %+v, want %s", i, is, version, ready, c.says)
		}
		version = is
	}
}

// TestE4AHubWithoutItsNamespaceHasNothing: that is reported. A record that the cache still shows is not: the next pass
// creates it.
func TestE4AHubWithoutItsNamespaceHasNothing(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer error
		reason string
	}{
		{"the namespace is gone", apierrors.NewNotFound(corev1.Resource("namespaces"), "prod"), "Failed"},
		{"a record is gone", apierrors.NewNotFound(
			schema.GroupResource{Group: hubv1alpha1.GroupVersion.Group, Resource: "serviceexportrecords"},
			"web.shop.east",
		), "Pending"},
		{"no error", nil, "Exported"},
	} {
		m := newMember(t, nil, export(), svc(nil))
		m.refuse = func(string, client.Object) error { return c.answer }
		if _, _, err := m.pass(); !errors.Is(err, c.answer) || m.ready().Reason != c.reason {
			t.Errorf("%s: %v, %+v, want reason %q", c.name, err, m.ready(), c.reason)
		}
	}
}

// TestAServiceExportWithADot, which no Service can have, may have the name of the record of a member whose ID has one.
func TestAServiceExportWithADot(t *testing.T) {
	theirs := &hubv1alpha1.ServiceExportRecord{ObjectMeta: metav1.ObjectMeta{
		Namespace: kube.SystemNamespace, Name: clusterset.RecordName("web", "shop", "x.east"),
	}}
	theirs.Spec.ClusterID, theirs.Spec.ServiceNamespace, theirs.Spec.ServiceName = "x.east", "shop", "web"
	dotted := export()
	dotted.Namespace, dotted.Name = "x", "web.shop"
	for _, copied := range []bool{true, false} {
		published := theirs.DeepCopy()
		published.Namespace = "prod"
		local := []client.Object{dotted.DeepCopy()}
		if copied {
			local = append(local, theirs.DeepCopy())
		}
		m := newMember(t, []client.Object{published}, local...)
		req := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "x", Name: "web.shop"}}
		if _, err := m.r.Reconcile(t.Context(), req); err != nil {
			t.Error(err)
		}
		if is := find[*hubv1alpha1.ServiceExportRecord](m, m.hub, "prod", theirs.Name); is.ResourceVersion != "999" {
			t.Errorf(
				"copied %v: the other member's record is %+v",
				copied,
				is,
			) // 999 is what the fake client begins with
		}
		is := find[*hubv1alpha1.ServiceExportRecord](m, m.local, kube.SystemNamespace, theirs.Name)
		if copied && is.ResourceVersion != "999" {
			t.Errorf("the other member's copy is %+v", is)
		}
	}
}

// TestPublishingSettlesOnAHubThatAltersWhatIsWritten: its CRDs prune a field, or a policy sets one. Each write is
// an event for all members, so the same content is written again only every ten minutes, and a change at once.
func TestPublishingSettlesOnAHubThatAltersWhatIsWritten(t *testing.T) {
	for _, limits := range []pages.Limits{pages.OfHub, {Endpoints: 1, Groups: 1}} { // inline and paged
		zoned := slice("web-1", 1, 2)
		zoned.Endpoints[0].Zone, zoned.Endpoints[1].Zone = ptr.To("z1"), ptr.To("z2")
		m := newMember(
			t,
			nil,
			export(),
			svc(func(s *corev1.Service) { s.Spec.TrafficDistribution = ptr.To("PreferSameZone") }),
			zoned,
		)
		m.restart(limits)
		m.alter = func(o client.Object) {
			switch o := o.(type) {
			case *hubv1alpha1.EndpointPage:
				o.Spec.Endpoints[0].Zone = ""
			case *hubv1alpha1.ServiceExportRecord:
				o.Spec.TrafficDistribution = ptr.To("PreferClose")
				for i := range o.Spec.Endpoints {
					o.Spec.Endpoints[i].Endpoints[0].Zone = ""
				}
			}
		}
		passes := func() (wrote []string) {
			t.Helper()
			for range 6 {
				m.now = m.now.Add(time.Second)
				is, _, err := m.pass()
				if err != nil {
					t.Fatal(err)
				}
				if is != "" {
					wrote = append(wrote, is)
				}
			}
			return wrote
		}
		expect := func(what string, inline, paged string) {
			t.Helper()
			want := inline
			if limits.Endpoints == 1 {
				want = paged
			}
			if got := strings.Join(passes(), "; "); got != want {
				t.Errorf("%s: six passes wrote %q, want %q", what, got, want)
			}
		}
		expect("new", "create web.shop.east", "create 0.web.shop.east, create 1.web.shop.east, create web.shop.east")
		expect("as before", "", "")
		edit(m, slice("web-1"), func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Conditions.Ready = ptr.To(false) })
		expect("a change", "update web.shop.east", "update 0.web.shop.east")
		m.now = m.now.Add(10 * time.Minute)
		expect("ten minutes later", "update web.shop.east",
			"update 0.web.shop.east, update 1.web.shop.east, update web.shop.east")
	}
}

// TestS2APageGoesFromAHubThatAltersWhatIsWritten, and its endpoints with it.
func TestS2APageGoesFromAHubThatAltersWhatIsWritten(t *testing.T) {
	m := newMember(t, nil, export(), svc(nil), slice("web-1", from(1, 3)...))
	m.restart(pages.Limits{Endpoints: 1, Groups: 1})
	m.alter = func(o client.Object) {
		if page, ok := o.(*hubv1alpha1.EndpointPage); ok {
			page.Spec.Endpoints[0].Zone = "z1"
		}
	}
	m.settle(3)
	addresses(m, "web-1", 1, 2)
	if m.settle(20); m.endpoints() != "2 pages: 1 | 2" {
		t.Errorf("3 went, and the hub has %s", m.endpoints())
	}
}

// TestTheTimeOfATriggerIsPublishedWithItsChange and not alone: each write is an event for all members.
func TestTheTimeOfATriggerIsPublishedWithItsChange(t *testing.T) {
	m := newMember(t, nil, export(), svc(nil), slice("web-1"))
	for _, step := range []struct {
		address            int
		trigger, published string
		writes             bool
	}{
		{1, "2026-01-01T00:00:00.5Z", "2026-01-01T00:00:00.5Z", true},
		{1, "2026-01-01T00:01:00Z", "2026-01-01T00:00:00.5Z", false},
		{2, "2026-01-01T00:02:00Z", "2026-01-01T00:02:00Z", true},
		{3, "the day before yesterday, and more than the hub takes, which has sixty-four octets", "", true},
		{4, "2026-01-01T00:03:00." + strings.Repeat("0", 64) + "Z", "", true}, // as time.Parse takes it
	} {
		m.now = m.now.Add(time.Minute)
		edit(m, slice("web-1"), func(s *discoveryv1.EndpointSlice) {
			s.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: step.trigger}
			s.Endpoints = slice("", step.address).Endpoints
		})
		wrote, _, err := m.pass()
		group := m.record().Spec.Endpoints[0]
		if err != nil || group.LastChangeTriggerTime != step.published || (wrote != "") != step.writes ||
			group.Endpoints[0].Address != fmt.Sprint("10.0.0.", step.address) {
			t.Errorf("%+v: %v, it wrote %q: %+v", step, err, wrote, group)
		}
	}
}

// TestAHubRestoredWhileNoAgentWasThere shows an older revision of endpoints that are right again: others have imported
// a higher one, and do not follow it. An agent that finds the hub otherwise than its last one left it overtakes, once;
// any other writes nothing. What it writes next is above all that the last agent may have written.
func TestAHubRestoredWhileNoAgentWasThere(t *testing.T) {
	for _, limits := range []pages.Limits{pages.OfHub, {Endpoints: 1, Groups: 1}} { // inline and paged
		for _, lost := range []bool{true, false} {
			m := newMember(t, nil, export(), svc(nil), slice("web-1", 1, 2))
			m.restart(limits)
			m.settle(3)
			m.restart(limits)
			before := m.now.Add(time.Hour) // the clock was set back
			want := ""
			if m.lease.written = before; lost {
				m.lease.lost = before
				want = "update web.shop.east"
				if limits.Endpoints == 1 {
					want = "update 0.web.shop.east, update 1.web.shop.east, " + want
				}
			}
			if wrote, _, err := m.pass(); err != nil || wrote != want {
				t.Errorf("lost %v: %v, it wrote %q, want %q", lost, err, wrote, want)
			}
			m.now = m.now.Add(time.Minute)
			if wrote := m.settle(2); wrote != "" {
				t.Errorf("lost %v: it wrote %s again", lost, wrote)
			}
			m.restart(limits) // the next process still knows by when the hub lost something
			m.lease.written = before.Add(time.Minute)
			if wrote := m.settle(2); wrote != "" {
				t.Errorf("lost %v: the next process wrote %s again", lost, wrote)
			}
			revisions := []int64{m.record().Spec.Revision}
			if limits.Endpoints == 1 {
				page := find[*hubv1alpha1.EndpointPage](m, m.hub, "prod", "1.web.shop.east")
				revisions = append(revisions, page.Spec.Revision)
			}
			for _, revision := range revisions {
				if overtook := revision > before.UnixMilli(); overtook != lost {
					t.Errorf("lost %v: revisions %d", lost, revisions)
				}
			}
			addresses(m, "web-1", 3, 4)
			last := clusterset.NextRevision(m.record().Spec.Revision, m.lease.written) - 1
			m.settle(2)
			if page := find[*hubv1alpha1.EndpointPage](m, m.hub, "prod", "1.web.shop.east"); page != nil {
				revisions = append(revisions, page.Spec.Revision)
			}
			if r := slices.Max(append(revisions, m.record().Spec.Revision)); r <= last {
				t.Errorf("lost %v: then revision %d, and %d may be there", lost, r, last)
			}
		}
	}
}

// TestAHubRestoredUnderThisAgent shows older revisions of record and pages, though their content may be right: all are
// published again with higher ones, also by an agent that has only seen the others, before it might publish.
func TestAHubRestoredUnderThisAgent(t *testing.T) {
	for i := range 4 { // inline and paged
		limits := []pages.Limits{pages.OfHub, {Endpoints: 1, Groups: 1}}[i%2]
		m := newMember(t, nil, export(), svc(nil), slice("web-1", 1, 2))
		m.restart(limits)
		m.settle(3)
		backup := []client.Object{m.record()}
		if limits.Endpoints == 1 {
			backup = append(backup, find[*hubv1alpha1.EndpointPage](m, m.hub, "prod", "1.web.shop.east"))
		}
		var seen []int64
		for _, numbers := range [][]int{{1, 3}, {1, 2}} { // the last is as in the backup
			m.now = m.now.Add(time.Hour)
			addresses(m, "web-1", numbers...)
			m.settle(3)
		}
		if i >= 2 {
			m.restart(limits)
			m.lease.silent = true
			m.settle(1)
			m.lease.silent = false
		}
		for _, o := range backup {
			is := o.DeepCopyObject().(client.Object)
			if err := m.hub.Get(t.Context(), client.ObjectKeyFromObject(o), is); err != nil {
				t.Fatal(err)
			}
			last := kube.Origin(is).Revision
			if last == kube.Origin(o).Revision { // a record whose pages alone have changed
				last--
			}
			seen = append(seen, last)
			m.restore(o)
		}
		m.now = m.now.Add(time.Minute)
		m.settle(3)
		for i, o := range backup {
			if err := m.hub.Get(
				t.Context(),
				client.ObjectKeyFromObject(o),
				o,
			); err != nil ||
				kube.Origin(o).Revision <= seen[i] {
				t.Errorf(
					"%v: %s has revision %d, and others have seen %d",
					err,
					o.GetName(),
					kube.Origin(o).Revision,
					seen[i],
				)
			}
		}
		if wrote := m.settle(2); wrote != "" {
			t.Errorf("it is not settled: %s", wrote)
		}
	}
}

// TestAFormerLeaderCreatesNothing on a hub that was emptied: if that is restored, its successor does not know which
// revisions other members have seen, and they do not follow it.
func TestAFormerLeaderCreatesNothing(t *testing.T) {
	for _, limits := range []pages.Limits{pages.OfHub, {Endpoints: 1, Groups: 1}} { // inline and paged
		m := newMember(t, nil, export(), svc(nil), slice("web-1", 1, 2))
		m.restart(limits)
		m.settle(3)
		m.empty()
		m.now = m.now.Add(time.Minute)
		cut, answers := errors.New("no route to host"), m.r.LocalNow
		m.r.LocalNow = plane(t, kube.Local, interceptor.Funcs{Get: func(
			context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption,
		) error {
			return cut
		}})
		if wrote, _, err := m.pass(); !errors.Is(err, cut) || wrote != "" {
			t.Errorf("cut off from its API server: %v, it wrote %s", err, wrote)
		}
		m.r.LocalNow = answers
		if wrote, _, err := m.pass(); err != nil || !strings.HasSuffix(wrote, "create web.shop.east") {
			t.Errorf("and then: %v, it wrote %s", err, wrote)
		}
	}
}
