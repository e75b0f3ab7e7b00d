// Package upgrade has the versions between which test/soak upgrades a clusterset: the commit in the file baseline, and
// future.patch. Its test is for make sabotage; make upgrade runs more seeds.
package upgrade

import (
	"os"
	"os/exec"
	"testing"
)

// TestUpgradeLosesNothing plays one seed from the baseline to this checkout, and one from this to a later version.
func TestUpgradeLosesNothing(t *testing.T) {
	for _, seed := range []string{"2", "3"} {
		run := exec.Command("./run")
		run.Env = append(os.Environ(), "SEED="+seed)
		if out, err := run.CombinedOutput(); err != nil {
			t.Errorf("seed %s: %v\n%s", seed, err, out)
		}
	}
}
