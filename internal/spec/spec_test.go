package spec_test

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/spec"
)

var update = flag.Bool("update", false, "rewrite the golden parts of testdata")

// golden runs one test for each archive below testdata/dir: its first file is
// the input, and got of it must be what its file "want" holds.
func golden(t *testing.T, dir string, got func(t *testing.T, filename string, src []byte) string) {
	t.Helper()
	archives, err := filepath.Glob(filepath.Join("testdata", dir, "*.txtar"))
	if err != nil || len(archives) == 0 {
		t.Fatalf("find archives in %s: %d found, %v", dir, len(archives), err)
	}
	for _, path := range archives {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			t.Parallel()
			archive, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if len(archive.Files) == 0 {
				t.Fatal("the archive holds no input")
			}
			input := archive.Files[0]
			have := got(t, input.Name, input.Data)
			if *update {
				archive.Files = []txtar.File{input, {Name: "want", Data: []byte(have)}}
				if err := os.WriteFile(path, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if len(archive.Files) != 2 {
				t.Fatal("the archive holds no file want; run the test with -update")
			}
			if diff := cmp.Diff(string(archive.Files[1].Data), have); diff != "" {
				t.Errorf("want and got differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	golden(t, "good", func(t *testing.T, filename string, src []byte) string {
		file, err := spec.Parse(filename, src)
		if err != nil {
			t.Fatalf("parse: %v", err)
		}
		out, err := json.MarshalIndent(file, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		return string(out) + "\n"
	})
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	golden(t, "bad", func(t *testing.T, filename string, src []byte) string {
		_, err := spec.Parse(filename, src)
		return message(t, err) + "\n"
	})
}

// message is what a user reads of an error that Parse or Format returned.
func message(t *testing.T, err error) string {
	t.Helper()
	var invalid *api.Error
	if !errors.As(err, &invalid) {
		t.Fatalf("got the error %v, want an *api.Error", err)
	}
	if invalid.Code != api.CodeInvalid || len(invalid.Fields) == 0 {
		t.Fatalf("got code %q with %d fields, want %q with all problems", invalid.Code, len(invalid.Fields), api.CodeInvalid)
	}
	return invalid.Error()
}
