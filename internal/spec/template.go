package spec

import (
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/berth-dev/berth/api"
)

var templateTable = &table[api.Template]{
	doc: "A file that is made on the node, as the task's user's own, before each start of the task.",
	fields: []field[api.Template]{
		templateData(func(t *api.Template) *string { return &t.Data }).required(`data = "..."`),
		filledText("destination", "local/app.conf", "The file, below local, secrets or tmp: the task of exec finds local/x as /local/x. Below alloc it is in what the tasks of the allocation share. "+
			"${NOMAD_TASK_DIR}/x, ${NOMAD_SECRETS_DIR}/x and ${NOMAD_ALLOC_DIR}/x are read as local/x, secrets/x and alloc/x.", func(t *api.Template) *string { return &t.Destination }).required(`destination = "local/app.conf"`),
		text("perms", "The file's permissions, in octal.", func(t *api.Template) *string { return &t.Perms }).standing("0644, below secrets 0600"),
		integer("uid", "The number of the user that the file belongs to.", func(t *api.Template) *int {
			t.UID = new(int)
			return t.UID
		}).standing("the task's user"),
		integer("gid", "The number of the group that the file belongs to.", func(t *api.Template) *int {
			t.GID = new(int)
			return t.GID
		}).standing("the task's user's"),
		flag("env", "The text is lines of KEY=value, and the task's environment gets these too.", func(t *api.Template) *bool { return &t.Env }),
		choice("change_mode", "What happens to a task that runs when a variable or a service that the text reads has changed, and the text with it: restart starts the task again, without "+
			"counting it; signal sends change_signal, and script runs change_script, when the files are there; noop leaves it to the task to look.", api.ChangeModes(), nil,
			func(t *api.Template) *api.ChangeMode { return &t.ChangeMode }).standing(string(api.ChangeRestart)),
		choice("change_signal", "The signal of change_mode signal.", api.Signals(), nil, func(t *api.Template) *string { return &t.ChangeSignal }),
		block("change_script", "The command of change_mode script.", changeScriptTable, func(t *api.Template) **api.ChangeScript { return &t.ChangeScript }),
		duration("splay", "How long after a change the task is told of it at most: a time below that is drawn each time, so that not all tasks are told at once.",
			func(t *api.Template) *api.Duration {
				t.Splay = new(api.Duration)
				return t.Splay
			}).standing("5s"),
	},
	foreign: []foreign{
		{names: "wait vault_grace", why: "a change is taken over as soon as it is known", harmless: true},
		{names: "once", why: "a text follows what it reads", mend: `use change_mode = "noop"`, unless: "false"},
		{names: "error_on_missing_key", why: "a key that is missing is always waited for", harmless: true},
		{names: "source", why: "a file of the node is not the job's to read; write the text into data"},
		{names: "left_delimiter right_delimiter", why: `only {{ and }} are read; {{ "{{" }} stands for the braces themselves`},
	},
}

var changeScriptTable = &table[api.ChangeScript]{
	doc: "A command that is run in the task when its files have changed, as the checks of type script are.",
	fields: []field[api.ChangeScript]{
		filledText("command", "/local/reload", "The command. ${NAME} is filled in on the node.", func(c *api.ChangeScript) *string { return &c.Command }).required(`command = "/local/reload"`),
		filledTexts("args", "What it is called with. ${NAME} is filled in on the node.", func(c *api.ChangeScript) *[]string { return &c.Args }),
		duration("timeout", "How long it may take.", func(c *api.ChangeScript) *api.Duration { return &c.Timeout }).standing("5s"),
		flag("fail_on_error", "The task has failed if the command has, and what follows is what its restart policy says.", func(c *api.ChangeScript) *bool { return &c.FailOnError }),
	},
}

// templateData is the text of a template. What of it nobody can render is
// reported where it stands.
func templateData[T any](at func(*T) *string) field[T] {
	const doc = `The file's text. ${NAME} is filled in as in config. {{ env "NAME" }} is the task's variable, which must be there, {{ with nomadVar "PATH" }}{{ .KEY }}{{ end }} what berth var put has put, ` +
		`and {{ range service "NAME" }}{{ .Address }}:{{ .Port }}{{ end }} where a service is; [tasks.md](tasks.md#templates) has all. {{ "{{" }} stands for the braces themselves.`
	return field[T]{name: "data", kind: "string", doc: doc, read: func(d *decoder, path string, it item, into *T) {
		if !d.attribute(path, it, `data = "..."`) || !d.plain(path, it.value, "give a string", aString) {
			return
		}
		t := api.Template{Data: it.value.text}
		_, faults := t.Parse()
		for _, f := range faults {
			d.fail(path, it.value.brace(f.Offset), f.Message, f.Mend)
		}
		*at(into) = t.Data
	}}
}

// brace is the place of the {{ that is at this offset of the text: in the file,
// where every one is written as such, or else where the text begins.
func (v value) brace(offset int) hcl.Range {
	if len(v.braces) != strings.Count(v.text, "{{") {
		return v.at
	}
	return v.braces[strings.Count(v.text[:offset], "{{")]
}
