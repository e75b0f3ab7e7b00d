package coredns

import (
	"bytes"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/coredns/caddy/caddyfile"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// beside is what kubectl apply -k deploy/coredns/beside applies.
type beside struct {
	account corev1.ServiceAccount
	role    rbacv1.ClusterRole
	binding rbacv1.ClusterRoleBinding
	config  corev1.ConfigMap
	service corev1.Service
	runs    appsv1.Deployment
	budget  policyv1.PodDisruptionBudget
	all     []unstructured.Unstructured
}

func render(t *testing.T) (b beside) {
	t.Helper()
	into := map[string]any{
		"ServiceAccount":     &b.account,
		"ClusterRole":        &b.role,
		"ClusterRoleBinding": &b.binding,
		"ConfigMap":          &b.config,
		"Service":            &b.service,
		"Deployment":         &b.runs,
		"Namespace":          &corev1.Namespace{},

		"PodDisruptionBudget": &b.budget,
		"ResourceQuota":       &corev1.ResourceQuota{},
	}
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), "beside")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range built.Resources() {
		text, err := r.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		typed := into[r.GetKind()]
		if typed == nil {
			t.Fatalf("%s %s is one too many", r.GetKind(), r.GetName())
		}
		delete(into, r.GetKind())
		if err := yaml.UnmarshalStrict(text, typed); err != nil {
			t.Fatalf("%s: %v", r.GetKind(), err)
		}
		var o unstructured.Unstructured
		if err := yaml.Unmarshal(text, &o.Object); err != nil {
			t.Fatal(err)
		}
		b.all = append(b.all, o)
	}
	if len(into) > 0 {
		t.Fatalf("there is no %v", slices.Sorted(maps.Keys(into)))
	}
	return b
}

// As endpoints of the cluster's own DNS these pods would refuse all names but ours; in its namespace, or in that
// which goes when the cluster
// leaves, they would be in the way, or gone.
func TestBesideIsApartFromTheClustersDNS(t *testing.T) {
	b := render(t)
	for _, o := range b.all {
		if ns := o.GetNamespace(); ns != "" && ns != "clusterset-dns" {
			t.Errorf("%s %s is in namespace %s", o.GetKind(), o.GetName(), ns)
		}
		text, err := yaml.Marshal(o.Object)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(text, []byte("k8s-app")) {
			t.Errorf(
				"%s %s has the label that the cluster's DNS is selected by:\n%s",
				o.GetKind(),
				o.GetName(),
				text,
			)
		}
	}
}

func TestBesideServesTheZoneAlone(t *testing.T) {
	b := render(t)
	blocks, err := caddyfile.Parse("Corefile", strings.NewReader(b.config.Data["Corefile"]), nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(blocks) != 1 || !slices.Equal(blocks[0].Keys, []string{"clusterset.local:53"}) {
		t.Fatalf("the Corefile has the blocks %v", blocks)
	}
	var words []string
	for _, token := range blocks[0].Tokens["multicluster"] {
		words = append(words, token.Text)
	}
	// A Pod without lists must not take the place of one that answers: no other zone needs it.
	if got := strings.Join(words, " "); got != "multicluster clusterset.local { startup_timeout 87600h }" {
		t.Errorf("the Corefile has %s, and clusterset.local alone is sent here", got)
	}
	want := []string{"errors", "health", "multicluster", "prometheus", "ready", "reload"}
	if got := slices.Sorted(maps.Keys(blocks[0].Tokens)); !slices.Equal(got, want) {
		t.Errorf("the Corefile has %v, want %v", got, want)
	}
}

// TestBesidesPodsAreWhatItsServiceAndProbesAsk, by the ports that the plugins of the Corefile listen on.
func TestBesidesPodsAreWhatItsServiceAndProbesAsk(t *testing.T) {
	b := render(t)
	pod := b.runs.Spec.Template
	c := pod.Spec.Containers[0]
	want := map[string]string{"app.kubernetes.io/name": pod.Labels["app.kubernetes.io/name"]}
	selectors := map[string]map[string]string{"Service": b.service.Spec.Selector,
		"Deployment": b.runs.Spec.Selector.MatchLabels, "budget": b.budget.Spec.Selector.MatchLabels}
	for _, s := range pod.Spec.TopologySpreadConstraints {
		selectors[s.TopologyKey] = s.LabelSelector.MatchLabels
	}
	for of, labels := range selectors {
		if !maps.Equal(labels, want) {
			t.Errorf("the %s selects %v, and the pods have %v", of, labels, pod.Labels)
		}
	}
	if len(selectors) != 5 {
		t.Errorf("the pods are spread by %v, want nodes and zones", pod.Spec.TopologySpreadConstraints)
	}
	listens := map[string]string{}
	for _, p := range c.Ports {
		listens[p.Name] = string(p.Protocol) + strconv.Itoa(int(p.ContainerPort))
	}
	want = map[string]string{
		"dns":             "UDP53",
		"dns-tcp":         "TCP53",
		"metrics":         "9153",
		"liveness-probe":  "8080",
		"readiness-probe": "8181",
	}
	if !maps.Equal(listens, want) {
		t.Errorf("ports %v, want %v", listens, want)
	}
	for _, p := range b.service.Spec.Ports {
		if got, want := string(p.Protocol)+strconv.Itoa(int(p.Port)), listens[p.TargetPort.StrVal]; strings.TrimPrefix(
			want,
			string(p.Protocol),
		) != strconv.Itoa(int(p.Port)) {
			t.Errorf("the Service's port %s is %s, and the pods' %q", p.Name, got, want)
		}
	}
	if len(b.service.Spec.Ports) != 3 {
		t.Errorf("the Service has the ports %v", b.service.Spec.Ports)
	}
	if l, r := c.LivenessProbe.HTTPGet, c.ReadinessProbe.HTTPGet; l.Path != "/health" ||
		l.Port != intstr.FromString("liveness-probe") ||
		r.Path != "/ready" ||
		r.Port != intstr.FromString("readiness-probe") {
		t.Errorf("probes %v, %v", l, r)
	}
	mounts, volumes := c.VolumeMounts, pod.Spec.Volumes
	if len(mounts) != 1 || len(volumes) != 1 || mounts[0].Name != volumes[0].Name ||
		volumes[0].ConfigMap.Name != b.config.Name ||
		!slices.Equal(c.Args, []string{"-conf", mounts[0].MountPath + "/Corefile"}) {
		t.Errorf(
			"args %v, mounts %v, volumes %v: they do not read ConfigMap %s",
			c.Args,
			mounts,
			volumes,
			b.config.Name,
		)
	}
}

// The image's program has the file capability: it does not start where its container may not have it
// (deploy/image).
func TestBesideMayBindPort53AndNothingElse(t *testing.T) {
	c := render(t).runs.Spec.Template.Spec.Containers[0].SecurityContext.Capabilities
	if !slices.Equal(c.Add, []corev1.Capability{"NET_BIND_SERVICE"}) ||
		!slices.Equal(c.Drop, []corev1.Capability{"ALL"}) {
		t.Errorf("capabilities %+v", c)
	}
}

// Without it the process would grow until the kernel kills it, because the garbage collector does not know the limit.
func TestBesideCollectsGarbageBeforeItsLimit(t *testing.T) {
	c := render(t).runs.Spec.Template.Spec.Containers[0]
	if c.Resources.Limits.Memory().IsZero() || len(c.Env) != 1 || c.Env[0].Name != "GOMEMLIMIT" ||
		c.Env[0].ValueFrom.ResourceFieldRef.Resource != "limits.memory" {
		t.Errorf("env %+v of limits %v, want GOMEMLIMIT", c.Env, c.Resources.Limits)
	}
}

func TestBesideReadsWithTheAccountThatIsBound(t *testing.T) {
	b := render(t)
	if got := b.runs.Spec.Template.Spec.ServiceAccountName; got != b.account.Name ||
		b.runs.Namespace != b.account.Namespace {
		t.Errorf(
			"the pods run as %s/%s, and the ServiceAccount is %s/%s",
			b.runs.Namespace,
			got,
			b.account.Namespace,
			b.account.Name,
		)
	}
	want := []rbacv1.Subject{{Kind: "ServiceAccount", Name: b.account.Name, Namespace: b.account.Namespace}}
	if !slices.Equal(b.binding.Subjects, want) || b.binding.RoleRef.Kind != "ClusterRole" ||
		b.binding.RoleRef.Name != b.role.Name {
		t.Errorf("%v is bound to %v, want %v to %s", b.binding.Subjects, b.binding.RoleRef, want, b.role.Name)
	}
	var other rbacv1.ClusterRoleBinding
	if err := yaml.UnmarshalStrict(read(t, "binding.yaml"), &other); err != nil {
		t.Fatal(err)
	}
	if other.Name == b.binding.Name {
		t.Errorf(
			"the binding %s is that of the cluster's own CoreDNS: applying one would take the other's rights",
			other.Name,
		)
	}
}
