package integration_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/test/host"
)

// followingFile is a job whose tasks follow a variable, each in its own way.
const followingFile = `
job "db" {
  group "main" {
    task "restarted" {
      driver = "exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "echo $TOKEN >> /alloc/restarted; exec sleep 100000"]
      }
      template {
        destination = "secrets/env"
        env         = true
        splay       = "0s"
        data        = "TOKEN={{ with nomadVar \"nomad/jobs/db\" }}{{ .token }}{{ end }}"
      }
    }
    task "signalled" {
      driver = "exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "trap 'cat /local/conf >> /alloc/signalled' HUP; cat /local/conf >> /alloc/signalled; while :; do sleep 0.1; done"]
      }
      template {
        destination   = "local/conf"
        change_mode   = "signal"
        change_signal = "SIGHUP"
        splay         = "0s"
        data          = "{{ (nomadVar \"nomad/jobs/db\").token }}\n"
      }
    }
    task "scripted" {
      driver = "exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "cat /alloc/conf >> /alloc/scripted; exec sleep 100000"]
      }
      template {
        destination = "alloc/conf"
        change_mode = "script"
        splay       = "0s"
        data        = "{{ (nomadVar \"nomad/jobs/db\").token }}\n"
        change_script {
          command = "/bin/sh"
          args    = ["-c", "cat /alloc/conf >> /alloc/scripted"]
          timeout = "1m"
        }
      }
    }
    task "free" {
      driver = "exec"
      config {
        command = "/bin/sleep"
        args    = ["100000"]
      }
    }
  }
}
`

// TestTasksFollowTheirVariable: they wait for it and say so, they are told of its
// changes, they go on while no server is in reach, and nobody else learns what it
// holds.
func TestTasksFollowTheirVariable(t *testing.T) {
	t.Parallel()
	b := host.Start(t, host.Options{Apart: true})
	b.Apply(followingFile, "--detach")
	var job api.JobInfo
	b.Eventually("an allocation is there", limit, func() error {
		b.JSON(&job, "job", "status", "db")
		if len(job.Allocations) == 0 {
			return errors.New("there is none")
		}
		return nil
	})
	id := job.Allocations[0].ID
	status := func() (al api.AllocationInfo) {
		b.JSON(&al, "alloc", "status", string(id))
		return al
	}
	const waits = "waits for the variable nomad/jobs/db"
	b.Eventually("the tasks wait, but for the one that has nothing to wait for", limit, func() error {
		al := status()
		if p := al.Status.Problem; p == nil || !strings.Contains(p.Message, waits) || al.Status.Tasks["free"].State != api.TaskRunning || al.Status.Tasks["restarted"].State != "" {
			return fmt.Errorf("%+v, problem %+v", al.Status, p)
		}
		return nil
	})
	if out := b.Run("job", "explain", "db"); !strings.Contains(out, waits) {
		t.Errorf("the job is explained with %s", out)
	}

	secrets := []string{"first-s3cret", "second-s3cret", "third-s3cret"}
	dir := filepath.Join(b.DataDir, "alloc", string(id), ".alloc")
	told := func(n int) {
		t.Helper()
		want := strings.Join(secrets[:n], "\n") + "\n"
		b.Eventually(fmt.Sprintf("the tasks have seen %d values", n), limit, func() error {
			for _, task := range []string{"restarted", "signalled", "scripted"} {
				got, err := os.ReadFile(filepath.Join(dir, task))
				if err != nil || string(got) != want {
					return fmt.Errorf("%s has seen %q, %w", task, got, err)
				}
			}
			return nil
		})
	}
	b.Run("var", "put", "nomad/jobs/db", "token="+secrets[0])
	told(1)
	b.Run("var", "put", "nomad/jobs/db", "token="+secrets[1])
	told(2)
	var before map[string]api.TaskStatus
	b.Eventually("the servers know that it was started again", limit, func() error {
		before = status().Status.Tasks
		if is := before["restarted"]; is.State != api.TaskRunning || is.Restarts != 1 || is.Attempts != 0 {
			return fmt.Errorf("the task that is started again is %+v", is)
		}
		return nil
	})

	// An agent that is killed before it has noted what it told tells it again.
	b.Eventually("the node has noted what it told", limit, func() error {
		for _, task := range []string{"restarted", "signalled", "scripted"} {
			noted, err := os.ReadFile(filepath.Join(filepath.Dir(dir), ".templates", task+".json"))
			if err != nil || !strings.Contains(string(noted), secrets[1]) {
				return fmt.Errorf("%s: %q, %w", task, noted, err)
			}
		}
		return nil
	})

	// One that comes back without a server leaves all as it is.
	b.KillServer()
	b.Kill()
	b.Launch()
	b.StartServer()
	b.Eventually("the node has reported", limit, func() error {
		out, _, _ := b.Try("node", "list")
		if !strings.Contains(out, "ready") {
			return errors.New(out)
		}
		return nil
	})
	b.Run("var", "put", "nomad/jobs/db", "token="+secrets[1], "more=1")
	b.Run("var", "put", "nomad/jobs/db", "token="+secrets[2])
	told(3) // once each: what was the same told nobody
	after := status()
	for name, was := range before {
		if is := after.Status.Tasks[name]; name != "restarted" && is.PID != was.PID {
			t.Errorf("task %s was %+v and is %+v", name, was, is)
		}
	}

	// A variable that is deleted ends nothing.
	b.Run("var", "delete", "nomad/jobs/db")
	b.Eventually("people are told", limit, func() error {
		out := b.Run("alloc", "status", string(id))
		if !strings.Contains(out, "its files stay as they are: it "+waits) {
			return errors.New(out)
		}
		return nil
	})
	b.Eventually("it is known to run", limit, func() error {
		if is := status().Status.Tasks["restarted"]; is.State != api.TaskRunning || is.Restarts != 2 {
			return fmt.Errorf("the task that is started again is %+v", is)
		}
		return nil
	})

	local, err := os.ReadFile(filepath.Join(b.DataDir, "agent.db"))
	if err != nil {
		t.Fatal(err)
	}
	for where, text := range map[string]string{
		"the local database": string(local), "the logs": b.Output(), "the status": b.Run("alloc", "status", string(id), "--json"), "the job": b.Run("job", "status", "db", "--json"),
	} {
		for _, s := range secrets {
			if strings.Contains(text, s) {
				t.Errorf("%s has %s", where, s)
			}
		}
	}
	b.Run("job", "stop", "db")
}
