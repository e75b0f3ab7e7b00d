package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

const (
	maxMethods = 20 // of a type
	maxFields  = 12 // of a Config, by which a controller is made
)

// unsplit are types that still have more methods. They must not grow; delete an entry once its type is split.
var unsplit = map[string]int{
	"cmd/kubectl-clusterset/internal/lifecycle.join": 26,
	"controllers/agent.Agent":                        24,
	"controllers/serviceimport.reconciler":           38,
}

// TestTypesHaveOneJob: a type with more methods does several jobs. A Config with more fields is shared by several
// controllers, which then
// depend on each other.
func TestTypesHaveOneJob(t *testing.T) {
	methods := map[string]int{}
	for _, root := range []string{"controllers", "plugin", "cmd"} {
		err := filepath.WalkDir(filepath.Join("../..", root), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			for _, d := range file.Decls {
				switch d := d.(type) {
				case *ast.FuncDecl:
					if d.Recv != nil {
						folder := strings.TrimPrefix(filepath.ToSlash(filepath.Dir(path)), "../../")
						methods[folder+"."+receiver(d.Recv.List[0].Type)]++
					}
				case *ast.GenDecl:
					checkConfig(t, path, d)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(methods) == 0 {
		t.Fatal("no method found")
	}
	for name, n := range methods {
		if n > max(maxMethods, unsplit[name]) {
			t.Errorf("%s has %d methods, more than %d: split it by job", name, n, maxMethods)
		}
	}
}

func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return "?"
}

func checkConfig(t *testing.T, path string, d *ast.GenDecl) {
	for _, spec := range d.Specs {
		typ, ok := spec.(*ast.TypeSpec)
		if !ok || typ.Name.Name != "Config" || !strings.Contains(path, "/controllers/") {
			continue
		}
		if s, ok := typ.Type.(*ast.StructType); ok && s.Fields.NumFields() > maxFields {
			t.Errorf(
				"%s: Config has %d fields, more than %d: make two controllers of it",
				path,
				s.Fields.NumFields(),
				maxFields,
			)
		}
	}
}
