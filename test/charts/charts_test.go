// Package charts proves what charts/ promise: by default they are what deploy/ is, they refuse values that cannot
// work, and CRDs and users' objects survive install, upgrade, rollback and uninstall (on a real control plane).
package charts

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

var (
	root string
	helm string
)

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if root, err = lab.Root(); err == nil {
			helm = filepath.Join(root, "bin", "helm")
			build := exec.Command("make", "-s", "-C", root, "bin/helm")
			build.Stdout, build.Stderr = os.Stderr, os.Stderr
			err = build.Run()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "building Helm failed:", err)
			return 1
		}
		return m.Run()
	}())
}

// run runs Helm without the user's configuration.
func run(ctx context.Context, t *testing.T, env []string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(ctx, helm, args...)
	home := t.TempDir()
	cmd.Dir = root
	cmd.Env = append(os.Environ(), append(env, "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home,
		"HELM_DATA_HOME="+home)...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// chart is one of charts/, with the namespace that it is installed in, and what it has by default and with everything.
type chart struct {
	name, namespace string
	folders         []string // of deploy/
	all             []string // flags that add more
	also            []string // the folders that these bring
}

var charts = []chart{
	{
		"clusterset-hub",
		"clusterset-system",
		[]string{"hub", "hub/clusterset", "hub/controller"},
		[]string{
			"--set=networkPolicy.enabled=true,monitoring.enabled=true,members={east,007}",
			"--set-string=members[1]=007",
		},
		[]string{"hub/network-policy", "monitoring/hub"},
	},
	{"clusterset-member", "clusterset-system", []string{"member"},
		[]string{"--set=networkPolicy.enabled=true,monitoring.enabled=true,monitoring.dashboard=true"},
		[]string{"member/network-policy", "monitoring/agent", "monitoring/grafana"}},
	{"clusterset-dns", "clusterset-dns", []string{"coredns/beside"},
		[]string{"--set=networkPolicy.enabled=true,monitoring.enabled=true"},
		[]string{"coredns/network-policy", "monitoring/coredns"}},
}

type object = map[string]any

// named returns objects by kind, namespace and name.
func named(objects []object) map[string]object {
	out := map[string]object{}
	for _, o := range objects {
		meta := o["metadata"].(object)
		ns, _ := meta["namespace"].(string)
		out[strings.TrimSpace(fmt.Sprintf("%s %s %s", o["kind"], ns, meta["name"]))] = o
	}
	return out
}

func template(t *testing.T, c chart, flags ...string) map[string]object {
	t.Helper()
	out, err := run(
		t.Context(),
		t,
		nil,
		append([]string{"template", "x", "charts/" + c.name, "--namespace", c.namespace,
			"--include-crds", "--kube-version=1.34.0"}, flags...)...)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return named(parse(t, out))
}

func parse(t *testing.T, text string) (objects []object) {
	t.Helper()
	for _, doc := range strings.Split("\n"+text, "\n---") {
		var o object
		if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
			t.Fatalf("%v in\n%s", err, doc)
		}
		if len(o) > 0 {
			objects = append(objects, o)
		}
	}
	return objects
}

// kustomized is what kubectl apply -k of folders of deploy/ applies, except the namespace, which Helm creates.
func kustomized(t *testing.T, c chart, folders ...string) map[string]object {
	t.Helper()
	var objects []object
	for _, folder := range folders {
		objects = append(objects, built(t, folder)...)
	}
	out := named(objects)
	delete(out, "Namespace  "+c.namespace)
	if c.name == "clusterset-dns" {
		for _, o := range named(built(t, "crds")) { // corefile.md applies these first
			out["CustomResourceDefinition  "+o["metadata"].(object)["name"].(string)] = o
		}
		delete(out, "PodMonitor clusterset-system clusterset-coredns") // of the cluster's own DNS
		for key, o := range out {
			if ns := o["metadata"].(object)["namespace"]; ns == "clusterset-system" {
				delete(out, key)
				o["metadata"].(object)["namespace"] = c.namespace
				maps.Copy(out, named([]object{o}))
			}
		}
	}
	return out
}

func built(t *testing.T, folder string) []object {
	t.Helper()
	rendered, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).
		Run(filesys.MakeFsOnDisk(), filepath.Join(root, "deploy", folder))
	if err != nil {
		t.Fatal(err)
	}
	var out []object
	for _, r := range rendered.Resources() {
		o, err := r.Map() // AsYaml adds empty lines to folded text
		if err != nil {
			t.Fatal(err)
		}
		text, err := yaml.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, parse(t, string(text))...)
	}
	return out
}

func same(t *testing.T, got, want map[string]object) {
	t.Helper()
	for key, w := range want {
		g, ok := got[key]
		if !ok {
			t.Errorf("the chart lacks %s", key)
			continue
		}
		if !reflect.DeepEqual(g, w) {
			a, _ := yaml.Marshal(g)
			b, _ := yaml.Marshal(w)
			t.Errorf("%s: the chart has\n%s\nand deploy/ has\n%s", key, a, b)
		}
	}
	for key := range got {
		if want[key] == nil {
			t.Errorf("the chart has %s, and deploy/ has not", key)
		}
	}
}

// Whatever somebody adds to deploy/ is in a chart, too.
func TestByDefaultAChartIsWhatIsInDeploy(t *testing.T) {
	for _, c := range charts {
		t.Run(c.name, func(t *testing.T) {
			same(t, template(t, c), kustomized(t, c, c.folders...))
		})
	}
}

func TestWithEverythingAChartIsWhatIsInDeploy(t *testing.T) {
	for _, c := range charts {
		t.Run(c.name, func(t *testing.T) {
			want := kustomized(t, c, slices.Concat(c.folders, c.also)...)
			if c.name == "clusterset-hub" {
				for _, id := range []string{"east", "007"} {
					maps.Copy(want, named(parse(t, lab.HubMember(root, id))))
				}
			}
			same(t, template(t, c, c.all...), want)
		})
	}
}

func TestChartsLint(t *testing.T) {
	for _, c := range charts {
		if out, err := run(t.Context(), t, nil, append([]string{"lint", "--strict", "charts/" + c.name,
			"--namespace", c.namespace}, c.all...)...); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	}
}

// Values that cannot work are refused before anything is applied.
func TestChartsRefuse(t *testing.T) {
	for name, c := range map[string]struct {
		chart string
		args  []string
		says  string
	}{
		"a cluster ID that is none": {"clusterset-hub", []string{"--set=members={East}"}, "members"},
		"a number as a cluster ID":  {"clusterset-hub", []string{"--set=members[0]=7"}, "members"},
		"an unknown value":          {"clusterset-member", []string{"--set=clusterId=east"}, "clusterId"},
		"another namespace":         {"clusterset-member", []string{"--namespace=default"}, "clusterset-system"},
		"the hub in another one":    {"clusterset-hub", []string{"--namespace=default"}, "clusterset-system"},
		"DNS in another one":        {"clusterset-dns", []string{"--namespace=default"}, "must be clusterset-dns"},
		"monitoring, not shared": {"clusterset-hub", []string{"--set=shared=false,monitoring.enabled=true"},
			"monitoring.enabled"},
		"a network policy, not shared": {"clusterset-hub", []string{"--set=shared=false,networkPolicy.enabled=true"},
			"networkPolicy.enabled"},
		"no digest": {"clusterset-dns", []string{"--set=image.digest=v1"}, "digest"},
	} {
		t.Run(name, func(t *testing.T) {
			namespace := "--namespace=clusterset-system"
			out, err := run(t.Context(), t, nil, append([]string{"template", "x", "charts/" + c.chart,
				"--kube-version=1.34.0", namespace}, c.args...)...)
			if err == nil || !strings.Contains(out, c.says) {
				t.Errorf("%v\n%s\nwant a refusal with %q", err, out, c.says)
			}
		})
	}
}

func TestValuesArePutWhereTheyBelong(t *testing.T) {
	hub := template(t, charts[0], "--set=clusterSet.name=blue,clusterSet.spec.vips.mode=preferred,shared=false",
		"--set=image.tag=v9,image.pullPolicy=Always,extraArgs={--v=4},priorityClassName=high,members={west}")
	for _, want := range []string{"Namespace  blue", "ClusterSet blue blue",
		"Deployment clusterset-system clusterset-hub-blue", "ClusterProfile blue west",
		"PodDisruptionBudget clusterset-system clusterset-hub-blue"} {
		if hub[want] == nil {
			t.Errorf("there is no %s in %v", want, slices.Sorted(maps.Keys(hub)))
		}
	}
	for key := range hub {
		if strings.HasPrefix(key, "ValidatingAdmissionPolicy") ||
			strings.HasPrefix(key, "ServiceAccount clusterset-system") {
			t.Errorf("%s is another release's (shared=false)", key)
		}
	}
	text, err := yaml.Marshal(hub["Deployment clusterset-system clusterset-hub-blue"])
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"clusterset-controller:v9\n", "imagePullPolicy: Always\n", "- --hub-namespace=blue\n",
		"- --v=4\n", "priorityClassName: high\n", "app.kubernetes.io/instance: blue\n"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the Deployment lacks %q:\n%s", want, text)
		}
	}
	digest := "sha256:" + strings.Repeat("0123456789abcdef", 4)
	member := template(t, charts[1], "--set-string=clusterID=007", "--set=hubNamespace=blue,image.digest="+digest,
		"--set=dnsEndpointZone=global.example.org")
	text, err = yaml.Marshal(member["Deployment clusterset-system clusterset-controller"])
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"@" + digest + "\n", "- --cluster-id=007\n", "- --hub-namespace=blue\n",
		"- --dnsendpoint-zone=global.example.org\n"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the Deployment lacks %q:\n%s", want, text)
		}
	}
	const users = "ClusterRole  clusterset-dns:edit"
	labels := template(t, charts[1], "--set=editorsExport=false")[users]["metadata"].(object)["labels"].(object)
	if _, has := labels["rbac.authorization.k8s.io/aggregate-to-edit"]; has || len(labels) == 0 {
		t.Errorf("without editorsExport, %s has the labels %v", users, labels)
	}
	// So helm upgrade --reuse-values renders it for a release that is older than the value.
	labels = template(t, charts[1], "--set=editorsExport=null")[users]["metadata"].(object)["labels"].(object)
	if labels["rbac.authorization.k8s.io/aggregate-to-edit"] != "true" {
		t.Errorf("with no value editorsExport, %s has the labels %v", users, labels)
	}
	for key := range named(built(t, "member/dnsendpoint")) {
		if member[key] == nil || template(t, charts[1])[key] != nil {
			t.Errorf("%s is there with dnsEndpointZone only", key)
		}
	}
}

// TestNoObjectIsInTwoCharts that one cluster may have: an object belongs to one Application of Argo CD. Of CRDs, the
// page says which chart skips them.
func TestNoObjectIsInTwoCharts(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs/gitops.md"))
	if err != nil {
		t.Fatal(err)
	}
	in := map[string]string{} // the chart, by object
	for _, c := range charts {
		skips := strings.Contains(string(page), "`"+c.name+"` skips them")
		for key := range template(t, c, c.all...) {
			if skips && strings.HasPrefix(key, "CustomResourceDefinition ") {
				continue
			}
			if other := in[key]; other != "" {
				t.Errorf("%s is in %s and in %s", key, other, c.name)
			}
			in[key] = c.name
		}
	}
}

// example is as much of an Application or a HelmRelease as chooses a chart and its values.
type example struct {
	Kind string
	Spec struct {
		Source struct {
			Path           string
			TargetRevision string
			Helm           struct{ ValuesObject object }
		}
		Destination     struct{ Namespace string }
		TargetNamespace string
		Chart           struct{ Spec struct{ Chart string } }
		Values          object
	}
}

// The examples' values are those of the charts, in the namespaces where these can be.
func TestExamplesChooseChartsAndValuesThatExist(t *testing.T) {
	checked := map[string]int{}
	err := filepath.WalkDir(filepath.Join(root, "examples"), func(path string, d os.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".yaml" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, o := range parse(t, string(text)) {
			doc, err := yaml.Marshal(o)
			if err != nil {
				return err
			}
			if kind := o["kind"]; kind != "Application" && kind != "HelmRelease" {
				continue
			}
			var e example
			if err := yaml.Unmarshal(doc, &e); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			source := e.Spec.Source
			chart, namespace, values := source.Path, e.Spec.Destination.Namespace, source.Helm.ValuesObject
			if e.Kind == "HelmRelease" {
				chart, namespace, values = e.Spec.Chart.Spec.Chart, e.Spec.TargetNamespace, e.Spec.Values
			}
			file := filepath.Join(t.TempDir(), "values.yaml")
			text, err := yaml.Marshal(values)
			if err != nil {
				return err
			}
			if err := os.WriteFile(file, text, 0o644); err != nil {
				return err
			}
			if out, err := run(t.Context(), t, nil, "template", "x", chart, "--namespace", namespace, "--values", file,
				"--kube-version=1.34.0"); err != nil {
				t.Errorf("%s: %s: %v\n%s", path, chart, err, out)
			}
			checked[e.Kind]++
		}
		return nil
	})
	if err != nil || checked["Application"] == 0 || checked["HelmRelease"] == 0 {
		t.Errorf("%v were checked: %v", checked, err)
	}
}
