package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"github.com/berth-dev/berth/internal/suggest"
)

// templateFlag is the name of the flag, and of the template in errors.
const templateFlag = "template"

// templateHelp says what a template can do, for the help of every command.
const templateHelp = "print the answer through a Go `template`, such as '{{.ID}} {{.Status.State}}'; a list is taken with {{range .}}"

// readTemplate takes the template of the flag, before anything is asked.
func (a *app) readTemplate(text string) error {
	if text == "" {
		return Usage(fmt.Errorf("--template is empty; give one such as '{{.ID}}'"))
	}
	if a.json {
		return Usage(fmt.Errorf("--json and --template exclude each other; leave one out"))
	}
	t, err := template.New("--" + templateFlag).Funcs(template.FuncMap{
		"json": func(v any) (string, error) { b, err := json.Marshal(v); return string(b), err },
		"join": func(sep string, list any) string {
			v, words := reflect.ValueOf(list), []string{}
			for i := range v.Len() {
				words = append(words, fmt.Sprint(v.Index(i).Interface()))
			}
			return strings.Join(words, sep)
		},
		"age":  age,
		"size": size,
	}).Parse(text)
	if err != nil {
		return Usage(fmt.Errorf("--template cannot be read: %s", withoutName(err)))
	}
	a.template, a.json = t, true
	return nil
}

func withoutName(err error) string {
	const name = "--" + templateFlag
	text := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "template: "), name+":")
	return strings.Replace(text, `executing "`+name+`" `, "", 1)
}

// printTemplate prints what the API answered in the user's own way: all of it,
// or an error and nothing.
func (a *app) printTemplate(v any) error {
	var b bytes.Buffer
	if err := a.template.Execute(&b, v); err != nil {
		return Usage(fmt.Errorf("--template cannot be filled in: %s", fieldProblem(err, v)))
	}
	if b.Len() > 0 && !bytes.HasSuffix(b.Bytes(), []byte("\n")) {
		b.WriteByte('\n')
	}
	_, err := b.WriteTo(a.Stdout)
	return err
}

var noField = regexp.MustCompile(`can't evaluate field (\w+) in type (\S+)`)

// fieldProblem names the field that is not there, and what is there instead.
func fieldProblem(err error, v any) string {
	m := noField.FindStringSubmatch(err.Error())
	if m == nil {
		return withoutName(err)
	}
	field, in := m[1], m[2]
	types := map[string]reflect.Type{}
	reach(reflect.TypeOf(v), types)
	t := types[in]
	if t == nil {
		return withoutName(err)
	}
	if kind := t.Kind(); kind == reflect.Slice || kind == reflect.Map {
		return fmt.Sprintf("a list has no field %s; take its elements with {{range .}}{{.%s}}{{end}}", field, field)
	}
	names := fields(t)
	text := fmt.Sprintf("%s has no field %s", t.Name(), field)
	if near := suggest.Nearest(field, names); near != "" {
		return text + "; did you mean " + near + "?"
	}
	if len(names) == 0 {
		return text
	}
	return text + "; it has " + strings.Join(names, ", ")
}

// reach collects the types that a template can come to from t, by the name that
// an error has for them.
func reach(t reflect.Type, known map[string]reflect.Type) {
	if known[t.String()] != nil {
		return
	}
	known[t.String()] = t
	switch t.Kind() {
	case reflect.Pointer:
		reach(t.Elem(), known)
		known[t.String()] = t.Elem()
	case reflect.Slice, reflect.Map:
		reach(t.Elem(), known)
	case reflect.Struct:
		for _, f := range reflect.VisibleFields(t) {
			if f.IsExported() {
				reach(f.Type, known)
			}
		}
	}
}

// fields are the names that a template can take of a struct.
func fields(t reflect.Type) []string {
	if t.Kind() != reflect.Struct {
		return nil
	}
	var names []string
	for _, f := range reflect.VisibleFields(t) {
		if f.IsExported() && !f.Anonymous && !slices.Contains(names, f.Name) {
			names = append(names, f.Name)
		}
	}
	return names
}
