package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/test/model/resolution"
	"github.com/clusterset-dns/clusterset-dns/test/soak/oracle"
)

// finding is a line of the report.
type finding struct {
	section, what, seen, bound string
	holds                      bool
}

// scenario is played from and to a world in which all is right.
type scenario func(context.Context, *stage) error

// scenes are all scenarios, in their order.
var scenes = []struct {
	name string
	play scenario
}{
	{
		"member-dies",
		memberDies,
	},
	{"one-link", oneLinkCut},
	{"one-link-hangs", oneLinkHung},
	{"two-links", twoLinksCut},
	{"two-links-held", twoLinksHeld},
	{"all-links", allLinks},
	{"silent-watch", silentWatch},
	{"clocks", clocks},
	{"hub-clock", hubClock},
	{"flaps", flaps},
}

// stage is what a scenario plays on.
type stage struct {
	*world
	asker   *asker
	line    *timeline
	finds   func(finding)
	a, b, c *member
}

// play runs scenarios one after the other.
func (w *world) play(ctx context.Context, a *asker, finds func(finding), scenarios ...scenario) error {
	line, stop := w.follow(a)
	defer stop()
	s := &stage{world: w, asker: a, line: line, finds: finds, a: w.members[0], b: w.members[1], c: w.members[2]}
	for _, scenario := range scenarios {
		if err := line.full(ctx, len(w.members), 6*time.Minute); err != nil {
			return err
		}
		if _, err := w.settle(ctx, time.Now(), 3*time.Minute); err != nil {
			return err
		}
		if err := w.renewed(ctx, time.Now()); err != nil {
			return err
		}
		if err := scenario(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// renewed waits until every member has renewed its Lease since: who was cut off goes by others' renewals only then
// (T2).
func (w *world) renewed(ctx context.Context, since time.Time) error {
	for slices.ContainsFunc(w.members, func(m *member) bool { return w.oracle.Heard(m.ID).Before(since) }) {
		if time.Since(since) > time.Minute {
			return errors.New("some member has not renewed its Lease for a minute, though all is right")
		}
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// found is of what must hold on every machine.
func (s *stage) found(section, what, bound string, holds bool, seen string, args ...any) {
	s.note(finding{section, what, fmt.Sprintf(seen, args...), bound, holds}, false)
}

// took is of a duration, which the short run does not check.
func (s *stage) took(section, what string, took, most time.Duration) {
	s.note(finding{section, what, seconds(took), "≤ " + seconds(most), took <= most}, s.hurried)
}

func (s *stage) note(f finding, forgiven bool) {
	s.finds(f)
	if f.holds || forgiven {
		s.tape.note("%s: %s: %s", f.section, f.what, f.seen)
	} else {
		s.tape.fail("%s: %s: %s, and the bound is %s", f.section, f.what, f.seen, f.bound)
	}
}

// within is T1's: 65 s of the default's duration, grace and renewal of 60.
func (s *stage) within() time.Duration { return bounds(s.lease, false).Gone }

// soon is how long a returned member's endpoints may take (issue: 10 s).
const soon = 10 * time.Second

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

// identity is what must not change of the imports of names.
func (w *world) identity(ctx context.Context, m *member, of []string) (string, error) {
	var all []string
	for _, name := range of {
		var imp mcsv1beta1.ServiceImport
		err := insist(ctx, func() error { return m.Get(ctx, client.ObjectKey{Namespace: ns, Name: name}, &imp) })
		if err != nil {
			return "", err
		}
		var derived corev1.Service // none of a headless name
		key := client.ObjectKey{Namespace: ns, Name: resolution.DerivedName(ns, name)}
		err = insist(ctx, func() error { return client.IgnoreNotFound(m.Get(ctx, key, &derived)) })
		if err != nil {
			return "", err
		}
		all = append(all, fmt.Sprintf("%s %s %s %v %v", name, imp.UID, derived.UID, imp.Spec.IPs, imp.Status.Clusters))
	}
	return strings.Join(all, "; "), nil
}

// sleep is for times in which nothing may happen.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// memberDies is A: a member's agent and API server end at once; b's agent starts again meanwhile, c's does not.
func memberDies(ctx context.Context, s *stage) error {
	const section = "A. A member dies and returns"
	others := []*member{s.b, s.c}
	before, err := s.identities(ctx, others)
	if err != nil {
		return err
	}
	s.oracle.Trouble(s.a.ID)
	s.a.Agent.Kill()
	s.a.Cluster.KillAPIServer()
	killed := time.Now()
	if err := sleep(ctx, time.Until(s.oracle.Heard(s.a.ID).Add(s.within()/3))); err != nil {
		return err
	}
	s.oracle.Trouble(s.b.ID)
	s.b.Agent.Kill()
	if err := s.b.Agent.Start(ctx); err != nil {
		return err
	}
	s.oracle.Healed(s.b.ID, time.Now())
	heard := s.oracle.Heard(s.a.ID)
	history := []moment{
		{"the last renewal of a", heard},
		{"a's agent and API server killed", killed},
		{"b's agent killed and started again", time.Now()},
	}
	for _, m := range others {
		what := "last renewal → endpoints gone from the answers of " + m.ID
		if m == s.b {
			what += ", whose agent was killed and started again meanwhile"
		}
		at, err := s.line.until(ctx, share{m.ID, s.a.ID}, false, killed, s.within()+time.Minute)
		if err != nil {
			return err
		}
		history = append(history, moment{"a's endpoints gone from the answers of " + m.ID, at})
		s.took(section, what, at.Sub(heard), s.within())
	}
	if err := s.same(ctx, section, "meanwhile", others, before); err != nil {
		return err
	}
	if err := s.a.Cluster.StartAPIServer(ctx); err != nil {
		return err
	}
	started := time.Now()
	if err := s.a.Agent.Start(ctx); err != nil {
		return err
	}
	s.oracle.Healed(s.a.ID, time.Now())
	renewed := func() error { return unless(s.oracle.Heard(s.a.ID).After(started)) }
	if err := insist(ctx, renewed); err != nil {
		return err
	}
	history = append(
		history,
		moment{"a's API server back, and its agent started", started},
		moment{"the first renewal of a", s.oracle.Heard(s.a.ID)},
	)
	if err := s.returns(ctx, section, s.a, started, others); err != nil {
		return err
	}
	for _, m := range others {
		if at, ok := s.line.since(share{m.ID, s.a.ID}, true, started); ok {
			history = append(history, moment{"a's endpoints back in the answers of " + m.ID, at})
		}
	}
	if err := s.same(ctx, section, "after its return", others, before); err != nil {
		return err
	}
	s.told(section+": the course of it, from the last renewal on", history)
	return nil
}

// moment is a line of a timeline.
type moment struct {
	what string
	at   time.Time
}

// told puts moments into the report, by the time since the first of them.
func (s *stage) told(section string, moments []moment) {
	slices.SortStableFunc(moments, func(a, b moment) int { return a.at.Compare(b.at) })
	for _, m := range moments {
		s.found(section, m.what, "", true, "%s", seconds(m.at.Sub(moments[0].at)))
	}
}

func (s *stage) identities(ctx context.Context, of []*member) (out []string, err error) {
	for _, m := range of {
		one, err := s.identity(ctx, m, vips)
		if err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	return out, nil
}

// same finds whether imports are what they were before.
func (s *stage) same(ctx context.Context, section, when string, in []*member, before []string) error {
	after, err := s.identities(ctx, in)
	if err != nil {
		return err
	}
	for i, m := range in {
		s.found(
			section,
			"ServiceImports and VIPs in "+m.ID+" "+when,
			"unchanged",
			before[i] == after[i],
			"%s",
			unchanged(before[i], after[i]),
		)
	}
	return nil
}

func unchanged(before, after string) string {
	if before == after {
		return "unchanged"
	}
	return before + " became " + after
}

// returns waits for a member's endpoints in the others' answers.
func (s *stage) returns(ctx context.Context, section string, of *member, started time.Time, in []*member) error {
	for _, m := range in {
		at, err := s.line.until(ctx, share{m.ID, of.ID}, true, started, 5*time.Minute)
		if err != nil {
			return err
		}
		s.took(
			section,
			of.ID+" started, or reconnected → endpoints back in the answers of "+m.ID,
			at.Sub(started),
			soon,
		)
	}
	return nil
}

// oneLinkCut is B: who is cut off keeps everything, and the others treat it by policy.
func oneLinkCut(ctx context.Context, s *stage) error {
	return s.oneLink(ctx, "B. Only the link between the hub and b is cut", s.b, s.b.ToHub.Cut, s.a, s.c)
}

// oneLinkHung lasts until c would take everybody else for dead, had it not noticed that it hears nothing and
// frozen. It is c's: b dies twice in
// the others, and a third time would make it wait before it comes back (T3).
func oneLinkHung(ctx context.Context, s *stage) error {
	return s.oneLink(
		ctx,
		"B. Only the link between the hub and c hangs, without being closed",
		s.c,
		s.c.ToHub.Hang,
		s.a,
		s.b,
	)
}

func (s *stage) oneLink(ctx context.Context, section string, of *member, fail func(), others ...*member) error {
	s.oracle.Trouble(oracle.Link(of.ID))
	fail()
	cut := time.Now()
	heard := s.oracle.Heard(of.ID)
	for _, m := range others {
		at, err := s.line.until(ctx, share{m.ID, of.ID}, false, cut, s.within()+time.Minute)
		if err != nil {
			return err
		}
		s.took(
			section,
			"last renewal → "+of.ID+"'s endpoints gone from the answers of "+m.ID+", by policy Remove",
			at.Sub(heard),
			s.within(),
		)
	}
	if err := sleep(ctx, s.within()/3); err != nil {
		return err
	}
	s.keeps(section, of, cut)
	of.ToHub.Restore()
	restored := time.Now()
	s.oracle.Healed(oracle.Link(of.ID), restored)
	return s.returns(ctx, section, of, restored, others)
}

func (s *stage) keeps(section string, m *member, since time.Time) {
	changed := s.line.changed(m.ID, since)
	s.found(
		section,
		fmt.Sprintf("changes in the answers of %s in %s", m.ID, seconds(time.Since(since))),
		"0",
		len(changed) == 0,
		"%d",
		len(changed),
	)
}

// twoLinksCut is B: who sees the hub goes by the policy, who does not keeps everything.
func twoLinksCut(ctx context.Context, s *stage) error {
	const section = "B. The links between the hub and a, and the hub and b, are cut; spec.lease.mostSilent is Expire"
	was := s.lease
	expire := was
	expire.MostSilent = hubv1alpha1.MostSilentExpire
	if err := s.setLease(ctx, expire); err != nil {
		return err
	}
	if _, err := s.settle(ctx, time.Now(), time.Minute); err != nil {
		return err
	}
	since := time.Now()
	for _, m := range []*member{s.a, s.b} {
		s.oracle.Trouble(oracle.Link(m.ID))
		m.ToHub.Cut()
	}
	for _, m := range []*member{s.a, s.b} {
		if _, err := s.line.until(ctx, share{s.c.ID, m.ID}, false, since, s.within()+time.Minute); err != nil {
			return err
		}
	}
	s.found(section, "c, which sees the hub, treats both by policy Remove", "gone", true, "gone")
	if err := sleep(ctx, s.within()/3); err != nil {
		return err
	}
	s.keeps(section, s.a, since)
	s.keeps(section, s.b, since)
	restored := time.Now()
	for _, m := range []*member{s.a, s.b} {
		m.ToHub.Restore()
		s.oracle.Healed(oracle.Link(m.ID), restored)
	}
	return errors.Join(
		s.returns(ctx, section, s.a, restored, []*member{s.c}),
		s.returns(ctx, section, s.b, restored, []*member{s.c}),
		s.setLease(ctx, was),
	)
}

// twoLinksHeld is B: most others silent together are rather the hub's fault, unless the ClusterSet says otherwise;
// nothing changes anywhere.
func twoLinksHeld(ctx context.Context, s *stage) error {
	const section = "B. The links between the hub and a, and the hub and b, are cut together; " +
		"spec.lease.mostSilent is Hold, as by default"
	since := time.Now()
	cut := []string{
		oracle.Link(s.a.ID),
		oracle.Link(s.b.ID),
		oracle.Link(s.c.ID),
	} // c's is whole: what c makes of it is for the timeline
	for _, in := range cut {
		s.oracle.Trouble(in)
	}
	s.a.ToHub.Cut()
	s.b.ToHub.Cut()
	if err := sleep(ctx, 2*s.within()); err != nil {
		return err
	}
	s.a.ToHub.Restore()
	s.b.ToHub.Restore()
	if err := sleep(ctx, s.within()); err != nil { // nor when they are repaired
		return err
	}
	for _, in := range cut {
		s.oracle.Healed(in, time.Now())
	}
	s.found(section, "cut for", "", true, "%s, and repaired for %s", seconds(2*s.within()), seconds(s.within()))
	for _, m := range s.members {
		s.keeps(section, m, since)
	}
	return nil
}

// allLinks is B: a hub that nobody sees is nobody's death, neither while it is away nor afterwards.
func allLinks(ctx context.Context, s *stage) error {
	const section = "B. Every link to the hub is cut"
	f := allLinksCut(s.world, s.chance, nil)
	since := time.Now()
	for _, in := range f.in {
		s.oracle.Trouble(in)
	}
	if err := errors.Join(f.begin(ctx), sleep(ctx, s.within()+s.within()/3), f.repair(ctx)); err != nil {
		return err
	}
	for _, in := range f.in {
		s.oracle.Healed(in, time.Now())
	}
	if err := sleep(ctx, s.within()); err != nil {
		return err
	}
	for _, m := range s.members {
		s.keeps(section+", and repaired", m, since)
	}
	return nil
}
