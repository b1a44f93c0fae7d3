package docker

import (
	"fmt"
	"maps"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/distribution/reference"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/driver"
)

// config is what a task says of its container.
type config struct {
	image     string
	forcePull bool
	softAuth  bool // credentials that cannot be had are done without
	tty       bool
	// interactive: what the task reads stays open, and nobody writes.
	interactive bool
	pullLimit   time.Duration
	auth        auth
	entrypoint  []string
	command     []string // command and args
	workDir     string
	hostname    string
	labels      map[string]string
	ports       []string // labels of the group's ports
	privileged  bool
	capAdd      []string
	mounts      []mount.Mount
	host        container.HostConfig
	// ignored are names that mean nothing here, and that do no harm.
	ignored []string
}

// auth is who the registry is told to be asked by.
type auth struct{ username, password, server string }

// defaultPullLimit bounds a pull that says nothing else.
const defaultPullLimit = 5 * time.Minute

// parse reads a task's config, and notes all its problems.
func (d *Driver) parse(p *api.Problems, task *api.Task) config {
	v := newValues(p, "config", task.Config)
	c := config{
		image:     v.text("image", `write image = "name:tag"`),
		forcePull: v.flag("force_pull"), softAuth: v.flag("auth_soft_fail"), tty: v.flag("tty"), interactive: v.flag("interactive"), pullLimit: v.duration("image_pull_timeout"),
		entrypoint: v.list("entrypoint", `write entrypoint = ["/program", "argument"]`),
		workDir:    v.text("work_dir", `write work_dir = "/directory"`),
		hostname:   v.text("hostname", `write hostname = "name"`),
		labels:     v.table("labels", `write labels { key = "value" }`),
		ports:      v.list("ports", `write ports = ["label"], with labels of the group's network`),
		privileged: v.flag("privileged"),
	}
	if command := v.text("command", `write command = "/program"`); command != "" {
		c.command = []string{command}
	}
	c.command = append(c.command, v.list("args", `write args = ["one", "two"]`)...)
	if c.pullLimit == 0 {
		c.pullLimit = defaultPullLimit
	}
	if c.image == "" {
		p.Add("config.image", "is missing", `write image = "name:tag"`)
	} else if _, err := reference.ParseDockerRef(c.image); err != nil {
		p.Addf("config.image", `write it as "name:tag" or "registry/name:tag"`, "is %q: %v", c.image, err)
	}
	if c.workDir != "" && !path.IsAbs(c.workDir) {
		p.Addf("config.work_dir", "give an absolute path", "is %q", c.workDir)
	}
	for k := range c.labels {
		if strings.HasPrefix(k, "dev.berth.") {
			p.Addf("config.labels."+k, "choose another name", "is one of Berth's own")
		}
	}
	for _, a := range v.blocks("auth", `write auth { username = "..." password = "..." }`) {
		c.auth = auth{a.text("username", "write it in quotes"), a.text("password", "write it in quotes"), a.text("server_address", "write it in quotes")}
		a.take("email") // which no registry wants any more
		a.done("auth")
	}
	d.parseRights(p, v, &c)
	parseNetwork(v, &c)
	parseLimits(v, &c)
	c.mounts = d.parseMounts(v)
	checkTargets(p, task, c.mounts)
	for _, name := range []string{"logging", "image_pull_on_update"} {
		if v.take(name) != nil {
			c.ignored = append(c.ignored, name)
		}
	}
	v.done("driver docker")
	return c
}

// parseRights reads what a container may do to the machine.
func (d *Driver) parseRights(p *api.Problems, v *values, c *config) {
	const allow = `choose another way, or have the operator set allow_privileged = true in driver "docker" of the agent's configuration`
	forbidden := func(name, got string) {
		if !d.rules.Load().AllowPrivileged {
			p.Addf("config."+name, allow, "is %s, which gives the task the machine, and this node does not allow it", got)
		}
	}
	if c.privileged {
		forbidden("privileged", "true")
	}
	c.capAdd = d.parseCaps(v, "cap_add")
	c.host.CapDrop = parseCapNames(v, "cap_drop")
	d.parseModes(p, v, c, forbidden)
	c.host.SecurityOpt = v.list("security_opt", `write security_opt = ["no-new-privileges"]`)
	// Whatever is not known to take rights away may give some: a profile in
	// JSON, the name of a profile that allows everything, what engines learn next.
	harmless := []string{"no-new-privileges", "no-new-privileges=true", "no-new-privileges:true", "seccomp=builtin"}
	for i, o := range c.host.SecurityOpt {
		if !slices.Contains(harmless, o) {
			forbidden(fmt.Sprintf("security_opt[%d]", i), strconv.Quote(o))
		}
	}
	c.host.Devices = parseDevices(v, forbidden)
	c.host.GroupAdd = v.list("group_add", `write group_add = ["name"]`)
	c.host.Runtime = v.text("runtime", "write it in quotes")
	c.host.ReadonlyRootfs = v.flag("readonly_rootfs")
	if v.take("init") != nil {
		init := v.flag("init")
		c.host.Init = &init
	}
}

// parseModes reads which namespaces a container has for itself.
func (d *Driver) parseModes(p *api.Problems, v *values, c *config, forbidden func(name, got string)) {
	for name, into := range map[string]func(string){
		"ipc_mode":    func(s string) { c.host.IpcMode = container.IpcMode(s) },
		"pid_mode":    func(s string) { c.host.PidMode = container.PidMode(s) },
		"uts_mode":    func(s string) { c.host.UTSMode = container.UTSMode(s) },
		"userns_mode": func(s string) { c.host.UsernsMode = container.UsernsMode(s) },
		"cgroupns":    func(s string) { c.host.CgroupnsMode = container.CgroupnsMode(s) },
	} {
		s := v.text(name, `write it in quotes`)
		into(s)
		switch {
		case s == "" || s == "private" || name == "ipc_mode" && (s == "shareable" || s == "none"):
		case s == "host":
			if name != "userns_mode" || !d.rules.Load().AllowPrivileged {
				forbidden(name, strconv.Quote(s))
			}
		default:
			p.Addf("config."+name, `use "private" or "host"`, "is %q", s)
		}
	}
	if c.host.UTSMode == "private" {
		c.host.UTSMode = ""
	}
	if c.host.PidMode == "private" {
		c.host.PidMode = ""
	}
}

// parseDevices reads the devices of the host that a container may use.
func parseDevices(v *values, forbidden func(name, got string)) (devices []container.DeviceMapping) {
	for _, dev := range v.blocks("devices", `write devices = [{ host_path = "/dev/fuse" }]`) {
		m := container.DeviceMapping{
			PathOnHost:        dev.text("host_path", "give the device's path"),
			PathInContainer:   dev.text("container_path", "give the device's path in the container"),
			CgroupPermissions: dev.text("cgroup_permissions", `write "rwm", or less of it`),
		}
		dev.done("a device")
		if m.PathInContainer == "" {
			m.PathInContainer = m.PathOnHost
		}
		if m.CgroupPermissions == "" {
			m.CgroupPermissions = "rwm"
		}
		if !path.IsAbs(m.PathOnHost) || !path.IsAbs(m.PathInContainer) {
			dev.wrong("host_path", "give absolute paths", strconv.Quote(m.PathOnHost))
		}
		if strings.Trim(m.CgroupPermissions, "rwm") != "" {
			dev.wrong("cgroup_permissions", `write "rwm", or less of it`, strconv.Quote(m.CgroupPermissions))
		}
		forbidden("devices", strconv.Quote(m.PathOnHost))
		devices = append(devices, m)
	}
	return devices
}

// parseNetwork reads what a container finds around it.
func parseNetwork(v *values, c *config) {
	mode := v.text("network_mode", `use "bridge", "host" or "none"`)
	switch {
	case mode == "", mode == "bridge", mode == "host", mode == "none", mode == "default":
	case strings.HasPrefix(mode, "container:"):
		v.wrong("network_mode", `use "bridge", "host", "none", or a network of the engine`, strconv.Quote(mode)+": allocations do not share networks")
	}
	c.host.NetworkMode = container.NetworkMode(mode)
	for _, name := range []string{"dns", "dns_servers"} {
		for i, s := range v.list(name, `write dns = ["10.0.0.53"]`) {
			addr, err := netip.ParseAddr(s)
			if err != nil {
				v.wrong(fmt.Sprintf("%s[%d]", name, i), "give an IP address", strconv.Quote(s))
				continue
			}
			c.host.DNS = append(c.host.DNS, addr)
		}
	}
	c.host.DNSSearch = v.list("dns_search_domains", `write dns_search_domains = ["example.org"]`)
	c.host.DNSOptions = v.list("dns_options", `write dns_options = ["ndots:1"]`)
	c.host.ExtraHosts = v.list("extra_hosts", `write extra_hosts = ["name:10.0.0.7"]`)
	for i, h := range c.host.ExtraHosts {
		if name, addr, ok := strings.Cut(h, ":"); !ok || name == "" || addr == "" {
			v.wrong(fmt.Sprintf("extra_hosts[%d]", i), `write it as "name:10.0.0.7"`, strconv.Quote(h))
		}
	}
	if c.host.NetworkMode == "host" && c.hostname != "" && c.host.UTSMode == "host" {
		v.wrong("hostname", "remove it, or uts_mode", strconv.Quote(c.hostname)+", and the name is the machine's")
	}
}

// parseLimits reads what a container may use.
func parseLimits(v *values, c *config) {
	c.host.ShmSize = v.number("shm_size", 1, "give bytes such as 67108864")
	if n := v.number("pids_limit", 1, "give how many processes there may be"); n > 0 {
		c.host.PidsLimit = &n
	}
	c.host.OomScoreAdj = int(v.number("oom_score_adj", 0, "give a number from 0 to 1000"))
	c.host.Sysctls = v.table("sysctl", `write sysctl { "net.core.somaxconn" = "1024" }`)
	c.host.StorageOpt = v.table("storage_opt", `write storage_opt = { size = "40G" }`)
	limits := v.table("ulimit", `write ulimit { nofile = "1024:2048" }`)
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		soft, hard, both := strings.Cut(limits[name], ":")
		if !both {
			hard = soft
		}
		s, bad := strconv.ParseInt(soft, 10, 64)
		h, worse := strconv.ParseInt(hard, 10, 64)
		if bad != nil || worse != nil {
			v.wrong("ulimit."+name, `write it as "1024", or "1024:2048" for soft and hard`, strconv.Quote(limits[name]))
			continue
		}
		c.host.Ulimits = append(c.host.Ulimits, &container.Ulimit{Name: name, Soft: s, Hard: h})
	}
}

// propagations are the engine's words for the jobs'.
func propagations() map[driver.Propagation]mount.Propagation {
	return map[driver.Propagation]mount.Propagation{
		driver.PropagationPrivate:       mount.PropagationRPrivate,
		"private":                       mount.PropagationRPrivate,
		driver.PropagationHostToTask:    mount.PropagationRSlave,
		driver.PropagationBidirectional: mount.PropagationRShared,
	}
}

// parseMounts reads volumes and mount blocks. A source that is not absolute lies
// in the task's directory.
func (d *Driver) parseMounts(v *values) []mount.Mount {
	var mounts []mount.Mount
	for i, s := range v.list("volumes", `write volumes = ["/on/the/host:/in/the/container:ro"]`) {
		m, err := parseBind(s)
		at := fmt.Sprintf("volumes[%d]", i)
		if err != nil {
			v.wrong(at, `write it as "/on/the/host:/in/the/container", with ":ro" if it is read only`, strconv.Quote(s)+", "+err.Error())
			continue
		}
		d.checkSource(v, at, m)
		mounts = append(mounts, m)
	}
	for _, name := range []string{"mount", "mounts"} {
		for _, b := range v.blocks(name, `write mount { type = "bind" source = "/on/the/host" target = "/in/the/container" }`) {
			mounts = append(mounts, d.parseMount(b))
		}
	}
	return mounts
}

func (d *Driver) parseMount(b *values) mount.Mount {
	m := mount.Mount{
		Type: mount.Type(b.text("type", "write it in quotes")), Source: b.text("source", "write it in quotes"),
		Target: b.text("target", "write it in quotes"), ReadOnly: b.flag("readonly"),
	}
	if m.Type == "" {
		m.Type = mount.TypeBind
	}
	bind := &mount.BindOptions{Propagation: mount.PropagationRPrivate}
	for _, o := range b.blocks("bind_options", `write bind_options { propagation = "rslave" }`) {
		if s := o.text("propagation", "write it in quotes"); s != "" {
			bind.Propagation = mount.Propagation(s)
			if !slices.Contains(mount.Propagations, bind.Propagation) {
				o.wrong("propagation", "use one of private, rprivate, slave, rslave, shared, rshared", strconv.Quote(s))
			}
		}
		o.done("bind_options")
	}
	for _, o := range b.blocks("tmpfs_options", `write tmpfs_options { size = 67108864 }`) {
		m.TmpfsOptions = &mount.TmpfsOptions{SizeBytes: o.number("size", 1, "give bytes such as 67108864"), Mode: o.mode("mode")}
		o.done("tmpfs_options")
	}
	if m.TmpfsOptions != nil && m.Type != mount.TypeTmpfs {
		b.p.Add(b.at("tmpfs_options"), "means nothing here", `remove it, or write type = "tmpfs"`)
	}
	if !path.IsAbs(m.Target) {
		b.wrong("target", "give an absolute path", strconv.Quote(m.Target))
	}
	switch m.Type {
	case mount.TypeBind:
		m.BindOptions = bind
		if m.Source == "" {
			b.p.Add(b.at("source"), "is missing", "give a path of the host, or one in the task's directory")
		}
		d.checkSource(b, "source", m)
	case mount.TypeTmpfs:
		if m.Source != "" {
			b.wrong("source", "remove it", strconv.Quote(m.Source)+", and a tmpfs has none")
		}
	case mount.TypeVolume, mount.TypeNamedPipe, mount.TypeCluster, mount.TypeImage:
		fallthrough
	default:
		b.wrong("type", `use "bind" or "tmpfs"; for storage that lasts, a volume of the group and a volume_mount`, strconv.Quote(string(m.Type)))
	}
	b.done("a mount")
	return m
}

// checkSource refuses what the operator does not allow.
func (d *Driver) checkSource(v *values, at string, m mount.Mount) {
	switch {
	case path.IsAbs(m.Source) && !d.rules.Load().AllowHostPaths:
		v.wrong(at, `use a volume, or have the operator set allow_host_paths = true in driver "docker" of the agent's configuration`,
			strconv.Quote(m.Source)+", a path of the machine, and this node does not allow it")
	case !path.IsAbs(m.Source) && m.Source != "" && !slices.Contains(api.TaskDirs(), first(m.Source)):
		v.wrong(at, fmt.Sprintf("begin with one of the task's own directories: %s", strings.Join(api.TaskDirs(), ", ")),
			strconv.Quote(m.Source)+", which is the agent's")
	}
}

// first is the first name of a relative path.
func first(p string) string {
	name, _, _ := strings.Cut(path.Clean(p), "/")
	return name
}

// parseBind reads "source:target[:options]".
func parseBind(s string) (mount.Mount, error) {
	m := mount.Mount{Type: mount.TypeBind, BindOptions: &mount.BindOptions{Propagation: mount.PropagationRPrivate}}
	parts := strings.Split(s, ":")
	if len(parts) < 2 || len(parts) > 3 || parts[0] == "" {
		return m, fmt.Errorf("which has %d parts", len(parts))
	}
	m.Source, m.Target = parts[0], parts[1]
	if !path.IsAbs(m.Target) {
		return m, fmt.Errorf("and %q is no absolute path", m.Target)
	}
	if len(parts) < 3 {
		return m, nil
	}
	for o := range strings.SplitSeq(parts[2], ",") {
		switch {
		case o == "ro":
			m.ReadOnly = true
		case o == "rw", o == "z", o == "Z":
		case slices.Contains(mount.Propagations, mount.Propagation(o)):
			m.BindOptions.Propagation = mount.Propagation(o)
		default:
			return m, fmt.Errorf("and %q is no option", o)
		}
	}
	return m, nil
}

// taskTargets are where a container finds its task's directories.
func taskTargets() map[string]string {
	return map[string]string{"local": "/local", "secrets": "/secrets", "alloc": "/alloc"}
}

// checkTargets refuses two mounts at one place.
func checkTargets(p *api.Problems, task *api.Task, mounts []mount.Mount) {
	seen := map[string]string{}
	for name, target := range taskTargets() {
		seen[target] = "the task's directory " + name
	}
	for i, m := range task.VolumeMounts {
		target := path.Clean(m.Destination)
		at := fmt.Sprintf("volume_mount[%d].destination", i)
		switch other := seen[target]; {
		case target == "/":
			p.Add(at, "is the root of the task", `choose a directory of its own, such as "/data"`)
		case target == "/proc" || strings.HasPrefix(target, "/proc/") || target == "/sys" || strings.HasPrefix(target, "/sys/"):
			p.Addf(at, `choose a directory of its own, such as "/data"`, "is %s, which is the kernel's", target)
		case other != "":
			p.Addf(at, "mount each at a place of its own", "is %s, and so is that of %s", target, other)
		}
		seen[target] = "volume " + m.Volume
	}
	for _, m := range mounts {
		target := path.Clean(m.Target)
		if other := seen[target]; other != "" {
			p.Addf("config", "mount each at a place of its own", "mounts %s at %s, where %s is", m.Source, target, other)
		}
		seen[target] = m.Source
	}
}

// Check implements driver.Driver.
func (d *Driver) Check(task api.Task) error {
	var p api.Problems
	if d.rules.Load().Disabled {
		p.Add("driver", "is docker: "+driver.Forbidden(Name), "use another driver")
	}
	d.parse(&p, &task)
	return p.Err("the task")
}
