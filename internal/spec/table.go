package spec

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
)

// table says what may stand in one kind of block, and how it becomes a T. The
// decoder, the words of its errors and the reference all come from it.
type table[T any] struct {
	doc    string
	fields []field[T]
	// foreign are names that people know from Nomad, and that this table lacks.
	foreign []foreign
	// initial is the T before any field is read: the defaults.
	initial T
	// finish looks at a T whose fields have all been read.
	finish func(d *decoder, path string, block item, into *T)
}

// The kinds of value that blocks and maps are, in the words of the reference.
const (
	kindBlock   = "block"
	kindNamed   = "block with a name"
	kindMap     = "map"
	kindTextMap = "map of strings"
)

// field is one name that a block may hold: an attribute or a block.
type field[T any] struct {
	name string
	kind string // what the value is, in the words of the reference
	doc  string
	// words are the only values allowed, if there is such a list.
	words []string
	// need shows what to write, if the field must be there.
	need string
	// checked: it is not for the table to say that the field is missing.
	checked bool
	// standard is what holds if the field is not there.
	standard string
	// repeats: a block that may be there more than once.
	repeats bool
	// below describes the block's own table, nil for attributes.
	below func(path string) []Block
	// read puts the item into a T. It reports what is wrong with the item.
	read func(d *decoder, path string, it item, into *T)
}

// required makes the field one that must be there; example shows how.
func (f field[T]) required(example string) field[T] {
	f.need = example
	return f
}

// validated is required, where the validator of package api says that the field
// is missing: there is another way to give it.
func (f field[T]) validated(example string) field[T] {
	f.need, f.checked = example, true
	return f
}

// standing says what holds if the field is not there.
func (f field[T]) standing(value string) field[T] {
	f.standard = value
	return f
}

// sets does more with a value that was read without a problem.
func (f field[T]) sets(more func(into *T, v value)) field[T] {
	read := f.read
	f.read = func(d *decoder, path string, it item, into *T) {
		read(d, path, it, into)
		if !d.broken[path] {
			more(into, it.value)
		}
	}
	return f
}

// warns says that one of the words changes nothing here.
func (f field[T]) warns(word, why, mend string) field[T] {
	read := f.read
	f.read = func(d *decoder, path string, it item, into *T) {
		read(d, path, it, into)
		if !d.broken[path] && it.value.text == word {
			d.warnings.add(it.value.at, path, fmt.Sprintf("is %q, which changes nothing here: %s", word, why), mend)
		}
	}
	return f
}

// hasNoEffect says that true changes nothing here.
func (f field[T]) hasNoEffect(why, mend string) field[T] { return f.warns("true", why, mend) }

// foreign is a name of Nomad's that has no meaning here.
type foreign struct {
	names string // separated by spaces
	why   string
	// mend is what to do, if it is more than to remove it.
	mend string
	// harmless: leaving it out changes nothing here, so that a warning is enough.
	harmless bool
	// unless are values, separated by spaces, with which it is harmless.
	unless string
}

// changesNothing reports whether the item may be left out.
func (f *foreign) changesNothing(it item) bool {
	return f.harmless || !it.block && slices.Contains(strings.Fields(f.unless), it.value.text)
}

// read turns a block into a T. Whatever is wrong is reported, and the rest read.
func (t *table[T]) read(d *decoder, path string, block item) T {
	into := t.initial
	seen := map[string]hcl.Range{}
	for _, it := range t.expand(block.value.items) {
		at := join(path, it.name)
		f := t.field(it.name)
		if f == nil {
			if meant := t.stranger(d, at, it); meant != "" {
				seen[meant] = it.at // so that it is not missed as well
				d.broken[join(path, meant)] = true
			}
			continue
		}
		if first, again := seen[it.name]; again && !f.repeats {
			d.fail(at, it.at, fmt.Sprintf("is there twice, first at line %d", first.Start.Line), "remove one")
			continue
		}
		seen[it.name] = it.at
		d.mark(at, it.place())
		d.header(at, it)
		f.read(d, at, it, &into)
	}
	for _, f := range t.fields {
		if _, found := seen[f.name]; f.need != "" && !f.checked && !found {
			d.fail(join(path, f.name), block.at, "is missing", "add "+f.need)
		}
	}
	if t.finish != nil {
		t.finish(d, path, block, &into)
	}
	return into
}

func (t *table[T]) field(name string) *field[T] {
	for i := range t.fields {
		if t.fields[i].name == name {
			return &t.fields[i]
		}
	}
	return nil
}

func (t *table[T]) names() []string {
	names := make([]string, len(t.fields))
	for i, f := range t.fields {
		names[i] = f.name
	}
	return names
}

// stranger reports a name that the table does not have. It returns the name
// that was probably meant, or "".
func (t *table[T]) stranger(d *decoder, path string, it item) (meant string) {
	for _, f := range t.foreign {
		if !slices.Contains(strings.Fields(f.names), it.name) {
			continue
		}
		if f.changesNothing(it) {
			d.warnings.add(it.at, path, "is known from Nomad and changes nothing here: "+f.why, "remove it")
		} else {
			d.problems.add(it.at, path, "is known from Nomad; Berth does not support it yet: "+f.why, cmp.Or(f.mend, "remove it"))
		}
		return ""
	}
	if homes := d.home[d.kind][it.name]; len(homes) > 0 {
		d.problems.add(it.at, path, "does not belong here", "put it in "+strings.Join(homes, " or "))
		return ""
	}
	if !d.problems.full() {
		meant = nearest(it.name, t.names())
	}
	if meant != "" {
		d.problems.add(it.at, path, "is not a known name", "did you mean "+meant+"?")
		return meant
	}
	d.problems.add(it.at, path, "is not a known name", "use "+anyOf(t.names()))
	return ""
}

// anyOf are the words that may be used, as a message says it.
func anyOf(words []string) string {
	if len(words) == 1 {
		return words[0]
	}
	return "one of " + strings.Join(words, ", ")
}
