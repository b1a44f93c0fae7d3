package cli_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/cli"
)

var update = flag.Bool("update", false, "write what is printed into the golden file")

var moment = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)

// TestOutput compares everything that people and programs read of one world
// with testdata/output.txtar. A name may begin with the width of a terminal, 0
// for none, and else the terminal is wide. Moments change, and are TIME.
func TestOutput(t *testing.T) {
	t.Parallel()
	const golden = "testdata/output.txtar"
	archive, err := txtar.ParseFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	f := newFake(t, world())
	for i, file := range archive.Files {
		words, env := strings.Fields(file.Name), cli.Env{}
		if width, err := strconv.Atoi(words[0]); err == nil {
			words, env.Columns = words[1:], func() int { return width }
		}
		got := runWith(t, env, f.URL, words...)
		text := moment.ReplaceAllString(got.stdout, "TIME")
		if got.stderr != "" {
			text += "[stderr]\n" + got.stderr
		}
		if got.status != 0 {
			text += fmt.Sprintf("[exit status %d]\n", got.status)
		}
		if *update {
			archive.Files[i].Data = []byte(text)
			continue
		}
		if diff := cmp.Diff(string(file.Data), text); diff != "" {
			t.Errorf("berth %s (-want +got):\n%s", file.Name, diff)
		}
	}
	if *update {
		if err := os.WriteFile(golden, txtar.Format(archive), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestJSONIsTheAPIsAndNothingElse: for a program, every reading command prints
// what the server answered, as one JSON value, and nothing on the side.
func TestJSONIsTheAPIsAndNothingElse(t *testing.T) {
	t.Parallel()
	answers := world()
	f := newFake(t, answers)
	for command, route := range map[string]string{
		"status":                               "GET /v1/status",
		"volume list":                          "GET /v1/volumes",
		"volume status pg":                     "GET /v1/volume/default/pg",
		"job list":                             "GET /v1/jobs",
		"job status db":                        "GET /v1/job/default/db",
		"job history db":                       "GET /v1/job/default/db/revisions",
		"alloc list":                           "GET /v1/allocations",
		"alloc status 0f1e2d3c":                "GET /v1/allocation/0f1e2d3c",
		"node list":                            "GET /v1/nodes",
		"node status db-1-9f31c2aa":            "GET /v1/node/db-1-9f31c2aa",
		"plugin list":                          "GET /v1/plugins",
		"plugin status disk":                   "GET /v1/plugin/disk",
		"volume leaks":                         "GET /v1/findings",
		"volume leaks --now":                   "GET /v1/findings",
		"plugin volumes disk":                  "GET /v1/plugin/disk/volumes",
		"plugin capacity disk":                 "GET /v1/plugin/disk/capacity",
		"var list":                             "GET /v1/vars",
		"var get nomad/jobs/db":                "GET /v1/var/default/nomad/jobs/db",
		"var put nomad/jobs/db user=db":        "PUT /v1/var/default/nomad/jobs/db",
		"operation list":                       "GET /v1/operations",
		"operation status create/default/pg@1": "GET /v1/operation/create/default/pg@1",
		"system recovery":                      "GET /v1/system/recovery",
	} {
		got := run(t, f.URL, append(strings.Fields(command), "--json")...)
		if got.status != 0 || got.stderr != "" {
			t.Errorf("%s: exit status %d, stderr %q", command, got.status, got.stderr)
		}
		b, err := json.Marshal(answers[route])
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(value(t, string(b)), value(t, got.stdout)); diff != "" {
			t.Errorf("%s (-answered +printed):\n%s", command, diff)
		}
	}
}

func value(t *testing.T, text string) any {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Errorf("%v in %q", err, text)
	}
	return v
}

// TestEmptyLists: where there is nothing, a person is told so, and a program
// gets an empty list.
func TestEmptyLists(t *testing.T) {
	t.Parallel()
	none := []string{}
	f := newFake(t, map[string]any{
		"GET /v1/volumes": none, "GET /v1/jobs": none, "GET /v1/allocations": none,
		"GET /v1/vars": none, "GET /v1/operations": none, "GET /v1/nodes": none, "GET /v1/plugins": none,
	})
	for kind, want := range map[string]string{
		"volume":    "there are no volumes in namespace dev\n",
		"job":       "there are no jobs in namespace dev\n",
		"alloc":     "there are no allocations in namespace dev\n",
		"var":       "there are no variables in namespace dev\n",
		"operation": "there are no operations in namespace dev\n",
		"node":      "there are no nodes: run an agent with client.enabled = true\n",
		"plugin":    "there are no plugins: add a plugin block to an agent's configuration\n",
	} {
		if diff := cmp.Diff(result{stderr: want}, run(t, f.URL, kind, "list", "-n", "dev"), cmp.AllowUnexported(result{})); diff != "" {
			t.Errorf("%s list (-want +got):\n%s", kind, diff)
		}
		if diff := cmp.Diff(result{stdout: "[]\n"}, run(t, f.URL, kind, "list", "--json"), cmp.AllowUnexported(result{})); diff != "" {
			t.Errorf("%s list --json (-want +got):\n%s", kind, diff)
		}
	}
}

// TestUnknownNamesSayWhereToLook: what does not exist is no wrong usage, and
// the list that holds the right name is a command away.
func TestUnknownNamesSayWhereToLook(t *testing.T) {
	t.Parallel()
	f := newFake(t, nil)
	for command, want := range map[string]string{
		"volume status pgg":                    "/v1/volume/default/pgg is not there (see 'berth volume list')",
		"volume status pgg -n dev":             "/v1/volume/dev/pgg is not there (see 'berth volume list -n dev')",
		"volume delete pgg":                    "/v1/volume/default/pgg is not there (see 'berth volume list')",
		"job status dbb":                       "/v1/job/default/dbb is not there (see 'berth job list')",
		"job stop dbb":                         "/v1/job/default/dbb is not there (see 'berth job list')",
		"alloc status ab":                      "/v1/allocation/ab is not there (see 'berth alloc list')",
		"node status n9":                       "/v1/node/n9 is not there (see 'berth node list')",
		"plugin status p9":                     "/v1/plugin/p9 is not there (see 'berth plugin list')",
		"operation status create/x/y@1 -n dev": "/v1/operation/create/x/y@1 is not there (see 'berth operation list -n dev')",
	} {
		for _, flags := range [][]string{nil, {"--json"}} {
			got, said := run(t, f.URL, append(strings.Fields(command), flags...)...), "berth: "+want+"\n"
			if flags != nil {
				said = `{"code":"not_found","message":"` + want + "\"}\n"
			}
			if diff := cmp.Diff(result{stderr: said, status: 1}, got, cmp.AllowUnexported(result{})); diff != "" {
				t.Errorf("%s %s (-want +got):\n%s", command, flags, diff)
			}
		}
	}
}

// TestStatusOfAServerThatIsNotReady counts nothing: zero volumes would frighten.
func TestStatusOfAServerThatIsNotReady(t *testing.T) {
	t.Parallel()
	f := newFake(t, map[string]any{"GET /v1/status": api.Status{ServerID: "db-1", Version: "1.2.3"}})
	want := result{stdout: "Server   db-1\nLeader   none yet\nVersion  1.2.3\n" +
		"State    not ready: this server does not lead a cluster yet, or takes over its state; ask again\n"}
	if diff := cmp.Diff(want, run(t, f.URL, "status"), cmp.AllowUnexported(result{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestRecoveryNamesTheNextStep leads an operator through a restore.
func TestRecoveryNamesTheNextStep(t *testing.T) {
	t.Parallel()
	f := newFake(t, map[string]any{
		"GET /v1/system/recovery":  api.Recovery{Generation: api.Generation{Number: 2, Recovering: true}},
		"POST /v1/system/recovery": api.Recovery{Generation: api.Generation{Number: 2}},
	})
	const all = "Generation  2\nRecovering  yes\nall nodes have reported: look at them, then run 'berth system recovery confirm'\n"
	if diff := cmp.Diff(result{stdout: all}, run(t, f.URL, "system", "recovery"), cmp.AllowUnexported(result{})); diff != "" {
		t.Errorf("recovery (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(result{stdout: "Generation  2\nRecovering  no\n"}, run(t, f.URL, "system", "recovery", "confirm"), cmp.AllowUnexported(result{})); diff != "" {
		t.Errorf("confirm (-want +got):\n%s", diff)
	}
}

// TestConfirmedRecoveryNamesWhomItWaitsFor leads an operator on after that.
func TestConfirmedRecoveryNamesWhomItWaitsFor(t *testing.T) {
	t.Parallel()
	f := newFake(t, map[string]any{
		"GET /v1/system/recovery": api.Recovery{
			Generation: api.Generation{Number: 2, Recovering: true, Confirmed: true}, Clearing: []api.NodeID{"db-1-9f31c2aa"},
		},
	})
	const want = "Generation  2\nRecovering  yes\nnode db-1-9f31c2aa is to end what the restored state does not know\n" +
		"confirmed: the cluster goes on when they have; to go on without them, use 'berth system recovery confirm --force' again\n"
	if diff := cmp.Diff(result{stdout: want}, run(t, f.URL, "system", "recovery"), cmp.AllowUnexported(result{})); diff != "" {
		t.Errorf("recovery (-want +got):\n%s", diff)
	}
}

// TestSignal: a signal is written as people write it, and who asks goes with it.
func TestSignal(t *testing.T) {
	t.Parallel()
	w := world()
	w["GET /v1/allocation/0f1e"] = w["GET /v1/allocation/0f1e2d3c"]
	w["POST /v1/allocation/0f1e2d3c4b5a69788796a5b4c3d2e1f0/signal"] = api.Signalled{AllocID: "0f1e2d3c4b5a69788796a5b4c3d2e1f0", Signal: "SIGHUP", Tasks: []string{"backup", "postgres"}}
	f := newFake(t, w)
	const want = "SIGHUP sent to tasks backup, postgres of allocation 0f1e2d3c\n"
	if diff := cmp.Diff(result{stdout: want}, run(t, f.URL, "alloc", "signal", "0f1e", "hup"), cmp.AllowUnexported(result{})); diff != "" {
		t.Errorf("signal (-want +got):\n%s", diff)
	}
}

// TestAbandonNamesWhatMayBeLeft: the operator has to look for it.
func TestAbandonNamesWhatMayBeLeft(t *testing.T) {
	t.Parallel()
	f := newFake(t, map[string]any{
		"DELETE /v1/operation/create/default/pg@1": api.Operation{
			ID: "create/default/pg@1", Kind: api.OperationCreate,
			Request: api.OperationRequest{Create: &api.CreateRequest{Name: "berth-42"}},
			Status:  api.OperationStatus{State: api.OperationCancelled},
		},
	})
	const want = "operation create/default/pg@1 is given up\nlook for a volume named berth-42 at the provider\n"
	if diff := cmp.Diff(result{stdout: want}, run(t, f.URL, "operation", "abandon", "create/default/pg@1"), cmp.AllowUnexported(result{})); diff != "" {
		t.Errorf("abandon (-want +got):\n%s", diff)
	}
	const none = "berth: /v1/operation/create/default/no@1 is not there (see 'berth operation list')\n"
	if diff := cmp.Diff(result{stderr: none, status: 1}, run(t, f.URL, "operation", "abandon", "create/default/no@1"), cmp.AllowUnexported(result{})); diff != "" {
		t.Errorf("abandon what is not there (-want +got):\n%s", diff)
	}
}
