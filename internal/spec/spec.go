package spec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclwrite"

	"github.com/berth-dev/berth/api"
)

// MaxFileSize is the largest file that is read, in bytes.
const MaxFileSize = 1 << 20

// File is what a file holds: one volume, or any number of volume and job
// blocks, in the order of the file.
type File struct {
	Volumes []Volume
	Jobs    []Job
	// Warnings name what is in the file and changes nothing.
	Warnings []api.Field
}

// Volume is a volume of a file. Namespace is empty if the file names none: what
// the user's command says is meant then, or api.DefaultNamespace.
type Volume struct {
	Namespace api.NamespaceID
	ID        api.VolumeID
	Spec      api.VolumeSpec
}

// Job is a job of a file. Namespace is as in Volume.
type Job struct {
	Namespace api.NamespaceID
	ID        api.JobID
	Spec      api.JobSpec
}

// Parse reads a file, HCL or JSON, and validates what it holds. JSON is the
// same tables in HCL's JSON syntax, or rows as the API answers them. The error
// is an *api.Error with CodeInvalid, and names every problem with filename,
// line and column.
func Parse(filename string, src []byte) (*File, error) { return new(Inputs).Parse(filename, src) }

// Parse is the function Parse with values for the file's variables.
func (in *Inputs) Parse(filename string, src []byte) (*File, error) {
	p, warnings := &problems{file: filename}, &problems{file: filename}
	s := read(p, src)
	warnings.json = p.json
	d := &decoder{problems: p, warnings: warnings}
	if len(p.fields) > 0 {
		d.object("").below("", value{items: s.items}) // for the faults
		return nil, p.unless(unrendered(s.text)).err()
	}
	var c contents
	if rows := s.rows(); rows != nil {
		c = d.rows(rows)
	} else {
		c = d.object("").contents(s.items, in)
	}
	if len(p.fields) == 0 && len(c.file.Volumes)+len(c.file.Jobs) == 0 {
		d.object("").nothing(hcl.Range{Start: hcl.InitialPos}) // such as {"job": {}}
	}
	if err := p.unless(unrendered(s.text)).err(); err != nil {
		return nil, err
	}
	c.file.Warnings = warnings.sorted()
	return &c.file, nil
}

// Format lays a file out in the canonical style of its language, with \n as
// line end. The error is as in Parse, and is about the syntax only.
func Format(filename string, src []byte) ([]byte, error) {
	p := &problems{file: filename}
	in := read(p, src)
	d := &decoder{problems: p}
	d.object("").below("", value{items: in.items})
	if err := p.err(); err != nil {
		return nil, err
	}
	if in.json == nil {
		return hclwrite.Format(closersApart(in.text)), nil
	}
	var out bytes.Buffer
	if err := json.Indent(&out, bytes.TrimSpace(in.text), "", "  "); err != nil {
		return nil, fmt.Errorf("format %s: %w", filename, err) // no text that was read without a problem
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}

// source is a file as it was read.
type source struct {
	text  []byte
	items []item
	// json is the whole of a JSON file, nil for HCL.
	json *value
}

// read turns a file into items. The text that it returns is the source without
// what editors on other systems leave in it, a byte order mark and carriage
// returns at the ends of lines.
func read(p *problems, src []byte) source {
	refuse := func(at hcl.Pos, message, mend string) source {
		p.add(hcl.Range{Start: at}, "", message, mend)
		return source{}
	}
	if len(src) > MaxFileSize {
		return refuse(hcl.InitialPos, fmt.Sprintf("is larger than %d KiB", MaxFileSize>>10), "split the file")
	}
	src = bytes.ReplaceAll(bytes.TrimPrefix(src, []byte("\xef\xbb\xbf")), []byte("\r\n"), []byte("\n"))
	if len(src) > 0 && src[len(src)-1] != '\n' {
		src = append(src, '\n') // HCL takes the end of a heredoc only with one
	}
	ext := filepath.Ext(p.file)
	if ext == ".yaml" || ext == ".yml" {
		return refuse(hcl.InitialPos, "is YAML", "write it in HCL")
	}
	if at, wrong := notText(src); wrong {
		return refuse(at, "is not text in UTF-8", "save it as UTF-8")
	}
	if !isJSON(ext, src) {
		return source{text: src, items: parse(src, p)}
	}
	p.json = true
	v := parseJSON(src, p)
	in := source{text: src, json: &v}
	if in.rows() == nil {
		in.items = bodies(p, templates(v))
	}
	return in
}

// templating matches what programs replace that make job files.
var templating = regexp.MustCompile(`\[\[-?\s*(?:\.[A-Za-z_]|\$\w|(?:var|my|template|if|range|with|else|end|env|include|fileContents|consulKey|timeNow)\b)`)

// unrendered finds the first of it in a file.
func unrendered(src []byte) (at hcl.Pos, found bool) {
	m := templating.FindIndex(src)
	if m == nil {
		return at, false
	}
	before := src[:m[0]]
	line := bytes.LastIndexByte(before, '\n') + 1
	return hcl.Pos{Line: 1 + bytes.Count(before, []byte("\n")), Column: 1 + utf8.RuneCount(before[line:])}, true
}

// bodies are the items of a JSON file: those of its object, or of all objects
// of its list.
func bodies(p *problems, v value) []item {
	one := merged(v)
	if one.kind != aMap && len(p.fields) == 0 {
		p.add(v.at, "", "is a list that holds more than objects", "write { ... }, or [{ ... }, { ... }]")
	}
	return one.items
}

// notText finds the first byte that no text has.
func notText(src []byte) (hcl.Pos, bool) {
	at := hcl.InitialPos
	for len(src) > 0 {
		r, size := utf8.DecodeRune(src)
		switch {
		case r == 0, r == utf8.RuneError && size == 1:
			return at, true
		case r == '\n':
			at = hcl.Pos{Line: at.Line + 1, Column: 1}
		default:
			at.Column++
		}
		src = src[size:]
	}
	return at, false
}
