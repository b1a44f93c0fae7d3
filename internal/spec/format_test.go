package spec_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/berth-dev/berth/internal/spec"
)

func TestFormat(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ src, want string }{
		"Aligns":       {"a=1\n  bcd   =  [1,2]\n", "a   = 1\nbcd = [1, 2]\n"},
		"Indents":      {"job \"a\" {\ngroup \"b\" {\ncount=1\n}\n}\n", "job \"a\" {\n  group \"b\" {\n    count = 1\n  }\n}\n"},
		"OneLineBlock": {"topology { segments { \"a.b/c\"=\"x\",  d=\"y\" } }\n", "topology { segments { \"a.b/c\" = \"x\", d = \"y\" } }\n"},
		"SeveralBracesOnALine": {
			"job \"a\" {\ngroup \"b\" {\ntask \"c\" {\nconfig {\nx = [{\na = 1 }]\n}}}}\n",
			"job \"a\" {\n  group \"b\" {\n    task \"c\" {\n      config {\n        x = [{\n          a = 1\n        }]\n      }\n    }\n  }\n}\n",
		},
		"BracketsOfTwoLines": {"a = [\n{ b = [\n1\n] }] # two\nc = [1,\n2]\n", "a = [\n  { b = [\n    1\n  ] }\n] # two\nc = [1,\n  2\n]\n"},
		"BracketsOfOneLine":  {"a = [{\nb = { c = [1] }\n}]\n", "a = [{\n  b = { c = [1] }\n}]\n"},
		"BracesInText":       {"a = \"}} {\"\nb = <<EOT\n{ }}\nEOT\n", "a = \"}} {\"\nb = <<EOT\n{ }}\nEOT\n"},
		"EndsTheLastLine":    {"a = 1", "a = 1\n"},
		"LineEnds":           {"\xef\xbb\xbfa = <<EOT\r\nx\r\nEOT\r\n", "a = <<EOT\nx\nEOT\n"},
		"KeepsComments":      {"# one\na=1 // two\n/* three */\n", "# one\na = 1 // two\n/* three */\n"},
		"UnknownNames":       {"frobnicate   =   true\n", "frobnicate = true\n"},
		"Nothing":            {"", ""},
	} {
		got, err := spec.Format("a.hcl", []byte(c.src))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(c.want, string(got)); diff != "" {
			t.Errorf("%s: want and got differ (-want +got):\n%s", name, diff)
		}
	}
}

func TestFormatRefuses(t *testing.T) {
	t.Parallel()
	for src, want := range map[string]string{
		"a = {\n":                                "a.hcl has a problem\n  a.hcl:1:5: a has a \"{\" that is never closed; add the missing \"}\"",
		"a = 1 + 2\n":                            "a.hcl has a problem\n  a.hcl:1:5: a is not a plain value; write a string, a number, true, false, a list or a map",
		"job \"x\" {\n  group y {\n a = b\n}\n}": "a.hcl has a problem\n  a.hcl:3:6: job[\"x\"].group[\"y\"].a has no quotes; write \"b\"",
		"a = b\nc":                               "a.hcl has 2 problems\n  a.hcl:1:5: a has no quotes; write \"b\"\n  a.hcl:2:1: c has neither a value nor a block; write name = value, or name { ... }",
		"a = \"\x00\"":                           "a.hcl has a problem\n  a.hcl:1:6: is not text in UTF-8; save it as UTF-8",
	} {
		_, err := spec.Format("a.hcl", []byte(src))
		if diff := cmp.Diff(want, message(t, err)); diff != "" {
			t.Errorf("%q: want and got differ (-want +got):\n%s", src, diff)
		}
	}
}

func TestFormatTakesTheLargestFile(t *testing.T) {
	t.Parallel()
	src := "#" + strings.Repeat("-", spec.MaxFileSize-1)
	if _, err := spec.Format("a.hcl", []byte(src)); err != nil {
		t.Errorf("format: %v", err)
	}
	_, err := spec.Format("a.hcl", []byte(src+"-"))
	if want := "a.hcl has a problem\n  a.hcl:1:1: is larger than 1024 KiB; split the file"; message(t, err) != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// What is formatted means what it meant, and is not formatted any further.
func TestFormatKeepsTheMeaning(t *testing.T) {
	t.Parallel()
	archives, err := filepath.Glob("testdata/good/*.txtar")
	if err != nil || len(archives) == 0 {
		t.Fatalf("find archives: %d found, %v", len(archives), err)
	}
	for _, path := range archives {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		src := string(archive.Files[0].Data)
		once, err := spec.Format("a.hcl", []byte(src))
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		twice, err := spec.Format("a.hcl", once)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if diff := cmp.Diff(string(once), string(twice)); diff != "" {
			t.Errorf("%s: formatting again changes it:\n%s", path, diff)
		}
		if diff := cmp.Diff(withoutLines(mustParse(t, src)), withoutLines(mustParse(t, string(once)))); diff != "" {
			t.Errorf("%s: formatting changes the meaning:\n%s", path, diff)
		}
		if strings.Contains(string(once), "\t") {
			t.Errorf("%s: has tabs", path)
		}
	}
}

// withoutLines drops what formatting may move.
func withoutLines(f *spec.File) *spec.File {
	for i := range f.Warnings {
		f.Warnings[i].Line, f.Warnings[i].Column = 0, 0
	}
	return f
}
