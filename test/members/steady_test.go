package members

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// chaos is the clusterset of these tests; a test that fails takes it along.
var chaos struct {
	sync.Mutex // held by the one test that uses it
	set        *set
}

// steadyState is a clusterset of members a and b with CoreDNS in each, and what must not change in it, asked for
// throughout: steady, a
// ClusterSetIP that both export, and heads, which is headless. moving is a's, for changes.
type steadyState struct {
	*set
	ns       string
	vips     map[string]string // of steady, by member
	movings  map[string]string // of moving, which may lose its last exporter
	mu       sync.Mutex
	asked    map[string]int // by member
	wrong    []string
	stop     context.CancelFunc
	askers   sync.WaitGroup
	moving   *discoveryv1.EndpointSlice
	position int
	relisted int  // how often the hub had been read again when the test began
	restored bool // it is to be, or to fall silent
}

func steady(t *testing.T) *steadyState {
	t.Helper()
	t.Parallel() // beside tests of other clustersets
	chaos.Lock()
	t.Cleanup(chaos.Unlock) // last
	if chaos.set == nil {
		var err error
		if chaos.set, err = startWith(
			context.Background(),
			lab.ClusterSetOptions{Members: []string{"a", "b"}, DNS: true},
		); err != nil {
			t.Fatal(err)
		}
	}
	s := &steadyState{set: chaos.set, vips: map[string]string{}, movings: map[string]string{}, asked: map[string]int{}}
	t.Cleanup(func() {
		if t.Failed() {
			s.Stop()
			chaos.set = nil
		}
	})
	s.logAgents(t)
	s.ns = s.namespace(t, "a", "b")
	for i, id := range []string{"a", "b"} {
		s.members[id].exported(t, service(s.ns, "steady"), fmt.Sprintf("10.%d.0.1", i+1))
		s.members[id].exported(t, headless(s.ns, "heads"), fmt.Sprintf("10.%d.0.2", i+1))
	}
	svc := service(s.ns, "moving")
	s.moving = slice(svc, "moving-1", "10.1.1.0")
	s.members["a"].create(t, svc, s.moving, export(s.ns, "moving"))
	for _, id := range []string{"a", "b"} {
		s.vips[id] = s.members[id].wantImport(t, s.ns, "steady", ready("a", "b")).Spec.IPs[0]
		s.movings[id] = s.members[id].wantImport(t, s.ns, "moving", ready("a")).Spec.IPs[0]
		s.members[id].wantEndpoints(t, s.ns, "steady", "a/http/10.1.0.1:8080", "b/http/10.2.0.1:8080")
		s.members[id].wantEndpoints(t, s.ns, "heads", "a/http/10.1.0.2:8080", "b/http/10.2.0.2:8080")
		s.members[id].wantEndpoints(t, s.ns, "moving", "a/http/10.1.1.0:8080")
		for name, want := range map[string][]string{"steady": {s.vips[id]}, "heads": {"10.1.0.2", "10.2.0.2"}} {
			eventually(t, "first answer", func() error { return s.ask(id, name, want) })
		}
	}
	s.relisted = s.relists(t)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	s.stop = cancel
	for _, id := range []string{"a", "b"} {
		s.askers.Go(func() { s.keepAsking(ctx, id) })
	}
	t.Cleanup(cancel)
	return s
}

// lease changes the ClusterSet's policy until the function that it returns is called.
func (s *steadyState) lease(t *testing.T, to hubv1alpha1.LeaseSpec) (back func()) {
	t.Helper()
	set := func(to hubv1alpha1.LeaseSpec) {
		(&mortal{set: s.set}).policy(t, func(l *hubv1alpha1.LeaseSpec) { *l = to })
	}
	set(to)
	return func() { set(normal) }
}

// keepAsking asks a member's CoreDNS forty times a second, and keeps every answer that is not the one, or
// is late.
func (s *steadyState) keepAsking(ctx context.Context, id string) {
	for ctx.Err() == nil {
		for name, want := range map[string][]string{"steady": {s.vips[id]}, "heads": {"10.1.0.2", "10.2.0.2"}} {
			var err error
			took := lab.Took(func() { err = s.ask(id, name, want) })
			if took > lab.Patience {
				err = errors.Join(err, fmt.Errorf("%s of %s: took %v", name, id, took))
			}
			s.mu.Lock()
			s.asked[id]++
			if err != nil {
				s.wrong = append(s.wrong, time.Now().Format("15:04:05.000 ")+err.Error())
			}
			s.mu.Unlock()
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (s *steadyState) answer(id, name string) (*dns.Msg, error) {
	m := new(dns.Msg)
	m.SetQuestion(fmt.Sprintf("%s.%s.svc.clusterset.local.", name, s.ns), dns.TypeA)
	c := dns.Client{Timeout: limit}
	reply, _, err := c.Exchange(m, s.members[id].DNS.Addr())
	if err != nil {
		return nil, fmt.Errorf("%s of %s: %w", name, id, err)
	}
	return reply, nil
}

func (s *steadyState) ask(id, name string, want []string) error {
	reply, err := s.answer(id, name)
	if err != nil {
		return err
	}
	var got []string
	for _, rr := range reply.Answer {
		if a, ok := rr.(*dns.A); ok {
			got = append(got, a.A.String())
		}
	}
	slices.Sort(got)
	if reply.Rcode != dns.RcodeSuccess || !slices.Equal(got, want) {
		return fmt.Errorf("%s of %s: %s %v, want %v", name, id, dns.RcodeToString[reply.Rcode], got, want)
	}
	return nil
}

// settled waits until all is followed, and checks.
func (s *steadyState) settled(t *testing.T) {
	t.Helper()
	s.converge(t)
	s.check(t)
}

// check stops asking, and fails for every wrong answer and for every VIP that is another.
func (s *steadyState) check(t *testing.T) {
	t.Helper()
	s.stop()
	s.askers.Wait()
	t.Logf("answers: %v; wrong or late: %d", s.asked, len(s.wrong))
	if s.asked["a"] < 20 || s.asked["b"] < 20 {
		t.Errorf("too few questions were asked: %v", s.asked)
	}
	if len(s.wrong) > 0 {
		t.Errorf(
			"%d answers were wrong or late; the first:\n%s",
			len(s.wrong),
			strings.Join(s.wrong[:min(len(s.wrong), 10)], "\n"),
		)
	}
	// Of one that was, it need not be said: watches that start over by themselves miss nothing.
	if n := s.relists(t) - s.relisted; n > 0 && !s.restored {
		t.Errorf("%d times the hub was said to be restored or silent", n)
	}
	for id, vip := range s.vips {
		if imp := s.members[id].wantImport(t, s.ns, "steady", ready("a", "b")); imp.Spec.IPs[0] != vip {
			t.Errorf("%s: the VIP is %s, and was %s", id, imp.Spec.IPs[0], vip)
		}
		if imp := s.members[id].wantImport(t, s.ns, "moving", ready("a")); imp.Spec.IPs[0] != s.movings[id] {
			t.Errorf("%s: the VIP of moving is %s, and was %s", id, imp.Spec.IPs[0], s.movings[id])
		}
	}
}

// relists is how often the members have said that the hub was restored, or silent.
func (s *steadyState) relists(t *testing.T) (n int) {
	t.Helper()
	for _, id := range []string{"a", "b"} {
		var list corev1.EventList
		if err := s.members[id].List(t.Context(), &list, client.InNamespace("clusterset-system")); err != nil {
			t.Fatal(err)
		}
		for _, e := range list.Items {
			if e.Reason == "HubRestored" || e.Reason == "HubSilent" {
				n += int(ptr.Deref(e.Series, corev1.EventSeries{Count: 1}).Count)
			}
		}
	}
	return n
}

// move gives moving another address in a.
func (s *steadyState) move(t *testing.T) {
	t.Helper()
	s.position++
	change(t, s.members["a"], s.moving, func(e *discoveryv1.EndpointSlice) {
		e.Endpoints[0].Addresses[0] = fmt.Sprintf("10.1.%d.%d", 1+s.position/250, s.position%250)
	})
}

func (s *steadyState) at() string {
	return fmt.Sprintf("a/http/10.1.%d.%d:8080", 1+s.position/250, s.position%250)
}

// converge makes one more change, and waits until both members have it.
func (s *steadyState) converge(t *testing.T) {
	t.Helper()
	s.move(t)
	for _, id := range []string{"a", "b"} {
		s.members[id].wantEndpoints(t, s.ns, "moving", s.at())
	}
}

func (s *steadyState) restart(t *testing.T, id string) {
	t.Helper()
	s.members[id].Agent.Kill()
	if err := s.members[id].Agent.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}
