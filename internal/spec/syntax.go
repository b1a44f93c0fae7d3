package spec

import (
	"bytes"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// maxDepth bounds how deep blocks, lists and maps nest. The deepest place that
// means anything, a list in a task's config, is at six.
const maxDepth = 32

// item is one attribute (name = value) or one block (name "label" { ... }).
type item struct {
	name   string
	at     hcl.Range // the name
	block  bool
	json   bool // of a JSON file, which does not tell blocks from maps
	labels []string
	// faults are those of what comes before the value: name, labels, sign.
	faults []fault
	// value is the attribute's, or an object that holds the block's items.
	value value
}

// place is where a problem of the item's value is shown.
func (it item) place() hcl.Range {
	if it.block {
		return it.at
	}
	return it.value.at
}

// parser turns a file's tokens into items. Faults stay with the values that
// have them; problems are mistakes after which nobody can say what belongs to
// what, so that the file is not decoded.
type parser struct {
	src      []byte
	tokens   []hclsyntax.Token // without comments; the last one is TokenEOF
	pos      int
	problems *problems
	// stopped: the rest cannot be read, and saying more would be noise.
	stopped bool
}

// parse reads all items of a file.
func parse(src []byte, problems *problems) []item {
	// The lexer's diagnostics repeat what the parser says of the same tokens.
	lexed, _ := hclsyntax.LexConfig(src, problems.file, hcl.InitialPos)
	p := &parser{src: src, problems: problems, tokens: lexed[:0]}
	for _, t := range lexed {
		if t.Type == hclsyntax.TokenComment {
			if !bytes.HasSuffix(t.Bytes, []byte("\n")) {
				continue
			}
			t.Type = hclsyntax.TokenNewline // a line comment swallows its line's end
		}
		p.tokens = append(p.tokens, t)
	}
	return p.items(p.peek(), scope{end: hclsyntax.TokenEOF})
}

// scope is what the items that are being read stand in.
type scope struct {
	end   hclsyntax.TokenType
	name  string // of the block or map, "" for the file
	depth int
	// value: a map that is written as a value, name = { ... }, where HCL lets
	// a colon stand for the equals sign.
	value bool
}

func (p *parser) peek() hclsyntax.Token { return p.ahead(0) }

// ahead is the n-th token after the next one.
func (p *parser) ahead(n int) hclsyntax.Token { return p.tokens[min(p.pos+n, len(p.tokens)-1)] }

func (p *parser) next() hclsyntax.Token {
	t := p.peek()
	p.pos = min(p.pos+1, len(p.tokens)-1)
	return t
}

func (p *parser) skipNewlines() {
	for p.peek().Type == hclsyntax.TokenNewline {
		p.next()
	}
}

// stop reports a mistake that makes the rest of the file unreadable.
func (p *parser) stop(at hcl.Range, name, message, mend string) {
	if !p.stopped {
		p.problems.add(at, clip(name), message, mend)
	}
	p.stopped = true
	p.pos = len(p.tokens) - 1
}

// items reads what is between the opening token, which is consumed, and the
// closing one, which it consumes.
func (p *parser) items(open hclsyntax.Token, in scope) []item {
	if in.depth > maxDepth {
		p.stop(open.Range, in.name, "is nested too deep", "write it flatter")
	}
	var items []item
	for {
		p.skipNewlines()
		switch t := p.peek(); t.Type {
		case in.end:
			p.next()
			return items
		case hclsyntax.TokenEOF:
			p.stop(open.Range, in.name, `has a "{" that is never closed`, `add the missing "}"`)
			return items
		case hclsyntax.TokenIdent, hclsyntax.TokenOQuote:
			if it, ok := p.item(in); ok {
				items = append(items, it)
				p.endOfItem()
			}
		default:
			p.stray()
		}
	}
}

// item reads one attribute or block from its name on. If it is neither, it
// says so, and skips the rest of the line.
func (p *parser) item(in scope) (item, bool) {
	it := item{at: p.peek().Range}
	it.name, it.faults = p.name()
	switch t := p.peek(); t.Type {
	case hclsyntax.TokenEqual, hclsyntax.TokenColon:
		p.next()
		if t.Type == hclsyntax.TokenColon && !in.value {
			it.faults = append(it.faults, fault{t.Range, "is followed by a colon", "write " + clip(it.name) + " = ..."})
		}
		it.value = p.value(it.name, in.depth, p.endsItem)
	case hclsyntax.TokenOBrace, hclsyntax.TokenOQuote, hclsyntax.TokenIdent, hclsyntax.TokenNewline:
		if !p.header(&it) {
			return it, p.neither(it)
		}
		open := p.next()
		it.value = value{kind: aMap, at: open.Range}
		it.value.items = p.items(open, scope{end: hclsyntax.TokenCBrace, name: it.name, depth: in.depth + 1})
		if it.name == "variable" && in.depth == 0 {
			rawType(&it)
		}
	default:
		return it, p.neither(it)
	}
	return it, true
}

// neither reports a name that introduces nothing. It is always false.
func (p *parser) neither(it item) bool {
	if !p.stopped {
		p.problems.add(it.at, clip(it.name), "has neither a value nor a block", `write name = value, or name { ... }`)
	}
	p.skipRest()
	return false
}

// header reads a block's labels, up to its opening brace.
func (p *parser) header(it *item) bool {
	it.block = true
	for {
		switch p.peek().Type {
		case hclsyntax.TokenOBrace:
			return true
		case hclsyntax.TokenIdent, hclsyntax.TokenOQuote:
			label, faults := p.name()
			it.labels = append(it.labels, label)
			it.faults = append(it.faults, faults...)
		case hclsyntax.TokenNewline:
			if p.ahead(1).Type != hclsyntax.TokenOBrace {
				return false
			}
			p.next()
			it.faults = append(it.faults, fault{p.peek().Range, `has its "{" on a line of its own`, "put it on the line of the name"})
		default:
			return false
		}
	}
}

// name reads an identifier or a quoted string without templates.
func (p *parser) name() (string, []fault) {
	if p.peek().Type == hclsyntax.TokenOQuote {
		v := p.text("")
		if v.filled != nil {
			v.faults = append(v.faults, fault{*v.filled, "has ${...} in a name", "write the name itself"})
		}
		return v.text, v.faults
	}
	first := p.next()
	last := first
	// Names that drivers choose have dots and slashes, and then need quotes:
	// topology.example.com/zone.
	for t := p.peek(); t.Range.Start.Byte == last.Range.End.Byte && inName(t.Type); t = p.peek() {
		last = p.next()
	}
	name := string(p.src[first.Range.Start.Byte:last.Range.End.Byte])
	if last.Range == first.Range {
		return name, nil
	}
	return name, []fault{{first.Range, "needs quotes", `write "` + clip(name) + `"`}}
}

func inName(t hclsyntax.TokenType) bool {
	return t == hclsyntax.TokenDot || t == hclsyntax.TokenSlash || t == hclsyntax.TokenIdent || t == hclsyntax.TokenNumberLit
}

// endOfItem consumes the comma after an item. Two items may share a line, as
// they do in many of Nomad's volume files.
func (p *parser) endOfItem() {
	switch t := p.peek(); {
	case t.Type == hclsyntax.TokenComma:
		p.next()
	case p.endsItem():
	default:
		p.problems.add(t.Range, "", "has "+quote(t)+" after the end of a block", "begin a new line")
		p.skipRest()
	}
}

// endsItem reports whether an item that was read so far is complete.
func (p *parser) endsItem() bool {
	switch p.peek().Type {
	case hclsyntax.TokenNewline, hclsyntax.TokenComma, hclsyntax.TokenCBrace, hclsyntax.TokenEOF:
		return true
	default:
		return p.startsItem()
	}
}

// startsItem reports whether another item begins on the same line.
func (p *parser) startsItem() bool {
	after := 1
	switch p.peek().Type {
	case hclsyntax.TokenIdent:
		if p.ahead(1).Type == hclsyntax.TokenOQuote {
			return true
		}
	case hclsyntax.TokenOQuote:
		for after < 3 && p.ahead(after).Type != hclsyntax.TokenCQuote {
			after++
		}
		after++
	default:
		return false
	}
	t := p.ahead(after).Type
	return t == hclsyntax.TokenEqual || t == hclsyntax.TokenOBrace
}

// stray reports a token that begins nothing, and skips the rest of its line.
func (p *parser) stray() {
	switch t := p.peek(); t.Type {
	case hclsyntax.TokenCBrace:
		p.problems.add(t.Range, "", `has a "}" too many`, "remove it")
		p.next()
	case hclsyntax.TokenComma:
		p.problems.add(t.Range, "", "has a comma too many", "remove it")
		p.next()
	case hclsyntax.TokenOBrace:
		p.problems.add(t.Range, "", `has a "{" without a name before it`, "write name { ... }")
		p.skipRest()
	default:
		p.problems.add(t.Range, "", "has "+quote(t)+" where a name is expected", "write name = value, or name { ... }")
		p.skipRest()
	}
}

// skipRest skips to the end of the line, or of what closes on a later line. It
// moves by at least one token, unless the next one may end an item.
func (p *parser) skipRest() {
	switch p.peek().Type {
	case hclsyntax.TokenCParen, hclsyntax.TokenCBrack, hclsyntax.TokenTemplateSeqEnd:
		p.next()
	}
	p.skipValue()
}

// skipValue skips to where a value that cannot be read ends.
func (p *parser) skipValue() {
	depth := 0
	for start := p.pos; ; p.next() {
		switch t := p.peek(); t.Type {
		case hclsyntax.TokenOBrace, hclsyntax.TokenOBrack, hclsyntax.TokenOParen,
			hclsyntax.TokenTemplateInterp, hclsyntax.TokenTemplateControl:
			depth++
		case hclsyntax.TokenCBrace, hclsyntax.TokenCBrack, hclsyntax.TokenCParen, hclsyntax.TokenTemplateSeqEnd:
			if depth == 0 {
				return
			}
			depth--
		case hclsyntax.TokenNewline, hclsyntax.TokenComma:
			if depth == 0 {
				return
			}
		case hclsyntax.TokenQuotedNewline:
			p.stop(t.Range, "", "ends a line inside a string", `add the missing quote`)
			return
		case hclsyntax.TokenEOF:
			return
		default:
			if depth == 0 && p.pos > start && p.startsItem() {
				return
			}
		}
	}
}

// quote is a token as a message shows it.
func quote(t hclsyntax.Token) string { return `"` + clip(string(t.Bytes)) + `"` }
