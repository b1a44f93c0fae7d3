package rendering_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/rendering"
)

// cluster is what the servers said.
type cluster struct {
	variables map[string]map[string]string
	services  map[string][]api.ServiceInstance
	silent    bool // they have said nothing
}

func (c cluster) Variable(path string) (items map[string]string, found, ok bool) {
	items, found = c.variables[path]
	return items, found, !c.silent
}

func (c cluster) Variables(prefix string) (paths []string, ok bool) {
	for path := range c.variables {
		if strings.HasPrefix(path, prefix) {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return paths, !c.silent
}

func (c cluster) Service(name string) ([]api.ServiceInstance, bool) {
	return c.services[name], !c.silent
}

const secret = "hunter2"

func known() cluster {
	at := func(service, address string, port int, tags ...string) api.ServiceInstance {
		return api.ServiceInstance{Service: service, AllocID: api.AllocID("alloc-" + address), Address: address, Port: port, Tags: tags}
	}
	return cluster{
		variables: map[string]map[string]string{
			"nomad/jobs/csi": {"token": secret, "user": "me", "with-dash": "d", "json": `{"a":{"b":[1,2]},"n":1.5}`, "encoded": "aGk="},
			"nomad/jobs/b":   {"x": "1"},
		},
		services: map[string][]api.ServiceInstance{
			"ceph-mon": {at("ceph-mon", "10.0.0.1", 6789, "mon"), at("ceph-mon", "10.0.0.2", 6789, "mon", "first")},
			"ceph":     {at("ceph", "10.0.0.3", 1, "mon"), at("ceph", "10.0.0.4", 2, "osd")},
		},
	}
}

func render(data string, from cluster) (string, error) {
	env := map[string]string{"NAME": "web", "EMPTY": "", "BERTH_NODE_NAME": "n"}
	fill := strings.NewReplacer("${NAME}", "web", "${LONG}", strings.Repeat("x", 1<<20))
	return rendering.Text(context.Background(), &api.Template{Data: data}, rendering.Source{
		Env: func(name string) (string, bool) { v, ok := env[name]; return v, ok },
		Fill: func(text string, most int) (string, bool) {
			text = fill.Replace(text)
			return text, len(text) <= most
		},
		Lookups: from,
	})
}

func TestText(t *testing.T) {
	t.Parallel()
	for data, want := range map[string]string{
		"":                            "",
		"a ${NAME} ${B} } }} {":       "a web ${B} } }} {",
		`a{{ env "NAME" }}c`:          "awebc",
		"{{\n env\t\"NAME\"\n}}":      "web",
		"a \n{{- env `NAME` -}}\n c ": "awebc ",
		`{{ "{{" }} x {{ "}}" }}`:     "{{ x }}",
		"{{ \"${NAME}\\t\" }}":        "${NAME}\t",
		"a{{/* {{ key }} */}}b":       "ab",
		`{{ envOrDefault "NO" "d" }}{{ envOrDefault "EMPTY" "e" }}{{ mustEnv "NAME" }}`: "deweb",

		`TOKEN={{ with nomadVar "nomad/jobs/csi" }}{{ .token }}{{ end }}`:                                                                            "TOKEN=hunter2",
		`{{ with variable "nomad/jobs/csi" }}{{ .token | toUpper }} {{ .user.Value }} {{ index . "with-dash" }}{{ end }}`:                            "HUNTER2 me d",
		`{{ (nomadVar "nomad/jobs/b").x }}{{ if eq (nomadVar "nomad/jobs/b").x "1" }}!{{ end }}`:                                                     "1!",
		`{{ range $k, $v := nomadVar "nomad/jobs/b" }}{{ $k }}={{ $v }};{{ end }}`:                                                                   "x=1;",
		`{{ with nomadVar "nomad/jobs/b" }}{{ range .Tuples }}{{ .K }}={{ .V }};{{ end }}{{ .Keys }}{{ .Values | join "," }}{{ end }}`:               "x=1;[x]1",
		`{{ if nomadVarExists "nomad/jobs/no" }}a{{ else }}b{{ end }}{{ variableExists "nomad/jobs/b" }}`:                                            "btrue",
		`{{ range nomadVarList "nomad/jobs/" }}{{ .Path }} {{ . }};{{ end }}{{ len (variables) }}`:                                                   "nomad/jobs/b nomad/jobs/b;nomad/jobs/csi nomad/jobs/csi;2",
		`{{ with nomadVar "nomad/jobs/csi" }}{{ with .json | parseJSON }}{{ .n }} {{ index .a.b 1 }}{{ end }}{{ .encoded | base64Decode }}{{ end }}`: "1.5 2hi",
		`{{ with nomadVar "nomad/jobs/b" }}{{ . | toJSON }}{{ end }}`:                                                                                `{"x":"1"}`,

		`[{{range $i, $s := service "ceph-mon"}}{{if gt $i 0}}, {{end}}"{{.Address}}:{{.Port}}"{{end}}]`:       `["10.0.0.1:6789", "10.0.0.2:6789"]`,
		`{{ range service "mon.ceph" }}{{ .Name }} {{ .Address }} {{ .Tags | join "," }} {{ .ID }}{{ end }}`:   "ceph 10.0.0.3 mon ceph/alloc-10.0.0.3",
		`{{ range service "nobody" }}{{ .Address }}{{ else }}none{{ end }}`:                                    "none",
		`{{ range nomadService "ceph-mon" }}{{ if .Tags | contains "first" }}{{ .Address }}{{ end }}{{ end }}`: "10.0.0.2",
		`{{ len (nomadService 1 "key" "ceph-mon") }}{{ len (nomadService 5 "key" "ceph-mon") }}`:               "12",

		`{{ "A b" | toLower }}{{ "ab cd" | toTitle }}{{ " x " | trimSpace }}{{ "xax" | trim "x" }}`:                              "a bAb Cdxa",
		`{{ "abc" | trimPrefix "a" | trimSuffix "c" }}{{ "a.b" | replaceAll "." "-" }}`:                                          "ba-b",
		`{{ "a,b" | split "," | join ";" }}{{ range split "," "" }}x{{ end }}`:                                                   "a;b",
		`{{ "a\nb" | indent 2 }}|{{ indent 1 "x\n\ny\n" }}|`:                                                                     "  a\n  b| x\n\n y\n|",
		`{{ "hi" | base64Encode }} {{ "hi?>" | base64URLEncode | base64URLDecode }} {{ "" | sha256Hex | printf "%.4s" }}`:        "aGk= hi?> e3b0",
		`{{ "1.5" | parseFloat }}{{ "7" | parseInt | add 1 }}{{ "7" | parseUint }}{{ if "true" | parseBool }}t{{ end }}`:         "1.587t",
		`{{ 5 | subtract 2 }}{{ 5 | multiply 2 }}{{ 5 | divide 2 }}{{ 5 | modulo 2 }}{{ minimum 1 2 }}{{ maximum 1 2 }}`:         "3102112",
		`{{ range loop 3 }}{{ . }}{{ end }}{{ range loop 2 4 }}{{ . }}{{ end }}{{ range 2 }}x{{ end }}`:                          "01223xx",
		`{{ printf "%s %03d %q %v" "a" 7 "b" true }}{{ print 1 2 "c" }}{{ println "d" }}{{ "<" | html }}{{ "a b" | urlquery }}`:  "a 007 \"b\" true1 2cd\n&lt;a+b",
		`{{ "x=1" | regexMatch "^x=\\d$" }}{{ in "abc" "b" }}{{ slice "abc" 1 2 }}{{ index (split "," "a,b") 1 }}{{ len "ab" }}`: "truetruebb2",
		`{{ toJSONPretty (split "," "a") }}`: "[\n  \"a\"\n]",
		`{{ $n := 0 }}{{ range $i, $e := split "," "a,b" }}{{ if eq $e "a" }}{{ continue }}{{ end }}{{ $n = $i }}{{ break }}{{ end }}{{ $n }}`: "1",
	} {
		got, err := render(data, known())
		if err != nil || got != want {
			t.Errorf("%s\nis  %q, %v\nnot %q", data, got, err, want)
		}
	}
}

// Every function that a file may have is there on the node, and no other.
func TestFunctionsAreThoseOfTheFiles(t *testing.T) {
	t.Parallel()
	for _, name := range api.TemplateFunctions() {
		_, err := render("{{ if false }}{{ "+name+" }}{{ end }}", known())
		if err != nil && strings.Contains(err.Error(), "not defined") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWhatIsNotKnownIsNamed(t *testing.T) {
	t.Parallel()
	silent := known()
	silent.silent = true
	for data, want := range map[string]string{
		`{{ with nomadVar "a/b" }}{{ .x }}{{ end }}`:            "the variable a/b",
		`{{ if nomadVarExists "a/b" }}{{ end }}`:                "word of the variable a/b",
		`{{ range nomadVarList "a" }}{{ end }}`:                 "the list of the variables a",
		`{{ range service "web" }}{{ end }}`:                    "word of the service web",
		`{{ with nomadVar "nomad/jobs/csi" }}{{ .x }}{{ end }}`: "the variable nomad/jobs/csi",
	} {
		_, err := render(data, silent)
		missing, ok := errors.AsType[*rendering.Missing](err)
		if !ok || missing.Awaited != want || missing.Asked {
			t.Errorf("%s: %v, want it to wait for %s", data, err, want)
		}
	}
	_, err := render(`{{ with nomadVar "a/b" }}{{ .x }}{{ end }}`, known())
	if missing, ok := errors.AsType[*rendering.Missing](err); !ok || !missing.Asked {
		t.Errorf("one that does not exist: %v", err)
	}
}

func TestErrorsRepeatNoValue(t *testing.T) {
	t.Parallel()
	const with, end = `{{ with nomadVar "nomad/jobs/csi" }}` + "\n", `{{ end }}`
	for data, want := range map[string]string{
		`{{ .none }}`:                            `line 2: it cannot be done: map has no entry for key "none"`,
		`{{ index . "none" }}`:                   `line 2: map has no entry for key "none"`,
		`{{ range .token }}{{ end }}`:            `line 2: it cannot be done: range can't iterate over what is there`,
		`{{ .token.x }}`:                         `can't evaluate field x in type rendering.item`,
		`{{ .token | parseJSON }}`:               `line 2: what is to be parsed is no JSON`,
		`{{ .token | parseInt }}`:                `what is to be parsed is no whole number`,
		`{{ .token | parseBool }}`:               `what is to be parsed is no true or false`,
		`{{ .token | base64Decode }}`:            `what is to be decoded is not in base64`,
		`{{ regexMatch (print .token "(") "" }}`: `the expression of regexMatch cannot be read`,
		`{{ add .token 1 }}`:                     `what is to be parsed is no whole number`,
		`{{ index .token 99 }}`:                  `there is no element 99`,
		`{{ slice .token 99 }}`:                  `index out of range`,
		`{{ eq .token 1 }}`:                      `incompatible types for comparison`,
		`{{ join "," .token }}`:                  `there is a rendering.item where a list is needed`,
		`{{ nomadService .token .token "x" }}`:   `whole number`,
		`{{ divide 0 1 }}`:                       `it divides by 0`,
		`{{ if eq . . }}{{ end }}`:               `non-comparable type what is there`,
		`{{ if ne . . }}{{ end }}`:               `non-comparable type what is there`,
		`{{ if eq .Keys .Keys }}{{ end }}`:       `non-comparable type what is there`,
		`{{ index . .token }}`:                   `map has no entry for a key that it makes`,
		`{{ nomadVar (print .token) }}`:          `the variable whose name it makes`,
		`{{ service (print .token) }}`:           ``,
		`{{ env (print .token) }}`:               `the task has no variable of a name that it makes`,
		`{{ print | len | index .token }}`:       ``,
		`{{ .token | printf "%d" | parseInt }}`:  ``,
		`{{ range (print .token) }}{{ end }}`:    `what is there`,
		`{{ $x := .token }}{{ $x.y.z }}`:         ``,
		`{{ template "x" }}`:                     `none in them`,
		`{{ .token | len | trim }}`:              `trim is given 1 of its 2 values`,
		`{{ trim .json.x "" }}`:                  `can't evaluate field x`,
	} {
		_, err := render(with+data+end, known())
		if err == nil {
			if want != "" {
				t.Errorf("%s: no error, want %s", data, want)
			}
			continue
		}
		if strings.Contains(err.Error(), secret) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", data, err, want)
		}
	}
	if _, err := render(`{{ env "NOMAD_NODE_NAME" }}`, known()); err == nil || !strings.Contains(err.Error(), "here it is BERTH_NODE_NAME") {
		t.Errorf("a variable of Nomad's: %v", err)
	}
}

// Without bounds these would take all memory, or never end.
func TestTemplatesAreBounded(t *testing.T) {
	t.Parallel()
	double := `{{ $x := "0123456789" }}` + strings.Repeat(`{{ $x = print $x $x }}`, 40)
	for data, want := range map[string]string{
		strings.Repeat("${LONG}", 100):                                                        "it becomes larger than 4 MiB",
		`{{ range 2000 }}` + strings.Repeat("x", 4000) + `{{ end }}`:                          "it becomes larger than 4 MiB",
		`{{ range 1000000000000 }}{{ end }}`:                                                  "it does more than 200000 things",
		`{{ range 100000 }}{{ range 100000 }}{{ if false }}x{{ end }}{{ end }}{{ end }}`:      "it does more than 200000 things",
		`{{ range 100000 }}{{ if true }}{{ with 1 }}{{ $x := . }}{{ end }}{{ end }}{{ end }}`: "it does more than 200000 things",
		double: "a value of more than 1 MiB",
		strings.ReplaceAll(double, "print $x $x", `printf "%s%[1]s" $x`):        "a value of more than 1 MiB",
		strings.ReplaceAll(double, "print $x $x", `join $x (split "5" $x)`):     "a value of more than 1 MiB",
		strings.ReplaceAll(double, "print $x $x", `replaceAll "1" $x $x`):       "a value of more than 1 MiB",
		strings.ReplaceAll(double, "print $x $x", `toJSON (print $x "\"")`):     "a value of more than 1 MiB",
		strings.ReplaceAll(double, "print $x $x", `base64Encode (print $x $x)`): "a value of more than 1 MiB",
		`{{ printf "%999999d" 1 }}`:                                             "a value of more than 1 MiB",
		`{{ printf "%.999999f" 1.5 }}`:                                          "a value of more than 1 MiB",
		`{{ printf "%*d" 999999 1 }}`:                                           "",
		`{{ range loop 1000000 }}{{ end }}`:                                     "it counts through more than 10000 numbers",
		`{{ indent 1001 "x" }}`:                                                 "indent is given no number from 0 to 1000",
		`{{ $x := "0123456789" }}` + strings.Repeat(`{{ $x = print $x $x }}`, 16) + `{{ range 200 }}{{ $y := print $x }}{{ end }}`: "MiB of them",
	} {
		got, err := render(data, known())
		if want == "" && err == nil && len(got) < 1000 {
			continue
		}
		if err == nil || !strings.Contains(err.Error(), want) || want == "" {
			t.Errorf("%.100s: %d bytes, %v, want %s", data, len(got), err, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := rendering.Text(ctx, &api.Template{Data: "x"}, rendering.Source{Fill: func(s string, _ int) (string, bool) { return s, true }})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("of an agent that ends: %v", err)
	}
}

// FuzzText asserts that a template that can be read comes to an end, within its
// bounds, and that no error has a value.
func FuzzText(f *testing.F) {
	for _, s := range []string{
		`{{ with nomadVar "nomad/jobs/csi" }}{{ .token }}{{ end }}`, `{{ range $i, $s := service "ceph-mon" }}{{ if gt $i 0 }},{{ end }}{{ .Address }}{{ end }}`,
		`{{ range loop 3 }}{{ printf "%5s" . }}{{ end }}`, `{{ "a" | split "," | join "-" | toJSON | parseJSON }}`, `{{ $x := 1 }}{{ range 9 }}{{ $x = add $x $x }}{{ end }}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, data string) {
		got, err := render(data, known())
		if err == nil && len(got) > 4<<20 {
			t.Errorf("%d bytes", len(got))
		}
		if err != nil && strings.Contains(err.Error(), secret) && !strings.Contains(data, secret) {
			t.Errorf("%q: %v", data, fmt.Sprint(err))
		}
	})
}

// TestOneLineTakesNoMachineDown: what a job's author writes is bounded before it is
// made.
func TestOneLineTakesNoMachineDown(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1<<19)
	for data, want := range map[string]string{
		`{{ range loop -5000000000000000000 5000000000000000000 }}{{ end }}`:                               `it counts through more than 10000 numbers`,
		`{{ range loop 10000 }}{{ if nomadVarExists (print "x/" .) }}{{ end }}{{ end }}`:                   `it looks up more than 200 things`,
		`{{ $l := split "," "` + long + `" }}{{ print $l $l $l $l }}`:                                      `a value of more than 1 MiB`,
		`{{ "` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + `" | parseJSON | toJSONPretty }}`: `a value of more than 1 MiB`,
		`{{ regexMatch "(?:a?){1000}(?:a?){1000}" "` + long + `" }}`:                                       `too long an expression`,
		`{{ trim "` + strings.Repeat("é", 1000) + `" "` + long + `" }}`:                                    `more than 1000 bytes to cut`,
	} {
		if _, err := render(data, known()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: %v, want %s", data, err, want)
		}
	}
}
