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
		filledText("destination", "local/app.conf", "The file, below local, secrets or tmp: the task of exec finds local/x as /local/x. ${NOMAD_TASK_DIR}/x and ${NOMAD_SECRETS_DIR}/x "+
			"are read as local/x and secrets/x.", func(t *api.Template) *string { return &t.Destination }).required(`destination = "local/app.conf"`),
		text("perms", "The file's permissions, in octal.", func(t *api.Template) *string { return &t.Perms }).standing("0644, below secrets 0600"),
		flag("env", "The text is lines of KEY=value, and the task's environment gets these too.", func(t *api.Template) *bool { return &t.Env }),
	},
	foreign: []foreign{
		{names: "change_mode change_signal change_script splay wait once vault_grace", why: "a template does not change while its allocation lives", harmless: true},
		{names: "error_on_missing_key", why: "a variable that is missing always is an error", harmless: true},
		{names: "source", why: "write the text into data"},
		{names: "left_delimiter right_delimiter", why: `only {{ and }} are read; {{ "{{" }} stands for the braces themselves`},
		{names: "uid gid", why: "the file is the task's user's"},
	},
}

// templateData is the text of a template. What of it nobody can render is
// reported where it stands.
func templateData[T any](at func(*T) *string) field[T] {
	const doc = `The file's text. ${NAME} is filled in as in config, and so is {{ env "NAME" }}, where the variable must be there; {{ "{{" }} stands for the braces themselves.`
	return field[T]{name: "data", kind: "string", doc: doc, read: func(d *decoder, path string, it item, into *T) {
		if !d.attribute(path, it, `data = "..."`) || !d.plain(path, it.value, "give a string", aString) {
			return
		}
		t := api.Template{Data: it.value.text}
		_, faults := t.Parts()
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
