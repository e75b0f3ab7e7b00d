// Package monitoring proves what deploy/monitoring promises: its folders render, its monitors find the pods that
// deploy/ makes, every alert rings when it should and only then, and neither rules nor dashboard name a metric,
// label or runbook that does not exist.
package monitoring

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

const root = "../.."

// render is what kubectl apply -k FOLDER applies.
func render(t *testing.T, folder string) (out []*unstructured.Unstructured) {
	t.Helper()
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).
		Run(filesys.MakeFsOnDisk(), filepath.Join(root, folder))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range built.Resources() {
		text, err := r.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		o := &unstructured.Unstructured{}
		if err := o.UnmarshalJSON(text); err != nil {
			t.Fatal(err)
		}
		out = append(out, o)
	}
	return out
}

// objects are those of one kind in all of deploy/monitoring.
func objects(t *testing.T, kind string) (out []*unstructured.Unstructured) {
	t.Helper()
	for _, folder := range []string{"deploy/monitoring", "deploy/monitoring/hub"} {
		for _, o := range render(t, folder) {
			if o.GetKind() == kind {
				out = append(out, o)
			}
		}
	}
	if len(out) == 0 {
		t.Fatalf("deploy/monitoring has no %s", kind)
	}
	return out
}

// into reads a field of an object into what it is, and fails where that does not have all of it.
func into(t *testing.T, o *unstructured.Unstructured, field string, to any) {
	t.Helper()
	value, ok, err := unstructured.NestedMap(o.Object, field)
	if err == nil && ok {
		err = runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(value, to, true)
	}
	if err != nil || !ok {
		t.Fatalf("%s %s: field %s: %v", o.GetKind(), o.GetName(), field, err)
	}
}

func TestFoldersRender(t *testing.T) {
	want := map[string][]string{
		"deploy/monitoring": {
			"ConfigMap clusterset-dns-dashboard",
			"PodMonitor clusterset-controller",
			"PodMonitor clusterset-coredns",
			"PodMonitor clusterset-coredns-beside",
			"PrometheusRule clusterset-controller",
			"PrometheusRule clusterset-coredns",
		},
		"deploy/monitoring/hub": {"PodMonitor clusterset-hub", "PrometheusRule clusterset-hub"},
	}
	for folder, want := range want {
		var got []string
		for _, o := range render(t, folder) {
			got = append(got, o.GetKind()+" "+o.GetName())
			if o.GetNamespace() != "clusterset-system" {
				t.Errorf(
					"%s: %s %s is in namespace %q, which none of our folders makes",
					folder,
					o.GetKind(),
					o.GetName(),
					o.GetNamespace(),
				)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s has %v, want %v", folder, got, want)
		}
	}
}

// kubeadm is the CoreDNS that kubeadm sets up (its manifests.go): no part of deploy/.
var kubeadm = workload{
	"kube-system",
	map[string]string{"k8s-app": "kube-dns"},
	[]string{"dns", "dns-tcp", "metrics"},
}

// workload is as much of pods as a PodMonitor can see.
type workload struct {
	namespace string
	labels    map[string]string
	ports     []string
}

func TestMonitorsSelectThePodsThatWeDeploy(t *testing.T) {
	monitors := map[string]workload{"clusterset-coredns": kubeadm}
	for folder, monitor := range map[string]string{"deploy/member": "clusterset-controller",
		"deploy/hub/controller": "clusterset-hub",
		"deploy/coredns/beside": "clusterset-coredns-beside"} {
		for _, o := range render(t, folder) {
			if o.GetKind() != "Deployment" {
				continue
			}
			var d appsv1.DeploymentSpec
			into(t, o, "spec", &d)
			w := workload{namespace: o.GetNamespace(), labels: d.Template.Labels}
			for _, p := range d.Template.Spec.Containers[0].Ports {
				w.ports = append(w.ports, p.Name)
			}
			monitors[monitor] = w
		}
	}
	all := objects(t, "PodMonitor")
	if len(all) != len(monitors) {
		t.Errorf("there are %d PodMonitors for %d workloads", len(all), len(monitors))
	}
	for _, o := range all {
		var spec monitorSpec
		into(t, o, "spec", &spec)
		w, ok := monitors[o.GetName()]
		if !ok {
			t.Errorf("PodMonitor %s is of no workload", o.GetName())
			continue
		}
		if len(spec.Selector.MatchLabels) == 0 {
			t.Errorf("PodMonitor %s selects every pod", o.GetName())
		}
		namespaces := spec.NamespaceSelector.MatchNames
		if len(namespaces) == 0 {
			namespaces = []string{o.GetNamespace()}
		}
		if !slices.Equal(namespaces, []string{w.namespace}) {
			t.Errorf("PodMonitor %s looks into %v, and its pods are in %s", o.GetName(), namespaces, w.namespace)
		}
		for key, value := range spec.Selector.MatchLabels {
			if w.labels[key] != value {
				t.Errorf(
					"PodMonitor %s selects %s=%s, and its pods have %v",
					o.GetName(),
					key,
					value,
					slices.Sorted(maps.Keys(w.labels)),
				)
			}
		}
		if len(spec.PodMetricsEndpoints) != 1 || !slices.Contains(w.ports, spec.PodMetricsEndpoints[0].Port) {
			t.Errorf(
				"PodMonitor %s scrapes %+v, and its pods have the ports %v",
				o.GetName(),
				spec.PodMetricsEndpoints,
				w.ports,
			)
		}
	}
}

// monitorSpec is a PodMonitor's, monitoring.coreos.com/v1, as far as we use it.
type monitorSpec struct {
	NamespaceSelector struct {
		MatchNames []string `json:"matchNames"`
	} `json:"namespaceSelector"`
	Selector struct {
		MatchLabels map[string]string `json:"matchLabels"`
	} `json:"selector"`
	PodMetricsEndpoints []struct {
		Port              string `json:"port"`
		MetricRelabelings []struct {
			SourceLabels []string `json:"sourceLabels"`
			Regex        string   `json:"regex"`
			Action       string   `json:"action"`
		} `json:"metricRelabelings"`
	} `json:"podMetricsEndpoints"`
}

// A label that is missing is a page that is not there, and nothing says so.
func TestGrafanaFindsTheDashboard(t *testing.T) {
	for _, o := range objects(t, "ConfigMap") {
		var data map[string]string
		into(t, o, "data", &data)
		if o.GetLabels()["grafana_dashboard"] != "1" || len(data) != 1 || data["clusterset-dns.json"] == "" {
			t.Errorf("ConfigMap %s has the labels %v and %d files", o.GetName(), o.GetLabels(), len(data))
		}
		if size := len(
			data["clusterset-dns.json"],
		); size > corev1.MaxSecretSize/4 { // kubectl apply keeps a copy in an annotation of 256 KiB
			t.Errorf("the dashboard has %d bytes: kubectl apply refuses that", size)
		}
	}
}

// Each program has its monitors and rules where it runs. Only an agent runs in every member.
func TestRulesAreInTheFolderOfTheirFirstMetric(t *testing.T) {
	prefix := map[string]string{
		"clusterset-agent": "clusterset_agent_", "clusterset-coredns": "coredns_", "clusterset-hub": "clusterset_hub_",
	}
	_, _, all := alerts(t)
	for _, g := range all.Groups {
		for _, r := range g.Rules {
			if first := metrics(r.Expr)[0]; prefix[g.Name] == "" || !strings.HasPrefix(first, prefix[g.Name]) {
				t.Errorf("%s looks at %s and is installed with %s only", r.Alert, first, g.Name)
			}
		}
	}
}
