package policies

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// TestManifestsPage runs the blocks of docs/manifests.md as they stand there, on a hub and a member without nodes.
func TestManifestsPage(t *testing.T) {
	root, err := lab.Root()
	must(t, err)
	text, err := os.ReadFile(filepath.Join(root, "docs/manifests.md"))
	must(t, err)
	blocks := regexp.MustCompile("(?ms)^~~~ sh\n(.*?)^~~~$").FindAllStringSubmatch(string(text), -1)
	if len(blocks) != 6 {
		t.Fatalf("docs/manifests.md has %d blocks of commands; six are known here", len(blocks))
	}
	planes, err := lab.StartPlanes(t.Context(), func(string) lab.Options { return lab.Options{} }, "hub", "east")
	t.Cleanup(planes.Stop)
	must(t, err)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, planes.WriteKubeconfig(kubeconfig))
	bin, err := lab.Find(t.Context())
	must(t, err)
	shell := func(ctx context.Context, script string) (string, error) {
		cmd := exec.CommandContext(ctx, "bash", "-eu", "-o", "pipefail", "-c", script)
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig,
			"PATH="+filepath.Dir(bin.Kubectl)+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	_, err = planes["east"].Kubectl(t.Context(), "", "apply", "-k", filepath.Join(root, "deploy/member"))
	must(t, err) // as the page says: step 1 of another page, which has a test of its own
	if out, err := shell(t.Context(), "kubectl config use-context east"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	refusals := 0
	for _, b := range blocks {
		out, err := shell(t.Context(), b[1])
		if strings.Contains(b[1], "--as=") {
			refusals++
			if err == nil || !strings.Contains(out, "cluster east does not write Lease west") {
				t.Errorf("%s\nis not refused as the page says: %v\n%s", b[1], err, out)
			}
		} else if err != nil {
			t.Fatalf("%s\n%v\n%s", b[1], err, out)
		}
	}
	if refusals != 1 {
		t.Errorf("the page has %d forged writes, want one", refusals)
	}
}
