package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/gohcl"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/suggest"
)

// names finds what is written in a file and has no meaning there. It knows the
// names by the tags of the structs that they go into.
type names struct {
	fields []api.Field
	// homes are, by its name, the paths of the blocks in which a name is known.
	homes map[home][]string
}

// home is a name of an attribute or of a block.
type home struct {
	name  string
	block bool
}

// named is one name that a block may hold.
type named struct {
	t        reflect.Type // of an attribute's value, or of what a block goes into
	block    bool
	repeats  bool
	labelled bool
	required bool
}

// known are the names in a block that goes into a t.
func known(t reflect.Type) map[string]named {
	all := map[string]named{}
	for f := range t.Fields() {
		name, kind, _ := strings.Cut(f.Tag.Get("hcl"), ",")
		switch n := (named{t: f.Type, required: kind == ""}); {
		case name == "" || kind == "label":
		case kind == "block":
			n.block, n.repeats = true, n.t.Kind() == reflect.Slice
			n.t = n.t.Elem()
			n.labelled = slices.ContainsFunc(reflect.VisibleFields(n.t), func(f reflect.StructField) bool {
				return strings.HasSuffix(f.Tag.Get("hcl"), ",label")
			})
			all[name] = n
		default:
			all[name] = n
		}
	}
	return all
}

// check reads a body that is at a path and goes into a t. It returns the body
// without what it reports.
func (n *names) check(path string, body *hclsyntax.Body, t reflect.Type) *hclsyntax.Body {
	all := known(t)
	clean := *body
	clean.Attributes, clean.Blocks = hclsyntax.Attributes{}, nil
	for _, name := range slices.Sorted(maps.Keys(body.Attributes)) {
		a := body.Attributes[name]
		switch k, found := all[name]; {
		case !found:
			n.unknown(path, home{name, false}, a.NameRange, all)
		case k.block:
			n.add(join(path, name), a.NameRange, "is a block", "write "+k.example(name)+", without the equals sign")
		case n.reads(join(path, name), a, k.t):
			clean.Attributes[name] = a
		}
	}
	first := map[string]hcl.Range{}
	for _, b := range body.Blocks {
		k, found := all[b.Type]
		at := pathOf(path, b)
		before, again := first[b.Type]
		first[b.Type] = b.TypeRange
		switch {
		case !found:
			n.unknown(path, home{b.Type, true}, b.TypeRange, all)
			continue
		case !k.block:
			n.add(at, b.TypeRange, "is written as a block", "write "+k.example(b.Type))
			continue
		case k.labelled && len(b.Labels) == 0:
			n.add(at, b.TypeRange, "has no name", "write "+k.example(b.Type))
		case !k.labelled && len(b.Labels) > 0:
			n.add(join(path, b.Type), b.LabelRanges[0], "takes no name", "write "+k.example(b.Type))
		case len(b.Labels) > 1:
			n.add(join(path, b.Type), b.LabelRanges[0], fmt.Sprintf("has %d names", len(b.Labels)), "write "+k.example(b.Type))
		case again && !k.repeats:
			n.add(at, b.TypeRange, fmt.Sprintf("is there twice, first at line %d", before.Start.Line), "make them one")
		default:
			inner := *b
			inner.Body = n.check(at, b.Body, k.t)
			clean.Blocks = append(clean.Blocks, &inner)
			continue
		}
		n.check(at, b.Body, k.t)
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if body.Attributes[name] == nil && all[name].required && path != "" {
			n.add(join(path, name), body.SrcRange, "is missing", "add "+all[name].example(name))
		}
	}
	return &clean
}

// example shows how a name is written.
func (n named) example(name string) string {
	switch {
	case n.labelled:
		return name + ` "name" { ... }`
	case n.block:
		return name + " { ... }"
	}
	return name + " = " + valueOf(n.t)
}

// valueOf shows a value of a type.
func valueOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return valueOf(t.Elem())
	case reflect.Bool:
		return "true"
	case reflect.Int, reflect.Int64:
		return "1"
	case reflect.Slice:
		return `["..."]`
	case reflect.Map:
		return `{ key = "..." }`
	default:
		return `"..."`
	}
}

// reads reports whether an attribute's value can be read, and what is wrong if not.
func (n *names) reads(path string, a *hclsyntax.Attribute, t reflect.Type) bool {
	at := a.Expr.Range()
	if refs := a.Expr.Variables(); len(refs) > 0 {
		word := refs[0].RootName()
		if _, alone := a.Expr.(*hclsyntax.ScopeTraversalExpr); alone && len(refs[0]) == 1 {
			n.add(path, at, "is the word "+word, fmt.Sprintf("write %q, in quotes", word))
		} else {
			n.add(path, at, "rests on "+word+", and nothing is filled in here", "write the value itself")
		}
		return false
	}
	v, diags := a.Expr.Value(nil)
	switch {
	case diags.HasErrors():
		n.add(path, at, "calculates", "write the value itself")
		return false
	case gohcl.DecodeExpression(a.Expr, nil, reflect.New(t).Interface()).HasErrors():
		n.add(path, at, "is "+kindOf(v.Type().FriendlyName()), "write "+named{t: t}.example(a.Name))
		return false
	}
	return true
}

// unknown reports a name that the block at path does not know.
func (n *names) unknown(path string, what home, at hcl.Range, all map[string]named) {
	name := what.name
	block, _, _ := strings.Cut(path, "[")
	if why, mend := foreign(block, name); why != "" {
		n.add(join(path, name), at, "is known from Nomad, and not from here: "+why, mend)
		return
	}
	if homes := n.homes[what]; len(homes) > 0 {
		n.add(join(path, name), at, "does not belong here", "put it "+strings.Join(homes, ", or "))
		return
	}
	own := slices.Sorted(maps.Keys(all))
	if meant := suggest.Nearest(name, own); meant != "" {
		n.add(join(path, name), at, "is not a known name", "did you mean "+meant+"?")
		return
	}
	n.add(join(path, name), at, "is not a known name", "use one of "+strings.Join(own, ", "))
}

func (n *names) add(path string, at hcl.Range, message, mend string) {
	n.fields = append(n.fields, api.Field{Path: path, Message: message, Mend: mend, File: at.Filename, Line: at.Start.Line, Column: at.Start.Column})
}

// homesOf says of each name where it belongs, in words.
func homesOf(path string, t reflect.Type, homes map[home][]string) map[home][]string {
	where := "in " + path
	if path == "" {
		where = "into the file itself, outside of all blocks"
	}
	for name, k := range known(t) {
		homes[home{name, k.block}] = append(homes[home{name, k.block}], where)
		if k.block {
			homesOf(join(path, name), k.t, homes)
		}
	}
	for _, words := range homes {
		slices.Sort(words)
	}
	return homes
}

// kindOf is what a value is, by HCL's name for it.
func kindOf(hcls string) string {
	switch hcls {
	case "string", "number":
		return "a " + hcls
	case "bool":
		return "true or false"
	case "tuple":
		return "a list"
	case "object":
		return "a map"
	default:
		return "null"
	}
}
