package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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

// The assets of a release have no folders: what has one in SHA256SUMS, sha256sum --ignore-missing would skip.
func TestChecksumsAreOfTheAssets(t *testing.T) {
	r := release{dir: t.TempDir()}
	for _, name := range []string{"hub.yaml", "image/coredns-oci.tar", "image/linux_amd64/coredns"} {
		if err := os.MkdirAll(filepath.Dir(r.path(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(r.path(name), []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.checksums(); err == nil {
		t.Error("a folder is no error")
	}
	for _, step := range []func() error{r.images, r.checksums} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	check := exec.Command("sha256sum", "-c", "SHA256SUMS")
	check.Dir = r.dir
	out, err := check.CombinedOutput()
	if want := "coredns-oci.tar: OK\nhub.yaml: OK\n"; err != nil || string(out) != want {
		t.Errorf("%v\n%swant\n%s", err, out, want)
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

// workflow is as much of a workflow as says what it may do.
type workflow struct {
	Permissions map[string]string
	Jobs        map[string]struct {
		Needs       string
		Permissions map[string]string
		Steps       []struct{ Name, Run, Uses string }
	}
}

func releaseWorkflow(t *testing.T) (w workflow) {
	t.Helper()
	text, err := os.ReadFile("../../.github/workflows/release.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &w); err != nil {
		t.Fatal(err)
	}
	return w
}

// What a dependency runs while it is built must not publish, and an action's tag may move.
func TestWhatBuildsAReleaseMayNotPublish(t *testing.T) {
	w := releaseWorkflow(t)
	pinned := regexp.MustCompile(`^[\w-]+/[\w-]+@[0-9a-f]{40}$`)
	for name, job := range w.Jobs {
		may := w.Permissions
		if job.Permissions != nil {
			may = job.Permissions
		}
		publishes := !maps.Equal(may, map[string]string{"contents": "read"})
		for _, step := range job.Steps {
			if publishes && (strings.Contains(step.Run, "make ") || strings.Contains(step.Run, "bin/")) {
				t.Errorf("job %s has the permissions %v, and builds: %s", name, may, step.Run)
			}
			if step.Uses != "" && !pinned.MatchString(step.Uses) {
				t.Errorf("job %s uses %s, which may move", name, step.Uses)
			}
		}
		if publishes && job.Needs != "build" {
			t.Errorf("job %s publishes what %q has built", name, job.Needs)
		}
	}
}

func TestATagWithASuffixIsAPrerelease(t *testing.T) {
	steps := releaseWorkflow(t).Jobs["publish"].Steps
	publish := steps[len(steps)-1].Run
	for tag, want := range map[string]bool{"v1.2.3": false, "v1.2.3-rc.1": true} {
		dir := t.TempDir()
		for name, script := range map[string]string{"gh": "#!/bin/sh\necho \"$@\"\n", "cosign": "#!/bin/sh\n"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.Command("bash", "-e", "-c", publish)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "GITHUB_REF_NAME="+tag)
		out, err := cmd.CombinedOutput()
		if err != nil || strings.Contains(string(out), "--prerelease") != want {
			t.Errorf("%s: prerelease %v is wanted (%v): %s", tag, want, err, out)
		}
	}
}
