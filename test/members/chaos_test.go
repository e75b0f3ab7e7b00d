package members

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	coordinationv1 "k8s.io/api/coordination/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// long reports whether make chaos asks: then outages take minutes and changes are many.
var long = os.Getenv("CHAOS") != ""

// outage is how long something stays away.
func outage() time.Duration {
	if long {
		return 5 * time.Minute
	}
	return 8 * time.Second
}

// normal is what a ClusterSet has where nobody says otherwise: by it an expiry takes endpoints away, and
// is seen.
var normal = hubv1alpha1.LeaseSpec{
	RenewSeconds:    10,
	DurationSeconds: 40,
	GraceSeconds:    10,
	OnExpiry:        hubv1alpha1.ExpiryRemove,
}

// keep is for tests in which a member does not renew for longer than it may: that its endpoints go then is
// liveness_test.go's.
var keep = hubv1alpha1.LeaseSpec{
	RenewSeconds:    10,
	DurationSeconds: 40,
	GraceSeconds:    10,
	OnExpiry:        hubv1alpha1.ExpiryKeep,
}

// TestAgentsKilledAtRandom: during changes, one agent or the other is killed and started again.
func TestAgentsKilledAtRandom(t *testing.T) {
	s := steady(t)
	defer s.lease(t, keep)() // one may be killed again and again before it renews
	changes := 50            // and a kill every ten
	if long {
		changes = 500
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	a, b := s.members["a"], s.members["b"]
	kill := 0
	for i := range changes {
		if i%10 == 0 {
			kill = r.IntN(10)
		}
		if i%10 == kill {
			s.restart(t, []string{"a", "b"}[r.IntN(2)])
			time.Sleep(
				time.Duration(r.IntN(2000)) * time.Millisecond,
			) // where in its start the next change and kill find it
		}
		switch i % 10 {
		case 3:
			a.remove(t, export(s.ns, "moving"))
		case 7: // sometimes it is back before anybody has seen it gone
			if r.IntN(2) == 0 {
				a.wantNoImport(t, s.ns, "moving")
				b.wantNoImport(t, s.ns, "moving")
			}
			a.create(t, export(s.ns, "moving"))
		default:
			s.move(t)
		}
	}
	s.settled(t)
}

// TestHubAPIServerKilled: imports stay as they are, local changes still appear locally, an agent that starts
// meanwhile changes nothing,
// and all is followed afterwards.
func TestHubAPIServerKilled(t *testing.T) {
	s := steady(t)
	keeps := s.members["b"].keeps(t, s.ns, "moving", s.at())
	s.Hub.KillAPIServer()
	began := time.Now()
	s.move(t)
	s.members["a"].wantEndpoints(t, s.ns, "moving", s.at())
	s.members["a"].exported(t, service(s.ns, "fresh"), "10.1.0.9")
	s.members["a"].wantImport(t, s.ns, "fresh", ready("a"))
	s.members["a"].wantCondition(t, s.ns, "fresh", exported, "False", "Failed")
	s.restart(t, "b")
	time.Sleep(time.Until(began.Add(outage()))) // nothing to wait for: nothing may happen
	keeps()
	if err := s.Hub.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.members["b"].wantImport(t, s.ns, "fresh", ready("a"))
	s.members["a"].wantCondition(t, s.ns, "fresh", exported, "True", "Exported")
	s.settled(t)
}

// TestTheStandbyTakesOver: of two replicas of an agent one waits. It leads at once when the other is asked to end,
// and before anybody gives the
// member up when the other's machine is gone (T1); what both renewed and published counts as one agent's.
func TestTheStandbyTakesOver(t *testing.T) {
	s := steady(t)
	a, b := s.members["a"], s.members["b"]
	b.exported(t, service(s.ns, "theirs"), "10.2.0.9")
	a.wantEndpoints(t, s.ns, "theirs", "b/http/10.2.0.9:8080")
	theirs := slice(service(s.ns, "theirs"), "theirs-1")
	admitted := func() string {
		t.Helper()
		m := &hubv1alpha1.Membership{}
		if err := b.Get(t.Context(), client.ObjectKey{Name: hubv1alpha1.MembershipName}, m); err != nil {
			t.Fatal(err)
		}
		c := meta.FindStatusCondition(m.Status.Conditions, hubv1alpha1.ConditionAdmitted)
		return fmt.Sprint(c.Reason, " ", c.LastTransitionTime)
	}
	since, turn := admitted(), 9
	follows := func(what string) time.Duration {
		t.Helper()
		began := time.Now()
		turn++
		change(
			t,
			b,
			theirs,
			func(e *discoveryv1.EndpointSlice) { e.Endpoints[0].Addresses[0] = fmt.Sprintf("10.2.0.%d", turn) },
		)
		a.wantEndpoints(t, s.ns, "theirs", fmt.Sprintf("b/http/10.2.0.%d:8080", turn))
		s.converge(t)
		t.Logf("%s: after %v changes go both ways", what, time.Since(began))
		return time.Since(began)
	}
	twin, err := b.Agent.Twin(t.Context(), "clusterset-controller-twin")
	if err != nil {
		t.Fatal(err)
	}
	defer twin.Stop()
	waits := func(c *lab.Controller, starts int) {
		t.Helper()
		eventually(t, "a replica waits for the other", func() error {
			if log := c.Log(); strings.Count(log, "ttempting to acquire leader lease") < starts || !c.Ready() {
				return fmt.Errorf("log: %s", log)
			}
			return nil
		})
	}
	waits(twin, 1)
	b.Agent.Terminate()
	if took := follows("asked to end"); took > 20*time.Second { // for which a leader is waited for that says nothing
		t.Errorf("the standby led %v after the leader was asked to end", took)
	}
	led := strings.Count(b.Agent.Log(), "ttempting to acquire leader lease")
	if err := b.Agent.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	waits(b.Agent, led+1)
	twin.Kill()
	follows("its machine gone")
	if is := admitted(); is != since {
		t.Errorf("one took the other for a clone's agent: admitted since %s, and before since %s", is, since)
	}
	s.settled(t)
}

// TestHubAPIServerKilledAgainAndAgain: after each of several outages, what a publishes is followed in b.
func TestHubAPIServerKilledAgainAndAgain(t *testing.T) {
	s := steady(t)
	s.killedAgainAndAgain(t, s.Hub, "b")
}

// TestMemberAPIServerKilledAgainAndAgain: and so is what changes in a's own API server.
func TestMemberAPIServerKilledAgainAndAgain(t *testing.T) {
	s := steady(t)
	s.killedAgainAndAgain(t, s.members["a"].Cluster, "a")
}

// longestPause is that of client-go's informers between two lists: 30 s, and up to as much again by chance. Each
// outage within two minutes
// of the last one makes the pauses longer.
const longestPause = time.Minute

// killedAgainAndAgain has several outages soon after each other. An outage leaves nothing behind in the agent that
// it concerns.
func (s *steadyState) killedAgainAndAgain(t *testing.T, c *lab.ControlPlane, concerned string) {
	defer s.lease(t, keep)() // nobody dies of it
	var took [6]time.Duration
	var early float64
	for i := range took {
		if i == 2 {
			early = s.members[concerned].heap(t)
		}
		c.KillAPIServer()
		if err := c.StartAPIServer(t.Context()); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		s.move(t)
		s.members["b"].wantEndpoints(t, s.ns, "moving", s.at())
		took[i] = time.Since(began)
	}
	if longest := slices.Max(took[:]); longest > longestPause+15*time.Second {

		t.Errorf("after each outage b followed within %v: one took %v", took, longest)
	}
	late := s.members[concerned].heap(t)
	if late > 1.15*early {
		t.Errorf("%s's heap is %.2f MiB, and was %.2f MiB four outages before", concerned, late, early)
	}
	t.Logf("b followed within %v; %s's heap: %.2f MiB, then %.2f MiB", took, concerned, early, late)
	s.settled(t)
}

var heapAlloc = regexp.MustCompile(`(?m)^# HeapAlloc = (\d+)$`)

// heap is the agent's in MiB after a garbage collection: the second one, since the first lets go of what had
// cleanups.
func (m *member) heap(t *testing.T) (mib float64) {
	t.Helper()
	for range 2 {
		profile, err := m.Agent.Profile("heap?gc=1&debug=1")
		if err != nil {
			t.Fatal(err)
		}
		found := heapAlloc.FindStringSubmatch(profile)
		if found == nil {
			t.Fatalf("a profile without HeapAlloc: %s", profile)
		}
		if mib, err = strconv.ParseFloat(found[1], 64); err != nil {
			t.Fatal(err)
		}
	}
	return mib / (1 << 20)
}

// TestAHubThatFallsSilent: it takes b's renewals, and b's watches neither show anything nor end. b says so, keeps
// what it has, lists the hub again, and follows.
func TestAHubThatFallsSilent(t *testing.T) {
	s := steady(t)
	b := s.members["b"]
	defer s.lease(
		t,
		hubv1alpha1.LeaseSpec{
			RenewSeconds:    3,
			DurationSeconds: 12,
			GraceSeconds:    3,
			OnExpiry:        hubv1alpha1.ExpiryRemove,
		},
	)()
	m, err := s.Hub.Muffle()
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	direct := b.ToHub.Target()
	b.ToHub.Divert(m.Addr())
	defer b.ToHub.Divert(direct)
	s.converge(t)
	eventually(t, "b watches by it", func() error { // one that begins after Hush is not silent
		if !m.Watches("leases", "serviceexportrecords", "endpointpages") {
			return errors.New("not all kinds")
		}
		return nil
	})
	s.restored = true // or silent
	m.Hush()
	s.move(t)
	s.members["a"].wantEndpoints(t, s.ns, "moving", s.at())
	b.wantEvent(t, "clusterset-system", "clusterset-system", "HubSilent", "its watch has shown none")
	b.wantEndpoints(t, s.ns, "moving", s.at())
	s.settled(t)
}

// empty deletes all of these kinds on the hub.
func (s *steadyState) empty(t *testing.T, kinds ...client.Object) {
	t.Helper()
	for _, all := range kinds {
		if err := s.hub.DeleteAllOf(t.Context(), all, client.InNamespace(lab.HubNamespace)); err != nil {
			t.Fatal(err)
		}
	}
}

// published waits until the hub has the records of steady again.
func (s *steadyState) published(t *testing.T) {
	t.Helper()
	for _, id := range []string{"a", "b"} {
		eventually(t, id+" publishes its records again", func() error {
			var rec hubv1alpha1.ServiceExportRecord
			return s.hub.Get(
				t.Context(),
				client.ObjectKey{Namespace: lab.HubNamespace, Name: "steady." + s.ns + "." + id},
				&rec,
			)
		})
	}
}

// wantHeld waits until the member says of a record that it holds it, and why, by a condition and by an Event.
func (m *member) wantHeld(t *testing.T, record, reason string) {
	t.Helper()
	var held *metav1.Condition
	eventually(t, fmt.Sprintf("%s: record %s is held: %s", m.ID, record, reason), func() error {
		var rec hubv1alpha1.ServiceExportRecord
		if err := m.Get(
			t.Context(),
			client.ObjectKey{Namespace: "clusterset-system", Name: record},
			&rec,
		); err != nil {
			return err
		}
		if held = meta.FindStatusCondition(
			rec.Status.Conditions,
			hubv1alpha1.ConditionHeld,
		); held == nil || held.Status != metav1.ConditionTrue ||
			held.Reason != reason {
			return fmt.Errorf("%+v", rec.Status)
		}
		return nil
	})
	m.wantEvent(t, "clusterset-system", record, "RecordHeld", held.Message)
}

// TestHubEmptied: every record is deleted behind the members' backs: once while all are at work, and once while an
// agent is away and the other
// one restarts. Absence is not deletion; what owners publish again is followed.
func TestHubEmptied(t *testing.T) {
	s := steady(t)
	s.empty(t, &hubv1alpha1.ServiceExportRecord{}, &hubv1alpha1.EndpointPage{})
	s.published(t)
	s.converge(t)
	defer s.lease(t, keep)()
	b := s.members["b"]
	keeps := b.keeps(t, s.ns, "steady", "a/http/10.1.0.1:8080", "b/http/10.2.0.1:8080")
	s.members["a"].Agent.Kill()
	b.Agent.Kill()
	s.empty(t, &hubv1alpha1.ServiceExportRecord{}, &hubv1alpha1.EndpointPage{})
	began := time.Now()
	if err := b.Agent.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.wantHeld(t, "steady."+s.ns+".a", "Absent")
	eventually(t, "b's metrics show what is held, and that it sees the hub", func() error {
		metrics := b.Agent.Metrics()
		if !strings.Contains(
			metrics,
			`clusterset_agent_records{cluster="b",clusterset="clusterset",state="held"}`,
		) ||
			strings.Contains(metrics, `state="held"} 0`) ||
			!strings.Contains(metrics, `clusterset_agent_hub_fresh{cluster="b",clusterset="clusterset"} 1`) {
			return fmt.Errorf("%s", metrics)
		}
		return nil
	})
	time.Sleep(time.Until(began.Add(outage()))) // nothing to wait for: nothing may happen
	keeps()
	if err := s.members["a"].Agent.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.settled(t)
	s.members["a"].remove(t, export(s.ns, "moving"))
	b.wantNoImport(t, s.ns, "moving")
}

// TestHubEmptiedOfAll that is the clusterset's: also of Leases, claims and the ClusterSet. Nothing changes until an
// admin has made the last two
// again, nor then.
func TestHubEmptiedOfAll(t *testing.T) {
	s := steady(t)
	var keeps []func()
	for _, id := range []string{"a", "b"} {
		keeps = append(keeps, s.members[id].keeps(t, s.ns, "steady", "a/http/10.1.0.1:8080", "b/http/10.2.0.1:8080"))
	}
	began := time.Now()
	s.empty(
		t,
		&hubv1alpha1.ServiceExportRecord{},
		&hubv1alpha1.EndpointPage{},
		&hubv1alpha1.ClusterSet{},
		&inventoryv1alpha1.ClusterProfile{},
		&coordinationv1.Lease{},
	)
	var left inventoryv1alpha1.ClusterProfileList
	if err := s.hub.List(t.Context(), &left, client.InNamespace(lab.HubNamespace)); err != nil {
		t.Fatal(err)
	}
	for i := range left.Items { // nobody cleans up after these members: they have not departed
		p := &left.Items[i]
		p.Finalizers = nil
		if err := s.hub.Update(t.Context(), p); client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(time.Until(began.Add(outage()))) // nothing to wait for: nothing may happen
	for _, until := range keeps {
		until()
	}
	root, err := lab.Root()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Hub.ApplyFolder(t.Context(), filepath.Join(root, "deploy/hub/clusterset")); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"a", "b"} {
		if err := s.Hub.Apply(t.Context(), lab.HubMember(root, id)); err != nil {
			t.Fatal(err)
		}
	}
	s.published(t)
	s.settled(t)
}

// TestHubRestored: from an old snapshot of etcd. What was exported since stays, what was withdrawn since does not
// come back, and later
// changes are followed. While the owner is away, who holds either says so.
func TestHubRestored(t *testing.T) {
	s := steady(t)
	defer s.lease(t, keep)() // a's agent is away until b holds its records
	a, b := s.members["a"], s.members["b"]
	a.exported(t, service(s.ns, "old"), "10.1.0.8")
	b.wantImport(t, s.ns, "old", ready("a"))
	snapshot, err := s.Hub.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	a.exported(t, service(s.ns, "fresh"), "10.1.0.9")
	b.wantImport(t, s.ns, "fresh", ready("a"))
	a.remove(t, export(s.ns, "old"))
	b.wantNoImport(t, s.ns, "old")
	s.converge(t)

	stop := watch(t, func(ctx context.Context) (string, error) {
		_, old := b.imported(ctx, s.ns, "old")
		_, fresh := b.imported(ctx, s.ns, "fresh")
		switch {
		case old == nil:
			return "what was withdrawn came back", nil
		case apierrors.IsNotFound(fresh):
			return "what was exported after the snapshot is gone", nil
		}
		return "", errors.Join(client.IgnoreNotFound(old), fresh)
	})
	s.restored = true
	a.Agent.Kill()
	if err := s.Hub.Restore(t.Context(), snapshot); err != nil {
		t.Fatal(err)
	}
	b.wantHeld(t, "old."+s.ns+".a", "OlderRevision")
	b.wantHeld(t, "fresh."+s.ns+".a", "Absent")
	if err := a.Agent.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	time.Sleep(outage() / 4) // nothing to wait for: nothing may happen
	s.converge(t)
	b.wantImport(t, s.ns, "fresh", ready("a"))
	if bad := stop(); len(bad) > 0 {
		t.Errorf("%d times: %s", len(bad), bad[0])
	}
	s.settled(t)
}

// TestMemberAPIServerAway: CoreDNS answers from memory, the other member keeps the endpoints, since the agent goes
// on renewing for as long
// as its own API server cannot say that another leads, and all of it goes on afterwards.
func TestMemberAPIServerAway(t *testing.T) {
	s := steady(t)
	m := &mortal{set: s.set}
	m.policy(t, func(l *hubv1alpha1.LeaseSpec) {
		*l = hubv1alpha1.LeaseSpec{
			RenewSeconds:    3,
			DurationSeconds: 12,
			GraceSeconds:    3,
			OnExpiry:        hubv1alpha1.ExpiryRemove,
		}
	})
	defer m.policy(t, func(l *hubv1alpha1.LeaseSpec) { *l = normal })
	s.members["b"].Cluster.KillAPIServer()
	began := time.Now()
	s.move(t)
	// and an agent that gave up its election would not renew for 35
	time.Sleep(time.Until(began.Add(max(outage(), 50*time.Second))))
	if err := s.members["b"].Cluster.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.settled(t)
}

// TestMemberAPIServerRestored: from an old snapshot of etcd, beside an agent that runs on. What changes from then
// on is published, also
// while the API server has not come to the version that was seen before.
func TestMemberAPIServerRestored(t *testing.T) {
	s := steady(t)
	defer s.lease(t, keep)() // a's API server is away for as long as it takes to start
	snapshot, err := s.members["a"].Cluster.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	for range 300 { // more than anyone writes while this test looks
		s.move(t)
	}
	s.converge(t)
	if err := s.members["a"].Cluster.Restore(t.Context(), snapshot); err != nil {
		t.Fatal(err)
	}
	s.settled(t)
}

// TestAgentStartsWithoutItsAPIServer: it waits, and answers its probes.
func TestAgentStartsWithoutItsAPIServer(t *testing.T) {
	s := steady(t)
	defer s.lease(t, keep)() // nobody renews b's Lease
	b := s.members["b"]
	b.Cluster.KillAPIServer()
	b.Agent.Kill()
	if err := b.Agent.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the agent waits", func() error {
		if log := b.Agent.Log(); !strings.Contains(log, "waiting for the API server") {
			return fmt.Errorf("log: %s", log)
		}
		if !b.Agent.Alive() || b.Agent.Ready() {
			return fmt.Errorf("alive %v, ready %v; want alive and not ready", b.Agent.Alive(), b.Agent.Ready())
		}
		return nil
	})
	if err := b.Cluster.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.settled(t)
}

// TestTwoAtOnce: the hub away, for longer than members live without renewals, and both agents killed and started
// again.
func TestTwoAtOnce(t *testing.T) {
	s := steady(t)
	s.Hub.KillAPIServer()
	s.restart(t, "a")
	s.restart(t, "b")
	began := time.Now()
	s.move(t)
	s.members["a"].wantEndpoints(t, s.ns, "moving", s.at())
	time.Sleep(time.Until(began.Add(max(outage(), 65*time.Second))))
	if err := s.Hub.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.settled(t)
}

// TestUnexportInQuietTimes goes by events, and the name with it: what waits for a look at what was missed, or for
// an owner's word, takes ten
// seconds and more each time. One of three may be slow for other reasons.
func TestUnexportInQuietTimes(t *testing.T) {
	s := steady(t)
	var took []time.Duration
	for range 3 {
		began := time.Now()
		s.members["a"].remove(t, export(s.ns, "moving"))
		s.wantCode(t, dns.RcodeNameError)
		took = append(took, time.Since(began))
		s.members["b"].wantNoImport(t, s.ns, "moving")
		s.members["a"].create(t, export(s.ns, "moving"))
		s.wantCode(t, dns.RcodeSuccess)
	}
	slices.Sort(took)
	if t.Logf("the name was gone in both members after %v", took); took[1] > 9*time.Second {
		t.Errorf("unexported, the name was there for %v", took)
	}
	s.settled(t)
}

// wantCode waits until both members answer so for moving.
func (s *steadyState) wantCode(t *testing.T, code int) {
	t.Helper()
	for _, id := range []string{"a", "b"} {
		eventually(t, fmt.Sprintf("%s: moving is %s", id, dns.RcodeToString[code]), func() error {
			reply, err := s.answer(id, "moving")
			if err == nil && reply.Rcode != code {
				err = errors.New(dns.RcodeToString[reply.Rcode])
			}
			return err
		})
	}
}
