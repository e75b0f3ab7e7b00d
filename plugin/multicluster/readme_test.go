package multicluster

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func readme(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// The man page lists every option with its usage, and no other.
func TestReadmeListsOptions(t *testing.T) {
	_, block, _ := strings.Cut(readme(t), "multicluster [ZONES...] {\n")
	block, _, _ = strings.Cut(block, "\n}")
	var listed, known []string
	for _, line := range strings.Split(block, "\n") {
		listed = append(listed, strings.TrimSpace(line))
	}
	m := serving(defaultTTL, nil)
	options := m.options()
	maps.Copy(options, m.Shared())
	for name, o := range options {
		if slices.Contains(kubernetesOptions, name) {
			delete(options, name)
			continue
		}
		known = append(known, strings.TrimSpace(name+" "+o.Usage))
	}
	slices.Sort(listed)
	slices.Sort(known)
	if !slices.Equal(listed, known) {
		t.Errorf("README.md lists\n%s\nand the code has\n%s", strings.Join(listed, "\n"), strings.Join(known, "\n"))
	}
	for name := range options {
		if !strings.Contains(readme(t), "* `"+name+"`") && !strings.Contains(readme(t), "and `"+name+"`") {
			t.Errorf("README.md does not explain %s", name)
		}
	}
}

// The man page lists every metric with its labels, and no other (O3).
func TestReadmeListsMetrics(t *testing.T) {
	var listed []string
	metric := regexp.MustCompile("(?m)^\\* `(coredns_multicluster_\\w+)\\{([\\w, ]*)\\}`")
	for _, m := range metric.FindAllStringSubmatch(readme(t), -1) {
		listed = append(listed, m[1])
	}
	descriptions := described(t)
	slices.Sort(listed)
	slices.Sort(descriptions)
	if len(listed) == 0 || !slices.Equal(listed, descriptions) {
		t.Errorf(
			"README.md lists\n%s\nand the code has\n%s",
			strings.Join(listed, "\n"),
			strings.Join(descriptions, "\n"),
		)
	}
}

// described returns the names of our metrics, as the code declares them.
func described(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, file := range []string{"metrics.go", "kube/metrics.go"} {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?:Name:\s+|\t\{)"(\w+)"`).FindAllStringSubmatch(string(b), -1) {
			out = append(out, "coredns_multicluster_"+m[1])
		}
	}
	return out
}
