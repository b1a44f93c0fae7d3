package integration_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/test/host"
)

const countingFile = `
job "count" {
  type = "batch"
  group "main" {
    task "counter" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "i=0; while [ $i -lt 200 ]; do echo line $i; i=$((i+1)); sleep 0.05; done; echo done >&2"]
      }
    }
  }
}
`

// runs runs a job, and says which is its allocation, and how long commands about
// it may take.
func runs(t *testing.T, file, name string) (b *host.Berth, alloc string, ctx context.Context) {
	t.Helper()
	b = host.Start(t, host.Options{})
	b.Apply(file)
	var job api.JobInfo
	b.JSON(&job, "job", "status", name)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return b, job.Allocations[0].ID.Short(), ctx
}

// TestFollowedWhileKilled kills server and agent while a log is followed: the
// task writes on, and its reader gets every line once.
func TestFollowedWhileKilled(t *testing.T) {
	t.Parallel()
	b, id, ctx := runs(t, countingFile, "count")
	cmd, stderr := b.Command(ctx, "alloc", "logs", "-f", id), &strings.Builder{}
	cmd.Stderr = stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for i := range 200 {
		if !lines.Scan() {
			t.Fatalf("the log ended after %d lines: %v\n%s", i, cmd.Wait(), stderr)
		}
		if want := fmt.Sprintf("line %d", i); lines.Text() != want {
			t.Fatalf("got %q, want %q", lines.Text(), want)
		}
		if i == 20 || i == 60 {
			b.Kill()
			b.Resume()
		}
	}
	rest, err := io.ReadAll(out)
	if err != nil || len(rest) > 0 {
		t.Errorf("after the last line %q (%v)", rest, err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("berth alloc logs: %v", err)
	}
	if n := strings.Count(stderr.String(), "going on when it is back\n"); n != 2 {
		t.Errorf("it was interrupted twice, and said:\n%s", stderr)
	}
	if got := b.Run("alloc", "logs", "--stderr", id); got != "done\n" {
		t.Errorf("its stderr is %q", got)
	}
}
