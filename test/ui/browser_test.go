package ui

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// limit is far more than anything takes: machines are shared.
const limit = 2 * time.Minute

// browser starts one. What the page throws, or its policy forbids, fails the test.
func browser(t *testing.T) context.Context {
	t.Helper()
	root := filepath.Join(os.Getenv("UI_BIN"), "debian")
	program, env := "", []string(nil)
	for _, name := range []string{"chromium", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil && program == "" {
			program = found
		}
	}
	if program == "" {
		program = filepath.Join(root, "usr/lib/chromium/chromium")
		libraries, _ := filepath.Glob(filepath.Join(root, "usr/lib/*-linux-gnu"))
		pulse, _ := filepath.Glob(filepath.Join(root, "usr/lib/*-linux-gnu/pulseaudio"))
		env = []string{
			"LD_LIBRARY_PATH=" + strings.Join(append(libraries, pulse...), ":"),
			"FONTCONFIG_SYSROOT=" + root,
		}
	}
	if _, err := os.Stat(program); err != nil {
		t.Fatalf("%v: make ui-test downloads a browser", err)
	}
	// It runs as root, which Chromium's sandbox refuses. The name is for a page that has ours resolve to loopback.
	ctx, stop := chromedp.NewExecAllocator(t.Context(), append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.Env(env...),
		chromedp.Flag("host-resolver-rules", "MAP rebound.example 127.0.0.1"))...)
	t.Cleanup(stop)
	ctx, stop = chromedp.NewContext(ctx)
	t.Cleanup(stop)
	run(ctx, t, "the browser starts") // its context is the browser's life: it has no deadline
	ctx, stop = context.WithTimeout(ctx, 5*time.Minute)
	t.Cleanup(stop)
	if err := chromedp.Listen(ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			t.Errorf("the page threw %v", e.ExceptionDetails)
		case *cdplog.EventEntryAdded:
			if e.Entry.Source == cdplog.EntrySourceSecurity ||
				strings.Contains(e.Entry.Text, "Content Security Policy") {
				t.Errorf("the page did what its policy forbids: %s", e.Entry.Text)
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	return ctx
}

func run(ctx context.Context, t *testing.T, what string, actions ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	if err := chromedp.Do(ctx, actions...); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// eval returns the value of an expression in the page, which may be a promise.
func eval[T any](ctx context.Context, t *testing.T, expression string) (out T) {
	t.Helper()
	out, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		t.Fatalf("%.200s: %v", expression, err)
	}
	return out
}

// text returns the visible text of the first element, or "".
func text(ctx context.Context, t *testing.T, selector string) string {
	t.Helper()
	return eval[string](ctx, t, fmt.Sprintf("(document.querySelector(%q) || {innerText: ''}).innerText", selector))
}

// until waits until the text of an element has all words, and returns how long that took.
func until(ctx context.Context, t *testing.T, most time.Duration, selector string, words ...string) time.Duration {
	t.Helper()
	began := time.Now()
	for {
		got, missing := text(ctx, t, selector), ""
		for _, w := range words {
			if !strings.Contains(got, w) {
				missing = w
			}
		}
		if missing == "" && got != "" {
			return time.Since(began)
		}
		if time.Since(began) > most {
			t.Fatalf("after %v, %s has no %q: %q", most, selector, missing, got)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// screen sets the colours that the user prefers, and the size of the window.
func screen(ctx context.Context, t *testing.T, scheme string, width, height int64) {
	t.Helper()
	run(ctx, t, "the screen", chromedp.Func(func(ctx context.Context, page *chromedp.Target) error {
		_, err := cdp.Call(ctx, page, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
		return err
	}), chromedp.EmulateViewport(width, height))
}

// picture writes what is seen.
func picture(ctx context.Context, t *testing.T, file string) {
	t.Helper()
	png, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err == nil {
		err = os.WriteFile(file, png, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// accessible fails for each thing that keeps somebody from using the page, by axe-core.
func accessible(ctx context.Context, t *testing.T, what string) {
	t.Helper()
	axe, err := os.ReadFile(filepath.Join(os.Getenv("UI_BIN"), "axe.min.js"))
	if err != nil {
		t.Fatalf("%v: make ui-test downloads it", err)
	}
	eval[int](ctx, t, string(axe)+"; 0")
	found := eval[string](ctx, t, `axe.run(document).then((r) => JSON.stringify(r.violations.map((v) =>
		({id: v.id, impact: v.impact, help: v.help, at: v.nodes.slice(0, 3).map((n) => n.html + n.failureSummary)}))))`)
	var all []struct {
		ID, Impact, Help string
		At               []string
	}
	if err := json.Unmarshal([]byte(found), &all); err != nil {
		t.Fatal(err)
	}
	for _, v := range all {
		if v.Impact == "serious" || v.Impact == "critical" {
			t.Errorf("%s: %s (%s): %s\n%s", what, v.ID, v.Impact, v.Help, strings.Join(v.At, "\n"))
		} else {
			t.Logf("%s: %s (%s): %s", what, v.ID, v.Impact, v.Help)
		}
	}
	if wide := eval[int](ctx, t, "document.documentElement.scrollWidth - innerWidth"); wide > 0 {
		t.Errorf("%s: the page is %d pixels wider than the window", what, wide)
	}
}
