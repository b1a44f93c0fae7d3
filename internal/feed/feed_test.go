package feed_test

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/feed"
	"github.com/berth-dev/berth/internal/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// followed is a store whose commits a feed keeps.
func followed(t *testing.T) (*state.Store, *feed.Feed) {
	t.Helper()
	store, err := state.New()
	if err != nil {
		t.Fatal(err)
	}
	f := feed.New()
	store.Observe(f)
	return store, f
}

// commit writes at an index. bytes is the size of the entry.
func commit(s *state.Store, index uint64, bytes int, write func(*state.Tx)) {
	tx := s.Begin(index, time.Unix(int64(index), 0).UTC())
	defer tx.Abort()
	tx.Weighs(bytes)
	write(tx)
	tx.Commit()
}

func volume(id api.VolumeID) *api.Volume { return &api.Volume{Namespace: "default", ID: id} }

func put(id api.VolumeID) func(*state.Tx) {
	return func(tx *state.Tx) {
		if old := tx.Volume("default", id); old != nil {
			next := *old
			tx.PutVolume(&next)
			return
		}
		tx.PutVolume(volume(id))
	}
}

func remove(id api.VolumeID) func(*state.Tx) {
	return func(tx *state.Tx) { tx.DeleteVolume(tx.Volume("default", id)) }
}

// told is what a feed says after an index, one line a frame, or the error.
func told(t *testing.T, f *feed.Feed, after uint64, topics ...api.Topic) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var b strings.Builder
	for {
		frames, upTo, err := f.Next(ctx, after, topics)
		if err != nil {
			return b.String() + string(api.CodeOf(err)) + ": " + err.Error()
		}
		for _, frame := range frames {
			fmt.Fprintf(&b, "%d", frame.Index)
			for _, e := range frame.Events() {
				fmt.Fprintf(&b, " %s %s:%s/%s%s", e.Kind, e.Topic, e.Namespace, e.Key, version(t, e.Row))
			}
			b.WriteString("\n")
		}
		if len(frames) == 0 {
			fmt.Fprintf(&b, "up to %d", upTo)
			return b.String()
		}
		after = upTo
	}
}

func version(t *testing.T, row json.RawMessage) string {
	t.Helper()
	if row == nil {
		return ""
	}
	var meta api.Meta
	if err := json.Unmarshal(row, &meta); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint("@", meta.Version)
}

// write makes the writes of a line: +pg puts, -pg removes.
func write(line string) func(*state.Tx) {
	return func(tx *state.Tx) {
		for word := range strings.FieldsSeq(line) {
			if id, found := strings.CutPrefix(word, "-"); found {
				remove(api.VolumeID(id))(tx)
				continue
			}
			put(api.VolumeID(word[1:]))(tx)
		}
	}
}

// TestFramesSayWhatCommitsChanged, each row once.
func TestFramesSayWhatCommitsChanged(t *testing.T) {
	t.Parallel()
	s, f := followed(t)
	commit(s, 3, 0, put("pg"))
	commit(s, 4, 0, put("pg"))
	commit(s, 5, 0, func(tx *state.Tx) { tx.PutLog(state.Log{Clock: tx.Now()}) })
	commit(s, 6, 0, write("+a +pg +a"))
	commit(s, 7, 0, write("+b -b -a"))
	commit(s, 8, 0, write("-pg +pg"))
	commit(s, 9, 0, write("+c -c +c +pg -pg +pg -pg"))
	commit(s, 10, 0, func(tx *state.Tx) {
		tx.PutNode(&api.Node{ID: "n1"})
		tx.PutIdentity(&state.Identity{NodeID: "n1", SecretHash: "hash"})
		tx.Touch("n1")
	})
	aborted := s.Begin(11, time.Time{})
	put("never")(aborted)
	aborted.Abort()
	fork := s.Fork()
	put("perhaps")(fork)
	want := `3 created volume:default/pg@1
4 changed volume:default/pg@2
6 created volume:default/a@2 changed volume:default/pg@3
7 deleted volume:default/a
8 changed volume:default/pg@1
9 created volume:default/c@1 deleted volume:default/pg
10 created node:/n1@1
up to 10`
	if diff := cmp.Diff(want, told(t, f, 0)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff("10 created node:/n1@1\nup to 10", told(t, f, 9)); diff != "" {
		t.Errorf("after 9 (-want +got):\n%s", diff)
	}
}

// TestEveryNounHasATopic: whoever adds a noun to the state learns here where it
// needs a name, so that people hear of it.
func TestEveryNounHasATopic(t *testing.T) {
	t.Parallel()
	seen := map[api.Topic]string{}
	tx := reflect.TypeFor[*state.Tx]()
	for m := range tx.Methods() {
		if !strings.HasPrefix(m.Name, "Put") || m.Type.NumIn() != 2 || !m.Type.In(1).Implements(reflect.TypeFor[state.Noun]()) {
			continue
		}
		s, f := followed(t)
		row := reflect.New(m.Type.In(1).Elem())
		commit(s, 5, 0, func(tx *state.Tx) { reflect.ValueOf(tx).MethodByName(m.Name).Call([]reflect.Value{row}) })
		frames, _, err := f.Next(t.Context(), 4, nil)
		if m.Name == "PutVolumeSecrets" { // which nobody is told of, sealed or not
			if err == nil && len(frames) == 1 && len(frames[0].Events()) > 0 {
				t.Errorf("events tell of secrets: %+v", frames[0].Events())
			}
			continue
		}
		if err != nil || len(frames) != 1 || len(frames[0].Events()) != 1 {
			t.Errorf("state.Tx.%s writes a noun that events do not tell of: give %s a topic in api/event.go, and a row in topics and labelOf (internal/feed/frame.go)",
				m.Name, m.Type.In(1))
			continue
		}
		topic := frames[0].Events()[0].Topic
		seen[topic] = m.Name
		if got := told(t, f, 4, topic); !strings.Contains(got, string(topic)) {
			t.Errorf("who follows %s is not told of it: %s", topic, got)
		}
	}
	for _, topic := range api.Topics() {
		if seen[topic] == "" {
			t.Errorf("nothing is ever told about %s", topic)
		}
	}
}

// TestWhatIsNotKeptIsSaid: nobody misses anything without being told, and
// nobody is told so who has missed nothing.
func TestWhatIsNotKeptIsSaid(t *testing.T) {
	t.Parallel()
	s, f := followed(t)
	const large = 20 << 20
	commit(s, 10, large, func(tx *state.Tx) { tx.PutNode(&api.Node{ID: "n1"}) })
	commit(s, 11, large, put("a"))
	commit(s, 12, large, put("b"))
	commit(s, 13, 0, put("c"))
	const gone = "gone: the events after index %d are no longer kept: read what there is, and follow from now on\n  index is %d; use 11 to 13, or leave it out"
	for _, tc := range []struct {
		after  uint64
		topics []api.Topic
		want   string
	}{
		{10, nil, fmt.Sprintf(gone, 10, 10)},
		{0, nil, fmt.Sprintf(gone, 0, 0)},
		{10, []api.Topic{api.TopicNode, api.TopicVolume}, fmt.Sprintf(gone, 10, 10)},
		{11, nil, "12 created volume:default/b@1\n13 created volume:default/c@1\nup to 13"},
		// The node has not changed after 10, and no job ever.
		{10, []api.Topic{api.TopicNode}, "12 created volume:default/b@1\n13 created volume:default/c@1\nup to 13"},
		{0, []api.Topic{api.TopicJob}, "12 created volume:default/b@1\n13 created volume:default/c@1\nup to 13"},
		{9, []api.Topic{api.TopicNode}, "gone: the events after index 9 are no longer kept: read what there is, and follow from now on\n  index is 9; use 10 to 13, or leave it out"},
		{13, nil, "up to 13"},
		{14, nil, "gone: the state has not come to index 14: it is another one, or an older copy; read what there is, and follow from now on\n  index is 14; use 11 to 13, or leave it out"},
	} {
		if diff := cmp.Diff(tc.want, told(t, f, tc.after, tc.topics...)); diff != "" {
			t.Errorf("after %d of %v (-want +got):\n%s", tc.after, tc.topics, diff)
		}
	}
}

// TestManySmallCommitsAreBounded by their rows.
func TestManySmallCommitsAreBounded(t *testing.T) {
	t.Parallel()
	s, f := followed(t)
	const last = 20_000
	for i := uint64(1); i <= last; i++ {
		commit(s, i, 100, put("pg"))
	}
	kept := strings.Count(told(t, f, last-16_384), "\n")
	if kept != 16_384 {
		t.Errorf("%d commits are kept, want 16384", kept)
	}
	if got := told(t, f, last-16_385); !strings.HasPrefix(got, "gone: ") {
		t.Errorf("one more: %s", got)
	}
}

// TestStateThatIsReplaced: of what it was made of, a saved state tells when each
// table last changed.
func TestStateThatIsReplaced(t *testing.T) {
	t.Parallel()
	s, f := followed(t)
	other, _ := followed(t)
	commit(other, 50, 0, put("pg"))
	commit(other, 90, 0, func(tx *state.Tx) { tx.PutNode(&api.Node{ID: "n1"}) })
	commit(s, 3, 0, put("old"))
	s.Restore(other)
	commit(s, 91, 0, put("new"))
	for after, want := range map[uint64]string{
		3:  "gone: the events after index 3 are no longer kept: read what there is, and follow from now on\n  index is 3; use 50 to 91, or leave it out",
		60: "91 created volume:default/new@1\nup to 91",
	} {
		if diff := cmp.Diff(want, told(t, f, after, api.TopicVolume)); diff != "" {
			t.Errorf("volumes after %d (-want +got):\n%s", after, diff)
		}
	}
	if got := told(t, f, 60); !strings.HasPrefix(got, "gone: ") {
		t.Errorf("everything after 60: %s", got)
	}
}

// TestNextWaits for a change, and for nothing else.
func TestNextWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, f := followed(t)
		commit(s, 3, 0, put("pg"))
		type answer struct {
			frames int
			upTo   uint64
		}
		answers := make(chan answer, 2)
		ask := func(ctx context.Context) {
			frames, upTo, err := f.Next(ctx, 3, nil)
			if err != nil {
				t.Error(err)
			}
			answers <- answer{len(frames), upTo}
		}
		go ask(t.Context())
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		go ask(short)
		synctest.Wait()
		commit(s, 4, 0, func(tx *state.Tx) { tx.PutLog(state.Log{Clock: tx.Now()}) })
		if got := <-answers; got != (answer{0, 4}) && got != (answer{0, 3}) {
			t.Errorf("who waits for a second was answered %+v", got)
		}
		commit(s, 5, 0, put("pg"))
		if got := <-answers; got != (answer{1, 5}) {
			t.Errorf("who waits was answered %+v, want one frame up to 5", got)
		}
	})
}
