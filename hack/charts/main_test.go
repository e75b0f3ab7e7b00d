package main

import (
	"slices"
	"strings"
	"testing"
)

// template returns a template of a chart.
func template(t *testing.T, chartName, fileName string) string {
	t.Helper()
	t.Chdir("../..")
	c := charts[slices.IndexFunc(charts, func(c chart) bool { return c.name == chartName })]
	f := c.files[slices.IndexFunc(c.files, func(f file) bool { return f.name == fileName })]
	out, err := f.render()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// One release has what all ClusterSets of a hub use (shared). If it is uninstalled, the other ones' members keep their
// rights, so the policies must stay.
func TestUninstallingKeepsWhatOtherClusterSetsUse(t *testing.T) {
	for file, each := range map[string]string{"policies": "\nkind: ", "controller": "{{- if $.Values.shared }}"} {
		t.Run(file, func(t *testing.T) {
			out := template(t, "clusterset-hub", file)
			shared, kept := strings.Count(out, each), strings.Count(out, "    helm.sh/resource-policy: keep\n")
			if shared == 0 || shared != kept {
				t.Errorf("%d of %d shared objects are kept:\n%s", kept, shared, out)
			}
		})
	}
}

// Server-side apply refuses two entries of one name.
func TestTheEnvironmentOfCoreDNSIsAValue(t *testing.T) {
	out := template(t, "clusterset-dns", "dns")
	if strings.Contains(out, "GOMEMLIMIT") || !strings.Contains(out, "{{- with $.Values.env }}\n        env:\n") {
		t.Error(out)
	}
}
