package main

import (
	"testing"
	"time"
)

func TestTheFirstChangeCarriedIsTheFirstSeen(t *testing.T) {
	began := time.Unix(100, 0)
	at := func(made, seen time.Duration) carried { return carried{began.Add(made), began.Add(seen)} }
	changes := []carried{at(0, 4*time.Second), at(time.Second, 3*time.Second), at(2*time.Second, 5*time.Second)}
	if got := first(changes).Sub(began); got != 3*time.Second {
		t.Errorf("the first one was seen after %v, want 3 s", got)
	}
	if got := took(changes)[0]; got != 4*time.Second {
		t.Errorf("the first one made took %v, want 4 s", got)
	}
	if got, want := starts(
		[]time.Duration{3 * time.Second, time.Second, 2 * time.Second},
	), "2000 ms at p50 and 3000 ms at the worst of 3"; got != want {
		t.Errorf("the page says %s, want %s", got, want)
	}
}
