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
	now := look(tb)
	report := func(what string, before, after map[string]bool, mine func(string) bool) {
		var left []string
		for name := range after {
			if !before[name] && mine(name) {
				left = append(left, name)
			}
		}
		sort.Strings(left)
		if len(left) > 0 {
			tb.Errorf("%s left behind: %v", what, left)
		}
	}
	below := func(path string) bool { return strings.HasPrefix(path, dir+"/") }
	report("mounts", p.mounts, now.mounts, below)
	report("loop devices", p.loops, now.loops, below)
	report("network namespaces", p.namespaces, now.namespaces, func(string) bool { return true })
	awaitNone(tb, dir)
}

// awaitNone waits a moment for processes that name dir in their command line to
// end, and reports those that do not.
func awaitNone(tb testing.TB, dir string) {
	tb.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for range 40 {
		if len(processes(dir)) == 0 {
			return
		}
		<-tick.C
	}
	tb.Errorf("processes left behind: %v", processes(dir))
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
