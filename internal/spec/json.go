package spec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
)

// jsonParser turns the text of a JSON file into values that know their places.
// As in parser, problems are mistakes after which nobody can say what belongs
// to what; a comma too many or too few is mended, and only reported.
type jsonParser struct {
	src      []byte // without what was read
	at       hcl.Pos
	problems *problems
	stopped  bool
}

// isJSON reports whether a file is JSON: by its name, or because no HCL file
// begins like that.
func isJSON(ext string, src []byte) bool {
	start := bytes.TrimSpace(src)
	return ext == ".json" || bytes.HasPrefix(start, []byte("{")) || bytes.HasPrefix(start, []byte("["))
}

// parseJSON reads a whole file.
func parseJSON(src []byte, problems *problems) value {
	p := &jsonParser{src: src, at: hcl.InitialPos, problems: problems}
	p.space()
	if len(p.src) == 0 {
		p.stop(hcl.InitialPos, "", "is empty", `write {"volume": {"name": { ... }}}`)
		return value{}
	}
	if b := p.src[0]; b != '{' && b != '[' {
		p.stop(p.at, "", "is not JSON: it begins with "+p.glimpse(), `write {"volume": {"name": { ... }}}, or name the file .hcl`)
		return value{}
	}
	v := p.value("", 0)
	p.space()
	if len(p.src) > 0 && !p.stopped {
		p.stop(p.at, "", "has "+p.glimpse()+" after its end", "remove it, or put all objects in one list")
	}
	return v
}

// stop reports a mistake that makes the rest of the file unreadable.
func (p *jsonParser) stop(at hcl.Pos, name, message, mend string) {
	if !p.stopped {
		p.report(at, name, message, mend)
	}
	p.stopped, p.src = true, nil
}

func (p *jsonParser) report(at hcl.Pos, name, message, mend string) {
	p.problems.add(hcl.Range{Start: at}, clip(name), message, mend)
}

// advance passes over n bytes of whole characters.
func (p *jsonParser) advance(n int) {
	for _, r := range string(p.src[:n]) {
		p.at.Byte += utf8.RuneLen(r)
		if r == '\n' {
			p.at.Line, p.at.Column = p.at.Line+1, 1
		} else {
			p.at.Column++
		}
	}
	p.src = p.src[n:]
}

// space passes over white space, and over comments, which JSON does not have.
func (p *jsonParser) space() {
	for {
		p.advance(len(p.src) - len(bytes.TrimLeft(p.src, " \t\r\n")))
		at := p.at
		var end int
		switch {
		case bytes.HasPrefix(p.src, []byte("#")), bytes.HasPrefix(p.src, []byte("//")):
			end = bytes.IndexByte(p.src, '\n')
		case bytes.HasPrefix(p.src, []byte("/*")):
			end = bytes.Index(p.src, []byte("*/")) + len("*/")
		default:
			return
		}
		if end < len("*/") {
			end = len(p.src)
		}
		p.advance(end)
		p.report(at, "", "has a comment, and JSON has none", `write "//": "...", or use HCL`)
	}
}

// glimpse is what stands next, as a message says it.
func (p *jsonParser) glimpse() string {
	if len(p.src) == 0 {
		return "the end of the file"
	}
	word := p.src
	if i := bytes.IndexAny(word[1:], " \t\r\n,:{}[]\""); i >= 0 {
		word = word[:i+1]
	}
	return `"` + clip(string(word)) + `"`
}

// value reads the value of the name.
func (p *jsonParser) value(name string, depth int) value {
	v := value{at: hcl.Range{Start: p.at}}
	if depth > maxDepth {
		p.stop(p.at, name, "is nested too deep", "write it flatter")
		return v
	}
	switch b := p.first(); {
	case b == '{':
		v.kind = aMap
		p.elements(name, '}', func() bool {
			it, ok := p.member(depth)
			if ok {
				v.items = append(v.items, it)
			}
			return ok
		})
	case b == '[':
		v.kind = aList
		p.elements(name, ']', func() bool {
			v.list = append(v.list, p.value(name, depth+1))
			return true
		})
	case b == '"':
		p.text(name, &v)
	default:
		p.word(name, &v)
	}
	return v
}

// first is the next byte, 0 at the end.
func (p *jsonParser) first() byte {
	if len(p.src) == 0 {
		return 0
	}
	return p.src[0]
}

// elements reads what stands between the opening bracket, which is next, and
// the closing one, with commas between.
func (p *jsonParser) elements(name string, closing byte, read func() bool) {
	open := p.at
	opening := p.src[0]
	p.advance(1)
	for n := 0; ; n++ {
		p.space()
		comma := hcl.Pos{}
		if n > 0 {
			if p.first() == ',' {
				comma = p.at
				p.advance(1)
				p.space()
			} else if p.first() != closing && len(p.src) > 0 {
				if !bytes.ContainsRune([]byte(`"{[`), rune(p.src[0])) {
					p.stop(p.at, name, "has "+p.glimpse()+" where a comma or "+string(closing)+" is expected", "add what is missing")
					return
				}
				p.report(p.at, name, "has no comma before this", "add the comma")
			}
		}
		switch {
		case p.stopped:
			return
		case p.first() == closing:
			if comma.Line > 0 {
				p.report(comma, name, "has a comma too many", "remove it")
			}
			p.advance(1)
			return
		case len(p.src) == 0:
			p.stop(open, name, fmt.Sprintf(`has a "%c" that is never closed`, opening), fmt.Sprintf(`add the missing "%c"`, closing))
			return
		}
		if !read() || p.stopped {
			return
		}
	}
}

// member reads one "name": value of an object.
func (p *jsonParser) member(depth int) (item, bool) {
	it := item{at: hcl.Range{Start: p.at}, json: true}
	if p.first() != '"' {
		word := p.glimpse()
		p.stop(p.at, "", "has "+word+" where a name in quotes is expected", `write "name": value`)
		return it, false
	}
	var key value
	p.text("", &key)
	it.name, it.faults = key.text, key.faults
	p.space()
	if p.first() != ':' {
		if !p.stopped {
			p.stop(p.at, it.name, "is not followed by a colon", fmt.Sprintf(`write %q: value`, clip(it.name)))
		}
		return it, false
	}
	p.advance(1)
	p.space()
	it.value = p.value(it.name, depth+1)
	return it, !p.stopped
}

// text reads a string.
func (p *jsonParser) text(name string, v *value) {
	open := p.at
	end := 1
	for ; end < len(p.src) && p.src[end] != '"' && p.src[end] != '\n'; end++ {
		if p.src[end] == '\\' && end+1 < len(p.src) && p.src[end+1] != '\n' {
			end++
		}
	}
	if end >= len(p.src) || p.src[end] == '\n' {
		p.stop(open, name, "begins a string that does not end on its line", `add the missing quote, or write \n for a line end`)
		return
	}
	raw := p.src[:end+1]
	p.advance(end + 1)
	v.kind = aString
	switch err := json.Unmarshal(raw, &v.text); {
	case err != nil:
		p.report(open, name, "has a character or an escape that JSON does not know", `write \\ for a backslash, \t for a tab`)
	case strings.ContainsRune(v.text, 0):
		v.faults = append(v.faults, fault{hcl.Range{Start: open}, "has a NUL character", "remove it"})
	}
}

// word reads a number, true, false or null.
func (p *jsonParser) word(name string, v *value) {
	end := bytes.IndexAny(p.src, " \t\r\n,:{}[]\"")
	if end < 0 {
		end = len(p.src)
	}
	v.text = string(p.src[:end])
	switch {
	case v.text == "":
		p.stop(p.at, name, "has no value", "write one")
		return
	case v.text == "true", v.text == "false":
		v.kind = aBoolean
	case v.text == "null":
		v.kind = aNull
	case json.Valid([]byte(v.text)):
		v.kind = aNumber
	default:
		p.stop(p.at, name, "has "+p.glimpse()+", which is no JSON value", fmt.Sprintf("write %q", clip(strings.Trim(v.text, "'`"))))
		return
	}
	p.advance(end)
}

// templates gives the strings of a JSON file the meaning that they have in
// HCL: ${NAME} is for the node to fill in, $${ and %%{ are the text itself.
func templates(v value) value {
	if v.kind == aString {
		v.fill()
	}
	for i := range v.list {
		v.list[i] = templates(v.list[i])
	}
	for i := range v.items {
		v.items[i].value = templates(v.items[i].value)
	}
	return v
}

// fill reads the templates in a string.
func (v *value) fill() {
	var text textBuilder
	rest := v.text
	for {
		i := strings.IndexByte(rest, '{')
		if i < 0 {
			break
		}
		before, sign := rest[:i], byte(0)
		rest = rest[i+1:]
		if n := len(before); n > 0 {
			sign = before[n-1]
		}
		switch {
		case sign != '$' && sign != '%':
			text.WriteString(before + "{")
			continue
		case strings.HasSuffix(before, string([]byte{sign, sign})): // $${: the text itself
			text.WriteString(before[:len(before)-1] + "{")
			continue
		}
		content, after, closed := strings.Cut(rest, "}")
		rest = after
		if ref := toReference([]byte(content)); ref != nil && sign == '$' && closed {
			text.WriteString(strings.TrimSuffix(before, "$"))
			text.reference(ref, v.at)
			continue
		}
		v.template(sign, content, closed)
		text.WriteString(before + "{" + forNode(content) + "}")
	}
	text.WriteString(rest)
	text.into(v)
}

// template judges ${content} or %{content}.
func (v *value) template(sign byte, content string, closed bool) {
	message, mend := fmt.Sprintf(`has "%c{" without a closing "}"`, sign), `close it, or write $${ or %%{ for the text itself`
	switch {
	case !closed:
	case sign == '%':
		message, mend = explainDirective(clip(strings.TrimSpace(content)))
	case content != "" && (isVariable([]byte(content)) || isOfNode(content) || ofEnv.MatchString(content)):
		at := v.at
		v.filled = &at
		return
	default:
		message, mend = explainInterpolation(clip(strings.TrimSpace(content)))
	}
	v.faults = append(v.faults, fault{v.at, message, mend})
}

// expand gives the items of a JSON file the shape of blocks where the table has
// blocks (HCL's JSON syntax specification): an object is a block, a list of
// objects several, and the names of a block with a name are the object's own.
// A block or map that may be there once is also taken as a list of objects that
// belong together, as HCL 1 wrote it. "//" is a comment.
func (t *table[T]) expand(items []item) []item {
	if !slices.ContainsFunc(items, func(it item) bool { return it.json }) {
		return items
	}
	var all []item
	for _, it := range items {
		f := t.field(it.name)
		switch {
		case it.name == "//":
		case f == nil:
			all = append(all, it)
		case f.kind == kindNamed:
			all = append(all, withLabels(it, it.value)...)
		case f.kind == kindBlock && f.repeats && it.value.kind == aList:
			for _, v := range it.value.list {
				all = append(all, asBlock(it, v))
			}
		case f.kind == kindBlock:
			all = append(all, asBlock(it, merged(it.value)))
		case f.kind == kindMap, f.kind == kindTextMap:
			it.value = merged(it.value)
			all = append(all, it)
		default:
			all = append(all, it)
		}
	}
	return all
}

// withLabels makes blocks of what an object's names introduce.
func withLabels(it item, v value) []item {
	var all []item
	switch v.kind {
	case aMap:
		for _, e := range v.items {
			bodies := []value{e.value}
			if e.value.kind == aList {
				bodies = e.value.list
			}
			for _, body := range bodies {
				block := asBlock(it, body)
				block.at, block.labels, block.faults = e.at, []string{e.name}, slices.Concat(it.faults, e.faults)
				all = append(all, block)
			}
		}
	case aList:
		for _, e := range v.list {
			all = append(all, withLabels(it, e)...)
		}
	case unreadable, aWord, aNull, aBoolean, aNumber, aString, aReference:
		it.value = v
		all = append(all, it)
	}
	return all
}

// asBlock is the item with v as its body. What is no object stays a value, of
// which the field says that it is none.
func asBlock(it item, v value) item {
	it.value, it.block = v, v.kind == aMap
	return it
}

// merged is a list of objects as one object; any other value as it is.
func merged(v value) value {
	if v.kind != aList || slices.ContainsFunc(v.list, func(e value) bool { return e.kind != aMap }) {
		return v
	}
	one := value{kind: aMap, at: v.at, faults: v.faults}
	for _, e := range v.list {
		one.items = append(one.items, e.items...)
	}
	return one
}
