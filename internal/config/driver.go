package config

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/berth-dev/berth/api"
)

// Driver is what the operator says of a task driver of this machine.
type Driver struct {
	// Name is docker: the others have nothing to say.
	Name string `hcl:"name,label"`
	// Endpoint is the path of the engine's socket, with unix:// or without;
	// Docker's own if empty.
	Endpoint string `hcl:"endpoint,optional"`
	// AllowPrivileged lets jobs have privileged containers, devices, and the
	// machine's processes.
	AllowPrivileged bool `hcl:"allow_privileged,optional"`
	// AllowHostPaths lets jobs bind any path of the machine into a container.
	AllowHostPaths bool `hcl:"allow_host_paths,optional"`
	// AllowCaps are capabilities that jobs may add, such as "net_admin".
	AllowCaps []string `hcl:"allow_caps,optional"`
}

// driverDocker is the driver that can be configured.
const driverDocker = "docker"

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
	choice(p, at, d.Name, driverDocker)
	socket := strings.TrimPrefix(d.Endpoint, "unix://")
	if socket != "" && !filepath.IsAbs(socket) {
		p.Addf(at+".endpoint", `give the engine's socket, such as "unix:///var/run/docker.sock"`, "is %q", d.Endpoint)
	}
	if len(socket) > maxSocket {
		p.Addf(at+".endpoint", "choose a shorter path", "is longer than the %d bytes that a socket's path may have", maxSocket)
	}
}
