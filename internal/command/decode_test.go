package command_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
)

const (
	logHead    = `{"id":{"leadership":"a","sequence":2},"after":{"leadership":"a","sequence":1},"time":"2026-01-01T12:00:00Z"}` + "\n"
	logCommand = `job.stop {"namespace":"default","id":"db"}` + "\n"
)

func TestDecodeReadsPlansInOrder(t *testing.T) {
	t.Parallel()
	e, err := command.NewCodec().Decode([]byte(logHead + logCommand + `job.settle {"namespace":"default","id":"db","version":2}` + "\n\n\n" + logCommand + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := []command.Plan{
		{&command.StopJob{Namespace: "default", ID: "db"}, &command.SettleJob{Namespace: "default", ID: "db", Version: 2}},
		nil,
		{&command.StopJob{Namespace: "default", ID: "db"}},
	}
	if diff := cmp.Diff(want, e.Plans); diff != "" {
		t.Errorf("plans differ (-want +got):\n%s", diff)
	}
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ entry, want string }{
		"nothing":                {"", "it has no head"},
		"a head that is cut":     {logHead[:20], "it has no head"},
		"a head that is no JSON": {"#\n" + logCommand + "\n", "invalid character"},
		"an unknown field of the head": {
			`{"id":{},"after":{},"time":"2026-01-01T12:00:00Z","moon":1}` + "\n", `unknown field "moon"`,
		},
		"something after the head": {strings.TrimSuffix(logHead, "\n") + "}\n", "something follows the value"},
		"an unknown kind":          {logHead + "moon.land {}\n\n", `unknown kind "moon.land": a newer version wrote it`},
		"an unknown field":         {logHead + `job.stop {"namespace":"default","id":"db","moon":1}` + "\n\n", `command job.stop: json: unknown field "moon"`},
		"an unknown field deep inside": {
			logHead + `node.report {"report":{"node_id":"n1","facts":{"moons":[]}}}` + "\n\n", `command node.report: json: unknown field "moons"`,
		},
		"a value of the wrong type":   {logHead + `job.stop {"version":"2"}` + "\n\n", "command job.stop: json: cannot unmarshal string"},
		"a command without a body":    {logHead + "job.stop\n\n", "command job.stop: EOF"},
		"a command that is cut":       {logHead + logCommand[:20], "decode entry a/2: it is cut"},
		"a body that is cut":          {logHead + logCommand[:20] + "\n\n", "command job.stop: unexpected EOF"},
		"a plan that is cut":          {logHead + logCommand, "decode entry a/2: its last plan is cut"},
		"a second value":              {logHead + "job.stop {} {}\n\n", "command job.stop: something follows the value"},
		"a brace too much":            {logHead + "job.stop {}}\n\n", "command job.stop: something follows the value"},
		"a bracket too much":          {logHead + "job.stop {}]\n\n", "command job.stop: something follows the value"},
		"something after the entry":   {logHead + logCommand + "\nx", "decode entry a/2: it is cut"},
		"an entry that stands inside": {logHead + logCommand + "\n" + logHead + logCommand + "\n", "unknown kind"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, err := command.NewCodec().Decode([]byte(c.entry))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %+v and error %v, want an error that says %q", e, err, c.want)
			}
		})
	}
}

func TestEveryCutOfAnEntryIsRefused(t *testing.T) {
	t.Parallel()
	whole := logHead + logCommand + logCommand + "\n" + logCommand + "\n"
	// Where a plan ends, an entry could end, too: raft keeps the length.
	plans := []int{len(logHead), len(logHead + logCommand + logCommand + "\n")}
	for n := range whole {
		_, err := command.NewCodec().Decode([]byte(whole[:n]))
		if ends := n == plans[0] || n == plans[1]; (err == nil) != ends {
			t.Errorf("cut after %d of %d bytes: error = %v", n, len(whole), err)
		}
	}
}

// FuzzDecode looks for entries that the codec reads, and then does not write as
// they can be read again.
func FuzzDecode(f *testing.F) {
	files, err := filepath.Glob("testdata/golden/*.json")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		f.Add(readFile(f, file))
	}
	f.Add([]byte(logHead + logCommand + "\n\n" + logCommand + "\n"))
	f.Add([]byte("{}\n\n"))
	codec := command.NewCodec()
	f.Fuzz(func(t *testing.T, b []byte) {
		first, err := codec.Decode(b)
		if err != nil {
			return
		}
		for _, p := range first.Plans {
			if err := p.Validate(); err != nil && api.CodeOf(err) != api.CodeInvalid {
				t.Fatalf("validate: %v", err)
			}
		}
		written := encode(t, first)
		second, err := codec.Decode(written)
		if err != nil {
			t.Fatalf("what was read is not written so that it can be read: %v\n%s", err, written)
		}
		if again := encode(t, second); string(again) != string(written) {
			t.Fatalf("written twice, it differs:\n%s", cmp.Diff(string(written), string(again)))
		}
	})
}
