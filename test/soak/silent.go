package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
	"github.com/clusterset-dns/clusterset-dns/test/soak/oracle"
)

var fresh = regexp.MustCompile(`(?m)^clusterset_agent_hub_fresh\{[^}]*\} (\d)`)

func gauge(of *regexp.Regexp, metrics string) (int, error) {
	found := of.FindStringSubmatch(metrics)
	if found == nil {
		return 0, errors.New("the agent does not show " + of.String())
	}
	return strconv.Atoi(found[1])
}

// silentWatch is B: b's watches of the hub say nothing more and do not end, and its requests succeed.
func silentWatch(ctx context.Context, s *stage) error {
	const section = "B. The watches between the hub and b hang without closing"
	m, err := s.Hub.Muffle()
	if err != nil {
		return err
	}
	defer m.Close()
	direct := s.b.ToHub.Target()
	s.b.ToHub.Divert(m.Addr())
	defer s.b.ToHub.Divert(direct)
	if _, err := s.settle(ctx, time.Now(), time.Minute); err != nil {
		return err
	}
	s.oracle.Trouble(oracle.Link(s.b.ID))
	began := time.Now()
	until := func(what string, limit time.Duration, ok func(string) (bool, error)) (time.Duration, error) {
		for time.Since(began) < limit && ctx.Err() == nil {
			if done, err := ok(s.b.Agent.Metrics()); err == nil && done {
				return time.Since(began), nil
			}
			time.Sleep(100 * time.Millisecond)
		}
		return 0, fmt.Errorf("%s: b's agent is not %s after %v", section, what, limit)
	}
	duration := time.Duration(s.lease.DurationSeconds) * time.Second
	frozen, err := until("frozen", s.within()+time.Minute, func(metrics string) (bool, error) {
		m.Hush() // again and again: the API server ends each watch after some minutes, and the next one is new
		n, err := gauge(fresh, metrics)
		return n == 0, err
	})
	if err != nil {
		return err
	}
	s.took(section, "noticed, and frozen: clusterset_agent_hub_fresh is 0", frozen, duration+soon)
	if err := s.probe(ctx); err != nil { // not before: it is compared with the hub what the watches have shown
		return err
	}
	relisted, err := until("reading the hub again", s.within()+2*time.Minute, func(metrics string) (bool, error) {
		n, err := gauge(fresh, metrics)
		return n == 1, err
	})
	if err != nil {
		return err
	}
	s.took(section, "the hub is read again", relisted, s.within()+soon)
	for len(s.oracle.Behind(time.Now().Add(-time.Second))) > 0 && time.Since(began) < 5*time.Minute &&
		ctx.Err() == nil {
		time.Sleep(20 * time.Millisecond)
	}
	followed := time.Since(began)
	s.oracle.Healed(oracle.Link(s.b.ID), time.Now())
	s.took(
		section,
		"changes that were made in the others meanwhile are in b's answers",
		followed,
		s.within()+2*soon,
	)
	said := s.event(ctx, s.b, "HubSilent")
	s.found(section, "Event on the agent", "HubSilent", said != "", "%s", said)
	s.keeps(section, s.b, began)
	return nil
}

// event waits until a member's agent has said this; "" if it has not.
func (s *stage) event(ctx context.Context, m *member, reason string) (said string) {
	var events corev1.EventList
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	_ = insist(ctx, func() error {
		if err := m.List(ctx, &events, client.InNamespace(kube.SystemNamespace)); err != nil {
			return err
		}
		for i := range events.Items {
			if events.Items[i].Reason == reason {
				said = reason
				return nil
			}
		}
		return errors.New("no such Event")
	})
	return said
}
