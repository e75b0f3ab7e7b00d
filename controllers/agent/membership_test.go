package agent

import (
	"fmt"
	"testing"
	"time"
)

// TestTheReasonIsToldAgain: a new one at once, and one that stays every few minutes, never in the same words.
func TestTheReasonIsToldAgain(t *testing.T) {
	var e eventRepeater
	var told []string
	at := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for attempt := range 600 { // one in two seconds
		reason := "no claim"
		if attempt >= 450 {
			reason = "no route"
		}
		if note := e.next(reason, at.Add(time.Duration(attempt)*2*time.Second)); note != "" {
			told = append(told, fmt.Sprintf("%d: %s", attempt/30, note))
		}
	}
	want := "[0: no claim 4: For 4m0s: no claim 8: For 8m0s: no claim 12: For 12m0s: no claim 15: no route 19: For 4m0s: no route]"
	if got := fmt.Sprint(told); got != want {
		t.Errorf("told %s, want %s", got, want)
	}
}
