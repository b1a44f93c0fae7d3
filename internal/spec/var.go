package spec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"

	"github.com/berth-dev/berth/api"
)

// Var is what a file says of a variable that is to be put. Namespace and Path are
// empty if it does not say.
type Var struct {
	Namespace api.NamespaceID
	Path      api.VariablePath
	Spec      api.VariableSpec
}

// Language is what a file is written in.
type Language string

// The languages. Empty is by the file's name, and else by how it begins.
const (
	HCL  Language = "hcl"
	JSON Language = "json"
)

// varTable is a file of a variable. It is read alone, and never together with
// volumes and jobs: those may be kept with a program, and this one may not.
var varTable = &table[Var]{
	doc: "A file of a variable holds its items, and may say where they go.",
	fields: []field[Var]{
		text("path", "The variable's path.", func(v *Var) *api.VariablePath { return &v.Path }),
		text("namespace", "Its namespace.", func(v *Var) *api.NamespaceID { return &v.Namespace }),
		textMap("items", "Its keys and their values.", false, func(v *Var) *map[string]string { return &v.Spec.Items }).required(`items { key = "value" }`),
	},
	foreign: []foreign{
		{names: "version create_index modify_index create_time modify_time keys", why: "the servers write it", harmless: true},
		{names: "lock", why: "variables have no locks"},
	},
}

// ParseVar reads a file of a variable: HCL, or JSON as the API answers it, in
// which a value is its text and nothing is filled in. The error is an *api.Error
// with CodeInvalid; it names places and keys, and repeats no value.
func ParseVar(filename string, src []byte, in Language) (Var, error) {
	p := &problems{file: filename}
	if in == "" {
		in = HCL
		if isJSON(filepath.Ext(filename), src) {
			in = JSON
		}
	}
	if len(src) > MaxFileSize {
		p.add(hcl.Range{Start: hcl.InitialPos}, "", fmt.Sprintf("is larger than %d KiB", MaxFileSize>>10), "make several variables")
		return Var{}, p.err()
	}
	src = bytes.TrimPrefix(src, []byte("\xef\xbb\xbf"))
	if at, wrong := notText(src); wrong {
		p.add(hcl.Range{Start: at}, "", "is not text in UTF-8", "encode what is no text, as base64 for one")
		return Var{}, p.err()
	}
	if in == JSON {
		return varInJSON(p, src)
	}
	if len(src) > 0 && src[len(src)-1] != '\n' {
		src = append(bytes.Clone(src), '\n') // HCL takes the end of a heredoc only with one
	}
	d := (&decoder{problems: p, warnings: &problems{}}).object("")
	items := parse(src, p)
	whole := item{at: hcl.Range{Start: hcl.InitialPos}, value: value{items: items}}
	if len(p.fields) > 0 {
		d.below("", whole.value) // for the faults
		return Var{}, p.err()
	}
	for _, it := range items {
		if it.value.rests() {
			d.fail(it.name, it.value.at, "rests on var or local, which such a file does not have", "write the text itself; $${ stands for ${")
			return Var{}, p.err()
		}
	}
	v := varTable.read(d, "", whole)
	return v, p.err()
}

// varInJSON reads what 'berth var get --json' prints, or a part of it.
func varInJSON(p *problems, src []byte) (Var, error) {
	p.json = true
	var row struct {
		*api.Variable
		Items map[string]string `json:"items"`
	}
	dec := json.NewDecoder(bytes.NewReader(src))
	dec.DisallowUnknownFields()
	err := dec.Decode(&row)
	if err == nil {
		if _, more := dec.Token(); !errors.Is(more, io.EOF) {
			err = errFollows
		}
	}
	if err != nil {
		at, message, mend := jsonFault(src, dec.InputOffset(), err)
		p.add(hcl.Range{Start: at}, "", message, mend)
		return Var{}, p.err()
	}
	if row.Items == nil {
		p.add(hcl.Range{Start: hcl.InitialPos}, "items", "is missing", `add items { key = "value" }`)
	}
	v := Var{Spec: api.VariableSpec{Items: row.Items}}
	if row.Variable != nil {
		v.Namespace, v.Path = row.Namespace, row.Path
	}
	return v, p.err()
}

var errFollows = errors.New("something follows")

// jsonFault says what is wrong with JSON, and where, and repeats nothing of it
// but names.
func jsonFault(src []byte, read int64, err error) (at hcl.Pos, message, mend string) {
	const form = `write {"items": {"key": "value"}}`
	var (
		syntax *json.SyntaxError
		kind   *json.UnmarshalTypeError
	)
	message, mend = "is of the wrong kind", form
	switch name, unknown := strings.CutPrefix(err.Error(), "json: unknown field "); {
	case errors.Is(err, errFollows):
		message, mend = "has something after its end", "remove it"
	case unknown:
		message, mend = "has the name "+name+", which is not known", form
	case errors.As(err, &syntax):
		read, message, mend = syntax.Offset, "is no JSON from here on", form
	case errors.As(err, &kind):
		read, message, mend = kind.Offset, "is of the wrong kind", "give a string"
		if kind.Type == nil || kind.Type.Kind() != reflect.String {
			mend = form
		}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		read, message, mend = int64(len(src)), "ends in the middle of its JSON", form
	}
	before := src[:min(max(read-1, 0), int64(len(src)))]
	line := bytes.LastIndexByte(before, '\n') + 1
	return hcl.Pos{Line: 1 + bytes.Count(before, []byte("\n")), Column: 1 + utf8.RuneCount(before[line:])}, message, mend
}
