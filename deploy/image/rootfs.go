package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/x509"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// nonroot is the user of the stock image; numeric in the image's configuration, because runAsNonRoot refuses names.
const nonroot = 65532

const (
	passwd = `root:x:0:0:root:/root:/sbin/nologin
nobody:x:65534:65534:nobody:/nonexistent:/sbin/nologin
nonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin
`
	group = `root:x:0:
nobody:x:65534:
nonroot:x:65532:
`
)

// file is one entry of a layer: a directory where the path ends in a slash.
type file struct {
	path         string
	mode         int64
	owner        int // uid and gid
	data         []byte
	capabilities uint64
}

// base is what the program needs beside itself (README.md says why each, and why nothing else).
func base(caCertificates string) ([]file, error) {
	pem, err := os.ReadFile(caCertificates)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf(
			"%w: install the Debian package ca-certificates, or name another bundle with -ca-certificates",
			err,
		)
	}
	if err != nil {
		return nil, err
	}
	if !x509.NewCertPool().AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf(
			"%s holds no CA certificate: run update-ca-certificates, or name another bundle with -ca-certificates",
			caCertificates,
		)
	}
	return []file{
		{path: "etc/", mode: 0o755},
		{path: "etc/group", mode: 0o644, data: []byte(group)},
		{path: "etc/passwd", mode: 0o644, data: []byte(passwd)},
		{path: "etc/ssl/", mode: 0o755},
		{path: "etc/ssl/certs/", mode: 0o755},
		{path: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, data: pem},
		{path: "home/", mode: 0o755},
		{path: "home/nonroot/", mode: 0o700, owner: nonroot},
		{path: "tmp/", mode: 0o1777},
	}, nil
}

// executable reads a program, and refuses one that cannot start in an image without libraries, on that
// architecture.
func executable(path, arch string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%w: make image compiles it", err)
	}
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("%s is no ELF program: %w", path, err)
	}
	machines := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}
	if want, known := machines[arch]; !known || f.Machine != want {
		return nil, fmt.Errorf("%s is for %s: compile it with GOARCH=%s", path, f.Machine, arch)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return nil, fmt.Errorf("%s is dynamically linked: compile it with CGO_ENABLED=0", path)
		}
	}
	return data, nil
}

// layer makes a compressed layer: the files in their order, one time, no user names, nothing of the machine that it
// is made on.
func layer(files []file, at time.Time) (v1.Layer, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		h := &tar.Header{
			Name: f.path, Typeflag: tar.TypeReg, Mode: f.mode, Size: int64(len(f.data)),
			Uid: f.owner, Gid: f.owner, ModTime: at, Format: tar.FormatPAX,
		}
		if strings.HasSuffix(f.path, "/") {
			h.Typeflag = tar.TypeDir
		}
		if f.capabilities != 0 {
			h.PAXRecords = map[string]string{capabilityRecord: vfsCapability(f.capabilities)}
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer),
		tarball.WithCompressionLevel(gzip.DefaultCompression), tarball.WithCompressedCaching)
}

// capabilityRecord is where layers carry file capabilities (OCI image layer specification, "File Attributes").
const capabilityRecord = "SCHILY.xattr.security.capability"

// vfsCapability is struct vfs_cap_data of linux/capability.h, revision 2, with the effective flag: what setcap
// NAME=+ep writes.
func vfsCapability(permitted uint64) string {
	const revision2, effective = 0x02000000, 0x1
	b := binary.LittleEndian.AppendUint32(nil, revision2|effective)
	for _, word := range []uint32{uint32(permitted), uint32(permitted >> 32)} {
		b = binary.LittleEndian.AppendUint32(b, word) // permitted
		b = binary.LittleEndian.AppendUint32(b, 0)    // inheritable
	}
	return string(b)
}
