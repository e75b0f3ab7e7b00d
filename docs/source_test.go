package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/clusterset-dns/clusterset-dns"

// upstream is where the reasons and condition types of the API itself are declared.
const upstream = "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

// source is the product's Go code, without tests and without what is generated.
type source struct {
	fset   *token.FileSet
	files  []*file
	consts map[string]map[string]string     // import path → name → value of string constants
	params map[string]map[string]*signature // import path → function or method → signature
}

type file struct {
	*ast.File
	path    string // of its package
	imports map[string]string
}

// signature holds where a function takes or returns what is named reason; -1: nowhere.
type signature struct{ param, result int }

// load parses what ships: the laboratory and the benchmarks are not the product.
func load(t *testing.T, dirs ...string) *source {
	t.Helper()
	s := &source{
		fset:   token.NewFileSet(),
		consts: map[string]map[string]string{},
		params: map[string]map[string]*signature{},
	}
	for _, dir := range dirs {
		err := filepath.WalkDir(filepath.Join("..", dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if d.IsDir() && (d.Name() == "testdata") {
				return filepath.SkipDir
			}
			if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") ||
				strings.HasPrefix(d.Name(), "zz_generated") {
				return nil
			}
			rel, err := filepath.Rel("..", filepath.Dir(path))
			if err != nil {
				return err
			}
			return s.add(path, module+"/"+filepath.ToSlash(rel), true)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(s.files) == 0 {
		t.Fatalf("no Go files in %v", dirs)
	}
	return s
}

// withUpstream reads the constants of the API, which our code uses by name.
func (s *source) withUpstream(t *testing.T) *source {
	t.Helper()
	dir, err := exec.Command("go", "list", "-f", "{{.Dir}}", upstream).Output()
	if err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "*.go"))
	if err != nil || len(names) == 0 {
		t.Fatalf("%s has %d files: %v", upstream, len(names), err)
	}
	for _, name := range names {
		if err := s.add(name, upstream, false); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func (s *source) add(name, path string, ours bool) error {
	parsed, err := parser.ParseFile(s.fset, name, nil, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	f := &file{File: parsed, path: path, imports: map[string]string{}}
	for _, i := range parsed.Imports {
		p, _ := strconv.Unquote(i.Path.Value) // the parser has checked it
		short := p[strings.LastIndex(p, "/")+1:]
		if i.Name != nil {
			short = i.Name.Name
		}
		f.imports[short] = p
	}
	if s.consts[path] == nil {
		s.consts[path], s.params[path] = map[string]string{}, map[string]*signature{}
	}
	for _, d := range parsed.Decls {
		switch d := d.(type) {
		case *ast.GenDecl:
			s.addConsts(d, path)
		case *ast.FuncDecl:
			s.params[path][d.Name.Name] = &signature{
				named(d.Type.Params, "reason"),
				named(d.Type.Results, "reason"),
			}
		}
	}
	if ours {
		s.files = append(s.files, f)
	}
	return nil
}

func (s *source) addConsts(d *ast.GenDecl, path string) {
	if d.Tok != token.CONST {
		return
	}
	for _, spec := range d.Specs {
		v := spec.(*ast.ValueSpec)
		for i, name := range v.Names {
			if i < len(v.Values) {
				if text, ok := literal(v.Values[i]); ok {
					s.consts[path][name.Name] = text
				}
			}
		}
	}
}

// named is the position of a name among parameters or results.
func named(list *ast.FieldList, name string) int {
	if list == nil {
		return -1
	}
	at := 0
	for _, f := range list.List {
		for _, n := range f.Names {
			if n.Name == name {
				return at
			}
			at++
		}
		if len(f.Names) == 0 {
			at++
		}
	}
	return -1
}

func literal(e ast.Expr) (string, bool) {
	l, ok := e.(*ast.BasicLit)
	if !ok || l.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(l.Value)
	return text, err == nil
}

// value is what a string expression of constants amounts to. env holds what parameters stand for.
func (s *source) value(e ast.Expr, f *file, env map[string]string) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		return literal(e)
	case *ast.Ident:
		if v, ok := env[e.Name]; ok {
			return v, true
		}
		v, ok := s.consts[f.path][e.Name]
		return v, ok
	case *ast.SelectorExpr:
		x, ok := e.X.(*ast.Ident)
		if !ok {
			return "", false
		}
		if f.imports[x.Name] == "github.com/coredns/coredns/plugin" && e.Sel.Name == "Namespace" {
			return "coredns", true
		}
		v, ok := s.consts[f.imports[x.Name]][e.Sel.Name]
		return v, ok
	case *ast.BinaryExpr:
		l, ok := s.value(e.X, f, env)
		r, also := s.value(e.Y, f, env)
		return l + r, ok && also && e.Op == token.ADD
	case *ast.CallExpr:
		return s.call(e, f, env)
	}
	return "", false
}

// call is a conversion such as string(x), or a name that prometheus puts together.
func (s *source) call(e *ast.CallExpr, f *file, env map[string]string) (string, bool) {
	if conversion, ok := e.Fun.(*ast.Ident); ok && conversion.Name == "string" && len(e.Args) == 1 {
		return s.value(e.Args[0], f, env)
	}
	if method(e) != "BuildFQName" {
		return "", false
	}
	var parts []string
	for _, a := range e.Args {
		v, ok := s.value(a, f, env)
		if !ok {
			return "", false
		}
		if v != "" {
			parts = append(parts, v)
		}
	}
	return strings.Join(parts, "_"), true
}

// method is the name of what is called, without its package or receiver.
func method(c *ast.CallExpr) string {
	switch f := c.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

// signature of what is called, nil where that is not ours.
func (s *source) signature(c *ast.CallExpr, f *file) *signature {
	switch fun := c.Fun.(type) {
	case *ast.Ident:
		return s.params[f.path][fun.Name]
	case *ast.SelectorExpr:
		if x, ok := fun.X.(*ast.Ident); ok && f.imports[x.Name] != "" {
			return s.params[f.imports[x.Name]][fun.Sel.Name]
		}
		return s.params[f.path][fun.Sel.Name]
	}
	return nil
}

// each calls do with every node, and with the functions around it, the innermost last.
func (f *file) each(do func(n ast.Node, around []ast.Node)) {
	var stack []ast.Node
	ast.Inspect(f.File, func(n ast.Node) bool {
		if n == nil {
			stack = stack[:len(stack)-1]
			return true
		}
		var around []ast.Node
		for _, a := range stack {
			switch a.(type) {
			case *ast.FuncDecl, *ast.FuncLit:
				around = append(around, a)
			}
		}
		do(n, around)
		stack = append(stack, n)
		return true
	})
}

func typeOf(function ast.Node) *ast.FuncType {
	switch f := function.(type) {
	case *ast.FuncDecl:
		return f.Type
	case *ast.FuncLit:
		return f.Type
	}
	return nil
}
