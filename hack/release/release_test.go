package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/clusterset-dns/clusterset-dns/deploy"
)

func TestAReleaseIsOfTheVersionThatEverythingNames(t *testing.T) {
	t.Chdir("../..")
	if err := (release{version: deploy.Version()}).check(); err != nil {
		t.Error(err)
	}
	for version, why := range map[string]string{
		"v999.0.0": "make set-version VERSION=v999.0.0",
		"dev":      "is no version of a release",
	} {
		if err := (release{version: version}).check(); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v, want %q", version, err, why)
		}
	}
}

func TestManifestsNameTheVersion(t *testing.T) {
	dir := t.TempDir()
	t.Chdir("../..")
	r := release{version: deploy.Version(), dir: dir}
	if err := r.manifests(); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"crds.yaml":       "serviceexports.multicluster.x-k8s.io",
		"hub.yaml":        "kind: ValidatingAdmissionPolicy\n",
		"clusterset.yaml": deploy.Controller + ":" + r.version,
		"member.yaml":     deploy.Controller + ":" + r.version,
		"dns-beside.yaml": deploy.CoreDNS + ":" + r.version,
	} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !bytes.Contains(text, []byte(want)) {
			t.Errorf("%s lacks %q (%v)", name, want, err)
		}
		// kubectl applies no object whose kind the same file brings.
		if bytes.Contains(text, []byte("name: clustersets.hub")) &&
			bytes.Contains(text, []byte("\nkind: ClusterSet\n")) {
			t.Errorf("%s has ClusterSet and its CRD", name)
		}
	}
}

func TestArchivesAreTheSameFromTheSameInput(t *testing.T) {
	for _, p := range platforms {
		in := []entry{{p.binary(), 0o755, []byte("program")}, {"LICENSE", 0o644, []byte("licence")}}
		a, err := p.pack(in)
		if err != nil {
			t.Fatal(err)
		}
		b, err := p.pack(in)
		if err != nil || !bytes.Equal(a, b) {
			t.Errorf("%v: the bytes differ (%v)", p, err)
		}
	}
}

func TestATarballHasTheProgram(t *testing.T) {
	dir := t.TempDir()
	p := platforms[0]
	data, err := p.pack([]entry{{p.binary(), 0o755, []byte("#!/bin/sh\necho it runs\n")}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, p.archive("v1.2.3"))
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("sh", "-c", "cd "+dir+" && tar xzf *_linux_amd64.tar.gz && ./kubectl-clusterset").
		CombinedOutput()
	if err != nil || string(out) != "it runs\n" {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestKrewManifestHasEveryPlatform(t *testing.T) {
	var archives []archive
	for _, p := range platforms {
		archives = append(archives, archive{p, p.archive("v1.2.3"), "abc"})
	}
	text, err := krew("v1.2.3", archives)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Kind string
		Spec struct {
			Version   string
			Platforms []struct{ URI, SHA256, Bin string }
		}
	}
	if err := yaml.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if got.Kind != "Plugin" || got.Spec.Version != "v1.2.3" || len(got.Spec.Platforms) != len(platforms) {
		t.Errorf("%+v", got)
	}
	for i, p := range got.Spec.Platforms {
		want := repository + "/releases/download/v1.2.3/" + platforms[i].archive("v1.2.3")
		if p.URI != want || p.SHA256 != "abc" || p.Bin != platforms[i].binary() {
			t.Errorf("%+v, want %s", p, want)
		}
	}
}

// The program of this test has modules, too.
func TestSBOMListsWhatIsLinked(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := sbom("release", "v1.2.3", program)
	if err != nil {
		t.Fatal(err)
	}
	var got bom
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, c := range got.Components {
		found[c.Name] = c.Version != "" && strings.HasPrefix(c.PURL, "pkg:golang/"+c.Name+"@")
	}
	if !found["stdlib"] || !found["sigs.k8s.io/yaml"] || got.Metadata.Component.Version != "v1.2.3" ||
		len(got.Dependencies[0].DependsOn) != len(got.Components) {
		t.Errorf("%s", text)
	}
}

// What is published is what anybody can build: workflows build by one target of the Makefile.
func TestWorkflowsBuildByMakeAlone(t *testing.T) {
	for file, want := range map[string]string{
		"ci.yaml": ".ci/run", "nightly.yaml": "make test-slow",
		"release.yaml": `make release VERSION="$GITHUB_REF_NAME"`,
	} {
		text, err := os.ReadFile(filepath.Join("../../.github/workflows", file))
		if err != nil {
			t.Fatal(err)
		}
		var w struct {
			Jobs map[string]struct {
				Steps []struct{ Run string }
			}
		}
		if err := yaml.Unmarshal(text, &w); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		builds := 0
		for _, job := range w.Jobs {
			for _, step := range job.Steps {
				if strings.Contains(step.Run, want) {
					builds++
				}
				for _, other := range []string{"go build", "go run", "docker build", "buildx"} {
					if strings.Contains(step.Run, other) {
						t.Errorf("%s builds with %s:\n%s", file, other, step.Run)
					}
				}
			}
		}
		if builds != 1 {
			t.Errorf("%s runs %s %d times", file, want, builds)
		}
	}
}
