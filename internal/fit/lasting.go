package fit

import (
	"fmt"
	"slices"

	"github.com/berth-dev/berth/api"
)

// Lasting says why a node will not do for a group of a job as long as it is what
// it is: for its drivers, its host volumes, or a constraint; or "".
func Lasting(node *api.Node, job *api.JobSpec, group *api.TaskGroup) string {
	for i := range group.Tasks {
		task := &group.Tasks[i]
		driver, ok := node.Status.Drivers[task.Driver]
		if !ok {
			return fmt.Sprintf("node %s has no driver %s", node.ID, task.Driver)
		}
		if lacks := Driver(driver, group, task); driver.Healthy && lacks != "" {
			return fmt.Sprintf("driver %s %s", task.Driver, lacks)
		}
	}
	if reason := HostVolumes(node, group); reason != "" {
		return reason
	}
	return Excludes(node, job, group)
}

// Excludes says which constraint of a job, a group, or its tasks a node does not
// meet, or "".
func Excludes(node *api.Node, job *api.JobSpec, group *api.TaskGroup) string {
	all := slices.Concat(job.Constraints, group.Constraints)
	for i := range group.Tasks {
		all = append(all, group.Tasks[i].Constraints...)
	}
	for _, c := range all {
		if reason := Constraint(node, c); reason != "" {
			return reason
		}
	}
	return ""
}
