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
)

// Binaries are the paths of the programs.
type Binaries struct {
	Etcd, APIServer, ControllerManager, Kubectl, KubeProxy string
	Watchdog                                               string
}

// Versions of what the laboratory runs; controlplane/go.mod has them too.
const (
	KubernetesVersion = "v1.36.3"
	EtcdVersion       = "v3.6.16"
)

const buildTakes = "5 to 10 minutes on two cores, once"

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

// Find gives the programs, and builds those that are not in the cache yet. One that the folder KUBEBUILDER_ASSETS holds
// is taken from there.
func Find(ctx context.Context) (*Binaries, error) {
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
	if err := build(ctx, root, dir); err != nil {
		return nil, err
	}
	in := func(name string) string {
		if p := asset(name); p != "" {
			return p
		}
		return filepath.Join(dir, name)
	}
	return &Binaries{
		Etcd: in("etcd"), APIServer: in("kube-apiserver"), ControllerManager: in("kube-controller-manager"),
		Kubectl: in("kubectl"), KubeProxy: in("kube-proxy"), Watchdog: filepath.Join(dir, "watchdog"),
	}, nil
}

// asset is the user's own program of that name, "" if there is none.
func asset(name string) string {
	p := filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), name)
	if _, err := os.Stat(p); err != nil || !filepath.IsAbs(p) {
		return ""
	}
	return p
}

// cacheFolder is named by the versions and the content of what is built.
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
	for _, name := range []string{"controlplane/go.mod", "controlplane/go.sum", "controlplane/main.go", "watchdog/main.go"} {
		content, err := os.ReadFile(filepath.Join(root, "test", "lab", name))
		if err != nil {
			return "", err
		}
		h.Write(content)
	}
	base = filepath.Join(base, "clusterset-lab")
	return filepath.Join(
			base,
			fmt.Sprintf("%s-%s-%x", KubernetesVersion, EtcdVersion, h.Sum(nil)[:6]),
		), os.MkdirAll(
			base,
			0o755,
		)
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

// applets are the names by which the one binary of the control plane is several programs.
var applets = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kubectl", "kube-proxy"}

// build makes the folder of programs, under the lock: all of it or nothing.
func build(ctx context.Context, root, dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	tmp := dir + ".tmp"
	if err := os.RemoveAll(tmp); err != nil { // of a build that was killed
		return err
	}
	defer os.RemoveAll(tmp)
	lab := filepath.Join(root, "test", "lab")
	if err := compile(ctx, filepath.Join(lab, "watchdog"), filepath.Join(tmp, "watchdog"), "-s -w"); err != nil {
		return err
	}
	fmt.Fprintf(
		os.Stderr,
		"lab: building etcd %s and Kubernetes %s from source (%s) ...\n",
		EtcdVersion,
		KubernetesVersion,
		buildTakes,
	)
	if err := compile(
		ctx,
		filepath.Join(lab, "controlplane"),
		filepath.Join(tmp, "controlplane"),
		versionFlags(),
	); err != nil {
		return err
	}
	for _, a := range applets {
		if err := os.Symlink("controlplane", filepath.Join(tmp, a)); err != nil {
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

func compile(ctx context.Context, in, out, ldflags string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", ldflags, "-o", out, ".")
	cmd.Dir = in
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false", "GOWORK=off")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // the compilers end with it
	cmd.WaitDelay = 10 * time.Second
	if said, err := cmd.CombinedOutput(); err != nil {
		return errors.Join(ctx.Err(), fmt.Errorf("building the laboratory's %s: %w\n%s", filepath.Base(out), err, said))
	}
	return nil
}
