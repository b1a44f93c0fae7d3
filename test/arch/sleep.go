package arch

import (
	"go/ast"
	"go/token"
	"path"
	"slices"
	"strings"
)

const bubbles = "testing/synctest"

// SleepsOutsideBubbles are the calls of time.Sleep that no bubble makes
// harmless. A call is in one if it stands in the function that synctest.Test is
// given. In the tests of a package that has bubbles, helpers and the functions
// in tables may sleep too: they are taken for what those bubbles call.
func SleepsOutsideBubbles(p *Package) []token.Pos {
	bubbled := slices.ContainsFunc(p.Files, func(f *File) bool { return f.Test && f.name(bubbles) != "" })
	var sleeps []token.Pos
	for _, f := range p.Files {
		for _, decl := range f.Syntax.Decls {
			helpers := bubbled && f.Test
			if function, ok := decl.(*ast.FuncDecl); ok && helpers && !isTest(function) {
				continue
			}
			sleeps = append(sleeps, f.sleeps(decl, helpers)...)
		}
	}
	return sleeps
}

// sleeps are the calls in a declaration, outside of bubbles, and outside of
// tables if those hold helpers.
func (f *File) sleeps(decl ast.Decl, helpers bool) []token.Pos {
	clock, bubble := f.name("time"), f.name(bubbles)
	var sleeps []token.Pos
	ast.Inspect(decl, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CompositeLit:
			return !helpers
		case *ast.CallExpr:
			if is(n.Fun, clock, "Sleep") {
				sleeps = append(sleeps, n.Pos())
			}
			return !is(n.Fun, bubble, "Test")
		}
		return true
	})
	return sleeps
}

// name is what a file calls a package that it imports, or "".
func (f *File) name(target string) string {
	for i, spec := range f.Syntax.Imports {
		switch {
		case f.Imports[i].Path != target:
		case spec.Name != nil:
			return spec.Name.Name
		default:
			return path.Base(target)
		}
	}
	return ""
}

// is tells whether an expression is a package's function.
func is(e ast.Expr, pkg, function string) bool {
	s, ok := e.(*ast.SelectorExpr)
	if !ok || s.Sel.Name != function {
		return false
	}
	x, ok := s.X.(*ast.Ident)
	return ok && pkg != "" && x.Name == pkg
}

// isTest tells whether go test runs a function.
func isTest(f *ast.FuncDecl) bool {
	return f.Recv == nil && slices.ContainsFunc([]string{"Test", "Benchmark", "Fuzz", "Example"}, func(kind string) bool {
		return strings.HasPrefix(f.Name.Name, kind)
	})
}
