package allocrunner

import (
	"cmp"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/localdb"
)

// Dir is the allocation's directory on the host. It is there until the servers
// know the allocation no more.
func (r *Runner) Dir() string { return r.step.Dir }

// Over reports whether a task writes nothing any more: it has ended, or the
// allocation has, without ever starting it.
func (r *Runner) Over(task string) bool {
	return r.phase() == localdb.PhaseDone || r.step.Tasks()[task].State == api.TaskEnded
}

// Phase is where the allocation is between up and down.
func (r *Runner) Phase() localdb.Phase { return cmp.Or(r.phase(), localdb.PhaseUp) }
