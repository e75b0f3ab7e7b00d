package command

import (
	"io"
	"path/filepath"
	"strings"
	"testing"
)

// TestWithoutAContextNoClusterIsAsked: clients would ask localhost.
func TestWithoutAContextNoClusterIsAsked(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	for _, args := range [][]string{{"status"}, {"init"}, {"explain", "web.shop"}} {
		cmd := New("v0.0.0-test", io.Discard, io.Discard)
		cmd.SetArgs(args)
		err := cmd.ExecuteContext(t.Context())
		if err == nil || !strings.Contains(err.Error(), "the kubeconfig has no current context\n  → ") {
			t.Errorf("%v: %v", args, err)
		}
	}
}
