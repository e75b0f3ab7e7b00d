// Package reach decides from what answers whether this cluster reaches another member (SPEC F4, T1; DESIGN §7). It is
// pure: it reads no clock and opens no connection.
//
// The agents of a member answer. If they fall silent, the member is suspect, and some of its endpoints are tried. If
// none of these answers while something else does, the member is unreachable. If one answers, the member serves. Of a
// member whose agent never answered, its Lease decides: its port may be blocked. So it does where no endpoint ever
// answered: a NetworkPolicy may hide Pods from agents and not from their clients.
package reach

import (
	"time"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/liveness"
)

// State is what this cluster knows of another member.
type State string

const (
	Unknown     State = ""            // its agent has not answered yet: its Lease decides
	Answers     State = "Answers"     // its agent answers
	Silent      State = "Silent"      // its agent is silent, and its endpoints prove nothing: its Lease decides
	Serving     State = "Serving"     // its agent is silent, and an endpoint answers
	Unreachable State = "Unreachable" // neither answers, while something else does
)

// String returns the state, for Unknown a word.
func (v State) String() string {
	if v == Unknown {
		return "Unknown"
	}
	return string(v)
}

const (
	// Interval is the time from one round to the next.
	Interval = time.Second
	// suspectAfter is how long the agent of a member is silent before its endpoints are tried.
	suspectAfter = 3 * time.Second
	// silence is how long nothing of a member has answered before it is Unreachable. Else a member with an overdue
	// Lease, as after an outage of the hub, would be lost by a link that is down for two seconds.
	silence = 4 * time.Second
	// maxGap is how much of the time between two rounds counts as silence. That time is usually shorter.
	maxGap = 3 * Interval / 2
	// rounds in a row are needed for a change to Unreachable and back.
	rounds = 2
	// withoutAgent bounds for how long endpoints keep a member whose agent is silent and whose Lease has expired.
	// Nobody updates them, and by then their addresses may be those of other Pods.
	withoutAgent = time.Hour
)

// Answer is what a round has shown of an agent or of endpoints.
type Answer int

// The zero value means that nothing was asked, or that there is nothing to ask.
const (
	NotAsked Answer = iota
	No
	Refused // a connection was refused: a dead node refuses none, but a firewall may
	Yes
)

// Round is what one round has shown of a member.
type Round struct {
	Now       time.Time
	Overdue   bool             // the member has missed a renewal of its Lease
	Renewal   liveness.Renewal // of its Lease, the last one that the hub shows
	Agent     Answer           // of its agents
	Endpoints Answer           // of a sample of its endpoints
	Others    bool             // something else answered, so that this cluster's own network works
}

// Member is what this cluster knows of one other member. The zero value knows nothing.
type Member struct {
	State State
	Since time.Time // of the state

	asked     time.Time // when the last round began
	answered  time.Time // when its agent last answered; zero if it never did
	alive     time.Time // when its agent or an endpoint last answered
	served    bool      // an endpoint has answered
	missed    int       // rounds in a row that speak for Unreachable
	good      int       // rounds in a row that speak for the end of Unreachable
	goodSince time.Time
	losses    []time.Time      // recent changes to Unreachable
	renewal   liveness.Renewal // at the last change to Unreachable, or the first that this process knows since
}

// Restored returns at now the member for which an earlier process stored a state. What a user has edited counts as
// nothing, and a time after now, by a clock that was ahead, as now. An agent without a stored time last answered when
// the state began.
func Restored(s Stored, now time.Time) Member {
	if s.Since.IsZero() {
		return Member{}
	}
	if s.Answered.IsZero() {
		s.Answered = s.Since
	}
	s.Since = now.Add(min(0, s.Since.Sub(now))) // with a monotonic reading: the clock may be set later
	s.Answered = now.Add(min(0, s.Answered.Sub(now)))
	m := Member{State: s.State, Since: s.Since, answered: s.Answered, alive: s.Since}
	m.served = s.State == Serving
	switch {
	case s.State == Answers:
		m.alive = now                       // as the earlier process knew it to its end
		m.answered = now.Add(-suspectAfter) // Since is when it began to answer; one more silent round makes it suspect
		return m
	case s.State == Serving:
		m.alive = now
		return m
	case s.State == Silent:
		return m
	case s.State == Unreachable:
		m.losses = []time.Time{s.Since}
		return m
	}
	return Member{}
}

// Ask returns the member at the beginning of a round. A gap between two rounds is no silence: nobody asked.
func (m Member) Ask(now time.Time) Member {
	gap := now.Sub(m.asked) - maxGap
	if gap > 0 && !m.asked.IsZero() && !m.answered.IsZero() {
		m.answered, m.alive = m.answered.Add(gap), m.alive.Add(gap)
	}
	m.asked = now
	return m
}

// IsSuspect reports whether the next round must try endpoints: the agent has missed a round while its Lease is overdue,
// or has been silent for suspectAfter.
func (m Member) IsSuspect(now time.Time, overdue bool) bool {
	silent := now.Sub(m.answered)
	return !m.answered.IsZero() &&
		(m.State == Unreachable || silent >= suspectAfter || overdue && silent >= 3*Interval/2)
}

// HasServed reports whether an endpoint of the member has answered, and none has failed since while its agent answered.
// Else the silence of its endpoints proves nothing, and rounds try some of them even though its agent answers.
func (m Member) HasServed() bool { return m.served }

func (m Member) Next(r Round) Member {
	if r.Agent == Yes || r.Endpoints == Yes {
		m.alive = r.Now
	}
	if m.State != Unreachable || m.renewal.Time.IsZero() {
		m.renewal = r.Renewal
	}
	switch {
	case r.Endpoints == Yes:
		m.served = true
	case r.Agent == Yes && r.Endpoints != NotAsked: // policies may hide them now, or its address is another Pod's
		m.served = false
	}
	switch {
	case r.Agent == Yes:
		m.answered = r.Now
		return m.reached(Answers, r)
	case !m.IsSuspect(r.Now, r.Overdue):
		return m
	case r.Endpoints == Yes:
		return m.reached(Serving, r)
	case r.Endpoints == Refused:
		return m.reached(Silent, r)
	case r.Endpoints == NotAsked, !r.Others, !m.served: // their silence proves nothing
		m.missed, m.good = 0, 0
	default:
		m.good = 0
		if m.missed++; m.missed >= rounds && r.Now.Sub(m.alive) >= silence && m.State != Unreachable {
			m.losses = append(liveness.Recent(m.losses, r.Now), r.Now)
			return m.become(Unreachable, r.Now)
		}
	}
	if m.State == Unreachable {
		return m
	}
	return m.become(Silent, r.Now)
}

// IsExpired reports whether the endpoints of the member follow onExpiry, and in how long to ask again; 0 if only a
// round can change it. leaseExpired says that its Lease has expired. That counts only if nothing of the member answers,
// or nothing but endpoints for withoutAgent; and where something did, no sooner than expiry after that: a Lease may
// still count as expired (T3) when the member has long been back. was says that it has expired before: then nothing
// that is silent brings it back, not even a longer expiry.
func (m Member) IsExpired(
	leaseExpired, was bool, now time.Time, expiry time.Duration,
) (expired bool, in time.Duration) {
	switch {
	case m.State == Unreachable:
		return true, 0
	case m.State == Answers, !leaseExpired:
		return false, 0
	case m.State == Unknown, m.State == Silent && was:
		return true, 0
	}
	in = withoutAgent - now.Sub(m.answered)
	if m.State == Silent {
		in = min(in, expiry-now.Sub(m.alive))
	}
	return in <= 0, max(in, 0)
}

// reached returns the member after a round in which it answered. One that was unreachable must answer in several
// rounds, and for longer if it flaps (T3). Its agent alone is not enough: after a power cut the hub shows Pods from
// before, whose addresses others may have, until the member renews its Lease.
func (m Member) reached(v State, r Round) Member {
	m.missed = 0
	if m.State != Unreachable {
		return m.become(v, r.Now)
	}
	if (r.Endpoints == No || r.Endpoints == Refused) && !r.Renewal.Time.IsZero() && !r.Renewal.After(m.renewal) {
		m.good = 0
		return m
	}
	if m.good++; m.good == 1 {
		m.goodSince = r.Now
	}
	if m.good < rounds || r.Now.Sub(m.goodSince) < m.Damping(r.Now) {
		return m
	}
	m.good = 0
	return m.become(v, r.Now)
}

// Damping returns for how long a member that was unreachable must answer before it counts as live (T3).
func (m Member) Damping(now time.Time) time.Duration {
	return max(liveness.Damping(len(liveness.Recent(m.losses, now))), (rounds-1)*Interval)
}

func (m Member) become(v State, now time.Time) Member {
	if m.State != v {
		m.State, m.Since = v, now
	}
	return m
}
