package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// extract writes the program that dir/NAME-oci.tar holds for arch to path, so that tests can run what users get.
func extract(dir, program, arch, path string) error {
	source := filepath.Join(dir, archive(program))
	unpacked, err := os.MkdirTemp("", "image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(unpacked)
	if err := unpack(source, unpacked); err != nil {
		return fmt.Errorf("%w: make image writes the archive", err)
	}
	img, err := imageOf(unpacked, arch)
	if err != nil {
		return fmt.Errorf("%s: %w", source, err)
	}
	layers, err := img.Layers()
	if err != nil {
		return fmt.Errorf("%s: %w", source, err)
	}
	for _, l := range slices.Backward(layers) {
		found, err := extractFrom(l, program, path)
		if err != nil || found {
			return err
		}
	}
	return fmt.Errorf("%s holds no /%s for %s", source, program, arch)
}

// unpack writes the files of a tar archive below dir, and nothing beside it.
func unpack(source, dir string) error {
	f, err := os.Open(source)
	if err != nil {
		return err
	}
	defer f.Close()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for t := tar.NewReader(f); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", source, err)
		}
		if err := root.MkdirAll(filepath.Dir(h.Name), 0o755); err != nil {
			return err
		}
		data, err := io.ReadAll(t)
		if err != nil {
			return fmt.Errorf("%s: %w", source, err)
		}
		if err := root.WriteFile(h.Name, data, 0o644); err != nil {
			return err
		}
	}
}

// imageOf finds the image of an architecture in an unpacked archive.
func imageOf(dir, arch string) (v1.Image, error) {
	outer, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, err
	}
	list, err := outer.IndexManifest()
	if err != nil {
		return nil, err
	}
	if len(list.Manifests) != 1 {
		return nil, fmt.Errorf("index.json lists %d images, want one", len(list.Manifests))
	}
	index, err := outer.ImageIndex(list.Manifests[0].Digest)
	if err != nil {
		return nil, err
	}
	manifests, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	for _, m := range manifests.Manifests {
		if m.Platform != nil && m.Platform.OS == "linux" && m.Platform.Architecture == arch {
			return index.Image(m.Digest)
		}
	}
	return nil, fmt.Errorf("no image for linux/%s", arch)
}

// extractFrom writes the file of that name to path where the layer holds it.
func extractFrom(l v1.Layer, name, path string) (found bool, err error) {
	r, err := l.Uncompressed()
	if err != nil {
		return false, err
	}
	defer r.Close()
	for t := tar.NewReader(r); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if h.Name != name {
			continue
		}
		write := func(w io.Writer) error { _, err := io.Copy(w, t); return err }
		if err := create(path, write); err != nil {
			return false, err
		}
		return true, os.Chmod(path, 0o755)
	}
}
