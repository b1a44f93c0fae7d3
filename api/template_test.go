package api_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
)

func TestTemplateParts(t *testing.T) {
	t.Parallel()
	text := func(s string) api.TemplatePart { return api.TemplatePart{Kind: api.TemplateText, Text: s} }
	literal := func(s string) api.TemplatePart { return api.TemplatePart{Kind: api.TemplateLiteral, Text: s} }
	env := func(s string) api.TemplatePart { return api.TemplatePart{Kind: api.TemplateEnv, Text: s} }
	for name, tc := range map[string]struct {
		data string
		want []api.TemplatePart
	}{
		"Empty":       {"", nil},
		"Text":        {"a ${B} } }} {", []api.TemplatePart{text("a ${B} } }} {")}},
		"Env":         {`a{{ env "B" }}c`, []api.TemplatePart{text("a"), env("B"), text("c")}},
		"Tight":       {`{{env "A"}}{{env "B"}}`, []api.TemplatePart{env("A"), env("B")}},
		"Backquotes":  {"{{ env `A` }}", []api.TemplatePart{env("A")}},
		"Lines":       {"{{\n env\t\"A\"\n}}", []api.TemplatePart{env("A")}},
		"Trims":       {"a \n{{- env \"B\" -}}\n c {{ env \"D\" }} e", []api.TemplatePart{text("a"), env("B"), text("c "), env("D"), text(" e")}},
		"TrimsAll":    {"{{ \"x\" -}} \n {{- \"y\" }}", []api.TemplatePart{literal("x"), literal("y")}},
		"Braces":      {`{{ "{{" }} x {{ "}}" }}`, []api.TemplatePart{literal("{{"), text(" x "), literal("}}")}},
		"NotFilledIn": {`{{ "${A}\t\"" }}`, []api.TemplatePart{literal("${A}\t\"")}},
		"Comment":     {"a{{/* {{ key }} \n */}}b {{- /* c */ -}} d", []api.TemplatePart{text("a"), text("b"), text("d")}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, faults := (&api.Template{Data: tc.data}).Parts()
			if diff := cmp.Diff(tc.want, got); diff != "" || len(faults) > 0 {
				t.Errorf("parts (-want +got):\n%s\nfaults: %+v", diff, faults)
			}
		})
	}
}

func TestTemplateFaultsAreAllFoundWhereTheyAre(t *testing.T) {
	t.Parallel()
	for data, want := range map[string][]int{
		`a {{ key "x" }} {{ env "A" }} {{ .B }}`: {2, 30},
		`{{ env A }}{{ env }}{{}}`:               {0, 11, 20},
		`{{ env "A" | upper }}`:                  {0},
		`{{ env "A"`:                             {0},
		`{{{ env "A" }}`:                         {0},
		`{{-env "A" }}`:                          {0},
		`{{ env "" }} {{ env "A=B" }}`:           {0, 13},
		`{{ "\q" }}`:                             {0},
		`{{ "a" "b" }}`:                          {0},
		"{{ env \"A\nB\" }}":                     {0},
	} {
		var got []int
		_, faults := (&api.Template{Data: data}).Parts()
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
		"": " ", "local": " ", "local/": " ", "a": " ", "/local/a": "local a", "./secrets/a": "secrets a", "/etc/a": " ", "//local/a": " ", "/../local/a": " ", ".local/a": " ", "../a": " ", "logs/a": " ", "alloc/a": " ", "local/../a": " ", "local/a/../b": " ",
		"local/..": " ", "local/.": " ", "local/a/": " ", "local//a": " ", "../local/a": " ", "local/a\nb": " ", "local/a\x00": " ",
		"${NOMAD_TASK_DIR}/../a": " ", "${NOMAD_TASK_DIR}": " ", "${NOMAD_ALLOC_DIR}/a": " ", "local/${A}": " ", "local/a/..": " ",
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
	for name, tc := range map[string]struct {
		templates []api.Template
		want      []string
	}{
		"Whole": {[]api.Template{
			{Data: `{{ env "A" }}`, Destination: "local/a/b", Perms: "0640"}, {Destination: "secrets/a/b", Env: true}, local("a/c"), local("a/b-2"),
		}, nil},
		"Everything": {[]api.Template{{Data: "a\n{{ x }}\x00\n {{ y }}", Destination: "/etc/x", Perms: "8"}}, []string{
			k + `[0].data has a NUL character; remove it`,
			k + `[0].data in line 2 has {{ x }}, and of these Berth knows only {{ env "NAME" }}; use {{ env "NAME" }}, or write {{ "{{" }} for the braces themselves`,
			k + `[0].data in line 3 has {{ y }}, and of these Berth knows only {{ env "NAME" }}; use {{ env "NAME" }}, or write {{ "{{" }} for the braces themselves`,
			k + `[0].destination is "/etc/x", which is no file below local, secrets or tmp; write "local/x", and have the task read it there; with docker, config { volumes = ["local/x:/etc/x"] } shows it at the other path`,
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

// What stands in the way of an end is looked at once: with a look at all that
// follows for each, this test would not end.
func TestTemplatesOfManyFaultsAreRefusedAtOnce(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"{{if}}", "{{ if a }}x", "{{end}}", "{{if}}{{end}}", `{{"`, "{{`", "{{ x }", "{{/*", "{{/* }}", "{{/* */ }", `{{ env "`, `{{ "" }`} {
		data := strings.Repeat(s, 256<<10/len(s))
		_, faults := (&api.Template{Data: data}).Parts()
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

// FuzzParts asserts that faults stand at braces, in the order of the text, and
// that a text without braces is one part.
func FuzzParts(f *testing.F) {
	for _, s := range []string{
		"a ${X} b", `{{ env "X" }}`, `{{- "{{" -}}`, "{{/* c */}}", `{{ with secret "x" }}{{ .a }}{{ end }}`, "{{ range services }}{{ if }}",
		"{{ \"}}\" }}", "{{ `}}` }} {{", `{{ sockaddr "a }}{{ b" }}`, "{{end}}{{end}}",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, data string) {
		parts, faults := (&api.Template{Data: data}).Parts()
		after := -1
		for _, fault := range faults {
			if fault.Offset <= after || !strings.HasPrefix(data[fault.Offset:], "{{") || fault.Message == "" || fault.Mend == "" {
				t.Fatalf("%q: the fault %+v, after one at %d", data, fault, after)
			}
			after = fault.Offset
		}
		if !strings.Contains(data, "{{") && (len(faults) > 0 || data != "" && (len(parts) != 1 || parts[0].Text != data)) {
			t.Errorf("%q: parts %+v, faults %+v", data, parts, faults)
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
