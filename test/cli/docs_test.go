package cli_test

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/internal/cli"
	"github.com/berth-dev/berth/internal/spec"
)

// root is the checkout that these tests are part of.
const root = "../.."

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// examples are the indented parts of a page, each between two lines of text.
func examples(page string) []string {
	var all []string
	var current strings.Builder
	for line := range strings.Lines(page + "\nend\n") {
		code, indented := strings.CutPrefix(line, "    ")
		switch {
		case indented:
			current.WriteString(code)
		case strings.TrimSpace(line) == "":
			current.WriteString("\n")
		default:
			if text := strings.TrimSpace(current.String()); text != "" {
				all = append(all, text+"\n")
			}
			current.Reset()
		}
	}
	return all
}

// names parses a file and lists what is in it.
func names(t *testing.T, name, text string) []string {
	t.Helper()
	f, err := spec.Parse(name, []byte(text))
	if err != nil {
		t.Errorf("%v in\n%s", err, text)
		return nil
	}
	if len(f.Warnings) > 0 {
		t.Errorf("%s: warnings %v", name, f.Warnings)
	}
	var all []string
	for _, v := range f.Volumes {
		all = append(all, "volume "+string(v.ID))
	}
	for _, j := range f.Jobs {
		all = append(all, "job "+string(j.ID))
	}
	return all
}

// TestExamplesOfThePageAreTaken: what docs/files.md shows can be applied.
func TestExamplesOfThePageAreTaken(t *testing.T) {
	t.Parallel()
	var got []string
	for _, text := range examples(read(t, "docs/files.md")) {
		got = append(got, names(t, "docs/files.md", text)...)
	}
	if diff := cmp.Diff([]string{"volume pg", "volume letters", "volume mysql", "volume ledger", "job db", "job reports", "job web", "job web", "job db", "job db", "job renderer", "job nfs", "job store"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestExampleFilesAreTaken, all of them.
func TestExampleFilesAreTaken(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob(filepath.Join(root, "examples", "*.hcl"))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for _, path := range paths {
		name := filepath.Base(path)
		got[name] = names(t, name, read(t, "examples/"+name))
	}
	want := map[string][]string{
		"batch.hcl": {"job report"}, "block.hcl": {"volume disk", "job disk"}, "checks.hcl": {"job web"}, "docker.hcl": {"volume site", "job site"},
		"job.hcl": {"job writer"}, "plugin.hcl": {"job plugin-disk"}, "postgres.hcl": {"job postgres"}, "postgres-volume.hcl": {"volume postgres"},
		"replicas.hcl": {"volume store[0]", "job store"}, "shared.hcl": {"volume mail", "job mail"}, "updates.hcl": {"job front", "job worker"},
		"volume.hcl": {"volume notes"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

var link = regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)

// TestLinksLeadSomewhere: every page and file that a page names is there, and
// the index names every page.
func TestLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	index := read(t, "docs/README.md")
	for _, page := range append(pages, filepath.Join(root, "README.md")) {
		name, err := filepath.Rel(root, page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(read(t, name), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), m[1])); err != nil {
				t.Errorf("%s leads to %s: %v", name, m[1], err)
			}
		}
		if base := filepath.Base(page); base != "README.md" && !strings.Contains(index, "("+base+")") {
			t.Errorf("docs/README.md does not name %s", base)
		}
	}
}

var command = regexp.MustCompile("(?:^|[`(]|\\$ )berth ([a-z][^`\n|#>]*)")

// TestCommandsOfThePagesExist, with the flags that the pages give them.
func TestCommandsOfThePagesExist(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil || len(pages) < 10 {
		t.Fatalf("find pages: %d found, %v", len(pages), err)
	}
	for _, path := range append(pages, filepath.Join(root, "README.md")) {
		page, err := filepath.Rel(root, path)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(read(t, page)) {
			for _, m := range command.FindAllStringSubmatch(strings.TrimSpace(line), -1) {
				words := strings.Fields(m[1])
				if words[0] == "agent" || words[0] == "plugin" && slices.Contains(words, "local") || words[0] == "executor" {
					continue // main's own, which test/integration runs
				}
				tree := cli.Root(cli.Env{Getenv: func(string) string { return "" }, Stdout: io.Discard, Stderr: io.Discard})
				cmd, rest, err := tree.Find(words)
				if err != nil || cmd == tree || cmd.HasSubCommands() && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
					t.Errorf("%s: berth %s: there is no such command (%v)", page, m[1], err)
					continue
				}
				for _, word := range rest {
					if name, is := strings.CutPrefix(word, "--"); is && name != "" && cmd.Flag(strings.SplitN(name, "=", 2)[0]) == nil && name != "help" {
						t.Errorf("%s: berth %s: there is no flag %s", page, m[1], word)
					}
				}
			}
		}
	}
}
