package spec

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/berth-dev/berth/api"
)

// maxProblems bounds the answer to a file that is no specification at all.
const maxProblems = 100

// problems collects what is wrong with one file.
type problems struct {
	file   string
	json   bool // the file is JSON, and so are the mends
	fields []api.Field
	more   int // beyond maxProblems
}

func (p *problems) add(at hcl.Range, path, message, mend string) {
	if p.full() {
		p.more++
		return
	}
	if p.json {
		mend = inJSON(mend)
	}
	p.fields = append(p.fields, api.Field{
		Path: path, Message: message, Mend: mend,
		File: p.file, Line: at.Start.Line, Column: at.Start.Column,
	})
}

// full reports whether no more problems will be listed, so that it does not
// matter how well they are explained.
func (p *problems) full() bool { return len(p.fields) == maxProblems }

// sorted are the problems in the order of the file.
func (p *problems) sorted() []api.Field {
	slices.SortStableFunc(p.fields, func(a, b api.Field) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	if p.more == 0 {
		return p.fields
	}
	return append(p.fields, api.Field{
		Message: fmt.Sprintf("there are %d more problems than are listed", p.more),
		Mend:    "mend these first",
	})
}

// unless replaces all problems, if there are any, of a file that still is to be
// filled in by another program: they follow from that.
func (p *problems) unless(at hcl.Pos, unrendered bool) *problems {
	if len(p.fields) > 0 && unrendered {
		p.fields, p.more = nil, 0
		p.add(hcl.Range{Start: at}, "", "has [[ ... ]], which Levant and Nomad Pack fill in, and Berth does not", "have them render the file, and give what comes out")
	}
	return p
}

// err is nil, or all of the problems.
func (p *problems) err() error {
	if len(p.fields) == 0 {
		return nil
	}
	var all api.Problems
	all.Merge(&api.Error{Code: api.CodeInvalid, Fields: p.sorted()})
	return all.Err(cmp.Or(p.file, "the file"))
}

// decoder turns one volume or job into its struct. It remembers where every
// field was written, because the validators of package api know only paths.
type decoder struct {
	problems *problems
	warnings *problems
	// home names, for each kind of object, the blocks in which a name is known.
	home map[string]map[string][]string
	// kind is what is being read: volume or job, "" for the file.
	kind string
	// ranges says where each path was written.
	ranges map[string]hcl.Range
	// broken are the paths that hold something unreadable, and the paths above
	// them: what a validator says of these rests on a value that nobody wrote.
	broken map[string]bool
	// hoist is where a task's services go.
	hoist *hoist
	ports hoistedPorts
	// older is the capability that a volume has in the form before blocks.
	older *api.Capability
}

// object is a decoder for the next volume or job of the same file.
func (d *decoder) object(kind string) *decoder {
	next := *d
	next.kind, next.older = kind, nil
	next.ranges, next.broken = map[string]hcl.Range{}, map[string]bool{}
	return &next
}

// mark remembers where path was written; the first place counts.
func (d *decoder) mark(path string, at hcl.Range) {
	if _, known := d.ranges[path]; !known {
		d.ranges[path] = at
	}
}

// fail reports a field that could not be read.
func (d *decoder) fail(path string, at hcl.Range, message, mend string) {
	d.problems.add(at, path, message, mend)
	d.unread(path)
}

// unread notes that nobody knows what the path was to hold.
func (d *decoder) unread(path string) {
	for p := path; p != ""; p = above(p) {
		d.broken[p] = true
	}
}

// validated reports what one of package api's validators found, at the places
// where the fields were written; whole is where the object begins.
func (d *decoder) validated(err error, whole hcl.Range) {
	var invalid *api.Error
	if !errors.As(err, &invalid) {
		return // the validators return nothing else
	}
	for _, f := range invalid.Fields {
		if d.broken[f.Path] {
			continue
		}
		at := whole
		for p := f.Path; p != ""; p = above(p) {
			if r, known := d.ranges[p]; known {
				at = r
				break
			}
		}
		d.problems.add(at, f.Path, f.Message, f.Mend)
	}
}

// above is the path without its last part, "" for none. A label that holds
// dots yields paths that nothing has; they do no harm.
func above(path string) string {
	return path[:max(0, strings.LastIndexAny(path, ".["))]
}

// join is the path of a name below path.
func join(path, name string) string {
	name = clip(name)
	if path == "" {
		return name
	}
	return path + "." + name
}

// keyed is the path of a key, or a label, at path.
func keyed(path, key string) string { return path + "[" + strconv.Quote(clip(key)) + "]" }

// indexed is the path of an element of the list at path.
func indexed(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

// maxQuoted is how much of a user's text a message or a path repeats. It is
// more than a name may have, so that the path of every valid name is whole.
const maxQuoted = 80

// clip shortens what is quoted in a message or a path, to one line.
func clip(s string) string {
	line, _, more := strings.Cut(s, "\n")
	if len(line) > maxQuoted {
		line, more = strings.ToValidUTF8(line[:maxQuoted], ""), true
	}
	if more {
		line += "..."
	}
	return line
}
