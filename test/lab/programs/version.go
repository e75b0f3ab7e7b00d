package programs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// own is the version of Kubernetes that controlplane/go.mod requires.
const own = "v1.37.2"

// Kubernetes is the version of all programs of Kubernetes that the laboratory runs: K8S in the environment, for example
// v1.32.13, or the one that its module requires.
var Kubernetes = cmp.Or(os.Getenv("K8S"), own)

// Minor is the version without patch, as the folders of envtest have it.
var Minor = strings.Join(strings.Split(strings.TrimPrefix(Kubernetes, "v"), ".")[:2], ".")

// module gives the folder of the module from which the programs are built, and flags of go build. For another version
// than own it is made in dir, and requires what that version's own go.mod does, etcd included.
func module(ctx context.Context, root, dir string) (folder string, flags []string, err error) {
	lab := filepath.Join(root, "test", "lab", "controlplane")
	if Kubernetes == own {
		return lab, nil, nil
	}
	minorOf, ok := strings.CutPrefix(Kubernetes, "v1.")
	if !ok {
		return "", nil, fmt.Errorf("K8S is %q: set it to a version like %s", Kubernetes, own)
	}
	files, err := filepath.Glob(filepath.Join(lab, "*.go"))
	if err != nil {
		return "", nil, err
	}
	made := filepath.Join(dir, "module")
	if err := os.MkdirAll(made, 0o755); err != nil {
		return "", nil, err
	}
	for _, file := range files {
		if err := copyFile(file, filepath.Join(made, filepath.Base(file))); err != nil {
			return "", nil, err
		}
	}
	var upstream struct{ GoMod string }
	if err := goJSON(
		ctx,
		made,
		&upstream,
		"mod",
		"download",
		"-json",
		"k8s.io/kubernetes@"+Kubernetes,
	); err != nil {
		return "", nil, err
	}
	if err := copyFile(upstream.GoMod, filepath.Join(made, "go.mod")); err != nil {
		return "", nil, err
	}
	var mod struct {
		Replace []struct{ Old struct{ Path string } }
	}
	if err := goJSON(ctx, made, &mod, "mod", "edit", "-json"); err != nil {
		return "", nil, err
	}
	const kubernetes = "k8s.io/kubernetes"
	edit := []string{
		"mod", "edit", "-module=controlplane", "-require=" + kubernetes + "@" + Kubernetes,
		// Else a package that this version lacks would bring a newer version instead of an error.
		"-replace=" + kubernetes + "=" + kubernetes + "@" + Kubernetes,
	}
	for _, r := range mod.Replace { // what upstream has in one repository is published as modules of version 0
		path := r.Old.Path
		if example, ok := strings.CutPrefix(path, "k8s.io/sample-"); ok { // nobody imports it
			empty := filepath.Join(made, "examples", example)
			if err := os.MkdirAll(empty, 0o755); err != nil {
				return "", nil, err
			}
			if err := os.WriteFile(filepath.Join(empty, "go.mod"), []byte("module "+path+"\n"), 0o644); err != nil {
				return "", nil, err
			}
			edit = append(edit, "-replace="+path+"=./examples/"+example)
			continue
		}
		edit = append(edit, fmt.Sprintf("-replace=%[1]s=%[1]s@v0.%[2]s", path, minorOf))
	}
	return made, []string{"-mod=mod"}, goJSON(ctx, made, nil, edit...)
}

func copyFile(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o644)
}

// goJSON runs go in a folder, and reads what it prints into out unless that is nil.
func goJSON(ctx context.Context, dir string, out any, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	printed, err := cmd.Output()
	if err != nil {
		said := string(printed) // go mod download -json has its error there
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			said += string(exit.Stderr)
		}
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args[:2], " "), err, said)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(printed, out)
}
