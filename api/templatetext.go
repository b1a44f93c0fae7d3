package api

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"text/template/parse"

	"github.com/berth-dev/berth/internal/suggest"
)

// TemplateFault is something in a template's data that cannot be done.
type TemplateFault struct {
	// Offset is where in the data its action begins, in bytes.
	Offset        int
	Message, Mend string
}

// TemplateName is what a template calls itself in what Go's text/template says.
const TemplateName = "data"

// Parse reads the data. It is Go's text/template, without templates in templates,
// and with functions of its own: TemplateFunctions. With faults there is no tree.
func (t *Template) Parse() (*parse.Tree, []TemplateFault) {
	tree, all, err := readTemplate(t.Data)
	if err != nil {
		return nil, []TemplateFault{syntaxFault(t.Data, err)}
	}
	c := checker{data: t.Data, functions: templateFunctions()}
	c.list(tree.Root)
	for name, other := range all {
		if name != TemplateName {
			c.at = c.begin(other.Root.Position())
			c.add("and Berth's templates have none in them", "write the text where it is used")
		}
	}
	if c.nodes > maxTemplateNodes {
		c.at = max(0, strings.Index(t.Data, "{{"))
		c.add(fmt.Sprintf("and more than %d things to do", maxTemplateNodes), "put the text into a volume")
	}
	if len(c.faults) == 0 {
		return tree, nil
	}
	slices.SortStableFunc(c.faults, func(a, b TemplateFault) int { return cmp.Compare(a.Offset, b.Offset) })
	c.faults = slices.CompactFunc(c.faults, func(a, b TemplateFault) bool { return a.Offset == b.Offset })
	return nil, c.faults[:min(len(c.faults), maxFaults)]
}

func (t *Template) faults() []TemplateFault {
	_, faults := t.Parse()
	return faults
}

// readTemplate is text/template's parser, which leaves functions to us.
func readTemplate(data string) (tree *parse.Tree, all map[string]*parse.Tree, err error) {
	tree, all = parse.New(TemplateName), map[string]*parse.Tree{}
	tree.Mode = parse.SkipFuncCheck
	tree, err = tree.Parse(data, "", "", all)
	return tree, all, err
}

// templateFunction is a function of templates.
type templateFunction struct {
	// least and most are how many values it takes; most is -1 without a bound.
	least, most int
	// check looks at the first value where it is written out, and says what is
	// wrong with it, or "".
	check func(value string) (why, mend string)
}

// templateFunctions are those that there are. Beside text/template's own, they
// have the names and the values of consul-template's.
func templateFunctions() map[string]templateFunction {
	return map[string]templateFunction{
		"and": {1, -1, nil}, "or": {1, -1, nil}, "not": {1, 1, nil}, "eq": {2, -1, nil}, "ne": {2, 2, nil}, "lt": {2, 2, nil}, "le": {2, 2, nil}, "gt": {2, 2, nil}, "ge": {2, 2, nil},
		"index": {1, -1, nil}, "slice": {1, -1, nil}, "len": {1, 1, nil},
		"print": {0, -1, nil}, "println": {0, -1, nil}, "printf": {1, -1, nil}, "html": {1, -1, nil}, "js": {1, -1, nil}, "urlquery": {1, -1, nil},

		"env": {1, 1, variableName}, "mustEnv": {1, 1, variableName}, "envOrDefault": {2, 2, variableName},

		"base64Encode": {1, 1, nil}, "base64Decode": {1, 1, nil}, "base64URLEncode": {1, 1, nil}, "base64URLDecode": {1, 1, nil}, "sha256Hex": {1, 1, nil},
		"toLower": {1, 1, nil}, "toUpper": {1, 1, nil}, "toTitle": {1, 1, nil}, "trim": {2, 2, nil}, "trimSpace": {1, 1, nil}, "trimPrefix": {2, 2, nil}, "trimSuffix": {2, 2, nil},
		"replaceAll": {3, 3, nil}, "regexMatch": {2, 2, nil}, "indent": {2, 2, nil}, "join": {2, 2, nil}, "split": {2, 2, nil}, "contains": {2, 2, nil}, "in": {2, 2, nil},
		"toJSON": {1, 1, nil}, "toJSONPretty": {1, 1, nil}, "parseJSON": {1, 1, nil}, "parseBool": {1, 1, nil}, "parseInt": {1, 1, nil}, "parseUint": {1, 1, nil}, "parseFloat": {1, 1, nil},
		"nomadVar": {1, 1, lookupPath}, "nomadVarExists": {1, 1, lookupPath}, "nomadVarList": {0, 1, nil},
		"variable": {1, 1, lookupPath}, "variableExists": {1, 1, lookupPath}, "variables": {0, 1, nil},
		"nomadService": {1, 3, nil}, "service": {1, 1, lookupService},

		"add": {2, 2, nil}, "subtract": {2, 2, nil}, "multiply": {2, 2, nil}, "divide": {2, 2, nil}, "modulo": {2, 2, nil}, "minimum": {2, 2, nil}, "maximum": {2, 2, nil}, "loop": {1, 2, nil},
	}
}

// templateLookups are the functions that ask the servers.
func templateLookups() []string {
	return []string{"nomadVar", "nomadVarExists", "nomadVarList", "variable", "variableExists", "variables", "nomadService", "service"}
}

// lookupPath looks at the path of a variable.
func lookupPath(path string) (why, mend string) {
	if strings.Contains(path, "@") {
		return "and a job reads the variables of its own namespace", "leave out what begins with @"
	}
	if why, mend = variablePathProblem(path); why != "" {
		return "whose path " + why, mend
	}
	return "", ""
}

// lookupService looks at what names a service, which may have a tag before it.
func lookupService(name string) (why, mend string) {
	switch {
	case strings.Contains(name, "@"):
		return "and there is one cluster", "leave out what begins with @"
	case strings.Contains(name, "|"):
		return "and the services that are found are those that are healthy", "leave out what begins with |"
	case name == "":
		return "which names no service", `write {{ range service "NAME" }}`
	}
	return "", ""
}

// Lookups reports whether the text rests on what the servers answer: it may come
// to another one while the task runs.
func (t *Template) Lookups() bool {
	if !strings.Contains(t.Data, "{{") {
		return false
	}
	tree, _, err := readTemplate(t.Data)
	if err != nil {
		return false
	}
	c := checker{data: t.Data, functions: templateFunctions()}
	c.list(tree.Root)
	return c.lookups
}

// TemplateFunctions are the names of the functions that templates have.
func TemplateFunctions() []string { return slices.Sorted(maps.Keys(templateFunctions())) }

func variableName(value string) (why, mend string) {
	if value == "" || strings.ContainsAny(value, "=\x00") {
		return "which names no variable", `write {{ env "NAME" }}`
	}
	return "", ""
}

// templateForeign are functions that people's templates call, and that nothing
// here could answer.
func templateForeign() map[string][2]string {
	const elsewhere = `put it with berth var put PATH KEY=VALUE, and write {{ with nomadVar "PATH" }}{{ .KEY }}{{ end }}`
	all := map[string][2]string{}
	for names, why := range map[string][2]string{
		"secret secrets pkiCert": {"Berth does not talk to Vault", elsewhere},
		"key keyExists keyExistsGet keyOrDefault ls safeLs tree safeTree exportedServices":         {"Berth does not talk to Consul", elsewhere},
		"nodes node services connect caRoots caLeaf peerings datacenters nomadServices partitions": {"a template finds services by their names only", `write {{ range service "NAME" }}{{ .Address }}:{{ .Port }}{{ end }}`},
		"file plugin executeTemplate scratch writeToFile":                                          {"a template reads and runs nothing of its node", "write the text into data, or make it in a task with lifecycle { hook = \"prestart\" }"},
		"timestamp now sockaddr":     {"a template comes to the same each time", `write the value, or one of the task's variables with {{ env "NAME" }}`},
		"call block define template": {"templates have no templates in them", "write the text where it is used"},
	} {
		for name := range strings.FieldsSeq(names) {
			all[name] = why
		}
	}
	return all
}

// checker finds what cannot be done in a tree.
type checker struct {
	data      string
	functions map[string]templateFunction
	at        int // where the action begins that is looked at
	faults    []TemplateFault
	nodes     int
	// lookups: the servers are asked.
	lookups bool
	// within are the blocks around, in which the dot is something.
	within int
}

// list looks at what a block holds.
func (c *checker) list(l *parse.ListNode) {
	if l == nil {
		return
	}
	for _, n := range l.Nodes {
		c.nodes++
		switch n := n.(type) {
		case *parse.ActionNode:
			c.at = c.begin(n.Pipe.Position())
			c.pipe(n.Pipe)
		case *parse.IfNode:
			c.branch(&n.BranchNode, 0)
		case *parse.RangeNode:
			c.branch(&n.BranchNode, 1)
		case *parse.WithNode:
			c.branch(&n.BranchNode, 1)
		case *parse.TemplateNode:
			c.at = c.begin(n.Position())
			c.add("and Berth's templates have none in them", "write the text where it is used")
		default: // text, and what stands alone
		}
	}
}

// branch looks at a block. What is in one whose condition cannot be is no further
// fault. dots is 1 for one that gives the dot a value.
func (c *checker) branch(b *parse.BranchNode, dots int) {
	c.at = c.begin(b.Pipe.Position())
	before := len(c.faults)
	c.pipe(b.Pipe)
	if len(c.faults) > before {
		return
	}
	c.within += dots
	c.list(b.List)
	c.within -= dots
	c.list(b.ElseList)
}

func (c *checker) pipe(p *parse.PipeNode) {
	if p == nil {
		return
	}
	for i, cmd := range p.Cmds {
		c.nodes++
		switch cmd.Args[0].(type) {
		case *parse.StringNode, *parse.NumberNode, *parse.BoolNode, *parse.DotNode, *parse.NilNode:
			if len(cmd.Args) > 1 || i > 0 {
				c.add("where a value is given to what is no function", `write a function first, as in {{ print "a" "b" }}`)
			}
		}
		for j, arg := range cmd.Args {
			given := 0
			if j == 0 {
				given = len(cmd.Args) - 1
				if i > 0 {
					given++
				}
			}
			c.value(arg, given, cmd.Args[j+1:])
		}
	}
}

// value looks at a value of a pipeline. given is how many values a function gets
// there, and rest those that are written behind it.
func (c *checker) value(n parse.Node, given int, rest []parse.Node) {
	c.nodes++
	switch n := n.(type) {
	case *parse.PipeNode:
		c.pipe(n)
	case *parse.ChainNode:
		c.value(n.Node, 0, nil)
	case *parse.IdentifierNode:
		c.function(n, given, rest)
	case *parse.FieldNode, *parse.DotNode:
		if c.within == 0 {
			c.add(noDot, noDotMend)
		}
	case *parse.VariableNode:
		if n.Ident[0] == "$" {
			c.add(noDot, noDotMend)
		}
	}
}

// What a text has that takes a value of what is none.
const (
	noDot     = "and there is no value that this is a part of"
	noDotMend = `write {{ env "NAME" }}, or put it into {{ with nomadVar "PATH" }} and {{ end }}`
)

func (c *checker) function(n *parse.IdentifierNode, given int, rest []parse.Node) {
	f, known := c.functions[n.Ident]
	c.lookups = c.lookups || slices.Contains(templateLookups(), n.Ident)
	if !known {
		c.unknown(n)
		return
	}
	switch wants := strconv.Itoa(f.least); {
	case given < f.least || f.most >= 0 && given > f.most:
		if f.most < 0 {
			wants += " or more"
		} else if f.most > f.least {
			wants += " to " + strconv.Itoa(f.most)
		}
		c.add(fmt.Sprintf("where %s is given %d of its %s values", n.Ident, given, wants), "give it "+wants)
	case f.check != nil && len(rest) > 0:
		if s, written := rest[0].(*parse.StringNode); written {
			if why, mend := f.check(s.Text); why != "" {
				c.add(why, mend)
			}
		}
	}
}

func (c *checker) unknown(n *parse.IdentifierNode) {
	if c.told() {
		return
	}
	const braces = `, or write {{ "{{" }} for the braces themselves`
	near := suggest.Nearest(n.Ident, TemplateFunctions())
	foreign, known := templateForeign()[n.Ident]
	switch {
	case known:
		c.add("and "+foreign[0], foreign[1])
	case strings.HasPrefix(n.Ident, "sprig_"):
		c.add("and templates have no functions of sprig", "use one of docs/tasks.md")
	case near != "":
		c.add(fmt.Sprintf("and templates have no function %s", n.Ident), "did you mean "+near+"?")
	default:
		c.add(fmt.Sprintf("and templates have no function %s", n.Ident), `use {{ env "NAME" }}`+braces)
	}
}

// add notes a fault of the action that is looked at.
func (c *checker) add(why, mend string) {
	if c.told() {
		return
	}
	action := c.data[c.at:min(len(c.data), c.at+shownAction)]
	c.faults = append(c.faults, TemplateFault{Offset: c.at, Message: "has " + shortAction(action) + ", " + why, Mend: mend})
}

// shownAction is how much of an action is looked at to show it, in bytes: more than
// is shown.
const shownAction = 1 << 10

// told reports whether no more is told of the action that is looked at: there is
// one fault for each, and an end of them.
func (c *checker) told() bool {
	n := len(c.faults)
	return n >= maxFaults || n > 0 && c.faults[n-1].Offset == c.at
}

// begin is where the action begins whose first value is at a place.
func (c *checker) begin(first parse.Pos) int {
	return max(0, strings.LastIndex(c.data[:min(int(first), len(c.data))], "{{"))
}

// syntaxFault is what text/template says of a text, at the action that it says it of.
func syntaxFault(data string, err error) TemplateFault {
	const mend = `correct it, or write {{ "{{" }} for the braces themselves`
	all, open := actions(data)
	why := syntaxPlace.ReplaceAllString(err.Error(), "")
	if strings.HasSuffix(why, atEnd) {
		begin := unended(data, all)
		return TemplateFault{begin, "has " + shortAction(data[begin:]) + ` without an {{ end }}`, "write {{ end }} where it ends"}
	}
	// What is wrong is so as soon as it is there, whatever follows.
	i := sort.Search(len(all), func(i int) bool {
		_, _, err := readTemplate(data[:all[i].end])
		return err != nil && !strings.HasSuffix(err.Error(), atEnd)
	})
	if i == len(all) {
		return TemplateFault{open, `has "{{" without a closing "}}"`, `close it, or write {{ "{{" }} for the braces themselves`}
	}
	one := data[all[i].begin:all[i].end]
	switch {
	case why == strconv.ErrSyntax.Error():
		return TemplateFault{all[i].begin, "has an escape in " + short(one) + " that Go does not know", `write \\ for a backslash`}
	case closesBlock.MatchString(one):
		return TemplateFault{all[i].begin, "has " + short(one) + ", and no block is open there", "remove it"}
	}
	return TemplateFault{all[i].begin, "has " + short(one) + ", which cannot be read: " + short(why), mend}
}

// atEnd is what text/template says of a text whose blocks are not ended.
const atEnd = "unexpected EOF"

var syntaxPlace = regexp.MustCompile(`^template: ` + TemplateName + `:\d+: (?:template: )?`)

// action is where one is in a text.
type action struct{ begin, end int }

// actions are those of a text. open is where one begins that is never closed, or
// the last that there is.
func actions(data string) (all []action, open int) {
	for at := 0; ; {
		i := strings.Index(data[at:], "{{")
		if i < 0 {
			return all, open
		}
		open = at + i
		length := actionLength(data[open:])
		if length == 0 {
			return all, open
		}
		at = open + length
		all = append(all, action{open, at})
	}
}

// unended is where the innermost block begins that has no end.
func unended(data string, all []action) int {
	var blocks []int
	for _, a := range all {
		switch one := data[a.begin:a.end]; {
		case opensBlock.MatchString(one):
			blocks = append(blocks, a.begin)
		case endsBlock.MatchString(one) && len(blocks) > 0:
			blocks = blocks[:len(blocks)-1]
		}
	}
	if len(blocks) == 0 {
		return 0
	}
	return blocks[len(blocks)-1]
}

// actionLength is how long the action is that s begins with, 0 if it is not
// closed. What stands in quotes and comments closes nothing.
func actionLength(s string) int {
	if begin := commentBegins.FindString(s); begin != "" {
		if _, rest, closed := strings.Cut(s[len(begin):], "*/"); closed {
			if end := commentEnds.FindString(rest); end != "" {
				return len(s) - len(rest) + len(end)
			}
		}
	}
	if m := anyAction.FindString(s); m != "" {
		return len(m)
	}
	end := strings.Index(s, "}}")
	if end < 0 {
		return 0
	}
	return end + len("}}")
}

// quoted matches a string of Go's.
const quoted = `("(?:[^"\\\n]|\\.)*"|` + "`[^`]*`)"

var (
	commentBegins = regexp.MustCompile(`^\{\{(-\s)?\s*/\*`)
	commentEnds   = regexp.MustCompile(`^\s*(\s-)?\}\}`)
	anyAction     = regexp.MustCompile(`^\{\{(?:[^"` + "`" + `}]|` + quoted + `|\}[^}"` + "`" + `])*\}\}`)
	opensBlock    = regexp.MustCompile(`^\{\{(?:-\s)?\s*(?:if|range|with|block|define)\b`)
	endsBlock     = regexp.MustCompile(`^\{\{(?:-\s)?\s*end\b`)
	closesBlock   = regexp.MustCompile(`^\{\{(?:-\s)?\s*(?:end|else)\b`)
)

// shortAction is the action that a text begins with, for a message.
func shortAction(s string) string { return short(s[:max(actionLength(s), len("{{"))]) }

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
