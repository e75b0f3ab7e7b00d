package heartbeat

import (
	"context"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/votes"
)

// TestF4ARestartKeepsTheVote: each renewal has the vote that is known then; before that, the vote
// of the last process.
func TestF4ARestartKeepsTheVote(t *testing.T) {
	const before = `{"c":["*"]}`
	for _, c := range []struct {
		vote  string
		known bool
		want  string
	}{{"", false, before}, {"", true, ""}, {`{"d":["*"]}`, true, `{"d":["*"]}`}} {
		now := start
		hub, local := plane(t, interceptor.Funcs{}), plane(t, interceptor.Funcs{})
		last := process("last", local, hub, &now)
		last.Complete = func(_ context.Context, l *coordinationv1.Lease) error {
			votes.Write(l, before)
			return nil
		}
		beat(t, last, &now, interval)
		next := process("next", local, hub, &now)
		next.Complete = func(_ context.Context, l *coordinationv1.Lease) error {
			if c.known {
				votes.Write(l, c.vote)
			}
			return nil
		}
		beat(t, next, &now, interval)
		var lease coordinationv1.Lease
		if err := hub.Get(t.Context(), types.NamespacedName{Namespace: "prod", Name: "east"}, &lease); err != nil {
			t.Fatal(err)
		}
		if got := votes.Read(&lease); got != c.want {
			t.Errorf("vote %q, known %v: the Lease has %q", c.vote, c.known, got)
		}
	}
}
