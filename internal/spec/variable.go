package spec

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
)

// variable is a value of a file that its user may choose.
type variable struct {
	name   string
	at     hcl.Range
	typ    kind // unreadable for any
	of     kind // of the elements of a list or a map; unreadable for any
	asText string
	// standard is its default, nil if it has none.
	standard *value
	value    value
}

var variableTable = &table[variable]{
	doc: "A value that the file's user may choose: with --var NAME=value, a file given with --var-file, or the environment variable BERTH_VAR_<NAME>. " +
		"Elsewhere in the file it is var.NAME, or ${var.NAME} within a text.",
	fields: []field[variable]{
		{name: "type", kind: "type", doc: "What the value is: string, number, bool, list(string), map(string), any, ...", standard: "what default is, or any", read: readType},
		{name: "default", kind: "any value", doc: "The value if none is given. Without it one must be given.", read: func(d *decoder, path string, it item, v *variable) {
			if !d.attribute(path, it, "default = ...") {
				return
			}
			if it.value.rests() {
				d.fail(path, it.value.at, "rests on another variable", "write the value itself, or use locals")
				return
			}
			d.deep(path, it.value)
			if !d.broken[path] {
				v.standard = &it.value
			}
		}},
		text("description", "What it is for.", func(*variable) *string { return new(string) }),
		flag("sensitive", "Nothing, with a warning: the value is put into what is read from the file, and is stored and shown with it. Secrets go into a volume's secrets, or a template.",
			func(*variable) *bool { return new(bool) }).hasNoEffect("nothing hides the value", "put it into a volume's secrets, or a template, and remove this"),
		flag("nullable", "Nothing, with a warning: there is no value null.", func(*variable) *bool { return new(bool) }).hasNoEffect("there is no value null", "remove it"),
	},
	foreign: []foreign{
		{names: "validation", why: "nothing is calculated when a file is read"},
		{names: "ephemeral", why: "values are not kept", harmless: true},
	},
}

var (
	simpleType  = regexp.MustCompile(`^(string|number|bool|any)$`)
	listType    = regexp.MustCompile(`^(?:list|set)\((.*)\)$`)
	mapType     = regexp.MustCompile(`^map\((.*)\)$`)
	objectType  = regexp.MustCompile(`^object\(\{[^()]*(\([^()]*\)[^()]*)*\}\)$`)
	kindsByType = map[string]kind{"string": aString, "number": aNumber, "bool": aBoolean, "any": unreadable}
)

func readType(d *decoder, path string, it item, v *variable) {
	if !d.attribute(path, it, "type = string") || !d.is(path, it.value, aString) {
		return
	}
	v.asText = strings.Join(strings.Fields(strings.TrimSuffix(strings.TrimPrefix(it.value.text, "${"), "}")), " ")
	switch list, of := listType.FindStringSubmatch(v.asText), mapType.FindStringSubmatch(v.asText); {
	case simpleType.MatchString(v.asText):
		v.typ = kindsByType[v.asText]
	case v.asText == "list" || v.asText == "tuple" || strings.HasPrefix(v.asText, "tuple("):
		v.typ = aList
	case v.asText == "map" || objectType.MatchString(v.asText):
		v.typ = aMap
	case list != nil:
		v.typ, v.of = aList, kindsByType[list[1]]
	case of != nil:
		v.typ, v.of = aMap, kindsByType[of[1]]
	default:
		mend := "use one of string, number, bool, list(string), map(string), any"
		if meant := nearest(v.asText, []string{"string", "number", "bool", "any", "list", "map"}); meant != "" {
			mend = "did you mean " + meant + "?"
		}
		d.fail(path, it.value.at, "is "+clip(v.asText)+", which is no type", mend)
	}
}

// rawType makes a string of the type of a variable, which is written without
// quotes, and with brackets.
func rawType(it *item) {
	for i := range it.value.items {
		v := &it.value.items[i].value
		if it.value.items[i].name == "type" && v.raw != "" {
			*v = value{kind: aString, at: v.at, text: v.raw}
		}
	}
}

// parse reads a value that was given as a text.
func (v *variable) parse(text string) value {
	want := v.typ
	if want == unreadable && v.standard != nil {
		want = v.standard.kind
	}
	got := value{kind: aString, at: v.at, text: text}
	switch want {
	case aNumber, aBoolean, aList, aMap:
		p := &problems{}
		items := parse([]byte("x = "+text+"\n"), p)
		if len(p.fields) == 0 && len(items) == 1 && !items[0].block && !items[0].value.rests() && len(items[0].value.faults) == 0 {
			got = items[0].value.moved(v.at)
		}
	case aString, unreadable, aWord, aNull, aReference:
	}
	if reference := runtimeReference.FindString(got.text); got.kind == aString && reference != "" {
		got.filled = &got.at
	}
	return got
}

// runtimeReference matches what a node fills in.
var runtimeReference = regexp.MustCompile(`\$\{[A-Za-z_][A-Za-z0-9_.-]*\}`)

// take makes a value the variable's own, of its type. It says what is wrong.
func (v *variable) take(got value) (message, mend string) {
	mend = "give " + v.asText
	got, ok := converted(got, v.typ)
	if !ok {
		return "is " + got.String(), mend
	}
	if v.of != unreadable {
		got = got.copied()
		for i := range got.list {
			if got.list[i], ok = converted(got.list[i], v.of); !ok {
				return fmt.Sprintf("has %s as its element %d", got.list[i], i), mend
			}
		}
		for i := range got.items {
			if got.items[i].value, ok = converted(got.items[i].value, v.of); !ok {
				return fmt.Sprintf("has %s at %q", got.items[i].value, clip(got.items[i].name)), mend
			}
		}
	}
	v.value = got
	return "", ""
}

// converted is the value as one of another kind, where no information is lost.
func converted(v value, want kind) (value, bool) {
	n, err := strconv.ParseFloat(v.text, 64)
	switch {
	case want == unreadable || v.kind == want:
		return v, v.kind != unreadable
	case want == aString && (v.kind == aNumber || v.kind == aBoolean),
		want == aNumber && v.kind == aString && err == nil && !math.IsNaN(n) && !math.IsInf(n, 0),
		want == aBoolean && v.kind == aString && (v.text == "true" || v.text == "false"):
		v.kind = want
		return v, true
	}
	return v, false
}

// moved is the value as if it stood at another place.
func (v value) moved(at hcl.Range) value {
	v = v.copied()
	v.at, v.braces = at, nil
	if v.filled != nil {
		v.filled = &at
	}
	for i := range v.faults {
		v.faults[i].at = at
	}
	for i := range v.list {
		v.list[i] = v.list[i].moved(at)
	}
	for i := range v.items {
		v.items[i].value, v.items[i].at = v.items[i].value.moved(at), at
	}
	return v
}

// copied is the value with lists of its own.
func (v value) copied() value {
	v.list, v.items, v.faults = slices.Clone(v.list), slices.Clone(v.items), slices.Clone(v.faults)
	return v
}

// rests reports whether the value needs variables or locals to be known.
func (v value) rests() bool {
	return v.ref != nil || len(v.parts) > 0 || slices.ContainsFunc(v.list, value.rests) ||
		slices.ContainsFunc(v.items, func(it item) bool { return it.value.rests() })
}
