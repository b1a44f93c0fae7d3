package httpapi

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/suggest"
)

// filter is one condition on the rows of a list: field==value, field!=value or
// field^=prefix. The field is a path in the row's JSON: status.state. A list
// means each of its elements, and a map's key is a step of the path: == and ^=
// hold if any value does, != if none is equal.
type filter struct {
	path  []step
	op    string
	value any // as comparable finds it in a row
}

// step leads from a value to those below: to a field of a struct by its place,
// or to the entry of a map.
type step struct {
	field int
	key   string
}

// operators are what stands between a field and a value.
func operators() []string { return []string{"==", "!=", "^="} }

// parseFilter reads a filter of rows of a type, or says what is wrong with it.
func parseFilter(t reflect.Type, text string) (filter, *api.Field) {
	at, op := len(text), ""
	for _, o := range operators() {
		if i := strings.Index(text, o); i >= 0 && i < at {
			at, op = i, o
		}
	}
	if op == "" {
		return filter{}, &api.Field{
			Path: "filter", Message: fmt.Sprintf("is %q, which compares nothing", text),
			Mend: "write field==value, field!=value or field^=prefix, such as status.state==ready",
		}
	}
	name := strings.TrimSpace(text[:at])
	path, leaf, problem := resolve(t, name)
	if problem != nil {
		return filter{}, problem
	}
	word, problem := unquoted(strings.TrimSpace(text[at+len(op):]))
	if problem != nil {
		return filter{}, problem
	}
	value, wanted := parseValue(leaf, word)
	if op == "^=" {
		if value, wanted = word, ""; leaf.Kind() != reflect.String {
			return filter{}, &api.Field{Path: "filter", Message: fmt.Sprintf("%q asks how %s begins, which is no text", text, name), Mend: "use == or !="}
		}
	}
	if wanted != "" {
		return filter{}, &api.Field{Path: "filter", Message: fmt.Sprintf("compares %s with %q", name, word), Mend: "give " + wanted}
	}
	return filter{path: path, op: op, value: value}, nil
}

// unquoted is what a filter compares with, as it stands there or, if it begins with
// a quote, what is between that and the other one.
func unquoted(word string) (string, *api.Field) {
	if word == "" || word[0] != '"' && word[0] != '\'' {
		return word, nil
	}
	text, err := strconv.Unquote(word)
	if inner, closed := strings.CutSuffix(word[1:], "'"); word[0] == '\'' && closed && !strings.Contains(inner, "'") {
		text, err = inner, nil
	}
	if err != nil {
		return "", &api.Field{
			Path: "filter", Message: fmt.Sprintf("has the value %s, which begins with a quote and is no text in quotes", word),
			Mend: `write "text" or 'text'; a quote of the value itself stands in the other quotes`,
		}
	}
	return text, nil
}

// resolve finds the way from a type to a field, and the type of what it leads to.
func resolve(t reflect.Type, name string) (path []step, leaf reflect.Type, problem *api.Field) {
	rest := strings.Split(name, ".")
	for done := []string(nil); ; {
		for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
			t = t.Elem()
		}
		if isLeaf(t) {
			if len(rest) > 0 {
				return nil, nil, &api.Field{Path: "filter", Message: fmt.Sprintf("there is nothing below %s", strings.Join(done, ".")), Mend: "end the field there"}
			}
			return path, t, nil
		}
		if len(rest) == 0 || rest[0] == "" {
			return nil, nil, unknown(t, done, "")
		}
		switch {
		case t.Kind() == reflect.Map && isLeaf(t.Elem()):
			// A key may have dots of its own.
			path, t, done, rest = append(path, step{key: strings.Join(rest, ".")}), t.Elem(), append(done, rest...), nil
			continue
		case t.Kind() == reflect.Map:
			path, t = append(path, step{key: rest[0]}), t.Elem()
		case t.Kind() == reflect.Struct && t != reflect.TypeFor[time.Time]():
			steps, next := fieldOf(t, rest[0])
			if steps == nil {
				return nil, nil, unknown(t, done, rest[0])
			}
			path, t = append(path, steps...), next
		default:
			return nil, nil, unknown(t, done, rest[0])
		}
		done, rest = append(done, rest[0]), rest[1:]
	}
}

// unknown says that a path leads to nothing that can be compared, and to what
// it could go on.
func unknown(t reflect.Type, done []string, word string) *api.Field {
	at := strings.Join(done, ".")
	names := fieldNames(t)
	for i := range names {
		names[i] = strings.TrimPrefix(at+"."+names[i], ".")
	}
	switch {
	case len(names) == 0:
		return &api.Field{Path: "filter", Message: fmt.Sprintf("%s is no text, number, or true or false", at), Mend: "compare another field"}
	case word == "":
		return &api.Field{Path: "filter", Message: fmt.Sprintf("%q is no field that has a value", at), Mend: "use one of " + strings.Join(names, ", ")}
	}
	full := strings.TrimPrefix(at+"."+word, ".")
	mend := "use one of " + strings.Join(names, ", ")
	if near := suggest.Nearest(full, names); near != "" {
		mend = "did you mean " + near + "?"
	}
	return &api.Field{Path: "filter", Message: fmt.Sprintf("%q is no field of what is listed", full), Mend: mend}
}

// isLeaf reports whether values of the type can be compared.
func isLeaf(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.String, reflect.Bool, reflect.Int, reflect.Int64, reflect.Uint64:
		return true
	}
	return false
}

// fieldOf is the way to the field of that name in JSON, through what is
// embedded, and its type.
func fieldOf(t reflect.Type, name string) (way []step, of reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		switch {
		case !f.Anonymous && nameInJSON(f) == name:
			return []step{{field: i}}, f.Type
		case f.Anonymous:
			inner := f.Type
			if inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			if steps, found := fieldOf(inner, name); steps != nil {
				way, of = append([]step{{field: i}}, steps...), found
			}
		}
	}
	return way, of
}

// fieldNames are the fields of a struct in JSON, in order.
func fieldNames(t reflect.Type) []string {
	if t.Kind() != reflect.Struct || t == reflect.TypeFor[time.Time]() {
		return nil
	}
	names := map[string]bool{}
	for _, f := range reflect.VisibleFields(t) {
		if !f.Anonymous && f.IsExported() {
			names[nameInJSON(f)] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

func nameInJSON(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

// parseValue reads what a field is compared with, or says what it must be.
func parseValue(t reflect.Type, word string) (value any, wanted string) {
	var err error
	switch {
	case t == reflect.TypeFor[api.Duration]():
		var d time.Duration
		d, err = time.ParseDuration(word)
		value, wanted = int64(d), `a duration such as "30s"`
	case t.Kind() == reflect.Bool:
		value, err = word == "true", nil
		if word != "true" && word != "false" {
			return nil, "true or false"
		}
	case t.Kind() == reflect.Int, t.Kind() == reflect.Int64:
		value, err = strconv.ParseInt(word, 10, 64)
		wanted = "a whole number"
	case t.Kind() == reflect.Uint64:
		value, err = strconv.ParseUint(word, 10, 64)
		wanted = "a whole number"
	default:
		value = word
	}
	if err == nil {
		wanted = ""
	}
	return value, wanted
}

// passes reports whether a row passes all filters.
func passes(filters []filter, row reflect.Value) bool {
	for _, f := range filters {
		found := f.finds(row, f.path)
		if found == (f.op == "!=") {
			return false
		}
	}
	return true
}

// finds reports whether any value at the path is equal, or begins so.
func (f filter) finds(v reflect.Value, path []step) bool {
	switch v.Kind() {
	case reflect.Pointer:
		return !v.IsNil() && f.finds(v.Elem(), path)
	case reflect.Slice:
		for i := range v.Len() {
			if f.finds(v.Index(i), path) {
				return true
			}
		}
		return false
	case reflect.Struct:
		return f.finds(v.Field(path[0].field), path[1:])
	case reflect.Map:
		at := v.MapIndex(reflect.ValueOf(path[0].key).Convert(v.Type().Key()))
		return at.IsValid() && f.finds(at, path[1:])
	case reflect.String:
		if f.op == "^=" {
			prefix, _ := f.value.(string)
			return strings.HasPrefix(v.String(), prefix)
		}
		return f.value == v.String()
	case reflect.Bool:
		return f.value == v.Bool()
	case reflect.Uint64:
		return f.value == v.Uint()
	}
	return f.value == v.Int()
}
