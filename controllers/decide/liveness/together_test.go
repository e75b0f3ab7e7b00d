package liveness

import (
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
		var heard []time.Time
		for _, s := range c.silent {
			heard = append(heard, now.Add(-time.Duration(s)*time.Second))
		}
		if got := now.Sub(limits.Believed(now, heard)); got != time.Duration(c.want)*time.Second {
			t.Errorf("%s: %v of doubt, want %d s", c.name, got, c.want)
		}
	}
}

// couple is two others, of which each lives or not; both are looked at with each own renewal.
type couple struct {
	now    time.Time
	sights [2]Sight
	n      [2]int
}

func (c *couple) see(d time.Duration, lives ...bool) {
	for end := c.now.Add(d); c.now.Before(end); {
		c.now = c.now.Add(limits.Renew)
		for i, l := range lives {
			if l {
				c.n[i]++
			}
		}
		for i := range c.sights {
			var heard []time.Time
			for j, s := range c.sights {
				switch {
				case s.Dead:
				case written(c.n[j]).After(s.Renewal):
					heard = append(heard, c.now)
				default:
					heard = append(heard, s.At)
				}
			}
			c.sights[i] = c.sights[i].Look(limits.Believed(c.now, heard), written(c.n[i]), limits)
		}
	}
}

// TestWhoFallsSilentTogetherIsHeld for however long that is; whoever returns leaves the other the time that it had, and no more; and who
// falls silent alone is dead at its time, beside one that is dead already.
func TestWhoFallsSilentTogetherIsHeld(t *testing.T) {
	begin := func() *couple {
		c := &couple{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
		c.see(time.Minute, true, true)
		return c
	}
	c := begin()
	c.see(time.Hour, false, false)
	if c.sights[0].Dead || c.sights[1].Dead {
		t.Fatal("dead together")
	}
	c.see(10*time.Second, true, false)
	if c.sights[0].Dead || c.sights[1].Dead {
		t.Fatal("dead when the other returned")
	}
	c.see(20*time.Second, true, false)
	if c.sights[1].Dead {
		t.Fatal("what it had left is over too early")
	}
	c.see(20*time.Second, true, false)
	if c.sights[0].Dead || !c.sights[1].Dead {
		t.Fatalf("dead: %v and %v, want only the one that stays away", c.sights[0].Dead, c.sights[1].Dead)
	}
	c.see(60*time.Second, false, false)
	if !c.sights[0].Dead {
		t.Fatal("one dies beside a dead one, and is held")
	}
	c = begin()
	c.see(60*time.Second, false, true)
	if !c.sights[0].Dead || c.sights[1].Dead {
		t.Fatal("one that dies alone is held")
	}
}

// TestWhoReturnsTogetherIsHeldNoMore, after any time.
func TestWhoReturnsTogetherIsHeldNoMore(t *testing.T) {
	c := &couple{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	c.see(time.Minute, true, true)
	c.see(10*time.Minute, false, false)
	for range 30 {
		if c.see(limits.Renew, true, true); c.sights[0].Dead || c.sights[1].Dead {
			t.Fatal("dead after the return")
		}
	}
	for i, s := range c.sights {
		if s.At != c.now || s.Checked != c.now {
			t.Errorf("%d is heard of at %v, looked at until %v, now is %v", i, s.At, s.Checked, c.now)
		}
	}
}
