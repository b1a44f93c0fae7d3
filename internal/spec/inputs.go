package spec

import (
	"fmt"
	"maps"
	"slices"

	"github.com/hashicorp/hcl/v2"
)

// EnvPrefix begins the environment variables that give values to the variables
// of files: BERTH_VAR_image is for the variable image.
const EnvPrefix = "BERTH_VAR_"

// Inputs are the values that a user gives to the variables of files. What is
// set counts before what stands in files of values, the last file first, and
// that before the environment, and that before a variable's default. The zero
// Inputs gives none.
type Inputs struct {
	// Getenv is the environment, where "" stands for nothing; nil for none.
	Getenv func(name string) string
	set    map[string]string
	files  map[string]given
	// known are the variables that the files read so far have.
	known map[string]bool
}

// given is a value from a file of values.
type given struct {
	value value
	from  string // the file's name
}

// Set gives a value, as it is written on a command line.
func (in *Inputs) Set(name, text string) { put(&in.set, name, text) }

func put[V any](m *map[string]V, k string, v V) {
	if *m == nil {
		*m = map[string]V{}
	}
	(*m)[k] = v
}

// File reads a file of values: attributes, each for the variable of its name.
// The error is as in Parse.
func (in *Inputs) File(filename string, src []byte) error {
	p := &problems{file: filename}
	d := (&decoder{problems: p}).object("")
	s := read(p, src)
	if s.json != nil {
		s.items = s.json.items
	}
	seen := map[string]hcl.Range{}
	for _, it := range s.items {
		first, again := seen[it.name]
		seen[it.name] = it.at
		d.header(it.name, it)
		d.deep(it.name, it.value)
		switch {
		case it.block:
			d.fail(it.name, it.at, "is a block, and a file of values has none", "write "+clip(it.name)+" = ...")
		case again:
			d.fail(it.name, it.at, fmt.Sprintf("is there twice, first at line %d", first.Start.Line), "remove one")
		case it.value.rests():
			d.fail(it.name, it.value.at, "rests on another variable", "write the value itself")
		default:
			put(&in.files, it.name, given{it.value, filename})
		}
	}
	return p.err()
}

// Unused are the names, in order, that were given by a file or by Set, and that
// no file read so far has as a variable. What an environment holds may be meant
// for others.
func (in *Inputs) Unused() []string {
	names := slices.Collect(maps.Keys(in.set))
	names = slices.AppendSeq(names, maps.Keys(in.files))
	names = slices.DeleteFunc(names, func(name string) bool { return in.known[name] })
	slices.Sort(names)
	return slices.Compact(names)
}

// value is what was given for a variable, and where it comes from. A text is
// read as the variable's type says.
func (in *Inputs) value(v *variable) (got value, from string, ok bool) {
	if text, set := in.set[v.name]; set {
		return v.parse(text), "--var", true
	}
	if g, there := in.files[v.name]; there {
		return g.value, g.from, true
	}
	if in.Getenv != nil {
		if text := in.Getenv(EnvPrefix + v.name); text != "" {
			return v.parse(text), EnvPrefix + v.name, true
		}
	}
	return value{}, "", false
}
