package api_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
)

func TestTemplateFaultsAreAllFoundWhereTheyAre(t *testing.T) {
	t.Parallel()
	for data, want := range map[string][]int{
		`a {{ key "x" }} {{ env "A" }} {{ .B }}`:              {2, 30},
		`{{ env A }}{{ env }}{{}}`:                            {20}, // what cannot be read says nothing of the rest
		`{{ env A }}{{ env }}{{ env "A" "B" }}`:               {0, 11, 20},
		`{{ env "A" | upper }}`:                               {0},
		`{{ "{{" }}{{ oops }}{{/* {{ oops */}}{{ 1 | oops }}`: {10, 37},
		`{{ if true }}{{ oops }}{{ end }}{{ else }}`:          {32},
		`{{ end }}`: {0},
		`{{ if true }} {{ range loop 3 }}{{ end }}`:                       {0},
		`{{ with service "a@b" }}{{ end }}{{ service "a|any" }}`:          {0, 33},
		`{{ nomadVar "/x" }}{{ nomadVar "x@y" }}`:                         {0, 19},
		`{{ define "x" }}{{ end }}{{ template "x" }}`:                     {0, 25},
		`{{ $ }}{{ $x := 1 }}{{ $y }}`:                                    {20},
		`{{ with env "A" }}{{ . }}{{ $x := . }}{{ end }}{{ $.a }}{{ . }}`: {47, 56},
		`{{ printf }}{{ sprig_upper "a" }}{{ break }}`:                    {33},
		`{{ env "A"`:                   {0},
		`{{{ env "A" }}`:               {0},
		`{{-env "A" }}`:                {0},
		`{{ env "" }} {{ env "A=B" }}`: {0, 13},
		`{{ "\q" }}`:                   {0},
		`{{ "a" "b" }}`:                {0},
		"{{ env \"A\nB\" }}":           {0},
	} {
		var got []int
		_, faults := (&api.Template{Data: data}).Parse()
		for _, f := range faults {
			got = append(got, f.Offset)
			if f.Message == "" || f.Mend == "" {
				t.Errorf("%s: a fault without words: %+v", data, f)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: faults (-want +got):\n%s", data, diff)
		}
	}
}

func TestTemplatePlaceAndMode(t *testing.T) {
	t.Parallel()
	for dest, want := range map[string]string{
		"local/a": "local a", "local/a/b.conf": "local a/b.conf", "secrets/.key": "secrets .key", "tmp/..a": "tmp ..a",
		"${NOMAD_TASK_DIR}/a/b": "local a/b", "${NOMAD_SECRETS_DIR}/a": "secrets a",
		"": " ", "local": " ", "local/": " ", "a": " ", "/local/a": "local a", "./secrets/a": "secrets a", "alloc/a": "alloc a", "/alloc/a": "alloc a", "${NOMAD_ALLOC_DIR}/a": "alloc a", "${BERTH_TASK_DIR}/a": "local a", "/etc/a": " ", "//local/a": " ", "/../local/a": " ", ".local/a": " ", "../a": " ", "logs/a": " ", "local/../a": " ", "local/a/../b": "local b", "secrets/../local/b": "local b",
		"local/..": " ", "local/.": " ", "local/../../local/a": " ", "alloc": " ", "local/a/": " ", "local//a": "local a", "../local/a": " ", "local/a\nb": " ", "local/a\x00": " ",
		"${NOMAD_TASK_DIR}/../a": " ", "${NOMAD_TASK_DIR}": " ", "local/${A}": " ", "local/a/..": " ",
	} {
		dir, file := (&api.Template{Destination: dest}).Place()
		if got := dir + " " + file; got != want {
			t.Errorf("%q is at %q, want %q", dest, got, want)
		}
	}
	for _, tc := range []struct {
		perms, dest string
		want        uint32
	}{
		{"", "local/a", 0o644}, {"", "secrets/a", 0o600}, {"", "${NOMAD_SECRETS_DIR}/a", 0o600}, {"0640", "secrets/a", 0o640}, {"600", "local/a", 0o600}, {"000", "tmp/a", 0},
	} {
		if got := (&api.Template{Destination: tc.dest, Perms: tc.perms}).Mode(); got != tc.want {
			t.Errorf("%+v: mode is %o", tc, got)
		}
	}
}

func TestTemplatesValidate(t *testing.T) {
	t.Parallel()
	const k = `group["main"].task["db"].template`
	local := func(file string) api.Template { return api.Template{Destination: "local/" + file} }
	const plain = `; give a plain path such as "local/app.conf" or "secrets/key"`
	negative, late := -1, api.Duration(2*time.Hour)
	for name, tc := range map[string]struct {
		templates []api.Template
		want      []string
	}{
		"Whole": {[]api.Template{
			{Data: `{{ env "A" }}`, Destination: "local/a/b", Perms: "0640"}, {Destination: "secrets/a/b", Env: true}, local("a/c"), local("a/b-2"),
		}, nil},
		"Everything": {[]api.Template{{Data: "a\n{{ x }}\x00\n {{ y }}", Destination: "/etc/x", Perms: "8"}}, []string{
			k + `[0].data has a NUL character; remove it`,
			k + `[0].data in line 2 has {{ x }}, and templates have no function x; use {{ env "NAME" }}, or write {{ "{{" }} for the braces themselves`,
			k + `[0].data in line 3 has {{ y }}, and templates have no function y; use {{ env "NAME" }}, or write {{ "{{" }} for the braces themselves`,
			k + `[0].destination is "/etc/x", which is no file below local, secrets, tmp or alloc; write "local/x", and have the task read it there; with docker, config { volumes = ["local/x:/etc/x"] } shows it at the other path`,
			k + `[0].perms is "8"; give octal permissions such as "0640"`,
		}},
		"Sizes": {[]api.Template{{Data: strings.Repeat("x", 256<<10+1), Destination: "local/" + strings.Repeat("x", 201)}, local(strings.Repeat("x/", 500) + "x")}, []string{
			k + `[0].data has 262145 bytes, and may have 262144; put it into a volume`,
			k + `[0].destination has a name of more than 200 bytes, or is longer than 1000; shorten it`,
			k + `[1].destination has a name of more than 200 bytes, or is longer than 1000; shorten it`,
		}},
		"NoDestination": {[]api.Template{{}}, []string{k + `[0].destination is missing` + plain}},
		"Twice": {[]api.Template{local("a"), local("b/c"), {Destination: "${NOMAD_TASK_DIR}/a"}, local("b")}, []string{
			k + `[2].destination is that of template[0], too; give each template a file of its own`,
			k + `[3].destination and that of template[1] need a file and a directory of the same name; give each template a file of its own`,
		}},
		"OnVolumes": {[]api.Template{local("vol/a"), local("deep"), local("vol-2")}, []string{
			k + `[0].destination is at the place of the volume "data", which is mounted at /local/vol; choose another place`,
			k + `[1].destination is at the place of the volume "data", which is mounted at /local/deep/vol; choose another place`,
		}},
		"Changes": {[]api.Template{
			{Data: `{{ with nomadVar "a" }}{{ .b }}{{ end }}`, Destination: "alloc/a", ChangeMode: "signal", UID: new(int)},
			{Destination: "local/b", ChangeMode: "script", GID: &negative}, {Destination: "local/c", ChangeMode: "reboot", Splay: &late},
			{Destination: "local/d", ChangeMode: "signal", ChangeSignal: "SIGNAL", Env: true},
			{Destination: "local/e", ChangeMode: "script", ChangeScript: &api.ChangeScript{Timeout: late}},
			{Destination: "local/f", ChangeMode: "noop", Env: true},
		}, []string{
			k + `[0].change_signal is missing; add change_signal = "SIGHUP"`,
			k + `[1].change_script is missing; add change_script { command = "/local/reload" }`,
			k + `[1].gid is -1; leave it out, or give the number of a user or group`,
			k + `[2].change_mode is "reboot"; use one of restart, signal, script, noop`,
			k + `[2].splay is 2h0m0s; give a duration up to 1h`,
			k + `[3].change_mode is signal, and a task that runs keeps the environment that it has; use "restart", or "noop" to leave the change to the next start`,
			k + `[3].change_signal is "SIGNAL"; use one of SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGKILL`,
			k + `[4].change_script.command is missing; add command = "/local/reload"`,
			k + `[4].change_script.timeout is 2h0m0s; give a duration up to 1m`,
		}},
		"TooMany": {make([]api.Template, 101), []string{k + ` is there 101 times, and a task may have 100; put the files into a volume`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := jobSpec()
			task := &spec.Groups[0].Tasks[0]
			task.Templates = tc.templates
			task.VolumeMounts = []api.VolumeMount{{Volume: "data", Destination: "/local/vol/"}, {Volume: "data", Destination: "/local/deep/vol"}}
			got := strings.Split(message(spec.Validate()), "\n  ")[1:]
			if diff := cmp.Diff(strings.Join(tc.want, "\n"), strings.Join(got, "\n")); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

// Nobody could wait for what it reads: its volumes would wait for it.
func TestPoststopTaskReadsNothingOfTheServers(t *testing.T) {
	t.Parallel()
	spec := jobSpec()
	after := api.Task{Name: "after", Driver: "exec", Lifecycle: &api.Lifecycle{Hook: api.HookPoststop}}
	after.Templates = []api.Template{{Destination: "local/a", Data: `{{ env "A" }}`}, {Destination: "local/b", Data: `{{ range service "a" }}{{ .Address }}{{ end }}`}}
	spec.Groups[0].Tasks = append(spec.Groups[0].Tasks, after)
	want := `template[1].data reads variables or services, and nobody could wait for them when the allocation ends`
	if got := message(spec.Validate()); !strings.Contains(got, want) || strings.Contains(got, "template[0]") {
		t.Errorf("Validate: %s, want %s", got, want)
	}
}

// What stands in the way of an end is looked at once: with a look at all that
// follows for each, this test would not end.
func TestTemplatesOfManyFaultsAreRefusedAtOnce(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"{{if}}", "{{ if a }}x", "{{end}}", "{{if}}{{end}}", `{{"`, "{{`", "{{ x }", "{{/*", "{{/* }}", "{{/* */ }", `{{ env "`, `{{ "" }`} {
		data := strings.Repeat(s, 256<<10/len(s))
		_, faults := (&api.Template{Data: data}).Parse()
		if len(faults) == 0 || len(faults) > 100 {
			t.Errorf("%s...: %d faults", s, len(faults))
		}
		for _, f := range faults {
			if !strings.HasPrefix(data[f.Offset:], "{{") || f.Mend == "" {
				t.Errorf("%s...: %+v", s, f)
			}
		}
	}
}

// FuzzTemplate asserts that faults stand at braces, in the order of the text, and
// that a text without braces has none.
func FuzzTemplate(f *testing.F) {
	for _, s := range []string{
		"a ${X} b", `{{ env "X" }}`, `{{- "{{" -}}`, "{{/* c */}}", `{{ with secret "x" }}{{ .a }}{{ end }}`, "{{ range services }}{{ if }}",
		"{{ \"}}\" }}", "{{ `}}` }} {{", `{{ sockaddr "a }}{{ b" }}`, "{{end}}{{end}}",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, data string) {
		tree, faults := (&api.Template{Data: data}).Parse()
		after := -1
		for _, fault := range faults {
			if fault.Offset <= after || !strings.HasPrefix(data[fault.Offset:], "{{") || fault.Message == "" || fault.Mend == "" {
				t.Fatalf("%q: the fault %+v, after one at %d", data, fault, after)
			}
			after = fault.Offset
		}
		if (tree == nil) != (len(faults) > 0) || !strings.Contains(data, "{{") && (len(faults) > 0 || tree.Root.String() != data) {
			t.Errorf("%q: tree %v, faults %+v", data, tree, faults)
		}
	})
}

// FuzzParseTopic asserts that a topic is read or refused, with the mend.
func FuzzParseTopic(f *testing.F) {
	for _, s := range []string{"volume", "volume:pg", "*", "", ":", "nodes:n", "allocation:"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if _, problem := api.ParseTopic(text); problem != nil && (problem.Message == "" || problem.Mend == "") {
			t.Errorf("%q: %+v", text, problem)
		}
	})
}

// TestManyFaultsOfATemplateCostLittle: a job is refused at once, however many
// there are.
func TestManyFaultsOfATemplateCostLittle(t *testing.T) {
	t.Parallel()
	for _, word := range []string{" x", " ."} {
		data := "{{ print" + strings.Repeat(word, 9_000) + " }}"
		faulty := api.Template{Destination: "local/x", Data: strings.Repeat(data, 2)}
		if _, faults := faulty.Parse(); len(faults) == 0 || len(faults) > 3 || len(faults[0].Message) > 500 {
			t.Errorf("%q: %d faults, first %v", word, len(faults), faults[:min(1, len(faults))])
		}
	}
}
