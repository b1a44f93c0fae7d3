package hook_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/allocrunner"
	"github.com/berth-dev/berth/internal/agent/driver"
)

func TestTemplatesAreRendered(t *testing.T) {
	t.Parallel()
	spec := given(t, api.Task{
		Env: map[string]string{"ROLE": "primary of ${BERTH_JOB_ID}", "OLD": "1"},
		Config: map[string]any{
			"args": []any{"${TOKEN}", "${OLD}"},
		},
		Templates: []api.Template{
			{Destination: "local/pg.conf", Perms: "0640", Data: "listen = {{ env \"BERTH_ADDR_db\" }}\nrole = '${ROLE}' ${attr.cpu.arch} ${HOME}\n{{ \"{{ ${ROLE} }}\" }}\n"},
			{Destination: "secrets/env", Env: true, Data: "# ours\n\nexport TOKEN=\"a \\\"b\\\"\"\r\nOLD='t\"wo'\n  PLAIN=x # {{ env \"ROLE\" }} \nEMPTY=\n"},
			{Destination: "${NOMAD_TASK_DIR}/d/after", Data: "{{ env \"TOKEN\" }} ${PLAIN}|{{ env \"EMPTY\" }}|"},
		},
	})
	want := []driver.File{
		{Dir: "local", Path: "pg.conf", Mode: 0o640, Content: "listen = [fd00::5]:5432\nrole = 'primary of db' amd64 ${HOME}\n{{ ${ROLE} }}\n"},
		{Dir: "secrets", Path: "env", Mode: 0o600, Content: "# ours\n\nexport TOKEN=\"a \\\"b\\\"\"\r\nOLD='t\"wo'\n  PLAIN=x # primary of db \nEMPTY=\n"},
		{Dir: "local", Path: "d/after", Mode: 0o644, Content: `a "b" x # primary of db||`},
	}
	if diff := cmp.Diff(want, spec.Files); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	got := map[string]string{}
	for _, name := range []string{"TOKEN", "OLD", "PLAIN", "EMPTY", "ROLE"} {
		got[name] = spec.Env[name]
	}
	wantEnv := map[string]string{"TOKEN": `a "b"`, "OLD": `t"wo`, "PLAIN": "x # primary of db", "EMPTY": "", "ROLE": "primary of db"}
	if diff := cmp.Diff(wantEnv, got); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]any{`a "b"`, `t"wo`}, spec.Task.Config["args"]); diff != "" {
		t.Errorf("arguments (-want +got):\n%s", diff)
	}
}

// A configuration that lacks a value is worse than none.
func TestTemplateThatCannotBeRenderedIsFatal(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		template api.Template
		want     string
	}{
		"UnknownVariable": {api.Template{Data: `{{ env "PGPORT" }}`}, `task pg: render template local/x: line 1: it has {{ env "PGPORT" }}, and the task has no variable PGPORT`},
		"NomadsVariable":  {api.Template{Data: `{{ env "NOMAD_NODE_NAME" }}`}, `has no variable NOMAD_NODE_NAME; here it is BERTH_NODE_NAME`},
		"UnknownAction":   {api.Template{Data: `{{ key "x" }}`}, `it has {{ key "x" }}, and Berth does not talk to Consul`},
		"NoAssignment":    {api.Template{Data: "A=1\n\nB 2", Env: true}, "line 3 is not NAME=value"},
		"BadName":         {api.Template{Data: "A-B=1", Env: true}, "line 1 is not NAME=value"},
		"OpenQuote":       {api.Template{Data: "A=1\nB=\"x", Env: true}, "line 2: the value of B has quotes that cannot be read"},
		"OpenSingleQuote": {api.Template{Data: "B='", Env: true}, "line 1: the value of B has quotes that cannot be read"},
		"AfterTheQuote":   {api.Template{Data: "B='x'y'", Env: true}, "line 1: the value of B has quotes that cannot be read"},
		"TooLarge":        {api.Template{Data: strings.Repeat("${LONG}", 100)}, "it becomes larger than 4 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, a := newFake(), assignment()
			tc.template.Destination = "local/x"
			a.Group.Tasks[0].Env = map[string]string{"LONG": strings.Repeat("x", 1<<16)}
			a.Group.Tasks[0].Templates = []api.Template{tc.template}
			h, s := tasks(d, a)
			err := h.Up(t.Context(), s)
			var fatal *allocrunner.Fatal
			if !errors.As(err, &fatal) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Up: %v, want a fatal error with %q", err, tc.want)
			}
			if len(d.calls) > 0 {
				t.Errorf("the driver was called: %v", d.calls)
			}
		})
	}
}
