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
