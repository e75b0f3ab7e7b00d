package arch

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestEveryStatusIsPatched: an update of a status drops the fields of a CRD that is newer than the program.
func TestEveryStatusIsPatched(t *testing.T) {
	patches := 0
	for _, root := range []string{"../../controllers", "../../cmd"} {
		err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			patches += strings.Count(string(text), "Status().Patch(")
			if strings.Contains(string(text), "Status().Update(") {
				t.Errorf("%s: use Status().Patch with kube.Changes", path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if patches == 0 {
		t.Error("no patch was found: are they written otherwise?")
	}
}
