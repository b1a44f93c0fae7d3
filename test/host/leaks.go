package host

import (
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"
	"time"
)

// picture is what of this machine a test must leave as it was.
type picture struct {
	mounts, loops, namespaces map[string]bool
}

// look takes a picture.
func look(tb testing.TB) picture {
	tb.Helper()
	return picture{mounts: mounts(tb), loops: loops(tb), namespaces: names(tb, "/run/netns")}
}

// mounts are the mount points.
func mounts(tb testing.TB) map[string]bool {
	tb.Helper()
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		tb.Fatal(err)
	}
	all := map[string]bool{}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 4 {
			all[f[4]] = true
		}
	}
	return all
}

// loops are the loop devices in use, with their files.
func loops(tb testing.TB) map[string]bool {
	tb.Helper()
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		tb.Fatal(err)
	}
	all := map[string]bool{}
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil {
			all[strings.TrimSpace(string(b))] = true
		}
	}
	return all
}

func names(tb testing.TB, dir string) map[string]bool {
	tb.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		tb.Fatal(err)
	}
	all := map[string]bool{}
	for _, e := range entries {
		all[e.Name()] = true
	}
	return all
}

// compare reports what is there now below dir, or new elsewhere. Other tests
// run at the same time: what is not below dir is theirs.
func (p picture) compare(tb testing.TB, dir string) {
	tb.Helper()
	// What is let go of stays as long as somebody else has it: a process that is just
	// being started, or a boot of another test that has yet to leave it.
	left := awaitNothing(func() []string { return p.added(look(tb), dir) })
	for _, what := range left {
		tb.Errorf("left behind: %s", what)
	}
	awaitNone(tb, dir)
}

// added are the mounts and loop devices below dir that are new, and what network
// namespaces are.
func (p picture) added(now picture, dir string) (all []string) {
	below := func(path string) bool { return strings.HasPrefix(path, dir+"/") }
	collect := func(what string, before, after map[string]bool, mine func(string) bool) {
		for name := range after {
			if !before[name] && mine(name) {
				all = append(all, what+" "+name)
			}
		}
	}
	collect("mount", p.mounts, now.mounts, below)
	collect("loop device", p.loops, now.loops, below)
	collect("network namespace", p.namespaces, now.namespaces, func(string) bool { return true })
	sort.Strings(all)
	return all
}

// awaitNothing waits until nothing is left, and answers what still is after a while.
func awaitNothing(left func() []string) []string {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for range 400 {
		if len(left()) == 0 {
			return nil
		}
		<-tick.C
	}
	return left()
}

// awaitNone waits a moment for processes that name dir in their command line to
// end, and reports those that do not.
func awaitNone(tb testing.TB, dir string) {
	tb.Helper()
	if left := awaitNothing(func() []string { return processes(dir) }); len(left) > 0 {
		tb.Errorf("processes left behind: %v", left)
	}
}

// processes are the command lines that name dir.
func processes(dir string) []string {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil
	}
	var found []string
	for _, f := range files {
		b, err := os.ReadFile(f)
		line := strings.ReplaceAll(string(b), "\x00", " ")
		if err == nil && strings.Contains(line, dir+"/") {
			found = append(found, line)
		}
	}
	return found
}
