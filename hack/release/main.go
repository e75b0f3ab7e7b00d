// Command release writes what a release has into a folder: the CLI for each platform, manifests, charts, SBOMs, the
// krew manifest and checksums. make release runs it after make images, whose archives are in its folder image already.
//
// It needs no network, given the modules. Charts alone differ in bytes between two runs, by the times inside.
package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"text/template"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/clusterset-dns/clusterset-dns/deploy"
)

const repository = "https://github.com/clusterset-dns/clusterset-dns"

// platforms are those of the CLI.
var platforms = []platform{
	{"linux", "amd64"}, {"linux", "arm64"},
	{"darwin", "amd64"}, {"darwin", "arm64"},
	{"windows", "amd64"}, {"windows", "arm64"},
}

// manifests are files to apply, and the folders of deploy/ that are in them. ClusterSet is apart from its CRD: kubectl
// applies no object whose kind the same file brings.
var manifests = map[string][]string{
	"crds.yaml":       {"crds"},
	"hub.yaml":        {"hub"},
	"clusterset.yaml": {"hub/clusterset", "hub/controller"},
	"member.yaml":     {"member"},
	"dns-beside.yaml": {"coredns/beside"},
}

func main() {
	version := flag.String("version", "", "vMAJOR.MINOR.PATCH")
	dir := flag.String("dir", "dist", "where the release is written")
	only := flag.Bool("check", false, "only check that everything names the version")
	flag.Parse()
	r := release{version: *version, dir: *dir}
	err := r.check()
	if err == nil && !*only {
		err = r.write()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

type release struct{ version, dir string }

// check fails where the repository is not at the version: manifests by reference and the CLI name their own version.
func (r release) check() error {
	if deploy.Image(deploy.Controller, r.version) == "" {
		return fmt.Errorf("%q is no version of a release: make release VERSION=v0.1.0", r.version)
	}
	if named := deploy.Version(); named != r.version {
		return fmt.Errorf("the manifests name %s: make set-version VERSION=%s, and commit that", named, r.version)
	}
	charts, err := filepath.Glob("charts/*/Chart.yaml")
	if err != nil || len(charts) == 0 {
		return errors.Join(err, errors.New("there are no charts: run this in the root of the repository"))
	}
	for _, path := range charts {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var c struct{ Version, AppVersion string }
		if err := yaml.Unmarshal(text, &c); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if c.AppVersion != r.version || "v"+c.Version != r.version {
			return fmt.Errorf("%s has version %s and appVersion %s: make set-version VERSION=%s", path, c.Version,
				c.AppVersion, r.version)
		}
	}
	text, err := os.ReadFile("CHANGELOG.md")
	if err != nil {
		return err
	}
	if !regexp.MustCompile(`(?m)^## ` + regexp.QuoteMeta(r.version) + `\b`).Match(text) {
		return fmt.Errorf("CHANGELOG.md has no section %s: name the section Unreleased so", r.version)
	}
	return nil
}

func (r release) write() error {
	for _, step := range []func() error{r.manifests, r.charts, r.programs, r.sboms, r.images, r.checksums} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (r release) path(name ...string) string {
	return filepath.Join(append([]string{r.dir}, name...)...)
}

func (r release) manifests() error {
	for name, folders := range manifests {
		var out bytes.Buffer
		for i, folder := range folders {
			built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).
				Run(filesys.MakeFsOnDisk(), filepath.Join("deploy", folder))
			if err != nil {
				return err
			}
			text, err := built.AsYaml()
			if err != nil {
				return err
			}
			if i > 0 {
				out.WriteString("---\n")
			}
			out.Write(text)
		}
		if err := os.WriteFile(r.path(name), out.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (r release) charts() error {
	charts, err := filepath.Glob("charts/*")
	if err != nil {
		return err
	}
	return command(nil, "bin/helm", append([]string{"package", "--destination", r.dir}, charts...)...)
}

func command(env []string, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return nil
}

// programs builds the CLI, packs it, and writes the krew manifest, which names the archives by their sums.
func (r release) programs() error {
	tmp, err := os.MkdirTemp("", "release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	licence, err := os.ReadFile("LICENSE")
	if err != nil {
		return err
	}
	var packed []archive
	for _, p := range platforms {
		binary := filepath.Join(tmp, p.binary())
		if err := command([]string{"CGO_ENABLED=0", "GOOS=" + p.OS, "GOARCH=" + p.Arch}, "go", "build", "-trimpath",
			"-ldflags", "-s -w -X main.version="+r.version, "-o", binary, "./cmd/kubectl-clusterset"); err != nil {
			return err
		}
		data, err := os.ReadFile(binary)
		if err != nil {
			return err
		}
		text, err := p.pack([]entry{{p.binary(), 0o755, data}, {"LICENSE", 0o644, licence}})
		if err != nil {
			return err
		}
		a := archive{platform: p, Name: p.archive(r.version), SHA256: fmt.Sprintf("%x", sha256.Sum256(text))}
		if err := os.WriteFile(r.path(a.Name), text, 0o644); err != nil {
			return err
		}
		packed = append(packed, a)
		if p == platforms[0] {
			if err := r.sbom("kubectl-clusterset", binary); err != nil {
				return err
			}
		}
	}
	manifest, err := krew(r.version, packed)
	if err != nil {
		return err
	}
	return os.WriteFile(r.path("krew.yaml"), manifest, 0o644)
}

// archive is a packed CLI.
type archive struct {
	platform
	Name, SHA256 string
}

// Binary is what krew links.
func (a archive) Binary() string { return a.binary() }

var krewTemplate = template.Must(template.New("krew").Parse(`apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: clusterset
spec:
  version: {{ .Version }}
  homepage: {{ .Repository }}
  shortDescription: Create and operate ClusterSets
  description: |
    Connects Kubernetes clusters to a ClusterSet, in which web.shop.svc.clusterset.local answers in every member for
    a Service that any member exports (Multi-Cluster Services API). It installs the hub and the members' agents,
    explains what a name answers and why, and checks a ClusterSet.
  platforms:
{{- range .Archives }}
  - selector:
      matchLabels:
        os: {{ .OS }}
        arch: {{ .Arch }}
    uri: {{ $.Repository }}/releases/download/{{ $.Version }}/{{ .Name }}
    sha256: {{ .SHA256 }}
    bin: {{ .Binary }}
{{- end }}
`))

// krew returns the manifest for the index of kubectl's plugins.
func krew(version string, archives []archive) ([]byte, error) {
	var out bytes.Buffer
	err := krewTemplate.Execute(
		&out,
		map[string]any{"Version": version, "Repository": repository, "Archives": archives},
	)
	return out.Bytes(), err
}

// sboms writes those of the images' programs.
func (r release) sboms() error {
	for _, name := range []string{"coredns", "clusterset-controller"} {
		if err := r.sbom(name, r.path("image", "linux_amd64", name)); err != nil {
			return err
		}
	}
	return nil
}

// images moves the images' archives beside all else, because the assets of a release have no folders. It deletes the
// programs, which are in the archives.
func (r release) images() error {
	archives, err := filepath.Glob(r.path("image", "*.tar"))
	if err != nil {
		return err
	}
	for _, path := range archives {
		if err := os.Rename(path, r.path(filepath.Base(path))); err != nil {
			return err
		}
	}
	return os.RemoveAll(r.path("image"))
}

func (r release) sbom(name, binary string) error {
	text, err := sbom(name, r.version, binary)
	if err != nil {
		return fmt.Errorf("SBOM of %s: %w", name, err)
	}
	return os.WriteFile(r.path(name+".cdx.json"), text, 0o644)
}

// checksums writes SHA256SUMS, which sha256sum -c reads. It fails if there is a folder.
func (r release) checksums() error {
	files, err := os.ReadDir(r.dir)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	for _, f := range files {
		if f.Name() == "SHA256SUMS" {
			continue
		}
		data, err := os.ReadFile(r.path(f.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&out, "%x  %s\n", sha256.Sum256(data), f.Name())
	}
	return os.WriteFile(r.path("SHA256SUMS"), out.Bytes(), 0o644)
}
