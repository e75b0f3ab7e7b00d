package bar

import (
	"strings"
	"testing"
)

func TestABarThatDoesNotHoldIsAnError(t *testing.T) {
	var m Missed
	if got := m.Holds("quick", true); got != "yes" || m.Err() != nil {
		t.Errorf("a bar that holds: %q, %v", got, m.Err())
	}
	if got := m.Holds("slow: 3 s", false); got != "**no**" {
		t.Errorf("a bar that does not hold: %q", got)
	}
	if err := m.Err(); err == nil || !strings.Contains(err.Error(), "slow: 3 s") ||
		strings.Contains(err.Error(), "quick") {
		t.Errorf("the error: %v", err)
	}
}
