package deploy_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"text/template"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/clusterset-dns/clusterset-dns/deploy"
)

// foreign are the kinds of examples/ that no schema is at hand for. test/charts checks the values in the first ones.
var foreign = map[string]bool{
	"argoproj.io/v1alpha1 Application":              true,
	"argoproj.io/v1alpha1 ApplicationSet":           true,
	"helm.toolkit.fluxcd.io/v2 HelmRelease":         true,
	"source.toolkit.fluxcd.io/v1 GitRepository":     true,
	"external-secrets.io/v1 ExternalSecret":         true,
	"external-secrets.io/v1alpha1 PushSecret":       true,
	"kustomize.config.k8s.io/v1beta1 Kustomization": true, // built below
}

func TestExamplesAreOfKnownKinds(t *testing.T) {
	decoder := serializer.NewCodecFactory(clientgoscheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	objects := 0
	err := filepath.WalkDir("../examples", func(path string, d os.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".yaml" {
			return err
		}
		text, err := os.ReadFile(path)
		for _, doc := range strings.Split("\n"+string(text), "\n---\n") {
			var o object
			if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
				t.Errorf("%s: %v", path, err)
				continue
			}
			objects++
			if foreign[o.APIVersion+" "+o.Kind] {
				continue
			}
			if _, _, err := decoder.Decode([]byte(doc), nil, runtime.Object(nil)); err != nil {
				t.Errorf("%s: %s: %v", path, o.Kind, err)
			}
		}
		return err
	})
	if err != nil || objects < 10 {
		t.Errorf("%d objects in examples/: %v", objects, err)
	}
}

// References to a release are built from what the release has.
func TestExamplesOfKustomizeBuild(t *testing.T) {
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	for example, want := range map[string]string{"hub": "name: clusterset-hub\n", "member": "- --cluster-id=east\n"} {
		text, err := os.ReadFile(filepath.Join("../examples/kustomize", example, "kustomization.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		local := strings.NewReplacer("https://github.com/clusterset-dns/clusterset-dns//", relative(t, dir, root)+"/",
			"?ref="+deploy.Version(), "").Replace(string(text))
		if strings.Contains(local, "://") {
			t.Errorf("%s: a reference is not to this version:\n%s", example, text)
		}
		if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(local), 0o644); err != nil {
			t.Fatal(err)
		}
		built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
		if err != nil {
			t.Errorf("%s: %v", example, err)
			continue
		}
		out, err := built.AsYaml()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%s lacks %q (%v)", example, want, err)
		}
	}
}

// member returns one document of an example for a member, as a map.
func member(t *testing.T, tool, kind, name string) (spec map[string]any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../examples", tool, "member.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, doc := range strings.Split("\n"+string(text), "\n---\n") {
		var o struct {
			object
			Spec map[string]any
		}
		if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
			t.Fatal(err)
		}
		if o.Kind == kind && o.Metadata.Name == name {
			return o.Spec
		}
	}
	t.Fatalf("examples/%s/member.yaml has no %s %s", tool, kind, name)
	return nil
}

// An object of two Applications is out of sync in one of them, for ever.
func TestOneApplicationOfAMemberHasTheCRDs(t *testing.T) {
	spec := member(t, "argocd", "ApplicationSet", "clusterset-members")
	patch := template.New("").Funcs(template.FuncMap{"quote": strconv.Quote})
	template.Must(patch.Parse(spec["templatePatch"].(string)))
	for chart, skipped := range map[string]bool{"clusterset-member": false, "clusterset-dns": true} {
		var out bytes.Buffer
		if err := patch.Execute(&out, map[string]string{"chart": chart, "name": "east"}); err != nil {
			t.Fatal(err)
		}
		var got struct {
			Spec struct {
				Source struct{ Helm struct{ SkipCrds bool } }
			}
		}
		if err := yaml.Unmarshal(out.Bytes(), &got); err != nil || got.Spec.Source.Helm.SkipCrds != skipped {
			t.Errorf("%s: skipCrds is %v (%v):\n%s", chart, got.Spec.Source.Helm.SkipCrds, err, &out)
		}
	}
}

func TestAnInstallDoesNotWaitForAnAgentWithoutCredentials(t *testing.T) {
	install := member(t, "flux", "HelmRelease", "clusterset-member")["install"].(map[string]any)
	if install["disableWait"] != true {
		t.Errorf("install: %v", install)
	}
}

func relative(t *testing.T, from, to string) string {
	t.Helper()
	from, err := filepath.EvalSymlinks(from)
	if err != nil {
		t.Fatal(err)
	}
	path, err := filepath.Rel(from, to)
	if err != nil {
		t.Fatal(err)
	}
	return path
}
