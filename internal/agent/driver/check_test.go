package driver_test

import (
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/driver"
)

func TestFingerprint(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, test := range []struct {
		driver driver.Driver
		name   string
		want   api.Driver
	}{
		{w.exec(), "exec", api.Driver{Healthy: true, MountsVolumes: true}},
		{w.rawExec(), "raw_exec", api.Driver{Healthy: true}},
	} {
		if got := test.driver.Name(); got != test.name {
			t.Errorf("the driver calls itself %q, not %q", got, test.name)
		}
		if diff := cmp.Diff(test.want, test.driver.Fingerprint(ctx(t))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}

func TestCheckReportsEveryProblem(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		task      api.Task
		exec, raw []string // path and message of each problem
	}{
		"Good": {
			task: api.Task{Config: map[string]any{"command": "sleep", "args": []any{"1"}}, User: "daemon"},
		},
		"Empty": {
			exec: []string{"config.command is missing"},
			raw:  []string{"config.command is missing"},
		},
		"WrongTypes": {
			task: api.Task{Config: map[string]any{"command": 5, "args": []any{"a", 7, true}, "image": "x"}},
			exec: []string{
				"config.image is not known", "config.command is 5, which is no text",
				"config.args[1] is 7, which is no text", "config.args[2] is true, which is no text",
			},
			raw: []string{
				"config.image is not known", "config.command is 5, which is no text",
				"config.args[1] is 7, which is no text", "config.args[2] is true, which is no text",
			},
		},
		"NoList": {
			task: api.Task{Config: map[string]any{"command": "", "args": "a b"}},
			exec: []string{`config.command is ""`, "config.args is a b, which is no list"},
			raw:  []string{`config.command is ""`, "config.args is a b, which is no list"},
		},
		"ZeroByte": {
			task: api.Task{Config: map[string]any{"command": "a", "args": []string{"b\x00"}}},
			exec: []string{"config.args[0] holds a zero byte"},
			raw:  []string{"config.args[0] holds a zero byte"},
		},
		"UnknownUserAndVolumes": {
			task: api.Task{
				Config: map[string]any{"command": "a"}, User: "nosuchuser",
				VolumeMounts: []api.VolumeMount{{Destination: "/data"}, {Destination: "/proc"}, {Destination: "/data/x"}},
			},
			exec: []string{
				`user look up user "nosuchuser": unable to find user nosuchuser: no matching entries in passwd file`,
				"volume_mount[1].destination is /proc, and /proc is the kernel's",
			},
			raw: []string{
				`user look up user "nosuchuser": unable to find user nosuchuser: no matching entries in passwd file`,
				`volume_mount makes no sense: driver raw_exec cannot mount volumes: ` +
					`it runs the command directly on the host; use driver "exec"`,
			},
		},
		"UnknownGroup": {
			task: api.Task{Config: map[string]any{"command": "a"}, User: "daemon:nosuchgroup"},
			exec: []string{`user look up user "daemon:nosuchgroup": unable to find group nosuchgroup: no matching entries in group file`},
			raw:  []string{`user look up user "daemon:nosuchgroup": unable to find group nosuchgroup: no matching entries in group file`},
		},
		"NoUserBeforeGroup": {
			task: api.Task{Config: map[string]any{"command": "a"}, User: ":adm"},
			exec: []string{`user look up user ":adm": it names no user`},
			raw:  []string{`user look up user ":adm": it names no user`},
		},
	}
	w := newWorld(t)
	for name, test := range tests {
		for d, want := range map[driver.Driver][]string{w.exec(): test.exec, w.rawExec(): test.raw} {
			err := d.Check(test.task)
			var e *api.Error
			if errors.As(err, &e) && e.Code != api.CodeInvalid {
				t.Errorf("%s: the code is %s", name, e.Code)
			}
			var got []string
			if e != nil {
				for _, f := range e.Fields {
					got = append(got, f.Path+" "+f.Message)
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s, %s (-want +got):\n%s", name, d.Name(), diff)
			}
		}
	}
}

func TestBadConfigIsRefused(t *testing.T) {
	t.Parallel()
	log := slog.New(slog.DiscardHandler)
	long := filepath.Join(t.TempDir(), strings.Repeat("long/", 20))
	if _, err := driver.NewRawExec(driver.Config{RunDir: long}, log); err == nil || !strings.Contains(err.Error(), "is longer than the") {
		t.Errorf("a run directory of %d bytes is answered with %v", len(long), err)
	}
	for _, dir := range []string{"usr", "/", "/usr/"} {
		_, err := driver.NewExec(driver.Config{RunDir: t.TempDir(), SystemDirs: []string{dir}}, log)
		if err == nil || !strings.Contains(err.Error(), "is not a plain absolute path") {
			t.Errorf("system directory %q is answered with %v", dir, err)
		}
	}
}
