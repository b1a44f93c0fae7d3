package hook

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/driver"
)

// maxRendered bounds a file: a reference may be shorter than what it stands for.
const maxRendered = 4 << 20

// render makes the files of a task's templates. Variables of those that are
// meant for the environment are added to env, where the templates after them
// find them too.
func (t *Tasks) render(templates []api.Template, env map[string]string) ([]driver.File, error) {
	var files []driver.File
	for i := range templates {
		one := &templates[i]
		text, err := t.text(one, env)
		if err == nil && one.Env {
			err = addVariables(env, text)
		}
		if err != nil {
			return nil, fmt.Errorf("render template %s: %w", one.Destination, err)
		}
		dir, file := one.Place()
		files = append(files, driver.File{Dir: dir, Path: file, Content: text, Mode: os.FileMode(one.Mode())})
	}
	return files, nil
}

// text is what becomes of a template's data.
func (t *Tasks) text(one *api.Template, env map[string]string) (string, error) {
	parts, faults := one.Parts()
	if len(faults) > 0 {
		return "", fmt.Errorf("it %s", faults[0].Message) // of a server that knows more
	}
	var to rendered
	for _, part := range parts {
		switch part.Kind {
		case api.TemplateLiteral:
			to.add(part.Text)
		case api.TemplateEnv:
			v, known := env[part.Text]
			if !known {
				return "", unknownVariable(part.Text, env)
			}
			to.add(v)
		case api.TemplateText:
			end := 0
			for _, at := range reference.FindAllStringIndex(part.Text, -1) {
				to.add(part.Text[end:at[0]])
				to.add(t.value(part.Text[at[0]:at[1]], env))
				end = at[1]
			}
			to.add(part.Text[end:])
		}
	}
	if to.over {
		return "", fmt.Errorf("it becomes larger than %d MiB", maxRendered>>20)
	}
	return to.text.String(), nil
}

// rendered is a text that grows up to maxRendered.
type rendered struct {
	text strings.Builder
	over bool
}

func (r *rendered) add(s string) {
	if r.over = r.over || r.text.Len()+len(s) > maxRendered; !r.over {
		r.text.WriteString(s)
	}
}

func unknownVariable(name string, env map[string]string) error {
	err := fmt.Errorf("it has {{ env %q }}, and the task has no variable %s", name, name)
	if rest, nomads := strings.CutPrefix(name, "NOMAD_"); nomads {
		if _, known := env["BERTH_"+rest]; known {
			return fmt.Errorf("%w; here it is BERTH_%s", err, rest)
		}
	}
	return err
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
