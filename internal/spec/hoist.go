package spec

import (
	"strings"

	"github.com/berth-dev/berth/api"
)

// hoist is where services go that are written in tasks: they are their group's.
type hoist struct {
	path     string // of the group
	services []api.Service
}

// taskService is a service block in a task.
var taskService = field[api.Task]{
	name: "service", kind: kindBlock, repeats: true, below: serviceTable.describe,
	doc: "As in the group, whose services these are; one block for each.",
	read: func(d *decoder, path string, it item, _ *api.Task) {
		if d.hoist == nil || !d.unlabelled(path, it) {
			return
		}
		path = indexed(join(d.hoist.path, "service"), len(d.hoist.services))
		d.mark(path, it.at)
		d.hoist.services = append(d.hoist.services, serviceTable.read(d, path, it))
	},
}

// hoists makes a group's tasks find the group's services.
func hoists(f field[api.TaskGroup]) field[api.TaskGroup] {
	read := f.read
	f.read = func(d *decoder, path string, it item, into *api.TaskGroup) {
		d.hoist = &hoist{path: strings.TrimSuffix(path, "."+f.name), services: into.Services}
		read(d, path, it, into)
		for i := len(into.Services); i < len(d.hoist.services) && len(into.Tasks) > 0; i++ {
			s, task := &d.hoist.services[i], into.Tasks[len(into.Tasks)-1].Name
			if s.Task == "" && len(s.Checks) > 0 {
				s.Task = task
			}
			if s.Name == "" {
				s.Name = unnamed + task
			}
		}
		into.Services, d.hoist = d.hoist.services, nil
	}
	return f
}

// unnamed begins the name of a service of a task until the job's name is known. No
// name that a file gives can begin so.
const unnamed = "\x00-"

// nameServices names the services of a job that have no name, as Nomad does.
func nameServices(j *Job) {
	for i := range j.Spec.Groups {
		g := &j.Spec.Groups[i]
		for k := range g.Services {
			s, base := &g.Services[k], string(j.ID)+"-"+g.Name
			switch task, ofTask := strings.CutPrefix(s.Name, unnamed); {
			case ofTask:
				s.Name = base + "-" + task
			case s.Name == "":
				s.Name = base
			}
		}
	}
}

// place is a path in a task, which may begin with the names that the task's
// directories have in its environment.
func place[T any](name, doc string, at func(*T) *string) field[T] {
	f := filledText(name, "/data", doc, at)
	read := f.read
	f.read = func(d *decoder, path string, it item, into *T) {
		for variable, dir := range map[string]string{"TASK_DIR": "/local", "SECRETS_DIR": "/secrets", "ALLOC_DIR": "/alloc"} {
			for _, prefix := range []string{"${NOMAD_" + variable + "}", "${BERTH_" + variable + "}"} {
				if rest, found := strings.CutPrefix(it.value.text, prefix); found && it.value.kind == aString {
					it.value.text = dir + rest
				}
			}
		}
		if !strings.Contains(it.value.text, "${") {
			it.value.filled = nil
		}
		if read(d, path, it, into); !d.broken[path] {
			d.unfilled(path, it.value)
		}
	}
	return f
}
