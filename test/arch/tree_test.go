package arch_test

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/berth-dev/berth/test/arch"
)

// checkout writes the files of a txtar archive into a directory.
func checkout(t *testing.T, files string) string {
	t.Helper()
	dir := t.TempDir()
	if err := txtar.Write(txtar.Parse([]byte(files)), dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestReadTree(t *testing.T) {
	t.Parallel()
	dir := checkout(t, `
-- go.mod --
module example.com/own
-- state/doc.go --
// Package state is rows.
package state
-- state/state_plan9.go --
package state

import "os"
-- state/state_test.go --
// Package state_test is no comment of package state.
package state_test

import alias "fmt"
-- state/testdata/bad.go --
this is not Go
-- state/.hidden.go --
nor is this
-- _old/old.go --
nor this
-- suite/suite_test.go --
// Package suite_test has only tests.
package suite_test
-- mock/go.mod --
module example.com/mock
-- mock/sub/main.go --
//go:build never

// Command sub mocks.
package main
`)
	tree, err := arch.ReadTree(dir)
	if err != nil {
		t.Fatal(err)
	}
	type pkg struct {
		Path, Opening string
		Foreign       bool
		Docs          []string
		Imports       []arch.Import
	}
	var got []pkg
	for _, p := range tree.Packages {
		g := pkg{Path: p.Path, Opening: p.Opening(), Foreign: p.Foreign, Docs: p.Docs()}
		for _, f := range p.Files {
			g.Imports = append(g.Imports, f.Imports...)
		}
		got = append(got, g)
	}
	want := []pkg{
		{Path: "mock/sub", Foreign: true, Opening: "Command sub ", Docs: []string{"Command sub mocks.\n"}},
		{
			Path: "state", Opening: "Package state ", Docs: []string{"Package state is rows.\n"},
			Imports: []arch.Import{{Path: "os", At: "state/state_plan9.go:3"}, {Path: "fmt", At: "state/state_test.go:4"}},
		},
		{Path: "suite", Opening: "Package suite_test ", Docs: []string{"Package suite_test has only tests.\n"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("packages (-want +got):\n%s", diff)
	}
}

func TestReadTree_SyntaxErrorNamesTheFile(t *testing.T) {
	t.Parallel()
	dir := checkout(t, "-- state/state.go --\npackage\n")
	_, err := arch.ReadTree(dir)
	want := "read tree " + dir + ": state/state.go:1:"
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v, want %s...", err, want)
	}
}

func TestReadTree_MissingDirectory(t *testing.T) {
	t.Parallel()
	if _, err := arch.ReadTree(filepath.Join(t.TempDir(), "missing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want %v", err, fs.ErrNotExist)
	}
}
