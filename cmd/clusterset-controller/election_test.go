package main

import (
	"context"
	"errors"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// scripted is a lock whose answers are given.
type scripted struct {
	resourcelock.Interface
	holder string
	err    error
}

func (s *scripted) Identity() string { return "me" }

func (s *scripted) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	return &resourcelock.LeaderElectionRecord{HolderIdentity: s.holder}, nil, s.err
}

func (s *scripted) Create(context.Context, resourcelock.LeaderElectionRecord) error { return s.err }

func (s *scripted) Update(context.Context, resourcelock.LeaderElectionRecord) error { return s.err }

// TestALeaderStaysOneForWantOfAnAnswer: and for nothing else.
func TestALeaderStaysOneForWantOfAnAnswer(t *testing.T) {
	resource := coordinationv1.Resource("leases")
	refused := errors.New("connect: connection refused")
	mine := resourcelock.LeaderElectionRecord{HolderIdentity: "me"}
	for name, c := range map[string]struct {
		before    func(l *lock, s *scripted)
		err       error
		contested bool
		stays     bool
		ends      bool // at once
	}{
		"no connection":     {err: refused, stays: true},
		"no answer in time": {err: context.DeadlineExceeded, stays: true},
		"no store behind the API server": {
			err: apierrors.NewInternalError(errors.New("etcdserver: no leader")), stays: true,
		},
		"the API server has too much work": {err: apierrors.NewTooManyRequests("later", 1), stays: true},
		"another has written it":           {err: apierrors.NewConflict(resource, "x", errors.New("changed"))},
		"it is gone":                       {err: apierrors.NewNotFound(resource, "x")},
		"no permission":                    {err: apierrors.NewForbidden(resource, "x", errors.New("no"))},
		"another is at work":               {err: refused, contested: true},
		"never held":                       {err: refused, before: func(l *lock, _ *scripted) { l.held.Store(false) }},
		"seen with another": {err: refused, ends: true, before: func(l *lock, s *scripted) {
			s.holder = "other"
			_, _, _ = l.Get(t.Context())
		}},
		"seen with itself": {err: refused, stays: true, before: func(l *lock, s *scripted) {
			s.holder = "me"
			_, _, _ = l.Get(t.Context())
		}},
		"another has led since, and is gone": {ends: true, before: func(l *lock, s *scripted) {
			s.holder = "other"
			_, _, _ = l.Get(t.Context())
		}},
		"another has led since, and has released it": {ends: true, before: func(l *lock, s *scripted) {
			s.holder = ""
			_, _, _ = l.Get(t.Context())
		}},
		"another has recreated it": {ends: true, before: func(l *lock, s *scripted) {
			s.err = apierrors.NewAlreadyExists(resource, "x")
			_ = l.Create(t.Context(), mine)
			s.holder, s.err = "other", nil
			_, _, _ = l.Get(t.Context())
		}},
		"it could not be recreated": {err: refused, before: func(l *lock, s *scripted) {
			s.err = refused
			_ = l.Create(t.Context(), mine)
		}},
		"given back": {
			err:    refused,
			before: func(l *lock, _ *scripted) { _ = l.Update(t.Context(), resourcelock.LeaderElectionRecord{}) },
		},
	} {
		s, ended := &scripted{}, false
		l := &lock{Interface: s, contested: func() bool { return c.contested }, end: func(error) { ended = true }}
		if err := l.Create(t.Context(), mine); err != nil {
			t.Fatal(err)
		}
		if c.before != nil {
			c.before(l, s)
		}
		s.err = c.err
		if err := l.Update(t.Context(), mine); (err == nil) != c.stays {
			t.Errorf("%s: %v, want that it stays: %v", name, err, c.stays)
		}
		if ended != c.ends {
			t.Errorf("%s: the process ends at once: %v", name, ended)
		}
	}
}

// TestT1TheStandbyIsInTime: when the leader's node is gone right before its next renewal, and the standby sees and
// tries as late as it may. The ClusterSet's defaults are docs/reference.md's.
func TestT1TheStandbyIsInTime(t *testing.T) {
	const renew, dead, start = 10 * time.Second, 50 * time.Second, 5 * time.Second
	poll := leaderRetry + time.Duration(leaderelection.JitterFactor*float64(leaderRetry))
	if worst := renew + poll + leaderDuration + poll + start; worst > dead {
		t.Errorf(
			"a standby may renew first %v after the last renewal, and the others give its member up after %v",
			worst,
			dead,
		)
	}
}
