package spec

import (
	"fmt"
	"iter"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
)

// block is a block that may be there once.
func block[T, B any](name, doc string, t *table[B], at func(*T) **B) field[T] {
	return field[T]{name: name, kind: kindBlock, doc: doc, below: t.describe, read: func(d *decoder, path string, it item, into *T) {
		if d.unlabelled(path, it) {
			b := t.read(d, path, it)
			*at(into) = &b
		}
	}}
}

// group is a block that may be there once, and whose content is the T's own.
func group[T, B any](name, doc string, t *table[B], at func(*T) *B) field[T] {
	return field[T]{name: name, kind: kindBlock, doc: doc, below: t.describe, read: func(d *decoder, path string, it item, into *T) {
		if d.unlabelled(path, it) {
			*at(into) = t.read(d, path, it)
		}
	}}
}

// blocks is a block that may be repeated; its path is name[0], name[1], ...
func blocks[T, B any](name, doc string, t *table[B], at func(*T) *[]B) field[T] {
	return field[T]{name: name, kind: kindBlock, doc: doc, repeats: true, below: t.describe,
		read: func(d *decoder, path string, it item, into *T) {
			if d.unlabelled(path, it) {
				list := at(into)
				path = indexed(path, len(*list))
				d.mark(path, it.at)
				*list = append(*list, t.read(d, path, it))
			}
		}}
}

// named is a block with a label that may be repeated; its path is name["label"].
func named[T, B any](name, doc string, t *table[B], at func(*T) *[]B, label func(*B) *string) field[T] {
	return field[T]{name: name, kind: kindNamed, doc: doc, repeats: true, below: t.describe,
		read: func(d *decoder, path string, it item, into *T) {
			id, ok := d.label(path, it)
			if !ok {
				t.read(d, path, it) // for its problems
				return
			}
			path = keyed(path, id)
			first, again := d.ranges[path]
			d.mark(path, it.at)
			b := t.read(d, path, it)
			*label(&b) = id
			if again {
				d.fail(path, it.at, fmt.Sprintf("is there twice, first at line %d", first.Start.Line), "rename one")
				return
			}
			*at(into) = append(*at(into), b)
		}}
}

// elided keeps the field's name out of the paths below it.
func (f field[T]) elided() field[T] {
	read := f.read
	f.read = func(d *decoder, path string, it item, into *T) {
		read(d, strings.TrimSuffix(path, "."+f.name), it, into)
	}
	return f
}

// attribute reports a block that should be an attribute.
func (d *decoder) attribute(path string, it item, mend string) bool {
	if it.block {
		d.fail(path, it.at, "is written as a block", "write "+mend)
	}
	return !it.block
}

// unlabelled reports what is no block, or has a label.
func (d *decoder) unlabelled(path string, it item) bool {
	if !it.block {
		d.deep(path, it.value)
		d.fail(path, it.at, "is a block", "write "+it.name+" { ... }, without the equals sign")
		return false
	}
	if len(it.labels) > 0 {
		d.fail(path, it.at, "takes no name", "write "+it.name+" { ... }")
	}
	return true
}

// label is the one label of a block. It is not ok if the item cannot stand for
// anything; what is in it is worth reading nevertheless if it is a block.
func (d *decoder) label(path string, it item) (label string, ok bool) {
	mend := fmt.Sprintf("write %s \"name\" { ... }", it.name)
	switch {
	case !it.block:
		d.deep(path, it.value)
		d.fail(path, it.at, "is a block", mend+", without the equals sign")
	case len(it.labels) == 0:
		d.fail(path, it.at, "has no name", mend)
	case len(it.labels) > 1:
		d.fail(path, it.at, fmt.Sprintf("has %d names", len(it.labels)), mend)
	case len(it.labels[0]) > maxQuoted:
		d.fail(path, it.at, fmt.Sprintf("has a name of %d bytes", len(it.labels[0])), "use at most 63")
	default:
		return it.labels[0], true
	}
	return "", false
}

// entries yields the attributes of a map, which may be written as a block or
// as a value. What is no attribute, or is there twice, is reported, under the
// path that at makes of a name.
func (d *decoder) entries(path string, it item, at func(path, name string) string) iter.Seq2[string, value] {
	return func(yield func(string, value) bool) {
		if it.block && !d.unlabelled(path, it) || !d.oneOf(path, it.value, "give a map: { key = value }", aMap) {
			return
		}
		first := map[string]hcl.Range{}
		for _, e := range it.value.items {
			at := at(path, e.name)
			d.header(at, e)
			earlier, again := first[e.name]
			switch {
			case e.name == "":
				d.fail(at, e.at, "has an empty name", "remove it")
			case e.block:
				d.fail(at, e.at, "is a block inside a map", "write "+clip(e.name)+" = { ... }")
			case again:
				d.fail(at, e.at, fmt.Sprintf("is there twice, first at line %d", earlier.Start.Line), "remove one")
			default:
				first[e.name] = e.at
				if !yield(e.name, e.value) {
					return
				}
			}
		}
	}
}

// is reports whether the value is of the wanted kind, and what is wrong if not.
func (d *decoder) is(path string, v value, want kind) bool {
	mend := "give a string"
	literal := v.kind == aNumber || v.kind == aBoolean
	_, err := strconv.ParseFloat(v.text, 64)
	switch {
	case want == aString && literal:
		mend = fmt.Sprintf("put it in quotes: %q", clip(v.text))
	case want == aBoolean && v.kind == aString && (v.text == "true" || v.text == "false"),
		want == aNumber && v.kind == aString && err == nil:
		mend = "write " + clip(v.text) + ", without quotes"
	case want == aBoolean:
		mend = "write true or false"
	case want == aNumber:
		mend = "give a number"
	}
	return d.oneOf(path, v, mend, want)
}

// oneOf reports whether the value is of one of the kinds, and needs nothing
// that only a node knows.
func (d *decoder) oneOf(path string, v value, mend string, kinds ...kind) bool {
	return d.plain(path, v, mend, kinds...) && !d.unfilled(path, v)
}

// plain is oneOf for a place where ${NAME} is fine.
func (d *decoder) plain(path string, v value, mend string, kinds ...kind) bool {
	word := v.kind == aWord && !slices.Contains(kinds, aString)
	switch {
	case !word && d.own(path, v):
		d.below(path, v)
		return false
	case slices.Contains(kinds, v.kind):
		return true
	case v.kind == aNull:
		mend = "leave it out, or " + mend
	}
	d.fail(path, v.at, "is "+v.String(), mend)
	return false
}

// unfilled reports a ${NAME} where nobody fills it in.
func (d *decoder) unfilled(path string, v value) bool {
	if v.filled != nil {
		d.fail(path, *v.filled, "has ${...}, which is filled in only in a task's config, env and templates", "write the value itself")
	}
	return v.filled != nil
}

// own reports the value's own faults, and whether there were any.
func (d *decoder) own(path string, v value) bool {
	for _, f := range v.faults {
		if secret.MatchString(path) && !v.named {
			f.message, f.mend = "cannot be read", "write the secret in quotes; $${ stands for ${"
		}
		d.fail(path, f.at, f.message, f.mend)
	}
	if v.silent {
		d.unread(path)
	}
	return v.silent || len(v.faults) > 0
}

// secret are the paths of values that no message repeats.
var secret = regexp.MustCompile(`(^|\.)secrets[.\[]`)

// header reports the faults of what comes before the item's value, and returns
// the item's path with its labels.
func (d *decoder) header(path string, it item) string {
	for _, label := range it.labels {
		path = keyed(path, label)
	}
	for _, f := range it.faults {
		d.fail(path, f.at, f.message, f.mend)
	}
	return path
}

// below reports the faults of everything inside the value.
func (d *decoder) below(path string, v value) {
	for i, e := range v.list {
		d.deep(indexed(path, i), e)
	}
	for _, it := range v.items {
		d.deep(d.header(join(path, it.name), it), it.value)
	}
}

// deep reports all faults of the value.
func (d *decoder) deep(path string, v value) {
	d.own(path, v)
	d.below(path, v)
}
