package statetest_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/state"
	"github.com/berth-dev/berth/internal/state/statetest"
)

// everyNoun has each noun once, in the form in which it is printed.
const everyNoun = `log {"last":{"leadership":"a","sequence":3}}
cluster {}
node {"id":"n1","status":{"state":"ready","drivers":{"exec":{"healthy":true,"mounts_volumes":true}}}}
identity {"node_id":"n1","sequence":7}
assignment {"node_id":"n1","index":5}
instance {"node_id":"n1","healthy":true}
volume {"id":"pg","status":{"state":"ready"}}
publication {"volume_id":"pg","node_id":"n1"}
attachment {"alloc_id":"a1","volume_id":"pg","node_id":"n1","status":{"state":"node-published"}}
operation {"kind":"publish","volume_id":"pg","node_id":"n1","status":{"next":"now+5m"}}
job {"version":3,"modify_time":"now-1m30s","id":"db","spec":{"groups":[{"count":1,"volumes":[{"source":"pg"}]}]}}
revision {"job_uid":"uid-db","revision":7}
allocation {"id":"a1","job_id":"db","node_id":"n1","status":{"state":"running"}}
serial {"last":1}
`

func TestPrintWritesWhatWasLoaded(t *testing.T) {
	t.Parallel()
	store := statetest.Load(t, everyNoun)
	if diff := cmp.Diff(everyNoun, statetest.Print(t, store.View())); diff != "" {
		t.Errorf("the printed world differs (-loaded +printed):\n%s", diff)
	}
}

func TestPrintedWorldLoadsAsTheSameRows(t *testing.T) {
	t.Parallel()
	first := statetest.Load(t, everyNoun)
	second := statetest.Load(t, statetest.Print(t, first.View()))
	if !bytes.Equal(saved(t, first.View()), saved(t, second.View())) {
		t.Errorf("the states differ:\n%s", statetest.Diff(t, first.View(), second.View()))
	}
}

func TestLoadFillsWhatIsLeftOut(t *testing.T) {
	t.Parallel()
	v := statetest.Load(t, `
		# A comment, and a row that goes on.
	`+"\n"+`volume {"id":"pg",
  "status":{"state":"ready"}}
node {"id":"n1"}
job {"id":"db"}
`).View()
	hourAgo := statetest.Now().Add(-time.Hour)
	want := &api.Volume{
		Meta:      api.Meta{Version: 1, CreateIndex: 1, ModifyIndex: 1, CreateTime: hourAgo, ModifyTime: hourAgo},
		Namespace: "default", ID: "pg", UID: "uid-pg", Desired: api.Present,
		Spec: api.VolumeSpec{
			PluginID:     "disk",
			Capabilities: []api.Capability{{AccessMode: api.SingleNodeWriter, AttachmentMode: api.FileSystem}},
		},
		Status: api.VolumeStatus{State: api.VolumeReady, ExternalID: "ext-pg"},
	}
	if diff := cmp.Diff(want, v.Volume("default", "pg")); diff != "" {
		t.Errorf("the volume differs (-want +got):\n%s", diff)
	}
	if id := v.Identity("n1"); id == nil || id.Session != "session" || id.Epoch != 1 {
		t.Errorf("identity of n1 = %+v, want one with the session of all worlds", id)
	}
	if a := v.AssignmentVersion("n1"); a == nil || a.Index != 1 {
		t.Errorf("assignment version of n1 = %+v, want one at index 1", a)
	}
	if v.Revision("uid-db", 1) == nil {
		t.Error("the job has no revision row")
	}
	if v.Index() != 1 {
		t.Errorf("index = %d, want 1", v.Index())
	}
}

func TestLoadTakesAZeroForWhatItIs(t *testing.T) {
	t.Parallel()
	v := statetest.Load(t, `instance {"plugin_id":"disk","node_id":"n1","driver":""}`).View()
	monolith := &api.InstanceFact{PluginID: "disk", InstanceStatus: api.InstanceStatus{Type: api.InstanceMonolith}}
	if i := v.Instance("n1", monolith); i == nil || i.Driver != "" {
		t.Errorf("instance = %+v, want one that has not told its driver", i)
	}
}

func TestDiffShowsRowsThatCameWentAndChanged(t *testing.T) {
	t.Parallel()
	store := statetest.Load(t, "volume {\"id\":\"a\"}\nvolume {\"id\":\"b\"}\nvolume {\"id\":\"c\"}\n")
	before := store.View()
	tx := store.Begin(2, statetest.Now())
	tx.DeleteVolume(tx.Volume("default", "a"))
	changed := *tx.Volume("default", "b")
	changed.Status.Capacity = 5
	tx.PutVolume(&changed)
	tx.Commit()
	want := `- volume {"id":"a"}
- volume {"id":"b"}
+ volume {"version":2,"id":"b","status":{"capacity":5}}
`
	got := statetest.Diff(t, before, store.View())
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the difference differs (-want +got):\n%s", diff)
	}
}

func TestTimesCountFromNow(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"now": 0, "now-5m": -5 * time.Minute, "now+1h30m": 90 * time.Minute, "2026-01-01T12:00:01Z": time.Second,
	} {
		if got := statetest.Time(t, text).Sub(statetest.Now()); got != want {
			t.Errorf("%s is %s from now, want %s", text, got, want)
		}
	}
	const written = `"now" "now-5m" "now+1h30m" "now+2h" "now+0.000000001s" "0001-01-01T00:00:00Z"`
	var absolute []string
	for word := range strings.FieldsSeq(written) {
		if strings.HasPrefix(word, `"now`) {
			word = `"` + statetest.Time(t, strings.Trim(word, `"`)).Format(time.RFC3339Nano) + `"`
		}
		absolute = append(absolute, word)
	}
	got := statetest.Relative(strings.Join(absolute, " "))
	if diff := cmp.Diff(strings.Replace(written, "0.000000001s", "1ns", 1), got); diff != "" {
		t.Errorf("relative times differ (-want +got):\n%s", diff)
	}
}

func saved(t *testing.T, v state.View) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := v.Save(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
