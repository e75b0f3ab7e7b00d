package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

var policy = regexp.MustCompile(`(?m)^kind: ValidatingAdmissionPolicy\nmetadata:\n  name: (\S+)$`)

// policies are the names of the admission policies that we ship.
func policies(t *testing.T) set {
	out := set{}
	for path, text := range manifests(t) {
		for _, m := range policy.FindAllStringSubmatch(text, -1) {
			out[m[1]] = path
		}
	}
	return out
}

// manifests are the YAML files of deploy/.
func manifests(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(filepath.Join("..", "deploy"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".yaml" {
			return err
		}
		text, err := os.ReadFile(path)
		out[strings.TrimPrefix(path, "../")] = string(text)
		return err
	})
	if err != nil || len(out) == 0 {
		t.Fatalf("%d manifests in deploy/: %v", len(out), err)
	}
	return out
}

// schema is as much of a CRD's as a list of fields takes.
type schema struct {
	Properties map[string]*schema
	Items      *schema
}

// fields of spec and status of a kind of ours, by their paths.
func fields(t *testing.T, crd string) set {
	t.Helper()
	text, ok := manifests(t)[crd]
	if !ok {
		t.Fatalf("there is no %s", crd)
	}
	var kind struct {
		Spec struct {
			Versions []struct {
				Schema struct{ OpenAPIV3Schema schema }
			}
		}
	}
	if err := yaml.Unmarshal([]byte(text), &kind); err != nil || len(kind.Spec.Versions) == 0 {
		t.Fatalf("%s: %v", crd, err)
	}
	out := set{}
	for _, part := range []string{"spec", "status"} {
		if s := kind.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties[part]; s != nil {
			s.walk(part, crd, out)
		}
	}
	return out
}

func (s *schema) walk(path, crd string, into set) {
	for name, p := range s.Properties {
		if p.Items != nil {
			p = p.Items
			name += "[]"
		}
		if len(p.Properties) == 0 || name == "conditions[]" { // which are listed by type and by reason
			into[path+"."+name] = crd
			continue
		}
		p.walk(path+"."+name, crd, into)
	}
}
