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
	// so is {{ env "NAME" }}, of which the variable must be there.
	Data string `json:"data"`
	// Destination is a path below local, secrets or tmp in the task's directory; a
	// slash before it changes nothing. ${NOMAD_TASK_DIR} and ${NOMAD_SECRETS_DIR}
	// stand for the first two.
	Destination string `json:"destination"`
	// Perms are the file's permissions in octal: 0644 if empty, 0600 below secrets.
	Perms string `json:"perms,omitempty"`
	// Env: the text is lines of KEY=value, which the task's environment gets too.
	Env bool `json:"env,omitempty"`
}

const (
	maxTemplates    = 100
	maxTemplateData = 256 << 10 // bytes
	maxFaults       = 100       // of one template: there is no use in more
	maxElement      = 200       // bytes of one name in a path
	maxPath         = 1000      // bytes
)

// Place is where the file goes: one of the task's directories, and the path in
// it. What Validate refuses has none.
func (t *Template) Place() (dir, file string) {
	dest := t.Destination
	for prefix, dir := range map[string]string{"${NOMAD_TASK_DIR}/": "local/", "${NOMAD_SECRETS_DIR}/": "secrets/"} {
		if rest, found := strings.CutPrefix(dest, prefix); found {
			dest = dir + rest
		}
	}
	// The task's directory is the root of a path that begins with a slash.
	dir, file, _ = strings.Cut(strings.TrimPrefix(strings.TrimPrefix(dest, "./"), "/"), "/")
	if file == "" || path.Clean(file) != file || file == "." || file == ".." || strings.HasPrefix(file, "../") || path.IsAbs(file) ||
		!slices.Contains(TaskDirs(), dir) || strings.ContainsFunc(file, unicode.IsControl) || strings.Contains(file, "${") {
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

// TemplateKind is what a part of a template is.
type TemplateKind int

// The kinds of parts.
const (
	// TemplateText has ${NAME} filled in.
	TemplateText TemplateKind = iota
	// TemplateLiteral is taken as it is.
	TemplateLiteral
	// TemplateEnv is the name of a variable that must be there.
	TemplateEnv
)

// TemplatePart is a part of a template's data.
type TemplatePart struct {
	Kind TemplateKind
	Text string
}

// TemplateFault is something in a template's data that is none of its actions.
type TemplateFault struct {
	// Offset is where in the data it begins, in bytes.
	Offset        int
	Message, Mend string
}

// action matches {{ env "NAME" }} and a string in braces, which stands for itself,
// both as Go's text/template writes them.
var action = regexp.MustCompile(`^\{\{(-\s)?\s*(?:env\s+` + quoted + `|` + quoted + `)\s*(\s-)?\}\}`)

// What a comment begins with, and what it ends with behind the first */.
var (
	commentBegins = regexp.MustCompile(`^\{\{(-\s)?\s*/\*`)
	commentEnds   = regexp.MustCompile(`^\s*(\s-)?\}\}`)
)

// known matches an action of those at the beginning of s, or a comment: all of
// it, the - that it begins with, what env names, the string, and the - at its end.
func known(s string) []string {
	begin := commentBegins.FindStringSubmatch(s)
	if begin == nil {
		return action.FindStringSubmatch(s)
	}
	_, rest, closed := strings.Cut(s[len(begin[0]):], "*/")
	end := commentEnds.FindStringSubmatch(rest)
	if !closed || end == nil {
		return nil
	}
	return []string{s[:len(s)-len(rest)+len(end[0])], begin[1], "", "", end[1]}
}

// quoted matches a string of Go's.
const quoted = `("(?:[^"\\\n]|\\.)*"|` + "`[^`]*`)"

// Parts takes the data apart. With faults the parts are not all there.
func (t *Template) Parts() (parts []TemplatePart, faults []TemplateFault) {
	data, trim := t.Data, false
	literal := func(s string, trimEnd bool) {
		if trim {
			s = strings.TrimLeft(s, whiteSpace)
		}
		if trimEnd {
			s = strings.TrimRight(s, whiteSpace)
		}
		if s != "" {
			parts = append(parts, TemplatePart{TemplateText, s})
		}
	}
	at, ends := 0, map[int]int(nil)
	for {
		i := strings.Index(data[at:], "{{")
		if i < 0 {
			literal(data[at:], false)
			return parts, faults
		}
		open := at + i
		m := known(data[open:])
		if m == nil {
			length := actionLength(data[open:])
			if ends == nil && length > 0 {
				ends = blocks(data, open)
			}
			at = open + length
			if end, block := ends[open]; block {
				at = end
			}
			fault := strangeAction(data[open:at], length)
			fault.Offset = open
			faults = append(faults, fault)
			if length == 0 || len(faults) == maxFaults {
				return parts, faults
			}
			continue
		}
		literal(data[at:open], m[1] != "")
		switch part, fault := partOf(m); {
		case fault != nil:
			fault.Offset = open
			faults = append(faults, *fault)
		case part.Text != "":
			parts = append(parts, part)
		}
		at, trim = open+len(m[0]), m[4] != ""
	}
}

// partOf is what a known action is, or what is wrong with it. A comment is
// nothing.
func partOf(m []string) (TemplatePart, *TemplateFault) {
	part := TemplatePart{TemplateEnv, m[2]}
	if m[2] == "" {
		part = TemplatePart{TemplateLiteral, m[3]}
	}
	var err error
	if part.Text != "" {
		part.Text, err = strconv.Unquote(part.Text)
	}
	switch {
	case err != nil:
		return part, &TemplateFault{Message: "has an escape in " + short(m[0]) + " that Go does not know", Mend: `write \\ for a backslash`}
	case part.Kind == TemplateEnv && (part.Text == "" || strings.ContainsAny(part.Text, "=\x00")):
		return part, &TemplateFault{Message: "has " + short(m[0]) + ", which names no variable", Mend: `write {{ env "NAME" }}`}
	}
	return part, nil
}

// whiteSpace is what {{- and -}} remove.
const whiteSpace = " \t\r\n"

// strangeAction says what is wrong with the action that a block begins with, and
// that is so long; 0 if it is never closed.
func strangeAction(s string, length int) (f TemplateFault) {
	if length == 0 {
		return TemplateFault{Message: `has "{{" without a closing "}}"`, Mend: `close it, or write {{ "{{" }} for the braces themselves`}
	}
	one := s[:length]
	f = TemplateFault{
		Message: "has " + short(one) + ", and of these Berth knows only {{ env \"NAME\" }}",
		Mend:    `use {{ env "NAME" }}, or write {{ "{{" }} for the braces themselves`,
	}
	if why, mend := foreignAction(one, s[length:]); why != "" {
		f.Message, f.Mend = "has "+short(one)+", and Berth "+why, mend
	}
	return f
}

// blocks says of each action from an offset on that begins a block where its
// {{ end }} ends, or where an action begins that is never closed. A block without
// an end is not there.
func blocks(data string, from int) map[int]int {
	ends, open := map[int]int{}, []int{}
	for at := from; ; {
		next := strings.Index(data[at:], "{{")
		if next < 0 {
			return ends
		}
		begin := at + next
		length := actionLength(data[begin:])
		if m := known(data[begin:]); m != nil {
			length = len(m[0])
		}
		if at = begin + length; length == 0 {
			for _, o := range open {
				ends[o] = begin
			}
			return ends
		}
		switch one := data[begin:at]; {
		case opensBlock.MatchString(one):
			open = append(open, begin)
		case closesBlock.MatchString(one) && len(open) > 0:
			ends[open[len(open)-1]] = at
			open = open[:len(open)-1]
		}
	}
}

// actionLength is how long the action is that s begins with, 0 if it is not
// closed. What stands in quotes closes nothing.
func actionLength(s string) int {
	if m := anyAction.FindString(s); m != "" {
		return len(m)
	}
	end := strings.Index(s, "}}")
	if end < 0 {
		return 0
	}
	return end + len("}}")
}

var (
	anyAction   = regexp.MustCompile(`^\{\{(?:[^"` + "`" + `}]|` + quoted + `|\}[^}"` + "`" + `])*\}\}`)
	opensBlock  = regexp.MustCompile(`^\{\{(?:-\s)?\s*(?:if|range|with|block|define)\b`)
	closesBlock = regexp.MustCompile(`^\{\{(?:-\s)?\s*end\b`)
)

// What people's templates ask of Nomad, Consul and Vault.
var (
	ofVariables = regexp.MustCompile(`\bnomadVar\w*\b`)
	ofVault     = regexp.MustCompile(`\b(?:secrets?|pkiCert)\s+["` + "`" + `]`)
	ofConsul    = regexp.MustCompile(`\b(?:key|keyExists|keyOrDefault|ls|safeLs|tree|safeTree)\s+["` + "`" + `]`)
	ofField     = regexp.MustCompile(`\{\{-?\s*\.(?:Data\.)?(?:data\.)?([A-Za-z_]\w*)(?:\.Value)?\s*-?\}\}`)
	ofServices  = regexp.MustCompile(`\b(?:service|services|nomadService|nomadServices|node|nodes|connect|caRoots|caLeaf)\s*(?:["` + "`" + `]|-?\}\})`)
)

// foreignAction says why Berth cannot do what an action asks of those, and what
// to do instead; "" if it asks nothing of them. Inside is what its block holds.
func foreignAction(action, inside string) (why, mend string) {
	inVariable := `declare variable "x" {}, write ${var.x} here, and give it with --var or --var-file`
	if m := ofField.FindStringSubmatch(inside); len(m) > 0 && len(m[0]) < 100 {
		inVariable = fmt.Sprintf("declare variable %q {}, write ${var.%s} for %s without this block around it, and give it with --var or --var-file", m[1], m[1], m[0])
	}
	switch {
	case ofVariables.MatchString(action):
		return "keeps no variables of Nomad", inVariable
	case ofVault.MatchString(action):
		return "does not talk to Vault", inVariable
	case ofConsul.MatchString(action):
		return "does not talk to Consul", inVariable
	case ofServices.MatchString(action):
		return "finds no services for a template", "write the addresses, or have the task ask /v1/service/NAME"
	default:
		return "", ""
	}
}

// short is text for a message: one line, and little of it.
func short(s string) string {
	const most = 60
	line, _, more := strings.Cut(s, "\n")
	if len(line) > most {
		line, more = strings.ToValidUTF8(line[:most], ""), true
	}
	if more {
		line += "..."
	}
	return line
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
	if len(t.Data) > maxTemplateData {
		p.Addf(at+".data", "put it into a volume", "has %d bytes, and may have %d", len(t.Data), maxTemplateData)
	}
	if strings.ContainsRune(t.Data, 0) {
		p.Add(at+".data", "has a NUL character", "remove it")
	}
	_, faults := t.Parts()
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
		p.Addf(at+".destination", mend, "is %q, which is no file below local, secrets or tmp", short(t.Destination))
	case len(file) > maxPath || slices.ContainsFunc(strings.Split(file, "/"), tooLong):
		p.Addf(at+".destination", "shorten it", "has a name of more than %d bytes, or is longer than %d", maxElement, maxPath)
	}
	if t.Perms != "" && !perms.MatchString(t.Perms) {
		p.Addf(at+".perms", `give octal permissions such as "0640"`, "is %q", short(t.Perms))
	}
}
