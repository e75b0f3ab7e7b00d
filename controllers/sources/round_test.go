package sources

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/liveness"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/reach"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// network says what answers at which address: a cluster's agent (its ID), an endpoint (""), or, where the value is
// "refuses", nobody at a live node. All else is silent.
type network struct {
	mu     sync.Mutex
	at     map[string]string
	dialed []string
}

func (n *network) dial(_ context.Context, _, address string) (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dialed = append(n.dialed, address)
	who, live := n.at[address]
	switch {
	case !live:
		return nil, errors.New("i/o timeout")
	case who == "refuses":
		return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	}
	here, there := net.Pipe()
	if who != "" {
		go func() { _, _ = there.Write([]byte(Greeting(who))) }()
	}
	return here, nil
}

// reached is a member with a network to others. Each has an agent and exports endpoints.
type reached struct {
	*set
	net    *network
	others []string
}

func newReached(t testing.TB, others ...string) *reached {
	t.Helper()
	r := &reached{
		set: newSet(t, hubv1alpha1.MostSilentHold, others...), net: &network{at: map[string]string{}}, others: others,
	}
	r.restart()
	for i, id := range others {
		lease := &coordinationv1.Lease{}
		if err := r.hub.Get(t.Context(), types.NamespacedName{Namespace: "set", Name: id}, lease); err != nil {
			t.Fatal(err)
		}
		reach.WriteAddresses(lease, []string{agentOf(i)})
		if err := r.hub.Update(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
		r.publish(id, "web", endpointOf(i))
		r.net.at[agentOf(i)], r.net.at[endpointOf(i)+":80"] = id, ""
	}
	r.set.pass(10*time.Second, others, others...) // makes a Lease here for each, which a round begins with
	return r
}

func agentOf(i int) string    { return fmt.Sprintf("10.%d.0.1:8082", i) }
func endpointOf(i int) string { return fmt.Sprintf("10.%d.0.2", i) }

func (r *reached) restart() {
	r.set.restart()
	r.Dial = r.net.dial
	r.Reserved = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}
	r.Families = func(context.Context) ([]corev1.IPFamily, error) { return []corev1.IPFamily{corev1.IPv4Protocol}, nil }
}

// publish adds Pods with one TCP port: a record, or for a Service called later a page.
func (r *reached) publish(cluster, service string, addresses ...string) {
	r.t.Helper()
	group := hubv1alpha1.EndpointGroup{AddressType: discoveryv1.AddressTypeIPv4}
	group.Ports = []hubv1alpha1.EndpointPort{{Protocol: corev1.ProtocolTCP, Port: 8080, Target: ptr.To[int32](80)}}
	for _, a := range addresses {
		group.Endpoints = append(group.Endpoints, hubv1alpha1.Endpoint{Address: a, PodName: service})
	}
	origin := hubv1alpha1.Origin{ClusterID: cluster, ServiceNamespace: "shop", ServiceName: service}
	at := metav1.ObjectMeta{Namespace: "set", Name: service + "." + cluster}
	rec := client.Object(&hubv1alpha1.ServiceExportRecord{ObjectMeta: at, Spec: hubv1alpha1.ServiceExportRecordSpec{
		Origin: origin, Endpoints: []hubv1alpha1.EndpointGroup{group},
	}})
	if service == "later" {
		rec = &hubv1alpha1.EndpointPage{
			ObjectMeta: at,
			Spec:       hubv1alpha1.EndpointPageSpec{Origin: origin, EndpointGroup: group},
		}
	}
	if err := r.hub.Create(r.t.Context(), rec); err != nil {
		r.t.Fatal(err)
	}
}

// rounds runs so many rounds, a second apart, while others renew their Leases.
func (r *reached) rounds(n int) {
	r.t.Helper()
	for range n {
		r.now = r.now.Add(reach.Interval)
		if _, err := r.Reconcile(r.t.Context(), reconcile.Request{NamespacedName: round}); err != nil {
			r.t.Fatal(err)
		}
	}
}

// triesIn runs so many rounds and returns the endpoints that they try.
func (r *reached) triesIn(n int) []string {
	r.t.Helper()
	r.net.dialed = nil
	r.rounds(n)
	return slices.DeleteFunc(r.net.dialed, func(a string) bool { return strings.HasSuffix(a, ":8082") })
}

// silence lets addresses fall silent.
func (r *reached) silence(addresses ...string) {
	for _, a := range addresses {
		delete(r.net.at, a)
	}
}

func (r *reached) want(id string, state reach.State, expired bool) {
	r.t.Helper()
	lease := &coordinationv1.Lease{}
	if err := r.local.Get(r.t.Context(), types.NamespacedName{
		Namespace: kube.SystemNamespace, Name: liveness.LeaseName(id),
	}, lease); err != nil {
		r.t.Fatal(err)
	}
	if got := reach.Read(lease).State; got != state || liveness.StateOf(lease).Expired != expired {
		r.t.Fatalf("%s is %v, expired %v; want %v, %v", id, got, liveness.StateOf(lease).Expired, state, expired)
	}
}

// TestF4WhatAnswersNowhereIsLost within five seconds, though its Lease is not overdue. It is back with its agent and a
// Pod, also one that it has published since, or with a renewal of its Lease.
func TestF4WhatAnswersNowhereIsLost(t *testing.T) {
	for what, back := range map[string]func(*reached){
		"its Pod answers": func(r *reached) { r.net.at[endpointOf(0)+":80"] = "" },
		"a new Pod answers": func(r *reached) {
			r.publish("a", "later", "10.0.0.3")
			r.net.at["10.0.0.3:80"] = ""
		},
		"it renews its Lease": func(r *reached) { r.renew("a") },
	} {
		r := newReached(t, "a", "b")
		r.rounds(2)
		r.want("a", reach.Answers, false)
		r.silence(agentOf(0), endpointOf(0)+":80")
		r.rounds(5)
		r.want("a", reach.Unreachable, true)
		r.want("b", reach.Answers, false)
		r.restart() // of the agent
		r.rounds(3)
		r.want("a", reach.Unreachable, true)
		if got, err := Unreachable(t.Context(), r.local); err != nil || len(got) != 1 || got["a"].IsZero() {
			t.Errorf("unreachable are %v, %v", got, err)
		}
		r.net.at[agentOf(0)] = "a"
		r.rounds(5)
		r.want("a", reach.Unreachable, true)
		back(r)
		r.rounds(2)
		r.want("a", reach.Answers, false)
		if want := []string{"SourceUnreachable", "SourceLive"}; !slices.Equal(r.events, want) {
			t.Errorf("%s: Events %v, want %v", what, r.events, want)
		}
	}
}

// TestF4WhatIsOutsideItsClusterKeepsNobodyAlive: a Service without a selector may name a host that answers for ever.
func TestF4WhatIsOutsideItsClusterKeepsNobodyAlive(t *testing.T) {
	r := newReached(t, "a", "b")
	r.publish("a", "db", "192.0.2.1")
	r.net.at["192.0.2.1:80"] = ""
	db := &hubv1alpha1.ServiceExportRecord{}
	if err := r.hub.Get(t.Context(), types.NamespacedName{Namespace: "set", Name: "db.a"}, db); err != nil {
		t.Fatal(err)
	}
	db.Spec.Endpoints[0].Endpoints[0].PodName = ""
	if err := r.hub.Update(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	r.rounds(2)
	r.silence(agentOf(0), endpointOf(0)+":80")
	r.rounds(5)
	r.want("a", reach.Unreachable, true)
}

// TestF4ADeniedDryRunKeepsNobodyAlive: a policy may deny the Service that shows this cluster's IP families, for ever.
func TestF4ADeniedDryRunKeepsNobodyAlive(t *testing.T) {
	r := newReached(t, "a", "b")
	r.Families = func(context.Context) ([]corev1.IPFamily, error) { return nil, errors.New("denied") }
	r.rounds(2)
	r.silence(agentOf(0), endpointOf(0)+":80")
	r.rounds(5)
	r.want("a", reach.Unreachable, true)
	r.want("b", reach.Answers, false)
}

// TestF4WhatServesStays though its agent is silent and its Lease expires, and this agent restarts. One Event says so.
func TestF4WhatServesStays(t *testing.T) {
	r := newReached(t, "a", "b", "c")
	r.rounds(2)
	r.silence(agentOf(0))
	r.rounds(5)
	r.want("a", reach.Serving, false)
	r.pass(2*time.Minute, r.others, "b", "c")
	r.rounds(5)
	r.want("a", reach.Serving, false)
	r.restart()
	r.pass(2*time.Minute, r.others, "b", "c")
	r.rounds(1)
	r.want("a", reach.Serving, false)
	if want := []string{"SourceSilent"}; !slices.Equal(slices.Compact(r.events), want) {
		t.Errorf("Events %v, want %v", r.events, want)
	}
}

// TestF4WhereNoEndpointAnsweredTheLeaseDecides: NetworkPolicies hide the Pods from agents only, and the agent moves.
func TestF4WhereNoEndpointAnsweredTheLeaseDecides(t *testing.T) {
	r := newReached(t, "a", "b", "c")
	r.silence(endpointOf(0) + ":80")
	r.rounds(20)
	r.silence(agentOf(0))
	r.rounds(10)
	r.want("a", reach.Silent, false)
	r.pass(2*time.Minute, r.others, "b", "c")
	r.want("a", reach.Silent, true)
}

// TestF4WhereMostPodsAreHiddenNobodyIsLost: the one that has answered is among those that are tried. Once policies hide
// that as well, or its address is another Pod's, silence proves nothing.
func TestF4WhereMostPodsAreHiddenNobodyIsLost(t *testing.T) {
	r := newReached(t, "a", "b", "c")
	for i := range 99 {
		r.publish("a", fmt.Sprintf("hidden-%02d", i), fmt.Sprintf("10.0.1.%d", i))
	}
	r.rounds(60)
	r.silence(agentOf(0))
	r.rounds(30)
	r.want("a", reach.Serving, false)

	for _, fails := range []func(){
		func() { r.silence(endpointOf(0) + ":80") },
		func() { r.net.at[endpointOf(0)+":80"] = "refuses" },
	} {
		r.net.at[agentOf(0)], r.net.at[endpointOf(0)+":80"] = "a", ""
		r.rounds(proveAgain)
		fails()
		r.rounds(proveAgain)
		r.silence(agentOf(0), endpointOf(0)+":80")
		r.rounds(30)
		r.want("a", reach.Silent, false)
	}
}

// TestF4AMemberIsTriedUntilAnEndpointAnswers: in each of the first ten rounds in which there is one, then in every
// tenth, and no more once one has.
func TestF4AMemberIsTriedUntilAnEndpointAnswers(t *testing.T) {
	r := newReached(t, "a", "b")
	web := &hubv1alpha1.ServiceExportRecord{ObjectMeta: metav1.ObjectMeta{Namespace: "set", Name: "web.a"}}
	if err := r.hub.Delete(t.Context(), web); err != nil {
		t.Fatal(err)
	}
	r.rounds(30)
	r.publish("a", "later", "10.0.0.3")
	for _, c := range []struct {
		rounds, want int
		answers      bool
	}{{10, 10, false}, {30, 3, false}, {10, 1, true}, {100, 0, true}} {
		if c.answers {
			r.net.at["10.0.0.3:80"] = ""
		}
		if got := r.triesIn(c.rounds); len(got) != c.want {
			t.Errorf("%d rounds, answers %v: it is tried %d times, want %d", c.rounds, c.answers, len(got), c.want)
		}
	}

	r.silence(agentOf(0), "10.0.0.3:80")
	r.rounds(10)
	r.net.at[agentOf(0)], r.net.at["10.0.0.3:80"] = "a", "refuses" // its Pods start later than its agent
	r.rounds(3)
	if got := r.triesIn(5); len(got) != 5 {
		t.Errorf("after a refusal, 5 rounds try it %d times", len(got))
	}
}

// TestF4WhileItServesOneEndpointIsTried, the one that answered. If that fails, the next round tries others, and nothing
// is stored in between.
func TestF4WhileItServesOneEndpointIsTried(t *testing.T) {
	r := newReached(t, "a", "b")
	r.publish("a", "more", "10.0.0.3", "10.0.0.4", "10.0.0.5")
	for _, a := range []string{"10.0.0.3", "10.0.0.4", "10.0.0.5"} {
		r.net.at[a+":80"] = ""
	}
	r.rounds(2)
	r.silence(agentOf(0))
	r.rounds(5)
	first := r.triesIn(1)
	if got := r.triesIn(4); len(first) != 1 || len(got) != 4 || len(slices.Compact(got)) != 1 || got[0] != first[0] {
		t.Errorf("five rounds try %v and %v", first, got)
	}
	r.silence(first[0])
	for _, want := range []int{1, 4, 1} {
		if got := r.triesIn(1); len(got) != want {
			t.Errorf("a round tries %v, want %d", got, want)
		}
		r.want("a", reach.Serving, false)
	}
	clear(r.net.at)
	r.net.at[agentOf(1)] = "b"
	r.rounds(4)
	r.want("a", reach.Unreachable, true)
}

// TestF4WhatAnswersIsBackWithoutALease: also while the hub says nothing about Leases. Nobody expires by that. An agent
// that starts then begins its rounds with the first renewal of its own Lease.
func TestF4WhatAnswersIsBackWithoutALease(t *testing.T) {
	for _, refused := range []bool{true, false} {
		r := newReached(t, "a", "b")
		r.rounds(2)
		r.silence(agentOf(0), endpointOf(0)+":80")
		r.rounds(5)
		r.want("a", reach.Unreachable, true)
		second := &hubv1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Namespace: "set", Name: "second"}}
		if refused {
			r.HubSeen = func() time.Time { return time.Time{} }
		} else if err := r.hub.Create(t.Context(), second); err != nil {
			t.Fatal(err)
		}
		own := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "set", Name: "me"}}
		if !slices.Contains(r.requestsForLease(t.Context(), own), reconcile.Request{NamespacedName: round}) {
			t.Error("a renewal of the own Lease begins no round")
		}
		r.net.at[agentOf(0)], r.net.at[endpointOf(0)+":80"] = "a", ""
		r.rounds(2)
		r.want("a", reach.Answers, false)
		r.silence(agentOf(1), endpointOf(1)+":80")
		r.rounds(10)
		r.want("b", reach.Answers, false)
	}
}

// TestF4WhomARebuiltHubDoesNotShowIsAsked: members of a hub that lost its data join again one by one.
func TestF4WhomARebuiltHubDoesNotShowIsAsked(t *testing.T) {
	r := newReached(t, "a", "b", "c")
	r.rounds(2)
	web := metav1.ObjectMeta{Namespace: "set", Name: "web.a"}
	copied := &hubv1alpha1.ServiceExportRecord{ObjectMeta: web}
	copied.Namespace, copied.Spec.ClusterID = kube.SystemNamespace, "a"
	if err := r.local.Create(t.Context(), copied); err != nil {
		t.Fatal(err)
	}
	for _, lost := range []client.Object{
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "set", Name: "a"}},
		&hubv1alpha1.ServiceExportRecord{ObjectMeta: web},
	} {
		if err := r.hub.Delete(t.Context(), lost); err != nil {
			t.Fatal(err)
		}
	}
	r.restart()
	for range 7 {
		r.pass(10*time.Second, r.others, "b", "c")
		r.rounds(1)
	}
	r.want("a", reach.Answers, false)
}

// TestF4AnAPIServerThatIsAwaySlowsNoRound: once it is back, what answers is stored within a second.
func TestF4AnAPIServerThatIsAwaySlowsNoRound(t *testing.T) {
	r := newReached(t, "a", "b")
	r.rounds(2)
	r.Local = interceptor.NewClient(r.local.(client.WithWatch), interceptor.Funcs{
		Update: func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error {
			return errors.New("connection refused")
		},
	})
	r.silence(agentOf(0), endpointOf(0)+":80")
	r.rounds(10) // and none returns an error
	r.Local = r.local
	r.rounds(1)
	r.want("a", reach.Unreachable, true)
}

// TestF4AnAPIServerThatHangsHoldsUpNoRound.
func TestF4AnAPIServerThatHangsHoldsUpNoRound(t *testing.T) {
	r := newReached(t, "a", "b")
	r.rounds(2)
	r.Local = interceptor.NewClient(r.local.(client.WithWatch), interceptor.Funcs{
		Update: func(ctx context.Context, _ client.WithWatch, _ client.Object, _ ...client.UpdateOption) error {
			<-ctx.Done()
			return ctx.Err()
		},
	})
	r.silence(agentOf(0), endpointOf(0)+":80", agentOf(1))
	r.rounds(2)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // the whole pass has 90 s
	defer cancel()
	r.now = r.now.Add(reach.Interval)
	if _, err := r.Reconcile(ctx, reconcile.Request{NamespacedName: round}); err != nil || ctx.Err() != nil {
		t.Errorf("%v, %v", err, ctx.Err())
	}
}

// TestF4EverySuspectIsTried, however many there are: agents of one broken image, and a member that is dead among them.
func TestF4EverySuspectIsTried(t *testing.T) {
	var ids []string
	for i := range 90 {
		ids = append(ids, fmt.Sprintf("m%03d", i))
	}
	r := newReached(t, ids...)
	r.rounds(2)
	for i := range 80 {
		r.silence(agentOf(i))
	}
	r.silence(endpointOf(79) + ":80")
	r.net.dialed = nil
	r.rounds(6)
	for i := range 79 {
		r.want(ids[i], reach.Serving, false)
	}
	r.want(ids[79], reach.Unreachable, true)
	if n := len(r.net.dialed); n > 6*(len(ids)+maxTriesOfGroup) {
		t.Errorf("six rounds open %d connections", n)
	}
}

// TestF4WhatRefusesEndsWithItsLease.
func TestF4WhatRefusesEndsWithItsLease(t *testing.T) {
	r := newReached(t, "a", "b", "c")
	r.rounds(2)
	r.silence(agentOf(0))
	r.net.at[endpointOf(0)+":80"] = "refuses"
	r.rounds(10)
	r.want("a", reach.Silent, false)
	r.pass(2*time.Minute, r.others, "b", "c")
	r.want("a", reach.Silent, true)
}

// TestT1ALongGraceBringsNobodyBack who had expired before: only a renewal or an answer does.
func TestT1ALongGraceBringsNobodyBack(t *testing.T) {
	for what, back := range map[string]func(*reached){
		"it renews its Lease":  func(r *reached) { r.pass(10*time.Second, r.others, r.others...) },
		"its agent answers":    func(r *reached) { r.net.at[agentOf(0)] = "a" },
		"its endpoint answers": func(r *reached) { r.net.at[endpointOf(0)+":80"] = "" },
	} {
		r := newReached(t, "a", "b", "c")
		r.rounds(2)
		r.silence(agentOf(0))
		r.net.at[endpointOf(0)+":80"] = "refuses"
		r.rounds(10)
		r.pass(2*time.Minute, r.others, "b", "c")
		r.want("a", reach.Silent, true)
		r.grace(86400)
		r.pass(10*time.Second, r.others, "b", "c")
		r.want("a", reach.Silent, true)
		r.restart()
		r.rounds(3)
		r.pass(10*time.Second, r.others, "b", "c")
		r.want("a", reach.Silent, true)
		back(r)
		r.rounds(3)
		if got := r.expired([]string{"a"}); len(got) > 0 {
			t.Errorf("%s, and it is expired", what)
		}
	}
}

// TestF4AProxyProvesNothing: it accepts each connection, whether there is a cluster behind it or not. So does another
// cluster that has the address of the agent.
func TestF4AProxyProvesNothing(t *testing.T) {
	for _, who := range []string{"nobody", "b"} {
		r := newReached(t, "a", "b", "c")
		r.rounds(2)
		r.net.at[agentOf(0)] = who
		r.rounds(10)
		r.want("a", reach.Silent, false)
		r.pass(2*time.Minute, r.others, "b", "c")
		r.want("a", reach.Silent, true)
	}
}

// TestF4WhoIsCutOffLosesNobody: where nothing answers, the fault is this cluster's own.
func TestF4WhoIsCutOffLosesNobody(t *testing.T) {
	r := newReached(t, "a", "b", "c")
	r.rounds(2)
	clear(r.net.at)
	r.rounds(30)
	for _, id := range r.others {
		r.want(id, reach.Silent, false)
	}
}

// TestF4OfTwoMembersOneAsksItsAPIServer, which stands for the others that there are not.
func TestF4OfTwoMembersOneAsksItsAPIServer(t *testing.T) {
	for _, answers := range []bool{true, false} {
		r := newReached(t, "a")
		r.Home = "10.250.0.1:6443"
		r.rounds(2)
		clear(r.net.at)
		if answers {
			r.net.at[r.Home] = ""
		}
		r.rounds(5)
		if answers {
			r.want("a", reach.Unreachable, true)
		} else {
			r.want("a", reach.Silent, false)
		}
	}
}

// TestF4AnotherProgramsLeaseIsNoMember: an operator in the hub's namespace elects its leader there. Of two members,
// this cluster's API server stands for others all the same. What was stored of the operator goes.
func TestF4AnotherProgramsLeaseIsNoMember(t *testing.T) {
	r := newReached(t, "a")
	lock := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "set", Name: "lock"}}
	if err := r.hub.Create(t.Context(), lock); err != nil {
		t.Fatal(err)
	}
	stored := &coordinationv1.Lease{}
	store(stored, "lock", liveness.Observation{RenewedAt: r.now, ObservedUntil: r.now}, liveness.State{},
		liveness.Limits{Renew: 10 * time.Second, Expiry: 50 * time.Second})
	if err := r.local.Create(t.Context(), stored); err != nil {
		t.Fatal(err)
	}
	all := []string{"a", "lock"}
	r.pass(10*time.Second, all, all...)
	if err := r.local.Get(t.Context(), client.ObjectKeyFromObject(stored), stored); !apierrors.IsNotFound(err) {
		t.Errorf("the Lease for what is no member: %v", err)
	}
	r.Home = "10.250.0.1:6443"
	r.rounds(2)
	clear(r.net.at)
	r.net.at[r.Home] = ""
	r.rounds(5)
	r.want("a", reach.Unreachable, true)
}

// TestF4WhoLeavesDuringARoundIsForgotten: of a cluster that joins with its ID, its Lease decides until its agent has
// answered.
func TestF4WhoLeavesDuringARoundIsForgotten(t *testing.T) {
	r := newReached(t, "a", "b", "c")
	r.rounds(2)
	left := &coordinationv1.Lease{}
	if err := r.hub.Get(t.Context(), types.NamespacedName{Namespace: "set", Name: "a"}, left); err != nil {
		t.Fatal(err)
	}
	r.Local = interceptor.NewClient(r.local.(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, of ...client.ListOption) error {
			err := c.List(ctx, list, of...)
			if _, leases := list.(*coordinationv1.LeaseList); !leases {
				return err
			}
			r.Local = r.local
			_, failed := r.decide(ctx, "a")
			return errors.Join(err, failed)
		},
	})
	if err := r.hub.Delete(t.Context(), left); err != nil {
		t.Fatal(err)
	}
	left.ResourceVersion = ""
	r.rounds(2)
	if err := r.hub.Create(t.Context(), left); err != nil {
		t.Fatal(err)
	}
	r.silence(agentOf(0), endpointOf(0)+":80") // from here: policies hide both
	r.pass(10*time.Second, r.others, r.others...)
	r.rounds(10)
	r.want("a", reach.Unknown, false)
}

// TestS4NobodyMakesAnAgentConnectAnywhere: neither to this cluster's Services nor to metadata services and nodes.
func TestS4NobodyMakesAnAgentConnectAnywhere(t *testing.T) {
	r := newReached(t, "a", "b")
	r.rounds(1)
	lease := &coordinationv1.Lease{}
	if err := r.hub.Get(t.Context(), types.NamespacedName{Namespace: "set", Name: "a"}, lease); err != nil {
		t.Fatal(err)
	}
	reach.WriteAddresses(
		lease,
		[]string{"127.0.0.1:6443", "169.254.169.254:80", "10.96.0.1:443", "example.com:80", "10.0.0.9:0"},
	)
	if err := r.hub.Update(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	r.publish("a", "evil", "127.0.0.1", "169.254.169.254", "10.96.0.1")
	r.silence(endpointOf(0) + ":80")
	r.pass(30*time.Second, r.others, "b") // so that the Lease of a is overdue
	r.rounds(1)
	r.net.dialed = nil
	r.rounds(10)
	asked := slices.Compact(slices.Sorted(slices.Values(r.net.dialed)))
	if want := []string{endpointOf(0) + ":80", agentOf(1)}; !slices.Equal(asked, want) {
		t.Errorf("connected to %v, want %v", asked, want)
	}
}

// TestF4ASampleIsBounded: of however many endpoints, a round tries eight, and each round tries others, be they in many
// records or in few.
func TestF4ASampleIsBounded(t *testing.T) {
	for _, c := range []struct{ records, each, want int }{{100, 2, 180}, {7, 24, 160}, {1, 160, 95}} {
		r := newReached(t, "a", "b")
		for i := range c.records {
			var addresses []string
			for j := range c.each {
				a := fmt.Sprintf("10.100.%d.%d", i, j)
				addresses, r.net.at[a+":80"] = append(addresses, a), ""
			}
			r.publish("a", fmt.Sprintf("x%d", i), addresses...)
		}
		r.silence(endpointOf(0) + ":80")
		r.rounds(2)
		clear(r.net.at)
		r.net.at[agentOf(1)] = "b"
		seen := map[string]bool{}
		for range 30 {
			tries := r.triesIn(1)
			if len(tries) > maxTries {
				t.Fatalf("a round tries %d endpoints", len(tries))
			}
			for _, a := range tries {
				seen[a] = true
			}
		}
		r.want("a", reach.Unreachable, true)
		if len(seen) < c.want {
			t.Errorf("%d records of %d: 30 rounds try %d endpoints, want %d", c.records, c.each, len(seen), c.want)
		}
	}
}

// TestAQuietSetIsNotWritten: while its agents answer, an hour of renewals is one write each. If one falls silent while
// this agent is restarted, its Lease decides: no endpoint of it has answered this process.
func TestAQuietSetIsNotWritten(t *testing.T) {
	r := newReached(t, "a", "b")
	r.rounds(2)
	version := func(id string) string {
		lease := &coordinationv1.Lease{}
		name := types.NamespacedName{Namespace: kube.SystemNamespace, Name: liveness.LeaseName(id)}
		if err := r.local.Get(t.Context(), name, lease); err != nil {
			t.Fatal(err)
		}
		return lease.ResourceVersion
	}
	a, b := version("a"), version("b")
	for range 58 {
		r.pass(time.Minute, r.others, r.others...)
		r.rounds(1)
	}
	if version("a") != a || version("b") != b {
		t.Errorf("58 minutes of renewals were written: a is at version %s, was at %s", version("a"), a)
	}
	r.silence(agentOf(0), endpointOf(0)+":80")
	r.restart()
	r.rounds(5)
	r.want("a", reach.Silent, false)
	r.want("b", reach.Answers, false)
	r.pass(2*time.Minute, r.others, "b")
	r.want("a", reach.Silent, true)
}

// TestF4AnOldExpirationIsDecidedAgainInTime: the Lease of a has expired while its agent answered. Once nothing answers
// any more, it counts no sooner than a Lease lasts after that, and no later than the pass that is asked for.
func TestF4AnOldExpirationIsDecidedAgainInTime(t *testing.T) {
	r := newReached(t, "a", "b")
	r.rounds(2)
	for range 9 {
		r.pass(10*time.Second, r.others, "b")
		r.rounds(1)
	}
	r.want("a", reach.Answers, false)
	last := r.now
	r.silence(agentOf(0), agentOf(1), endpointOf(0)+":80", endpointOf(1)+":80")
	r.rounds(5)
	r.want("a", reach.Silent, false)
	for {
		result, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "a"}})
		if err != nil {
			t.Fatal(err)
		}
		if since := r.now.Sub(last); since >= 50*time.Second {
			r.want("a", reach.Silent, true)
			if since > 51*time.Second {
				t.Errorf("it has expired %v after it last answered", since)
			}
			return
		}
		r.want("a", reach.Silent, false)
		r.now = r.now.Add(result.RequeueAfter)
		r.renew("b")
	}
}
