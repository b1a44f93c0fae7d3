package api

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Template is a file that a task finds, made on its node before each start.
type Template struct {
	// Data is its text. In it ${NAME} is filled in as in the task's config, and
	// what is in {{ }} is done as Go's text/template does it: see Parse.
	Data string `json:"data"`
	// Destination is a path below local, secrets or tmp in the task's directory, or
	// below alloc, which the tasks of an allocation share; a slash before it changes
	// nothing. ${NOMAD_TASK_DIR}, ${NOMAD_SECRETS_DIR} and ${NOMAD_ALLOC_DIR} stand
	// for local, secrets and alloc.
	Destination string `json:"destination"`
	// Perms are the file's permissions in octal: 0644 if empty, 0600 below secrets.
	Perms string `json:"perms,omitempty"`
	// UID and GID are whose the file is; nil is the task's user.
	UID *int `json:"uid,omitempty"`
	GID *int `json:"gid,omitempty"`
	// Env: the text is lines of KEY=value, which the task's environment gets too.
	Env bool `json:"env,omitempty"`
	// ChangeMode is what the task is told when the text becomes another, because
	// what it reads of the servers has changed: ChangeRestart if empty.
	ChangeMode ChangeMode `json:"change_mode,omitempty"`
	// ChangeSignal is the signal of change mode signal.
	ChangeSignal string `json:"change_signal,omitempty"`
	// ChangeScript is the command of change mode script.
	ChangeScript *ChangeScript `json:"change_script,omitempty"`
	// Splay is how long the task is told at most after the change, so that not all
	// tasks are at once; nil is DefaultSplay.
	Splay *Duration `json:"splay,omitempty"`
}

const (
	maxTemplates     = 100
	maxTemplateData  = 256 << 10 // bytes
	maxFaults        = 100       // of one template: there is no use in more
	maxTemplateNodes = 20_000    // of one template
	maxElement       = 200       // bytes of one name in a path
	maxUserID        = 1<<31 - 2 // the kernel's greatest means none
	maxPath          = 1000      // bytes
)

// AllocShare is the directory that the tasks of an allocation share, as they name it.
const AllocShare = "alloc"

// Place is where the file goes: one of the task's directories, or AllocShare, and
// the path in it. What Validate refuses has none.
func (t *Template) Place() (dir, file string) {
	dest := t.Destination
	for name, dir := range map[string]string{"TASK": "local", "SECRETS": "secrets", "ALLOC": AllocShare} {
		for _, of := range []string{"NOMAD", "BERTH"} {
			if rest, found := strings.CutPrefix(dest, "${"+of+"_"+name+"_DIR}/"); found {
				dest = dir + "/" + rest
			}
		}
	}
	// The task's directory is the root of a path that begins with a slash.
	plain := path.Clean(strings.TrimPrefix(dest, "/"))
	dir, file, _ = strings.Cut(plain, "/")
	if file == "" || strings.HasSuffix(dest, "/") || strings.HasSuffix(dest, "/.") ||
		!slices.Contains(append(TaskDirs(), AllocShare), dir) || strings.ContainsFunc(file, unicode.IsControl) || strings.Contains(file, "${") {
		return "", ""
	}
	return dir, file
}

// TaskDirs are the directories that every task has to itself.
func TaskDirs() []string { return []string{"local", "secrets", "tmp"} }

var perms = regexp.MustCompile(`^0?[0-7]{3}$`)

// Mode is the file's permissions, nine bits.
func (t *Template) Mode() uint32 {
	if n, err := strconv.ParseUint(t.Perms, 8, 9); err == nil {
		return uint32(n)
	}
	if dir, _ := t.Place(); dir == "secrets" {
		return 0o600
	}
	return 0o644
}

func (t *Task) validateTemplates(p *Problems, task string) {
	if len(t.Templates) > maxTemplates {
		p.Addf(task+".template", "put the files into a volume", "is there %d times, and a task may have %d", len(t.Templates), maxTemplates)
		return
	}
	places := make([]string, len(t.Templates))
	for i := range t.Templates {
		one := &t.Templates[i]
		at := fmt.Sprintf("%s.template[%d]", task, i)
		one.validate(p, at)
		if t.Hook() == HookPoststop && one.Lookups() {
			p.Add(at+".data", "reads variables or services, and nobody could wait for them when the allocation ends", "give the task what it needs with env, or write it in a task that runs before")
		}
		dir, file := one.Place()
		if dir == "" {
			continue
		}
		place := dir + "/" + file
		if j := slices.IndexFunc(places, func(other string) bool { return within(place, other) || within(other, place) }); j >= 0 {
			message := "and that of template[%d] need a file and a directory of the same name"
			if places[j] == place {
				message = "is that of template[%d], too"
			}
			p.Addf(at+".destination", "give each template a file of its own", message, j)
		}
		places[i] = place
		for _, m := range t.VolumeMounts {
			if mount := path.Clean(m.Destination); within("/"+place, mount) || within(mount, "/"+place) {
				p.Addf(at+".destination", "choose another place", "is at the place of the volume %q, which is mounted at %s", m.Volume, mount)
			}
		}
	}
}

// within reports whether a path is dir or lies below it; nothing is below "".
func within(place, dir string) bool {
	return dir != "" && (place == dir || strings.HasPrefix(place, dir+"/"))
}

func (t *Template) validate(p *Problems, at string) {
	t.validateChange(p, at)
	if len(t.Data) > maxTemplateData {
		p.Addf(at+".data", "put it into a volume", "has %d bytes, and may have %d", len(t.Data), maxTemplateData)
	}
	if strings.ContainsRune(t.Data, 0) {
		p.Add(at+".data", "has a NUL character", "remove it")
	}
	var faults []TemplateFault
	if len(t.Data) <= maxTemplateData { // to read more costs more than it tells
		faults = t.faults()
	}
	for _, f := range faults {
		p.Addf(at+".data", f.Mend, "in line %d %s", 1+strings.Count(t.Data[:f.Offset], "\n"), f.Message)
	}
	mend := `give a plain path such as "local/app.conf" or "secrets/key"`
	_, file := t.Place()
	switch tooLong := func(name string) bool { return len(name) > maxElement }; {
	case t.Destination == "":
		p.Add(at+".destination", "is missing", mend)
	case file == "":
		if t.Destination == path.Clean(t.Destination) && path.IsAbs(t.Destination) && path.Base(t.Destination) != "/" && short(t.Destination) == t.Destination {
			own := "local/" + path.Base(t.Destination)
			mend = fmt.Sprintf("write %q, and have the task read it there; with docker, config { volumes = [%q] } shows it at the other path", own, own+":"+t.Destination)
		}
		p.Addf(at+".destination", mend, "is %q, which is no file below local, secrets, tmp or alloc", short(t.Destination))
	case len(file) > maxPath || slices.ContainsFunc(strings.Split(file, "/"), tooLong):
		p.Addf(at+".destination", "shorten it", "has a name of more than %d bytes, or is longer than %d", maxElement, maxPath)
	}
	if t.Perms != "" && !perms.MatchString(t.Perms) {
		p.Addf(at+".perms", `give octal permissions such as "0640"`, "is %q", short(t.Perms))
	}
	for name, id := range map[string]*int{"uid": t.UID, "gid": t.GID} {
		if id != nil && (*id < 0 || *id > maxUserID) {
			p.Addf(at+"."+name, "leave it out, or give the number of a user or group", "is %d", *id)
		}
	}
}
