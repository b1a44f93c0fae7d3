package localdriver

import "github.com/berth-dev/berth/internal/localdriver/filesystem"

// Steps lists the moments at which a driver can be stopped.
func Steps() []string {
	var names []string
	for _, s := range steps() {
		names = append(names, string(s))
	}
	return names
}

// OnStep has f called at every step.
func (d *Driver) OnStep(f func(step string)) { d.passed = func(s step) { f(string(s)) } }

// SetTools replaces the programs that the driver runs.
func (d *Driver) SetTools(tools filesystem.Tools) { d.tools = tools }
