package spec

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/hashicorp/hcl/v2"

	"github.com/berth-dev/berth/api"
)

// The constructors of fields. Each takes the field's name, its line in the
// reference, and where in a T its value goes.

// text is a string. A number or a boolean stands for the string that it is
// written as.
func text[T any, S ~string](name, doc string, at func(*T) *S) field[T] {
	return field[T]{name: name, kind: "string", doc: doc, read: func(d *decoder, path string, it item, into *T) {
		if d.attribute(path, it, name+` = "..."`) && d.oneOf(path, it.value, "give a string", aString, aNumber, aBoolean) {
			*at(into) = S(it.value.text)
		}
	}}
}

// choice is a string that must be one of words. The words in foreign are known
// from Nomad.
func choice[T any, S ~string](name, doc string, words []S, foreign []string, at func(*T) *S) field[T] {
	f := text(name, doc, at)
	for _, w := range words {
		f.words = append(f.words, string(w))
	}
	read := f.read
	f.read = func(d *decoder, path string, it item, into *T) {
		read(d, path, it, into)
		got := it.value.text
		if d.broken[path] || slices.Contains(f.words, got) {
			return
		}
		message, mend := fmt.Sprintf("is %q", clip(got)), "use "+anyOf(f.words)
		if slices.Contains(foreign, got) {
			message += ", which is known from Nomad; Berth does not support it yet"
		} else if meant := nearest(got, f.words); meant != "" {
			mend = fmt.Sprintf("did you mean %q?", meant)
		}
		d.fail(path, it.value.at, message, mend)
	}
	return f
}

// flag is true or false.
func flag[T any](name, doc string, at func(*T) *bool) field[T] {
	f := field[T]{name: name, kind: "boolean", doc: doc, read: func(d *decoder, path string, it item, into *T) {
		if d.attribute(path, it, name+" = true") && d.is(path, it.value.unquoted(aBoolean), aBoolean) {
			*at(into) = it.value.text == "true"
		}
	}}
	return f.standing("false")
}

// unquoted is a value in quotes as it would be without, if it then were of the
// kind: HCL converts "true" and "8080", and people's files have them.
func (v value) unquoted(want kind) value {
	if v.kind != aString || v.filled != nil {
		return v
	}
	_, err := strconv.ParseInt(v.text, 10, 64)
	if want == aBoolean && (v.text == "true" || v.text == "false") || want == aNumber && err == nil {
		v.kind = want
	}
	return v
}

// integer is a whole number.
func integer[T any](name, doc string, at func(*T) *int) field[T] {
	return field[T]{name: name, kind: "number", doc: doc, read: func(d *decoder, path string, it item, into *T) {
		if !d.attribute(path, it, name+" = 1") || !d.is(path, it.value.unquoted(aNumber), aNumber) {
			return
		}
		n, err := strconv.ParseInt(it.value.text, 10, 32)
		if err != nil {
			d.fail(path, it.value.at, "is "+clip(it.value.text), "give a whole number that fits 32 bits")
			return
		}
		*at(into) = int(n)
	}}
}

// reference is a string that names something of a node, such as ${meta.rack}.
func reference[T any](name, doc string, at func(*T) *string) field[T] {
	return filledText(name, "${attr.cpu.arch}", doc, at)
}

// filledText is a string in which ${...} may stand.
func filledText[T any](name, example, doc string, at func(*T) *string) field[T] {
	return field[T]{name: name, kind: "string", doc: doc, read: func(d *decoder, path string, it item, into *T) {
		quoted := strconv.Quote(example)
		if d.attribute(path, it, name+" = "+quoted) && d.plain(path, it.value, "give a string such as "+quoted, aString) {
			*at(into) = it.value.text
		}
	}}
}

// size is a number of bytes, as parseSize reads it.
func size[T any](name, doc string, at func(*T) *int64) field[T] {
	return field[T]{name: name, kind: "size", doc: doc, read: func(d *decoder, path string, it item, into *T) {
		if !d.attribute(path, it, name+` = "10GiB"`) || !d.oneOf(path, it.value, sizeMend, aString, aNumber) {
			return
		}
		n, wrong := parseSize(it.value.text)
		if wrong != "" {
			d.fail(path, it.value.at, fmt.Sprintf("is %q, which %s", clip(it.value.text), wrong), sizeMend)
			return
		}
		*at(into) = n
	}}
}

// duration is a Go duration.
func duration[T any](name, doc string, at func(*T) *api.Duration) field[T] {
	const mend = `give a duration such as "10s" or "1m30s"`
	return field[T]{name: name, kind: "duration", doc: doc, read: func(d *decoder, path string, it item, into *T) {
		if !d.attribute(path, it, name+` = "10s"`) || !d.oneOf(path, it.value, mend, aString) {
			return
		}
		v, err := time.ParseDuration(it.value.text)
		if err != nil {
			d.fail(path, it.value.at, fmt.Sprintf("is %q, which is no duration", clip(it.value.text)), mend)
			return
		}
		*at(into) = api.Duration(v)
	}}
}

// texts is a list of strings.
func texts[T any](name, doc string, at func(*T) *[]string) field[T] {
	return field[T]{name: name, kind: "list of strings", doc: doc, read: func(d *decoder, path string, it item, into *T) {
		if !d.attribute(path, it, name+` = ["..."]`) {
			return
		}
		mend := `give a list of strings: ["..."]`
		if it.value.kind == aString {
			mend = fmt.Sprintf("put it in brackets: [%q]", clip(it.value.text))
		}
		if !d.oneOf(path, it.value, mend, aList) {
			return
		}
		values := make([]string, 0, len(it.value.list))
		for i, v := range it.value.list {
			if d.oneOf(indexed(path, i), v, "give a string", aString, aNumber, aBoolean) {
				values = append(values, v.text)
			}
		}
		*at(into) = values
	}}
}

// textMap is a map of strings, as a block or as an attribute. Numbers and
// booleans stand for the strings that they are written as.
func textMap[T any](name, doc string, filled bool, at func(*T) *map[string]string) field[T] {
	return field[T]{name: name, kind: kindTextMap, doc: doc, read: func(d *decoder, path string, it item, into *T) {
		values := map[string]string{}
		for key, v := range d.entries(path, it, keyed) {
			at := keyed(path, key)
			if d.plain(at, v, "give a string", aString, aNumber, aBoolean) && (filled || !d.unfilled(at, v)) {
				values[key] = v.text
			}
		}
		*at(into) = values
	}}
}

// configMap is a map of any plain values, as a block or as an attribute, in which blocks may stand, as the drivers
// that publish their configuration have them. A block is a map, and several of
// one name are a list of maps. The values have the types that encoding/json would give them.
func configMap[T any](name, doc string, at func(*T) *map[string]any) field[T] {
	return field[T]{name: name, kind: kindMap, doc: doc, read: func(d *decoder, path string, it item, into *T) {
		if it.block && !d.unlabelled(path, it) || !d.oneOf(path, it.value, "give a map: { key = value }", aMap) {
			return
		}
		*at(into) = d.nested(path, it.value.items, join)
	}}
}

// nested are the attributes and blocks of a map, whose names make paths as to says.
func (d *decoder) nested(path string, items []item, to func(path, name string) string) map[string]any {
	values, first := map[string]any{}, map[string]hcl.Range{}
	blocks := map[string]int{}
	for _, it := range items {
		at := to(path, it.name)
		d.header(at, it)
		earlier, again := first[it.name]
		if !again {
			first[it.name] = it.at
		}
		switch {
		case it.name == "":
			d.fail(at, it.at, "has an empty name", "remove it")
		case again && (!it.block || blocks[it.name] == 0):
			d.fail(at, it.at, fmt.Sprintf("is there twice, first at line %d", earlier.Start.Line), "remove one")
		case !it.block:
			values[it.name] = d.anything(at, it.value)
		case !d.unlabelled(at, it):
		default:
			if n := blocks[it.name]; n > 0 {
				at = indexed(at, n)
			}
			got := d.nested(at, it.value.items, to)
			switch before := values[it.name].(type) {
			case []any:
				values[it.name] = append(before, got)
			case nil:
				values[it.name] = got
			default:
				values[it.name] = []any{before, got}
			}
			blocks[it.name]++
		}
	}
	return values
}

// maxExact is the largest whole number that a JSON number carries unharmed.
const maxExact = 1 << 53

// anything is a value of any kind.
func (d *decoder) anything(path string, v value) any {
	if d.own(path, v) {
		d.below(path, v)
		return nil
	}
	switch v.kind {
	case aString:
		return v.text
	case aBoolean:
		return v.text == "true"
	case aNumber:
		n, err := strconv.ParseFloat(v.text, 64)
		if err != nil || math.Abs(n) > maxExact {
			d.fail(path, v.at, "is "+v.String()+", too large to be exact", "put it in quotes")
		}
		return n
	case aList:
		values := make([]any, len(v.list))
		for i, e := range v.list {
			values[i] = d.anything(indexed(path, i), e)
		}
		return values
	case aMap:
		return d.nested(path, v.items, keyed)
	case aNull, aWord, unreadable, aReference:
		d.fail(path, v.at, "is "+v.String(), "leave it out")
	}
	return nil
}
