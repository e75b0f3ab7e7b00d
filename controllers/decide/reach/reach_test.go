package reach

import (
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/liveness"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// play is a member that is asked once a second.
type play struct {
	t   *testing.T
	m   Member
	now time.Time
}

func newPlay(t *testing.T) *play { return &play{t: t, now: start} }

// rounds plays so many rounds, which try endpoints only of a member that is suspect or has not served.
func (p *play) rounds(n int, r Round) {
	for range n {
		p.now = p.now.Add(Interval)
		r := r
		r.Now = p.now
		p.m = p.m.Ask(p.now)
		if !p.m.IsSuspect(p.now, r.Overdue) && p.m.HasServed() {
			r.Endpoints = NotAsked
		}
		p.m = p.m.Next(r)
	}
}

// restart leaves of the member what its Lease here stores.
func (p *play) restart() {
	lease := &coordinationv1.Lease{}
	p.m.Write(lease, 0)
	p.m = Restored(Read(lease), p.now)
}

func (p *play) want(v State) {
	p.t.Helper()
	if p.m.State != v {
		p.t.Fatalf("after %v it is %q, want %q", p.now.Sub(start), p.m.State, v)
	}
}

// expired returns whether the member is, with a Lease that has expired or has not.
func (p *play) expired(lease bool) bool {
	expired, _ := p.m.IsExpired(lease, false, p.now, expiry)
	return expired
}

const expiry = 50 * time.Second

var (
	alive = Round{Agent: Yes, Endpoints: Yes, Others: true}
	dead  = Round{Agent: No, Endpoints: No, Others: true}
)

func TestF4DeadMemberIsUnreachableInFiveSeconds(t *testing.T) {
	p := newPlay(t)
	p.rounds(10, alive)
	p.want(Answers)
	p.rounds(4, dead)
	p.want(Unreachable)
	since := p.m.Since
	p.rounds(100, dead)
	if p.m.Since != since {
		t.Errorf("unreachable since %v, and later since %v", since, p.m.Since)
	}
	p.rounds(1, alive)
	p.want(Unreachable) // one answer is not enough
	p.rounds(1, alive)
	p.want(Answers)
}

// TestF4AnAgentAloneBringsNobodyBack whose endpoints fall silent and whose Lease is as it was: after a power cut the
// hub shows Pods from before, until the member has reached it. It does after a restart of this agent, too.
func TestF4AnAgentAloneBringsNobodyBack(t *testing.T) {
	last := liveness.Renewal{Created: start, Time: start}
	alive, dead := alive, dead
	alive.Renewal, dead.Renewal = last, last
	alone := Round{Agent: Yes, Endpoints: No, Others: true, Renewal: last}
	for what, set := range map[string]func(*Round){
		"an endpoint answers":       func(r *Round) { r.Endpoints = Yes },
		"no endpoint can be tried":  func(r *Round) { r.Endpoints = NotAsked },
		"it renews its Lease":       func(r *Round) { r.Renewal.Time = start.Add(Interval) },
		"its Lease is made again":   func(r *Round) { r.Renewal.Created = start.Add(Interval) },
		"the hub lost its Lease":    func(r *Round) { r.Renewal = liveness.Renewal{} },
		"the hub shows an old one":  nil,
		"its endpoints stay silent": nil,
		"an endpoint refuses":       nil, // another Pod may have that address by now
	} {
		for _, restarted := range []bool{false, true} {
			p, back := newPlay(t), alone
			p.rounds(10, alive)
			p.rounds(5, dead)
			if restarted {
				p.restart()
			}
			p.rounds(10, alone)
			p.want(Unreachable)
			switch what {
			case "the hub shows an old one":
				back.Renewal.Time = start.Add(-Interval)
			case "an endpoint refuses":
				back.Endpoints = Refused
			}
			if set != nil {
				set(&back)
			}
			p.rounds(2, back)
			if (p.m.State == Answers) != (set != nil) {
				t.Errorf("%s: it is %s; restarted: %v", what, p.m.State, restarted)
			}
		}
	}
}

func TestF4AMemberWhoseEndpointsAnswerStays(t *testing.T) {
	for _, overdue := range []bool{false, true} {
		p := newPlay(t)
		p.rounds(10, alive)
		p.rounds(2, Round{Agent: No, Endpoints: Yes, Others: true, Overdue: overdue})
		p.rounds(50, Round{Agent: No, Endpoints: Yes, Others: true, Overdue: overdue})
		p.want(Serving)
		p.rounds(3, alive)
		p.want(Answers)
	}
}

// TestF4WhereNoAgentAnsweredTheLeaseDecides: a NetworkPolicy may block its port, or the endpoints too.
func TestF4WhereNoAgentAnsweredTheLeaseDecides(t *testing.T) {
	for _, endpoints := range []Answer{NotAsked, No, Refused, Yes} {
		p := newPlay(t)
		p.rounds(300, Round{Agent: No, Endpoints: endpoints, Others: true})
		p.want(Unknown)
		p.rounds(300, Round{Agent: No, Endpoints: endpoints, Others: true, Overdue: true})
		p.want(Unknown)
		if p.expired(false) || !p.expired(true) {
			t.Error("its Lease does not decide")
		}
	}
}

// TestF4WhereConnectionsAreRefusedTheLeaseDecides: by a node that lives, or by a firewall before a dead one.
func TestF4WhereConnectionsAreRefusedTheLeaseDecides(t *testing.T) {
	refused := Round{Agent: No, Endpoints: Refused, Others: true, Overdue: true}
	p := newPlay(t)
	p.rounds(10, alive)
	p.rounds(100, refused)
	p.want(Silent)
	p.rounds(3, dead)
	p.want(Unreachable)
	p.rounds(2, refused)
	p.want(Silent)
}

// TestF4WhereNoEndpointAnsweredTheLeaseDecides: a NetworkPolicy hides the Pods from agents, not from their clients, and
// then the agent's Pod moves. It does in the next process, too.
func TestF4WhereNoEndpointAnsweredTheLeaseDecides(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		p := newPlay(t)
		p.rounds(10, Round{Agent: Yes, Endpoints: No, Others: true})
		if restarted {
			p.m = Restored(Stored{State: p.m.State, Since: p.m.Since}, p.now)
		}
		p.rounds(300, dead)
		p.want(Silent)
		if p.expired(false) || !p.expired(true) {
			t.Error("its Lease does not decide")
		}
		p.rounds(1, Round{Agent: No, Endpoints: Yes, Others: true})
		p.want(Serving)
		p.rounds(4, dead)
		p.want(Unreachable)
	}
}

// TestF4APortThatIsBlockedLater: the endpoints go on answering, and nothing of it is lost, for an hour whatever its
// Lease says, and then as long as it renews that.
func TestF4APortThatIsBlockedLater(t *testing.T) {
	p := newPlay(t)
	p.rounds(10, alive)
	p.rounds(3599, Round{Agent: No, Endpoints: Yes, Others: true})
	p.want(Serving)
	if p.expired(true) {
		t.Error("its Lease decides")
	}
	p.rounds(3600, Round{Agent: No, Endpoints: Yes, Others: true})
	if p.expired(false) {
		t.Error("it is expired although it renews its Lease")
	}
}

// TestF4RoundsCountOnlyInARow: what a round could not try proves nothing, for or against.
func TestF4RoundsCountOnlyInARow(t *testing.T) {
	nothing := Round{Agent: No, Others: true}
	alone := Round{Agent: No, Endpoints: No}
	for _, between := range []Round{nothing, alone} {
		p := newPlay(t)
		p.rounds(10, alive)
		p.rounds(3, between)
		for range 50 {
			p.rounds(1, dead)
			p.rounds(1, between)
		}
		p.want(Silent)
		p.rounds(2, dead)
		p.want(Unreachable)
		for range 50 {
			p.rounds(1, alive)
			p.rounds(1, between)
		}
		p.want(Unreachable)
		p.rounds(2, alive)
		p.want(Answers)
	}
}

// TestF4WhileTheAgentAnswersNothingElseIsTried, even if its link to the hub is down and its Lease overdue.
func TestF4WhileTheAgentAnswersNothingElseIsTried(t *testing.T) {
	p := newPlay(t)
	p.rounds(10, alive)
	if p.m.IsSuspect(p.now.Add(Interval), true) {
		t.Error("it is suspect before it misses a round")
	}
	if !p.m.IsSuspect(p.now.Add(2*Interval), true) {
		t.Error("it is not suspect though it missed a round")
	}
}

// TestF4WhoReachesNobodyDecidesNothing: the Lease does.
func TestF4WhoReachesNobodyDecidesNothing(t *testing.T) {
	alone := dead
	alone.Others = false
	p := newPlay(t)
	p.rounds(10, alive)
	p.rounds(300, alone)
	p.want(Silent)
	if p.expired(false) || !p.expired(true) {
		t.Error("its Lease does not decide")
	}
	p.rounds(2, dead)
	p.want(Unreachable)
	p.rounds(300, alone)
	p.want(Unreachable)
	p.rounds(2, alive)
	p.want(Answers)
}

// UDP only, or nothing at all: its Lease decides.
func TestF4NothingToTry(t *testing.T) {
	p := newPlay(t)
	p.rounds(10, alive)
	p.rounds(60, Round{Agent: No, Others: true, Overdue: true})
	p.want(Silent)
	p.rounds(1, alive)
	p.want(Answers)
}

func TestF4LossOfSomeAnswersChangesNothing(t *testing.T) {
	p := newPlay(t)
	p.rounds(10, alive)
	for range 100 {
		p.rounds(2, dead)
		p.rounds(1, alive)
		p.want(Answers)
	}
	for range 100 { // the agent is away for long, and one round in two finds no endpoint
		p.rounds(4, Round{Agent: No, Endpoints: Yes, Others: true})
		p.rounds(1, dead)
		if p.m.State == Unreachable {
			t.Fatal("unreachable")
		}
	}
}

func TestT3FlappingIsDamped(t *testing.T) {
	p := newPlay(t)
	p.rounds(10, alive)
	var back []int
	for range 6 {
		p.rounds(10, dead)
		p.want(Unreachable)
		n := 0
		for ; p.m.State == Unreachable; n++ {
			p.rounds(1, alive)
		}
		back = append(back, n)
	}
	if want := []int{2, 2, 31, 61, 121, 241}; !slices.Equal(back, want) {
		t.Errorf("back after %v rounds, want %v", back, want)
	}
}

func TestStatesOutliveAProcess(t *testing.T) {
	p := newPlay(t)
	p.m = Restored(Stored{State: Unreachable, Since: start}, p.now)
	p.rounds(100, dead)
	p.want(Unreachable)
	p.rounds(100, Round{Agent: No, Others: true}) // the hub does not show what it exports
	p.want(Unreachable)
	p.rounds(2, Round{Agent: No, Endpoints: Yes})
	p.want(Serving)
	for _, edited := range []Stored{{State: Unreachable}, {State: "Gone", Since: start}} { // by a user
		if m := Restored(edited, start); m.State != Unknown {
			t.Errorf("%+v is restored as %+v", edited, m)
		}
	}
	for _, state := range []State{Answers, Silent, Serving} { // the agent has answered once: what does now counts
		p := newPlay(t)
		p.m = Restored(Stored{State: state, Since: start.Add(-time.Hour)}, p.now)
		p.rounds(1, Round{Agent: No, Endpoints: Yes, Overdue: true})
		p.want(Serving)
	}
}

// TestF4AnOldExpirationNeedsSilenceAsLong: the Lease of a member that was away may count as expired for minutes after
// it has returned (T3). That takes nothing from a member that answered until now.
func TestF4AnOldExpirationNeedsSilenceAsLong(t *testing.T) {
	alone, proxied := dead, dead
	alone.Others, proxied.Endpoints = false, NotAsked
	for _, silent := range []Round{alone, proxied, {Agent: No, Endpoints: Refused, Others: true}} {
		for _, before := range []Round{alive, {Agent: No, Endpoints: Yes, Others: true, Overdue: true}} {
			p := newPlay(t)
			p.rounds(10, alive)
			p.rounds(100, before)
			p.rounds(int(expiry/Interval)-1, silent)
			p.want(Silent)
			if _, in := p.m.IsExpired(true, false, p.now, expiry); p.expired(true) || in != Interval {
				t.Errorf("%+v after %+v: it is expired, or will be in %v", silent, before, in)
			}
			p.rounds(1, silent)
			if !p.expired(true) || p.expired(false) {
				t.Errorf("%+v after %+v: its Lease does not decide", silent, before)
			}
		}
	}
}

// TestF4ARestartForgetsNoSignOfLife, and makes none.
func TestF4ARestartForgetsNoSignOfLife(t *testing.T) {
	for state, want := range map[State]bool{Answers: false, Serving: false, Silent: true, Unreachable: true} {
		since := start.Add(-30 * time.Minute)
		if state == Answers {
			since = start.Add(-48 * time.Hour) // that it began long ago says nothing of when it last answered
		}
		p := newPlay(t)
		p.m = Restored(Stored{State: state, Since: since}, p.now)
		p.rounds(1, Round{Agent: No, Endpoints: Refused, Others: true, Overdue: true})
		if state == Unreachable {
			p.rounds(1, Round{Agent: No, Endpoints: Refused, Others: true, Overdue: true})
		}
		p.want(Silent)
		if p.expired(true) != want {
			t.Errorf("%s: expired is %v", state, !want)
		}
	}
}

// TestF4AShortCutLosesNobody, although the Lease is overdue, as it is after an outage of the hub. What serves without
// its agent is not lost by it either.
func TestF4AShortCutLosesNobody(t *testing.T) {
	for _, before := range []Round{alive, {Agent: No, Endpoints: Yes, Others: true, Overdue: true}} {
		p := newPlay(t)
		p.rounds(10, alive)
		p.rounds(10, before)
		cut := dead
		cut.Overdue = true
		p.rounds(3, cut)
		if p.m.State == Unreachable {
			t.Fatal("it is lost after three seconds")
		}
		p.rounds(1, cut)
		p.want(Unreachable)
	}
}

// TestF4WhileNobodyAsksNobodyIsSilent: a round may come late, such as after one that waited for an API server. A cut
// that lost nobody without that loses nobody then, and a member that is dead is lost in time, however slow rounds are.
func TestF4WhileNobodyAsksNobodyIsSilent(t *testing.T) {
	for _, overdue := range []bool{true, false} {
		p, cut := newPlay(t), dead
		cut.Overdue = overdue
		p.rounds(10, alive)
		p.now = p.now.Add(90 * time.Second)
		p.rounds(3, cut)
		if p.m.State == Unreachable {
			t.Error("it is lost after three rounds")
		}
		p.rounds(1, cut)
		p.want(Unreachable)

		p = newPlay(t)
		p.rounds(10, alive)
		died := p.now
		for p.m.State != Unreachable && p.now.Sub(died) < time.Minute {
			p.now = p.now.Add(5 * Interval / 4)
			p.rounds(1, cut)
		}
		if took := p.now.Sub(died); took > 8*time.Second {
			t.Errorf("with slow rounds it is lost after %v", took)
		}
	}
}

// TestF4AClockThatWasAheadDelaysNothing: an agent that starts again with its clock set right by an hour.
func TestF4AClockThatWasAheadDelaysNothing(t *testing.T) {
	for _, state := range []State{Answers, Serving, Silent} {
		p := newPlay(t)
		p.m = Restored(Stored{State: state, Since: start.Add(time.Hour)}, p.now)
		p.rounds(1, Round{Agent: No, Endpoints: Yes, Others: true})
		p.rounds(5, dead)
		p.want(Unreachable)
	}
	p := newPlay(t)
	p.m = Restored(Stored{State: Silent, Since: start.Add(time.Hour)}, p.now)
	p.rounds(int(expiry/Interval), Round{Agent: No, Endpoints: Refused, Others: true, Overdue: true})
	if !p.expired(true) {
		t.Error("its Lease does not decide")
	}
}

// TestF4ARestoredMemberGoesByTheMonotonicClock, so that a clock that is set after the restart changes nothing.
func TestF4ARestoredMemberGoesByTheMonotonicClock(t *testing.T) {
	now := time.Now()
	since := now.Add(-time.Minute).Round(0) // which strips the monotonic reading
	for _, state := range []State{Silent, Serving, Unreachable} {
		m := Restored(Stored{State: state, Since: since}, now)
		for _, at := range append(m.losses, m.Since, m.answered) {
			if at == at.Round(0) || !at.Equal(since) {
				t.Errorf("%s: %v, want %v with a monotonic reading", state, at, since)
			}
		}
	}
}

// TestT1EndpointsAloneKeepAMemberForAnHour: nobody updates them while its agent is gone, and Pods are replaced.
func TestT1EndpointsAloneKeepAMemberForAnHour(t *testing.T) {
	p := newPlay(t)
	p.rounds(10, alive)
	serving := Round{Agent: No, Endpoints: Yes, Others: true, Overdue: true}
	p.rounds(int(time.Hour/Interval)-1, serving)
	p.want(Serving)
	if _, in := p.m.IsExpired(true, false, p.now, expiry); p.expired(true) || in != Interval {
		t.Errorf("after an hour but a second it is expired, or will be in %v", in)
	}
	p.rounds(1, serving)
	p.want(Serving)
	if !p.expired(true) || p.expired(false) {
		t.Error("after an hour its Lease does not decide")
	}
	p.rounds(1, Round{Agent: No, Endpoints: Refused, Others: true, Overdue: true})
	if p.want(Silent); !p.expired(true) {
		t.Error("it is live because an endpoint is silent, too")
	}
	for range 2 { // with its endpoint silent, and with it back
		if p.restart(); p.m.State == Serving && !p.expired(true) {
			t.Error("it is live again after a restart")
		}
		p.rounds(1, serving)
		if p.want(Serving); !p.expired(true) {
			t.Error("it is live again because an endpoint was silent for a moment")
		}
	}
	p.rounds(1, alive)
	if p.expired(true) {
		t.Error("it is expired although its agent answers")
	}
}
