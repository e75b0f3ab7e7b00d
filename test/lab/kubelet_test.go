package lab

import (
	"context"
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
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		err := ask()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

func TestKubeletRunsWhatIsDeployed(t *testing.T) {
	c := controlPlane(t)
	k, err := StartKubelet(c)
	must(t, err)
	t.Cleanup(k.Stop)
	member := folder(t, "deploy/member")
	t.Cleanup(func() {
		_, err := c.Kubectl(context.WithoutCancel(t.Context()), "", "delete", "-k", member, "--wait=false")
		must(t, err)
	})
	says := func(what string, times int) func() error {
		return func() error {
			if log := k.Log(); strings.Count(log, what) != times {
				return fmt.Errorf("%q is not %d times in\n%s", what, times, log)
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
	const secret, system, controller = "hub-kubeconfig", "clusterset-system", "clusterset-controller"
	must(t, c.ApplyFolder(t.Context(), member))
	eventually(t, says(`"starting"`, 1))
	kubectl(t, c, "-n", system, "create", "secret", "generic", secret, "--from-literal=kubeconfig=one")
	eventually(t, mounted("one"))
	kubectl(t, c, "-n", system, "patch", "secret", secret, "-p", `{"stringData":{"kubeconfig":"two"}}`)
	eventually(t, mounted("two"))
	kubectl(t, c, "-n", system, "scale", "deployment", controller, "--replicas=0")
	eventually(t, says("Wait completed, proceeding to shutdown the manager", 1)) // it was asked to end
	kubectl(t, c, "-n", system, "scale", "deployment", controller, "--replicas=1")
	eventually(t, says(`"starting"`, 2))
}
