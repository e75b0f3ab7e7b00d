package agent

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
)

// TestWhatFailsInAStartIsTriedAgainSoon, and ever less often while it lasts; one reason is said once.
func TestWhatFailsInAStartIsTriedAgainSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		said := 0
		a := &Agent{log: funcr.New(func(_, _ string) { said++ }, funcr.Options{})}
		began := time.Now()
		var at []time.Duration
		err := a.await(ctx, "it", "patience", attemptTimeout, func(context.Context) error {
			if at = append(at, time.Since(began)/time.Millisecond); len(at) == 9 {
				end()
			}
			return errors.New("busy")
		})
		want := []time.Duration{0, 100, 300, 700, 1500, 3100, 5100, 7100, 9100}
		if !slices.Equal(at, want) || said != 1 || !errors.Is(err, context.Canceled) {
			t.Errorf("tried at %d ms, want %d; said %d times; ended by %v", at, want, said, err)
		}
	})
}
