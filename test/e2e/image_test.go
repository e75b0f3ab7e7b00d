package e2e

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
)

// image is a container image of one layer, made from files of this machine.
type image struct {
	tags       []string
	entrypoint []string
	command    []string
	files      map[string]string // path in the image → path here
	links      map[string]string // path in the image → target
}

// write makes a docker archive of it.
func (i image) write(path string) error {
	var layer bytes.Buffer
	t := tar.NewWriter(&layer)
	err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777})
	for to, from := range i.files {
		data, readErr := os.ReadFile(from)
		err = errors.Join(err, readErr, add(t, to, data, 0o755))
	}
	for name, target := range i.links {
		err = errors.Join(err, t.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target}))
	}
	if err := errors.Join(err, t.Close()); err != nil {
		return err
	}
	config, err := json.Marshal(map[string]any{
		"architecture": architecture, "os": "linux",
		"config": map[string]any{
			"Env":        []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"},
			"Entrypoint": i.entrypoint, "Cmd": i.command,
		},
		"rootfs": map[string]any{
			"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer.Bytes()))},
		},
		"history": []any{map[string]string{"created_by": "test/e2e"}},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal([]any{map[string]any{
		"Config": "config.json", "RepoTags": i.tags, "Layers": []string{"layer.tar"},
	}})
	if err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	a := tar.NewWriter(f)
	return errors.Join(add(a, "manifest.json", manifest, 0o644), add(a, "config.json", config, 0o644),
		add(a, "layer.tar", layer.Bytes(), 0o644), a.Close())
}

func add(t *tar.Writer, name string, data []byte, mode int64) error {
	err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(data)), Mode: mode})
	if err != nil {
		return err
	}
	_, err = t.Write(data)
	return err
}

var library = regexp.MustCompile(`(?m)(/\S+) \(0x`)

// withProgram adds a program of this machine and the libraries that it is linked with.
func (i image) withProgram(name string) error {
	path, err := exec.LookPath(name)
	if err != nil {
		return err
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return err
	}
	i.files["usr/bin/"+name] = path
	said, _ := exec.Command("ldd", path).Output() // of a static program there is nothing to say
	for _, m := range library.FindAllSubmatch(said, -1) {
		i.files[string(m[1][1:])] = string(m[1])
	}
	return nil
}

// tagOf reads the name of the image in a docker archive.
func tagOf(archive string) (string, error) {
	f, err := os.Open(archive)
	if err != nil {
		return "", err
	}
	defer f.Close()
	for t := tar.NewReader(f); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return "", fmt.Errorf("%s has no manifest.json", archive)
		}
		if err != nil {
			return "", fmt.Errorf("%s: %w", archive, err)
		}
		if h.Name != "manifest.json" {
			continue
		}
		var manifest []struct{ RepoTags []string }
		if err := json.NewDecoder(t).Decode(&manifest); err != nil {
			return "", fmt.Errorf("%s: %w", archive, err)
		}
		if len(manifest) != 1 || len(manifest[0].RepoTags) != 1 {
			return "", fmt.Errorf("%s has not one image of one name", archive)
		}
		return manifest[0].RepoTags[0], nil
	}
}
