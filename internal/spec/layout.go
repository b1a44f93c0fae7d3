package spec

import (
	"bytes"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// closersApart begins a line for each bracket that closes one of an earlier line,
// unless it follows one that closes a bracket of the same line. hclwrite indents by
// lines: where one closes what several have opened, it has no place for that.
func closersApart(src []byte) []byte {
	tokens, _ := hclsyntax.LexConfig(src, "", hcl.InitialPos) // what cannot be read is not formatted
	var (
		out    bytes.Buffer
		done   int
		opened []int // the lines of the open brackets
		begins = true
		beside = -1 // the line that opened what the token before has closed
	)
	for _, t := range tokens {
		closes := -1
		switch t.Type {
		case hclsyntax.TokenOBrace, hclsyntax.TokenOBrack:
			opened = append(opened, t.Range.Start.Line)
		case hclsyntax.TokenCBrace, hclsyntax.TokenCBrack:
			if len(opened) == 0 {
				return src
			}
			closes, opened = opened[len(opened)-1], opened[:len(opened)-1]
			if !begins && closes != beside && closes != t.Range.Start.Line {
				out.Write(bytes.TrimRight(src[done:t.Range.Start.Byte], " \t"))
				out.WriteByte('\n')
				done = t.Range.Start.Byte
			}
		}
		begins, beside = bytes.HasSuffix(t.Bytes, []byte("\n")), closes
	}
	out.Write(src[done:])
	return out.Bytes()
}
