package spec

import (
	"bytes"
	"fmt"
	"path/filepath"
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

// Parse reads a file and validates what it holds. The error is an *api.Error
// with CodeInvalid, and names every problem with filename, line and column.
func Parse(filename string, src []byte) (*File, error) {
	p, warnings := &problems{file: filename}, &problems{file: filename}
	_, items := read(p, src)
	d := &decoder{problems: p, warnings: warnings}
	if len(p.fields) > 0 {
		d.object("").below("", value{items: items}) // for the faults
		return nil, p.err()
	}
	c := d.object("").contents(items)
	if err := p.err(); err != nil {
		return nil, err
	}
	c.file.Warnings = warnings.sorted()
	return &c.file, nil
}

// Format lays a file out in HCL's canonical style, with \n as line end. The
// error is as in Parse, and is about the syntax only.
func Format(filename string, src []byte) ([]byte, error) {
	p := &problems{file: filename}
	src, items := read(p, src)
	d := &decoder{problems: p}
	d.object("").below("", value{items: items})
	if err := p.err(); err != nil {
		return nil, err
	}
	return hclwrite.Format(src), nil
}

// read turns a file into items, and returns what it read: the source without
// what editors on other systems leave in it, a byte order mark and carriage
// returns at the ends of lines.
func read(p *problems, src []byte) ([]byte, []item) {
	refuse := func(at hcl.Pos, message, mend string) ([]byte, []item) {
		p.add(hcl.Range{Start: at}, "", message, mend)
		return nil, nil
	}
	if len(src) > MaxFileSize {
		return refuse(hcl.InitialPos, fmt.Sprintf("is larger than %d KiB", MaxFileSize>>10), "split the file")
	}
	src = bytes.ReplaceAll(bytes.TrimPrefix(src, []byte("\xef\xbb\xbf")), []byte("\r\n"), []byte("\n"))
	if len(src) > 0 && src[len(src)-1] != '\n' {
		src = append(src, '\n') // HCL takes the end of a heredoc only with one
	}
	switch ext := filepath.Ext(p.file); {
	case ext == ".json", bytes.HasPrefix(bytes.TrimSpace(src), []byte("{")):
		return refuse(hcl.InitialPos, "is JSON", "write it in HCL")
	case ext == ".yaml", ext == ".yml":
		return refuse(hcl.InitialPos, "is YAML", "write it in HCL")
	}
	if at, wrong := notText(src); wrong {
		return refuse(at, "is not text in UTF-8", "save it as UTF-8")
	}
	return src, parse(src, p)
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
