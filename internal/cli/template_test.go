package cli_test

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/internal/cli"
)

// TestTemplate prints the answer in the user's way. A field that is not there
// is named with the nearest that is, and nothing is printed.
func TestTemplate(t *testing.T) {
	t.Parallel()
	f := newFake(t, world())
	bad := func(text string) result {
		return result{stderr: "berth: --template cannot be filled in: " + text + "\n", status: cli.ExitUsage}
	}
	for template, tc := range map[string]struct {
		command []string
		want    result
	}{
		`{{.ID}} {{.Status.State}}`:                             {[]string{"volume", "status", "pg"}, result{stdout: "pg ready\n"}},
		"{{range .}}{{.ID}} {{size .Status.Capacity}}\n{{end}}": {[]string{"volume", "list"}, result{stdout: "pg 10GiB\narchive \n"}},
		`{{range .Attachments}}{{.NodeID}} {{end}}`:             {[]string{"volume", "status", "pg"}, result{stdout: "db-1-9f31c2aa \n"}},
		`{{age .CreateTime}}{{json .Spec.Type}}`:                {[]string{"job", "status", "db"}, result{stdout: "3d\"service\"\n"}},
		`{{join "+" .VendorVersions}}`:                          {[]string{"plugin", "status", "disk"}, result{stdout: "v3+v4\n"}},
		`{{range .}}{{end}}`:                                    {[]string{"node", "list"}, result{}},
		`{{.Leader}}`:                                           {[]string{"status"}, result{stdout: "db-1\n"}},
		`{{.State}} {{.Status.Stat}}`:                           {[]string{"volume", "status", "pg"}, bad("VolumeInfo has no field State; did you mean Status?")},
		`{{.create_index}}`:                                     {[]string{"volume", "status", "pg"}, bad("VolumeInfo has no field create_index; did you mean CreateIndex?")},
		`before {{.Spec.PluginId}}`:                             {[]string{"volume", "status", "pg"}, bad("VolumeSpec has no field PluginId; did you mean PluginID?")},
		`{{.ID}}`:                                               {[]string{"volume", "list"}, bad("a list has no field ID; take its elements with {{range .}}{{.ID}}{{end}}")},
		`{{range .}}{{.Status.Sesion}}{{end}}`:                  {[]string{"node", "list"}, bad("NodeStatus has no field Sesion; did you mean Session?")},
		`{{.Generation.Frobnicator}}`:                           {[]string{"system", "recovery"}, bad("Generation has no field Frobnicator; it has Number, Recovering, Confirmed, Reason, Since")},
		`{{index . 7}}`:                                         {[]string{"job", "list"}, bad(`1:2: at <index . 7>: error calling index: index out of range: 7`)},
	} {
		got := run(t, f.URL, append(tc.command, "--template", template)...)
		if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(result{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", template, diff)
		}
	}
}

// TestColours are for terminals, and for those who want them.
func TestColours(t *testing.T) {
	t.Parallel()
	f := newFake(t, world())
	for name, tc := range map[string]struct {
		columns func() int
		set     map[string]string
		want    string
	}{
		"Terminal": {wide, nil, "\x1b[1mID\x1b[0m       \x1b[1mSTATE\x1b[0m     \x1b[1mPLUGIN\x1b[0m  \x1b[1mCAPACITY\x1b[0m  \x1b[1mAGE\x1b[0m\n" +
			"pg       ready     disk    10GiB     3d\narchive  \x1b[33mcreating\x1b[0m  tape    -         3d\n"},
		"NoColour": {wide, map[string]string{"NO_COLOR": "1"}, "ID       STATE     PLUGIN  CAPACITY  AGE\npg       ready     disk    10GiB     3d\narchive  creating  tape    -         3d\n"},
		"Dumb":     {wide, map[string]string{"TERM": "dumb"}, "ID       STATE     PLUGIN  CAPACITY  AGE\npg       ready     disk    10GiB     3d\narchive  creating  tape    -         3d\n"},
		"Pipe":     {pipe, nil, "pg\tready\tdisk\t10737418240\tTIME\narchive\tcreating\ttape\t-\tTIME\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set := map[string]string{"BERTH_ADDRESS": f.URL}
			maps.Copy(set, tc.set)
			got := runWith(t, cli.Env{Columns: tc.columns, Getenv: variables(set)}, f.URL, "volume", "list")
			if diff := cmp.Diff(tc.want, moment.ReplaceAllString(got.stdout, "TIME")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
