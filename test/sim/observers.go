package sim

import (
	"context"
	"errors"
	"net"

	coordinationv1 "k8s.io/api/coordination/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/votes"
	"github.com/clusterset-dns/clusterset-dns/test/sim/api"
)

// Observers are the members that look at each other's endpoints (F4). All of these can be reached, but not by who is
// blind.
type Observers struct {
	hubv1alpha1.ProbeSpec
	Blind int  // how many honest members may be blind in one episode, now and then
	Lies  bool // the liar, where there is one, says of everything that it does not reach it
}

// alone tells whether no two members ever say that they do not reach the same: then nothing may be withheld.
func (w *World) alone() bool {
	n := w.Probe.Blind
	if w.Probe.Lies && w.liar != nil {
		n++
	}
	return n < 2
}

// choosesBlind says who may be blind in the episode that begins.
func (w *World) choosesBlind() {
	w.failing = nil
	if w.Probe == nil {
		return
	}
	all := w.honest()
	w.rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	w.failing = all[:min(w.Probe.Blind, len(all))]
	for _, m := range w.failing {
		m.blind = w.chance(0.8)
		w.note("fault: %s is blind: %v", m.id, m.blind)
	}
}

// blinds is a fault: a member's network breaks, or is mended. Nothing else of it does.
func (w *World) blinds() {
	if w.Probe.Lies && w.liar != nil && w.chance(0.3) {
		w.liar.votes()
		return
	}
	if len(w.failing) > 0 {
		m := pick(w, w.failing)
		m.blind = w.chance(0.7)
		w.note("fault: %s is blind: %v", m.id, m.blind)
	}
}

var errBlind = errors.New("dial tcp: i/o timeout")

// dial is kube.Env's. It is called by many goroutines at once, while nothing else happens.
func (m *member) dial(context.Context, string, string) (net.Conn, error) {
	if m.blind {
		return nil, errBlind
	}
	here, there := net.Pipe()
	return here, there.Close()
}

// votes renews the liar's Lease with what it says it does not reach: everything of somebody, of everybody, or nonsense.
func (l *liar) votes() {
	lease := &coordinationv1.Lease{}
	if there, ok := l.World.hub.Get(api.Key{Kind: api.Lease, NamespacedName: client.ObjectKey{Namespace: hubNamespace, Name: l.member.id}}).(*coordinationv1.Lease); ok {
		lease = there.DeepCopy()
	}
	vote := votes.Vote{}
	for _, m := range l.members {
		if l.chance(0.7) {
			vote[m.id] = []string{votes.All}
		}
	}
	text, _ := vote.Text()
	if l.chance(0.2) {
		text = `{"everybody":["everything"]}`
	}
	lease.Name = l.member.id
	votes.Write(lease, text)
	_ = l.publish(lease)
	l.history.Events["(a lie about what is reached)"]++
}

// watchVotes counts them: where nobody says anything, nothing is shown.
func (w *World) watchVotes(c *api.Write) {
	if lease, ok := c.New.(*coordinationv1.Lease); ok && lease.Annotations[votes.Annotation] != "" &&
		c.User != api.Member+w.liarID() {
		w.history.Events["(a vote)"]++
	}
}

// watchWithheld: what only one member does not reach, or says so, is not withheld by anybody (F4).
func (w *World) watchWithheld(m *member, c *api.Write) {
	rec, ok := c.New.(*hubv1alpha1.ServiceExportRecord)
	if w.Probe == nil || !ok || len(rec.Status.Withheld) == 0 {
		return
	}
	w.history.Events["(withheld)"]++
	if w.alone() {
		w.fail("F4: %s withholds %v of %s, and no two members fail to reach anything", m.id, rec.Status.Withheld, c.Key)
	}
}

// withoutReadiness is what a slice has that no vote may change.
func withoutReadiness(in []discoveryv1.Endpoint) []discoveryv1.Endpoint {
	out := append([]discoveryv1.Endpoint(nil), in...)
	for i := range out {
		out[i].Conditions = discoveryv1.EndpointConditions{}
	}
	return out
}
