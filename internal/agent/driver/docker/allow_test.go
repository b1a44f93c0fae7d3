package docker_test

import (
	"testing"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/driver/docker"
)

// What an operator allows counts from when it is said, both ways.
func TestAllow(t *testing.T) {
	t.Parallel()
	d := newDriver(t, docker.Config{})
	task := api.Task{Name: "t", Driver: "docker", Config: map[string]any{"image": "i", "privileged": true}}
	for i, allowed := range []bool{false, true, false} {
		d.Allow(docker.Config{AllowPrivileged: allowed})
		if err := d.Check(task); (err == nil) != allowed {
			t.Errorf("%d: a privileged task, allowed %t: %v", i, allowed, err)
		}
	}
	d.Allow(docker.Config{Disabled: true, AllowPrivileged: true})
	if err := d.Check(task); err == nil {
		t.Error("a task passes the check of a driver that is disabled")
	}
}
