package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// subject is what the tests look at: the archives in IMAGE_DIR that make image wrote, else archives of dummy
// programs.
var subject options

// ours tells that the programs are ours.
var ours = os.Getenv("IMAGE_DIR") != ""

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "image-test-")
		if err == nil {
			defer os.RemoveAll(dir)
			err = prepare(dir)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}

func prepare(dir string) error {
	subject = options{
		in: dir, out: dir, prefix: "ghcr.io/clusterset-dns", version: "v0-test", revision: "0123abc",
		caCertificates: hostBundle(),
	}
	if ours {
		subject.in = os.Getenv("IMAGE_DIR")
		subject.out = subject.in
		return readSubject()
	}
	subject.time = time.Unix(1e9, 0).UTC() // not 0, which a forgotten time would be
	for _, arch := range architectures {
		for _, p := range programs {
			if err := compile(arch, filepath.Join(dir, "linux_"+arch, p.name)); err != nil {
				return err
			}
		}
	}
	for _, p := range programs {
		if _, err := pack(p, subject); err != nil {
			return err
		}
	}
	return nil
}

// readSubject takes the version and the revision from what is there: the tests ask that they stand in the right
// places.
func readSubject() error {
	var err error
	if subject.time, err = sourceDate(os.Getenv("SOURCE_DATE_EPOCH")); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "image-test-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := unpack(filepath.Join(subject.out, "coredns-oci.tar"), dir); err != nil {
		return fmt.Errorf("%w: make image writes it", err)
	}
	img, err := imageOf(dir, "amd64")
	if err != nil {
		return err
	}
	c, err := img.ConfigFile()
	if err != nil {
		return err
	}
	subject.version = c.Config.Labels["org.opencontainers.image.version"]
	subject.revision = c.Config.Labels["org.opencontainers.image.revision"]
	return nil
}

func compile(arch, path string) error {
	cmd := exec.Command(
		"go",
		"build",
		"-trimpath",
		"-buildvcs=false",
		"-ldflags",
		"-s -w",
		"-o",
		path,
		"./testdata/dummy",
	)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

func TestOCIArchiveIsValidAndNamed(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(subject.out, "coredns-oci.tar")
	must(t, unpack(path, dir))
	f, err := os.Open(path)
	must(t, err)
	defer f.Close()
	for _, h := range entries(t, f) {
		if !h.ModTime.Equal(subject.time) || h.Uid != 0 || h.Gid != 0 {
			t.Errorf("%s: time %s, owner %d:%d: want %s and 0:0", h.Name, h.ModTime, h.Uid, h.Gid, subject.time)
		}
	}
	outer, err := layout.ImageIndexFromPath(dir)
	must(t, err)
	must(t, validate.Index(outer))
	list, err := outer.IndexManifest()
	must(t, err)
	if len(list.Manifests) != 1 {
		t.Fatalf("index.json lists %d images, want one", len(list.Manifests))
	}
	equal(t, "annotations", list.Manifests[0].Annotations, map[string]string{
		"org.opencontainers.image.ref.name": subject.version,
		"io.containerd.image.name":          "ghcr.io/clusterset-dns/coredns:" + subject.version,
	})
	index, err := outer.ImageIndex(list.Manifests[0].Digest)
	must(t, err)
	manifests, err := index.IndexManifest()
	must(t, err)
	var platforms []string
	for _, m := range manifests.Manifests {
		platforms = append(platforms, m.Platform.String())
	}
	equal(t, "platforms", platforms, []string{"linux/amd64", "linux/arm64"})
}

func TestDockerArchivesHoldTheSameImages(t *testing.T) {
	forEachArchitecture(t, func(t *testing.T, arch string, oci v1.Image) {
		path := filepath.Join(subject.out, "coredns-docker-"+arch+".tar")
		open := func() (io.ReadCloser, error) { return os.Open(path) }
		list, err := tarball.LoadManifest(open)
		must(t, err)
		if len(list) != 1 {
			t.Fatalf("manifest.json lists %d images, want one", len(list))
		}
		equal(t, "tags", list[0].RepoTags, []string{"ghcr.io/clusterset-dns/coredns:" + subject.version})
		tag, err := name.NewTag(list[0].RepoTags[0])
		must(t, err)
		img, err := tarball.ImageFromPath(path, &tag)
		must(t, err)
		must(t, validate.Image(img))
		got, err := img.ConfigName()
		must(t, err)
		want, err := oci.ConfigName()
		must(t, err)
		equal(t, "image id", got, want)
	})
}

func TestConfigurationIsThatOfTheStockImage(t *testing.T) {
	forEachArchitecture(t, func(t *testing.T, arch string, img v1.Image) {
		c, err := img.ConfigFile()
		must(t, err)
		equal(t, "platform", c.OS+"/"+c.Architecture, "linux/"+arch)
		equal(t, "created", c.Created.UTC(), subject.time)
		labels := map[string]string{
			"org.opencontainers.image.title":       "ghcr.io/clusterset-dns/coredns",
			"org.opencontainers.image.description": programs[0].description,
			"org.opencontainers.image.version":     subject.version,
			"org.opencontainers.image.revision":    subject.revision,
			"org.opencontainers.image.source":      "https://github.com/clusterset-dns/clusterset-dns",
			"org.opencontainers.image.licenses":    "Apache-2.0",
		}
		if subject.revision == "" {
			delete(labels, "org.opencontainers.image.revision")
		}
		equal(t, "configuration", c.Config, v1.Config{
			Entrypoint:   []string{"/coredns"},
			WorkingDir:   "/",
			User:         "65532:65532",
			ExposedPorts: map[string]struct{}{"53/tcp": {}, "53/udp": {}},
			Env: []string{
				"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
				"SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt",
			},
			Labels: labels,
		})
		m, err := img.Manifest()
		must(t, err)
		equal(t, "annotations", m.Annotations, labels)
	})
}

func TestFilesAreTheseAndNoOthers(t *testing.T) {
	forEachArchitecture(t, func(t *testing.T, arch string, img v1.Image) {
		var got []string
		for _, f := range contents(t, img) {
			if !f.ModTime.Equal(subject.time) || f.Uname != "" || f.Gname != "" {
				t.Errorf(
					"%s: time %s, user %q, group %q: want %s and no names",
					f.Name,
					f.ModTime,
					f.Uname,
					f.Gname,
					subject.time,
				)
			}
			got = append(got, fmt.Sprintf("%o %d:%d /%s", f.Mode, f.Uid, f.Gid, f.Name))
		}
		equal(t, "files", got, []string{
			"755 0:0 /etc/",
			"644 0:0 /etc/group",
			"644 0:0 /etc/passwd",
			"755 0:0 /etc/ssl/",
			"755 0:0 /etc/ssl/certs/",
			"644 0:0 /etc/ssl/certs/ca-certificates.crt",
			"755 0:0 /home/",
			"700 65532:65532 /home/nonroot/",
			"1777 0:0 /tmp/",
			"755 0:0 /coredns",
		})
	})
}

func TestOnlyTheProgramMayBindPort53(t *testing.T) {
	forEachArchitecture(t, func(t *testing.T, arch string, img v1.Image) {
		for _, f := range contents(t, img) {
			var xattrs map[string]string
			for k, v := range f.PAXRecords {
				if strings.HasPrefix(k, "SCHILY.xattr.") {
					xattrs = map[string]string{k: v}
				}
			}
			var want map[string]string
			if f.Name == "coredns" { // what "setcap cap_net_bind_service=+ep" writes, read back with getfattr
				want = map[string]string{
					"SCHILY.xattr.security.capability": "\x01\x00\x00\x02\x00\x04" + strings.Repeat("\x00", 14),
				}
			}
			equal(t, f.Name, xattrs, want)
		}
	})
}

func TestUserHasANameAndCACertificatesParse(t *testing.T) {
	forEachArchitecture(t, func(t *testing.T, arch string, img v1.Image) {
		for _, f := range contents(t, img) {
			switch f.Name {
			case "etc/passwd":
				if !strings.Contains(string(f.data), "\nnonroot:x:65532:65532:nonroot:/home/nonroot:") {
					t.Errorf("/etc/passwd has no nonroot: %s", f.data)
				}
			case "etc/ssl/certs/ca-certificates.crt":
				checkCertificates(t, f.data)
			}
		}
	})
}

func TestImagesStaySmall(t *testing.T) {
	limit := int64(4 << 20) // dummies: mostly CA certificates
	if ours {
		limit = 30 << 20
	}
	forEachArchitecture(t, func(t *testing.T, arch string, img v1.Image) {
		m, err := img.Manifest()
		must(t, err)
		size := m.Config.Size
		for _, l := range m.Layers {
			size += l.Size
		}
		t.Logf("%.1f MiB compressed", float64(size)/(1<<20))
		if size > limit {
			t.Errorf(
				"%d bytes compressed, want at most %d: find out what came in, or raise the limit on purpose",
				size,
				limit,
			)
		}
	})
}

func TestSameInputMakesTheSameArchives(t *testing.T) {
	again := subject
	again.out = t.TempDir()
	_, err := pack(programs[0], again)
	must(t, err)
	equal(t, "archives", sums(t, again.out), sums(t, subject.out))
}

type content struct {
	*tar.Header
	data []byte
}

// contents are the entries of all layers in their order.
func contents(t *testing.T, img v1.Image) []content {
	t.Helper()
	layers, err := img.Layers()
	must(t, err)
	var all []content
	for _, l := range layers {
		r, err := l.Uncompressed()
		must(t, err)
		defer r.Close()
		all = append(all, entries(t, r)...)
	}
	return all
}

func entries(t *testing.T, r io.Reader) (all []content) {
	t.Helper()
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		must(t, err)
		data, err := io.ReadAll(tr)
		must(t, err)
		all = append(all, content{h, data})
	}
}

// checkCertificates wants a bundle in which every block is a certificate.
func checkCertificates(t *testing.T, data []byte) {
	t.Helper()
	n := 0
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			t.Errorf("certificate %d: %v", n, err)
		}
		n++
	}
	if lines := bytes.Count(data, []byte("-----BEGIN ")); n != lines || n < 100 {
		t.Errorf("%d certificates of %d blocks parse, want all, and at least 100", n, lines)
	}
}

func forEachArchitecture(t *testing.T, check func(t *testing.T, arch string, img v1.Image)) {
	t.Helper()
	dir := t.TempDir()
	must(t, unpack(filepath.Join(subject.out, "coredns-oci.tar"), dir))
	for _, arch := range []string{"amd64", "arm64"} {
		t.Run(arch, func(t *testing.T) {
			img, err := imageOf(dir, arch)
			must(t, err)
			check(t, arch, img)
		})
	}
}

// TestEveryProgramHasItsImage: the other programs' images differ from coredns' in what the list says of them, and
// in nothing else: the
// same user, the entry point of their own, no capabilities.
func TestEveryProgramHasItsImage(t *testing.T) {
	for _, p := range programs[1:] {
		dir := t.TempDir()
		must(t, unpack(filepath.Join(subject.out, archive(p.name)), dir))
		for _, arch := range architectures {
			img, err := imageOf(dir, arch)
			must(t, err)
			cfg, err := img.ConfigFile()
			must(t, err)
			equal(t, p.name+" configuration", cfg.Config, configuration(p, subject))
			equal(t, p.name+" entry point", cfg.Config.Entrypoint, []string{"/" + p.name})
			equal(t, p.name+" user", cfg.Config.User, "65532:65532")
			equal(t, p.name+" architecture", cfg.Architecture, arch)
		}
	}
}

// sums are the digests of the archives in a directory.
func sums(t *testing.T, dir string) map[string]string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "coredns-*.tar"))
	must(t, err)
	all := map[string]string{}
	for _, p := range paths {
		data, err := os.ReadFile(p)
		must(t, err)
		all[filepath.Base(p)] = fmt.Sprintf("%x", sha256.Sum256(data))
	}
	if want := []string{
		"coredns-docker-amd64.tar",
		"coredns-docker-arm64.tar",
		"coredns-oci.tar",
	}; !slices.Equal(
		slices.Sorted(maps.Keys(all)),
		want,
	) {
		t.Fatalf("%s holds %v, want %v", dir, slices.Sorted(maps.Keys(all)), want)
	}
	return all
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func equal[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s:\n got %v\nwant %v", what, got, want)
	}
}
