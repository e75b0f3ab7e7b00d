package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/clusterset-dns/clusterset-dns/test/soak/oracle"
)

// timeline keeps when whose endpoints came and went in whose answers, of the name heads, which every member exports
// and nobody changes.
type timeline struct {
	mu      sync.Mutex
	there   map[share]bool
	changes []change
}

// share is a cluster's part in a member's answers.
type share struct{ member, cluster string }

type change struct {
	share
	at    time.Time
	there bool
}

func (w *world) follow(a *asker) (t *timeline, stop func()) {
	t = &timeline{there: map[share]bool{}}
	of := w.oracle.Exporters("heads")
	return t, a.watch(func(answer oracle.Answer) {
		if answer.Name != "heads" || answer.Code != oracle.NoError {
			return
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		for cluster, addresses := range of {
			s, now := share{answer.Member, cluster}, slices.Contains(answer.Addresses, addresses[0])
			if was, known := t.there[s]; !known || was != now {
				t.there[s] = now
				t.changes = append(t.changes, change{s, answer.Received, now})
			}
		}
	})
}

// until waits for a share to come or go after a time, and tells when.
func (t *timeline) until(
	ctx context.Context,
	s share,
	there bool,
	after time.Time,
	limit time.Duration,
) (time.Time, error) {
	for deadline := time.Now().Add(limit); ; time.Sleep(10 * time.Millisecond) {
		if at, ok := t.since(s, there, after); ok {
			return at, nil
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return time.Time{}, fmt.Errorf(
				"the endpoints of %s in the answers of %s: there is %v not so after %v",
				s.cluster,
				s.member,
				there,
				limit,
			)
		}
	}
}

func (t *timeline) since(s share, there bool, after time.Time) (time.Time, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.changes {
		if c.share == s && c.there == there && c.at.After(after) {
			return c.at, true
		}
	}
	return time.Time{}, false
}

// changed are the changes in a member's answers after a time.
func (t *timeline) changed(member string, after time.Time) (out []change) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.changes {
		if c.member == member && c.at.After(after) {
			out = append(out, c)
		}
	}
	return out
}

// full waits until everybody's endpoints are in every answer.
func (t *timeline) full(ctx context.Context, members int, limit time.Duration) error {
	for deadline := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
		t.mu.Lock()
		n := 0
		for _, there := range t.there {
			if there {
				n++
			}
		}
		t.mu.Unlock()
		if n == members*members {
			return nil
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return fmt.Errorf(
				"only %d of %d shares of heads are in the answers after %v",
				n,
				members*members,
				limit,
			)
		}
	}
}
