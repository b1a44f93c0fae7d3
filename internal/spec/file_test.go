package spec_test

import (
	"bytes"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/spec"
)

// volume is a volume with whatever else is to be in it.
func volume(more string) string {
	return `id        = "pg"
plugin_id = "local"
` + more + `
capability {
  access_mode     = "single-node-writer"
  attachment_mode = "file-system"
}
`
}

// task is a job with a task that has whatever else is to be in it.
func task(more string) string {
	return "job \"web\" {\n  group \"db\" {\n    task \"writer\" {\n      driver = \"exec\"\n" + more + "\n    }\n  }\n}\n"
}

func mustParse(t *testing.T, src string) *spec.File {
	t.Helper()
	file, err := spec.Parse("a.hcl", []byte(src))
	if err != nil {
		t.Fatalf("parse: %v\n%s", err, src)
	}
	return file
}

func TestParseReadsWhatEditorsWrite(t *testing.T) {
	t.Parallel()
	const heredoc = "      config {\n        text = <<EOT\none\ntwo\nEOT\n      }"
	want := mustParse(t, task(heredoc))
	for name, src := range map[string]string{
		"CRLF":              strings.ReplaceAll(task(heredoc), "\n", "\r\n"),
		"ByteOrderMark":     "\xef\xbb\xbf" + task(heredoc),
		"NoLineEnd":         strings.TrimSuffix(task(heredoc), "\n"),
		"CommentAtTheStart": "# hello" + "\n" + task(heredoc),
		"CommentAtTheEnd":   task(heredoc) + "// bye",
		"CommentBetween":    strings.ReplaceAll(task(heredoc), "driver =", "driver /* of\n many */ ="),
		"Tabs":              strings.ReplaceAll(task(heredoc), "        text", "\t\ttext"),
	} {
		if diff := cmp.Diff(want, mustParse(t, src)); diff != "" {
			t.Errorf("%s: want and got differ (-want +got):\n%s", name, diff)
		}
	}
	file := mustParse(t, "id = \"pg\"\nplugin_id = \"local\"\ncapability {\n  access_mode = \"single-node-writer\"\n"+
		"  attachment_mode = \"file-system\"\n}\nname = <<EOT\nx\nEOT")
	if got := file.Volumes[0].Spec.Name; got != "x\n" {
		t.Errorf("a heredoc at the end of the file is %q, want %q", got, "x\n")
	}
}

func TestParseRefusesWhatIsNoText(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ src, want string }{
		"NUL":          {"id = \"pg\"\n\x00", "a.hcl:2:1: is not text in UTF-8; save it as UTF-8"},
		"NULInString":  {"id = \"p\x00\"\n", "a.hcl:1:8: is not text in UTF-8; save it as UTF-8"},
		"Latin1":       {volume("name = \"caf\xe9\""), "a.hcl:3:12: is not text in UTF-8; save it as UTF-8"},
		"UTF16":        {"\xff\xfei\x00d\x00", "a.hcl:1:1: is not text in UTF-8; save it as UTF-8"},
		"CarriageOnly": {"id = \"pg\"\rx", "a.hcl:1:6: id is not a plain value; write a string, a number, true, false, a list or a map"},
		"TooLarge":     {strings.Repeat("#", spec.MaxFileSize) + "\n", "a.hcl:1:1: is larger than 1024 KiB; split the file"},
	} {
		_, err := spec.Parse("a.hcl", []byte(c.src))
		if got := message(t, err); !strings.Contains(got, c.want) {
			t.Errorf("%s: got\n%s\nwant in it\n%s", name, got, c.want)
		}
	}
}

func TestParseReadsTheLargestFile(t *testing.T) {
	t.Parallel()
	src := volume("name = \"x\"\n#") // the padding becomes a comment
	src = strings.Replace(src, "#", "#"+strings.Repeat("-", spec.MaxFileSize-len(src)), 1)
	if len(src) != spec.MaxFileSize {
		t.Fatalf("the file has %d bytes", len(src))
	}
	mustParse(t, src)
}

// TestMain bounds the stack, so that recursion which follows the input's depth
// ends a test at once, and not only for the largest file.
func TestMain(m *testing.M) {
	debug.SetMaxStack(2 << 20)
	os.Exit(m.Run())
}

func TestParseSurvivesWhatNeverEnds(t *testing.T) {
	t.Parallel()
	const size = 12 << 10
	for name, unit := range map[string]string{
		"Lists": "[", "Maps": "{", "NestedMaps": "{a=", "Blocks": "a {", "Parentheses": "(", "Minus": "-", "Not": "!",
		"Interpolations": `"${`, "Directives": "%{", "Directive": `"%{if x}`, "Conditions": "x ? ", "Calls": "f(",
		"Heredocs": "<<E\n", "Quotes": `"`, "Commas": ",", "Closers": "]", "Braces": "}\n", "Equals": "=\n", "Names": "a\n",
		"OneLine": "a=1 ", "Lines": "a=1\n", "Dots": "a.", "Labels": `a "b" `, "Colons": "a:", "Semicolons": ";", "Elements": "[1 2],",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, before := range []string{"", "a = ", "a = \"", "parameters {\n"} {
				_, err := spec.Parse("a.hcl", []byte(before+strings.Repeat(unit, size/len(unit))))
				if n := strings.Count(message(t, err), "\n"); n > 101 {
					t.Errorf("after %q: the answer has %d lines", before, n)
				}
			}
		})
	}
}

func TestParseBoundsTheNumberOfProblems(t *testing.T) {
	t.Parallel()
	_, err := spec.Parse("a.hcl", []byte(volume(strings.Repeat("oops = 1\n", 3)+manyNames(150))))
	got := message(t, err)
	if n := strings.Count(got, "\n"); n != 101 {
		t.Errorf("the answer has %d lines, want 100 problems and their rest", n)
	}
	if want := "there are 53 more problems than are listed; mend these first"; !strings.HasSuffix(got, want) {
		t.Errorf("the answer does not end with %q:\n%s", want, got)
	}
}

func manyNames(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "unknown%d = 1\n", i)
	}
	return b.String()
}

func TestParseQuotesLittleOfTheFile(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é.", 10_000)
	for _, src := range []string{
		volume(`capacity_min = "` + long + `"`), volume(`name = ` + long), volume(`"` + long + `" = 1`),
		volume("parameters {\n\"" + long + "\" = []\n}"), volume(`type = "` + long + `"`), volume("capability \"" + long + "\" {\n}"),
		task(`kill_timeout = "` + long + `"`), task(`kill_signal = "` + long + `"`), task("config {\na = \"${" + long + "}\"\n}"),
		`job "` + long + `" {` + "\n}", `volume "` + long + `" {` + "\n}", "job \"a\" {\ngroup \"" + long + "\" {\n}\n}", long + "(", long + " {",
	} {
		_, err := spec.Parse("a.hcl", []byte(src))
		if got := message(t, err); len(got) > 2000 {
			t.Errorf("the answer to %.30q has %d bytes: %.300s", src, len(got), got)
		}
	}
}

func TestParseNamesAFileWithoutAName(t *testing.T) {
	t.Parallel()
	_, err := spec.Parse("", []byte("a"))
	if got := message(t, err); !strings.HasPrefix(got, "the file has a problem") {
		t.Errorf("got %s", got)
	}
}

func TestParseKeepsItsInput(t *testing.T) {
	t.Parallel()
	src := []byte("\xef\xbb\xbf" + strings.ReplaceAll(task("config {\r\n}"), "\n", "\r\n"))
	src = src[: len(src)-2 : len(src)]
	before := bytes.Clone(src[:cap(src)])
	if _, err := spec.Parse("a.hcl", src); err != nil {
		t.Fatal(err)
	}
	if _, err := spec.Format("a.hcl", src); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(before, src[:cap(src)]) {
		t.Error("the input was changed")
	}
}

func TestParseGivesEachJobItsOwnDefaults(t *testing.T) {
	t.Parallel()
	second := strings.ReplaceAll(strings.ReplaceAll(task(""), "web", "b"), "group \"db\" {", "group \"db\" {\n    count = 3")
	file := mustParse(t, second+task(""))
	if got := file.Jobs[1].Spec; got.Type != api.JobService || got.Groups[0].Count != 1 {
		t.Errorf("got type %q and count %d, want service and 1", got.Type, got.Groups[0].Count)
	}
}

// BenchmarkParse reads a file of ordinary jobs that is as large as allowed.
func BenchmarkParse(b *testing.B) {
	var src strings.Builder
	for i := 0; src.Len() < spec.MaxFileSize-400; i++ {
		src.WriteString(strings.ReplaceAll(task("config {\n command = \"/bin/sh\"\n args = [\"-c\", \"echo ${BERTH_ALLOC_ID}\"]\n}"),
			"web", fmt.Sprintf("web-%d", i)))
	}
	b.SetBytes(int64(src.Len()))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := spec.Parse("a.hcl", []byte(src.String())); err != nil {
			b.Fatal(err)
		}
	}
}
