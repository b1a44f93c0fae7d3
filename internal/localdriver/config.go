package localdriver

import (
	"path/filepath"
	"regexp"
	"strings"

	"github.com/berth-dev/berth/api"
)

// DefaultName is the driver's name if none is configured.
const DefaultName = "local.berth.dev"

// TopologyKey is the segment by which volumes are tied to their node.
const TopologyKey = "local.berth.dev/node"

// Config is what one driver needs to know.
type Config struct {
	// Root is the directory of state and volumes, made with mode 0700. It
	// belongs to one driver alone.
	Root string
	// Endpoint is where the driver listens: unix:///path/to/csi.sock, or the
	// plain path.
	Endpoint string
	// NodeID is NodeGetInfo's node_id and the value of TopologyKey.
	NodeID string
	// Name is the driver's name; DefaultName if empty.
	Name string
	// Version is GetPluginInfo's vendor_version.
	Version string
	// MaxVolumes is how many volumes the orchestrator may have on the node at
	// once, NodeGetInfo's max_volumes_per_node; 0 leaves it to the orchestrator.
	MaxVolumes int64
}

// Limits of the CSI specification.
const (
	maxNameLength    = 128 // Size Limits, any string
	maxSegmentLength = 63  // Topology, value of a segment; GetPluginInfo, name
	// maxSocketPath is the kernel's: sun_path without its final zero.
	maxSocketPath = 107
)

// validate reports every problem of the config.
func (c Config) validate() error {
	var p api.Problems
	switch {
	case c.Root == "":
		p.Add("root", "is missing", "give a directory such as /var/lib/berth/local")
	case !filepath.IsAbs(c.Root):
		p.Addf("root", "give an absolute path", "is %q, which depends on the working directory", c.Root)
	case filepath.Clean(c.Root) == "/":
		p.Add("root", "is the root of the file system", "give a directory of its own")
	}
	validateEndpoint(&p, c.Endpoint)
	if !segment(c.NodeID) {
		p.Addf("node_id", "use 1 to 63 letters, digits, dots, dashes or underscores, the first and last a letter or digit",
			"is %q, which cannot be a topology value", c.NodeID)
	}
	if !driverName(c.Name) {
		p.Addf("name", "use up to 63 letters, digits, dots and dashes, such as "+DefaultName,
			"is %q, which cannot name a CSI driver", c.Name)
	}
	if c.Version == "" || len(c.Version) > maxNameLength {
		p.Addf("version", "give 1 to 128 bytes, such as 1.0.0", "is %q", c.Version)
	}
	if c.MaxVolumes < 0 {
		p.Addf("max_volumes", "give how many volumes the node may have, or 0 for no limit", "is %d", c.MaxVolumes)
	}
	return p.Err("the local driver's config")
}

func validateEndpoint(p *api.Problems, endpoint string) {
	const mend = "give a path such as unix:///run/berth/local/csi.sock"
	path := socketPath(endpoint)
	switch {
	case endpoint == "":
		p.Add("endpoint", "is missing", mend)
	case !filepath.IsAbs(path):
		p.Addf("endpoint", mend, "is %q, which is no absolute path of a unix socket", endpoint)
	case !strings.HasSuffix(path, ".sock"):
		p.Addf("endpoint", mend, "is %q, which does not end in .sock as CSI wants it", endpoint)
	case len(path) > maxSocketPath:
		p.Addf("endpoint", "choose a shorter one", "is longer than the %d bytes that a unix socket's path can have", maxSocketPath)
	}
}

// socketPath is the path in an endpoint.
func socketPath(endpoint string) string { return strings.TrimPrefix(endpoint, "unix://") }

// segment reports whether s can be the value of a topology segment.
func segment(s string) bool {
	return len(s) <= maxSegmentLength && regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`).MatchString(s)
}

// driverName reports whether s can name a driver (CSI spec, GetPluginInfo).
func driverName(s string) bool {
	return len(s) <= maxSegmentLength && regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$`).MatchString(s)
}
