package spec_test

import (
	"bytes"
	gocmp "cmp"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/spec"
)

// rows is what the API answers of what a file holds.
func rows(t testing.TB, f *spec.File) []byte {
	t.Helper()
	var all struct {
		Volumes []api.VolumeInfo `json:"volumes"`
		Jobs    []api.JobInfo    `json:"jobs"`
	}
	all.Volumes, all.Jobs = []api.VolumeInfo{}, []api.JobInfo{}
	for _, v := range f.Volumes {
		all.Volumes = append(all.Volumes, api.VolumeInfo{Volume: &api.Volume{
			Meta: api.Meta{Version: 3}, Namespace: v.Namespace, ID: v.ID, UID: "x", Desired: api.Present, Spec: v.Spec,
		}})
	}
	for _, j := range f.Jobs {
		all.Jobs = append(all.Jobs, api.JobInfo{Job: &api.Job{Namespace: j.Namespace, ID: j.ID, Spec: j.Spec}, State: api.JobRunning})
	}
	b, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// What a file says, as the API answers it, says the same.
func TestParseReadsWhatTheAPIAnswers(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("testdata/good/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatalf("find archives: %d found, %v", len(paths), err)
	}
	for _, path := range paths {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		want, err := spec.Parse(archive.Files[0].Name, archive.Files[0].Data)
		if err != nil {
			t.Fatal(err)
		}
		want.Warnings = nil
		for i := range want.Volumes {
			want.Volumes[i].Namespace = gocmp.Or(want.Volumes[i].Namespace, api.DefaultNamespace)
		}
		for i := range want.Jobs {
			want.Jobs[i].Namespace = gocmp.Or(want.Jobs[i].Namespace, api.DefaultNamespace)
		}
		got, err := spec.Parse("rows.json", rows(t, want))
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if diff := cmp.Diff(meaning(t, want), meaning(t, got)); diff != "" {
			t.Errorf("%s: file and API differ (-file +API):\n%s", path, diff)
		}
	}
}

// meaning is a file without the difference of what is empty and what is absent.
func meaning(t testing.TB, f *spec.File) string {
	t.Helper()
	b, err := json.MarshalIndent(f, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestFormatJSON(t *testing.T) {
	t.Parallel()
	got, err := spec.Format("a.json", []byte("\xef\xbb\xbf{\"b\":1,\r\n  \"a\": [ ],\"c\":[1,{\"d\":\"${x\"}]}"))
	if err == nil {
		t.Fatalf("a template that never ends is formatted:\n%s", got)
	}
	got, err = spec.Format("a.json", []byte("\xef\xbb\xbf{\"b\":1,\r\n  \"a\": [ ],\"c\":[1,{\"d\":\"x\"}]}"))
	want := "{\n  \"b\": 1,\n  \"a\": [],\n  \"c\": [\n    1,\n    {\n      \"d\": \"x\"\n    }\n  ]\n}\n"
	if err != nil || string(got) != want {
		t.Errorf("got %v\n%s", err, got)
	}
}

func TestParseSurvivesJSONThatNeverEnds(t *testing.T) {
	t.Parallel()
	for name, unit := range map[string]string{
		"Lists": "[", "Maps": `{"a":`, "Quotes": `"`, "Backslashes": `\`, "Commas": ",", "Colons": ":", "Closers": "]", "Comments": "//\n",
		"OpenComments": "/*", "Elements": "[1 2],", "Words": "x ", "Names": `"a" `, "Templates": `"${${"`, "Spaces": " ", "Members": `{"a" "b"`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, before := range []string{"", "{", "[", `{"a": `, `{"a": "`, `{"a": 1`, `{"job": {"a": `} {
				_, err := spec.Parse("a.json", []byte(before+strings.Repeat(unit, 12<<10/len(unit))))
				if n := strings.Count(message(t, err), "\n"); n > 101 {
					t.Errorf("after %q: the answer has %d lines", before, n)
				}
			}
		})
	}
}

// FuzzParseJSON asserts of JSON files what FuzzParse asserts of all, and that
// encoding/json takes what is read.
func FuzzParseJSON(f *testing.F) {
	for _, path := range archives(f) {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			f.Fatal(err)
		}
		if file := archive.Files[0]; strings.HasSuffix(file.Name, ".json") {
			f.Add(file.Data)
		} else if parsed, err := spec.Parse(file.Name, file.Data); err == nil {
			f.Add(rows(f, parsed))
		}
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		src = bytes.TrimPrefix(src, []byte("{"))
		src = append([]byte("{"), src...)
		file, err := spec.Parse("a.hcl", src)
		if err != nil {
			checkError(t, err, src)
			return
		}
		if !json.Valid(src) {
			t.Errorf("this is no JSON, and was read:\n%s", src)
		}
		checkFile(t, file)
		formatted, err := spec.Format("a.hcl", src)
		if err != nil {
			t.Fatalf("format: %v", err)
		}
		again, err := spec.Parse("a.hcl", formatted)
		if err != nil {
			t.Fatalf("parse what was formatted: %v\n%s", err, formatted)
		}
		if diff := cmp.Diff(withoutLines(file), withoutLines(again)); diff != "" {
			t.Errorf("formatting changes the meaning:\n%s", diff)
		}
	})
}
