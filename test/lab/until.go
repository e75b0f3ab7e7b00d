package lab

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Until asks until there is no error, or fails after the limit.
func Until(ctx context.Context, limit time.Duration, what string, ask func() error) error {
	deadline := time.Now().Add(limit)
	// asking takes the API server's time
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 200*time.Millisecond) {
		err := ask()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: after %v: %w", what, limit, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, errors.Join(ctx.Err(), err))
		case <-time.After(pause):
		}
	}
}

// Patience is how long an answer may take. A resolver waits as long for one.
const Patience = 5 * time.Second

// Took returns how long f takes by the ticks that this process gets meanwhile: there is none while the machine stands
// still, which is nobody's delay.
func Took(f func()) (d time.Duration) {
	const every = 100 * time.Millisecond
	tick := time.NewTicker(every)
	defer tick.Stop()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	for {
		select {
		case <-done:
			return d
		case <-tick.C:
			d += every
		}
	}
}
