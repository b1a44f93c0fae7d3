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

// TestEveryPainHasItsTests: the page of what hurt elsewhere has a row for each of
// the numbers and parts, and each row names its tests, which are there, or says
// why there is none. Those that are named for a number are on it.
func TestEveryPainHasItsTests(t *testing.T) {
	t.Parallel()
	const pains = 34
	parts := []string{"1.1", "1.2", "1.3", "1.4", "1.5", "1.6", "1.7", "1.8", "1.9", "1.10", "1.11", "1.12", "5"}
	page, err := os.ReadFile(filepath.Join(root, "docs", "design", "0035-what-hurt-elsewhere.md"))
	if err != nil {
		t.Fatal(err)
	}
	there, named := testsOf(t), map[string]bool{}
	test := regexp.MustCompile(`\b(Test|Benchmark)\w+`)
	var numbers, sections []string
	kind := ""
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		last := cells[len(cells)-1]
		switch {
		case !strings.HasPrefix(line, "| "):
			continue
		case cells[0] == "pain" || cells[0] == "part":
			kind = cells[0]
			continue
		case kind == "pain":
			numbers = append(numbers, cells[0])
		default:
			sections = append(sections, cells[0])
		}
		if slices.Contains(cells, "") {
			t.Errorf("an empty cell in %s", line)
		}
		tests := strings.Split(last, ", ")
		if strings.HasPrefix(last, "none: ") {
			tests = nil
		}
		for _, name := range tests {
			if named[name] = true; test.FindString(name) != name {
				t.Errorf("%q is no name of a test, and no reason why there is none, in %s", name, line)
			} else if !there[name] {
				t.Errorf("the page names %s, which is not there", name)
			}
		}
	}
	for _, name := range test.FindAllString(string(page), -1) {
		if !named[name] {
			t.Errorf("%s is named outside of the last column", name)
		}
	}
	var want []string
	for i := range pains {
		want = append(want, strconv.Itoa(i+1))
	}
	if diff := cmp.Diff(want, numbers); diff != "" {
		t.Errorf("pains of the page (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(parts, slices.Compact(sections)); diff != "" {
		t.Errorf("parts of the page, in their order (-want +got):\n%s", diff)
	}
	for name := range there {
		if regexp.MustCompile(`^Test(Pain|Habit)\d`).MatchString(name) && !named[name] {
			t.Errorf("%s is not on the page", name)
		}
	}
}

// testsOf are the names of all tests and benchmarks of the tree.
func testsOf(t *testing.T) map[string]bool {
	t.Helper()
	there := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Benchmark)\w+)\(`)
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
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
	return there
}
