package hook

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/driver"
	"github.com/berth-dev/berth/internal/agent/rendering"
)

// awaits is the error of templates that need something else to be put into the
// cluster, or an answer of the servers: it is waited for.
type awaits struct {
	reason string
	// asked: the servers have answered, and what they say is not enough.
	asked bool
}

func (a *awaits) Error() string { return a.reason }

// rendered is a file of a template, and whether it may become another while the
// task runs.
type rendered struct {
	driver.File
	changes bool
	of      *api.Template
}

// render makes the files of a task's templates. Variables of those that are meant
// for the environment are added to env, where the templates after them find them
// too. was answers for a template that changes what it came to before, when the
// servers are not to be asked; nil asks them.
func (t *Tasks) render(ctx context.Context, templates []api.Template, env map[string]string, lookups rendering.Lookups, was func(place string) (string, bool)) ([]rendered, error) {
	from := rendering.Source{
		Env:     func(name string) (string, bool) { v, known := env[name]; return v, known },
		Fill:    func(text string, most int) (string, bool) { return t.fill(text, env, most) },
		Lookups: lookups,
	}
	var files []rendered
	changing := false // the environment of what follows
	for i := range templates {
		one := &templates[i]
		file := rendered{of: one, changes: changing || one.Lookups()}
		dir, path := one.Place()
		before := was
		if !file.changes {
			before = nil
		}
		text, err := t.text(ctx, one, from, before)
		if err == nil && one.Env {
			err = addVariables(env, text)
			changing = changing || file.changes
		}
		if err != nil {
			return nil, t.unrendered(one, file.changes, err)
		}
		file.File = driver.File{Dir: dir, Path: path, Content: text, Mode: os.FileMode(one.Mode()), UID: one.UID, GID: one.GID}
		files = append(files, file)
	}
	return files, nil
}

// text is what becomes of a template; or became, where was is to answer.
func (*Tasks) text(ctx context.Context, one *api.Template, from rendering.Source, was func(place string) (string, bool)) (string, error) {
	if was == nil {
		return rendering.Text(ctx, one, from)
	}
	dir, path := one.Place()
	if before, known := was(dir + "/" + path); known {
		return before, nil
	}
	return "", &rendering.Missing{Awaited: "its first text"}
}

// unrendered is the error of a template. What it reads of the servers can be put
// right while it waits.
func (*Tasks) unrendered(one *api.Template, changes bool, err error) error {
	if missing, ok := errors.AsType[*rendering.Missing](err); ok {
		return &awaits{reason: "waits for " + missing.Awaited, asked: missing.Asked}
	}
	err = fmt.Errorf("render template %s: %w", one.Destination, err)
	if changes && !errors.Is(err, context.Canceled) {
		return &awaits{reason: "waits for what it reads to change: " + err.Error(), asked: true}
	}
	return err
}

// fill replaces what ${...} stands for, while the text does not become longer than
// most.
func (t *Tasks) fill(text string, env map[string]string, most int) (filled string, ok bool) {
	var to strings.Builder
	end := 0
	for _, at := range reference.FindAllStringIndex(text, -1) {
		to.WriteString(text[end:at[0]])
		to.WriteString(t.value(text[at[0]:at[1]], env))
		if end = at[1]; to.Len() > most {
			return "", false
		}
	}
	to.WriteString(text[end:])
	return to.String(), to.Len() <= most
}

// files are those that a driver writes.
func files(all []rendered) []driver.File {
	var files []driver.File
	for i := range all {
		files = append(files, all[i].File)
	}
	return files
}

var assignmentLine = regexp.MustCompile(`^(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)=(.*)$`)

// addVariables adds the variables that a text assigns, one in a line. Empty
// lines and those that begin with # are none; a value may stand in quotes: what
// is in double ones is read as Go reads a string, what is in single ones as it is.
func addVariables(env map[string]string, text string) error {
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		m := assignmentLine.FindStringSubmatch(line)
		if m == nil {
			return fmt.Errorf("line %d is not NAME=value", i+1)
		}
		value, ok := unquoted(strings.TrimSpace(m[2]))
		if !ok {
			return fmt.Errorf("line %d: the value of %s has quotes that cannot be read", i+1, m[1])
		}
		env[m[1]] = value
	}
	return nil
}

func unquoted(s string) (value string, ok bool) {
	switch {
	case strings.HasPrefix(s, `"`):
		value, err := strconv.Unquote(s)
		return value, err == nil && !strings.ContainsRune(value, 0)
	case strings.HasPrefix(s, "'"):
		value, closed := strings.CutSuffix(s[1:], "'")
		return value, closed && !strings.Contains(value, "'")
	}
	return s, !strings.ContainsRune(s, 0)
}
