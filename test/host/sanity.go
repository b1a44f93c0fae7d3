package host

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// SanityReport is how csi-sanity went.
type SanityReport struct {
	Passed int
	// Failed are the specs that did, with what they said.
	Failed map[string]string
	// Skipped counts specs by the reason that csi-sanity gave.
	Skipped map[string]int
}

// Sanity runs csi-sanity with flags of its own, and returns when it has ended.
func Sanity(tb testing.TB, flags ...string) SanityReport {
	tb.Helper()
	binary := os.Getenv("BERTH_CSI_SANITY")
	if binary == "" {
		binary = build(tb, filepath.Join("..", "e2e", "sanity"), "github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity", "csi-sanity")
	}
	path := filepath.Join(tb.TempDir(), "report.json")
	cmd := exec.CommandContext(tb.Context(), binary, append(flags, "-ginkgo.no-color", "-ginkgo.json-report="+path)...)
	// Its status is also that of specs that failed, which the report names.
	out, err := cmd.CombinedOutput()
	data, readErr := os.ReadFile(path)
	if readErr != nil {
		tb.Fatalf("csi-sanity: %v, without a report\n%s", err, out)
	}
	var suites []struct {
		SpecReports []struct {
			ContainerHierarchyTexts []string
			LeafNodeText            string
			LeafNodeType            string
			State                   string
			Failure                 struct{ Message string }
		}
	}
	if err := json.Unmarshal(data, &suites); err != nil {
		tb.Fatalf("read csi-sanity's report: %v", err)
	}
	r := SanityReport{Failed: map[string]string{}, Skipped: map[string]int{}}
	for _, suite := range suites {
		for _, spec := range suite.SpecReports {
			if spec.LeafNodeType != "It" {
				continue
			}
			name := strings.Join(append(spec.ContainerHierarchyTexts, spec.LeafNodeText), ": ")
			switch spec.State {
			case "passed":
				r.Passed++
			case "skipped", "pending":
				reason := spec.Failure.Message
				if reason == "" {
					reason = name // by a flag, or by csi-sanity itself
				}
				r.Skipped[reason]++
			default:
				r.Failed[name] = spec.Failure.Message
			}
		}
	}
	return r
}

// ShortDir is a directory for the test with a path that sockets have room for.
func ShortDir(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("/tmp", "berth")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			tb.Error(err)
		}
	})
	return dir
}

// Disk mounts a new file system of the type in dir until the test is over, and
// returns where. Without a type it returns dir.
func Disk(tb testing.TB, dir, fsType string) string {
	tb.Helper()
	if fsType == "" {
		return dir
	}
	image, disk := filepath.Join(dir, "disk.img"), filepath.Join(dir, "disk")
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, 2<<30), os.Mkdir(disk, 0o755)); err != nil {
		tb.Fatal(err)
	}
	run := func(args ...string) {
		if out, err := exec.CommandContext(context.Background(), args[0], args[1:]...).CombinedOutput(); err != nil {
			tb.Errorf("%v: %v\n%s", args, err, out)
		}
	}
	run("mkfs."+fsType, "-q", image)
	run("mount", "-o", "loop", image, disk)
	tb.Cleanup(func() { run("umount", disk) })
	return disk
}
