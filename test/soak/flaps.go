package main

import (
	"context"
	"strings"
	"time"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
)

// flaps is E: c dies and returns twenty times in five minutes, with a Lease that is so short that each is a death. The others write per
// Service what the first ones come to, since who dies again and again is let back later (T3).
func flaps(ctx context.Context, s *stage) error {
	const section = "E. A member flaps: 20 times in 5 minutes"
	was := s.lease
	if err := s.setLease(ctx, hubv1alpha1.LeaseSpec{RenewSeconds: 1, DurationSeconds: 4, GraceSeconds: 1, OnExpiry: hubv1alpha1.ExpiryRemove}); err != nil {
		return err
	}
	if err := sleep(ctx, 3*time.Duration(was.RenewSeconds)*time.Second); err != nil { // every agent goes by it now
		return err
	}
	if _, err := s.auditAll(); err != nil {
		return err
	}
	marks := map[string]int64{s.a.ID: s.audited[s.a.ID], s.b.ID: s.audited[s.b.ID]}
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
		s.oracle.Healed(s.c.ID, time.Now())
		if err := sleep(ctx, 7*time.Second); err != nil {
			return err
		}
	}
	took := time.Since(began)
	for _, m := range []*member{s.a, s.b} {
		writes := 0
		if _, err := readWrites(m.Cluster.AuditLog(), marks[m.ID], func(w write) {
			of := w.ObjectRef
			if w.User.Username == agents && (of.Namespace == ns && of.Resource != "events" || strings.HasPrefix(of.Resource, "serviceexportrecords")) {
				writes++
			}
		}); err != nil {
			return err
		}
		each := float64(writes) / float64(len(names))
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
		s.found(section, "writes of the agent of "+m.ID+" per Service that c exports, in "+seconds(took), "≤ 20", each <= 20,
			"%.1f: c's endpoints went %d times and came back %d times", each, went, came)
	}
	if err := s.setLease(ctx, was); err != nil {
		return err
	}
	back := time.Now()
	if err := s.line.full(ctx, len(s.members), 6*time.Minute); err != nil {
		return err
	}
	s.found(section, "after the last flap c's endpoints are back everywhere", "≤ 300 s (T3)", time.Since(back) <= 5*time.Minute, "after %s", seconds(time.Since(back)))
	return nil
}
