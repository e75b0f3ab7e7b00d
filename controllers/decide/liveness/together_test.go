package liveness

import (
	"maps"
	"slices"
	"testing"
	"time"
)

// TestBelieved: the hub is doubted where most others are silent, and two at least, from two renewals after the last of these was heard.
func TestBelieved(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name   string
		silent []int // seconds, of each other member
		want   int   // seconds of doubt
	}{
		{"no other", nil, 0},
		{"one of one: a death", []int{300}, 0},
		{"one of two", []int{300, 5}, 0},
		{"two of two", []int{32, 31}, 11},
		{"two of two, one for a little while", []int{40, 15}, 0},
		{"two of three", []int{45, 0, 48}, 25},
		{"two of four are a half", []int{45, 0, 48, 3}, 0},
		{"three of four", []int{45, 30, 48, 3}, 10},
		{"at the second renewal", []int{20, 20}, 0},
	} {
		crowd, sights := Crowd{until: now, heard: map[string]heard{}}, map[string]Sight{}
		for i, s := range c.silent {
			id, at := string(rune('a'+i)), now.Add(-time.Duration(s)*time.Second)
			crowd.heard[id], sights[id] = heard{at: at}, Sight{At: at, Checked: now}
		}
		if got := now.Sub(crowd.Believed(at(now), sights, nil, limits)); got != time.Duration(c.want)*time.Second {
			t.Errorf("%s: %v of doubt, want %d s", c.name, got, c.want)
		}
	}
}

// others are members, of which each lives or not; they renew one after the other, and are looked at with every renewal, their own or not.
type others struct {
	now    time.Time
	crowd  Crowd
	sights map[string]Sight
	n      map[string]int
}

func begin(ids ...string) *others {
	o := &others{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), sights: map[string]Sight{}, n: map[string]int{}}
	for _, id := range ids {
		o.sights[id] = Sight{}
	}
	o.see(time.Minute, ids...)
	return o
}

func (o *others) see(d time.Duration, live ...string) {
	ids := slices.Sorted(maps.Keys(o.sights))
	for end := o.now.Add(d); o.now.Before(end); {
		for _, id := range ids {
			o.now = o.now.Add(limits.Renew / time.Duration(len(ids)))
			if slices.Contains(live, id) {
				o.n[id]++
			}
			o.look(o.now)
		}
	}
}

// look is one at all, of which the hub was seen until then.
func (o *others) look(until time.Time) {
	renewals := map[string]Renewal{}
	for id, n := range o.n {
		renewals[id] = written(n)
	}
	for id, s := range o.sights {
		hub := Hub{until, until, o.now}
		o.sights[id] = s.Look(hub, o.crowd.Believed(hub, o.sights, renewals, limits), renewals[id], limits)
	}
}

func (o *others) dead() (ids []string) {
	for id, s := range o.sights {
		if s.Dead {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// TestWhoFallsSilentTogetherIsHeld for however long that is; whoever returns leaves the other the time that it had, and no more; and who
// falls silent alone is dead at its time, beside one that is dead already.
func TestWhoFallsSilentTogetherIsHeld(t *testing.T) {
	o := begin("a", "b")
	dead := func(what string, want ...string) {
		t.Helper()
		if got := o.dead(); !slices.Equal(got, want) {
			t.Fatalf("%s: dead are %v, want %v", what, got, want)
		}
	}
	o.see(time.Hour)
	dead("together")
	o.see(10*time.Second, "a")
	dead("when the other returned")
	o.see(20*time.Second, "a")
	dead("before what it had left was over")
	o.see(20*time.Second, "a")
	dead("the one that stays away", "b")
	o.see(time.Minute)
	dead("beside a dead one", "a", "b")
	o = begin("a", "b")
	o.see(time.Minute, "b")
	dead("alone", "a")
}

// TestT3DampingEndsInDoubt: a member that flapped, and has renewed since, comes back after its time, though the others are silent together
// meanwhile; one that does not renew stays dead.
func TestT3DampingEndsInDoubt(t *testing.T) {
	for _, renews := range []bool{true, false} {
		o := begin("a", "b", "c", "d")
		for range 5 {
			o.see(60*time.Second, "b", "c", "d")
			o.see(10*time.Second, "a", "b", "c", "d")
		}
		if !o.sights["a"].Dead {
			t.Fatal("it is not damped")
		}
		o.see(10*time.Second, "a")
		if o.see(LongestWait+time.Minute, map[bool]string{true: "a"}[renews]); o.sights["a"].Dead == renews {
			t.Errorf("renews %v, dead %v", renews, o.sights["a"].Dead)
		}
		for _, id := range []string{"b", "c", "d"} {
			if o.sights[id].Dead {
				t.Errorf("%s is dead, that was silent together with others", id)
			}
		}
	}
}

// TestWhoReturnsIsHeldNoMore, after any time, all at once or one after the other; then one that dies is dead at its time.
func TestWhoReturnsIsHeldNoMore(t *testing.T) {
	for n := 2; n <= 6; n++ {
		ids := []string{"a", "b", "c", "d", "e", "f"}[:n]
		o := begin(ids...)
		o.see(10 * time.Minute)
		for i := range ids {
			o.see(limits.Renew, ids[:i+1]...)
		}
		o.see(time.Minute, ids...)
		if got := o.dead(); len(got) > 0 {
			t.Fatalf("of %d, %v are dead after the return", n, got)
		}
		for id, s := range o.sights {
			if o.now.Sub(s.At) > limits.Renew || s.Checked != o.now {
				t.Errorf("of %d, %s is heard of at %v, looked at until %v, now is %v", n, id, s.At, s.Checked, o.now)
			}
		}
		o.see(limits.Dead+limits.Renew, ids[1:]...)
		if got := o.dead(); !slices.Equal(got, ids[:1]) {
			t.Errorf("of %d, %v are dead, want a, which died alone", n, got)
		}
	}
}

// TestOwnBlindnessIsNoSilence: after an hour in which the hub was not seen, it shows the others' renewals before the own one; nobody is
// held for that hour, and who dies afterwards does at its time.
func TestOwnBlindnessIsNoSilence(t *testing.T) {
	for n := 2; n <= 6; n++ {
		ids := []string{"a", "b", "c", "d", "e", "f"}[:n]
		o := begin(ids...)
		seen := o.now
		o.now = o.now.Add(time.Hour)
		for _, id := range ids {
			o.n[id] += 360
			o.look(seen)
		}
		if at := o.crowd.Believed(at(o.now), o.sights, nil, limits); at != o.now {
			t.Errorf("of %d: the hub is believed until %v, and was seen until %v", n, at, o.now)
		}
		o.see(20*time.Second, ids...)
		o.see(limits.Dead+limits.Renew, ids[1:]...)
		if got := o.dead(); !slices.Equal(got, ids[:1]) {
			t.Errorf("of %d, %v are dead, want a, which died alone", n, got)
		}
	}
}

// TestAStartIsNoDoubt: an agent that was away for an hour, and comes back with the hub, goes on with the silences that it kept.
func TestAStartIsNoDoubt(t *testing.T) {
	o := begin("a", "b", "c")
	o.crowd, o.now = Crowd{}, o.now.Add(time.Hour)
	if at := o.crowd.Believed(at(o.now), o.sights, nil, limits); at != o.now {
		t.Errorf("the hub is believed until %v, and was seen until %v", at, o.now)
	}
	o.see(10 * time.Minute)
	if got := o.dead(); len(got) > 0 {
		t.Errorf("%v are dead, which were silent together", got)
	}
}

// TestAStartInDoubtHearsNobodyInTheFuture: after an hour in which two of three are silent together, this agent starts anew, and the third falls
// silent at once. One of the two comes back: the others are silent together still.
func TestAStartInDoubtHearsNobodyInTheFuture(t *testing.T) {
	o := begin("a", "b", "c")
	o.see(time.Hour, "c")
	o.crowd = Crowd{}
	o.see(10*time.Minute, "a")
	if got := o.dead(); len(got) > 0 {
		t.Errorf("%v are dead, which are silent together", got)
	}
}

// TestWhoIsHeldStaysSoWhileOthersLeave: of four others two are silent, which is no more than half; one leaves, and it is.
func TestWhoIsHeldStaysSoWhileOthersLeave(t *testing.T) {
	o := begin("a", "b", "c", "d")
	o.see(40*time.Second, "c", "d")
	delete(o.sights, "d")
	o.see(10*time.Minute, "c")
	if got := o.dead(); len(got) > 0 {
		t.Errorf("%v are dead", got)
	}
	for id, s := range o.sights {
		if id != "c" && s.Checked.Sub(s.At) > limits.Dead {
			t.Errorf("%s is silent for %v", id, s.Checked.Sub(s.At))
		}
	}
	o.see(time.Minute, "b", "c")
	if got := o.dead(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("dead are %v, want a, which stays away alone", got)
	}
}
