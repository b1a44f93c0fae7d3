package cli_test

import (
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/cli"
)

// TestWrongUsage: what was typed wrongly is named, with the nearest that is
// right, and nothing is asked of the servers.
func TestWrongUsage(t *testing.T) {
	t.Parallel()
	f := newFake(t, world())
	for command, want := range map[string]string{
		"volum":                       `berth has no command "volum"; did you mean volume? (see 'berth --help')`,
		"vol":                         `berth has no command "vol"; did you mean volume? (see 'berth --help')`,
		"aplly":                       `berth has no command "aplly"; did you mean apply? (see 'berth --help')`,
		"volume s":                    `berth volume has no command "s"; did you mean status? (see 'berth volume --help')`,
		"volume list --templte x":     `unknown flag: --templte; did you mean --template? (see 'berth volume list --help')`,
		"volume list --template {{":   `--template cannot be read: 1: unclosed action`,
		"volume list --template=":     `--template is empty; give one such as '{{.ID}}'`,
		"frobnicate":                  `berth has no command "frobnicate" (see 'berth --help')`,
		"volume lst":                  `berth volume has no command "lst"; did you mean list? (see 'berth volume --help')`,
		"system snapshot sav":         `berth system snapshot has no command "sav"; did you mean save? (see 'berth system snapshot --help')`,
		"system recovery confrm":      `berth system recovery has no command "confrm"; did you mean confirm? (see 'berth system recovery --help')`,
		"help volum":                  `berth has no command "volum"; did you mean volume? (see 'berth --help')`,
		"help volume lst":             `berth volume has no command "lst"; did you mean list? (see 'berth volume --help')`,
		"help apply x":                `berth apply has no command "x" (see 'berth apply --help')`,
		"volume status":               `berth volume status needs ID (see 'berth volume status --help')`,
		"volume status a b":           `berth volume status does not take "b" (see 'berth volume status --help')`,
		"volume list a":               `berth volume list does not take "a" (see 'berth volume list --help')`,
		"volume delete":               `berth volume delete needs ID (see 'berth volume delete --help')`,
		"job stop":                    `berth job stop needs ID (see 'berth job stop --help')`,
		"alloc status":                `berth alloc status needs ID (see 'berth alloc status --help')`,
		"alloc signal ab SIGFOO":      `signal "SIGFOO" is not one of SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGKILL`,
		"operation status":            `berth operation status needs ID (see 'berth operation status --help')`,
		"apply":                       `berth apply needs FILE... (see 'berth apply --help')`,
		"status x":                    `berth status does not take "x" (see 'berth status --help')`,
		"system snapshot save":        `berth system snapshot save needs FILE (see 'berth system snapshot save --help')`,
		"system snapshot restore":     `berth system snapshot restore needs FILE (see 'berth system snapshot restore --help')`,
		"--jsn":                       `unknown flag: --jsn; did you mean --json? (see 'berth --help')`,
		"volume list --detach":        `unknown flag: --detach (see 'berth volume list --help')`,
		"volume list -x":              `unknown shorthand flag: 'x' in -x (see 'berth volume list --help')`,
		"status --address":            `flag needs an argument: --address (see 'berth status --help')`,
		"apply --detach=perhaps x":    `invalid argument "perhaps" for "--detach" flag: strconv.ParseBool: parsing "perhaps": invalid syntax (see 'berth apply --help')`,
		"status --address https://h":  "the address https://h is not one of plain HTTP, which is all that this version speaks: write it as http://127.0.0.1:7400",
		"status --address http://":    `the address "http://" is no URL such as http://127.0.0.1:7400`,
		"system snapshot restore /no": "open /no: no such file or directory",
	} {
		got := run(t, f.URL, strings.Fields(command)...)
		if diff := cmp.Diff(result{stderr: "berth: " + want + "\n", status: cli.ExitUsage}, got, cmp.AllowUnexported(result{})); diff != "" {
			t.Errorf("berth %s (-want +got):\n%s", command, diff)
		}
	}
	if len(f.asked) > 0 {
		t.Errorf("the servers were asked for %v", f.asked)
	}
}

// TestHelp: every command explains itself, on the standard output, and what
// only holds other commands lists them.
func TestHelp(t *testing.T) {
	t.Parallel()
	for command, want := range map[string]string{
		"":                       "Available Commands:",
		"--help":                 "Available Commands:",
		"help":                   "Available Commands:",
		"volume":                 "Show a volume, who holds it, what was done, and what it waits for",
		"help volume status":     "berth volume status ID [flags]",
		"volume status --help":   "berth volume status ID [flags]",
		"apply -h":               "--detach",
		"system snapshot":        "restore     Replace the state by a saved one",
		"system recovery --help": "confirm     Let a restored cluster go on",
		"completion bash":        "bash completion V2 for berth",
	} {
		got := run(t, "", strings.Fields(command)...)
		if got.status != 0 || got.stderr != "" || !strings.Contains(got.stdout, want) {
			t.Errorf("berth %s: want %q, exit status 0, got %+v", command, want, got)
		}
	}
}

// TestCommandsOfMain run as all others do: their wrong usage is wrong usage,
// and their errors are told apart.
func TestCommandsOfMain(t *testing.T) {
	t.Parallel()
	env := cli.Env{
		Commands: []*cobra.Command{{Use: "serve DIR", Args: cobra.ExactArgs(1), RunE: func(_ *cobra.Command, args []string) error {
			switch args[0] {
			case "input":
				return api.Errorf(api.CodeInvalid, "the input is wrong")
			case "flags":
				return cli.Usage(errors.New("so it is not called"))
			}
			return errors.New("the disk is full")
		}}},
		PluginCommands: []*cobra.Command{{Use: "local", Args: cobra.NoArgs, Run: func(*cobra.Command, []string) {}}},
	}
	for command, want := range map[string]result{
		"serve":        {stderr: "berth: berth serve needs DIR (see 'berth serve --help')\n", status: 2},
		"serve input":  {stderr: "berth: the input is wrong\n", status: 2},
		"serve flags":  {stderr: "berth: so it is not called\n", status: 2},
		"serve disk":   {stderr: "berth: the disk is full\n", status: 1},
		"plugin local": {},
	} {
		if diff := cmp.Diff(want, runWith(t, env, "", strings.Fields(command)...), cmp.AllowUnexported(result{})); diff != "" {
			t.Errorf("berth %s (-want +got):\n%s", command, diff)
		}
	}
}

// TestNoServer: whoever has no server learns where it was looked for, and how
// to look elsewhere.
func TestNoServer(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := "http://" + l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	got := run(t, address, "volume", "list", "--json")
	want := result{status: cli.ExitFailed, stderr: `{"code":"unavailable","message":"no server answers at ` + address + ": dial tcp " + l.Addr().String() +
		": connect: connection refused (is the agent running there? set --address or BERTH_ADDRESS)\",\"retry\":true}\n"}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(result{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestErrorsForPrograms: with --json an error is one object, with the API's code
// and each of its problems; with a template it is for a person.
func TestErrorsForPrograms(t *testing.T) {
	t.Parallel()
	f := newFake(t, map[string]any{
		"GET /v1/volume/default/pg": &api.Error{Code: api.CodeInvalid, Message: "the request has 2 problems", Fields: []api.Field{
			{Path: "a", Message: "is b", Mend: "write c"}, {Path: "d", Message: "is <e>"},
		}},
	})
	for words, want := range map[string]result{
		"volume explain pg --json":           {status: cli.ExitUsage, stderr: `{"code":"invalid","message":"the request has 2 problems","fields":[{"path":"a","message":"is b","mend":"write c"},{"path":"d","message":"is <e>"}]}` + "\n"},
		"volume list --json x":               {status: cli.ExitUsage, stderr: `{"code":"invalid","message":"berth volume list does not take \"x\" (see 'berth volume list --help')"}` + "\n"},
		"node list --json":                   {status: cli.ExitFailed, stderr: `{"code":"not_found","message":"/v1/nodes is not there"}` + "\n"},
		"status --json --template x":         {status: cli.ExitUsage, stderr: `{"code":"invalid","message":"--json and --template exclude each other; leave one out"}` + "\n"},
		"volume explain pg --template {{.}}": {status: cli.ExitUsage, stderr: "berth: the request has 2 problems\n  a is b; write c\n  d is <e>\n"},
	} {
		if diff := cmp.Diff(want, run(t, f.URL, strings.Fields(words)...), cmp.AllowUnexported(result{})); diff != "" {
			t.Errorf("berth %s (-want +got):\n%s", words, diff)
		}
	}
}
