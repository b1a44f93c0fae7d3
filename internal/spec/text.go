package spec

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/berth-dev/berth/api"
)

// text reads the name's quoted string or heredoc.
func (p *parser) text(name string) value {
	open := p.next()
	v := value{kind: aString, at: open.Range}
	for {
		switch t := p.peek(); t.Type {
		case hclsyntax.TokenQuotedLit, hclsyntax.TokenStringLit:
			p.next()
		case hclsyntax.TokenTemplateInterp:
			p.template(name, &v, explainInterpolation)
		case hclsyntax.TokenTemplateControl:
			p.template(name, &v, explainDirective)
		case hclsyntax.TokenCQuote, hclsyntax.TokenCHeredoc:
			p.next()
			if len(v.faults) == 0 {
				p.unquote(&v, open, t)
				v.braces = bracesIn(p.src[open.Range.End.Byte:t.Range.Start.Byte], open.Range)
			}
			return v
		default:
			if open.Type == hclsyntax.TokenOHeredoc {
				marker := strings.TrimSpace(strings.TrimLeft(string(open.Bytes), "<-"))
				p.stop(open.Range, name, "begins a text that never ends", "end it with a line that holds only "+clip(marker))
			} else {
				p.stop(open.Range, name, "begins a string that does not end on its line", "add the missing quote, or write <<EOT for several lines")
			}
			return v
		}
	}
}

// bracesIn are the places of each {{ in what follows the opening quote or mark.
func bracesIn(src []byte, open hcl.Range) (places []hcl.Range) {
	at := open.End
	for {
		i := bytes.Index(src, []byte("{{"))
		if i < 0 {
			return places
		}
		for _, r := range string(src[:i]) {
			if at.Column++; r == '\n' {
				at.Line, at.Column = at.Line+1, 1
			}
		}
		at.Byte += i
		places = append(places, hcl.Range{Filename: open.Filename, Start: at, End: at})
		src, at.Byte, at.Column = src[i+len("{{"):], at.Byte+len("{{"), at.Column+len("{{")
	}
}

// template reads ${...} or %{...}. Only ${NAME} is allowed; of anything else,
// explain says what is wrong.
func (p *parser) template(name string, v *value, explain func(content string) (message, mend string)) {
	open := p.next()
	first := p.pos
	for depth := 1; depth > 0; p.next() {
		switch p.peek().Type {
		case hclsyntax.TokenTemplateInterp, hclsyntax.TokenTemplateControl:
			depth++
		case hclsyntax.TokenTemplateSeqEnd:
			depth--
		case hclsyntax.TokenNewline, hclsyntax.TokenQuotedNewline, hclsyntax.TokenEOF:
			p.stop(open.Range, name, "has "+quote(open)+` without a closing "}" on its line`,
				`close it, or write $${ or %%{ for the text itself`)
			return
		}
	}
	content := p.tokens[first : p.pos-1]
	inside := p.src[open.Range.End.Byte:p.tokens[p.pos-1].Range.Start.Byte]
	named := len(content) == 1 && content[0].Type == hclsyntax.TokenIdent && isVariable(content[0].Bytes)
	if open.Bytes[0] == '$' && toReference(inside) != nil {
		return
	}
	if open.Bytes[0] == '$' && (named || isOfNode(string(inside)) || ofEnv.Match(inside)) {
		if v.filled == nil {
			v.filled = &open.Range
		}
		return
	}
	message, mend := explain(clip(strings.TrimSpace(string(inside))))
	v.faults = append(v.faults, fault{open.Range, message, mend})
}

// isOfNode reports whether it is filled in from the node's profile.
func isOfNode(s string) bool { return ofNode.MatchString(s) && api.Resolves(s) }

// ofNode matches how that is written.
var ofNode = regexp.MustCompile(`^(attr|meta|node)(\.[A-Za-z_][A-Za-z0-9_-]*)+$`)

// ofEnv matches another way to write ${NAME}.
var ofEnv = regexp.MustCompile(`^env(?:\.|\[")([A-Za-z_][A-Za-z0-9_]*)(?:"\])?$`)

// envName matches how environment variables are written, those included that
// end with a name of the user's: BERTH_VOLUME_data.
var envName = regexp.MustCompile(`^[A-Z_]([A-Z0-9_]*|[A-Z0-9_]*_[A-Za-z0-9_-]+)$`)

// isVariable reports whether the name is written as environment variables are.
func isVariable(name []byte) bool { return envName.Match(name) }

func explainInterpolation(content string) (message, mend string) {
	mend = "write $${" + content + "} for the text itself"
	if ofNode.MatchString(content) {
		return explainUnknown(content, mend)
	}
	root, _, _ := strings.Cut(strings.ReplaceAll(content, "[", "."), ".")
	switch root {
	case "node", "attr", "meta", "env":
		return "has ${" + content + "}, and that is written ${attr.name}, ${meta.name} or ${NAME}", mend
	case "var", "local":
		return "has ${" + content + "}, and Berth's files do not calculate", "give the result as a variable"
	}
	if name, _, call := strings.Cut(content, "("); call {
		return explainCall(name)
	}
	message = "has ${" + content + "}, and only ${NAME} is filled in, NAME being an environment variable of the task"
	if hclsyntax.ValidIdentifier(content) {
		mend = fmt.Sprintf("declare variable %q {} and write ${var.%s}, or ", content, content) + mend
	}
	return message, mend
}

// explainUnknown is about what no node has.
func explainUnknown(name, literal string) (message, mend string) {
	message = "has ${" + name + "}, which no node has"
	last := name[strings.LastIndexByte(name, '.'):]
	meta := func() (message, mend string) {
		return "has ${" + name + "}, which no node has",
			"use ${meta" + last + "}, and say what it is in the agents' configuration: client { meta = { " + last[1:] + ` = "..." } }`
	}
	switch last {
	case ".dc", ".pool":
		return meta()
	}
	if strings.Contains(name, ".platform.") { // what clouds know of their machines
		return meta()
	}
	ending := func(among []string, end string) []string {
		return slices.DeleteFunc(slices.Clone(among), func(v string) bool { return !strings.HasSuffix(v, end) })
	}
	root, _, _ := strings.Cut(name, ".")
	own := slices.DeleteFunc(api.NodeValues(), func(v string) bool { return !strings.HasPrefix(v, root+".") })
	for _, alike := range [][]string{ending(own, last), ending(api.NodeValues(), last), {nearest(name, api.NodeValues())}} {
		if len(alike) == 1 && alike[0] != "" {
			return message, "did you mean ${" + alike[0] + "}?"
		}
	}
	return message, "use ${meta.NAME} of the agents' configuration, one of ${" + strings.Join(own, "}, ${") + "}, or " + literal
}

// explainCall is about the call of a function.
func explainCall(name string) (message, mend string) {
	mend = "write the value itself, or give it with a variable"
	if strings.HasPrefix(name, "file") {
		mend = `declare a variable for what the file holds, and give it with --var x="$(cat FILE)"`
	}
	return fmt.Sprintf("calls the function %q, and Berth's files have no functions", clip(name)), mend
}

func explainDirective(content string) (message, mend string) {
	return "has %{" + content + "}, and Berth's files have no directives", "write %%{" + content + "} for the text itself"
}

// unquote sets v.text to what is between the tokens open and end: escapes
// replaced, a heredoc's indentation removed, each ${NAME} as it is.
func (p *parser) unquote(v *value, open, end hclsyntax.Token) {
	src := p.src[open.Range.Start.Byte:end.Range.End.Byte]
	if open.Type == hclsyntax.TokenOHeredoc {
		src = append(slices.Clip(src), '\n') // its end mark is a whole line
	}
	expr, diags := hclsyntax.ParseExpression(src, open.Range.Filename, open.Range.Start)
	for _, d := range diags {
		// Nothing else can be wrong with a string whose templates are checked.
		at := open.Range
		if d.Subject != nil && d.Subject.End.Byte <= len(p.src) {
			at = *d.Subject
		}
		escape := string(p.src[at.Start.Byte:at.End.Byte])
		v.faults = append(v.faults, fault{at, "has the escape " + clip(escape) + ", which HCL does not know", `write \\ for a backslash`})
	}
	if diags.HasErrors() {
		return
	}
	var b textBuilder
	for _, part := range templateParts(expr) {
		switch part := part.(type) {
		case *hclsyntax.LiteralValueExpr:
			if part.Val.Type() == cty.String {
				b.WriteString(part.Val.AsString())
			}
		case *hclsyntax.ScopeTraversalExpr:
			if root := part.Traversal.RootName(); root == "var" || root == "local" {
				b.reference(part.Traversal, part.SrcRange)
			} else {
				b.WriteString("${" + forNode(written(part.Traversal)) + "}")
			}
		}
	}
	b.into(v)
	if strings.ContainsRune(v.text, 0) {
		v.faults = append(v.faults, fault{open.Range, "has a NUL character", "remove it"})
	}
}

// textBuilder collects the parts of a text.
type textBuilder struct {
	strings.Builder
	parts []part
}

// reference adds var.x or local.x.
func (b *textBuilder) reference(ref hcl.Traversal, at hcl.Range) {
	b.parts = append(b.parts, part{text: b.String()}, part{ref: ref, at: at})
	b.Reset()
}

// into sets what the value is: a text, a text in parts, or all of what it refers to.
func (b *textBuilder) into(v *value) {
	v.text = b.String()
	switch {
	case len(b.parts) == 2 && b.parts[0].text == "" && v.text == "":
		v.kind, v.ref = aReference, b.parts[1].ref
	case len(b.parts) > 0:
		b.parts = append(b.parts, part{text: v.text})
		v.parts, v.text = b.parts, ""
	}
}

// forNode is a reference as the node reads it.
func forNode(ref string) string {
	if m := ofEnv.FindStringSubmatch(ref); m != nil {
		return m[1]
	}
	return ref
}

// written is a reference as it stands in the file.
func written(t hcl.Traversal) string {
	var b strings.Builder
	for _, step := range t {
		switch step := step.(type) {
		case hcl.TraverseRoot:
			b.WriteString(step.Name)
		case hcl.TraverseAttr:
			b.WriteString("." + step.Name)
		case hcl.TraverseIndex:
			if step.Key.Type() == cty.String {
				b.WriteString("[" + strconv.Quote(step.Key.AsString()) + "]")
			} else {
				b.WriteString("[" + indexText(step) + "]")
			}
		}
	}
	return b.String()
}

// indexText is what stands in the brackets of an index, without quotes.
func indexText(i hcl.TraverseIndex) string {
	if i.Key.Type() == cty.String {
		return i.Key.AsString()
	}
	return i.Key.AsBigFloat().Text('f', -1)
}

func templateParts(expr hclsyntax.Expression) []hclsyntax.Expression {
	switch expr := expr.(type) {
	case *hclsyntax.TemplateExpr:
		return expr.Parts
	case *hclsyntax.TemplateWrapExpr:
		return []hclsyntax.Expression{expr.Wrapped}
	default:
		return []hclsyntax.Expression{expr}
	}
}
