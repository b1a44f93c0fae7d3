package api

import (
	"slices"
	"strings"
	"time"
)

// ChangeMode is what is done with a task whose template comes to another text.
type ChangeMode string

// The change modes.
const (
	// ChangeRestart starts the task again, with the new files. It is not counted by
	// its restart policy.
	ChangeRestart ChangeMode = "restart"
	// ChangeSignal sends it a signal.
	ChangeSignal ChangeMode = "signal"
	// ChangeScriptMode runs a command in it.
	ChangeScriptMode ChangeMode = "script"
	// ChangeNoop leaves it to the task to look.
	ChangeNoop ChangeMode = "noop"
)

// ChangeModes lists all modes, for validation and documentation.
func ChangeModes() []ChangeMode {
	return []ChangeMode{ChangeRestart, ChangeSignal, ChangeScriptMode, ChangeNoop}
}

// ChangeScript is a command that is run in a task when a file of it has changed.
type ChangeScript struct {
	Command string   `json:"command"`
	Args    []string `json:"args,omitempty"`
	// Timeout is how long it may take, DefaultChangeTimeout if 0.
	Timeout Duration `json:"timeout,omitempty"`
	// FailOnError: the task has failed if the command has.
	FailOnError bool `json:"fail_on_error,omitempty"`
}

const (
	// DefaultSplay is the splay of a template that names none.
	DefaultSplay = 5 * time.Second
	// DefaultChangeTimeout is how long a change script may take that does not say.
	DefaultChangeTimeout = 5 * time.Second

	maxSplay         = time.Hour
	maxChangeTimeout = time.Minute // nothing else is done for the allocation meanwhile
)

// Change is what is done when the text changes.
func (t *Template) Change() ChangeMode {
	if t.ChangeMode == "" {
		return ChangeRestart
	}
	return t.ChangeMode
}

// Within is the time in which the task is told of a change.
func (t *Template) Within() time.Duration {
	if t.Splay == nil {
		return DefaultSplay
	}
	return time.Duration(*t.Splay)
}

// Limit is how long the command may take.
func (c *ChangeScript) Limit() time.Duration {
	if c.Timeout == 0 {
		return DefaultChangeTimeout
	}
	return time.Duration(c.Timeout)
}

func (t *Template) validateChange(p *Problems, at string) {
	if t.ChangeMode != "" {
		oneOf(p, at+".change_mode", t.ChangeMode, ChangeModes()...)
	}
	mode := t.Change()
	switch {
	case t.Env && (mode == ChangeSignal || mode == ChangeScriptMode):
		p.Addf(at+".change_mode", `use "restart", or "noop" to leave the change to the next start`, "is %s, and a task that runs keeps the environment that it has", mode)
	case mode == ChangeSignal && t.ChangeSignal == "":
		p.Add(at+".change_signal", "is missing", `add change_signal = "SIGHUP"`)
	case mode == ChangeScriptMode && t.ChangeScript == nil:
		p.Add(at+".change_script", "is missing", `add change_script { command = "/local/reload" }`)
	}
	if t.ChangeSignal != "" && !slices.Contains(Signals(), t.ChangeSignal) {
		p.Addf(at+".change_signal", "use one of "+strings.Join(Signals(), ", "), "is %q", t.ChangeSignal)
	}
	if c := t.ChangeScript; c != nil {
		if c.Command == "" {
			p.Add(at+".change_script.command", "is missing", `add command = "/local/reload"`)
		}
		if d := time.Duration(c.Timeout); d < 0 || d > maxChangeTimeout {
			p.Addf(at+".change_script.timeout", "give a duration up to 1m", "is %s", d)
		}
	}
	if t.Splay != nil && (*t.Splay < 0 || time.Duration(*t.Splay) > maxSplay) {
		p.Addf(at+".splay", "give a duration up to 1h", "is %s", time.Duration(*t.Splay))
	}
}
