package simulation_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/csi/csitest"
	"github.com/berth-dev/berth/test/cluster"
)

// reader follows a log.
type reader struct {
	log  interface{ Close() }
	mu   sync.Mutex // guards text
	text bytes.Buffer
	done chan error
}

func (r *reader) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(p)
}

func (r *reader) read() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

// talking is a cluster of one node that runs one task, whose log is followed.
func talking(t *testing.T) (*cluster.Cluster, *api.Allocation, *reader) {
	t.Helper()
	c := cluster.Start(t, cluster.Config{Agents: 1, Provider: csitest.Options{}})
	spec := cluster.JobSpec(1)
	spec.Groups[0].Tasks[0].Config = map[string]any{"stdout": "hello\n"}
	cluster.Must[api.JobInfo](c)(c.Client.ApplyJob(context.Background(), api.DefaultNamespace, "db", spec, 0))
	job := c.AwaitJob("db", api.JobRunning, limit)
	return c, job.Allocations[0], follow(t, c, job.Allocations[0].ID, 0)
}

func follow(t *testing.T, c *cluster.Cluster, id api.AllocID, offset int64) *reader {
	t.Helper()
	l, err := c.Client.Logs(context.Background(), id, "task", api.LogQuery{Follow: true, Offset: offset})
	if err != nil {
		t.Fatal(err)
	}
	r := &reader{log: l, done: make(chan error, 1)}
	go func() {
		_, err := io.Copy(r, l)
		l.Close()
		r.done <- err
	}()
	return r
}

// TestLogsToTheEnd: a log is followed while its task writes, through rotations,
// until the task has ended; it can still be read then.
func TestLogsToTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, alloc, r := talking(t)
		defer c.Close()
		want := strings.Builder{}
		want.WriteString("hello\n")
		for i := range 300 {
			line := fmt.Sprintf("line %d of a task that says something every second\n", i)
			want.WriteString(line)
			if err := c.Nodes[0].Machine().Tasks.Say(line); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if diff := cmp.Diff(want.String(), r.read()); diff != "" {
			t.Fatalf("while it runs (-want +got):\n%s", diff)
		}
		if _, err := c.Client.StopJob(context.Background(), api.DefaultNamespace, "db", 0); err != nil {
			t.Fatal(err)
		}
		if err := <-r.done; err != nil {
			t.Errorf("the log ended with %v", err)
		}
		c.AwaitJob("db", api.JobStopped, limit)
		again := follow(t, c, alloc.ID, int64(want.Len())-10)
		if err := <-again.done; err != nil || again.read() != want.String()[want.Len()-10:] {
			t.Errorf("afterwards: %q (%v)", again.read(), err)
		}
		c.Validate()
	})
}

// TestLogsOfAnAgentThatGoes: its reader learns why the log broke off, others
// that nobody is there, and all can go on with the next byte when it is back.
func TestLogsOfAnAgentThatGoes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, alloc, r := talking(t)
		defer c.Close()
		time.Sleep(30 * time.Second) // shorter than a reader waits
		began := time.Now()
		c.Nodes[0].Kill()
		if err := <-r.done; api.CodeOf(err) != api.CodeUnavailable || err.Error() != "the agent stops" || time.Since(began) > time.Second {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		for _, want := range []string{"is not connected: its agent does not poll", "is down: only its agent can read what is on it"} {
			began = time.Now()
			_, err := c.Client.Logs(context.Background(), alloc.ID, "task", api.LogQuery{})
			if api.CodeOf(err) != api.CodeUnavailable || !strings.HasSuffix(err.Error(), want) || time.Since(began) > time.Second {
				t.Errorf("while it is away, after %s: %v", time.Since(began), err)
			}
			time.Sleep(time.Minute)
		}
		c.Nodes[0].Start()
		time.Sleep(time.Minute)
		again := follow(t, c, alloc.ID, 3)
		if err := c.Nodes[0].Machine().Tasks.Say("more\n"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if got := again.read(); got != "lo\nmore\n" {
			t.Errorf("afterwards: %q", got)
		}
		again.log.Close()
		if err := <-again.done; err == nil {
			t.Error("a log that was closed ended well")
		}
	})
}
