package heartbeat

import (
	"testing"
	"time"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/votes"
)

// TestF4ARestartTakesNoVoteBack: each renewal says what is known then; before that, what the last process said, where that was said with the
// renewal before.
func TestF4ARestartTakesNoVoteBack(t *testing.T) {
	const before = `{"c":["*"]}`
	for _, c := range []struct {
		vote  string
		known bool
		want  string
	}{{"", false, before}, {"", true, ""}, {`{"d":["*"]}`, true, `{"d":["*"]}`}} {
		w := newWatcher()
		w.Votes = func() (string, bool) { return c.vote, c.known }
		l := lease("me", after(0))
		votes.Say(l, before)
		said, now := votes.Said(l), after(10*time.Second)
		if l.Spec.RenewTime = &now; votes.Said(l) != "" {
			t.Error("it goes with any renewal")
		}
		if w.say(l, said); votes.Said(l) != c.want {
			t.Errorf("%q, known %v: it says %q", c.vote, c.known, votes.Said(l))
		}
	}
}
