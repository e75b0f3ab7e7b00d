package deploy_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/clusterset-dns/clusterset-dns/deploy"
)

// folders are what users apply.
var folders = []string{
	"hub", "hub/clusterset", "hub/controller", "hub/member", "member", "coredns", "coredns/beside", "crds",
	"hub/network-policy", "member/network-policy", "coredns/network-policy", "member/dnsendpoint",
}

type object struct {
	APIVersion string
	Kind       string
	Metadata   struct {
		Name, Namespace     string
		Labels, Annotations map[string]string
	}
	text []byte
}

// render returns what kubectl apply -k FOLDER applies.
func render(t *testing.T, folder string) (out []object) {
	t.Helper()
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range built.Resources() {
		text, err := r.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		o := object{text: text}
		if err := yaml.Unmarshal(text, &o); err != nil {
			t.Fatal(err)
		}
		out = append(out, o)
	}
	return out
}

// kept is how Argo CD, Helm and Flux are asked not to delete an object that is no longer in what they apply.
var kept = map[string]string{
	"argocd.argoproj.io/sync-options":   "Prune=false,Delete=false",
	"helm.sh/resource-policy":           "keep",
	"kustomize.toolkit.fluxcd.io/prune": "disabled",
}

// shared returns whether an object has other users. All ClusterSets of a hub use its policies: without them members
// would keep their rights, and nothing would refuse what is not theirs. Each CoreDNS of a member uses the ClusterRole.
func shared(folder string, o object) bool {
	return folder == "hub" || folder == "hub/controller" && o.Metadata.Namespace == "clusterset-system" &&
		o.Kind != "Deployment" && o.Kind != "PodDisruptionBudget" ||
		o.Kind == "ClusterRole" && o.Metadata.Name == "clusterset-dns:coredns"
}

// What users or members made is in these, or goes with them.
func TestWhatHoldsOthersObjectsIsNotPruned(t *testing.T) {
	mustKeep := map[string]int{
		"CustomResourceDefinition": 0, "Namespace": 0, "ClusterSet": 0, "ClusterProfile": 0,
	}
	for _, folder := range folders {
		for _, o := range render(t, folder) {
			_, must := mustKeep[o.Kind]
			must = must &&
				o.Metadata.Name != "clusterset-dns" // that of deploy/coredns/beside has nobody else's objects
			if must {
				mustKeep[o.Kind]++
			}
			must = must || shared(folder, o)
			for key, value := range kept {
				if got := o.Metadata.Annotations[key]; must && got != value || !must && got != "" {
					t.Errorf("%s: %s %s has the annotation %s: %q", folder, o.Kind, o.Metadata.Name, key, got)
				}
			}
		}
	}
	for kind, n := range mustKeep {
		if n == 0 {
			t.Errorf("no %s was found", kind)
		}
	}
}

// A policy for a subresource that its CRD does not have reads as if it protected something.
func TestEveryStatusThatIsNamedExists(t *testing.T) {
	is, named := map[string]bool{}, map[string]string{}
	for _, folder := range folders {
		for _, o := range render(t, folder) {
			if strings.Contains(string(o.text), "subresources:\n      status: {}") {
				plural, _, _ := strings.Cut(o.Metadata.Name, ".")
				is[plural+"/status"] = true
			}
			for _, status := range regexp.MustCompile(`\b[a-z]+/status\b`).FindAllString(string(o.text), -1) {
				named[status] = folder + ": " + o.Kind + " " + o.Metadata.Name
			}
		}
	}
	for status, by := range named {
		if !is[status] {
			t.Errorf("%s names %s, which does not exist", by, status)
		}
	}
}

func TestPodsFollowConventions(t *testing.T) {
	const prefix = "app.kubernetes.io/"
	workloads := map[string]string{"hub/controller": "hub", "member": "agent", "coredns/beside": "dns"}
	for folder, component := range workloads {
		var d appsv1.Deployment
		var budget policyv1.PodDisruptionBudget
		for _, o := range render(t, folder) {
			into := map[string]any{"Deployment": &d, "PodDisruptionBudget": &budget}[o.Kind]
			if into == nil {
				continue
			}
			if err := yaml.UnmarshalStrict(o.text, into); err != nil {
				t.Fatal(err)
			}
			for _, labels := range []map[string]string{o.Metadata.Labels, d.Spec.Template.Labels} {
				want := map[string]string{
					"component": component,
					"part-of":   "clusterset-dns",
					"version":   deploy.Version(),
				}
				for key, value := range want {
					if labels[prefix+key] != value {
						t.Errorf("%s: %s has the label %s=%q, want %q", folder, o.Kind, key, labels[prefix+key], value)
					}
				}
			}
		}
		for key, value := range d.Spec.Selector.MatchLabels {
			if key == prefix+"version" || budget.Spec.Selector.MatchLabels[key] != value {
				t.Errorf("%s: the Deployment selects %s, its budget %v", folder, key, budget.Spec.Selector.MatchLabels)
			}
		}
		pod := d.Spec.Template.Spec
		if s := pod.SecurityContext; s.RunAsUser != nil || s.RunAsGroup != nil || s.FSGroup != nil || !*s.RunAsNonRoot {
			t.Errorf("%s: %+v: OpenShift admits no fixed user", folder, s)
		}
		if len(pod.TopologySpreadConstraints) != 2 {
			t.Errorf("%s: it is spread by %+v, want nodes and zones", folder, pod.TopologySpreadConstraints)
		}
		c := pod.Containers[0]
		if c.Resources.Limits.Memory().IsZero() || !c.Resources.Limits.Cpu().IsZero() {
			t.Errorf("%s: limits %v, want memory alone", folder, c.Resources.Limits)
		}
		if !strings.HasSuffix(c.Image, ":"+deploy.Version()) ||
			!strings.HasPrefix(c.Image, deploy.Controller+":") && !strings.HasPrefix(c.Image, deploy.CoreDNS+":") {
			t.Errorf("%s: image %s, want ours of %s", folder, c.Image, deploy.Version())
		}
		// Whatever user the container runs as reads the Secret: no fsGroup gives it to a group.
		for _, v := range pod.Volumes {
			if v.Secret != nil && *v.Secret.DefaultMode&0o004 == 0 {
				t.Errorf("%s: others may not read %s", folder, v.Name)
			}
		}
	}
}

// TestWhatTrafficNeedsIsNotPreempted: without an agent, other clusters drop this one's endpoints in time. GKE admits
// the class outside of kube-system only where a quota names it.
func TestWhatTrafficNeedsIsNotPreempted(t *testing.T) {
	for _, folder := range []string{"member", "coredns/beside"} {
		d, quota := appsv1.Deployment{}, corev1.ResourceQuota{}
		for _, o := range render(t, folder) {
			into := map[string]any{"Deployment": &d, "ResourceQuota": &quota}[o.Kind]
			if into == nil {
				continue
			}
			if err := yaml.UnmarshalStrict(o.text, into); err != nil {
				t.Fatal(err)
			}
		}
		class := d.Spec.Template.Spec.PriorityClassName
		if of := quota.Spec.ScopeSelector; class != "system-cluster-critical" || quota.Namespace != d.Namespace ||
			of == nil || !slices.Equal(of.MatchExpressions[0].Values, []string{class}) {
			t.Errorf("%s: the pods have class %q, and the quota in %q is of %+v", folder, class, quota.Namespace, of)
		}
	}
}

var named = regexp.MustCompile(
	`(?:ghcr\.io/clusterset-dns/[a-z-]+:|app\.kubernetes\.io/version: |[?]ref=|tag: |targetRevision: |appVersion: )` +
		`(v[0-9][\w.-]*)`,
)

// One version everywhere: make set-version writes it.
func TestEverythingNamesOneVersion(t *testing.T) {
	found := 0
	for _, root := range []string{".", "../docs", "../examples", "../charts"} {
		err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() || strings.HasSuffix(path, ".go") {
				return err
			}
			text, err := os.ReadFile(path)
			for _, m := range named.FindAllStringSubmatch(string(text), -1) {
				found++
				if m[1] != deploy.Version() {
					t.Errorf(
						"%s: %s, and the manifests name %s (make set-version VERSION=%[3]s)",
						path,
						m[0],
						deploy.Version(),
					)
				}
			}
			return err
		})
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	if found < 10 {
		t.Errorf("only %d versions were found", found)
	}
}

func TestImagesOfReleasesOnly(t *testing.T) {
	for version, want := range map[string]string{
		"v0.1.0":            deploy.Controller + ":v0.1.0",
		"v1.2.3-rc.1":       deploy.Controller + ":v1.2.3-rc.1",
		"v0.1.0-3-gabc1234": "",
		"v0.1.0-dirty":      "",
		"c14ef09":           "",
		"dev":               "",
		"0.1.0":             "",
	} {
		if got := deploy.Image(deploy.Controller, version); got != want {
			t.Errorf("%s: %q, want %q", version, got, want)
		}
	}
}
