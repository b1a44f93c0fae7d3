package driver

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/driver/executor"
	"github.com/berth-dev/berth/internal/agent/tasklog"
)

// command is what the config of exec and of raw_exec says.
type command struct {
	path string
	args []string
	// privileged is exec's alone.
	privileged bool
}

// parseCommand reads a task's config and notes its problems.
func parseCommand(p *api.Problems, config map[string]any, known ...string) command {
	var c command
	known = append([]string{"command", "args"}, known...)
	for _, k := range slices.Sorted(maps.Keys(config)) {
		if !slices.Contains(known, k) {
			last := len(known) - 1
			p.Add("config."+k, "is not known", "this driver takes "+strings.Join(known[:last], ", ")+" and "+known[last])
		}
	}
	const mend = `write command = "/usr/bin/program", or a name that is found in PATH`
	switch v := config["command"].(type) {
	case nil:
		p.Add("config.command", "is missing", mend)
	case string:
		c.path = v
		if v == "" || strings.ContainsRune(v, 0) {
			p.Addf("config.command", mend, "is %q", v)
		}
	default:
		p.Addf("config.command", mend, "is %v, which is no text", v)
	}
	switch v := config["args"].(type) {
	case nil:
	case []string:
		c.args = v
	case []any:
		c.args = make([]string, len(v))
		for i, arg := range v {
			text, ok := arg.(string)
			if !ok {
				p.Addf(fmt.Sprintf("config.args[%d]", i), "write it in quotes", "is %v, which is no text", arg)
			}
			c.args[i] = text
		}
	default:
		p.Addf("config.args", `write args = ["one", "two"]`, "is %v, which is no list", v)
	}
	for i, arg := range c.args {
		if strings.ContainsRune(arg, 0) {
			p.Add(fmt.Sprintf("config.args[%d]", i), "holds a zero byte", "remove it")
		}
	}
	return c
}

// defaultPath is PATH where a job sets none.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// environment is the whole environment of a task. Nothing of the agent's own
// is in it.
func environment(env map[string]string, home, user string) []string {
	all := map[string]string{"PATH": defaultPath, "HOME": home, "USER": user}
	maps.Copy(all, env)
	list := make([]string, 0, len(all))
	for _, k := range slices.Sorted(maps.Keys(all)) {
		list = append(list, k+"="+all[k])
	}
	return list
}

// taskDirs are the directories that a task's user owns.
func taskDirs() []string { return api.TaskDirs() }

// logsDir holds the output of a task. It is not the task's to write.
const logsDir = tasklog.Dir

// logPath is the file that holds the newest of a task's stdout or stderr.
func logPath(spec Spec, stream api.LogType) string {
	return tasklog.Path(spec.Dir, spec.Task.Name, stream)
}

// prepareDir makes sure that the task's directory is as the agent makes it, and
// gives what is the task's to its user, if there is one to give it to. What is
// in there already keeps its owner.
func prepareDir(dir string, owner *executor.User) error {
	if !filepath.IsAbs(dir) {
		return fmt.Errorf("task directory %q is not an absolute path", dir)
	}
	for _, name := range append(taskDirs(), logsDir) {
		path := filepath.Join(dir, name)
		info, err := os.Lstat(path)
		if err == nil && !info.IsDir() {
			err = fmt.Errorf("%s is no directory", path)
		}
		if err == nil && owner != nil && name != logsDir {
			err = os.Lchown(path, owner.UID, owner.GID)
		}
		if err != nil {
			return fmt.Errorf("prepare task directory: %w", err)
		}
	}
	return nil
}
