package arch

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Module is the path that all own packages begin with.
const Module = "github.com/berth-dev/berth"

// Tree is the source of a checkout.
type Tree struct {
	Packages  []*Package // in the order of their paths
	positions *token.FileSet
}

// Package is one directory with Go files.
type Package struct {
	// Path is the directory below the root of the checkout: internal/state.
	Path string
	// Foreign packages belong to another module that lives in this checkout.
	Foreign bool
	Files   []*File
}

// File is one Go file, whatever its build tags.
type File struct {
	Path   string
	Syntax *ast.File
	// Test files are not part of what others import.
	Test    bool
	Imports []Import
}

// Import is one import of one file.
type Import struct {
	// Path as it is written: github.com/berth-dev/berth/api, os, ...
	Path string
	// At is the file and line.
	At string
}

// ReadTree reads the checkout at root. It passes over what go passes over:
// testdata, and names that begin with a dot or an underscore.
func ReadTree(root string) (*Tree, error) {
	t := &Tree{positions: token.NewFileSet()}
	packages := map[string]*Package{}
	foreign := map[string]bool{}
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		dir := filepath.Dir(rel)
		switch {
		case rel == ".":
			return nil
		case entry.Name() == "testdata", strings.HasPrefix(entry.Name(), "."), strings.HasPrefix(entry.Name(), "_"):
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		case entry.IsDir():
			own, err := hasModule(name)
			foreign[rel] = own || foreign[dir]
			return err
		case !strings.HasSuffix(rel, ".go"):
			return nil
		}
		p := packages[dir]
		if p == nil {
			p = &Package{Path: filepath.ToSlash(dir), Foreign: foreign[dir]}
			packages[dir] = p
			t.Packages = append(t.Packages, p)
		}
		f, err := t.readFile(name, filepath.ToSlash(rel))
		p.Files = append(p.Files, f)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read tree %s: %w", root, err)
	}
	slices.SortFunc(t.Packages, func(x, y *Package) int { return strings.Compare(x.Path, y.Path) })
	return t, nil
}

// hasModule tells whether a directory below the root is a module of its own.
func hasModule(dir string) (bool, error) {
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

func (t *Tree) readFile(name, rel string) (*File, error) {
	src, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	syntax, err := parser.ParseFile(t.positions, rel, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	f := &File{Path: rel, Syntax: syntax, Test: strings.HasSuffix(rel, "_test.go")}
	for _, spec := range syntax.Imports {
		target, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, err
		}
		f.Imports = append(f.Imports, Import{Path: target, At: t.At(spec.Pos())})
	}
	return f, nil
}

// At is the file and line of a position in the tree.
func (t *Tree) At(pos token.Pos) string {
	p := t.positions.Position(pos)
	return fmt.Sprintf("%s:%d", p.Filename, p.Line)
}

// Docs are the package comments of a package: those of its files, or, if it has
// only tests, of those.
func (p *Package) Docs() []string {
	onlyTests := !slices.ContainsFunc(p.Files, func(f *File) bool { return !f.Test })
	var docs []string
	for _, f := range p.Files {
		if f.Test == onlyTests && f.Syntax.Doc != nil {
			docs = append(docs, f.Syntax.Doc.Text())
		}
	}
	return docs
}

// Opening is how the comment of a package begins.
func (p *Package) Opening() string {
	name := p.Files[0].Syntax.Name.Name
	for _, f := range p.Files {
		if !f.Test {
			name = f.Syntax.Name.Name
		}
	}
	if name == "main" {
		return "Command " + path.Base(p.Path) + " "
	}
	return "Package " + name + " "
}
