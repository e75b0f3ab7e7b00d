package programs

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestASetOfEnvtestIsUsedIfItIsOfThisVersion(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	set := func(version string) (dir string) {
		dir = t.TempDir()
		must(
			t,
			os.WriteFile(
				filepath.Join(dir, "kube-apiserver"),
				[]byte("#!/bin/sh\necho Kubernetes "+version+"\n"),
				0o755,
			),
		)
		must(t, os.WriteFile(filepath.Join(dir, "etcd"), nil, 0o755))
		return dir
	}
	names := []string{"etcd", "kube-apiserver", "kube-controller-manager"}
	own := set(Kubernetes)
	t.Setenv("KUBEBUILDER_ASSETS", own)
	paths, missing := installed(t.Context(), names)
	if paths["etcd"] != filepath.Join(own, "etcd") || paths["kube-apiserver"] != filepath.Join(own, "kube-apiserver") ||
		!slices.Equal(missing, names[2:]) {
		t.Errorf("of a set of this version are used %v, and %v is built", paths, missing)
	}
	t.Setenv("KUBEBUILDER_ASSETS", set("v1.20.0"))
	if paths, missing = installed(t.Context(), names); len(paths) > 0 || !slices.Equal(missing, names) {
		t.Errorf("of a set of another version are used %v, and %v is built", paths, missing)
	}
}

func TestAKubectlOfThisMinorVersionIsUsed(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("KUBEBUILDER_ASSETS", "")
	dir := t.TempDir()
	kubectl := filepath.Join(dir, "kubectl")
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	for version, used := range map[string]bool{"v" + Minor + ".0": true, "v1.20.0": false} {
		must(t, os.WriteFile(kubectl, []byte("#!/bin/sh\necho Client Version: "+version+"\n"), 0o755))
		paths, missing := installed(t.Context(), []string{"etcd", "kubectl"})
		if got := paths["kubectl"] == kubectl && !slices.Contains(missing, "kubectl"); got != used {
			t.Errorf("kubectl %s counts as installed: %v, want %v", version, got, used)
		}
	}
}

func TestBuildersTakeTurns(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := lock(t.Context(), path)
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := lock(ctx, path); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the second builder did not wait: %v", err)
	}
	unlock()
	unlock, err = lock(t.Context(), path)
	must(t, err)
	unlock()
}

func TestTheDefaultIsWhatTheModuleRequires(t *testing.T) {
	mod, err := os.ReadFile("../controlplane/go.mod")
	must(t, err)
	if want := "k8s.io/kubernetes " + own; !strings.Contains(string(mod), "require "+want+"\n") {
		t.Errorf("controlplane/go.mod does not require %s", want)
	}
}
