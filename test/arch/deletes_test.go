package arch

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// deletes finds a deletion through a client: its first argument is a context.
var deletes = regexp.MustCompile(`(\w+(?:\(\))?)\.Delete(?:AllOf)?\((?:ctx|again|[a-z]*\.?Context\(\))\b`)

// TestEveryDeletionHasAUID (I10): an object of the same name that somebody else has made since stays. kube.Delete has
// the precondition, so nothing else deletes.
func TestEveryDeletionHasAUID(t *testing.T) {
	found := 0
	for _, root := range []string{"../../controllers", "../../cmd"} {
		err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			for _, m := range deletes.FindAllStringSubmatch(string(text), -1) {
				if found++; m[1] != "kube" && !strings.HasSuffix(path, "controllers/kube/owned.go") {
					t.Errorf("%s: %s…): use kube.Delete, which deletes only the object that was read", path, m[0])
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if found < 10 {
		t.Errorf("only %d deletions were found: are they written otherwise?", found)
	}
}
