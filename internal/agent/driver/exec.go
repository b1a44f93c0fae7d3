package driver

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/driver/executor"
)

// NameExec is what jobs call Exec.
const NameExec = "exec"

// Exec runs a command of the host in a root file system, and in mount, pid, ipc
// and cgroup namespaces, of its own. It shares the host's network.
type Exec struct {
	supervised
	systemDirs []string
	executable string
	rules      atomic.Pointer[rules]
	log        *slog.Logger
}

var _ Driver = (*Exec)(nil)

// NewExec makes the driver. It does not mean that it works here: see
// Fingerprint.
func NewExec(cfg Config, log *slog.Logger) (*Exec, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, fmt.Errorf("make driver exec: %w", err)
	}
	s, err := newSupervised(cfg, log.With("driver", NameExec))
	if err != nil {
		return nil, fmt.Errorf("make driver exec: %w", err)
	}
	for _, dir := range cfg.SystemDirs {
		if !filepath.IsAbs(dir) || filepath.Clean(dir) != dir || dir == "/" {
			return nil, fmt.Errorf("make driver exec: system directory %q is not a plain absolute path", dir)
		}
	}
	e := &Exec{supervised: s, systemDirs: cfg.SystemDirs, executable: cfg.Executable, log: log}
	e.Allow(cfg)
	return e, nil
}

// Allow takes over what a configuration says that jobs may: Disabled and
// DenyPrivileged. It counts for tasks that are started from now on.
func (e *Exec) Allow(cfg Config) { e.rules.Store(cfg.rules()) }

// Name implements Driver.
func (e *Exec) Name() string { return NameExec }

// Fingerprint implements Driver.
func (e *Exec) Fingerprint(context.Context) api.Driver {
	d := api.Driver{MountsVolumes: true, Reason: e.obstacle()}
	d.Healthy = d.Reason == ""
	return d
}

// obstacle is why tasks cannot be isolated here, or "".
func (e *Exec) obstacle() string {
	if e.rules.Load().disabled {
		return Forbidden(NameExec)
	}
	if !executor.CanIsolate {
		return "this berth was built without cgo, which isolation needs"
	}
	if os.Geteuid() != 0 {
		return "the agent does not run as root"
	}
	if !mayMount() {
		return "the agent runs in a container or unit that denies it CAP_SYS_ADMIN"
	}
	for _, ns := range []string{"mnt", "pid", "ipc"} {
		if _, err := os.Stat("/proc/self/ns/" + ns); err != nil {
			return fmt.Sprintf("the kernel has no %s namespaces", ns)
		}
	}
	// It becomes the first process of every task, with the task's user.
	const others = 0o001
	if info, err := os.Stat(e.executable); err != nil {
		return fmt.Sprintf("berth's binary is gone: %v", err)
	} else if info.Mode()&others == 0 {
		return fmt.Sprintf("berth's binary %s may not be executed by other users", e.executable)
	}
	if err := e.tasks.CheckCgroups(); err != nil {
		return fmt.Sprintf("tasks cannot have cgroups: %v", err)
	}
	return ""
}

// mayMount reports whether the agent has CAP_SYS_ADMIN, which root in a
// container often lacks.
func mayMount() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return false
	}
	return data[0].Effective&(1<<unix.CAP_SYS_ADMIN) != 0
}

// Check implements Driver.
func (e *Exec) Check(task api.Task) error {
	var p api.Problems
	if e.rules.Load().disabled {
		p.Add("driver", "is exec: "+Forbidden(NameExec), "use another driver")
	}
	cmd, _ := e.inspect(&p, task)
	mounts := make([]Mount, len(task.VolumeMounts))
	for i, m := range task.VolumeMounts {
		mounts[i] = Mount{Destination: m.Destination, ReadOnly: m.ReadOnly}
	}
	l := newLayout(e.systemDirs)
	l.hostDevices = cmd.privileged
	l.add(&p, mounts)
	return p.Err("the task")
}

// keyPrivileged in a task's config asks for all that root may do on the host,
// in a root file system of the task's own.
const keyPrivileged = "privileged"

// inspect reads what to run, and as whom. Commands of a job are strangers on
// this machine, so without another word they are nobody.
func (e *Exec) inspect(p *api.Problems, task api.Task) (command, account) {
	cmd := parseCommand(p, task.Config, keyPrivileged)
	switch v := task.Config[keyPrivileged].(type) {
	case nil:
	case bool:
		cmd.privileged = v
		if v && e.rules.Load().unprivileged {
			p.Add("config."+keyPrivileged, "is true, which gives the task the machine, and this node does not allow it",
				`remove it, or have the operator remove allow_privileged = false from driver "exec" of the agent's configuration`)
		}
	default:
		p.Addf("config."+keyPrivileged, "write true or false", "is %v", v)
	}
	switch {
	case task.User != "":
	case cmd.privileged:
		return cmd, self()
	default:
		return cmd, nobody()
	}
	who, err := lookUpAccount(task.User)
	if err != nil {
		p.Add("user", err.Error(), "name a user of this machine, or a uid and gid such as 1000:1000")
	}
	return cmd, who
}

// Start implements Driver.
func (e *Exec) Start(ctx context.Context, spec Spec) error {
	if present, err := e.present(ctx, spec.ID); err != nil || present {
		return err
	}
	if e.rules.Load().disabled {
		return api.Errorf(api.CodeInvalid, "start task %s: %s", spec.ID, Forbidden(NameExec))
	}
	plan, err := e.plan(spec)
	if err != nil {
		return fmt.Errorf("start task %s: %w", spec.ID, err)
	}
	return e.tasks.Start(ctx, plan)
}

// plan says all of what is to be run, and where.
func (e *Exec) plan(spec Spec) (executor.Spec, error) {
	var p api.Problems
	cmd, who := e.inspect(&p, spec.Task)
	layout := newLayout(e.systemDirs)
	layout.hostDevices = cmd.privileged
	layout.own(spec.Dir)
	shared := func(m Mount) bool { return filepath.Clean(m.Destination) == "/alloc" }
	if spec.AllocDir != "" && !slices.ContainsFunc(spec.Mounts, shared) {
		layout.binds = append(layout.binds, executor.Bind{Source: spec.AllocDir, Destination: "/alloc"})
	}
	layout.add(&p, spec.Mounts)
	if err := p.Err("the task"); err != nil {
		return executor.Spec{}, err
	}
	if err := prepareDir(spec.Dir, &who.User); err != nil {
		return executor.Spec{}, err
	}
	if err := writeFiles(spec.Dir, spec.AllocDir, spec.Files, &who.User); err != nil {
		return executor.Spec{}, err
	}
	if err := giveFresh(spec.Mounts, who.User); err != nil {
		// Some file systems keep their owners. The task may need none.
		e.log.Warn("volume keeps its owner", "task", spec.ID, "error", err)
	}
	who.Groups = slices.Concat(who.Groups, spec.Groups())
	return executor.Spec{
		ID: spec.ID, Command: cmd.path, Args: cmd.args,
		Env: environment(spec.Env, "/local", who.name), Cwd: "/local", User: &who.User,
		Stdout: logPath(spec, api.LogStdout), Stderr: logPath(spec, api.LogStderr),
		Limits: limits(spec.Task.Resources),
		Root:   layout.root(), Privileged: cmd.privileged,
	}, nil
}
