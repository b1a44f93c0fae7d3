package cgroup

import (
	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/fs"
	"github.com/opencontainers/cgroups/fs2"
)

// At is the group of the second generation at a directory, whichever generation
// the machine has.
func At(dir string) (*Group, error) {
	m, err := fs2.NewManager(&cgroups.Cgroup{Resources: &cgroups.Resources{}}, dir)
	if err != nil {
		return nil, err
	}
	return &Group{name: dir, manager: m}, nil
}

// AtFirst is the group of the first generation at these directories, by their
// controllers, whichever generation the machine has.
func AtFirst(paths map[string]string) (*Group, error) {
	m, err := fs.NewManager(&cgroups.Cgroup{Resources: &cgroups.Resources{}}, paths)
	if err != nil {
		return nil, err
	}
	return &Group{name: "first", manager: m}, nil
}
