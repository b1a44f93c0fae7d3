package state_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/state"
	"github.com/berth-dev/berth/internal/state/statetest"
)

// The saved states of each format: a row in every table that it had, with a
// value in every field. Each is made once, by -update where it is missing, and
// never again: every later version must read it. The text is the same, for
// people. What a later format adds goes into files of its own beside these.
func goldenStates() []string {
	return []string{"testdata/v1", "testdata/v2", "testdata/v3", "testdata/findings", "testdata/rooms", "testdata/variables"}
}

func TestGoldenStatesLoad(t *testing.T) {
	t.Parallel()
	for _, name := range goldenStates() {
		goldenState, goldenText := name+".state", name+".txt"
		if _, err := os.Stat(goldenState); errors.Is(err, fs.ErrNotExist) && statetest.Updating() {
			writeGolden(t, goldenState, goldenText, everyTable(t).View())
		}
		saved, err := os.ReadFile(goldenState)
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(goldenText)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), decompress(t, saved)); diff != "" {
			t.Errorf("%s and %s differ; neither may ever change:\n%s", goldenState, goldenText, diff)
		}
		store, err := state.Load(bytes.NewReader(saved))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), text(t, store.View())); diff != "" {
			t.Errorf("%s: saved again, it differs:\n%s", name, diff)
		}
		if diff := cmp.Diff(awkwardJob().Spec, store.View().Job("default", "awkward").Spec); diff != "" {
			t.Errorf("%s: the awkward job differs (-want +got):\n%s", name, diff)
		}
	}
}

func TestGoldenStatesHaveEveryTable(t *testing.T) {
	t.Parallel()
	var golden strings.Builder
	for _, name := range goldenStates() {
		b, err := os.ReadFile(name + ".txt")
		if err != nil {
			t.Fatal(err)
		}
		golden.Write(b)
	}
	for _, name := range state.Tables() {
		if !strings.Contains(golden.String(), `{"table":"`+name+`",`) {
			t.Errorf("no row of table %s: a later format needs a golden state of its own", name)
		}
	}
}

func TestGoldenStateIsNeverRewritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	saved, printed := filepath.Join(dir, "state"), filepath.Join(dir, "text")
	v := statetest.Load(t, `node {"id":"n1"}`).View()
	writeGolden(t, saved, printed, v)
	before, err := os.ReadFile(saved)
	if err != nil {
		t.Fatal(err)
	}
	if err := createGolden(saved, []byte("other")); !errors.Is(err, fs.ErrExist) {
		t.Errorf("error = %v, want one that says that the file is there", err)
	}
	after, err := os.ReadFile(saved)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(before, after) {
		t.Error("the golden state was rewritten")
	}
}

// everyTable is a state with a row in every table and a value in every field.
func everyTable(t *testing.T) *state.Store {
	t.Helper()
	store := statetest.Load(t, "")
	commit(store, 2, func(tx *state.Tx) {
		tx.PutLog(*filled[state.Log]())
		tx.PutNode(filled[api.Node]())
		tx.PutCluster(filled[api.Cluster]())
		tx.PutIdentity(filled[state.Identity]())
		tx.PutInstance(filled[api.Instance]())
		tx.PutVolume(filled[api.Volume]())
		tx.PutPublication(filled[api.Publication]())
		tx.PutAttachment(filled[api.Attachment]())
		tx.PutOperation(filled[api.Operation]())
		tx.PutJob(filled[api.Job]())
		tx.PutRevision(filled[state.Revision]())
		tx.PutAllocation(filled[api.Allocation]())
		tx.PutVolumeSecrets(filled[api.VolumeSecrets]())
		tx.PutSnapshot(filled[api.Snapshot]())
		tx.PutFinding(filled[api.Finding]())
		tx.PutRoom(filled[api.Room]())
		tx.PutVariable(filled[api.Variable]())
		tx.PutVariableContent(filled[state.VariableContent]())
		tx.NextOperationID("create/default/pg")
	})
	commit(store, 1<<60, func(tx *state.Tx) { tx.PutJob(awkwardJob()) })
	return store
}

// awkwardJob has what JSON is awkward about.
func awkwardJob() *api.Job {
	return &api.Job{
		Namespace: "default", ID: "awkward", UID: "<&>\u2028é\"",
		Spec: api.JobSpec{Type: api.JobService, Groups: []api.TaskGroup{{Tasks: []api.Task{{Config: map[string]any{
			"text": "a\nb", "number": 1.5, "large": float64(1 << 60), "list": []any{"x", true, nil}, "empty": map[string]any{},
		}}}}}},
	}
}

func filled[T any]() *T {
	row := new(T)
	statetest.Fill(row)
	return row
}

func writeGolden(t *testing.T, stateFile, textFile string, v state.View) {
	t.Helper()
	for file, content := range map[string][]byte{stateFile: save(t, v), textFile: []byte(text(t, v))} {
		if err := createGolden(file, content); err != nil {
			t.Fatal(err)
		}
	}
}

// createGolden writes a file that must not be there.
func createGolden(file string, content []byte) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Close())
}

func decompress(t *testing.T, saved []byte) string {
	t.Helper()
	z, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	b, err := z.DecodeAll(saved, nil)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
