package arch_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/test/arch"
)

// root is the checkout that these tests are part of.
const root = "../.."

func readBerth(t *testing.T) *arch.Tree {
	t.Helper()
	tree, err := arch.ReadTree(root)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func TestImportsFollowThePicture(t *testing.T) {
	t.Parallel()
	for _, problem := range arch.BerthRules().Check(readBerth(t)) {
		t.Error(problem)
	}
}

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	t.Parallel()
	for _, p := range readBerth(t).Packages {
		docs := p.Docs()
		if len(docs) != 1 {
			t.Errorf("%s: %d files have a package comment, want 1", p.Path, len(docs))
			continue
		}
		text, ok := strings.CutPrefix(docs[0], p.Opening())
		if !ok || !strings.Contains(text, ".") {
			t.Errorf("%s: want a package comment of whole sentences that begins with %q, got %q", p.Path, p.Opening(), docs[0])
		}
	}
}

// TestArchitectureListsEveryPackage compares ARCHITECTURE.md with the tree,
// both ways.
func TestArchitectureListsEveryPackage(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## Packages\n")
	if !found {
		t.Fatal("ARCHITECTURE.md has no section \"## Packages\"")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var listed, want []string
	for _, line := range regexp.MustCompile("(?m)^- `([^`]+)`: \\S.*$").FindAllStringSubmatch(section, -1) {
		listed = append(listed, line[1])
	}
	slices.Sort(listed)
	for _, p := range readBerth(t).Packages {
		want = append(want, p.Path)
	}
	if diff := cmp.Diff(want, listed); diff != "" {
		t.Errorf("packages of the tree (-) and lines of ARCHITECTURE.md, \"- `path`: what it is\" (+):\n%s", diff)
	}
}

// TestSleepsOnlyInBubbles: a test that sleeps in real time is slow or wrong,
// and the product waits on timers that a context can end.
func TestSleepsOnlyInBubbles(t *testing.T) {
	t.Parallel()
	tree := readBerth(t)
	for _, p := range tree.Packages {
		for _, call := range arch.SleepsOutsideBubbles(p) {
			t.Errorf("%s: time.Sleep in real time: wait for a channel, a context or a timer, or test in a bubble (testing/synctest)",
				tree.At(call))
		}
	}
}

// TestNoPathsOfOneMachine: what works because of where a checkout lies works
// nowhere else. What git ignores is not looked at.
func TestNoPathsOfOneMachine(t *testing.T) {
	t.Parallel()
	// The slash in brackets keeps this line from finding itself.
	const foreign = `(^|[^[:alnum:]_.-])[/](work|tmp[/](brief|gobin))[/]`
	cmd := exec.CommandContext(t.Context(), "git", "grep", "--no-index", "--exclude-standard", "-InE", foreign, "--", ".")
	cmd.Dir = root
	var problems strings.Builder
	cmd.Stderr = &problems
	found, err := cmd.Output()
	if exit := cmd.ProcessState; exit == nil || exit.ExitCode() > 1 {
		t.Fatalf("%v: %s", err, &problems)
	}
	if len(found) > 0 {
		t.Errorf("paths of one machine:\n%s", found)
	}
}

// TestEveryPainHasItsTests: the page of what hurt elsewhere has a row for each
// of the numbers, and the tests that it names are there. Those that are named
// for a number are on it.
func TestEveryPainHasItsTests(t *testing.T) {
	t.Parallel()
	const pains = 34
	page, err := os.ReadFile(filepath.Join(root, "docs", "design", "0035-what-hurt-elsewhere.md"))
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err = filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range declared.FindAllStringSubmatch(string(text), -1) {
			there[m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	named := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\| (\d+) \|`).FindAllStringSubmatch(string(page), -1) {
		rows = append(rows, m[1])
	}
	for _, name := range regexp.MustCompile(`Test\w+`).FindAllString(string(page), -1) {
		if named[name] = true; !there[name] {
			t.Errorf("the page names %s, which is not there", name)
		}
	}
	var want []string
	for i := range pains {
		want = append(want, strconv.Itoa(i+1))
	}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Errorf("rows of the page (-want +got):\n%s", diff)
	}
	for name := range there {
		if regexp.MustCompile(`^Test(Pain|Habit)\d`).MatchString(name) && !named[name] {
			t.Errorf("%s is not on the page", name)
		}
	}
}
