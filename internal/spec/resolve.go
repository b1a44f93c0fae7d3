package spec

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
)

// part is a piece of a text in which var.x or local.x stands: a text, or a
// reference to what belongs there.
type part struct {
	text string
	ref  hcl.Traversal
	at   hcl.Range
}

// What may be made of references: a few lines can stand for more than fits into
// memory.
const (
	maxResolved = 16 << 20 // bytes
	nodeSize    = 64       // bytes that a value counts beside its text
	maxChain    = 64       // locals that rest on one another
)

// resolver puts values in the places of var.x and local.x.
type resolver struct {
	*decoder
	variables map[string]*variable
	locals    map[string]*local
	chain     int // locals that are being resolved
	spent     int // bytes
}

// local is a value of a file that has a name.
type local struct {
	path  string
	at    hcl.Range
	value value
	// begun and done say how far it is resolved.
	begun, done bool
}

// resolved takes variables and locals out of a file's items, and puts their
// values into the others. The names that nothing stands for are reported where
// they are used.
func (d *decoder) resolved(items []item, in *Inputs) []item {
	r := &resolver{decoder: d.object(""), variables: map[string]*variable{}, locals: map[string]*local{}}
	var own, rest []item
	for _, it := range items {
		switch it.name {
		case "variable", "variables", "locals":
			own = append(own, it)
		default:
			rest = append(rest, it)
		}
	}
	for _, it := range fileTable.expand(own) {
		switch it.name {
		case "variable":
			r.declare(it)
		case "variables":
			r.fail(it.name, it.at, "is Packer's", `write variable "name" { default = ... } for each`)
		default:
			r.name(it)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.variables)) {
		r.choose(r.variables[name], in)
	}
	for _, name := range slices.Sorted(maps.Keys(r.locals)) {
		r.local(r.locals[name])
	}
	for i := range rest {
		rest[i].value = r.resolve(rest[i].value)
	}
	return rest
}

// declare reads a variable block.
func (r *resolver) declare(it item) {
	path := "variable"
	r.header(path, it)
	name, ok := r.label(path, it)
	v := variableTable.read(r.decoder, keyed(path, name), it)
	switch {
	case !ok:
		return
	case r.variables[name] != nil:
		r.fail(keyed(path, name), it.at, fmt.Sprintf("is there twice, first at line %d", r.variables[name].at.Start.Line), "remove one")
		return
	}
	v.name, v.at = name, it.at
	r.variables[name] = &v
}

// choose gives a variable its value.
func (r *resolver) choose(v *variable, in *Inputs) {
	path := keyed("variable", v.name)
	put(&in.known, v.name, true)
	v.value = value{at: v.at, silent: true} // until there is one
	got, from, given := in.value(v)
	switch {
	case given:
		if message, mend := v.take(got.moved(v.at)); message != "" {
			r.fail(path, v.at, message+", by "+from, mend)
		}
	case v.standard != nil:
		if message, mend := v.take(*v.standard); message != "" {
			r.fail(join(path, "default"), v.standard.at, message, mend)
		}
	case !r.broken[path]:
		r.fail(path, v.at, "has no value", fmt.Sprintf("give one with --var %s=..., --var-file or %s%s, or add default = ...", clip(v.name), EnvPrefix, clip(v.name)))
	}
}

// name reads a locals block, or an attribute that is a map.
func (r *resolver) name(it item) {
	r.header(it.name, it)
	for name, v := range r.entries(it.name, it, keyed) {
		if first := r.locals[name]; first != nil {
			r.fail(keyed(it.name, name), v.at, fmt.Sprintf("is there twice, first at line %d", first.at.Start.Line), "remove one")
			continue
		}
		r.locals[name] = &local{path: keyed(it.name, name), at: v.at, value: v}
	}
}

// local is what a local's value comes to.
func (r *resolver) local(l *local) value {
	if !l.done {
		l.begun = true
		r.chain++
		l.value = r.resolve(l.value)
		r.chain--
		l.done = true
		if r.deep(l.path, l.value); r.broken[l.path] { // said where it is written
			l.value = value{at: l.at, silent: true}
		}
	}
	return l.value
}

// resolve is the value with all of its references replaced.
func (r *resolver) resolve(v value) value {
	switch {
	case v.ref != nil:
		return r.lookup(v.ref, v.at)
	case len(v.parts) > 0:
		return r.joined(v)
	case !v.rests():
		return v
	}
	v = v.copied()
	for i := range v.list {
		v.list[i] = r.resolve(v.list[i])
	}
	for i := range v.items {
		v.items[i].value = r.resolve(v.items[i].value)
	}
	return v
}

// joined is a text of which some parts are references.
func (r *resolver) joined(v value) value {
	var text strings.Builder
	wrong := value{at: v.at, named: true, faults: v.faults}
	for _, p := range v.parts {
		if p.ref == nil {
			text.WriteString(p.text)
			continue
		}
		got := r.lookup(p.ref, p.at)
		switch got.kind {
		case aString, aNumber, aBoolean:
			text.WriteString(got.text)
			if got.filled != nil && v.filled == nil {
				v.filled = &p.at
			}
			continue
		case aList, aMap:
			got.faults = []fault{{p.at, "has ${" + clip(written(p.ref)) + "}, which is " + got.String() + ", in a text", "use it without quotes"}}
		case unreadable, aWord, aNull, aReference:
			wrong.silent = wrong.silent || got.silent
		}
		wrong.faults = append(wrong.faults, got.faults...)
	}
	if wrong.silent || len(wrong.faults) > 0 {
		return wrong
	}
	v.text, v.parts, v.braces = text.String(), nil, nil
	if r.spent += len(v.text); r.spent > maxResolved {
		return r.tooLarge(v.at)
	}
	return v
}

// lookup is the value that a reference stands for, at the place of the reference.
func (r *resolver) lookup(ref hcl.Traversal, at hcl.Range) value {
	blame := func(message, mend string) value {
		return value{at: at, named: true, faults: []fault{{at, message, mend}}}
	}
	name, _ := ref[1].(hcl.TraverseAttr)
	var got value
	switch v, l := r.variables[name.Name], r.locals[name.Name]; {
	case ref.RootName() == "var" && v != nil:
		got = v.value
	case ref.RootName() == "local" && l != nil:
		switch {
		case l.begun && !l.done:
			return blame("is local."+clip(name.Name)+", which rests on itself", "write one of them as a value")
		case r.chain >= maxChain:
			return blame(fmt.Sprintf("rests on more than %d locals", maxChain), "write it flatter")
		}
		got = r.local(l)
	case ref.RootName() == "var":
		return blame("is var."+clip(name.Name)+", and the file has no such variable", r.meant(name.Name, "variable", slices.Sorted(maps.Keys(r.variables))))
	default:
		return blame("is local."+clip(name.Name)+", and the file's locals have no such name", r.meant(name.Name, "local", slices.Sorted(maps.Keys(r.locals))))
	}
	for i, step := range ref[2:] {
		inner, ok := got.step(step)
		if !ok && !got.silent {
			return blame("is "+clip(written(ref))+", and "+clip(written(ref[:i+2]))+" is "+got.String()+" without it", "correct the name, or give it a value")
		}
		got = inner
	}
	if got.silent {
		return value{at: at, silent: true}
	}
	size, depth := got.extent()
	if r.spent += size; r.spent > maxResolved {
		return r.tooLarge(at)
	}
	if depth > maxDepth {
		return blame("is nested too deep", "write it flatter")
	}
	return got.moved(at)
}

func (*resolver) tooLarge(at hcl.Range) value {
	return value{at: at, named: true, faults: []fault{
		{at, fmt.Sprintf("makes the file larger than %d MiB", maxResolved>>20), "use fewer references to large values"},
	}}
}

// meant is the mend for a name that nothing stands for.
func (*resolver) meant(name, what string, known []string) string {
	if near := nearest(name, known); near != "" {
		return "did you mean " + near + "?"
	}
	if what == "local" {
		return "add locals { " + clip(name) + " = ... }"
	}
	return fmt.Sprintf(`add variable %q { default = ... }`, clip(name))
}

// step is what an index or a name picks out of a list or a map.
func (v value) step(t hcl.Traverser) (value, bool) {
	var key string
	switch t := t.(type) {
	case hcl.TraverseAttr:
		key = t.Name
	case hcl.TraverseIndex:
		if n, err := strconv.Atoi(indexText(t)); err == nil && v.kind == aList && n >= 0 && n < len(v.list) {
			return v.list[n], true
		}
		key = indexText(t)
	}
	if got := v.member(key); v.kind == aMap && got != nil {
		return *got, true
	}
	return value{silent: v.silent}, false
}

// extent is how much memory the value takes, and how deep it is.
func (v value) extent() (size, depth int) {
	size = nodeSize + len(v.text)
	inner := func(e value) {
		s, d := e.extent()
		size, depth = size+s, max(depth, d)
	}
	for _, e := range v.list {
		inner(e)
	}
	for _, it := range v.items {
		size += len(it.name)
		inner(it.value)
	}
	return size, depth + 1
}
