package main

import (
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestTheReportNamesItsLog: by name, size and SHA-256, with commit and seed, and gunzip reads it.
func TestTheReportNamesItsLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "soak-2026-11-22-7.log.gz")
	tape, err := record(path, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	tape.of("faults").did("a exports %s", "shop")
	r := &results{seed: 7, raw: path, tape: tape}
	if early := r.text(); strings.Contains(early, "SHA-256") {
		t.Error("the log has a sum before its end")
	}
	if err := tape.close(); err != nil {
		t.Fatal(err)
	}
	if r.sum, r.size, err = fingerprint(path); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Version unknown, seed 7", "`soak-2026-11-22-7.log.gz`", "SHA-256 `" + r.sum + "`"} {
		if !strings.Contains(r.text(), want) {
			t.Errorf("the report lacks %q", want)
		}
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	packed, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(packed); err != nil || !strings.Contains(string(text), "a exports shop") ||
		r.size == 0 {
		t.Errorf("the log holds %q, %v", text, err)
	}
}

// TestATimelineIsInTheOrderOfTime, from its first moment on.
func TestATimelineIsInTheOrderOfTime(t *testing.T) {
	tape, err := record(filepath.Join(t.TempDir(), "log.gz"), func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	s := &stage{world: &world{tape: tape}, finds: func(f finding) { got = append(got, f.what+" "+f.seen) }}
	at := time.Now()
	s.told(
		"A",
		[]moment{
			{"gone", at.Add(50 * time.Second)},
			{"the last renewal", at},
			{"killed", at.Add(1500 * time.Millisecond)},
		},
	)
	if strings.Join(got, ", ") != "the last renewal 0.0 s, killed 1.5 s, gone 50.0 s" {
		t.Errorf("%v", got)
	}
	if err := tape.close(); err != nil {
		t.Fatal(err)
	}
}
