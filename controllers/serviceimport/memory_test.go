package serviceimport

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// TestV5ImportsThatWaitForAVIPAskLessAndLess: thousands may wait for one range. Who is answered starts again.
func TestV5ImportsThatWaitForAVIPAskLessAndLess(t *testing.T) {
	m := newReconciler(Config{})
	web, other := types.NamespacedName{
		Namespace: "shop",
		Name:      "web",
	}, types.NamespacedName{
		Namespace: "shop",
		Name:      "other",
	}
	for round, end := range []func(types.NamespacedName){m.waits.Forget, m.forget, func(types.NamespacedName) {}} {
		for _, want := range []time.Duration{200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond,
			1600 * time.Millisecond, 2 * time.Second, 2 * time.Second} {
			if got := m.waits.When(web); got != want {
				t.Errorf("round %d: %s, want %s", round, got, want)
			}
		}
		if end(web); round < 2 {
			if got := m.waits.When(other); got != firstWait<<round {
				t.Errorf("another waits %s", got)
			}
		}
	}
}
