package arch_test

import (
	"go/ast"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/test/arch"
)

// rules are a small product: nouns below, two columns, main above.
func rules() arch.Rules {
	return arch.Rules{
		Picture: []arch.Row{
			{Path: "cmd/berth", Role: arch.Main},
			{Path: "api", Columns: arch.Every},
			{Path: "fit", Columns: arch.Every, Arrows: []string{"api"}},
			{Path: "state", Columns: arch.Servers, Level: 1},
			{Path: "state/statetest", Role: arch.Support, Columns: arch.Servers},
			{Path: "binder", Columns: arch.Servers, Level: 2},
			{Path: "drainer", Columns: arch.Servers, Level: 2},
			{Path: "agent", Columns: arch.Nodes, Level: 2},
			{Path: "client", Columns: arch.Nodes, Level: 1},
			{Path: "server", Columns: arch.Servers, Level: 3, InTests: []string{"client"}},
			{Path: "test/e2e", Role: arch.Tests, Columns: arch.Every},
			{Path: "test/mock", Role: arch.Apart},
		},
		Walls: []arch.Wall{{From: arch.Servers, To: arch.Nodes, Reason: "servers never touch"}},
		Homes: []arch.Home{
			{Module: "example.com/raft", Packages: []string{"state", "agent/..."}, Reason: "one log"},
			{Module: "example.com/cmp", Reason: "differences"},
		},
		Bans: []arch.Ban{
			{Packages: []string{"os/..."}, In: []string{"state"}, Reason: "arithmetic"},
			{Packages: []string{"log"}, In: []string{"..."}, Except: []string{"agent"}, Reason: "slog"},
		},
	}
}

// lawful imports everything that the rules allow, so that no line is unused.
func lawful() map[string][]string {
	const own = arch.Module + "/"
	return map[string][]string{
		"cmd/berth/main.go":        {own + "agent", own + "state", own + "binder", "os"},
		"api/api.go":               {"fmt"},
		"fit/fit.go":               {own + "api"},
		"state/state.go":           {own + "api", own + "fit", "example.com/raft/log", "log/slog"},
		"state/state_test.go":      {own + "state", own + "state/statetest", own + "binder", "example.com/cmp", "os"},
		"state/statetest/world.go": {own + "state", "example.com/cmp", "os/exec"},
		"binder/binder.go":         {own + "state", own + "api"},
		"drainer/drainer.go":       {own + "state"},
		"client/client.go":         {own + "api"},
		"server/server.go":         {own + "state"},
		"server/server_test.go":    {own + "server", own + "client"},
		"agent/agent.go":           {own + "api", "example.com/raft", "log"},
		"test/e2e/e2e_test.go":     {own + "agent", own + "state/statetest"},
		"test/mock/main.go":        {"example.com/anything", "log"},
	}
}

// plant makes the tree that has these imports; test/mock is a module.
func plant(files map[string][]string) *arch.Tree {
	packages := map[string]*arch.Package{}
	tree := &arch.Tree{}
	for name, imports := range files {
		dir := name[:strings.LastIndex(name, "/")]
		p := packages[dir]
		if p == nil {
			p = &arch.Package{Path: dir, Foreign: dir == "test/mock"}
			packages[dir] = p
			tree.Packages = append(tree.Packages, p)
		}
		f := &arch.File{Path: name, Test: strings.HasSuffix(name, "_test.go"), Syntax: &ast.File{}}
		for _, path := range imports {
			f.Imports = append(f.Imports, arch.Import{Path: path, At: name + ":1"})
		}
		p.Files = append(p.Files, f)
	}
	return tree
}

func TestLawfulTreePasses(t *testing.T) {
	t.Parallel()
	if diff := cmp.Diff([]string(nil), rules().Check(plant(lawful()))); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

// TestBannedImport adds one import to a lawful tree.
func TestBannedImport(t *testing.T) {
	t.Parallel()
	const own = arch.Module + "/"
	for name, tc := range map[string]struct{ file, imports, want string }{
		"Up":                 {"api/api.go", own + "fit", "packages of one level do not know each other"},
		"UpALevel":           {"state/state.go", own + "binder", "goes up from level 1 to level 2"},
		"SameLevel":          {"binder/binder.go", own + "drainer", "packages of one level do not know each other"},
		"OtherColumn":        {"state/state.go", own + "agent", "servers never touch"},
		"OtherColumnInTest":  {"state/state_test.go", own + "agent", "servers never touch"},
		"OnlyInTests":        {"server/server.go", own + "client", "servers never touch"},
		"OnlyInItsTests":     {"state/state_test.go", own + "client", "servers never touch"},
		"OnlyThatInTests":    {"server/server_test.go", own + "agent", "servers never touch"},
		"SharedToOneColumn":  {"fit/fit.go", own + "state", "only what stands in all of them"},
		"Main":               {"agent/agent.go", own + "cmd/berth", "nothing imports main"},
		"MainInTest":         {"test/e2e/e2e_test.go", own + "cmd/berth", "nothing imports main"},
		"Tests":              {"state/state_test.go", own + "test/e2e", "nothing imports tests"},
		"SupportInProduct":   {"binder/binder.go", own + "state/statetest", "for tests only"},
		"SupportInMain":      {"cmd/berth/main.go", own + "state/statetest", "for tests only"},
		"ApartKnowsBerth":    {"test/mock/main.go", own + "api", "knows nothing of Berth"},
		"BerthKnowsApart":    {"test/e2e/e2e_test.go", own + "test/mock", "knows nothing of Berth"},
		"PackageWithoutRow":  {"state/state.go", own + "secret", "has no row"},
		"ModuleWithoutLine":  {"state/state.go", "example.com/new", "has no line in test/arch/modules.go"},
		"ModuleAlike":        {"state/state.go", "example.com/raft-wal", "has no line in test/arch/modules.go"},
		"ModuleInTest":       {"state/state_test.go", "example.com/new", "has no line in test/arch/modules.go"},
		"ModuleAwayFromHome": {"binder/binder.go", "example.com/raft", "its home is state, agent/...: one log"},
		"ModuleForTests":     {"binder/binder.go", "example.com/cmp", "for tests only: differences"},
		"Standard":           {"state/state.go", "os", "arithmetic"},
		"StandardBelow":      {"state/state.go", "os/exec", "arithmetic"},
		"StandardEverywhere": {"binder/binder.go", "log", "slog"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := lawful()
			files[tc.file] = append(files[tc.file], tc.imports)
			got := rules().Check(plant(files))
			at := tc.file + ":1: "
			if len(got) != 1 || !strings.HasPrefix(got[0], at) || !strings.Contains(got[0], tc.want) {
				t.Errorf("got %q, want one problem at %q with %q", got, at, tc.want)
			}
		})
	}
}

// TestTablesMatchTheTree changes a lawful tree, or its tables.
func TestTablesMatchTheTree(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*arch.Rules, map[string][]string)
		want   string
	}{
		"NewPackage": {
			func(_ *arch.Rules, files map[string][]string) { files["fresh/fresh.go"] = nil },
			"fresh has no row in test/arch/picture.go",
		},
		"PackageGone": {
			func(_ *arch.Rules, files map[string][]string) { delete(files, "drainer/drainer.go") },
			"package drainer, and the tree has no use for it",
		},
		"RowTwice": {
			func(r *arch.Rules, _ map[string][]string) { r.Picture = append(r.Picture, arch.Row{Path: "api"}) },
			"name package api twice",
		},
		"ArrowUnused": {
			func(_ *arch.Rules, files map[string][]string) { files["fit/fit.go"] = nil },
			"the arrow from fit to api",
		},
		"InTestsUnused": {
			func(_ *arch.Rules, files map[string][]string) { files["server/server_test.go"] = nil },
			"client for the tests of server",
		},
		"ModuleUnused": {
			func(r *arch.Rules, _ map[string][]string) {
				r.Homes = append(r.Homes, arch.Home{Module: "example.com/old"})
			},
			"module example.com/old",
		},
		"HomeUnused": {
			func(_ *arch.Rules, files map[string][]string) { files["agent/agent.go"] = nil },
			"agent/... as a home of example.com/raft",
		},
		"ModuleBecomesPart": {
			func(r *arch.Rules, _ map[string][]string) { r.Picture[len(r.Picture)-1].Role = arch.Part },
			"test/mock: a package is Apart",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, files := rules(), lawful()
			tc.change(&r, files)
			got := r.Check(plant(files))
			if len(got) != 1 || !strings.Contains(got[0], tc.want) {
				t.Errorf("got %q, want one problem with %q", got, tc.want)
			}
		})
	}
}
