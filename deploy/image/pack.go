package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// pack writes the archives of one program and returns the digest of its index.
func pack(p program, o options) (v1.Hash, error) {
	if o.version == "" {
		return v1.Hash{}, errors.New("-version is missing: it becomes the tag")
	}
	tag, err := name.NewTag(o.tag(p))
	if err != nil {
		return v1.Hash{}, fmt.Errorf("-prefix and -version do not make an image name: %q: %w", o.tag(p), err)
	}
	files, err := base(o.caCertificates)
	if err != nil {
		return v1.Hash{}, err
	}
	below, err := layer(files, o.time)
	if err != nil {
		return v1.Hash{}, err
	}
	index := mutate.Annotations(empty.Index, labels(p, o)).(v1.ImageIndex)
	for _, arch := range architectures {
		img, err := build(p, o, arch, below)
		if err != nil {
			return v1.Hash{}, err
		}
		write := func(w io.Writer) error { return tarball.Write(tag, img, w) }
		if err := create(filepath.Join(o.out, p.name+"-docker-"+arch+".tar"), write); err != nil {
			return v1.Hash{}, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        img,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}},
		})
	}
	write := func(w io.Writer) error { return writeOCI(w, index, tag, o) }
	if err := create(filepath.Join(o.out, archive(p.name)), write); err != nil {
		return v1.Hash{}, err
	}
	return index.Digest()
}

func archive(program string) string { return program + "-oci.tar" }

// build makes the image of one architecture: the layer that all have in common, and the program.
func build(p program, o options, arch string, below v1.Layer) (v1.Image, error) {
	data, err := executable(filepath.Join(o.in, "linux_"+arch, p.name), arch)
	if err != nil {
		return nil, err
	}
	above, err := layer([]file{{path: p.name, mode: 0o755, data: data, capabilities: p.capabilities}}, o.time)
	if err != nil {
		return nil, err
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err = mutate.ConfigFile(img, &v1.ConfigFile{
		OS: "linux", Architecture: arch, Created: v1.Time{Time: o.time},
		RootFS: v1.RootFS{Type: "layers"},
		Config: configuration(p, o),
	})
	if err != nil {
		return nil, err
	}
	img, err = mutate.Append(
		img,
		mutate.Addendum{
			Layer:   below,
			History: v1.History{Created: v1.Time{Time: o.time}, Comment: "CA certificates, users, /tmp"},
		},
		mutate.Addendum{Layer: above, History: v1.History{Created: v1.Time{Time: o.time}, Comment: "/" + p.name}},
	)
	if err != nil {
		return nil, err
	}
	return mutate.Annotations(img, labels(p, o)).(v1.Image), nil
}

// configuration is the stock image's, so that a Deployment needs another image name and nothing else.
func configuration(p program, o options) v1.Config {
	c := v1.Config{
		Entrypoint: []string{"/" + p.name},
		WorkingDir: "/",
		User:       strconv.Itoa(nonroot) + ":" + strconv.Itoa(nonroot),
		Env: []string{
			"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
			"SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt",
		},
		ExposedPorts: map[string]struct{}{},
		Labels:       labels(p, o),
	}
	for _, port := range p.ports {
		c.ExposedPorts[port] = struct{}{}
	}
	return c
}

func labels(p program, o options) map[string]string {
	const prefix = "org.opencontainers.image."
	l := map[string]string{
		prefix + "title":       o.prefix + "/" + p.name,
		prefix + "description": p.description,
		prefix + "version":     o.version,
		prefix + "source":      "https://github.com/clusterset-dns/clusterset-dns",
		prefix + "licenses":    "Apache-2.0",
	}
	if o.revision != "" {
		l[prefix+"revision"] = o.revision
	}
	return l
}

// writeOCI writes an OCI image layout as a tar archive. Two annotations name the image: containerd, Docker and
// Podman read the
// full name, skopeo reads the tag.
func writeOCI(w io.Writer, index v1.ImageIndex, tag name.Tag, o options) error {
	dir, err := os.MkdirTemp("", "image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	l, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	err = l.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": tag.TagStr(),
		"io.containerd.image.name":          strings.TrimPrefix(tag.Name(), "index."),
	}))
	if err != nil {
		return err
	}
	t := tar.NewWriter(w)
	add := func(path string, d fs.DirEntry, err error) error { // WalkDir goes in lexical order
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(filepath.Join(dir, path))
		if err != nil {
			return err
		}
		h := &tar.Header{
			Typeflag: tar.TypeReg,
			Name:     path,
			Mode:     0o644,
			Size:     int64(len(data)),
			ModTime:  o.time,
			Format:   tar.FormatUSTAR,
		}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		_, err = t.Write(data)
		return err
	}
	if err := fs.WalkDir(os.DirFS(dir), ".", add); err != nil {
		return err
	}
	return t.Close()
}

// create writes a file whole or not at all.
func create(path string, write func(io.Writer) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	if err := write(f); err != nil {
		return err
	}
	if err := f.Chmod(0o644); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
