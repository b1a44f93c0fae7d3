package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/gohcl"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/berth-dev/berth/api"
)

// Read reads the files in order. What a later one sets replaces what an
// earlier one did, attribute by attribute; plugins add up.
func Read(paths ...string) (Config, error) {
	var p api.Problems
	whole := &hclsyntax.Body{Attributes: hclsyntax.Attributes{}}
	for _, path := range paths {
		body, err := readFile(path)
		p.Merge(err)
		if err == nil {
			layer(whole, body)
		}
	}
	p.Merge(twice(whole))
	var cfg Config
	// Each file was decoded already, so this finds nothing new.
	p.Merge(problems(gohcl.DecodeBody(whole, nil, &cfg)))
	cfg.places = places{}
	cfg.places.note("", whole)
	return cfg, p.Err("the configuration")
}

func readFile(path string) (*hclsyntax.Body, error) {
	src, err := os.ReadFile(path)
	if err != nil {
		if why, ok := errors.AsType[*fs.PathError](err); ok {
			err = why.Err
		}
		return nil, invalid(api.Field{File: path, Message: "cannot be read: " + err.Error(), Mend: "give a file that is there, and that this user may read"})
	}
	file, diags := hclsyntax.ParseConfig(src, path, hcl.InitialPos)
	if diags.HasErrors() {
		return nil, problems(diags)
	}
	body, ok := file.Body.(*hclsyntax.Body)
	if !ok {
		return nil, fmt.Errorf("read %s: its body is a %T", path, file.Body)
	}
	t := reflect.TypeFor[Config]()
	n := names{homes: homesOf("", t, map[home][]string{})}
	clean := n.check("", body, t)
	if len(n.fields) > 0 {
		slices.SortStableFunc(n.fields, func(a, b api.Field) int {
			return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
		})
		return nil, invalid(n.fields...)
	}
	var alone Config
	if diags = gohcl.DecodeBody(clean, nil, &alone); diags.HasErrors() {
		return nil, problems(diags) // of what no name tells
	}
	return body, nil
}

// layer lays a later file over an earlier one.
func layer(below, over *hclsyntax.Body) {
	maps.Copy(below.Attributes, over.Attributes)
	for _, b := range over.Blocks {
		same := slices.IndexFunc(below.Blocks, func(x *hclsyntax.Block) bool { return x.Type == b.Type && len(b.Labels) == 0 })
		if same < 0 {
			below.Blocks = append(below.Blocks, b)
			continue
		}
		layer(below.Blocks[same].Body, b.Body)
	}
}

// twice finds plugins of the same name, in one file or in several. A driver may
// be two programs, of the types node and controller.
func twice(whole *hclsyntax.Body) error {
	var fields []api.Field
	first := map[string]declared{}
	for _, b := range whole.Blocks {
		if len(b.Labels) == 0 {
			continue
		}
		path, at := pathOf("", b), b.DefRange()
		before, known := first[path]
		half := halfOf(b)
		if known && (half == "" || before.half == "" || half == before.half || before.both) {
			mend := "rename one, or remove it"
			if b.Type == "plugin" {
				mend += "; a driver of two programs has one of the type node and one of the type controller"
			}
			fields = append(fields, api.Field{
				Path: path, Message: fmt.Sprintf("is there twice, first at %s:%d", before.at.Filename, before.at.Start.Line),
				Mend: mend, File: at.Filename, Line: at.Start.Line, Column: at.Start.Column,
			})
			continue
		}
		first[path] = declared{at, half, known}
	}
	return invalid(fields...)
}

// declared is a plugin block that was seen: half is node or controller if it is
// one half of a driver, and both that the other half was seen, too.
type declared struct {
	at   hcl.Range
	half string
	both bool
}

func halfOf(b *hclsyntax.Block) string {
	attr := b.Body.Attributes["type"]
	if attr == nil {
		return ""
	}
	var half string
	if diags := gohcl.DecodeExpression(attr.Expr, nil, &half); diags.HasErrors() || half == string(api.InstanceMonolith) {
		return "" // what is wrong with it is said elsewhere
	}
	return half
}

// problems turns HCL's diagnostics into ours. Of several in one place the later
// ones follow from the first.
func problems(diags hcl.Diagnostics) error {
	var fields []api.Field
	said := map[hcl.Range]bool{}
	for _, d := range diags {
		if d.Severity != hcl.DiagError || d.Subject != nil && said[*d.Subject] {
			continue
		}
		f := api.Field{Message: d.Summary, Mend: strings.TrimSuffix(d.Detail, ".")}
		if message, mend := inWords(d.Summary); message != "" {
			f.Message, f.Mend = message, mend
		}
		if d.Subject != nil {
			f.File, f.Line, f.Column = d.Subject.Filename, d.Subject.Start.Line, d.Subject.Start.Column
			said[*d.Subject] = true
		}
		fields = append(fields, f)
	}
	return invalid(fields...)
}

// inWords says what HCL's parser means, to who has never read its grammar; ""
// where its own words say it.
func inWords(summary string) (message, mend string) {
	switch summary {
	case "Unclosed configuration block":
		return `has a "{" that is never closed`, `add the missing "}"`
	case "Invalid single-argument block definition":
		return "has more than one thing on the line of a block", "begin a new line after the {, after each value and before the }"
	case "Missing newline after argument", "Missing newline after block definition":
		return "has more than one thing on a line", "begin a new line"
	case "Invalid argument name", "Argument or block definition required", "Invalid block definition":
		return "has something where a name is expected", "write name = value, or name { ... } with the { on the line of the name"
	case "Unterminated quoted string", "Invalid multi-line string", "Unterminated template string":
		return "begins a string that does not end on its line", "add the missing quote"
	case "Missing item separator":
		return "has no comma before this element", "add the comma"
	case "Invalid expression", "Missing expression":
		return "has no value that can be read", "write a string, a number, true, false, a list or a map"
	case "Attribute redefined":
		return "is there twice", "remove one"
	case "Invalid character":
		return "has a character that means nothing here", `remove it, or write text in quotes: "..."`
	}
	return "", ""
}

// invalid is nil, or an error with these fields.
func invalid(fields ...api.Field) error {
	if len(fields) == 0 {
		return nil
	}
	return &api.Error{Code: api.CodeInvalid, Message: "the configuration cannot be used", Fields: fields}
}

// places says where each field was written, by its path.
type places map[string]hcl.Range

func (p places) clone() places {
	if p == nil {
		return places{}
	}
	return maps.Clone(p)
}

func (p places) forget(path string) { delete(p, path) }

// note remembers what is in a body, which is at path.
func (p places) note(path string, body *hclsyntax.Body) {
	for name, a := range body.Attributes {
		p[join(path, name)] = a.SrcRange
	}
	for _, b := range body.Blocks {
		at := pathOf(path, b)
		p[at] = b.DefRange()
		p.note(at, b.Body)
	}
}

// locate adds to every problem where its field was written, or else the block
// that it would be in.
func (p places) locate(err error) error {
	e, ok := errors.AsType[*api.Error](err)
	if !ok {
		return err
	}
	for i := range e.Fields {
		f := &e.Fields[i]
		for path := f.Path; path != ""; path = path[:max(0, strings.LastIndexAny(path, ".["))] {
			if at, known := p[path]; known {
				f.File, f.Line, f.Column = at.Filename, at.Start.Line, at.Start.Column
				break
			}
		}
	}
	return err
}

func join(path, name string) string { return strings.TrimPrefix(path+"."+name, ".") }

func pathOf(parent string, b *hclsyntax.Block) string {
	path := join(parent, b.Type)
	if len(b.Labels) == 0 {
		return path
	}
	return fmt.Sprintf("%s[%q]", path, b.Labels[0])
}
