package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// eventually asks until there is no error.
func eventually(t *testing.T, ask func() error) {
	t.Helper()
	must(t, Until(t.Context(), time.Minute, "within", ask))
}

func TestKubeletRunsWhatIsDeployed(t *testing.T) {
	c := controlPlane(t)
	const secret, system, controller = "hub-kubeconfig", "clusterset-system", "clusterset-controller"
	k, err := StartKubelet(c)
	must(t, err)
	t.Cleanup(k.Stop)
	member := folder(t, "deploy/member")
	t.Cleanup(func() {
		_, err := c.Kubectl(context.WithoutCancel(t.Context()), "", "delete", "-k", member, "--wait=false")
		must(t, err)
	})
	started := func(times int) func() error {
		return func() error {
			if n := k.Starts(controller); n != times {
				return fmt.Errorf("%d starts, want %d:\n%s", n, times, k.Log())
			}
			return nil
		}
	}
	mounted := func(want string) func() error {
		return func() error {
			files, err := filepath.Glob(filepath.Join(c.path("node"), "clusterset-controller-*", "*", "kubeconfig"))
			if err != nil || len(files) != 1 {
				return fmt.Errorf("%d mounted files, error %v; %s", len(files), err, k.Log())
			}
			if got, err := os.ReadFile(files[0]); err != nil || string(got) != want {
				return fmt.Errorf("the file says %q, error %v, want %q", got, err, want)
			}
			return nil
		}
	}
	must(t, c.ApplyFolder(t.Context(), member))
	eventually(t, started(1))
	kubectl(t, c, "-n", system, "create", "secret", "generic", secret, "--from-literal=kubeconfig=one")
	eventually(t, mounted("one"))
	kubectl(t, c, "-n", system, "patch", "secret", secret, "-p", `{"stringData":{"kubeconfig":"two"}}`)
	eventually(t, mounted("two"))
	kubectl(t, c, "-n", system, "scale", "deployment", controller, "--replicas=0")
	eventually(t, func() error { // it was asked to end
		if log := k.Log(); !strings.Contains(log, "Wait completed, proceeding to shutdown the manager") {
			return errors.New(log)
		}
		return nil
	})
	kubectl(t, c, "-n", system, "scale", "deployment", controller, "--replicas=1")
	eventually(t, started(2))
}
