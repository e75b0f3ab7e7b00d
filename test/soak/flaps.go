package main

import (
	"context"
	"maps"
	"strings"
	"time"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
)

// flaps is E: c dies and returns twenty times in five minutes, with a Lease that is so short that each is a death.
// The others write per Service what the first ones come to, since who dies again and again is let back later (T3);
// c itself and the hub have nothing new to say.
func flaps(ctx context.Context, s *stage) error {
	const section = "E. A member flaps: 20 times in 5 minutes"
	was := s.lease
	if err := s.setLease(
		ctx,
		hubv1alpha1.LeaseSpec{
			RenewSeconds:    1,
			DurationSeconds: 4,
			GraceSeconds:    1,
			OnExpiry:        hubv1alpha1.ExpiryRemove,
		},
	); err != nil {
		return err
	}
	if err := sleep(ctx, 3*time.Duration(was.RenewSeconds)*time.Second); err != nil { // every agent goes by it now
		return err
	}
	if _, err := s.auditAll(); err != nil {
		return err
	}
	marks := maps.Clone(s.audited)
	began := time.Now()
	for range 20 {
		s.oracle.Trouble(s.c.ID)
		s.c.Agent.Kill()
		if err := sleep(ctx, 8*time.Second); err != nil {
			return err
		}
		if err := s.c.Agent.Start(ctx); err != nil {
			return err
		}
		started := time.Now()
		s.oracle.Healed(s.c.ID, started)
		if err := s.renewed(ctx, started); err != nil { // else it would be one long death
			return err
		}
		if err := sleep(ctx, time.Until(started.Add(7*time.Second))); err != nil {
			return err
		}
	}
	took := time.Since(began)
	for _, m := range []*member{s.a, s.b} {
		each, err := writesEach(m.Cluster.AuditLog(), marks[m.ID])
		if err != nil {
			return err
		}
		went, came := 0, 0
		for _, c := range s.line.changed(m.ID, began) {
			switch {
			case c.cluster != s.c.ID:
			case c.there:
				came++
			default:
				went++
			}
		}
		s.found(
			section,
			"writes of the agent of "+m.ID+" per Service that c exports, in "+seconds(took),
			"≤ 20, and c's endpoints come back twice at least",
			flapped(came, each),
			"%.1f: c's endpoints went %d times and came back %d times",
			each,
			went,
			came,
		)
	}
	for _, of := range []struct{ where, log, mark string }{
		{"the agent of " + s.c.ID + ", which flaps, in its own cluster", s.c.Cluster.AuditLog(), s.c.ID},
		{"all agents on the hub, renewals apart", s.Hub.AuditLog(), "hub"},
	} {
		each, err := writesEach(of.log, marks[of.mark])
		if err != nil {
			return err
		}
		s.found(section, "writes of "+of.where+", per Service that c exports", "≤ 20", each <= 20, "%.1f", each)
	}
	if err := s.setLease(ctx, was); err != nil {
		return err
	}
	back := time.Now()
	if err := s.line.full(ctx, len(s.members), 6*time.Minute); err != nil {
		return err
	}
	s.took(section, "the last flap → c's endpoints are back everywhere (T3)", time.Since(back), 5*time.Minute)
	return nil
}

// flapped reports whether it was seen to come back, as it is the first times (T3), and that it was cheap: who stays
// away costs nothing.
func flapped(came int, writes float64) bool { return came >= 2 && writes <= 20 }

// writesEach is how often agents wrote what they make of exports, by an audit log from a mark on and per name.
func writesEach(log string, from int64) (float64, error) {
	n := 0
	_, err := readWrites(log, from, func(w write) {
		of, who := w.ObjectRef, w.User.Username
		records := strings.HasPrefix(of.Resource, "serviceexportrecords") ||
			strings.HasPrefix(of.Resource, "endpointpages")
		if w.succeeded() && (who == agents || strings.HasPrefix(who, peers)) &&
			(records || of.Namespace == ns && of.Resource != "events") {
			n++
		}
	})
	return float64(n) / float64(len(names)), err
}
