package gobuild

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// module makes one with a program that uses a package, in a build cache of its own.
func module(t *testing.T, library string) (dir string, env []string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range map[string]string{
		"go.mod":     "module example.com/m\n\ngo 1.26\n",
		"main.go":    "package main\n\nimport \"example.com/m/lib\"\n\nfunc main() { lib.F() }\n",
		"lib/lib.go": library,
		"lib/text":   "text",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir, []string{"GOFLAGS=-buildvcs=false", "GOWORK=off"}
}

func TestOnlyWhatIsStaleCounts(t *testing.T) {
	dir, env := module(t, "package lib\n\nimport _ \"embed\"\n\n//go:embed text\nvar text string\n\n"+
		"func F() { println(text) } // "+t.TempDir()+"\n")
	program := filepath.Join(dir, "program")
	var out strings.Builder
	s := &screen{out: &out, terminal: true}
	build := func() {
		t.Helper()
		out.Reset()
		s.shown = time.Time{}
		if err := run(t.Context(), s, []Build{{Dir: dir, Env: env, Args: []string{"-o", program, "."}}}); err != nil {
			t.Fatal(err)
		}
	}
	build() // and perhaps the standard library
	library := filepath.Join(dir, "lib", "lib.go")
	text, err := os.ReadFile(library)
	if err == nil {
		err = os.WriteFile(library, append(text, "// changed\n"...), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	build()
	if _, err := os.Stat(program); err != nil {
		t.Error(err)
	}
	if !strings.Contains(out.String(), "1 of 2 packages") && !strings.Contains(out.String(), "2 of 2 packages") {
		t.Errorf("a build of two packages shows %q", out.String())
	}
	if build(); strings.Contains(out.String(), "2 of") {
		t.Errorf("a build of what is built shows %q", out.String())
	}
}

func TestWhatTwoBuildsNeedCountsOnce(t *testing.T) {
	dir, env := module(t, "package lib\n\nfunc F() { println(1) } // "+t.TempDir()+"\n")
	other := filepath.Join(filepath.Dir(dir), "other")
	if err := os.Mkdir(other, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"go.mod": "module example.com/other\n\ngo 1.26\n\nrequire example.com/m v1.0.0\n\nreplace example.com/m => " +
			dir + "\n",
		"main.go": "package main\n\nimport \"example.com/m/lib\"\n\nfunc main() { lib.F() }\n",
	} {
		if err := os.WriteFile(filepath.Join(other, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var out strings.Builder
	builds := []Build{
		{Dir: dir, Env: env, Args: []string{"-o", filepath.Join(dir, "p"), "."}},
		{Dir: other, Env: env, Args: []string{"-o", filepath.Join(other, "p"), "."}},
	}
	if err := run(t.Context(), &screen{out: &out, terminal: true}, builds); err != nil {
		t.Fatal(err)
	}
	for _, b := range builds {
		if _, err := os.Stat(filepath.Join(b.Dir, "p")); err != nil {
			t.Error(err)
		}
	}
	if !strings.Contains(out.String(), "1 of 3 packages") {
		t.Errorf("two programs that use one package show %q", out.String())
	}
}

func TestTheErrorHasWhatTheCompilerPrinted(t *testing.T) {
	dir, env := module(t, "package lib\n\nfunc F() { undefined() }\n")
	err := run(t.Context(), &screen{out: &strings.Builder{}}, []Build{
		{Dir: dir, Env: env, Args: []string{"-o", filepath.Join(dir, "p"), "."}},
	})
	if err == nil || !strings.Contains(err.Error(), "undefined: undefined") {
		t.Errorf("the error is %v", err)
	}
}

func TestTheTimeLeftFollowsTheSizeOfSources(t *testing.T) {
	p := progress{todo: map[string]int64{"a": 300, "b": 100}, all: 400, began: time.Now().Add(-30 * time.Second)}
	if p.compiles("c") || !p.compiles("a") || p.compiles("a") {
		t.Error("a package counts once, and only one of this build")
	}
	if got, want := p.String(), "1 of 2 packages, about 10s left, then linking"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestALogIsNotFlooded(t *testing.T) {
	var out strings.Builder
	s := &screen{out: &out, shown: time.Now().Add(-time.Minute)}
	s.show("first")
	s.show("second")
	if got := out.String(); got != "  first\n" {
		t.Errorf("it shows %q, want the first line only", got)
	}
}
