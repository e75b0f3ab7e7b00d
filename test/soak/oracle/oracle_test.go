package oracle

import (
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	limits = Bounds{Renew: 10 * time.Second, Dead: 50 * time.Second, Gone: 65 * time.Second, Converge: time.Minute}
	zero   = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
)

func at(seconds float64) time.Time { return zero.Add(time.Duration(seconds * float64(time.Second))) }

// story is a clusterset of a, b and c; a and b export heads (headless) and web, since second 0.
type story struct {
	*testing.T
	*Oracle
}

func told(t *testing.T) *story {
	s := &story{t, New(limits, "a", "b", "c")}
	for _, c := range []string{"a", "b"} {
		s.publish(0, "heads", c, "10."+c)
		s.publish(0, "web", c)
		s.renew(c, 0)
	}
	for _, m := range []string{"a", "b", "c"} {
		s.VIP("web", m, "10.96."+m)
	}
	s.right(1, "c", "heads", "10.a", "10.b")
	s.right(1, "c", "web", "10.96.c")
	return s
}

func (s *story) publish(second float64, of, cluster string, addresses ...string) {
	s.Publish(of, cluster, true, addresses, at(second))(at(second))
}

func (s *story) renew(cluster string, second float64) {
	s.Renewed(cluster, at(second-0.2), at(second))
}

// alive renews every ten seconds in a span, both ends included.
func (s *story) alive(from, to float64, clusters ...string) {
	for second := from; second <= to; second += 10 {
		for _, c := range clusters {
			s.renew(c, second)
		}
	}
}

func (s *story) ask(second float64, member, of, code string, addresses ...string) (Result, string) {
	return s.Classify(
		Answer{
			Member:    member,
			Name:      of,
			Sent:      at(second),
			Received:  at(second + 0.001),
			Code:      code,
			Addresses: slices.Sorted(slices.Values(addresses)),
		},
	)
}

func (s *story) right(second float64, member, of string, addresses ...string) {
	s.Helper()
	if v, why := s.ask(second, member, of, NoError, addresses...); v != Right {
		s.Errorf("at %v %s answers %s with %v: %s", second, member, of, addresses, why)
	}
}

func (s *story) wrong(why string, second float64, member, of string, addresses ...string) {
	s.Helper()
	if v, got := s.ask(second, member, of, NoError, addresses...); v != Wrong || !strings.Contains(got, why) {
		s.Errorf(
			"at %v %s answers %s with %v: %v %q, and it is wrong: %s",
			second,
			member,
			of,
			addresses,
			v,
			got,
			why,
		)
	}
}

// TestPlantedAnswersAreFound: each of these is wrong in one way, and right but for that.
func TestPlantedAnswersAreFound(t *testing.T) {
	for name, tell := range map[string]func(*story){
		"another VIP":          func(s *story) { s.wrong("the VIP is 10.96.x", 2, "c", "web", "10.96.x") },
		"the VIP of another":   func(s *story) { s.wrong("the VIP is 10.96.a", 2, "c", "web", "10.96.a") },
		"two VIPs":             func(s *story) { s.wrong("the VIP is", 2, "c", "web", "10.96.c", "10.96.d") },
		"no VIP":               func(s *story) { s.wrong("does not exist", 61, "c", "web") },
		"an address of nobody": func(s *story) { s.wrong("never published", 2, "c", "heads", "10.a", "10.b", "10.x") },
		"another name's address": func(s *story) {
			s.publish(2, "x", "a", "10.x")
			s.wrong("never published", 3, "c", "heads", "10.x", "10.b")
		},
		"endpoints missing": func(s *story) { s.wrong("10.b of b are missing", 2, "c", "heads", "10.a") },
		"own endpoints missing": func(s *story) {
			s.right(2, "a", "heads", "10.a", "10.b")
			s.wrong("of a are missing", 300, "a", "heads", "10.b")
		},
		"the future": func(s *story) {
			s.publish(5, "heads", "a", "10.a2")
			s.wrong("never published", 4, "c", "heads", "10.a2", "10.b")
		},
		"halves of two states": func(s *story) {
			s.publish(5, "heads", "a", "10.a2", "10.a3")
			s.wrong("never published together", 6, "c", "heads", "10.a2", "10.b")
		},
		"what was before, again": func(s *story) {
			s.publish(5, "heads", "a", "10.a2")
			s.right(6, "c", "heads", "10.a2", "10.b")
			s.wrong("older", 7, "c", "heads", "10.a", "10.b")
		},
		"what was withdrawn, again": func(s *story) {
			s.Publish("heads", "a", false, nil, at(5))(at(5))
			s.right(6, "c", "heads", "10.b")
			s.wrong("older", 7, "c", "heads", "10.a", "10.b")
		},
		"out of date in quiet": func(s *story) {
			s.publish(5, "heads", "a", "10.a2")
			s.alive(0, 100, "a", "b")
			s.right(64, "c", "heads", "10.a", "10.b")
			s.wrong("out of date", 66, "c", "heads", "10.a", "10.b")
		},
		"an import without an export": func(s *story) {
			s.Publish("web", "a", false, nil, at(5))(at(5))
			s.Publish("web", "b", false, nil, at(5))(at(5))
			s.right(64, "c", "web", "10.96.c")
			s.wrong("nobody exports it", 66, "c", "web", "10.96.c")
		},
		"no import of what was answered and nobody withdrew": func(s *story) {
			if v, why := s.ask(2, "c", "web", NameError); v != Wrong || !strings.Contains(why, "nobody ended") {
				s.Errorf("%v %s", v, why)
			}
		},
		"no import of what one exports": func(s *story) {
			s.Publish("web", "a", false, nil, at(5))(at(5))
			if v, why := s.ask(61, "c", "web", NameError); v != Wrong || !strings.Contains(why, "b exports it") {
				s.Errorf("%v %s", v, why)
			}
		},
		"no import in trouble of what was there before it": func(s *story) {
			s.right(70, "c", "web", "10.96.c")
			s.Trouble("c")
			if v, why := s.ask(80, "c", "web", NameError); v != Wrong || !strings.Contains(why, "exports it") {
				s.Errorf("%v %s", v, why)
			}
		},
		"no answer from a server that runs": func(s *story) {
			if v, _ := s.Classify(Answer{Member: "c", Name: "web", Sent: at(2), Received: at(7),
				Why: "timeout"}); v != Wrong {
				s.Error(v)
			}
		},
		"SERVFAIL from a server that runs": func(s *story) {
			if v, _ := s.ask(2, "c", "web", "SERVFAIL"); v != Wrong {
				s.Error(v)
			}
		},
	} {
		t.Run(name, func(t *testing.T) { tell(told(t)) })
	}
}

// TestT1DeathsAndReturns: not before the silence is long enough, not after, and imports stay.
func TestT1DeathsAndReturns(t *testing.T) {
	s := told(t)
	s.alive(0, 100, "a", "b")
	s.right(145, "c", "heads", "10.a", "10.b")
	s.alive(110, 400, "b")
	s.wrong("missing", 149, "c", "heads", "10.b")
	s.right(151, "c", "heads", "10.b")
	s.right(151, "b", "heads", "10.a", "10.b") // some see it later
	s.right(160, "a", "heads", "10.a", "10.b") // no cluster stops seeing its own endpoints
	s.wrong("not heard of", 166, "b", "heads", "10.a", "10.b")
	s.right(166, "c", "heads", "10.b")
	s.right(167, "c", "heads", "10.a", "10.b") // its renewal may be seen there first
	s.right(167.5, "c", "heads", "10.b")       // and so may that it exports no more
	s.wrong("not heard of", 170.5, "c", "heads", "10.a", "10.b")
	s.wrong("came at 00:02:47 and went", 171, "c", "heads", "10.b")
	s.right(172, "c", "heads", "10.b")
	s.right(166, "c", "web", "10.96.c")
	if v, _ := s.ask(166, "c", "web", NameError); v != Wrong {
		t.Error("an import goes with its exporters' lives")
	}
	s.renew("a", 200)
	s.right(205, "c", "heads", "10.b")
	s.alive(210, 400, "a")
	s.wrong("missing", 265, "c", "heads", "10.b")
	s.right(265, "c", "heads", "10.a", "10.b")
}

// TestT1WhoReturnsMayHaveEndedItsExport, which is followed a moment after its renewal is, before the oracle sees
// that; not if it was none.
func TestT1WhoReturnsMayHaveEndedItsExport(t *testing.T) {
	for _, renewed := range []bool{true, false} {
		s := told(t)
		s.alive(0, 100, "a", "b")
		s.alive(110, 400, "b")
		s.right(166, "c", "heads", "10.b")
		s.Publish("heads", "a", false, nil, at(170))(at(170))
		s.right(180, "c", "heads", "10.a", "10.b")
		s.right(180.1, "c", "heads", "10.b")
		if !renewed {
			s.wrong("came at 00:03:00 and went", 183.5, "c", "heads", "10.b")
			continue
		}
		s.renew("a", 180.2)
		s.right(183.5, "c", "heads", "10.b")
	}
}

// TestT1ReturnsAtAnyTime: a renewal that members see a moment before the oracle does is no fault, also not around
// the bound.
func TestT1ReturnsAtAnyTime(t *testing.T) {
	for back := 151.0; back < 180; back += 0.25 {
		s := told(t)
		s.alive(0, 100, "a", "b")
		s.alive(110, 400, "b")
		s.right(150.5, "c", "heads", "10.b")
		for second := back; second < back+1; second += 0.05 {
			s.right(second, "c", "heads", "10.a", "10.b")
		}
		s.renew("a", back+1)
		s.right(back+1.1, "c", "heads", "10.a", "10.b")
		if len(s.returned) != 1 {
			t.Fatalf("back at %v: %v", back, s.returned)
		}
	}
}

// TestDeathOfTheOnlyExporter: a headless name without endpoints does not exist, and what comes back is what was
// there, also where its
// exporter wanted otherwise meanwhile.
func TestDeathOfTheOnlyExporter(t *testing.T) {
	s := told(t)
	s.publish(0, "alone", "b", "10.b1")
	s.right(1, "c", "alone", "10.b1")
	s.alive(0, 100, "a", "b")
	s.Trouble("b")
	s.Publish("alone", "b", false, nil, at(120))(at(120))
	if v, why := s.ask(155, "c", "alone", NameError); v != Right {
		t.Error(why)
	}
	s.renew("b", 170)
	s.Healed("b", at(170))
	s.right(171, "c", "alone", "10.b1")
}

func TestFiguresOfDeath(t *testing.T) {
	s := told(t)
	s.alive(0, 100, "a", "b")
	s.alive(110, 400, "b")
	s.right(155, "c", "heads", "10.b")
	s.renew("a", 200)
	s.right(203, "c", "heads", "10.a", "10.b")
	if len(s.gone) != 1 || s.gone[0].Round(time.Second) != 55*time.Second || len(s.returned) != 1 ||
		s.returned[0].Round(time.Second) != 3*time.Second {
		t.Errorf("gone after %v, back after %v", s.gone, s.returned)
	}
}

// TestT3FlappingIsDamped: after a third death it may take longer, and no longer than that.
func TestT3FlappingIsDamped(t *testing.T) {
	s := told(t)
	s.alive(0, 900, "b")
	for _, second := range []float64{100, 200} {
		s.renew("a", second)
	}
	if until := s.Damped(at(210)); !until.IsZero() {
		t.Errorf("two deaths are damped until %v", until)
	}
	if until := s.Damped(at(300)); until != at(330) {
		t.Errorf("a third that lasts is damped until %v", until)
	}
	s.renew("a", 300)
	s.alive(310, 900, "a")
	if until := s.Damped(at(350)); until.Before(at(329)) || until.After(at(330)) {
		t.Errorf("the third was damped until %v", until)
	}
	s.right(389, "c", "heads", "10.b")
	s.wrong("missing", 391, "c", "heads", "10.b")
}

// TestS3BlindnessIsNobodysDeath: who cannot see the hub keeps everything, and a hub that is away for long says
// nothing of anybody.
func TestS3BlindnessIsNobodysDeath(t *testing.T) {
	s := told(t)
	s.alive(0, 100, "a", "b")
	s.Trouble(Link("c"))
	s.right(300, "c", "heads", "10.a", "10.b")

	s = told(t)
	s.alive(0, 100, "a", "b")
	s.Trouble(Hub)
	s.HubAway(at(105))
	s.wrong("missing", 400, "c", "heads", "10.b")
	s.HubBack(at(405))
	s.Healed(Hub, at(405))
	s.wrong("missing", 410, "c", "heads", "10.b")
	s.right(410, "c", "heads", "10.a", "10.b")
}

// TestFailStatic: while something is in trouble, what was last seen is right, and nothing older; within a cluster
// the hub does not matter.
func TestFailStatic(t *testing.T) {
	s := told(t)
	s.Trouble(Hub)
	s.publish(5, "heads", "a", "10.a2")
	s.alive(0, 500, "a", "b")
	s.right(300, "c", "heads", "10.a", "10.b")
	s.right(30, "a", "heads", "10.a", "10.b")
	s.wrong("out of date", 300, "a", "heads", "10.a", "10.b")
	s.Healed(Hub, at(310))
	s.right(369, "c", "heads", "10.a", "10.b")
	s.wrong("out of date", 371, "c", "heads", "10.a", "10.b")
	s.right(371, "c", "heads", "10.a2", "10.b")
}

// TestFailStaticOfAnImport: it may go in trouble only if all have withdrawn their exports, whoever has seen that.
func TestFailStaticOfAnImport(t *testing.T) {
	s := told(t)
	s.right(70, "c", "web", "10.96.c")
	s.Trouble("c")
	s.Publish("web", "a", false, nil, at(75))(at(75))
	if v, _ := s.ask(80, "c", "web", NameError); v != Wrong {
		t.Error("b exports it")
	}
	s.Trouble("b")
	s.Publish("web", "b", false, nil, at(85))
	s.right(90, "c", "web", "10.96.c")
	if v, why := s.ask(90, "c", "web", NameError); v != Right {
		t.Error(why)
	}
	if v, _ := s.ask(91, "c", "web", NoError, "10.96.c"); v != Wrong {
		t.Error("it is back, and nobody exports it")
	}
}

// TestServersThatAreDown need not answer, until they are ready again.
func TestServersThatAreDown(t *testing.T) {
	s := told(t)
	s.Down("c")
	if v, _ := s.Classify(
		Answer{Member: "c", Name: "web", Sent: at(2), Received: at(2), Why: "refused"},
	); v != Unanswered {
		t.Error(v)
	}
	s.Up("c", at(3))
	if v, _ := s.ask(2.9, "c", "web", "SERVFAIL"); v != Unanswered {
		t.Error(v)
	}
	if v, _ := s.ask(3.1, "c", "web", "SERVFAIL"); v != Wrong {
		t.Error(v)
	}
}

// TestExportAndEndpointsTravelEachByItself: a member that reconnects may see the endpoints of an export that was
// withdrawn and made again
// before it sees the withdrawal.
func TestExportAndEndpointsTravelEachByItself(t *testing.T) {
	s := told(t)
	s.Trouble(Link("c"))
	s.Publish("heads", "a", false, nil, at(5))(at(5))
	s.publish(10, "heads", "a", "10.a2")
	s.right(12, "c", "heads", "10.a2", "10.b")
	s.right(13, "c", "heads", "10.b")
	s.wrong("older", 14, "c", "heads", "10.a", "10.b")
	s.right(14, "c", "heads", "10.a2", "10.b")
	s.wrong("missing", 15, "c", "heads", "10.b")
}

// TestBehind is how the end of trouble is told.
func TestBehind(t *testing.T) {
	s := told(t)
	for _, m := range []string{"a", "b", "c"} {
		s.right(2, m, "heads", "10.a", "10.b")
		s.right(2, m, "web", "10.96."+m)
	}
	if b := s.Behind(at(1.5)); len(b) > 0 {
		t.Error(b)
	}
	if b := s.Behind(at(3)); len(b) != 6 {
		t.Errorf("nobody was asked since, and only these are behind: %v", b)
	}
	s.publish(4, "heads", "a", "10.a2")
	if b := s.Behind(at(1.5)); len(b) != 3 || !strings.Contains(b[0], "heads in a") {
		t.Error(b)
	}
}

// TestT1WhoIsHeldNeedNotGo: b is silent beside a, so c may keep a's endpoints; b alone is heard again, and a's must
// go at their time. Where
// nobody is held they must at once.
func TestT1WhoIsHeldNeedNotGo(t *testing.T) {
	for _, hold := range []bool{true, false} {
		s := told(t)
		s.bounds.Hold = hold
		s.alive(10, 200, "c")
		if hold {
			s.right(200, "c", "heads", "10.a", "10.b")
		} else {
			s.wrong("not heard of", 200, "c", "heads", "10.a", "10.b")
		}
		s.alive(210, 300, "b", "c")
		s.wrong("not heard of", 300, "c", "heads", "10.a", "10.b")
		s.right(301, "c", "heads", "10.b")
	}
}
