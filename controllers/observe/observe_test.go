package observe

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/liveness"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// TestF4OffCostsNothing: without spec.probe nothing is dialled, written, said or asked for.
func TestF4OffCostsNothing(t *testing.T) {
	b := newBench(t, nil)
	b.export("web", hubv1alpha1.ProbeTCP, "10.3.0.1")
	b.says("b", `{"c":["*"]}`)
	b.says("c", `{"c":["*"]}`)
	b.look(time.Minute)
	if len(b.dialed)+b.writes+len(b.events) > 0 {
		t.Errorf("%v dialled, %d writes, %v", b.dialed, b.writes, b.events)
	}
	for _, w := range b.Controller().Watches {
		if _, leases := w.Object.(*coordinationv1.Lease); leases {
			if n := len(w.Requests(t.Context(), &coordinationv1.Lease{})); n != 1 {
				t.Errorf("%d requests for a Lease", n)
			}
		}
		rec := &hubv1alpha1.EndpointRecord{}
		rec.Spec.ServiceName = "web"
		if _, records := w.Object.(*hubv1alpha1.EndpointRecord); records && w.Requests(t.Context(), rec) != nil {
			t.Error("a record asks for a pass")
		}
	}
	if text, known := b.Votes(); text != "" || !known {
		t.Errorf("%q, known %v", text, known)
	}
}

// TestF4WhoAsksIsLookedAt: the ClusterSet's default, and what exporters say instead.
func TestF4WhoAsksIsLookedAt(t *testing.T) {
	for _, c := range []struct {
		set, service hubv1alpha1.Probe
		looked       bool
	}{{"none", "", false}, {"none", "tcp", true}, {"tcp", "", true}, {"tcp", "none", false}} {
		spec := tcp()
		spec.Default = c.set
		b := newBench(t, spec)
		b.export("web", c.service, "10.3.0.1")
		b.renew()
		b.look(12 * time.Second)
		if got := slices.Contains(b.dialed, "10.3.0.1:8080"); got != c.looked {
			t.Errorf("%v: %v", c, b.dialed)
		}
	}
}

// TestS4NoProbeOfAddressesThatNoPeerMayClaim: who could publish them would have every member knock there.
func TestS4NoProbeOfAddressesThatNoPeerMayClaim(t *testing.T) {
	b := newBench(t, tcp())
	b.export("web", "", "127.0.0.1", "169.254.169.254", "0.0.0.0", "224.0.0.1", "240.0.0.1", "10.3.0.1")
	b.renew()
	b.look(30 * time.Second)
	for _, address := range b.dialed {
		if address != "10.3.0.1:8080" {
			t.Errorf("%s was dialled", address)
		}
	}
	if len(b.dialed) == 0 {
		t.Error("nothing was dialled")
	}
}

// TestF4TwoMembersDecide: one blind member decides nothing; with another that says so, what both do not reach is
// withheld; it comes back with its answers, or with the death of a voter.
func TestF4TwoMembersDecide(t *testing.T) {
	b := newBench(t, tcp())
	b.export("web", "", "10.3.0.1", "10.3.0.2")
	b.export("api", "", "10.3.0.3")
	b.renew()
	b.look(30 * time.Second)
	b.down["10.3.0.1"] = true
	b.look(40 * time.Second)
	if text, _ := b.Votes(); text != `{"web.shop.c":["10.3.0.1"]}` {
		t.Fatalf("it says %q", text)
	}
	if b.want("web", ""); b.writes > 0 {
		t.Errorf("%d writes", b.writes)
	}
	b.says("b", `{"c":["*"]}`)
	b.look(20 * time.Second)
	b.want("web", "10.3.0.1")
	b.want("api", "")
	if len(b.events) != 1 ||
		!strings.HasPrefix(b.events[0], "EndpointsWithheld: Of 3 live members, these do not reach 10.3.0.1: a, b.") {
		t.Errorf("events %q", b.events)
	}

	b.kill("b", true)
	b.look(20 * time.Second)
	b.want("web", "")
	b.kill("b", false)
	b.look(20 * time.Second)
	b.want("web", "10.3.0.1")
	clear(b.down)
	b.look(40 * time.Second)
	b.want("web", "")
	if p := b.Probes(); p.Sources["c"] != (kube.Probed{Reached: 3}) || p.Succeeded == 0 || p.Failed == 0 {
		t.Errorf("%+v", p)
	}
}

// TestF4WhatNobodyLooksAtIsNotWithheld: who reaches nothing of a cluster says so of all that it looked at.
func TestF4WhatNobodyLooksAtIsNotWithheld(t *testing.T) {
	b := newBench(t, tcp())
	b.export("web", "", "10.3.0.1")
	b.export("quiet", hubv1alpha1.ProbeNone, "10.3.0.2")
	b.serve("dns", "", corev1.ProtocolUDP, "10.3.0.3")
	b.down["*"] = true
	b.says("b", `{"c":["*"]}`)
	b.renew()
	b.look(60 * time.Second)
	b.want("web", "*")
	b.want("quiet", "")
	b.want("dns", "")

	// A hub that shows no endpoints says nothing of whether they are looked at.
	if err := b.hub.DeleteAllOf(t.Context(), &hubv1alpha1.EndpointRecord{}, client.InNamespace("set")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"web", "dns"} {
		b.pass(types.NamespacedName{Namespace: "shop", Name: name})
	}
	b.want("web", "*")
	b.want("dns", "")
}

// TestF4NoVoteOnAFamilyThatIsNotHere: a cluster without IPv6 reaches none of those endpoints, which is no fault of
// theirs.
func TestF4NoVoteOnAFamilyThatIsNotHere(t *testing.T) {
	for _, here := range []bool{false, true} {
		b := newBench(t, tcp())
		if here {
			b.families = append(b.families, corev1.IPv6Protocol)
		}
		b.export("web", "", "fd00:3::1")
		b.down["*"] = true
		b.renew()
		b.look(60 * time.Second)
		if text, _ := b.Votes(); (len(b.dialed) > 0) != here || (text != "") != here {
			t.Errorf("IPv6 here %v: %d looks, it says %q", here, len(b.dialed), text)
		}
	}
}

// TestF4AVoteSpeaksOfNoOtherFamily: of an export of two families a cluster of one looks at a half, and says so of
// those addresses alone: others reach the rest.
func TestF4AVoteSpeaksOfNoOtherFamily(t *testing.T) {
	for _, c := range []struct {
		here []corev1.IPFamily
		want string
	}{
		{[]corev1.IPFamily{corev1.IPv4Protocol}, `{"api.shop.c":["*"],"web.shop.c":["10.3.0.1","10.3.0.2"]}`},
		{[]corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}, `{"c":["*"]}`},
	} {
		b := newBench(t, tcp())
		b.families = c.here
		b.export("web", "", "10.3.0.1", "10.3.0.2")
		rec := &hubv1alpha1.ServiceExportRecord{}
		if err := b.local.Get(
			t.Context(), types.NamespacedName{Namespace: kube.SystemNamespace, Name: "web.shop.c"}, rec,
		); err != nil {
			t.Fatal(err)
		}
		b.slice(rec, "web-2", "fd00:3::1")
		b.export("api", "", "10.3.0.3")
		b.down["*"] = true
		b.renew()
		b.look(60 * time.Second)
		if text, _ := b.Votes(); text != c.want {
			t.Errorf("a cluster of %v says %q, want %q", c.here, text, c.want)
		}
	}
}

// kill has b count as dead here, or not.
func (b *bench) kill(id string, dead bool) {
	lease := &coordinationv1.Lease{}
	if err := b.local.Get(
		b.t.Context(), types.NamespacedName{Namespace: kube.SystemNamespace, Name: "source-" + id}, lease,
	); err != nil {
		b.t.Fatal(err)
	}
	lease.Annotations = said(dead)
	if err := b.local.Update(b.t.Context(), lease); err != nil {
		b.t.Fatal(err)
	}
}

// TestF4AVoteIsAsFreshAsItsLease: one that is not renewed counts no longer, though its member counts as alive, as all
// do while the hub is doubted. Time in which the hub is not seen does not count.
func TestF4AVoteIsAsFreshAsItsLease(t *testing.T) {
	b := withheld(t)
	b.silent["b"] = true
	b.look(20 * time.Second)
	b.clock = b.clock.Add(time.Hour)
	b.look(20 * time.Second)
	b.want("web", "*")
	b.look(30 * time.Second)
	b.want("web", "")
	if live := strings.Join(b.ballot.Live, " "); live != "a b c" {
		t.Errorf("%s count as alive", live)
	}
	b.silent["b"] = false
	b.look(20 * time.Second)
	b.want("web", "*")
}

// TestF4AnExportThatComesBackIsLookedAtFirst: what was withheld of it before it was withdrawn is not any more, also
// where the hub was not seen when that became known here.
func TestF4AnExportThatComesBackIsLookedAtFirst(t *testing.T) {
	for _, fresh := range []bool{true, false} {
		b := newBench(t, tcp())
		b.export("web", "", "10.3.0.1")
		b.export("api", "", "10.3.0.2")
		b.down["*"] = true
		b.says("b", `{"c":["*"]}`)
		b.renew()
		b.look(60 * time.Second)
		b.want("web", "*")
		rec := &hubv1alpha1.ServiceExportRecord{}
		name := types.NamespacedName{Namespace: kube.SystemNamespace, Name: "web.shop.c"}
		if err := b.local.Get(t.Context(), name, rec); err != nil {
			t.Fatal(err)
		}
		rec.Spec.Withdrawn = true
		if err := b.local.Update(t.Context(), rec); err != nil {
			t.Fatal(err)
		}
		b.fresh = fresh
		b.pass(types.NamespacedName{Namespace: "shop", Name: "web"})
		if !fresh {
			b.want("web", "*")
			b.fresh = true
			b.renew()
		}
		b.want("web", "")
		b.want("api", "*")
	}
}

// TestF4AVoteDoesNotOutliveItsVoter: an agent that was rolled back to a version without votes renews the Lease, and
// leaves there what the one before it said.
func TestF4AVoteDoesNotOutliveItsVoter(t *testing.T) {
	b := withheld(t)
	b.rolledBack["b"] = true
	b.look(20 * time.Second)
	b.want("web", "")
}

// TestF4FailStatic: while the hub is not seen as it is, or shows no ClusterSet, nothing changes; a restart forgets
// nothing.
func TestF4FailStatic(t *testing.T) {
	b := newBench(t, tcp())
	b.export("web", "", "10.3.0.1", "10.3.0.2")
	b.down["10.3.0.1"] = true
	b.says("b", `{"web.shop.c":["10.3.0.1"]}`)
	b.renew()
	b.look(60 * time.Second)
	b.want("web", "10.3.0.1")

	b.restart()
	if _, known := b.Votes(); known {
		t.Error("it says something before it knows anything")
	}
	b.renew()
	if text, known := b.Votes(); text != `{"web.shop.c":["10.3.0.1"]}` || !known {
		t.Errorf("after a restart it says %q", text)
	}
	b.want("web", "10.3.0.1")

	b.fresh = false
	b.says("b", "")
	b.look(60 * time.Second)
	b.want("web", "10.3.0.1")
	b.fresh = true
	set := &hubv1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Namespace: "set", Name: "set"}}
	if err := b.hub.Delete(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	b.look(60 * time.Second)
	b.want("web", "10.3.0.1")
	set.ResourceVersion = ""
	b.create(b.hub, set) // without spec.probe
	b.look(10 * time.Second)
	b.want("web", "")
}

// TestF4TurningItOffIsNotLeftHalfway: where a write fails, the next pass makes it.
func TestF4TurningItOffIsNotLeftHalfway(t *testing.T) {
	b := withheld(t)
	set := &hubv1alpha1.ClusterSet{}
	if err := b.hub.Get(t.Context(), types.NamespacedName{Namespace: "set", Name: "set"}, set); err != nil {
		t.Fatal(err)
	}
	set.Spec.Probe = nil
	if err := b.hub.Update(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	b.refused = 1
	if _, err := b.Reconcile(t.Context(), reconcile.Request{NamespacedName: count}); err == nil {
		t.Fatal("a write that failed is not told")
	}
	b.pass(count)
	b.want("web", "")
}

// TestF4OwnView: by itself where the policy says so, and else not.
func TestF4OwnView(t *testing.T) {
	for _, own := range []bool{false, true} {
		spec := tcp()
		spec.OwnView = own
		b := newBench(t, spec)
		b.export("web", "", "10.3.0.1", "10.3.0.2")
		b.down["*"] = true
		b.renew()
		b.look(60 * time.Second)
		if got := b.withheld("web") == "*"; got != own {
			t.Errorf("ownView %v: %q", own, b.withheld("web"))
		}
	}
}

// TestF4AVoterThatFlaps: with an honest vote beside it, a member that changes its mind every second makes no more
// writes than one per renewal.
func TestF4AVoterThatFlaps(t *testing.T) {
	b := newBench(t, tcp())
	b.export("web", "", "10.3.0.1", "10.3.0.2")
	b.down["10.3.0.1"] = true
	b.renew()
	b.look(60 * time.Second)
	for i := range 300 {
		b.says("b", []string{"", `{"c":["*"]}`}[i%2])
		b.pass(count)
		b.pass(types.NamespacedName{Namespace: "shop", Name: "web"})
		b.look(time.Second)
	}
	if b.writes < 2 || b.writes > 31 {
		t.Errorf("%d writes in 300 s", b.writes)
	}
}

// TestF4VotesThatAreNonsense do not count, which is said once.
func TestF4VotesThatAreNonsense(t *testing.T) {
	b := newBench(t, tcp())
	b.export("web", "", "10.3.0.1")
	b.down["10.3.0.1"] = true
	b.renew()
	b.says("b", `{"c":["everything"]}`)
	b.look(60 * time.Second)
	b.want("web", "")
	if len(b.events) != 1 || !strings.HasPrefix(b.events[0], "VoteRefused") {
		t.Errorf("events %q", b.events)
	}
}

// TestF4LooksAreBounded: of a thousand endpoints, all down, fifty a second at most and at a time, and each in its
// turn.
func TestF4LooksAreBounded(t *testing.T) {
	b := newBench(t, tcp())
	var all []string
	for i := range 1000 {
		all = append(all, fmt.Sprintf("10.3.%d.%d", i/250, 1+i%250))
	}
	b.export("web", "", all...)
	b.down["*"] = true
	b.renew()
	b.look(40 * time.Second)
	if n := len(b.dialed); n > 41*atOnce || n < 35*atOnce || b.most > atOnce {
		t.Errorf("%d looks in 40 s, %d at a time", n, b.most)
	}
	seen := map[string]int{}
	for _, address := range b.dialed {
		seen[address]++
	}
	if len(seen) != 1000 {
		t.Errorf("%d of 1000 were looked at", len(seen))
	}
	b.look(60 * time.Second)
	if text, _ := b.Votes(); text != `{"c":["*"]}` {
		t.Errorf("it says %.80s", text)
	}
}

func said(dead bool) map[string]string {
	annotations := map[string]string{}
	liveness.State{Expired: dead}.Write(annotations)
	return annotations
}
