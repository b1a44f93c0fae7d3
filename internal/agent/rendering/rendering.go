// Package rendering makes texts of templates. It owns the functions that templates
// have, and the bounds of what one may cost: a template is a stranger's.
//
// It never asks anybody: what the servers know is handed to it, and what is not
// known yet is named in its error. Invariant: no error repeats a value that was
// looked up, or anything made of one.
package rendering

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"text/template"
	"text/template/parse"

	"github.com/berth-dev/berth/api"
)

// The bounds of one template.
const (
	maxText  = 4 << 20  // bytes that it becomes
	maxValue = 1 << 20  // bytes of one value on the way
	maxMade  = 64 << 20 // bytes of all of them
	maxSteps = 200_000  // things done in loops
)

// Source is what templates are filled in with.
type Source struct {
	// Env answers a variable of the task's environment.
	Env func(name string) (value string, known bool)
	// Fill replaces what ${...} stands for in a text. ok is false if it would become
	// longer than most bytes.
	Fill func(text string, most int) (filled string, ok bool)
	// Lookups answers what the servers know.
	Lookups Lookups
}

// Lookups is what is known of the servers' answers. ok is false where nothing is
// known yet.
type Lookups interface {
	// Variable is the items of a variable; found is false where there is none.
	Variable(path string) (items map[string]string, found, ok bool)
	// Variables are the paths of the variables that begin so.
	Variables(prefix string) (paths []string, ok bool)
	// Service is where a service is that is healthy.
	Service(name string) (instances []api.ServiceInstance, ok bool)
}

// Missing is the error of a template that cannot be done before something is known
// that it reads.
type Missing struct {
	// Awaited is what, such as "the variable nomad/jobs/x".
	Awaited string
	// Asked: the servers have answered, and it is not there. Else they have not.
	Asked bool
}

func (m *Missing) Error() string { return "it waits for " + m.Awaited }

// Text is what becomes of a template.
func Text(ctx context.Context, t *api.Template, from Source) (string, error) {
	tree, faults := t.Parse()
	if len(faults) > 0 {
		return "", fmt.Errorf("it %s", faults[0].Message) // of a server that knows more
	}
	r := &run{ctx: ctx, from: from, data: t.Data, looked: map[string]bool{}}
	if !r.prepare(tree.Root, false) {
		return "", tooLarge()
	}
	tmpl, err := template.New(api.TemplateName).Option("missingkey=error").Funcs(r.functions()).AddParseTree(api.TemplateName, tree)
	if err != nil {
		return "", fmt.Errorf("it cannot be read: %w", err)
	}
	if err := tmpl.Execute(r, nil); err != nil {
		return "", plain(err)
	}
	return r.text.String(), nil
}

// prepare fills texts in, and has each thing in a loop counted: text/template writes
// also an empty text. It reports whether all texts together are not too long.
func (r *run) prepare(l *parse.ListNode, inLoop bool) (ok bool) {
	if l == nil {
		return true
	}
	nodes := make([]parse.Node, 0, len(l.Nodes))
	step := &parse.TextNode{NodeType: parse.NodeText, Pos: l.Pos}
	ok = true
	for _, n := range l.Nodes {
		switch n := n.(type) {
		case *parse.TextNode:
			text, fits := r.from.Fill(string(n.Text), maxText-r.filled)
			ok = ok && fits
			n.Text = []byte(text)
			r.filled += len(text)
		case *parse.IfNode:
			ok = r.prepareBranch(&n.BranchNode, inLoop) && ok
		case *parse.WithNode:
			ok = r.prepareBranch(&n.BranchNode, inLoop) && ok
		case *parse.RangeNode:
			ok = r.prepareBranch(&n.BranchNode, true) && ok
		default: // what is done when it is executed
		}
		if inLoop {
			nodes = append(nodes, step)
		}
		nodes = append(nodes, n)
	}
	if inLoop {
		nodes = append(nodes, step) // of a loop with nothing in it
	}
	l.Nodes = nodes
	return ok
}

func (r *run) prepareBranch(b *parse.BranchNode, inLoop bool) (ok bool) {
	ok = r.prepare(b.List, inLoop)
	return r.prepare(b.ElseList, inLoop) && ok
}

func tooLarge() error { return told{fmt.Sprintf("it becomes larger than %d MiB", maxText>>20)} }

// run is one rendering. It is written to.
type run struct {
	ctx  context.Context //nolint:containedctx // of the one call that it is
	from Source
	text strings.Builder
	// data is the template itself: what stands in it may be repeated to people.
	data string
	// looked are the things that were looked up.
	looked map[string]bool
	// filled are the bytes that texts have after they were filled in.
	filled int
	steps  int
	made   int
}

// Write implements io.Writer. It is called for every step, and for nothing else.
func (r *run) Write(p []byte) (int, error) {
	if err := r.step(); err != nil {
		return 0, err
	}
	if r.text.Len()+len(p) > maxText {
		return 0, tooLarge()
	}
	return r.text.Write(p)
}

// step counts something that is done.
func (r *run) step() error {
	if r.steps++; r.steps > maxSteps {
		return told{fmt.Sprintf("it does more than %d things", maxSteps)}
	}
	return r.ctx.Err()
}

// maxLooked is how many things of the servers a template looks up.
const maxLooked = 200

// look counts a thing that is about to be looked up.
func (r *run) look(kind, name string) error {
	if r.looked[kind+" "+name] = true; len(r.looked) > maxLooked {
		return told{fmt.Sprintf("it looks up more than %d things", maxLooked)}
	}
	return nil
}

// named is a name for people, unless it was made of what was looked up.
func (r *run) named(name string) string {
	if strings.Contains(r.data, name) {
		return name
	}
	return "whose name it makes"
}

// make counts text that is about to be made.
func (r *run) make(bytes int) error {
	if r.made += bytes; bytes < 0 || bytes > maxValue || r.made > maxMade {
		return told{fmt.Sprintf("it has a value of more than %d MiB, or more than %d MiB of them", maxValue>>20, maxMade>>20)}
	}
	return r.step()
}

// told is an error of our own: it repeats no value.
type told struct{ message string }

func (t told) Error() string { return t.message }

var (
	place   = regexp.MustCompile(`^template: ` + api.TemplateName + `:(\d+)(?::\d+)?: (?:executing "` + api.TemplateName + `" at <.*?>: )?`)
	iterate = regexp.MustCompile(`(?s)(can't iterate over|can't use|non-comparable types?) .*`)
)

// plain is an error for people: the line, and what is wrong, without the values
// that text/template may repeat.
func plain(err error) error {
	if missing, ok := errors.AsType[*Missing](err); ok {
		return missing
	}
	line := ""
	if m := place.FindStringSubmatch(err.Error()); m != nil {
		line = "line " + m[1] + ": "
	}
	if own, ok := errors.AsType[told](err); ok {
		return told{line + own.message}
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	why := place.ReplaceAllString(err.Error(), "")
	why = iterate.ReplaceAllString(why, "$1 what is there")
	return told{line + "it cannot be done: " + why}
}
