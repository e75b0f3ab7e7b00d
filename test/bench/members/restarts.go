package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// During a start of b's agent as many changes are made in a and in b, one each per pace.
const (
	during = 20
	pace   = 250 * time.Millisecond
)

// restarts measures changes that are made while b's agent starts after a kill, and reads all of the hub: in a,
// whose endpoints it imports,
// and in b, whose endpoints it publishes. note is what is to be said of it below the table.
func (b *bench) restarts(ctx context.Context, kills int) (note string, err error) {
	a, cold := b.Members[0], b.Members[1]
	imports, err := b.crowdOf(ctx, a, cold, "imported")
	if err != nil {
		return "", err
	}
	exports, err := b.crowdOf(ctx, cold, a, "exported")
	if err != nil {
		return "", err
	}
	var imported, exported, firstIn, firstOut []time.Duration
	since := now()
	for range kills {
		cold.Agent.Kill()
		began := time.Now()
		if err := cold.Agent.Start(ctx); err != nil {
			return "", err
		}
		var both sync.WaitGroup
		var in, out []carried
		var inErr, outErr error
		both.Go(func() { in, inErr = live(ctx, imports) })
		both.Go(func() { out, outErr = live(ctx, exports) })
		both.Wait()
		if err := errors.Join(inErr, outErr); err != nil {
			return "", err
		}
		imported, exported = append(imported, took(in)...), append(exported, took(out)...)
		firstIn, firstOut = append(firstIn, first(in).Sub(began)), append(firstOut, first(out).Sub(began))
	}
	what := fmt.Sprintf(
		"live change in %%s during a cold start of b's agent → answer in %%s, the same load (%d kills, a change "+
			"every %v of the %v after each)",
		kills,
		pace,
		during*pace,
	)
	b.line(fmt.Sprintf(what, "a", "b"), imported, barRestart, since)
	b.line(fmt.Sprintf(what, "b", "a"), exported, barRestart, since)
	return fmt.Sprintf(
		"\nFrom the start of b's agent to the first change that it carried: into b %s, out of b %s.\n",
		starts(firstIn),
		starts(firstOut),
	), nil
}

// starts is the page's words for how long starts took.
func starts(all []time.Duration) string {
	if len(all) == 0 {
		return "none"
	}
	p50, _ := quantiles(all)
	return fmt.Sprintf(
		"%d ms at p50 and %d ms at the worst of %d",
		p50.Milliseconds(),
		slices.Max(all).Milliseconds(),
		len(all),
	)
}

// carried is a change from when it was made to when it was seen.
type carried struct{ made, seen time.Time }

func took(all []carried) (out []time.Duration) {
	for _, c := range all {
		out = append(out, c.seen.Sub(c.made))
	}
	return out
}

// first is when the first one was seen.
func first(all []carried) time.Time {
	return slices.MinFunc(all, func(a, b carried) int { return a.seen.Compare(b.seen) }).seen
}

func (b *bench) crowdOf(ctx context.Context, from, to *lab.Member, name string) (out []*moving, err error) {
	for i := range during {
		m, err := b.moving(ctx, from, to, fmt.Sprintf("%s%d", name, i))
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}

// live changes one Service after the other.
func live(ctx context.Context, services []*moving) ([]carried, error) {
	out, errs := make([]carried, len(services)), make([]error, len(services))
	var all sync.WaitGroup
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for i, m := range services {
		all.Go(func() {
			out[i].made = time.Now()
			if errs[i] = m.change(ctx); errs[i] == nil {
				errs[i] = m.seen(ctx, 25*time.Millisecond)
			}
			out[i].seen = time.Now()
		})
		<-tick.C
	}
	all.Wait()
	return out, errors.Join(errs...)
}
