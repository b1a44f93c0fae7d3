package api

import (
	"slices"
	"strings"
)

// Attributes are the names of what agents find of their machines: ${attr.NAME}
// in the files of jobs. Task drivers add driver.NAME and driver.NAME.version.
func Attributes() []string {
	return []string{
		"berth.version", "cpu.arch", "cpu.numcores", "kernel.name", "kernel.version", "memory.totalbytes",
		"os.name", "os.version", "unique.hostname", "unique.network.ip-address",
	}
}

// NodeValues are all that a job's file can ask of a node, but for ${meta.NAME},
// which is what the agents' configuration says, and what task drivers add.
func NodeValues() []string {
	names := []string{"node.class", "node.datacenter", "node.region", "node.unique.id", "node.unique.name"}
	for _, a := range Attributes() {
		names = append(names, "attr."+a)
	}
	return names
}

// Resolves reports whether some node can have a value of the name, which is
// written ${NAME}.
func Resolves(name string) bool {
	if key, found := strings.CutPrefix(name, "attr.driver."); found {
		return key != "" && !strings.Contains(strings.TrimSuffix(key, ".version"), ".")
	}
	return strings.HasPrefix(name, "meta.") || slices.Contains(NodeValues(), name)
}
