// Package programs finds the programs of Kubernetes that the laboratory runs. Those that are not installed are built
// once, from Go modules, and kept in the user's cache. It imports little, since it is compiled before all else.
package programs

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/clusterset-dns/clusterset-dns/test/lab/gobuild"
)

// Root is the checkout: the folder at or above the working directory that has the laboratory's module.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "test", "lab", "controlplane", "go.mod")); err == nil {
			return dir, nil
		}
		if filepath.Dir(dir) == dir {
			return "", errors.New("the laboratory is built from its sources: run this in a checkout of clusterset-dns")
		}
		dir = filepath.Dir(dir)
	}
}

// Watchdog is the program without which no other one runs.
const Watchdog = "watchdog"

// ControlPlane names the programs of a control plane.
var ControlPlane = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kubectl"}

// Find returns the paths of programs by their names, and the watchdog's. Those that have to be built become one binary.
// It runs others, builds of something else, before those.
func Find(ctx context.Context, names []string, others ...gobuild.Build) (map[string]string, error) {
	root, err := Root()
	if err != nil {
		return nil, err
	}
	dir, err := cacheFolder(root)
	if err != nil {
		return nil, err
	}
	unlock, err := lock(ctx, dir+".lock")
	if err != nil {
		return nil, err
	}
	defer unlock()
	paths, missing := installed(ctx, names)
	paths[Watchdog] = filepath.Join(dir, Watchdog)
	builds := others
	if !Exists(paths[Watchdog]) {
		builds = append(builds, program(filepath.Join(root, "test", "lab", Watchdog), paths[Watchdog], "-s -w"))
	}
	folder := filepath.Join(dir, strings.Join(missing, "+"))
	tmp := folder + ".tmp"
	stale := len(missing) > 0 && !Exists(folder)
	if stale {
		fmt.Fprintf(os.Stderr, "lab: building %s %s from source, once ...\n", strings.Join(missing, ", "), Kubernetes)
		if err := os.RemoveAll(tmp); err != nil { // of a build that was killed
			return nil, err
		}
		defer os.RemoveAll(tmp)
		from, flags, err := module(ctx, root, dir)
		if err != nil {
			return nil, fmt.Errorf("the module of Kubernetes %s: %w", Kubernetes, err)
		}
		// Each program is a file of the same name with a build tag of the same name.
		tags := strings.ReplaceAll(strings.Join(missing, ","), "-", "_")
		builds = append(builds,
			program(from, filepath.Join(tmp, "programs"), versionFlags(), append(flags, "-tags", tags)...))
	}
	if err := gobuild.Run(ctx, builds...); err != nil {
		return nil, fmt.Errorf("building the laboratory failed: %w", err)
	}
	for _, name := range missing {
		paths[name] = filepath.Join(folder, name)
		if stale {
			if err := os.Symlink("programs", filepath.Join(tmp, name)); err != nil {
				return nil, err
			}
		}
	}
	if stale { // all of it or nothing
		return paths, os.Rename(tmp, folder)
	}
	return paths, nil
}

// installed gives the programs of the first set of envtest that is of this version of Kubernetes, the user's own
// kubectl if that is, and the names of the others: there is no kube-controller-manager in any set.
func installed(ctx context.Context, names []string) (paths map[string]string, missing []string) {
	paths = map[string]string{}
	home, _ := os.UserHomeDir() // without one, no set is there
	sets, _ := filepath.Glob(filepath.Join(home, ".local/share/kubebuilder-envtest/k8s", Minor+".*"))
	own := os.Getenv("KUBEBUILDER_ASSETS")
	for _, set := range append([]string{own, "/usr/local/kubebuilder/bin"}, sets...) {
		said, err := exec.CommandContext(ctx, filepath.Join(set, "kube-apiserver"), "--version").Output()
		if set == "" || err != nil || !strings.HasPrefix(string(said), "Kubernetes v"+Minor+".") {
			if set == own && own != "" {
				fmt.Fprintf(os.Stderr, "lab: KUBEBUILDER_ASSETS has no kube-apiserver of Kubernetes %s: "+
					"nothing in that folder is used\n", Minor)
			}
			continue
		}
		for _, name := range names {
			if p := filepath.Join(set, name); Exists(p) {
				paths[name] = p
			}
		}
		break
	}
	if paths["kubectl"] == "" && slices.Contains(names, "kubectl") {
		said, err := exec.CommandContext(ctx, "kubectl", "version", "--client").Output()
		if err == nil && strings.Contains(string(said), "Client Version: v"+Minor+".") {
			paths["kubectl"], _ = exec.LookPath("kubectl")
		}
	}
	for _, name := range names {
		if paths[name] == "" {
			missing = append(missing, name)
		}
	}
	return paths, missing
}

// Exists returns whether a path leads to something.
func Exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// cacheFolder is named by the version and the content of what is built.
func cacheFolder(root string) (string, error) {
	base := os.Getenv("XDG_CACHE_HOME")
	if base == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("set HOME or XDG_CACHE_HOME to keep the laboratory's programs: %w", err)
		}
		base = filepath.Join(home, ".cache")
	}
	h := sha256.New()
	lab := filepath.Join(root, "test", "lab")
	sources, err := filepath.Glob(filepath.Join(lab, "controlplane", "*"))
	if err != nil {
		return "", err
	}
	for _, name := range append(sources, filepath.Join(lab, Watchdog, "main.go")) {
		content, err := os.ReadFile(name)
		if err != nil {
			return "", err
		}
		h.Write(content)
	}
	base = filepath.Join(base, "clusterset-lab")
	dir := filepath.Join(base, fmt.Sprintf("%s-%x", Kubernetes, h.Sum(nil)[:6]))
	return dir, os.MkdirAll(dir, 0o755)
}

// lock makes processes that build at the same time take turns. It ends with the process.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	waiting := false
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if !waiting {
			waiting = true
			fmt.Fprintln(os.Stderr, "lab: waiting for another process that builds the laboratory ...")
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			f.Close()
			return nil, ctx.Err()
		}
	}
}

// versionFlags make programs built from modules name the version that the modules are of.
func versionFlags() string {
	flags := "-s -w"
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		flags += fmt.Sprintf(
			" -X %[1]s.gitVersion=%[2]s -X %[1]s.gitMajor=1 -X %[1]s.gitMinor=%[3]s -X %[1]s.gitTreeState=clean",
			pkg,
			Kubernetes,
			strings.Split(Kubernetes, ".")[1],
		)
	}
	return flags
}

// program is the build of one in the folder in.
func program(in, out, ldflags string, flags ...string) gobuild.Build {
	return gobuild.Build{
		Dir: in, Env: []string{"CGO_ENABLED=0", "GOFLAGS=-buildvcs=false", "GOWORK=off"},
		Args: append(append([]string{"-trimpath", "-ldflags", ldflags, "-o", out}, flags...), "."),
	}
}
