package liveness

import (
	"maps"
	"slices"
	"testing"
	"time"
)

// TestCommonSilence stops the measuring if most other members, and at least two, are silent: two renewals after the
// last of them.
func TestCommonSilence(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name   string
		silent []int // seconds, of each other member
		want   int   // seconds that do not count
	}{
		{"no other", nil, 0},
		{"one of one expires", []int{300}, 0},
		{"one of two", []int{300, 5}, 0},
		{"two of two", []int{32, 31}, 11},
		{"two of two, one for a little while", []int{40, 15}, 0},
		{"two of three", []int{45, 0, 48}, 25},
		{"two of four are a half", []int{45, 0, 48, 3}, 0},
		{"three of four", []int{45, 30, 48, 3}, 10},
		{"at the second renewal", []int{20, 20}, 0},
	} {
		silence, observations := CommonSilence{
			seenUntil: now,
			last:      map[string]lastRenewal{},
		}, map[string]Observation{}
		for i, s := range c.silent {
			id, at := string(rune('a'+i)), now.Add(-time.Duration(s)*time.Second)
			silence.last[id], observations[id] = lastRenewal{
				seenAt: at,
			}, Observation{
				RenewedAt:     at,
				ObservedUntil: now,
			}
		}
		if got := now.Sub(silence.ObservedUntil(at(now), observations, nil, limits)); got != time.Duration(
			c.want,
		)*time.Second {
			t.Errorf("%s: %v do not count, want %d s", c.name, got, c.want)
		}
	}
}

// others are members, live or not. They renew one after the other, and all are observed with every renewal.
type others struct {
	now          time.Time
	silence      CommonSilence
	observations map[string]Observation
	n            map[string]int
}

func begin(ids ...string) *others {
	o := &others{
		now:          time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		observations: map[string]Observation{},
		n:            map[string]int{},
	}
	for _, id := range ids {
		o.observations[id] = Observation{}
	}
	o.see(time.Minute, ids...)
	return o
}

func (o *others) see(d time.Duration, live ...string) {
	ids := slices.Sorted(maps.Keys(o.observations))
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

// look observes all of them; the hub was seen until then.
func (o *others) look(until time.Time) {
	renewals := map[string]Renewal{}
	for id, n := range o.n {
		renewals[id] = written(n)
	}
	for id, s := range o.observations {
		hub := HubView{until, until, o.now}
		o.observations[id] = s.Observe(
			hub, o.silence.ObservedUntil(hub, o.observations, renewals, limits), renewals[id], limits,
		)
	}
}

func (o *others) expired() (ids []string) {
	for id, s := range o.observations {
		if s.Expired {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// TestMembersSilentTogetherAreHeld for any time. The first to return leaves the other the time that it had. A member
// that is silent alone expires in time, also beside one that expired earlier.
func TestMembersSilentTogetherAreHeld(t *testing.T) {
	o := begin("a", "b")
	expired := func(what string, want ...string) {
		t.Helper()
		if got := o.expired(); !slices.Equal(got, want) {
			t.Fatalf("%s: expired %v, want %v", what, got, want)
		}
	}
	o.see(time.Hour)
	expired("together")
	o.see(10*time.Second, "a")
	expired("when the other returned")
	o.see(20*time.Second, "a")
	expired("before its remaining time was over")
	o.see(20*time.Second, "a")
	expired("the one that stays away", "b")
	o.see(time.Minute)
	expired("beside an expired one", "a", "b")
	o = begin("a", "b")
	o.see(time.Minute, "b")
	expired("alone", "a")
}

// TestT3DampingEndsDuringACommonSilence: a member that flapped and renews returns in time, though the others are
// silent together. If it does not renew, it stays expired.
func TestT3DampingEndsDuringACommonSilence(t *testing.T) {
	for _, renews := range []bool{true, false} {
		o := begin("a", "b", "c", "d")
		for range 5 {
			o.see(60*time.Second, "b", "c", "d")
			o.see(10*time.Second, "a", "b", "c", "d")
		}
		if !o.observations["a"].Expired {
			t.Fatal("it is not damped")
		}
		o.see(10*time.Second, "a")
		if o.see(MaxDamping+time.Minute, map[bool]string{true: "a"}[renews]); o.observations["a"].Expired == renews {
			t.Errorf("renews %v, expired %v", renews, o.observations["a"].Expired)
		}
		for _, id := range []string{"b", "c", "d"} {
			if o.observations[id].Expired {
				t.Errorf("%s expired, though it was silent together with others", id)
			}
		}
	}
}

// TestMembersReturnFromACommonSilence one after the other; then a member that falls silent alone expires in time.
func TestMembersReturnFromACommonSilence(t *testing.T) {
	for n := 2; n <= 6; n++ {
		ids := []string{"a", "b", "c", "d", "e", "f"}[:n]
		o := begin(ids...)
		o.see(10 * time.Minute)
		for i := range ids {
			o.see(limits.Renew, ids[:i+1]...)
		}
		o.see(time.Minute, ids...)
		if got := o.expired(); len(got) > 0 {
			t.Fatalf("of %d, %v are expired after the return", n, got)
		}
		for id, s := range o.observations {
			if o.now.Sub(s.RenewedAt) > limits.Renew || s.ObservedUntil != o.now {
				t.Errorf(
					"of %d, %s renewed at %v, observed until %v, now is %v",
					n,
					id,
					s.RenewedAt,
					s.ObservedUntil,
					o.now,
				)
			}
		}
		o.see(limits.Expiry+limits.Renew, ids[1:]...)
		if got := o.expired(); !slices.Equal(got, ids[:1]) {
			t.Errorf("of %d, %v are expired, want a, which is silent alone", n, got)
		}
	}
}

// TestBlindnessIsNoCommonSilence: after an hour without the hub, it shows the others' renewals before the own one.
// That hour is no silence, and a member that falls silent afterwards expires in time.
func TestBlindnessIsNoCommonSilence(t *testing.T) {
	for n := 2; n <= 6; n++ {
		ids := []string{"a", "b", "c", "d", "e", "f"}[:n]
		o := begin(ids...)
		seen := o.now
		o.now = o.now.Add(time.Hour)
		for _, id := range ids {
			o.n[id] += 360
			o.look(seen)
		}
		if at := o.silence.ObservedUntil(at(o.now), o.observations, nil, limits); at != o.now {
			t.Errorf("of %d: silence counts until %v, the hub was seen until %v", n, at, o.now)
		}
		o.see(20*time.Second, ids...)
		o.see(limits.Expiry+limits.Renew, ids[1:]...)
		if got := o.expired(); !slices.Equal(got, ids[:1]) {
			t.Errorf("of %d, %v are expired, want a, which is silent alone", n, got)
		}
	}
}

// TestAStartIsNoCommonSilence: an agent that was down for an hour goes on with the silences that it stored.
func TestAStartIsNoCommonSilence(t *testing.T) {
	o := begin("a", "b", "c")
	o.silence, o.now = CommonSilence{}, o.now.Add(time.Hour)
	if at := o.silence.ObservedUntil(at(o.now), o.observations, nil, limits); at != o.now {
		t.Errorf("silence counts until %v, the hub was seen until %v", at, o.now)
	}
	o.see(10 * time.Minute)
	if got := o.expired(); len(got) > 0 {
		t.Errorf("%v expired, which were silent together", got)
	}
}

// TestAStartDuringACommonSilence: after an hour in which two of three are silent together, this agent restarts, and
// the third falls silent at once. One of the two returns: the others are still silent together.
func TestAStartDuringACommonSilence(t *testing.T) {
	o := begin("a", "b", "c")
	o.see(time.Hour, "c")
	o.silence = CommonSilence{}
	o.see(10*time.Minute, "a")
	if got := o.expired(); len(got) > 0 {
		t.Errorf("%v expired, which are silent together", got)
	}
}

// TestAMemberLeavesDuringASilence: two of four others are silent, which is not most; then one leaves, and it is.
func TestAMemberLeavesDuringASilence(t *testing.T) {
	o := begin("a", "b", "c", "d")
	o.see(40*time.Second, "c", "d")
	delete(o.observations, "d")
	o.see(10*time.Minute, "c")
	if got := o.expired(); len(got) > 0 {
		t.Errorf("%v are expired", got)
	}
	for id, s := range o.observations {
		if id != "c" && s.ObservedUntil.Sub(s.RenewedAt) > limits.Expiry {
			t.Errorf("%s is silent for %v", id, s.ObservedUntil.Sub(s.RenewedAt))
		}
	}
	o.see(time.Minute, "b", "c")
	if got := o.expired(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("expired %v, want a, which stays silent alone", got)
	}
}
