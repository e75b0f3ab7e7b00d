package deploy_test

import (
	"errors"
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
var reviewed = map[string]string{
	"ValidatingAdmissionPolicy clusterset-records.clusterset-dns.io: " + dates:  "a metav1.Time is RFC 3339",
	"ValidatingAdmissionPolicy clusterset-profiles.clusterset-dns.io: " + dates: "a metav1.Time is RFC 3339",
}

// dropped are annotations of the baseline that nobody writes any more, each with why nobody misses it.
var dropped = map[string]string{
	`"clusterset-dns.io/backdated"`: "an agent wrote it on its own copies, for an Event that it reports no more",
}

const dates = "variables.dates.all(d, timestamp(d).getFullYear() > 0)"

// TestU3NothingIsStricterThanTheBaseline: what a program of the version before writes, the manifests of this one take,
// and the rights that it needs they give. Upgrades come in any order (SPEC U3).
func TestU3NothingIsStricterThanTheBaseline(t *testing.T) {
	commit, err := os.ReadFile("../test/upgrade/baseline")
	if err != nil {
		t.Fatal(err)
	}
	// In a container the checkout may belong to another user.
	ask := func(args ...string) (string, error) {
		var complaint strings.Builder
		cmd := exec.Command("git", append([]string{"-c", "safe.directory=*"}, args...)...)
		cmd.Stderr = &complaint
		out, err := cmd.Output()
		if err != nil {
			err = fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(complaint.String()))
		}
		return string(out), err
	}
	hash := strings.TrimSpace(string(commit))
	if _, err := ask("cat-file", "-e", hash+"^{commit}"); err != nil {
		skip(t, err)
	}
	git := func(args ...string) string {
		out, err := ask(args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	// A rule may stand in a new file, and move from one to another.
	earlier, current := newLimits(), newLimits()
	for _, path := range strings.Fields(git("ls-tree", "-r", "--name-only", "--full-tree", hash, "deploy")) {
		if isManifest(path) {
			earlier.add(t, git("show", hash+":"+path))
		}
	}
	err = filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !isManifest(path) {
			return err
		}
		text, err := os.ReadFile(path)
		current.add(t, string(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for rule := range current.forbids.Difference(earlier.forbids) {
		if kind, isKind := kindOf(rule); isKind && !earlier.allows.Has(kind) {
			continue // the baseline writes none
		}
		field, _, length := strings.Cut(rule, " beyond ") // of a field that had named values only, or is new
		if reviewed[rule] == "" && (!length || earlier.allows.Has(field+" of any value")) {
			t.Errorf("this refuses what the baseline may write: %s", rule)
		}
	}
	for right := range earlier.allows.Difference(current.allows) {
		if field, _, value := strings.Cut(right, " = "); value && current.allows.Has(field+" of any value") {
			continue
		}
		t.Errorf("this lacks what the baseline needs: %s", right)
	}
	if rules := earlier.forbids.Len() + earlier.allows.Len(); rules < 500 {
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
		if dropped[mark] != "" {
			continue
		}
		t.Errorf("no controller has the annotation, label or value %s of the baseline any more", mark)
	}
	if was.Len() < 30 {
		t.Errorf("only %d annotations, labels and values of the baseline were found", was.Len())
	}
}

// marks are the annotations and labels of ours, and their values.
var marks = regexp.MustCompile(`"[a-z.-]*clusterset-dns\.io(/[a-z-]+)?"`)

const crd = "CustomResourceDefinition"

// kindOf is the CustomResourceDefinition that a rule is of, if it is of one.
func kindOf(rule string) (name string, ok bool) {
	words := strings.Fields(rule)
	return strings.Join(words[:2], " "), words[0] == crd
}

func isManifest(path string) bool {
	return filepath.Ext(path) == ".yaml" && filepath.Base(path) != "kustomization.yaml"
}

// skip has test/run say at its end that nothing was compared. With WHOLE_CLONE set, as by a workflow that fetches all
// commits, that is a failure.
func skip(t *testing.T, why error) {
	t.Helper()
	line := fmt.Sprintf("deploy: NOT COMPARED with the version before: %v; to have it: git fetch --unshallow", why)
	if os.Getenv("WHOLE_CLONE") != "" {
		t.Fatal(line)
	}
	if name := os.Getenv("TEST_REPORT"); name != "" {
		f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err == nil {
			_, err = fmt.Fprintln(f, line)
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Skip(line)
}

// limits are what manifests forbid, and what they allow: fields, values and rights.
type limits struct{ forbids, allows sets.Set[string] }

func newLimits() limits { return limits{sets.New[string](), sets.New[string]()} }

func (l limits) add(t *testing.T, manifests string) {
	t.Helper()
	for _, text := range strings.Split(manifests, "\n---\n") {
		var o map[string]any
		if err := yaml.Unmarshal([]byte(text), &o); err != nil {
			t.Fatal(err)
		}
		spec, _ := o["spec"].(map[string]any)
		meta, _ := o["metadata"].(map[string]any)
		name := fmt.Sprint(o["kind"], " ", meta["name"])
		switch o["kind"] {
		case crd:
			l.allows.Insert(name)
			for _, v := range spec["versions"].([]any) {
				version := v.(map[string]any)
				schema := version["schema"].(map[string]any)["openAPIV3Schema"].(map[string]any)
				l.schema(fmt.Sprint(name, " ", version["name"], " "), schema)
			}
		case "ValidatingAdmissionPolicy":
			for _, v := range spec["validations"].([]any) {
				rule := v.(map[string]any)["expression"].(string)
				l.forbids.Insert(name + ": " + strings.Join(strings.Fields(rule), " "))
			}
		case "Role", "ClusterRole":
			rules, _ := o["rules"].([]any)
			for _, r := range rules {
				rule := r.(map[string]any)
				for _, group := range list(rule["apiGroups"]) {
					for _, resource := range list(rule["resources"]) {
						for _, verb := range list(rule["verbs"]) {
							l.allows.Insert(fmt.Sprint(name, ": ", verb, " ", resource, ".", group))
						}
					}
				}
			}
		}
	}
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
