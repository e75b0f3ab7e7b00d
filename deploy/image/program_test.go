package main

import (
	"archive/tar"
	"bytes"
	"debug/buildinfo"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

func TestExtractGivesTheProgramThatWasPacked(t *testing.T) {
	machines := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}
	for arch, machine := range machines {
		t.Run(arch, func(t *testing.T) {
			path := extracted(t, arch)
			got, err := os.ReadFile(path)
			must(t, err)
			want, err := os.ReadFile(filepath.Join(subject.in, "linux_"+arch, "coredns"))
			must(t, err)
			if !bytes.Equal(got, want) {
				t.Error("the program in the archive is another one")
			}
			f, err := elf.Open(path)
			must(t, err)
			defer f.Close()
			equal(t, "machine", f.Machine, machine)
			if slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
				t.Error("dynamically linked: there is no library in the image")
			}
			info, err := buildinfo.ReadFile(path)
			must(t, err)
			settings := map[string]string{}
			for _, s := range info.Settings {
				settings[s.Key] = s.Value
			}
			equal(t, "GOARCH", settings["GOARCH"], arch)
			equal(t, "CGO_ENABLED", settings["CGO_ENABLED"], "0")
			equal(t, "-trimpath", settings["-trimpath"], "true")
			if ours {
				checkOurs(t, info, got)
			}
		})
	}
}

// checkOurs looks at a CoreDNS that may not run here: another architecture's.
func checkOurs(t *testing.T, info *buildinfo.BuildInfo, program []byte) {
	t.Helper()
	equal(t, "main package", info.Path, "github.com/clusterset-dns/clusterset-dns/cmd/coredns")
	if !bytes.Contains(program, []byte("clusterset-dns/plugin/multicluster.setup")) {
		t.Error("the multicluster plugin is not linked in")
	}
	if !bytes.Contains(program, []byte("time/tzdata.")) {
		t.Error("time/tzdata is not linked in: the stock image has time zones, and view expressions can name them")
	}
}

func TestExtractedProgramRuns(t *testing.T) {
	path := extracted(t, runtime.GOARCH)
	version := output(t, path, "-version")
	if !ours {
		equal(t, "arguments", version, "2\n") // the dummy counts its arguments
		return
	}
	if !strings.HasPrefix(version, "CoreDNS-") || !strings.Contains(version, subject.version) {
		t.Errorf("-version: %q, want CoreDNS's and ours, %s", version, subject.version)
	}
	plugins := strings.Fields(output(t, path, "-plugins"))
	for _, p := range []string{"multicluster", "kubernetes", "forward", "cache", "route53"} {
		if !slices.Contains(plugins, p) {
			t.Errorf("-plugins does not list %s", p)
		}
	}
}

func TestWhatCannotStartInTheImageIsRefused(t *testing.T) {
	dir := t.TempDir()
	good := filepath.Join(subject.in, "linux_amd64", "coredns")
	script := filepath.Join(dir, "script")
	must(t, os.WriteFile(script, []byte("#!/bin/sh\n"), 0o755))
	dynamic := filepath.Join(dir, "dynamic")
	must(t, os.WriteFile(dynamic, withInterpreter(t, good), 0o755))

	for _, c := range []struct{ name, path, arch, want string }{
		{"absent", filepath.Join(dir, "absent"), "amd64", "make image compiles it"},
		{"script", script, "amd64", "no ELF program"},
		{"other architecture", good, "arm64", "compile it with GOARCH=arm64"},
		{"unknown architecture", good, "mips", "compile it with GOARCH=mips"},
		{"dynamically linked", dynamic, "amd64", "compile it with CGO_ENABLED=0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := executable(c.path, c.arch)
			refused(t, err, c.want)
		})
	}
}

func TestOptionsAreRefusedWithWhatToDo(t *testing.T) {
	notPEM := filepath.Join(t.TempDir(), "empty.crt")
	must(t, os.WriteFile(notPEM, nil, 0o644))
	change := func(edit func(*options)) options {
		o := subject
		o.out = t.TempDir()
		edit(&o)
		return o
	}
	for _, c := range []struct {
		name, want string
		o          options
	}{
		{"version", "-version do not make an image name", change(func(o *options) { o.version = "v1+2" })},
		{"no version", "-version is missing", change(func(o *options) { o.version = "" })},
		{"prefix", "-prefix and", change(func(o *options) { o.prefix = "Clusterset DNS" })},
		{"no CA certificates", "package ca-certificates", change(func(o *options) {
			o.caCertificates = "/nonexistent.crt"
		})},
		{"empty CA certificates", "update-ca-certificates", change(func(o *options) { o.caCertificates = notPEM })},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := pack(programs[0], c.o)
			refused(t, err, c.want)
		})
	}
	for _, epoch := range []string{"-1", "yesterday", "99999999999"} {
		_, err := sourceDate(epoch)
		refused(t, err, "SOURCE_DATE_EPOCH="+epoch)
	}
	refused(t, run([]string{"-version", "v1"}), "-dir is missing")
	refused(t, run([]string{"-dir", subject.in, "unpack"}), "unknown arguments")
	refused(t, extract(subject.out, "coredns", "mips", notPEM), "no image for linux/mips")
	refused(t, extract(subject.out, "nothing", "amd64", notPEM), "make image writes the archive")
}

func TestArchiveCannotWriteOutsideItsDirectory(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "evil.tar")
	must(t, os.WriteFile(path, tarOf(t, "../escaped"), 0o644))
	inner := filepath.Join(dir, "inner")
	must(t, os.Mkdir(inner, 0o755))
	if err := unpack(path, inner); err == nil {
		t.Error("unpacked ../escaped without an error")
	}
	if _, err := os.Stat(filepath.Join(dir, "escaped")); err == nil {
		t.Error("wrote ../escaped")
	}
}

// extracted runs the command line that other tests use.
func extracted(t *testing.T, arch string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "coredns")
	must(t, run([]string{"-dir", subject.out, "extract", "coredns", arch, path}))
	return path
}

func output(t *testing.T, path, arg string) string {
	t.Helper()
	out, err := exec.Command(path, arg).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", arg, err, out)
	}
	return string(out)
}

// withInterpreter makes a program look dynamically linked: its last program header becomes PT_INTERP.
func withInterpreter(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	const offset, size, count = 0x20, 0x36, 0x38 // e_phoff, e_phentsize, e_phnum of an ELF64 header
	at := int(data[offset]) + int(data[size])*(int(data[count])-1)
	copy(data[at:], []byte{byte(elf.PT_INTERP), 0, 0, 0})
	return data
}

func refused(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want one that says %q", err, want)
	}
}

func tarOf(t *testing.T, name string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	must(t, w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644}))
	must(t, w.Close())
	return b.Bytes()
}
