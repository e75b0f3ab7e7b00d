// Package manifest renders the kustomizations of deploy/ for one hub or one member, in memory, and compares CRDs with
// those of a cluster. It does not connect to clusters.
package manifest

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/distribution/reference"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/facts"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	"github.com/clusterset-dns/clusterset-dns/deploy"
)

// The folders of deploy/ that are applied or deleted.
const (
	Hub           = "hub"                // once per hub
	ClusterSet    = "hub/clusterset"     // once per clusterset, on the hub
	HubController = "hub/controller"     // once per clusterset, on the hub: its controller
	HubMember     = "hub/member"         // once per member, on the hub
	CoreDNS       = "coredns"            // in the member: CoreDNS's rights
	Beside        = "coredns/beside"     // in the member: our CoreDNS beside the cluster's own
	CRDs          = "crds"               // in the member: what CoreDNS watches
	Member        = "member"             // in the member
	DNSEndpoint   = "member/dnsendpoint" // in the member: the agent's right to DNSEndpoints, if somebody applied it
)

// Placeholders in the manifests (deploy/hub/README.md).
const (
	clusterID = "CLUSTER-ID"
	namespace = "clusterset"
	hubName   = "clusterset-hub"
)

// AgentDeployment is the name of the agent's Deployment, of its ServiceAccount, and of its Pods by their label.
const AgentDeployment = "clusterset-controller"

// HubDeployment returns the name of the Deployment of a ClusterSet's controller on the hub.
func HubDeployment(hubNamespace string) string {
	if hubNamespace == namespace {
		return hubName
	}
	return hubName + "-" + hubNamespace
}

// Values replace the placeholders.
type Values struct {
	Namespace string // of the clusterset on the hub, and its name
	ClusterID string // of a member, if there is one
	Image     string // REGISTRY/NAME:TAG or REGISTRY/NAME@DIGEST; "": that of the manifests
	Args      []string
	Runs      *appsv1.Deployment // nil if none does; its size and tolerations stay if others have set them
}

// CheckImage returns an error if a kubelet could not parse the reference of an image.
func CheckImage(image string) error {
	named, err := reference.ParseNormalizedNamed(image)
	if err == nil && strings.ToLower(named.Name()) != named.Name() { // REGISTRY, as the documentation has it
		err = reference.ErrNameContainsUppercase
	}
	if err != nil {
		return report.Fail("--image with its name in your registry, such as registry.example/NAME:v1.0.0; "+
			report.DocsImages, "image %q: %w", image, err)
	}
	return nil
}

// Render returns what kubectl apply -k FOLDER would apply, with the values: CRDs first, then namespaces, and
// Deployments last.
func Render(folder string, v Values) ([]*unstructured.Unstructured, error) {
	disk, err := load()
	if err != nil {
		return nil, err
	}
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(disk, "/deploy/"+folder)
	if err != nil {
		return nil, fmt.Errorf("the manifests in deploy/%s: %w", folder, err)
	}
	out := make([]*unstructured.Unstructured, 0, built.Size())
	for _, r := range built.Resources() {
		text, err := r.MarshalJSON()
		if err != nil {
			return nil, fmt.Errorf("the manifests in deploy/%s: %w", folder, err)
		}
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(text); err != nil {
			return nil, fmt.Errorf("the manifests in deploy/%s: %w", folder, err)
		}
		if object.GetKind() != "CustomResourceDefinition" { // its names are no placeholders
			put(object.Object, v)
		}
		if kind := object.GetKind(); kind == "Deployment" || kind == "PodDisruptionBudget" {
			if object.GetName() == hubName {
				object.SetName(HubDeployment(v.Namespace))
			}
			setContainer(object, v)
		}
		out = append(out, object)
	}
	Sort(out)
	return out, nil
}

// load copies the manifests to a file system of kustomize.
func load() (filesys.FileSystem, error) {
	disk := filesys.MakeFsInMemory()
	err := fs.WalkDir(deploy.Manifests, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := deploy.Manifests.ReadFile(path)
		if err != nil {
			return err
		}
		return disk.WriteFile("/deploy/"+path, text)
	})
	return disk, err
}

// setContainer sets the image of the first container of a Deployment as it is given (without a tag, it has none), and
// adds its further arguments. A Deployment that runs keeps what others have set, unless it is scaled to 0.
func setContainer(o *unstructured.Unstructured, v Values) {
	value, found, _ := unstructured.NestedFieldNoCopy(o.Object, "spec", "template", "spec")
	if !found {
		return
	}
	pod := value.(map[string]any)
	first := pod["containers"].([]any)[0].(map[string]any)
	if v.Image != "" {
		first["image"] = v.Image
	}
	args, _ := first["args"].([]any)
	for _, a := range v.Args {
		args = append(args, a)
	}
	if len(v.Args) > 0 {
		first["args"] = args
	}
	if c := facts.Container(v.Runs); c != nil && othersSet(v.Runs, "resources") {
		first["resources"], _ = runtime.DefaultUnstructuredConverter.ToUnstructured(&c.Resources) // it was one
	}
	if v.Runs == nil {
		return
	}
	runs, _ := runtime.DefaultUnstructuredConverter.ToUnstructured(&v.Runs.Spec.Template.Spec) // it was one
	helm, _ := facts.Release(v.Runs)
	for _, field := range []string{"priorityClassName", "tolerations"} {
		// A field that the manifest lacks stays anyway. Nobody manages one that Helm leaves out.
		if pod[field] == nil || helm == "" && !othersSet(v.Runs, field) {
			continue
		}
		if delete(pod, field); runs[field] != nil {
			pod[field] = runs[field]
		}
	}
	if ptr.Deref(v.Runs.Spec.Replicas, 0) > 0 && othersSet(v.Runs, "replicas") {
		_ = unstructured.SetNestedField(o.Object, int64(*v.Runs.Spec.Replicas), "spec", "replicas")
	}
}

// othersSet reports whether another field manager than this program has set a field of a Deployment.
func othersSet(d *appsv1.Deployment, field string) bool {
	return slices.ContainsFunc(d.ManagedFields, func(f metav1.ManagedFieldsEntry) bool {
		return f.Manager != FieldManager && f.Subresource != "status" &&
			strings.Contains(f.FieldsV1.GetRawString(), `"f:`+field+`"`)
	})
}

// put replaces the placeholders in every string of a parsed object: in YAML text, a cluster ID may look like a number.
func put(value any, v Values) any {
	switch x := value.(type) {
	case map[string]any:
		for k, e := range x {
			x[k] = put(e, v)
		}
	case []any:
		for i := range x {
			x[i] = put(x[i], v)
		}
	case string:
		if x == namespace {
			return v.Namespace
		}
		if v.ClusterID != "" {
			x = strings.ReplaceAll(x, clusterID, v.ClusterID)
		}
		if x == "--hub-namespace="+namespace {
			x = "--hub-namespace=" + v.Namespace
		}
		return x
	}
	return value
}

// Sort puts objects in the order in which they are applied.
func Sort(objects []*unstructured.Unstructured) {
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int { return rank(a) - rank(b) })
}

func rank(o *unstructured.Unstructured) int {
	switch o.GetKind() {
	case "CustomResourceDefinition":
		return 0
	case "Namespace":
		return 1
	case "Deployment":
		return 3
	}
	return 2
}

// YAML prints objects as kubectl does.
func YAML(objects []*unstructured.Unstructured) (string, error) {
	var out strings.Builder
	for _, o := range objects {
		text, err := yaml.Marshal(o.Object)
		if err != nil {
			return "", err
		}
		out.WriteString("---\n")
		out.Write(text)
	}
	return out.String(), nil
}
