package driver

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/driver/executor"
	"github.com/berth-dev/berth/internal/ownership"
)

// NameRawExec is what jobs call RawExec.
const NameRawExec = "raw_exec"

// noVolumes is what a user reads who gives volumes to a raw_exec task.
const noVolumes = `driver raw_exec cannot mount volumes: it runs the command directly on the host; use driver "exec"`

// RawExec runs a command of the host on the host, as the agent's own user if
// the task names none.
type RawExec struct {
	supervised
	rules atomic.Pointer[rules]
	// letting is held while a user is let through a directory.
	letting sync.Mutex
}

var _ Driver = (*RawExec)(nil)

// NewRawExec makes the driver.
func NewRawExec(cfg Config, log *slog.Logger) (*RawExec, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, fmt.Errorf("make driver raw_exec: %w", err)
	}
	s, err := newSupervised(cfg, log.With("driver", NameRawExec))
	if err != nil {
		return nil, fmt.Errorf("make driver raw_exec: %w", err)
	}
	r := &RawExec{supervised: s}
	r.Allow(cfg)
	return r, nil
}

// Allow takes over what a configuration says that jobs may: Disabled. It counts
// for tasks that are started from now on.
func (r *RawExec) Allow(cfg Config) { r.rules.Store(cfg.rules()) }

// Name implements Driver.
func (r *RawExec) Name() string { return NameRawExec }

// Fingerprint implements Driver.
func (r *RawExec) Fingerprint(context.Context) api.Driver {
	if r.rules.Load().disabled {
		return api.Driver{Reason: Forbidden(NameRawExec)}
	}
	return api.Driver{Healthy: true, MountsVolumes: false}
}

// Check implements Driver.
func (r *RawExec) Check(task api.Task) error {
	var p api.Problems
	if r.rules.Load().disabled {
		p.Add("driver", "is raw_exec: "+Forbidden(NameRawExec), "use another driver")
	}
	r.inspect(&p, task)
	if len(task.VolumeMounts) > 0 {
		p.Add("volume_mount", "makes no sense: "+noVolumes, "")
	}
	return p.Err("the task")
}

// inspect reads what to run, and as whom.
func (r *RawExec) inspect(p *api.Problems, task api.Task) (command, account) {
	cmd := parseCommand(p, task.Config)
	if task.User == "" {
		return cmd, self()
	}
	who, err := lookUpAccount(task.User)
	if err == nil && os.Geteuid() != 0 && who.UID != os.Geteuid() {
		err = fmt.Errorf("become user %q: the agent does not run as root", task.User)
	}
	if err != nil {
		p.Add("user", err.Error(), "name a user of this machine, or none to run as the agent does")
	}
	return cmd, who
}

// Root implements OnHost.
func (*RawExec) Root(dir string) string { return dir }

// Start implements Driver.
func (r *RawExec) Start(ctx context.Context, spec Spec) error {
	if present, err := r.present(ctx, spec.ID); err != nil || present {
		return err
	}
	if r.rules.Load().disabled {
		return api.Errorf(api.CodeInvalid, "start task %s: %s", spec.ID, Forbidden(NameRawExec))
	}
	plan, err := r.plan(spec)
	if err != nil {
		return fmt.Errorf("start task %s: %w", spec.ID, err)
	}
	return r.tasks.Start(ctx, plan)
}

// letThrough lets the task's user come to the task's directory, which lies in one
// that is closed to others. Where that cannot be had, the task still begins in it.
func (r *RawExec) letThrough(spec *Spec, user *executor.User) {
	if user == nil {
		return
	}
	r.letting.Lock()
	defer r.letting.Unlock()
	if err := ownership.Through(filepath.Dir(spec.Dir), user.UID); err != nil && spec.Say != nil {
		spec.Say("the task's user cannot come to the task's directories by their names: " + err.Error())
	}
}

// plan says all of what is to be run, and where.
func (r *RawExec) plan(spec Spec) (executor.Spec, error) {
	if len(spec.Mounts) > 0 {
		return executor.Spec{}, api.Errorf(api.CodeInvalid, "%s", noVolumes)
	}
	var p api.Problems
	cmd, who := r.inspect(&p, spec.Task)
	if err := p.Err("the task"); err != nil {
		return executor.Spec{}, err
	}
	var user *executor.User
	if os.Geteuid() == 0 {
		user = &who.User
	}
	if err := prepareDir(spec.Dir, user); err != nil {
		return executor.Spec{}, err
	}
	if err := writeFiles(spec.Dir, spec.AllocDir, spec.Files, user); err != nil {
		return executor.Spec{}, err
	}
	r.letThrough(&spec, user)
	return executor.Spec{
		ID: spec.ID, Command: cmd.path, Args: cmd.args,
		Env: environment(spec.Env, who.home, who.name), Cwd: filepath.Join(spec.Dir, "local"), User: user,
		Stdout: logPath(spec, api.LogStdout), Stderr: logPath(spec, api.LogStderr),
		Limits: limits(spec.Task.Resources),
	}, nil
}
