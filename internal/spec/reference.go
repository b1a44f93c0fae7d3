package spec

import (
	"slices"
	"strings"
)

// Block is the reference of one kind of block, for the documentation.
type Block struct {
	// Path is where the block stands: job.group.task; empty for the file.
	Path    string
	Doc     string
	Fields  []Entry
	Foreign []Foreign
}

// Entry is one name that the block may hold.
type Entry struct {
	Name string
	// Kind is the kind of its value: string, size, block, ...
	Kind string
	Doc  string
	// Words are the only values allowed, if there is such a list.
	Words []string
	// Example shows what to write; it is set if the entry must be there.
	Example string
	// Default holds if the entry is not there.
	Default string
	Repeats bool
}

// Foreign is a name of Nomad's that Berth does not have.
type Foreign struct {
	Name string
	Why  string
	// Harmless: it changes nothing here, and only a warning is given.
	Harmless bool
	// Unless are values with which it says what is so anyway.
	Unless []string
}

// Reference describes every block that a file may hold, each before those in it.
func Reference() []Block { return fileTable.describe("") }

func (t *table[T]) describe(path string) []Block {
	b := Block{Path: path, Doc: t.doc}
	var below []Block
	for _, f := range t.fields {
		b.Fields = append(b.Fields, Entry{
			Name: f.name, Kind: f.kind, Doc: f.doc, Words: f.words,
			Example: f.need, Default: f.standard, Repeats: f.repeats,
		})
		if f.below != nil {
			below = append(below, f.below(join(path, f.name))...)
		}
	}
	for _, f := range t.foreign {
		for name := range strings.FieldsSeq(f.names) {
			b.Foreign = append(b.Foreign, Foreign{Name: name, Why: f.why, Harmless: f.harmless, Unless: strings.Fields(f.unless)})
		}
	}
	return append([]Block{b}, below...)
}

// homes are the names of the blocks in which each name is known. Checks and scripts do not
// count: their command and task are mostly another block's that was forgotten.
func homes(blocks []Block) map[string][]string {
	home := map[string][]string{}
	for _, b := range blocks {
		name := b.Path[strings.LastIndexByte(b.Path, '.')+1:]
		for _, f := range b.Fields {
			if name == "check" || name == "change_script" || name == "service" && f.Name == "task" {
				continue
			}
			if !slices.Contains(home[f.Name], name) {
				home[f.Name] = append(home[f.Name], name)
			}
		}
	}
	return home
}
