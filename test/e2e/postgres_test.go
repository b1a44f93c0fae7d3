package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/test/host"
)

// database is PostgreSQL of examples/postgres.hcl.
type database struct {
	*host.Berth
	t *testing.T
	// rows were inserted and their commits acknowledged.
	rows int
}

// TestPostgres runs PostgreSQL from Debian's packages on an xfs volume of the
// local driver, and kills it, its supervisor, the agent, and all of them: what
// it had acknowledged is there each time. It moves to another allocation, too.
func TestPostgres(t *testing.T) {
	t.Parallel()
	d := &database{Berth: host.Start(t, host.Options{}), t: t}
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		if alloc := d.alloc(); alloc != nil {
			words, _, _ := d.Try("alloc", "logs", "--stderr", string(alloc.ID))
			t.Logf("the database said:\n%s", words)
		}
	})
	for _, name := range []string{"postgres-volume.hcl", "postgres.hcl"} {
		b, err := os.ReadFile(filepath.Join("..", "..", "examples", name))
		if err != nil {
			t.Fatal(err)
		}
		d.Apply(string(b))
	}
	d.insert("create table kept (n serial primary key, word text not null)")
	for _, kill := range []struct {
		what string
		do   func()
	}{
		{"the database", func() { d.kill(d.task()) }},
		{"its supervisor", func() { d.kill(d.supervisor()) }},
		{"the agent", func() {
			d.Kill()
			d.Resume()
		}},
		{"the agent, then the supervisor", func() {
			pid := d.supervisor()
			d.Kill()
			d.kill(pid)
			d.Resume()
		}},
		{"nothing, but the job is stopped and started", func() {
			d.Run("job", "stop", "postgres")
			d.Apply(d.example())
		}},
	} {
		for range 3 {
			d.insert("insert into kept (word) values ('one'), ('two')")
			d.rows += 2
		}
		kill.do()
		d.Eventually("after the death of "+kill.what+", all rows are there", limit, func() error {
			out, err := d.psql("select count(*) from kept")
			if err != nil {
				return err
			}
			if n, err := strconv.Atoi(out); err != nil || n != d.rows {
				t.Fatalf("after the death of %s there are %s rows of %d", kill.what, out, d.rows)
			}
			return nil
		})
	}
	var info api.VolumeInfo
	d.JSON(&info, "volume", "status", "postgres")
	if kind := fsOf(t, info.Attachments[0].Status.TargetPath); kind != "xfs" {
		t.Errorf("the data is on %s", kind)
	}
	d.Run("job", "stop", "postgres")
	d.Run("volume", "delete", "postgres")
}

func (d *database) example() string {
	b, err := os.ReadFile(filepath.Join("..", "..", "examples", "postgres.hcl"))
	if err != nil {
		d.t.Fatal(err)
	}
	return string(b)
}

// insert changes the database, when it can be reached.
func (d *database) insert(statement string) {
	d.t.Helper()
	d.Eventually(statement, limit, func() error {
		_, err := d.psql(statement)
		return err
	})
}

// psql asks the database of the job's running allocation.
func (d *database) psql(statement string) (string, error) {
	port, err := d.port()
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(d.t.Context(), 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "psql", "--no-psqlrc", "--tuples-only", "--no-align", "--host", "127.0.0.1", "--port", strconv.Itoa(port),
		"--username", "postgres", "--command", statement)
	var out, words bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &words
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%w: %s", err, words.String())
	}
	return strings.TrimSpace(out.String()), nil
}

func (d *database) port() (int, error) {
	alloc := d.alloc()
	if alloc == nil || len(alloc.Ports) == 0 {
		return 0, errors.New("no allocation runs")
	}
	return alloc.Ports[0].Number, nil
}

func (d *database) alloc() *api.Allocation {
	var job api.JobInfo
	d.JSON(&job, "job", "status", "postgres")
	for _, a := range job.Allocations {
		if a.Desired == api.DesireRun && a.Status.State == api.AllocRunning {
			return a
		}
	}
	return nil
}

// task is the process of the task as the host sees it, and supervisor its
// supervisor.
func (d *database) task() int {
	d.t.Helper()
	alloc := d.alloc()
	if alloc == nil {
		d.t.Fatal("no allocation runs")
	}
	return alloc.Status.Tasks["server"].PID
}

func (d *database) supervisor() int {
	d.t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", d.task()))
	if err != nil {
		d.t.Fatal(err)
	}
	parent, err := strconv.Atoi(strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))[1])
	if err != nil {
		d.t.Fatal(err)
	}
	return parent
}

func (d *database) kill(pid int) {
	d.t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		d.t.Error(err)
	}
}
