package integration_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/test/host"
)

const rackConfig = `
log_level = "info"
server {
  enabled = true
}
client {
  enabled = true
  meta    = { rack = "r1" }
}
`

const rackJob = `
job "web" {
  constraint {
    attribute = "${meta.rack}"
    value     = "r2"
  }
  group "main" {
    task "sleep" {
      driver = "exec"
      config {
        command = "/bin/sleep"
        args    = ["1000"]
      }
    }
  }
}
`

// TestReload changes an agent's configuration while it runs: a job that waited
// for another machine finds that it is this one; what needs a restart is named;
// a file that is wrong changes nothing, and all that is wrong with it is said.
func TestReload(t *testing.T) {
	t.Parallel()
	b := host.Start(t, host.Options{Config: rackConfig, Service: true})
	b.Apply(rackJob, "--detach")
	out := b.Run("job", "explain", "web")
	if !strings.Contains(out, "rack") {
		t.Fatalf("the job waits for\n%s", out)
	}
	session := registered(b)

	b.Reconfigure("log_level = \"loud\"\nclient {\n  enabled = true\n  address = \"here\"\n}\n")
	b.Eventually("the faults are said", limit, said(b, "nothing has changed", "log_level is", "client.address is", "client.servers is"))

	b.Reconfigure(strings.NewReplacer("r1", "r2", `"info"`, `"debug"`).Replace(rackConfig) + "telemetry {\n  metrics_address = \"127.0.0.1:7499\"\n}\n")
	b.Eventually("the changes are said", limit, said(b, "configuration is reloaded", "[client.meta log_level]", "fields=[telemetry.metrics_address]", "level=DEBUG"))
	b.Eventually("the job runs", limit, func() error {
		if out := b.Run("job", "status", "web"); !strings.Contains(out, "running") {
			return errors.New(out)
		}
		return nil
	})
	if now := registered(b); now == session {
		t.Error("the node did not register again")
	}
	b.Run("job", "stop", "web")
}

func registered(b *host.Berth) string {
	var nodes []struct {
		Status struct {
			Session string `json:"session"`
		} `json:"status"`
	}
	b.JSON(&nodes, "node", "list")
	return nodes[0].Status.Session
}

// said checks that the agent has said all of some words.
func said(b *host.Berth, words ...string) func() error {
	return func() error {
		for _, w := range words {
			if !strings.Contains(b.Output(), w) {
				return errors.New(w + " is not in its output")
			}
		}
		return nil
	}
}

const sharedConfig = `
server {
  enabled = true
}
client {
  enabled = true
}
driver "raw_exec" {
  enabled = %t
}
`

const sharedJob = `
job "%s" {
  group "main" {%s
    task "sleep" {
      driver = "%s"
      config {
        command = "/bin/sleep"
        args    = ["1000"]
      }%s
    }
  }
}
`

// TestReloadOfWhatJobsMay changes what an agent allows while it runs: what runs
// goes on, and what is started next obeys.
func TestReloadOfWhatJobsMay(t *testing.T) {
	t.Parallel()
	b := host.Start(t, host.Options{Config: fmt.Sprintf(sharedConfig, true), Service: true})
	raw := fmt.Sprintf(sharedJob, "raw", "", "raw_exec", "")
	b.Apply(raw)
	pid := running(b, "raw")

	dir := t.TempDir()
	b.Reconfigure(fmt.Sprintf(sharedConfig, false) + fmt.Sprintf("host_volume \"data\" {\n  path = %q\n}\n", dir))
	b.Eventually("the changes are said", limit, said(b, "configuration is reloaded", `driver[\"raw_exec\"].enabled host_volume]`))
	b.Apply(fmt.Sprintf(sharedJob, "sees", `
    volume "data" {
      type   = "host"
      source = "data"
    }`, "exec", `
      volume_mount {
        volume      = "data"
        destination = "/data"
      }`))
	if now := running(b, "raw"); now != pid {
		t.Errorf("the task of the driver that was disabled was process %s, and is %s", pid, now)
	}
	b.Apply(strings.Replace(raw, `"raw"`, `"other"`, 1), "--detach")
	b.Eventually("a job of the driver waits, and it is said why", limit, func() error {
		if out := b.Run("job", "explain", "other"); !strings.Contains(out, "has disabled it") {
			return errors.New(out)
		}
		return nil
	})

	b.Reconfigure(fmt.Sprintf(sharedConfig, true))
	b.Eventually("its job runs", limit, func() error {
		if out := b.Run("job", "status", "other"); !strings.Contains(out, "running") {
			return errors.New(out)
		}
		return nil
	})
	if out := b.Run("job", "status", "sees"); !strings.Contains(out, "running") {
		t.Errorf("the job whose directory was taken from the configuration:\n%s", out)
	}
	for _, job := range []string{"raw", "other", "sees"} {
		b.Run("job", "stop", job)
	}
}

// running is the process of a job's only task.
func running(b *host.Berth, name string) string {
	var job api.JobInfo
	b.JSON(&job, "job", "status", name)
	return fmt.Sprint(job.Allocations[0].Status.Tasks["sleep"].PID)
}
