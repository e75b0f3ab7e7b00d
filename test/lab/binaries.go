// Package lab runs real Kubernetes control planes, etcd, kube-apiserver and kube-controller-manager, as processes on
// loopback, and CoreDNS beside them: to start, stop, kill, pause and cut off. The programs are built once, from Go
// modules, and kept in the user's cache. Whatever way this process ends, a watchdog ends what it started.
package lab

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/clusterset-dns/clusterset-dns/test/lab/gobuild"
)

// Binaries are the paths of the programs.
type Binaries struct {
	Etcd, APIServer, ControllerManager, Kubectl string
	Watchdog                                    string
}

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

// Program is one of ours: in bin, or in the folder that LAB_BIN names.
func Program(root, name string) string {
	if dir := os.Getenv("LAB_BIN"); dir != "" {
		return filepath.Join(root, dir, name)
	}
	return filepath.Join(root, "bin", name)
}

// Find gives the programs of a control plane. It builds those that no installed set of envtest and no earlier build
// has.
func Find(ctx context.Context) (*Binaries, error) {
	p, err := programs(ctx, "etcd", "kube-apiserver", "kube-controller-manager", "kubectl")
	if err != nil {
		return nil, err
	}
	return &Binaries{
		Etcd: p["etcd"], APIServer: p["kube-apiserver"], ControllerManager: p["kube-controller-manager"],
		Kubectl: p["kubectl"], Watchdog: p[watchdog],
	}, nil
}

// NodeBinaries are the paths of the programs that clusters with nodes need beside those of a control plane.
type NodeBinaries struct{ Kubelet, KubeProxy, Scheduler, Kubeadm string }

// FindNode gives the programs of nodes, and builds those that no earlier build has.
func FindNode(ctx context.Context) (*NodeBinaries, error) {
	p, err := programs(ctx, "kubelet", "kube-proxy", "kube-scheduler", "kubeadm")
	if err != nil {
		return nil, err
	}
	return &NodeBinaries{
		Kubelet: p["kubelet"], KubeProxy: p["kube-proxy"], Scheduler: p["kube-scheduler"], Kubeadm: p["kubeadm"],
	}, nil
}

// watchdog is the program without which no other one runs.
const watchdog = "watchdog"

// programs gives the paths of programs by their names, and the watchdog's. Those that have to be built become one
// binary.
func programs(ctx context.Context, names ...string) (map[string]string, error) {
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
	paths[watchdog] = filepath.Join(dir, watchdog)
	if _, err := os.Stat(paths[watchdog]); err != nil {
		if err := compile(ctx, filepath.Join(root, "test", "lab", watchdog), paths[watchdog], "-s -w"); err != nil {
			return nil, err
		}
	}
	if len(missing) > 0 {
		dir = filepath.Join(dir, strings.Join(missing, "+"))
		if err := build(ctx, root, dir, missing); err != nil {
			return nil, err
		}
	}
	for _, name := range missing {
		paths[name] = filepath.Join(dir, name)
	}
	return paths, nil
}

// installed gives the programs of the first set of envtest that is of this version of Kubernetes, and the names of
// those that it does not have: there is no kube-controller-manager in any.
func installed(ctx context.Context, names []string) (paths map[string]string, missing []string) {
	paths = map[string]string{}
	home, _ := os.UserHomeDir() // without one, no set is there
	sets, _ := filepath.Glob(filepath.Join(home, ".local/share/kubebuilder-envtest/k8s", minor+".*"))
	own := os.Getenv("KUBEBUILDER_ASSETS")
	for _, set := range append([]string{own, "/usr/local/kubebuilder/bin"}, sets...) {
		said, err := exec.CommandContext(ctx, filepath.Join(set, "kube-apiserver"), "--version").Output()
		if set == "" || err != nil || !strings.HasPrefix(string(said), "Kubernetes v"+minor+".") {
			if set == own && own != "" {
				fmt.Fprintf(os.Stderr, "lab: KUBEBUILDER_ASSETS has no kube-apiserver of Kubernetes %s, which is "+
					"built instead\n", minor)
			}
			continue
		}
		for _, name := range names {
			if p := filepath.Join(set, name); exists(p) {
				paths[name] = p
			}
		}
		break
	}
	for _, name := range names {
		if paths[name] == "" {
			missing = append(missing, name)
		}
	}
	return paths, missing
}

func exists(path string) bool {
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
	for _, name := range append(sources, filepath.Join(lab, watchdog, "main.go")) {
		content, err := os.ReadFile(name)
		if err != nil {
			return "", err
		}
		h.Write(content)
	}
	base = filepath.Join(base, "clusterset-lab")
	dir := filepath.Join(base, fmt.Sprintf("%s-%x", KubernetesVersion, h.Sum(nil)[:6]))
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

// build makes a folder of programs, under the lock: all of it or nothing.
func build(ctx context.Context, root, dir string, names []string) error {
	if exists(dir) {
		return nil
	}
	tmp := dir + ".tmp"
	if err := os.RemoveAll(tmp); err != nil { // of a build that was killed
		return err
	}
	defer os.RemoveAll(tmp)
	fmt.Fprintf(os.Stderr, "lab: building %s %s from source, once ...\n", strings.Join(names, ", "), KubernetesVersion)
	from, flags, err := module(ctx, root, filepath.Dir(dir))
	if err != nil {
		return fmt.Errorf("the module of Kubernetes %s: %w", KubernetesVersion, err)
	}
	// Each program is a file of the same name with a build tag of the same name.
	if err := compile(ctx, from, filepath.Join(tmp, "programs"), versionFlags(),
		append(flags, "-tags", strings.ReplaceAll(strings.Join(names, ","), "-", "_"))...); err != nil {
		return err
	}
	for _, name := range names {
		if err := os.Symlink("programs", filepath.Join(tmp, name)); err != nil {
			return err
		}
	}
	return os.Rename(tmp, dir)
}

// versionFlags make programs built from modules name the version that the modules are of.
func versionFlags() string {
	flags := "-s -w"
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		flags += fmt.Sprintf(
			" -X %[1]s.gitVersion=%[2]s -X %[1]s.gitMajor=1 -X %[1]s.gitMinor=%[3]s -X %[1]s.gitTreeState=clean",
			pkg,
			KubernetesVersion,
			strings.Split(KubernetesVersion, ".")[1],
		)
	}
	return flags
}

func compile(ctx context.Context, in, out, ldflags string, flags ...string) error {
	args := append([]string{"-trimpath", "-ldflags", ldflags, "-o", out}, flags...)
	err := gobuild.Run(
		ctx,
		in,
		[]string{"CGO_ENABLED=0", "GOFLAGS=-buildvcs=false", "GOWORK=off"},
		append(args, ".")...)
	if err != nil {
		return fmt.Errorf("building the laboratory's %s failed: %w", filepath.Base(out), err)
	}
	return nil
}
