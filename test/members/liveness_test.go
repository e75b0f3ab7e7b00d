package members

import (
	"fmt"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// mortal is a clusterset of a, b and c whose Leases are short, unless the long tests run: then they are the
// default.
type mortal struct {
	*set
	ns    string
	lease hubv1alpha1.LeaseSpec
}

func mortals(t *testing.T) *mortal {
	t.Helper()
	s, err := start(t.Context(), "a", "b", "c")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	s.logAgents(t)
	m := &mortal{
		set: s,
		lease: hubv1alpha1.LeaseSpec{
			RenewSeconds:    10,
			DurationSeconds: 40,
			GraceSeconds:    10,
			OnExpiry:        hubv1alpha1.ExpiryRemove,
		},
	}
	if !long {
		m.lease = hubv1alpha1.LeaseSpec{
			RenewSeconds:    3,
			DurationSeconds: 10,
			GraceSeconds:    3,
			OnExpiry:        hubv1alpha1.ExpiryRemove,
		}
	}
	m.policy(t, func(*hubv1alpha1.LeaseSpec) {})
	m.ns = s.namespace(t, "a", "b", "c")
	for i, id := range []string{"a", "b", "c"} {
		s.members[id].exported(t, service(m.ns, "web"), fmt.Sprintf("10.%d.0.1", i+1))
	}
	m.members["a"].exported(t, service(m.ns, "only-a"), "10.1.0.2")
	for _, id := range []string{"a", "b", "c"} {
		m.wantWeb(t, id, "a", "b", "c")
	}
	return m
}

// policy changes the ClusterSet's.
func (m *mortal) policy(t *testing.T, f func(*hubv1alpha1.LeaseSpec)) {
	t.Helper()
	f(&m.lease)
	hub := &member{&lab.Member{ID: "hub"}, m.hub}
	set := &hubv1alpha1.ClusterSet{}
	set.Namespace, set.Name = lab.HubNamespace, lab.HubNamespace
	change(t, hub, set, func(s *hubv1alpha1.ClusterSet) { s.Spec.Lease = m.lease })
}

func (m *mortal) wantWeb(t *testing.T, in string, clusters ...string) {
	t.Helper()
	var want []string
	for _, id := range clusters {
		want = append(want, fmt.Sprintf("%s/http/10.%d.0.1:8080", id, 1+slices.Index([]string{"a", "b", "c"}, id)))
	}
	m.members[in].wantEndpoints(t, m.ns, "web", want...)
}

// within is how long the endpoints of a dead member may stay after its last renewal: 65 s with the default's 40 and
// 10 (T1).
func (m *mortal) within() time.Duration { return m.patience() + 15*time.Second }

// patience is how long they must stay.
func (m *mortal) patience() time.Duration {
	return time.Duration(m.lease.DurationSeconds+m.lease.GraceSeconds) * time.Second
}

// wantNotReady waits until the only slice that is imported of a cluster says of its endpoint that it is not ready.
func (m *mortal) wantNotReady(t *testing.T, in, cluster, name, address string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s: %s of %s is there, and not ready", in, name, cluster), func() error {
		var list discoveryv1.EndpointSliceList
		of := client.MatchingLabels{mcsv1beta1.LabelServiceName: name, mcsv1beta1.LabelSourceCluster: cluster}
		if err := m.members[in].List(t.Context(), &list, client.InNamespace(m.ns), of); err != nil {
			return err
		}
		if len(list.Items) != 1 || len(list.Items[0].Endpoints) != 1 {
			return fmt.Errorf("%+v", list.Items)
		}
		e := list.Items[0].Endpoints[0]
		if e.Addresses[0] != address || e.Conditions.Ready == nil || *e.Conditions.Ready ||
			e.Conditions.Serving == nil ||
			*e.Conditions.Serving {
			return fmt.Errorf("%+v", e)
		}
		return nil
	})
}

// renewed returns when a member last renewed its Lease; zero before the first time.
func (m *mortal) renewed(t *testing.T, id string) time.Time {
	t.Helper()
	var lease coordinationv1.Lease
	err := m.hub.Get(t.Context(), client.ObjectKey{Namespace: lab.HubNamespace, Name: id}, &lease)
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	return ptr.Deref(lease.Spec.RenewTime, metav1.MicroTime{}).Time
}

// wantRenewal waits until a member renews after a time, and tells when it did.
func (m *mortal) wantRenewal(t *testing.T, id string, after time.Time) (at time.Time) {
	t.Helper()
	eventually(t, id+" renews", func() error {
		if at = m.renewed(t, id); !at.After(after) {
			return fmt.Errorf("the last renewal is of %v", at)
		}
		return nil
	})
	return at
}

// gone waits until a's endpoints of web are gone in these members, and theirs alone, and returns how long after the
// last renewal that was
// seen in each.
func (m *mortal) gone(t *testing.T, last time.Time, ids ...string) map[string]time.Duration {
	t.Helper()
	took := map[string]time.Duration{}
	eventually(t, "a's endpoints are gone", func() error {
		for _, id := range ids {
			got, err := m.members[id].endpoints(t.Context(), m.ns, "web")
			if _, seen := took[id]; seen || err != nil {
				continue
			}
			if len(got) == 2 && !got["a/http/10.1.0.1:8080"] {
				took[id] = time.Since(last)
			}
		}
		if len(took) < len(ids) {
			return fmt.Errorf("in %v only", took)
		}
		return nil
	})
	return took
}

// TestT1ADeadMember: its endpoints are gone in time, also where an agent restarts meanwhile, and stay gone over a
// restart; imports and VIPs are as they were; by policy the endpoints stay, or stay as not ready, or stay where
// they are the last ones; and they come back with its renewals, within ten seconds on a machine that has nothing
// else to do: how long it took is logged. Who dies by Keep is told of, and nothing changes.
func TestT1ADeadMember(t *testing.T) {
	t.Parallel()
	m := mortals(t)
	a, b := m.members["a"], m.members["b"]
	vip := b.wantImport(t, m.ns, "web", ready("a", "b", "c")).Spec.IPs[0]
	lonely := b.wantImport(t, m.ns, "only-a", ready("a"))

	a.Agent.Kill()
	last := m.renewed(t, "a")
	renew := time.Duration(m.lease.RenewSeconds) * time.Second
	time.Sleep(time.Until(last.Add(renew * 19 / 10))) // early in the silence, when least of it is kept
	own, killed := m.renewed(t, "b"), time.Now()
	b.Agent.Kill()
	if err := b.Agent.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.wantRenewal(t, "b", own)
	away := time.Since(killed)
	t.Logf("b was away for %v", away)
	for id, took := range m.gone(t, last, "b", "c") {
		// A restart that takes longer than a renewal may count as blindness, by which the result comes later.
		if took < m.patience() || (id == "c" || away < renew) && took > m.within() {
			t.Errorf(
				"%s: gone %v after the last renewal, want between %v and %v",
				id,
				took,
				m.patience(),
				m.within(),
			)
		} else {
			t.Logf("%s: gone %v after the last renewal", id, took)
		}
	}
	b.wantEndpoints(t, m.ns, "only-a")
	b.wantEvent(t, "clusterset-system", "source-a", "SourceExpired")
	if got := b.wantImport(t, m.ns, "web", ready("a", "b", "c")).Spec.IPs[0]; got != vip {
		t.Errorf("the VIP was %s and is %s", vip, got)
	}

	m.wantWeb(t, "b", "b", "c")
	changed := m.watch(t, 2, "b") // the result is kept
	own = m.renewed(t, "b")
	b.Agent.Kill()
	if err := b.Agent.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.wantRenewal(t, "b", m.wantRenewal(t, "b", own))
	if bad := changed(); len(bad) > 0 {
		t.Errorf("b started again, and a was back %d times, or others were gone: %s", len(bad), bad[0])
	}
	m.policy(t, func(l *hubv1alpha1.LeaseSpec) { l.OnExpiry = hubv1alpha1.ExpiryNotReady })
	m.wantNotReady(t, "c", "a", "only-a", "10.1.0.2")
	m.wantNotReady(t, "c", "a", "web", "10.1.0.1")
	m.wantWeb(t, "c", "b", "c")
	m.policy(t, func(l *hubv1alpha1.LeaseSpec) { l.OnExpiry = hubv1alpha1.ExpiryKeep })
	m.wantWeb(t, "c", "a", "b", "c")
	m.policy(t, func(l *hubv1alpha1.LeaseSpec) { l.OnExpiry = hubv1alpha1.ExpiryRemove })
	m.wantWeb(t, "c", "b", "c")

	last = m.renewed(t, "a")
	if err := a.Agent.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.wantRenewal(t, "a", last)
	began := time.Now()
	m.wantWeb(t, "b", "a", "b", "c")
	m.wantWeb(t, "c", "a", "b", "c")
	if took := time.Since(began); took > 25*time.Second { // less than the shortest wait of who is damped (T3)
		t.Errorf("back only %v after its first renewal", took)
	} else {
		t.Logf("back %v after its first renewal", took)
	}
	if got := b.wantImport(
		t,
		m.ns,
		"only-a",
		ready("a"),
	); got.UID != lonely.UID ||
		got.Spec.IPs[0] != lonely.Spec.IPs[0] {
		t.Errorf("the import was %v, and is %v", lonely.Spec.IPs, got.Spec.IPs)
	}
	m.wantWeb(t, "a", "a", "b", "c")

	m.policy(t, func(l *hubv1alpha1.LeaseSpec) { l.OnExpiry = hubv1alpha1.ExpiryKeep }) // before it dies
	m.wantRenewal(t, "b", m.renewed(t, "b"))                                            // and b goes by it
	m.wantRenewal(t, "c", m.renewed(t, "c"))
	changed = m.watch(t, 3, "b", "c")
	a.Agent.Kill()
	time.Sleep(time.Until(m.renewed(t, "a").Add(m.patience()))) // nothing to wait for: nothing may happen
	for _, in := range []*member{b, m.members["c"]} {
		in.wantEvent(t, "clusterset-system", "source-a", "SourceExpired", string(hubv1alpha1.ExpiryKeep))
	}
	m.wantRenewal(t, "b", m.renewed(t, "b"))
	m.wantRenewal(t, "c", m.renewed(t, "c"))
	if bad := changed(); len(bad) > 0 {
		t.Errorf("a died by Keep, and endpoints changed %d times: %s", len(bad), bad[0])
	}
}

// TestS3WhoIsCutOffTakesNothingAway: members whose links to the hub are cut keep all. Who sees the hub treats one
// as dead, and two of three as
// dead only by mostSilent Expire (decision 0013). Where the hub itself is away, nothing changes anywhere.
func TestS3WhoIsCutOffTakesNothingAway(t *testing.T) {
	t.Parallel()
	m := mortals(t)
	b := m.members["b"]
	changed := m.watch(t, 3, "b")
	b.ToHub.Cut()
	began := time.Now()
	m.wantWeb(t, "a", "a", "c")
	m.wantWeb(t, "c", "a", "c")
	time.Sleep(time.Until(began.Add(m.within()))) // nothing to wait for: nothing may happen
	if bad := changed(); len(bad) > 0 {
		t.Errorf("b was cut off, and endpoints changed there %d times: %s", len(bad), bad[0])
	}
	b.ToHub.Restore()
	m.wantWeb(t, "a", "a", "b", "c")
	m.wantWeb(t, "c", "a", "b", "c")

	c := m.members["c"]
	changed = m.watch(t, 3, "a", "b", "c")
	b.ToHub.Cut()
	c.ToHub.Cut()
	time.Sleep(2 * m.within()) // nothing to wait for: nothing may happen
	if bad := changed(); len(bad) > 0 {
		t.Errorf("two of three were cut off, and endpoints changed %d times: %s", len(bad), bad[0])
	}
	m.members["a"].wantEvent(t, "clusterset-system", "clusterset-system", "SourcesHeld")
	changed = m.watch(t, 3, "b", "c")
	m.policy(t, func(l *hubv1alpha1.LeaseSpec) { l.MostSilent = hubv1alpha1.MostSilentExpire })
	m.wantWeb(t, "a", "a")
	time.Sleep(m.within()) // nothing to wait for: nothing may happen
	if bad := changed(); len(bad) > 0 {
		t.Errorf("two were cut off, and endpoints changed there %d times: %s", len(bad), bad[0])
	}
	b.ToHub.Restore()
	c.ToHub.Restore()
	m.wantWeb(t, "a", "a", "b", "c")

	changed = m.watch(t, 3, "a", "b", "c")
	m.Hub.KillAPIServer()
	time.Sleep(m.within()) // nothing to wait for: nothing may happen
	if err := m.Hub.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	time.Sleep(m.within())
	if bad := changed(); len(bad) > 0 {
		t.Errorf("the hub was away, and endpoints changed %d times: %s", len(bad), bad[0])
	}
}

// watch looks at web in some members until the function that it returns is called, which gives what it saw of other
// than so many endpoints.
func (m *mortal) watch(t *testing.T, endpoints int, ids ...string) func() []string {
	var stops []func() []string
	for _, id := range ids {
		stops = append(stops, m.members[id].throughout(t, m.ns, "web", func(got map[string]bool) bool {
			return len(got) != endpoints
		}))
	}
	return func() (bad []string) {
		for _, stop := range stops {
			bad = append(bad, stop()...)
		}
		return bad
	}
}

// TestT1ALostConnectionToTheHubEndsNobody: a load balancer forgets the agent's connection and answers nothing. The
// agent opens another one before its Lease expires.
func TestT1ALostConnectionToTheHubEndsNobody(t *testing.T) {
	t.Parallel()
	s, err := start(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	s.logAgents(t)
	m := &mortal{set: s}
	m.wantRenewal(t, "a", time.Time{})
	s.members["a"].ToHub.Lose()
	last, lost := m.renewed(t, "a"), time.Now()
	m.wantRenewal(t, "a", last)
	if took := time.Since(lost); took > 35*time.Second {
		t.Errorf("the next renewal came after %v", took)
	}
}
