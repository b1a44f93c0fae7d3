package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/internal/cli"
)

// TestFormatOfTheStandardInput goes to the standard output, and to no file.
func TestFormatOfTheStandardInput(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args, src string
		want      result
	}{
		{"fmt -", "a=1 # one\n", result{stdout: "a = 1 # one\n"}},
		{"fmt -", "a = 1\n", result{stdout: "a = 1\n"}},
		{"fmt -", `{"a":1}`, result{stdout: "{\n  \"a\": 1\n}\n"}},
		{"fmt --check -", "a = 1\n", result{}},
		{"fmt --check -", "a=1\n", result{stdout: "stdin\n", stderr: "berth: 1 file is not formatted (use 'berth fmt')\n", status: 1}},
		{"fmt -", "a = {\n", result{stderr: "berth: the input has a problem\n  stdin:1:5: a has a \"{\" that is never closed; add the missing \"}\"\n", status: 2}},
		{"validate -", "a = {\n", result{stderr: "berth: the input has a problem\n  stdin:1:5: a has a \"{\" that is never closed; add the missing \"}\"\n", status: 2}},
	} {
		got := runWith(t, cli.Env{Stdin: strings.NewReader(c.src)}, "http://127.0.0.1:1", strings.Fields(c.args)...)
		if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(result{})); diff != "" {
			t.Errorf("%s of %q (-want +got):\n%s", c.args, c.src, diff)
		}
	}
}

// TestFormatKeepsLinksAndModes: the file behind a link is written, in its mode,
// and nothing is left beside it.
func TestFormatKeepsLinksAndModes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, link := filepath.Join(dir, "real", "a.hcl"), filepath.Join(dir, "link.hcl")
	if err := os.Mkdir(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("a=1\n"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	if got := run(t, "http://127.0.0.1:1", "fmt", link); got.status != 0 || got.stdout != link+"\n" {
		t.Fatalf("%+v", got)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("the file's mode is %v, %v", info.Mode(), err)
	}
	if target, err := os.Readlink(link); err != nil || target != file {
		t.Errorf("the link leads to %q, %v", target, err)
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "a = 1\n" {
		t.Errorf("the file holds %q, %v", b, err)
	}
	if all, err := os.ReadDir(filepath.Dir(file)); err != nil || len(all) != 1 {
		t.Errorf("beside the file: %v, %v", all, err)
	}
}

// TestNamesThatAreLeftOut: fmt takes the working directory, init its own names.
func TestNamesThatAreLeftOut(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, words := range []string{"volume init", "job init"} {
		if got := run(t, "http://127.0.0.1:1", strings.Fields(words)...); got.status != 0 || got.stderr != "" {
			t.Fatalf("%s: %+v", words, got)
		}
	}
	if got := run(t, "http://127.0.0.1:1", "validate", "volume.hcl", "job.hcl"); got.status != 0 || got.stderr != "" {
		t.Errorf("validate: %+v", got)
	}
	if err := os.WriteFile("a.hcl", []byte("a=1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := run(t, "http://127.0.0.1:1", "fmt"); got.stdout != "a.hcl\n" || got.status != 0 {
		t.Errorf("fmt: %+v", got)
	}
}
