package deploy_test

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/yaml"
)

// reviewed are rules of schemas and policies that the baseline lacks, each with why nothing that it writes breaks it.
var reviewed = map[string]string{}

// TestU3NothingIsStricterThanTheBaseline: what a program of the version before writes, the manifests of this one take,
// and the rights that it needs they give. Upgrades come in any order (SPEC U3).
func TestU3NothingIsStricterThanTheBaseline(t *testing.T) {
	commit, err := os.ReadFile("../test/upgrade/baseline")
	if err != nil {
		t.Fatal(err)
	}
	git := func(args ...string) string {
		out, err := exec.Command("git", args...).Output()
		if err != nil {
			t.Fatalf("git %s: %v", strings.Join(args, " "), err)
		}
		return string(out)
	}
	hash := strings.TrimSpace(string(commit))
	if strings.TrimSpace(git("rev-parse", "--is-shallow-repository")) == "true" {
		t.Skip("a whole clone alone has the baseline: git fetch --unshallow")
	}
	rules := 0
	for _, path := range strings.Fields(git("ls-tree", "-r", "--name-only", "--full-tree", hash, "deploy")) {
		if filepath.Ext(path) != ".yaml" || filepath.Base(path) == "kustomization.yaml" {
			continue
		}
		now, err := os.ReadFile(filepath.Join("..", path))
		if err != nil {
			t.Errorf("%s is gone: %v", path, err)
			continue
		}
		was, is := restrictions(t, git("show", hash+":"+path)), restrictions(t, string(now))
		for rule := range is.forbids.Difference(was.forbids) {
			field, _, length := strings.Cut(rule, " beyond ") // of a field that had named values only
			if reviewed[rule] == "" && !(length && was.forbids.Has(field+" of other values than are named")) {
				t.Errorf("%s: this refuses what the baseline may write: %s", path, rule)
			}
		}
		for right := range was.allows.Difference(is.allows) {
			if field, _, value := strings.Cut(right, " = "); value && is.allows.Has(field+" of any value") {
				continue
			}
			t.Errorf("%s: this lacks what the baseline needs: %s", path, right)
		}
		rules += was.forbids.Len() + was.allows.Len()
	}
	if rules < 500 {
		t.Errorf("only %d rules of the baseline were found", rules)
	}
	now := sets.New[string]()
	err = filepath.WalkDir("../controllers", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		now.Insert(marks.FindAllString(string(text), -1)...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	code := git("grep", "-h", "clusterset-dns.io", hash, "--", ":/controllers/*.go", ":!/controllers/*_test.go")
	was := sets.New(marks.FindAllString(code, -1)...)
	for mark := range was.Difference(now) {
		t.Errorf("no controller has the annotation, label or value %s of the baseline any more", mark)
	}
	if was.Len() < 30 {
		t.Errorf("only %d annotations, labels and values of the baseline were found", was.Len())
	}
}

// marks are the annotations and labels of ours, and their values.
var marks = regexp.MustCompile(`"[a-z.-]*clusterset-dns\.io(/[a-z-]+)?"`)

// limits are what manifests forbid, and what they allow: fields, values and rights.
type limits struct{ forbids, allows sets.Set[string] }

func restrictions(t *testing.T, manifests string) limits {
	t.Helper()
	out := limits{sets.New[string](), sets.New[string]()}
	for _, text := range strings.Split(manifests, "\n---\n") {
		var o map[string]any
		if err := yaml.Unmarshal([]byte(text), &o); err != nil {
			t.Fatal(err)
		}
		spec, _ := o["spec"].(map[string]any)
		meta, _ := o["metadata"].(map[string]any)
		name := fmt.Sprint(o["kind"], " ", meta["name"])
		switch o["kind"] {
		case "CustomResourceDefinition":
			for _, v := range spec["versions"].([]any) {
				version := v.(map[string]any)
				schema := version["schema"].(map[string]any)["openAPIV3Schema"].(map[string]any)
				out.schema(fmt.Sprint(name, " ", version["name"], " "), schema)
			}
		case "ValidatingAdmissionPolicy":
			for _, v := range spec["validations"].([]any) {
				rule := v.(map[string]any)["expression"].(string)
				out.forbids.Insert(name + ": " + strings.Join(strings.Fields(rule), " "))
			}
		case "Role", "ClusterRole":
			rules, _ := o["rules"].([]any)
			for _, r := range rules {
				rule := r.(map[string]any)
				for _, group := range list(rule["apiGroups"]) {
					for _, resource := range list(rule["resources"]) {
						for _, verb := range list(rule["verbs"]) {
							out.allows.Insert(fmt.Sprint(name, ": ", verb, " ", resource, ".", group))
						}
					}
				}
			}
		}
	}
	return out
}

// schema adds what a schema requires, and what it takes.
func (l limits) schema(path string, s map[string]any) {
	for _, field := range list(s["required"]) {
		l.forbids.Insert(path + " without " + field)
	}
	for _, rule := range []string{"maxLength", "maxItems", "maxProperties", "maximum", "minLength", "minItems",
		"minimum", "pattern", "format", "additionalProperties"} {
		if v, ok := s[rule]; ok && rule != "additionalProperties" || v == false {
			l.forbids.Insert(fmt.Sprint(path, " beyond ", rule, " ", v))
		}
	}
	if values, ok := s["enum"].([]any); ok {
		l.forbids.Insert(path + " of other values than are named")
		for _, v := range values {
			l.allows.Insert(fmt.Sprint(path, " = ", v))
		}
	} else {
		l.allows.Insert(path + " of any value")
	}
	rules, _ := s["x-kubernetes-validations"].([]any)
	for _, r := range rules {
		l.forbids.Insert(fmt.Sprint(path, ": ", r.(map[string]any)["rule"]))
	}
	l.allows.Insert(fmt.Sprint(path, " of type ", s["type"]))
	fields, _ := s["properties"].(map[string]any)
	for name, f := range fields {
		l.schema(path+"."+name, f.(map[string]any))
	}
	for _, inside := range []string{"items", "additionalProperties"} {
		if f, ok := s[inside].(map[string]any); ok {
			l.schema(path+"[]", f)
		}
	}
}

func list(v any) (out []string) {
	all, _ := v.([]any)
	for _, one := range all {
		out = append(out, fmt.Sprint(one))
	}
	slices.Sort(out)
	return out
}
