package docs_test

import (
	"go/ast"
	"go/token"
	"go/types"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// set is what was found, and where first.
type set map[string]string

func (s *source) put(into set, what string, at ast.Node) {
	if _, ok := into[what]; !ok {
		into[what] = strings.TrimPrefix(s.fset.Position(at.Pos()).String(), "../")
	}
}

// corefileOptions are the keys of the tables that read the stanza of a plugin, by its package: its own, and the shared.
func (s *source) corefileOptions(of string) set {
	out := set{}
	for _, f := range s.files {
		if f.Name.Name != of && f.Name.Name != "authority" {
			continue
		}
		f.each(func(n ast.Node, _ []ast.Node) {
			table, ok := n.(*ast.CompositeLit)
			if !ok {
				return
			}
			if m, ok := table.Type.(*ast.MapType); !ok || !strings.HasSuffix(types.ExprString(m.Value), "Option") {
				return
			}
			for _, e := range table.Elts {
				if name, ok := literal(e.(*ast.KeyValueExpr).Key); ok {
					s.put(out, name, e)
				}
			}
		})
	}
	return out
}

// A method of a flag set: its second argument is the name where the first one is what it sets.
var flagMethod = regexp.MustCompile(
	`^(?:Bool|Int|Int32|Int64|Uint|String|Duration|StringSlice|StringArray|` +
		`StringToString|StringToInt|Float64|Text|Func|BoolFunc)?(Var)?P?$`,
)

// flags are those that a program defines itself.
func (s *source) flags(program string) set {
	out := set{}
	for _, f := range s.files {
		flagging := slices.ContainsFunc(
			[]string{"flag", "github.com/spf13/pflag", "github.com/spf13/cobra"},
			func(p string) bool { return slices.Contains(values(f.imports), p) },
		)
		if !flagging || !strings.HasPrefix(f.path, module+"/cmd/"+program) {
			continue
		}
		f.each(func(n ast.Node, _ []ast.Node) {
			c, ok := n.(*ast.CallExpr)
			if !ok {
				return
			}
			m := flagMethod.FindStringSubmatch(method(c))
			at := 0
			if m == nil || method(c) == "" {
				return
			}
			if m[1] != "" {
				at = 1
			}
			if len(c.Args) < at+2 {
				return
			}
			if name, ok := s.value(
				c.Args[at],
				f,
				nil,
			); ok &&
				regexp.MustCompile(`^[a-z][a-z0-9-]+$`).MatchString(name) {
				s.put(out, "--"+name, c)
			}
		})
	}
	return out
}

func values(m map[string]string) (out []string) {
	for _, v := range m {
		out = append(out, v)
	}
	return out
}

// metrics are the names that are given to prometheus: in options, in descriptions, in functions that make
// descriptions, and in the gauges of a collector.
func (s *source) metrics(t *testing.T) set {
	out := s.gauges()
	for _, f := range s.files {
		if !slices.Contains(values(f.imports), "github.com/prometheus/client_golang/prometheus") {
			continue
		}
		helpers := map[string]helper{}
		f.each(func(n ast.Node, around []ast.Node) {
			switch n := n.(type) {
			case *ast.CompositeLit:
				if sel, ok := n.Type.(*ast.SelectorExpr); ok && strings.HasSuffix(sel.Sel.Name, "Opts") {
					if name := s.optsName(n, f); name != "" {
						s.put(out, name, n)
					}
				}
			case *ast.CallExpr:
				if method(n) != "NewDesc" || len(around) > 0 && isCollector(around[len(around)-1]) {
					return
				}
				if name, ok := s.value(n.Args[0], f, nil); ok {
					s.put(out, name, n)
				} else if h, ok := makes(n, around, f); ok {
					helpers[h.name] = h
				} else {
					t.Errorf("%s: cannot tell what this metric is called: use constants", s.fset.Position(n.Pos()))
				}
			}
		})
		f.each(func(n ast.Node, _ []ast.Node) {
			c, ok := n.(*ast.CallExpr)
			if !ok || helpers[method(c)].name == "" {
				return
			}
			h := helpers[method(c)]
			arg, ok := s.value(c.Args[h.at], f, nil)
			name, also := s.value(h.makes, f, map[string]string{h.param: arg})
			if !ok || !also {
				t.Errorf("%s: cannot tell what this metric is called: use constants", s.fset.Position(n.Pos()))
			}
			s.put(out, name, c)
		})
	}
	return out
}

// gauges are those that NewCollector of the plugins gets, and those that it adds to all of them.
func (s *source) gauges() set {
	out, common := set{}, []string{}
	for _, f := range s.files {
		f.each(func(n ast.Node, around []ast.Node) {
			if l, ok := n.(*ast.CompositeLit); ok && len(around) > 0 && isCollector(around[len(around)-1]) {
				common = append(common, s.gaugeNames(l, f)...)
			}
		})
	}
	for _, f := range s.files {
		f.each(func(n ast.Node, _ []ast.Node) {
			c, ok := n.(*ast.CallExpr)
			if !ok || method(c) != "NewCollector" {
				return
			}
			name, _ := s.value(c.Args[0], f, nil)
			own, _ := c.Args[2].(*ast.CompositeLit)
			for _, gauge := range append(s.gaugeNames(own, f), common...) {
				s.put(out, "coredns_"+name+"_"+gauge, c)
			}
		})
	}
	return out
}

func isCollector(n ast.Node) bool {
	d, ok := n.(*ast.FuncDecl)
	return ok && d.Name.Name == "NewCollector"
}

// gaugeNames returns the names of a list of gauges.
func (s *source) gaugeNames(list *ast.CompositeLit, f *file) (out []string) {
	if list == nil {
		return nil
	}
	if _, ok := list.Type.(*ast.ArrayType); !ok {
		return nil
	}
	for _, e := range list.Elts {
		gauge, ok := e.(*ast.CompositeLit)
		if !ok || len(gauge.Elts) == 0 {
			continue
		}
		first := gauge.Elts[0]
		if kv, ok := first.(*ast.KeyValueExpr); ok {
			first = kv.Value
		}
		if name, ok := s.value(first, f, nil); ok {
			out = append(out, name)
		}
	}
	return out
}

// helper is a function that makes a description of a name that it is given.
type helper struct {
	name, param string
	at          int
	makes       ast.Expr
}

func makes(desc *ast.CallExpr, around []ast.Node, f *file) (h helper, ok bool) {
	inner := around[len(around)-1]
	for _, p := range typeOf(inner).Params.List {
		for _, n := range p.Names {
			if uses(desc.Args[0], n.Name) {
				h.param, h.at, h.makes = n.Name, named(typeOf(inner).Params, n.Name), desc.Args[0]
			}
		}
	}
	if d, ok := inner.(*ast.FuncDecl); ok {
		h.name = d.Name.Name
	}
	f.each(func(n ast.Node, _ []ast.Node) {
		if a, ok := n.(*ast.AssignStmt); ok && a.Rhs[0] == inner {
			h.name = a.Lhs[0].(*ast.Ident).Name
		}
	})
	return h, h.name != "" && h.param != ""
}

func uses(e ast.Expr, name string) (found bool) {
	ast.Inspect(e, func(n ast.Node) bool {
		if i, ok := n.(*ast.Ident); ok && i.Name == name {
			found = true
		}
		return !found
	})
	return found
}

func (s *source) optsName(opts *ast.CompositeLit, f *file) string {
	parts := map[string]string{}
	for _, e := range opts.Elts {
		if kv, ok := e.(*ast.KeyValueExpr); ok {
			if key, ok := kv.Key.(*ast.Ident); ok {
				parts[key.Name], _ = s.value(kv.Value, f, nil)
			}
		}
	}
	var name []string
	for _, p := range []string{parts["Namespace"], parts["Subsystem"], parts["Name"]} {
		if p != "" {
			name = append(name, p)
		}
	}
	return strings.Join(name, "_")
}

// reasons are those of Events, of conditions, and the conditions' types.
func (s *source) reasons(t *testing.T) (events, conditions, types set) {
	events, conditions, types = set{}, set{}, set{}
	for _, f := range s.files {
		f.each(func(n ast.Node, around []ast.Node) {
			switch n := n.(type) {
			case *ast.ValueSpec:
				s.constant(n, f, conditions, types)
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && f.imports[x.Name] == upstream {
					s.fromUpstream(n, f, conditions, types)
				}
			case *ast.KeyValueExpr:
				if key, ok := n.Key.(*ast.Ident); ok && key.Name == "Reason" {
					s.reason(conditions, n.Value, f)
				}
			case *ast.AssignStmt:
				for i, l := range n.Lhs {
					if sel, ok := l.(*ast.SelectorExpr); ok && sel.Sel.Name == "Reason" && i < len(n.Rhs) {
						s.reason(conditions, n.Rhs[i], f)
					}
				}
			case *ast.ReturnStmt:
				if len(around) > 0 {
					if at := named(
						typeOf(around[len(around)-1]).Results,
						"reason",
					); at >= 0 &&
						at < len(n.Results) {
						s.reason(conditions, n.Results[at], f)
					}
				}
			case *ast.CompositeLit:
				for _, reason := range findingReasons(n) {
					s.event(t, reason, f, around, events)
				}
			case *ast.CallExpr:
				if at, ok := eventArgument(n); ok {
					s.event(t, n.Args[at], f, around, events)
				} else if sig := s.signature(n, f); sig != nil && sig.param >= 0 && sig.param < len(n.Args) {
					s.reason(conditions, n.Args[sig.param], f)
				}
			}
		})
	}
	return events, conditions, types
}

// eventArgument is where a call that raises an Event has its reason.
func eventArgument(c *ast.CallExpr) (at int, ok bool) {
	switch {
	case method(c) == "Event" && len(c.Args) == 4:
		return 2, true
	case method(c) == "Eventf" && len(c.Args) >= 6:
		return 3, true
	}
	return 0, false
}

// findingReasons returns the reasons of a literal finding{about, reason, message}, or of a literal list of findings.
// Another function raises their Events.
func findingReasons(c *ast.CompositeLit) (reasons []ast.Expr) {
	isFinding := func(e ast.Expr) bool {
		i, ok := e.(*ast.Ident)
		return ok && i.Name == "finding"
	}
	all := []ast.Expr{c}
	if list, ok := c.Type.(*ast.ArrayType); ok && isFinding(list.Elt) {
		all = c.Elts
	} else if !isFinding(c.Type) {
		return nil
	}
	for _, e := range all {
		if one, ok := e.(*ast.CompositeLit); ok && len(one.Elts) == 3 {
			reasons = append(reasons, one.Elts[1])
		}
	}
	return reasons
}

// event takes a reason, or follows none where a function hands on its own parameter or a condition's.
func (s *source) event(t *testing.T, e ast.Expr, f *file, around []ast.Node, events set) {
	if v, ok := s.value(e, f, nil); ok {
		s.put(events, v, e)
		return
	}
	if c, ok := e.(*ast.CallExpr); ok && method(c) == "EventReason" {
		return
	}
	if sel, ok := e.(*ast.SelectorExpr); ok && (sel.Sel.Name == "Reason" || sel.Sel.Name == "reason") {
		return
	}
	if i, ok := e.(*ast.Ident); ok {
		for _, a := range around {
			if named(typeOf(a).Params, i.Name) >= 0 {
				return
			}
		}
	}
	t.Errorf("%s: cannot tell the reason of this Event: use a constant", s.fset.Position(e.Pos()))
}

var word = regexp.MustCompile(`^[A-Z][A-Za-z]+$`)

func (s *source) reason(into set, e ast.Expr, f *file) {
	if v, ok := s.value(e, f, nil); ok && word.MatchString(v) {
		s.put(into, v, e)
	}
}

// constant takes a condition's type, or a reason.
func (s *source) constant(v *ast.ValueSpec, f *file, conditions, types set) {
	for _, name := range v.Names {
		value, ok := s.consts[f.path][name.Name]
		switch {
		case !ok:
		case strings.HasPrefix(name.Name, "Condition"):
			s.put(types, value, name)
		case conditionReason(v.Type):
			s.put(conditions, value, name)
		}
	}
}

// conditionReason reports whether a constant's type is upstream's for reasons.
func conditionReason(t ast.Expr) bool {
	sel, ok := t.(*ast.SelectorExpr)
	return ok && strings.HasSuffix(sel.Sel.Name, "ConditionReason")
}

func (s *source) fromUpstream(n *ast.SelectorExpr, f *file, conditions, types set) {
	value, ok := s.value(n, f, nil)
	switch {
	case !ok:
	case strings.Contains(n.Sel.Name, "Reason"):
		s.put(conditions, value, n)
	case strings.Contains(n.Sel.Name, "Condition"):
		s.put(types, value, n)
	}
}

var ownKey = regexp.MustCompile(`(?:[a-z0-9-]+\.)*clusterset-dns\.io/[a-z][a-z-]*[a-z]`)

// keys are annotations, labels and finalizers of our own, in Go and in manifests.
func (s *source) keys(t *testing.T) set {
	out := set{}
	for _, f := range s.files {
		f.each(func(n ast.Node, _ []ast.Node) {
			if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
				for _, k := range ownKey.FindAllString(l.Value, -1) {
					s.put(out, k, l)
				}
			}
		})
	}
	for path, text := range manifests(t) {
		for _, k := range ownKey.FindAllString(text, -1) {
			if out[k] == "" {
				out[k] = path
			}
		}
	}
	return out
}
