package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/driver"
)

// Start implements driver.Driver. What an earlier call made and did not start is
// made again: nobody knows what it was made from.
func (d *Driver) Start(ctx context.Context, spec driver.Spec) error {
	if spec.Say == nil {
		spec.Say = func(string) {}
	}
	c, err := d.find(ctx, spec.ID)
	if err != nil {
		return err
	}
	if c != nil {
		if d.ran(c) {
			d.copies.want(c)
			return nil
		}
		if err := d.remove(ctx, c.ID); err != nil {
			return fmt.Errorf("remove what is left of task %s: %w", spec.ID, err)
		}
	}
	if d.rules.Load().Disabled {
		return api.Errorf(api.CodeInvalid, "start task %s: %s", spec.ID, driver.Forbidden(Name))
	}
	var p api.Problems
	cfg := d.parse(&p, &spec.Task)
	if err := p.Err("the task"); err != nil {
		return err
	}
	if err := d.limitable(ctx, spec.Task.Resources); err != nil {
		return fmt.Errorf("start task %s: %w", spec.ID, err)
	}
	if len(cfg.ignored) > 0 {
		spec.Say("ignored in config: " + strings.Join(cfg.ignored, ", ") + ": what the task writes goes to its log files")
	}
	release, err := d.images.hold(ctx, repositoryOf(cfg.image))
	if err != nil {
		return err
	}
	defer release()
	img, err := d.image(ctx, &cfg, spec.Say)
	if err != nil {
		return err
	}
	if err := d.useImage(cfg.image); err != nil {
		return err
	}
	if err := d.prepare(&spec, img.user); err != nil {
		return err
	}
	forget, err := ownNodes(&spec, img.user)
	if err != nil {
		return err
	}
	return errors.Join(d.run(ctx, &spec, &cfg), forget())
}

// prepare makes the task's directories ready. The users of an image are known
// by their numbers only; others share the directories, which nobody on the
// machine reaches but root.
func (d *Driver) prepare(spec *driver.Spec, imageUser string) error {
	prepare := func(owner *driver.User) error {
		if err := spec.Prepare(owner); err != nil {
			return err
		}
		if err := os.Chmod(spec.Dir, 0o700); err != nil {
			return fmt.Errorf("prepare task directory: %w", err)
		}
		return nil
	}
	user, known := userOf(spec, imageUser)
	if !known {
		if err := prepare(nil); err != nil {
			return err
		}
		for _, dir := range api.TaskDirs() {
			if err := os.Chmod(filepath.Join(spec.Dir, dir), 0o777); err != nil {
				return fmt.Errorf("prepare task directory: %w", err)
			}
		}
		return nil
	}
	if err := prepare(&user); err != nil {
		return err
	}
	if err := spec.GiveFresh(user); err != nil {
		// Some file systems keep their owners. The task may need none.
		d.log.Warn("volume keeps its owner", "task", spec.ID, "error", err)
	}
	return nil
}

// userOf is whom the task runs as, as far as the machine can know.
func userOf(spec *driver.Spec, imageUser string) (user driver.User, known bool) {
	return numeric(cmp.Or(spec.Task.User, imageUser))
}

// numeric is a user written as uid or uid:gid; none is root.
func numeric(s string) (driver.User, bool) {
	if s == "" || s == "root" {
		return driver.User{}, true
	}
	uid, gid, both := strings.Cut(s, ":")
	u, err := strconv.Atoi(uid)
	if err != nil || u < 0 {
		return driver.User{}, false
	}
	if !both {
		return driver.User{UID: u, GID: u}, true
	}
	g, err := strconv.Atoi(gid)
	return driver.User{UID: u, GID: g}, err == nil && g >= 0
}

// run makes the container and starts it.
func (d *Driver) run(ctx context.Context, spec *driver.Spec, cfg *config) error {
	err := d.runOnce(ctx, spec, cfg, d.lacksPrivileged())
	if deniesCaps(err) && (cfg.privileged || slices.Contains(cfg.capAdd, allCaps)) && !d.lacksPrivileged() {
		d.mu.Lock()
		d.unprivileged = true
		d.mu.Unlock()
		err = d.runOnce(ctx, spec, cfg, true)
	}
	for range capabilities() {
		if !d.unknownCap(err) || !d.lacksPrivileged() {
			break
		}
		err = d.runOnce(ctx, spec, cfg, true)
	}
	return err
}

var unknownCap = regexp.MustCompile(`unknown capability: "?(?:CAP_)?([A-Z_]+)`)

// unknownCap reports whether a start failed because of a capability that the
// kernel has and the engine, being older, has no name for. It is not asked for
// again.
func (d *Driver) unknownCap(err error) bool {
	if err == nil {
		return false
	}
	name := unknownCap.FindStringSubmatch(err.Error())
	if name == nil {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.strange[name[1]] {
		return false
	}
	d.strange[name[1]] = true
	return true
}

func (d *Driver) lacksPrivileged() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.unprivileged
}

// deniesCaps reports whether a start failed because the engine cannot give
// capabilities that it does not have itself.
func deniesCaps(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "apply caps") || strings.Contains(err.Error(), "bounding set"))
}

func (d *Driver) runOnce(ctx context.Context, spec *driver.Spec, cfg *config, replace bool) error {
	opts, err := d.options(spec, cfg, replace)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	made, err := d.engine().ContainerCreate(ctx, opts)
	if err != nil {
		return d.refused("make a container of task "+spec.ID, err)
	}
	for _, w := range made.Warnings {
		spec.Say("the engine warns: " + w)
	}
	if _, err := d.engine().ContainerStart(ctx, made.ID, client.ContainerStartOptions{}); err != nil {
		err = d.refused("start the container of task "+spec.ID, err)
		if api.CodeOf(err) == api.CodeUnavailable {
			return err // it may run: the next start looks
		}
		return errors.Join(err, d.remove(ctx, made.ID))
	}
	if all := cfg.privileged || slices.Contains(cfg.capAdd, allCaps); all && replace {
		spec.Say(fmt.Sprintf("the docker engine cannot give all capabilities, for it lacks some itself: the task has the %d that it can give", len(opts.HostConfig.CapAdd)))
	}
	if c, err := d.find(ctx, spec.ID); err == nil && c != nil {
		d.copies.want(c)
	}
	return nil
}

// refused is why a container is not made or started. What the engine calls
// wrong does not get right by itself; everything else may.
func (d *Driver) refused(doing string, err error) error {
	switch {
	case unreachable(err), outdated(err):
		return fmt.Errorf("%s: %w", doing, d.problem(err))
	case errdefs.IsInvalidArgument(err):
		return api.Errorf(api.CodeInvalid, "%s: the docker engine says: %s", doing, plain(err))
	}
	return &driver.NotStarted{Reason: doing + ": the docker engine says: " + plain(err)}
}

// logSize is what the engine keeps of a log until it is copied.
func logSize() map[string]string { return map[string]string{"max-size": "20m", "max-file": "2"} }

// options say all of what is to be run, and where.
func (d *Driver) options(spec *driver.Spec, cfg *config, replace bool) (client.ContainerCreateOptions, error) {
	host := cfg.host
	host.LogConfig = container.LogConfig{Type: "json-file", Config: logSize()}
	host.Resources.Memory, host.Resources.MemorySwap = 0, 0
	if r := spec.Task.Resources; r != nil {
		host.Resources.Memory, host.Resources.MemorySwap = r.Limit(), r.Limit()
		const leastShares = 2
		if r.CPU > 0 {
			host.Resources.CPUShares = int64(max(r.CPU, leastShares))
		}
	}
	host.CapAdd = cfg.capAdd
	for _, g := range spec.Groups() {
		host.GroupAdd = append(slices.Clone(host.GroupAdd), strconv.Itoa(g))
	}
	d.setPrivileged(&host, cfg, replace)
	mounts, devices, err := d.allMounts(spec, cfg)
	if err != nil {
		return client.ContainerCreateOptions{}, err
	}
	host.Mounts = mounts
	host.Devices = append(slices.Clone(host.Devices), devices...)
	exposed, err := publish(&host, spec, cfg)
	if err != nil {
		return client.ContainerCreateOptions{}, err
	}
	alloc, _, _ := strings.Cut(spec.ID, "/")
	labels := maps.Clone(cfg.labels)
	maps.Copy(labels, map[string]string{
		labelAgent: d.cfg.Agent, labelID: spec.ID, labelAlloc: alloc, labelTask: spec.Task.Name,
		labelDir: spec.Dir, labelBoot: d.cfg.BootID,
	})
	return client.ContainerCreateOptions{
		Name: d.containerName(spec.ID),
		Config: &container.Config{
			Image: cfg.image, Entrypoint: cfg.entrypoint, Cmd: cfg.command, Env: environment(spec), User: spec.Task.User,
			WorkingDir: cfg.workDir, Hostname: cfg.hostname, Labels: labels, ExposedPorts: exposed,
			Tty: cfg.tty, OpenStdin: cfg.interactive,
		},
		HostConfig: &host,
	}, nil
}

// environment is what the spec says, with where the task's directories are. What
// it leaves out is the image's.
func environment(spec *driver.Spec) []string {
	all := map[string]string{"BERTH_TASK_DIR": "/local", "BERTH_SECRETS_DIR": "/secrets"}
	if spec.AllocDir != "" {
		all["BERTH_ALLOC_DIR"] = "/alloc"
	}
	maps.Copy(all, spec.Env)
	list := make([]string, 0, len(all))
	for _, k := range slices.Sorted(maps.Keys(all)) {
		list = append(list, k+"="+all[k])
	}
	return list
}

// setPrivileged asks for a privileged container, or, where the engine lacks
// capabilities itself, for one that has all that the engine has, all devices,
// and no profile around it.
func (d *Driver) setPrivileged(host *container.HostConfig, cfg *config, replace bool) {
	all := slices.Contains(cfg.capAdd, allCaps)
	if replace && (cfg.privileged || all) {
		host.CapAdd = d.engineCaps()
	}
	switch {
	case !cfg.privileged:
	case !replace:
		host.Privileged = true
	default:
		host.SecurityOpt = append(slices.Clone(host.SecurityOpt), "seccomp=unconfined", "apparmor=unconfined", "label=disable")
		host.MaskedPaths, host.ReadonlyPaths = []string{}, []string{}
		host.DeviceCgroupRules = []string{"a *:* rwm"}
		ownDev := func(m mount.Mount) bool { return path.Clean(m.Target) == "/dev" }
		if !slices.ContainsFunc(cfg.mounts, ownDev) {
			host.Devices = append(slices.Clone(host.Devices), container.DeviceMapping{PathOnHost: "/dev", PathInContainer: "/dev", CgroupPermissions: "rwm"})
		}
	}
}

// allMounts are the task's directories, its volumes, and what its config mounts.
func (d *Driver) allMounts(spec *driver.Spec, cfg *config) (mounts []mount.Mount, devices []container.DeviceMapping, err error) {
	private := &mount.BindOptions{Propagation: mount.PropagationRPrivate}
	for _, name := range []string{"local", "secrets"} {
		mounts = append(mounts, mount.Mount{
			Type: mount.TypeBind, Source: filepath.Join(spec.Dir, name), Target: taskTargets()[name], BindOptions: private,
		})
	}
	if spec.AllocDir != "" {
		mounts = append(mounts, mount.Mount{Type: mount.TypeBind, Source: spec.AllocDir, Target: taskTargets()["alloc"], BindOptions: private})
	}
	for _, m := range spec.Mounts {
		info, err := os.Stat(m.Source)
		if err != nil {
			return nil, nil, fmt.Errorf("look at what is to be mounted at %s: %w", m.Destination, err)
		}
		if info.Mode()&os.ModeDevice != 0 {
			perms := "rwm"
			if m.ReadOnly {
				perms = "r"
			}
			devices = append(devices, container.DeviceMapping{PathOnHost: m.Source, PathInContainer: m.Destination, CgroupPermissions: perms})
			continue
		}
		propagation, known := propagations()[m.Propagation]
		if !known {
			return nil, nil, api.Errorf(api.CodeInvalid, "mount at %s: propagation %q is not known", m.Destination, m.Propagation)
		}
		mounts = append(mounts, mount.Mount{
			Type: mount.TypeBind, Source: m.Source, Target: m.Destination, ReadOnly: m.ReadOnly,
			BindOptions: &mount.BindOptions{Propagation: propagation},
		})
	}
	for _, m := range cfg.mounts {
		if m.Type == mount.TypeBind && !path.IsAbs(m.Source) {
			if m.Source, err = within(spec.Dir, m.Source); err != nil {
				return nil, nil, api.Errorf(api.CodeInvalid, "mount at %s: %v", m.Target, err)
			}
		}
		mounts = append(mounts, m)
	}
	// Parents first: the engine mounts in this order.
	slices.SortStableFunc(mounts, func(a, b mount.Mount) int { return strings.Compare(path.Clean(a.Target), path.Clean(b.Target)) })
	return mounts, devices, nil
}

// within is a path in the task's directory. A link that an earlier run of the
// task left there must not lead out.
func within(dir, source string) (string, error) {
	target, err := filepath.EvalSymlinks(filepath.Join(dir, source))
	if err != nil {
		return "", err
	}
	root, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", err
	}
	in := func(name string) bool {
		return target == filepath.Join(root, name) || strings.HasPrefix(target, filepath.Join(root, name)+"/")
	}
	if !slices.ContainsFunc(api.TaskDirs(), in) {
		return "", fmt.Errorf("%s leads out of the task's own directories", source)
	}
	return target, nil
}

// publish publishes the ports whose labels the config names, at all addresses of
// the machine. In the machine's own network there is nothing to publish.
func publish(host *container.HostConfig, spec *driver.Spec, cfg *config) (network.PortSet, error) {
	if len(cfg.ports) == 0 {
		return nil, nil
	}
	var p api.Problems
	exposed, bindings := network.PortSet{}, network.PortMap{}
	for i, label := range cfg.ports {
		at := slices.IndexFunc(spec.Ports, func(p driver.Port) bool { return p.Name == label })
		if at < 0 {
			p.Addf(fmt.Sprintf("config.ports[%d]", i), "name a port of the group's network", "is %q, and the group has no port of that name", label)
			continue
		}
		port := spec.Ports[at]
		inside := port.To
		if inside == 0 {
			inside = port.Number
		}
		for _, protocol := range []network.IPProtocol{network.TCP, network.UDP} {
			key, _ := network.PortFrom(uint16(inside), protocol) //nolint:gosec // ports are checked when a job is applied
			exposed[key] = struct{}{}
			bindings[key] = append(bindings[key], network.PortBinding{HostPort: strconv.Itoa(port.Number)})
		}
	}
	if err := p.Err("the task"); err != nil {
		return nil, err
	}
	if host.NetworkMode == "host" || host.NetworkMode == "none" {
		return nil, nil
	}
	host.PortBindings = bindings
	return exposed, nil
}
