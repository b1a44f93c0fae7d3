package docker_test

import (
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/driver/docker"
)

// FuzzVolumes: however a bind is written, without the operator's word it is of the
// task's own directories, and with it the target is a plain path.
func FuzzVolumes(f *testing.F) {
	for _, seed := range []string{
		"local/a:/a", "local/../../etc:/etc", "/etc:/etc:ro", "local:/a:rw,rshared", "::", "a:b:c:d", "local//:/a", "./secrets:/s", "local/..:/a", ":/a", "local\x00:/a",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, bind string) {
		task := api.Task{Name: "t", Driver: docker.Name, Config: map[string]any{"image": "i", "volumes": []any{bind}}}
		open := newDriver(t, docker.Config{AllowHostPaths: true}).Check(task)
		closed := newDriver(t, docker.Config{}).Check(task)
		if open != nil && closed == nil {
			t.Errorf("%q is refused only where more is allowed: %v", bind, open)
		}
		source, rest, _ := strings.Cut(bind, ":")
		if target, _, _ := strings.Cut(rest, ":"); open == nil && !path.IsAbs(target) {
			t.Errorf("%q is taken", bind)
		}
		in := strings.Split(path.Join("/task", source), "/")
		if closed == nil && (len(in) < 3 || in[1] != "task" || !slices.Contains(api.TaskDirs(), in[2])) {
			t.Errorf("%q is taken where no paths of the machine are allowed", bind)
		}
	})
}
