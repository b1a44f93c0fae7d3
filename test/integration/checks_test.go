package integration_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/test/host"
)

// checkedFile is a job whose checks ask what the test answers, and a file in the
// task.
const checkedFile = `
job "db" {
  group "main" {
    restart {
      attempts = 100
      delay    = "1s"
      mode     = "delay"
    }
    service {
      name = "web"
      port = "%d"
      task = "t"
      check {
        type     = "http"
        path     = "/health?of=${BERTH_JOB_ID}"
        interval = "1s"
        failures_before_critical = 5
      }
      check {
        type     = "tcp"
        interval = "1s"
        failures_before_critical = 5
      }
      check {
        type     = "script"
        command  = "sh"
        args     = ["-c", "echo of ${BERTH_TASK_NAME}; test -e /alloc/ready"]
        interval = "1s"
        %s
      }
    }
    task "t" {
      driver = "exec"
      config {
        command = "/bin/sleep"
        args    = ["100000"]
      }
    }
  }
}
`

// TestChecksAreAskedByTheAgent: over HTTP, by a connection, and in the task; an
// agent that starts again goes on with what passes; and a task whose check fails is
// started again if the job says so.
func TestChecksAreAskedByTheAgent(t *testing.T) {
	t.Parallel()
	var broken atomic.Bool
	broken.Store(true)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if broken.Load() || r.URL.String() != "/health?of=db" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = io.WriteString(w, "this is "+r.URL.String())
	}))
	_ = web.Listener.Close() // for that one
	web.Listener = l
	web.Start()
	t.Cleanup(web.Close)
	port := l.Addr().(*net.TCPAddr).Port //nolint:forcetypeassert // it is one

	b := host.Start(t, host.Options{})
	b.Apply(fmt.Sprintf(checkedFile, port, ""))
	var job api.JobInfo
	b.JSON(&job, "job", "status", "db")
	id := job.Allocations[0].ID.Short()
	checks := func() map[string]api.CheckStatus {
		var al api.AllocationInfo
		b.JSON(&al, "alloc", "status", id)
		all := map[string]api.CheckStatus{}
		for _, c := range al.Status.Checks {
			all[c.Name] = c
		}
		return all
	}
	are := func(states ...api.CheckState) func() error {
		return func() error {
			all := checks()
			for i, name := range []string{"http", "tcp", "script"} {
				if all[name].Status != states[i] {
					return fmt.Errorf("%s is %+v", name, all[name])
				}
			}
			return nil
		}
	}
	b.Eventually("the checks are made", limit, are(api.CheckCritical, api.CheckPassing, api.CheckCritical))
	for name, want := range map[string]string{"http": "HTTP 503 Service Unavailable: this is /health?of=db", "script": "exit status 1: of t"} {
		if got := checks()[name].Output; got != want {
			t.Errorf("%s says %q, want %q", name, got, want)
		}
	}
	service := func(flags ...string) (s api.ServiceInfo) {
		b.JSON(&s, append([]string{"service", "status", "web"}, flags...)...)
		return s
	}
	if healthy, all := service("--healthy"), service(); len(healthy.Instances) != 0 || healthy.Unhealthy != 1 || len(all.Instances) != 1 || all.Instances[0].Status != api.CheckCritical {
		t.Errorf("healthy: %+v; all: %+v", healthy, all)
	}

	broken.Store(false)
	b.Run("alloc", "exec", id, "touch", "/alloc/ready")
	b.Eventually("the checks pass", limit, are(api.CheckPassing, api.CheckPassing, api.CheckPassing))
	if healthy := service("--healthy"); len(healthy.Instances) != 1 || healthy.Instances[0].Port != port {
		t.Errorf("healthy: %+v", healthy)
	}

	before := checks()
	c := b.Client()
	b.Eventually("the node has it recorded", limit, func() error {
		a, err := b.Account(c)
		if err != nil {
			return err
		}
		for i := range a.Recorded {
			for _, c := range a.Recorded[i].Status.Checks {
				if c.Status != api.CheckPassing {
					return fmt.Errorf("%+v", c)
				}
			}
		}
		return nil
	})
	b.Kill()
	b.Resume()
	b.Eventually("the next agent has the task", limit, func() error {
		if _, stderr, status := b.Try("alloc", "exec", id, "rm", "-f", "/alloc/ready"); status != 0 {
			return fmt.Errorf("exit status %d: %s", status, stderr)
		}
		return nil
	})
	b.Eventually("the next agent asks", limit, are(api.CheckPassing, api.CheckPassing, api.CheckCritical))
	after := checks()
	for _, name := range []string{"http", "tcp"} {
		if !after[name].Since.Equal(before[name].Since) {
			t.Errorf("%s passed since %s, and after a restart of the agent since %s", name, before[name].Since, after[name].Since)
		}
	}

	b.Apply(fmt.Sprintf(checkedFile, port, "check_restart {\nlimit = 2\n}"), "--detach")
	b.Eventually("the task is started again", limit, func() error {
		var al api.AllocationInfo
		b.JSON(&al, "alloc", "status", id)
		if is := al.Status.Tasks["t"]; is.Restarts == 0 || !strings.HasPrefix(is.Last.Reason, `check "script" of service web failed 2 times in a row: exit status 1`) {
			return fmt.Errorf("the task is %+v", is)
		}
		return nil
	})
	b.Run("job", "stop", "db")
}
