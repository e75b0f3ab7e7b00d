package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"time"
)

type platform struct{ OS, Arch string }

func (p platform) binary() string {
	if p.OS == "windows" {
		return "kubectl-clusterset.exe"
	}
	return "kubectl-clusterset"
}

func (p platform) archive(version string) string {
	name := "kubectl-clusterset_" + version + "_" + p.OS + "_" + p.Arch
	if p.OS == "windows" {
		return name + ".zip"
	}
	return name + ".tar.gz"
}

type entry struct {
	name string
	mode int64
	data []byte
}

// epoch is the time of all entries: the same input gives the same bytes. Zip has no earlier one.
var epoch = time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)

// pack returns an archive as each platform's users unpack it.
func (p platform) pack(entries []entry) ([]byte, error) {
	if p.OS == "windows" {
		return packZip(entries)
	}
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	t := tar.NewWriter(z)
	for _, e := range entries {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: e.name, Mode: e.mode, Size: int64(len(e.data)), ModTime: epoch}
		if err := t.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := t.Write(e.data); err != nil {
			return nil, err
		}
	}
	if err := t.Close(); err != nil {
		return nil, err
	}
	err := z.Close()
	return out.Bytes(), err
}

func packZip(entries []entry) ([]byte, error) {
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	for _, e := range entries {
		w, err := z.CreateHeader(&zip.FileHeader{Name: e.name, Method: zip.Deflate, Modified: epoch})
		if err != nil {
			return nil, err
		}
		if _, err := w.Write(e.data); err != nil {
			return nil, err
		}
	}
	err := z.Close()
	return out.Bytes(), err
}
