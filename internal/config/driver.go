package config

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/moby/sys/capability"

	"github.com/berth-dev/berth/api"
)

// Driver is what the operator says of a task driver of this machine.
type Driver struct {
	// Name is exec, raw_exec or docker.
	Name string `hcl:"name,label"`
	// Enabled is whether tasks may be started with it; they may if it is nil.
	Enabled *bool `hcl:"enabled,optional"`
	// AllowPrivileged lets jobs have what is root's on the machine. With docker:
	// privileged containers, devices, and the machine's processes; not allowed if
	// it is nil. With exec: privileged tasks; allowed if it is nil, since raw_exec
	// gives the same.
	AllowPrivileged *bool `hcl:"allow_privileged,optional"`
	// Endpoint is the path of docker's engine's socket, with unix:// or without;
	// Docker's own if empty.
	Endpoint string `hcl:"endpoint,optional"`
	// AllowHostPaths lets jobs bind any path of the machine into a container.
	AllowHostPaths bool `hcl:"allow_host_paths,optional"`
	// AllowCaps are capabilities that jobs may add to containers, such as
	// "net_admin", or "all".
	AllowCaps []string `hcl:"allow_caps,optional"`
	// AuthFile holds credentials for docker's registries, as docker login writes
	// them, with credential helpers. It is read at each pull.
	AuthFile string `hcl:"auth_file,optional"`
	// ImageDelay is how long an image stays that was pulled for a task and that no
	// container has; 6 hours if it is empty.
	ImageDelay string `hcl:"image_delay,optional"`
	// KeepImages removes no image.
	KeepImages bool `hcl:"keep_images,optional"`
}

// The drivers that can be configured.
const (
	driverExec    = "exec"
	driverRawExec = "raw_exec"
	driverDocker  = "docker"
)

// says reports whether anything is said of the driver.
func (d *Driver) says() bool {
	return d.Enabled != nil || d.AllowPrivileged != nil || d.Endpoint != "" || d.AllowHostPaths || len(d.AllowCaps) > 0 ||
		d.AuthFile != "" || d.ImageDelay != "" || d.KeepImages
}

// Disabled reports whether no task may be started with the driver.
func (d *Driver) Disabled() bool { return d.Enabled != nil && !*d.Enabled }

// Privileged reports whether tasks may be privileged.
func (d *Driver) Privileged() bool {
	if d.AllowPrivileged == nil {
		return d.Name == driverExec
	}
	return *d.AllowPrivileged
}

// Driver is what is said of a driver, or nothing.
func (c *Config) Driver(name string) Driver {
	for _, d := range c.Drivers {
		if d.Name == name {
			return d
		}
	}
	return Driver{Name: name}
}

func (d *Driver) validate(p *api.Problems) {
	at := fmt.Sprintf("driver[%q]", d.Name)
	choice(p, at, d.Name, driverExec, driverRawExec, driverDocker)
	if d.Name == driverExec || d.Name == driverRawExec {
		d.validateForeign(p, at)
	}
	socket := strings.TrimPrefix(d.Endpoint, "unix://")
	if socket != "" && !filepath.IsAbs(socket) {
		p.Addf(at+".endpoint", `give the engine's socket, such as "unix:///var/run/docker.sock"`, "is %q", d.Endpoint)
	}
	if len(socket) > maxSocket {
		p.Addf(at+".endpoint", "choose a shorter path", "is longer than the %d bytes that a socket's path may have", maxSocket)
	}
	if d.AuthFile != "" && !filepath.IsAbs(d.AuthFile) {
		p.Addf(at+".auth_file", "give an absolute path", "is %q", d.AuthFile)
	}
	if _, err := d.imageDelay(); err != nil {
		p.Addf(at+".image_delay", `write it as "6h"; keep_images = true removes none`, "is %q", d.ImageDelay)
	}
	known := []string{"all"}
	for _, c := range capability.ListKnown() {
		known = append(known, c.String())
	}
	for i, c := range d.AllowCaps {
		if !slices.Contains(known, strings.TrimPrefix(strings.ToLower(c), "cap_")) {
			p.Addf(fmt.Sprintf("%s.allow_caps[%d]", at, i), `use names of capabilities(7) such as "net_admin", or "all"`, "is %q", c)
		}
	}
}

// Images is how long an image stays that nobody uses, 0 if nothing is said, and
// less than that for ever.
func (d *Driver) Images() time.Duration {
	if d.KeepImages {
		return -1
	}
	delay, _ := d.imageDelay() // it is checked when the configuration is read
	return delay
}

func (d *Driver) imageDelay() (time.Duration, error) {
	if d.ImageDelay == "" {
		return 0, nil
	}
	delay, err := time.ParseDuration(d.ImageDelay)
	if err == nil && delay <= 0 {
		err = fmt.Errorf("%s is no time to wait", delay)
	}
	return delay, err
}

// validateForeign refuses what means something for other drivers only.
func (d *Driver) validateForeign(p *api.Problems, at string) {
	const mend = `remove it; it belongs into driver "docker"`
	if d.Endpoint != "" {
		p.Add(at+".endpoint", "means nothing here", mend)
	}
	if d.AllowHostPaths {
		p.Add(at+".allow_host_paths", "means nothing here", mend)
	}
	if len(d.AllowCaps) > 0 {
		p.Add(at+".allow_caps", "means nothing here", mend)
	}
	if d.AuthFile != "" || d.ImageDelay != "" || d.KeepImages {
		p.Add(at, "says something of images, of which it has none", `move auth_file, image_delay and keep_images into driver "docker"`)
	}
	if d.Name == driverRawExec && d.AllowPrivileged != nil {
		p.Add(at+".allow_privileged", "means nothing here: its tasks run as the agent does", "write enabled = false to have none")
	}
}
