package sources

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/liveness"
)

// TestT3LiveChangesWithTheVerdictOnly: what a member does that counts as dead, and is not let back yet, writes nothing; nor does a restart
// of the agent that keeps the verdict.
func TestT3LiveChangesWithTheVerdictOnly(t *testing.T) {
	limits := liveness.Limits{Renew: 10 * time.Second, Dead: 50 * time.Second}
	spec := hubv1alpha1.LeaseSpec{OnExpiry: hubv1alpha1.ExpiryRemove}
	now := time.Date(2026, 1, 1, 0, 0, 0, 123456789, time.UTC)
	renewal := now
	var s liveness.Sight
	verdicts, conditions := 0, 0
	was, last := false, live(s, spec)
	for minute := range 30 { // dies in each, and renews for the last 20 seconds
		for second := 0; second < 80; second += 10 {
			now = now.Add(10 * time.Second)
			if minute == 0 || second >= 60 {
				renewal = renewal.Add(time.Second)
			}
			s = s.Look(now, renewal, limits)
			lease := &coordinationv1.Lease{}
			keep(lease, "a", s, limits)
			for of, c := range map[string]metav1.Condition{"seen": live(s, spec), "kept": live(remember(lease), spec)} {
				if c != last {
					conditions++
					last = c
				}
				if c.Status == metav1.ConditionFalse != s.Dead {
					t.Fatalf("%s: %v of a member that is dead: %v", of, c, s.Dead)
				}
			}
			if s.Dead != was {
				verdicts++
				was = s.Dead
			}
		}
	}
	if verdicts < 4 || conditions != verdicts {
		t.Errorf("%d verdicts, and the condition changed %d times", verdicts, conditions)
	}
}
