package main

import (
	"bufio"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// clock is how times are written.
const clock = "15:04:05.000"

// tape keeps everything that happens in one part of the run, beside others.
type tape struct {
	*reel
	part string
}

// reel is what all tapes write to, in the order of time, with what was wrong.
type reel struct {
	mu       sync.Mutex
	file     *os.File
	packed   *gzip.Writer
	out      *bufio.Writer
	began    time.Time
	say      func(string) // what a person who waits wants to know
	failures []string
	changes  int
}

// record writes to a file that gunzip reads.
func record(path string, say func(string)) (*tape, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	packed := gzip.NewWriter(f)
	return &tape{
		reel: &reel{file: f, packed: packed, out: bufio.NewWriter(packed), began: time.Now(), say: say},
	}, nil
}

// of is a tape for a part.
func (t *tape) of(part string) *tape { return &tape{t.reel, part} }

func (t *tape) line(kind, format string, args ...any) string {
	text := fmt.Sprintf(format, args...)
	t.mu.Lock()
	defer t.mu.Unlock()
	_, _ = fmt.Fprintf(
		t.out,
		"%s %-9s %-7s %s\n",
		time.Now().Format(clock),
		t.part,
		kind,
		text,
	) // Close tells of errors
	return text
}

// did is an ordinary change.
func (t *tape) did(format string, args ...any) {
	t.line("change", format, args...)
	t.mu.Lock()
	t.changes++
	t.mu.Unlock()
}

// note is what a person who waits wants to know.
func (t *tape) note(format string, args ...any) {
	text := t.line("note", format, args...)
	t.say(fmt.Sprintf("%8s %-9s %s", time.Since(t.began).Round(time.Second), t.part, text))
}

// fail keeps what must not be.
func (t *tape) fail(format string, args ...any) {
	text := t.line("FAIL", format, args...)
	t.mu.Lock()
	t.failures = append(t.failures, time.Now().Format(clock+" ")+t.part+" "+text)
	t.mu.Unlock()
	t.say("FAIL " + t.part + " " + text)
}

func (t *tape) changed() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.changes
}

func (t *tape) failed() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]string(nil), t.failures...)
}

func (t *tape) close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return errors.Join(t.out.Flush(), t.packed.Close(), t.file.Close())
}

// fingerprint is a file's SHA-256, and its size.
func fingerprint(path string) (sum string, size int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	h := sha256.New()
	size, err = io.Copy(h, f)
	return hex.EncodeToString(h.Sum(nil)), size, err
}
