package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// During a start of b's agent as many changes are made in a and in b, one each per pace.
const (
	during = 20
	pace   = 250 * time.Millisecond
)

// restarts measures changes that are made while b's agent starts after a kill, and reads all of the hub: in a, whose endpoints it imports,
// and in b, whose endpoints it publishes.
func (b *bench) restarts(ctx context.Context, kills int) error {
	a, cold := b.Members[0], b.Members[1]
	imports, err := b.crowdOf(ctx, a, cold, "imported")
	if err != nil {
		return err
	}
	exports, err := b.crowdOf(ctx, cold, a, "exported")
	if err != nil {
		return err
	}
	var imported, exported []time.Duration
	since := now()
	for range kills {
		cold.Agent.Kill()
		if err := cold.Agent.Start(ctx); err != nil {
			return err
		}
		var both sync.WaitGroup
		var in, out []time.Duration
		var inErr, outErr error
		both.Go(func() { in, inErr = live(ctx, imports) })
		both.Go(func() { out, outErr = live(ctx, exports) })
		both.Wait()
		if err := errors.Join(inErr, outErr); err != nil {
			return err
		}
		imported, exported = append(imported, in...), append(exported, out...)
	}
	what := fmt.Sprintf("live change in %%s during a cold start of b's agent → answer in %%s, the same load (%d kills, a change every %v of the %v after each)", kills, pace, during*pace)
	b.line(fmt.Sprintf(what, "a", "b"), imported, barRestart, since)
	b.line(fmt.Sprintf(what, "b", "a"), exported, barRestart, since)
	return nil
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

// live changes one Service after the other, and tells how long each took to be seen.
func live(ctx context.Context, services []*moving) ([]time.Duration, error) {
	took, errs := make([]time.Duration, len(services)), make([]error, len(services))
	var all sync.WaitGroup
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for i, m := range services {
		all.Go(func() {
			began := time.Now()
			if errs[i] = m.change(ctx); errs[i] == nil {
				errs[i] = m.seen(ctx, 25*time.Millisecond)
			}
			took[i] = time.Since(began)
		})
		<-tick.C
	}
	all.Wait()
	return took, errors.Join(errs...)
}
