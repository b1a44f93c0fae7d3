package spec_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/internal/spec"
)

// page is the documentation of the files. What stands below the mark is made
// from the parser's tables, and written by the test with -update.
const (
	page = "../../docs/files.md"
	mark = "<!-- From here on made from the parser's tables: go test ./internal/spec -run Page -update -->\n"
)

// TestPageIsTheTables compares the reference of docs/files.md with the tables.
func TestPageIsTheTables(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	prose, have, found := strings.Cut(string(b), mark)
	if !found {
		t.Fatalf("%s has no line %s", page, mark)
	}
	want := reference(spec.Reference())
	if *update {
		if err := os.WriteFile(page, []byte(prose+mark+want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("%s is not what the tables say; run the test with -update (-tables +page):\n%s", page, diff)
	}
}

// reference is the tables as a reader of the documentation sees them.
func reference(blocks []spec.Block) string {
	var b strings.Builder
	for _, block := range blocks {
		title := block.Path
		if title == "" {
			title = "The file"
		}
		fmt.Fprintf(&b, "\n### %s\n\n%s\n\n| Name | Value | Meaning |\n|---|---|---|\n", title, block.Doc)
		for _, f := range block.Fields {
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", f.Name, kindOf(block.Path, f), meaningOf(f))
		}
		writeForeign(&b, block.Foreign)
	}
	return b.String()
}

// kindOf is what the value is; a block's leads to its own table.
func kindOf(path string, f spec.Entry) string {
	if !strings.HasPrefix(f.Kind, "block") {
		return f.Kind
	}
	at := strings.TrimPrefix(path+"."+f.Name, ".")
	kind := f.Kind
	if f.Repeats {
		kind = strings.Replace(kind, "block", "blocks", 1)
	}
	return fmt.Sprintf("[%s](#%s)", kind, strings.ReplaceAll(at, ".", ""))
}

func meaningOf(f spec.Entry) string {
	text := f.Doc
	if len(f.Words) > 0 {
		text += " One of `" + strings.Join(f.Words, "`, `") + "`."
	}
	switch {
	case f.Example != "":
		text += " Must be there: `" + f.Example + "`."
	case f.Default != "":
		text += " If absent: " + f.Default + "."
	}
	return strings.ReplaceAll(text, "|", `\|`)
}

// writeForeign says of Nomad's names why they are refused, those with one reason
// together.
func writeForeign(b *strings.Builder, foreign []spec.Foreign) {
	if len(foreign) == 0 {
		return
	}
	fmt.Fprint(b, "\nKnown from Nomad:\n\n")
	for len(foreign) > 0 {
		first := foreign[0]
		var names []string
		for len(foreign) > 0 && foreign[0].Why == first.Why && slices.Equal(foreign[0].Unless, first.Unless) {
			names = append(names, "`"+foreign[0].Name+"`")
			foreign = foreign[1:]
		}
		verdict := "refused"
		if first.Harmless {
			verdict = "ignored, with a warning"
		}
		if len(first.Unless) > 0 {
			verdict += ", but for `" + strings.Join(first.Unless, "` and `") + "`, with which there is a warning"
		}
		fmt.Fprintf(b, "- %s: %s; %s.\n", strings.Join(names, ", "), verdict, first.Why)
	}
}
