package spec

import (
	"bytes"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// kind is what a value is.
type kind int

// The kinds. Unreadable is the zero kind: the value's faults say why.
const (
	unreadable kind = iota
	aWord           // a string without quotes; the faults say so
	aNull
	aBoolean
	aNumber
	aString
	aList
	aMap
	aReference // var.x or local.x, until it is resolved
)

// value is a plain value as the file has it.
type value struct {
	kind kind
	at   hcl.Range // its first token
	// text is a string's content; for words, numbers and booleans, how they are
	// written.
	text string
	// filled is the first ${NAME} or ${attr.name} in a string, which only the node
	// can fill in.
	// It stays in text as it is.
	filled *hcl.Range
	// braces are the places of each {{ in a string of an HCL file.
	braces []hcl.Range
	list   []value
	items  []item
	faults []fault
	// ref is what a reference names, and parts are those of a text in which var.x
	// or local.x stands.
	ref   hcl.Traversal
	parts []part
	// raw is how something that cannot be read is written.
	raw string
	// named: the faults are those of references, of which no message gives away a
	// secret.
	named bool
	// silent: why it cannot be read was said elsewhere.
	silent bool
}

// String is what the value is, as a message says it.
func (v value) String() string {
	switch v.kind {
	case aWord:
		return "the word " + clip(v.text)
	case aNull:
		return "null"
	case aBoolean:
		return v.text
	case aNumber:
		return "the number " + clip(v.text)
	case aString:
		return "a string"
	case aList:
		return "a list"
	case aMap:
		return "a map"
	case unreadable, aReference:
	}
	return "not readable"
}

// fault is a mistake in a value or beside it that leaves the rest of the file
// readable. The decoder reports it, because the decoder knows the field's path.
type fault struct {
	at            hcl.Range
	message, mend string
}

// value reads the value of the name, which ends where ends says so.
func (p *parser) value(name string, depth int, ends func() bool) value {
	first := p.pos
	v := p.literal(name, depth+1)
	if p.stopped || v.kind != unreadable && ends() {
		return v
	}
	p.skipValue()
	return p.blame(first, v.faults)
}

// literal reads a plain value. What is none is left for the caller to skip.
func (p *parser) literal(name string, depth int) value {
	t := p.peek()
	v := value{at: t.Range, text: string(t.Bytes)}
	switch t.Type {
	case hclsyntax.TokenOQuote, hclsyntax.TokenOHeredoc:
		return p.text(name)
	case hclsyntax.TokenOBrack:
		return p.list(name, depth)
	case hclsyntax.TokenOBrace:
		v.kind = aMap
		v.items = p.items(p.next(), scope{end: hclsyntax.TokenCBrace, name: name, depth: depth, value: true})
		return v
	case hclsyntax.TokenNumberLit:
		v.kind = aNumber
	case hclsyntax.TokenMinus:
		if p.ahead(1).Type == hclsyntax.TokenNumberLit {
			v.kind = aNumber
			p.next()
			v.text += string(p.peek().Bytes)
		}
	case hclsyntax.TokenIdent:
		switch v.text {
		case "true", "false":
			v.kind = aBoolean
		case "null":
			v.kind = aNull
		case "var", "local":
			return p.reference()
		}
	}
	if v.kind != unreadable {
		p.next()
	}
	return v
}

// reference reads var.x or local.x. What is none is left for the caller to skip.
func (p *parser) reference() value {
	start, first := p.pos, p.next()
	last, open := first, 0
	for t := p.peek(); t.Range.Start.Byte == last.Range.End.Byte && inReference(t.Type); t = p.peek() {
		switch t.Type {
		case hclsyntax.TokenOBrack:
			open++
		case hclsyntax.TokenCBrack:
			open--
		}
		if open < 0 { // the bracket of a list that it stands in
			break
		}
		last = p.next()
	}
	ref := toReference(p.src[first.Range.Start.Byte:last.Range.End.Byte])
	if ref == nil {
		p.pos = start
		return value{at: first.Range}
	}
	return value{kind: aReference, at: first.Range, ref: ref}
}

func inReference(t hclsyntax.TokenType) bool {
	switch t {
	case hclsyntax.TokenDot, hclsyntax.TokenIdent, hclsyntax.TokenNumberLit, hclsyntax.TokenOBrack, hclsyntax.TokenCBrack,
		hclsyntax.TokenOQuote, hclsyntax.TokenQuotedLit, hclsyntax.TokenCQuote:
		return true
	default:
		return false
	}
}

// maxReference bounds a reference, in bytes.
const maxReference = 1000

// toReference is what a reference to a variable or a local names, nil if it is none.
func toReference(src []byte) hcl.Traversal {
	src = bytes.TrimSpace(src)
	if len(src) > maxReference || !bytes.HasPrefix(src, []byte("var.")) && !bytes.HasPrefix(src, []byte("local.")) {
		return nil
	}
	t, diags := hclsyntax.ParseTraversalAbs(src, "", hcl.InitialPos)
	if diags.HasErrors() || len(t) < 2 {
		return nil
	}
	if _, named := t[1].(hcl.TraverseAttr); !named {
		return nil
	}
	return t
}

// list reads [a, b, c].
func (p *parser) list(name string, depth int) value {
	open := p.next()
	v := value{kind: aList, at: open.Range}
	if depth > maxDepth {
		p.stop(open.Range, name, "is nested too deep", "write it flatter")
	}
	for {
		p.skipNewlines()
		switch p.peek().Type {
		case hclsyntax.TokenCBrack:
			p.next()
			return v
		case hclsyntax.TokenCBrace, hclsyntax.TokenCParen, hclsyntax.TokenTemplateSeqEnd, hclsyntax.TokenEOF:
			p.stop(open.Range, name, `has a "[" that is never closed`, `add the missing "]"`)
			return v
		}
		v.list = append(v.list, p.value(name, depth, p.endsElement))
		p.skipNewlines()
		switch t := p.peek(); {
		case t.Type == hclsyntax.TokenComma:
			p.next()
		case !endsElement(t.Type):
			v.faults = append(v.faults, fault{t.Range, "has no comma before this element", "add the comma"})
		}
	}
}

// endsElement reports whether a list's element that was read so far is
// complete. It also is if the next one begins: the comma is missing then.
func (p *parser) endsElement() bool {
	t := p.peek()
	apart := t.Range.Start.Byte > p.tokens[p.pos-1].Range.End.Byte
	switch t.Type {
	case hclsyntax.TokenOQuote, hclsyntax.TokenOHeredoc, hclsyntax.TokenNumberLit,
		hclsyntax.TokenIdent, hclsyntax.TokenOBrack, hclsyntax.TokenOBrace:
		return apart
	default:
		return endsElement(t.Type)
	}
}

func endsElement(t hclsyntax.TokenType) bool {
	switch t {
	case hclsyntax.TokenComma, hclsyntax.TokenNewline, hclsyntax.TokenEOF,
		hclsyntax.TokenCBrack, hclsyntax.TokenCBrace, hclsyntax.TokenCParen:
		return true
	default:
		return false
	}
}

// blame makes a value of what stands from the token first up to here and is
// none, with a fault that says why, beside the faults that it already has.
func (p *parser) blame(first int, faults []fault) value {
	at := p.tokens[first].Range
	v := value{at: at, faults: faults}
	fail := func(message, mend string) value {
		v.faults = append(v.faults, fault{at, message, mend})
		return v
	}
	if p.pos == first {
		return fail("has no value", "write one")
	}
	last := p.tokens[p.pos-1]
	raw := string(p.src[at.Start.Byte:last.Range.End.Byte])
	name, _, call := strings.Cut(raw, "(")
	v.raw = raw
	switch {
	case last.Type == hclsyntax.TokenSemicolon:
		at = last.Range
		return fail("ends with a semicolon", "remove it; a new line ends a value")
	case call && hclsyntax.ValidIdentifier(name):
		return fail(explainCall(name))
	case strings.HasPrefix(raw, "var.") || strings.HasPrefix(raw, "local."):
		return fail("is "+clip(raw)+", and Berth's files do not calculate", "give the result as a variable")
	case strings.HasPrefix(raw, "'") || strings.HasPrefix(raw, "`") || strings.HasPrefix(raw, "“"):
		return fail("has the wrong quotes", `write "`+clip(strings.Trim(raw, "'`“”"))+`"`)
	case isBareWord(raw):
		v.kind, v.text = aWord, raw
		return fail("has no quotes", `write "`+clip(raw)+`"`)
	default:
		return fail("is not a plain value", "write a string, a number, true, false, a list or a map")
	}
}

// isBareWord reports whether the text would be a fine string, had it quotes.
func isBareWord(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r > '~' || strings.ContainsRune("\"\\${}[](),;=<>!?&|*'`", r)
	})
}
