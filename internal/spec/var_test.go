package spec_test

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/spec"
)

func TestParseVar(t *testing.T) {
	t.Parallel()
	items := func(pairs ...string) api.VariableSpec {
		m := map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			m[pairs[i]] = pairs[i+1]
		}
		return api.VariableSpec{Items: m}
	}
	for name, tc := range map[string]struct {
		src  string
		in   spec.Language
		want spec.Var
	}{
		"items alone": {"items {\n  token = \"a\"\n}", "", spec.Var{Spec: items("token", "a")}},
		"all": {"path = \"nomad/jobs/db\"\nnamespace = \"ops\"\nitems {\n  \"tls.crt\" = <<-EOT\n    a\n      b\n  EOT\n  port = 8080\n}", "",
			spec.Var{Namespace: "ops", Path: "nomad/jobs/db", Spec: items("tls.crt", "a\n  b\n", "port", "8080")}},
		"as Nomad prints it": {"namespace = \"default\"\npath = \"a\"\ncreate_index = 12\nmodify_index = 14\ncreate_time = 1668700000000\nmodify_time = 1668700000000\nitems = {\n  k = \"v\"\n}", "",
			spec.Var{Namespace: "default", Path: "a", Spec: items("k", "v")}},
		"escaped":         {`items { a = "$${X} %%{if} \"\n" }`, "", spec.Var{Spec: items("a", "${X} %{if} \"\n")}},
		"JSON":            {`{"items":{"a":"${X} %{if} \u00e9\u0000"}}`, "", spec.Var{Spec: items("a", "${X} %{if} é\x00")}},
		"JSON of the API": {`{"version":3,"create_index":1,"modify_index":2,"create_time":"2026-01-01T12:00:00Z","namespace":"default","path":"a","keys":["k"],"items":{"k":"v"}}`, spec.JSON, spec.Var{Namespace: "default", Path: "a", Spec: items("k", "v")}},
		"with a mark":     {"\xef\xbb\xbfitems { a = \"b\" }\r\n", "", spec.Var{Spec: items("a", "b")}},
	} {
		got, err := spec.ParseVar("x", []byte(tc.src), tc.in)
		if diff := cmp.Diff(tc.want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
}

// TestParseVarRefusesWithoutRepeating: what a file holds is not shown to who
// reads over the shoulder, or reads a log.
func TestParseVarRefusesWithoutRepeating(t *testing.T) {
	t.Parallel()
	for src, want := range map[string]string{
		"":                                      "x:1:1: items is missing; add items { key = \"value\" }",
		"path = \"a\"":                          "items is missing",
		"items = [\"hunter2\"]":                 "x:1:9: items is a list; give a map",
		"items { a = [\"hunter2\"] }":           "items[\"a\"] is a list; give a string",
		"items { a = \"hunter2${var.b}\" }":     "items rests on var or local, which such a file does not have",
		"items { a = \"hunter2${B}\" }":         "x:1:21: items[\"a\"]",
		"items { a = \"hunter2\"\n a = \"x\" }": "x:2:2: items[\"a\"] is there twice, first at line 1",
		"item { a = \"hunter2\" }":              "item is not a known name; did you mean items?",
		"items { a = \"hunter2\" ":              "\"{\" that is never closed",
		"lock {}\nitems { a = \"hunter2\" }":    "lock is known from Nomad; Berth does not support it yet: variables have no locks",
		`{"items":{"a":"hunter2"}`:              "x:1:24: ends in the middle of its JSON",
		`{"items":{"a":"hunter2"}} hunter2`:     "has something after its end",
		"{\n \"items\":{\"a\": hunter2}}":       "x:2:16: is no JSON from here on",
		`{"items":{"a":["hunter2"]}}`:           "is of the wrong kind; give a string",
		`{"items":"hunter2"}`:                   "is of the wrong kind; write {\"items\": {\"key\": \"value\"}}",
		`{"a":"hunter2"}`:                       "has the name \"a\", which is not known",
		`{}`:                                    "items is missing; add \"items\"",
		`["hunter2"]`:                           "is of the wrong kind",
		"items { a = \"hunter2\xff\" }":         "x:1:21: is not text in UTF-8; encode what is no text",
		strings.Repeat("hunter2\n", 1<<20/len("hunter2\n")+1): "is larger than 1024 KiB",
	} {
		_, err := spec.ParseVar("x", []byte(src), "")
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%.60q: %v\nwant %s", src, err, want)
		}
	}
}

// FuzzParseVar asserts what holds for any input: no panic, and errors that say
// where.
func FuzzParseVar(f *testing.F) {
	f.Add([]byte("path = \"a\"\nitems { a = \"b\" }"), false)
	f.Add([]byte(`{"items":{"a":"b"}}`), true)
	f.Fuzz(func(t *testing.T, src []byte, asJSON bool) {
		in := spec.HCL
		if asJSON {
			in = spec.JSON
		}
		v, err := spec.ParseVar("x", src, in)
		if err != nil {
			e, ok := errors.AsType[*api.Error](err)
			if !ok || e.Code != api.CodeInvalid || len(e.Fields) == 0 {
				t.Fatalf("%T %v", err, err)
			}
			for _, field := range e.Fields {
				if field.Message == "" || field.Line < 0 {
					t.Errorf("%+v", field)
				}
			}
			return
		}
		if v.Spec.Items == nil {
			t.Error("no items, and no error")
		}
		for key, text := range v.Spec.Items {
			if !utf8.ValidString(key + text) {
				t.Errorf("%q is no text", key)
			}
		}
	})
}
