package tasklog_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/tasklog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newLog is a log in parts of ten bytes, of which three are kept.
func newLog(t interface {
	Fatal(args ...any)
	Cleanup(f func())
}, dir string,
) (*tasklog.Writer, string) {
	path := filepath.Join(dir, "t.stdout.log")
	w, err := tasklog.Create(path, 10, 3)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return w, path
}

func write(t *testing.T, w io.Writer, pieces ...string) {
	t.Helper()
	for _, p := range pieces {
		if _, err := io.WriteString(w, p); err != nil {
			t.Fatal(err)
		}
	}
}

func over() bool { return true }

// read is what a query answers, and the position where that begins.
func read(t *testing.T, path string, q api.LogQuery) (int64, string) {
	t.Helper()
	r, err := tasklog.Open(path, q)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	at := r.Offset()
	var b bytes.Buffer
	if err := r.Copy(t.Context(), &b, over); err != nil {
		t.Fatal(err)
	}
	if r.Offset() != at+int64(b.Len()) {
		t.Errorf("after %d bytes from %d the reader is at %d", b.Len(), at, r.Offset())
	}
	return at, b.String()
}

// TestRead: of a log whose first part is gone, what is kept has the positions
// that it always had.
func TestRead(t *testing.T) {
	t.Parallel()
	w, path := newLog(t, t.TempDir())
	write(t, w, "one\ntwo\n", "three\n", "four\n", "five\n", "six\nseven")
	// In parts: one two | three | four five | six seven.
	for name, tc := range map[string]struct {
		query api.LogQuery
		at    int64
		want  string
	}{
		"All":                {api.LogQuery{}, 8, "three\nfour\nfive\nsix\nseven"},
		"FromWhatIsGone":     {api.LogQuery{Offset: 3}, 8, "three\nfour\nfive\nsix\nseven"},
		"FromAPart":          {api.LogQuery{Offset: 14}, 14, "four\nfive\nsix\nseven"},
		"FromWithinAPart":    {api.LogQuery{Offset: 16}, 16, "ur\nfive\nsix\nseven"},
		"FromTheEnd":         {api.LogQuery{Offset: 33}, 33, ""},
		"FromBeyondTheEnd":   {api.LogQuery{Offset: 99}, 99, ""},
		"LastBytes":          {api.LogQuery{Offset: -7}, 26, "x\nseven"},
		"MoreBytesThanKept":  {api.LogQuery{Offset: -99}, 8, "three\nfour\nfive\nsix\nseven"},
		"NoLine":             {api.LogQuery{Tail: new(int64(0))}, 33, ""},
		"LastLineWithoutEnd": {api.LogQuery{Tail: new(int64(1))}, 28, "seven"},
		"LinesOfTwoParts":    {api.LogQuery{Tail: new(int64(3))}, 19, "five\nsix\nseven"},
		"AllLines":           {api.LogQuery{Tail: new(int64(5))}, 8, "three\nfour\nfive\nsix\nseven"},
		"MoreLinesThanKept":  {api.LogQuery{Tail: new(int64(6))}, 8, "three\nfour\nfive\nsix\nseven"},
	} {
		at, got := read(t, path, tc.query)
		if at != tc.at || got != tc.want {
			t.Errorf("%s: %q from %d, want %q from %d", name, got, at, tc.want, tc.at)
		}
	}
	write(t, w, "\n")
	if _, got := read(t, path, api.LogQuery{Tail: new(int64(1))}); got != "seven\n" {
		t.Errorf("the last line is %q", got)
	}
}

// TestNoLogYet: a task that has not begun has an empty log.
func TestNoLogYet(t *testing.T) {
	t.Parallel()
	for _, q := range []api.LogQuery{{}, {Offset: -5}, {Tail: new(int64(5))}} {
		if at, got := read(t, filepath.Join(t.TempDir(), "none", "t.stdout.log"), q); at != 0 || got != "" {
			t.Errorf("%+v: %q from %d", q, got, at)
		}
	}
}

// TestOthersFiles: what lies in the directory beside the log is no part of it,
// and what stands in its place is not read.
func TestOthersFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w, path := newLog(t, dir)
	write(t, w, "one\n")
	for _, name := range []string{"t.stdout.log.old", "t.stdout.log.-4", "t.stdout.log.1x", "t.stderr.log", "other.stdout.log.7"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("no"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if at, got := read(t, path, api.LogQuery{}); at != 0 || got != "one\n" {
		t.Errorf("%q from %d", got, at)
	}
	link := filepath.Join(dir, "link.stdout.log")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	pipe := filepath.Join(dir, "pipe.stdout.log")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{link, dir, pipe} {
		if _, err := tasklog.Open(bad, api.LogQuery{}); err == nil {
			t.Errorf("%s was read", bad)
		}
		if _, err := tasklog.Create(bad, 10, 3); err == nil {
			t.Errorf("%s was written", bad)
		}
	}
}

// TestLogsLeadNowhere: a task that owns its directory puts a link in the place of
// its logs, and the agent, which is root, writes nothing where the link leads.
func TestLogsLeadNowhere(t *testing.T) {
	t.Parallel()
	task, others := t.TempDir(), t.TempDir()
	path := tasklog.Path(task, "t", api.LogStdout)
	if err := os.Symlink(others, filepath.Dir(path)); err != nil {
		t.Fatal(err)
	}
	if _, err := tasklog.Create(path, 10, 3); err == nil {
		t.Error("a log was made where the link leads")
	}
	if err := os.WriteFile(filepath.Join(others, filepath.Base(path)), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := tasklog.Open(path, api.LogQuery{}); err == nil {
		t.Error("what the link leads to was read")
	}
	if names, err := os.ReadDir(others); err != nil || len(names) != 1 {
		t.Errorf("the other directory has %v, %v", names, err)
	}
}

// TestGoesOnAfterACrash: a supervisor that dies between two steps of a rotation
// leaves positions as they are.
func TestGoesOnAfterACrash(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w, path := newLog(t, dir)
	write(t, w, "12345678\n", "abcdefgh\n")
	// The newest has its number, and there is no new one.
	if err := os.Rename(path, path+".9"); err != nil {
		t.Fatal(err)
	}
	if at, got := read(t, path, api.LogQuery{Offset: 9}); at != 9 || got != "abcdefgh\n" {
		t.Errorf("without a newest part: %q from %d", got, at)
	}
	again, _ := newLog(t, dir)
	write(t, again, "new\n")
	if at, got := read(t, path, api.LogQuery{Offset: 9}); at != 9 || got != "abcdefgh\nnew\n" {
		t.Errorf("afterwards: %q from %d", got, at)
	}
}

// TestFollow reads what comes while it comes, and ends when the task has.
func TestFollow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, path := newLog(t, t.TempDir())
		write(t, w, "before\n")
		r, err := tasklog.Open(path, api.LogQuery{Tail: new(int64(0))})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		ended := make(chan struct{})
		got := &lockedBuffer{}
		done := make(chan error, 1)
		go func() {
			done <- r.Copy(t.Context(), got, func() bool {
				select {
				case <-ended:
					return true
				default:
					return false
				}
			})
		}()
		var want strings.Builder
		for i := range 50 {
			time.Sleep(time.Second)
			synctest.Wait()
			if diff := cmp.Diff(want.String(), got.String()); diff != "" {
				t.Fatalf("after line %d (-want +got):\n%s", i, diff)
			}
			line := fmt.Sprintf("line %d\n", i)
			want.WriteString(line)
			write(t, w, line)
		}
		write(t, w, "last\n")
		close(ended)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want.String()+"last\n", got.String()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// TestFollowEndsWithItsReader and with whoever it writes to.
func TestFollowEndsWithItsReader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, path := newLog(t, t.TempDir())
		write(t, w, "one\n")
		never := func() bool { return false }
		r, err := tasklog.Open(path, api.LogQuery{})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		broken := errors.New("the reader is gone")
		if err := r.Copy(t.Context(), failing{broken}, never); !errors.Is(err, broken) {
			t.Errorf("got %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := r.Copy(ctx, io.Discard, never); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

// TestRotatedAway: a reader that is too slow is told so, and where it can go on.
func TestRotatedAway(t *testing.T) {
	t.Parallel()
	w, path := newLog(t, t.TempDir())
	write(t, w, "12345678\n")
	r, err := tasklog.Open(path, api.LogQuery{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for i := range 5 {
		write(t, w, fmt.Sprintf("again %d \n", i))
	}
	var got bytes.Buffer
	err = r.Copy(t.Context(), &got, over)
	if api.CodeOf(err) != api.CodeUnavailable || !strings.Contains(err.Error(), "rotated away at byte 0") {
		t.Errorf("got %v after %q", err, got.String())
	}
	if at, got := read(t, path, api.LogQuery{Offset: r.Offset()}); at != 27 || got != "again 2 \nagain 3 \nagain 4 \n" {
		t.Errorf("going on: %q from %d", got, at)
	}
}

// TestReadersSeeWhatWasWritten: whatever is written in whatever pieces, what a
// reader gets is a part of it at the position that it says, to the end.
func TestReadersSeeWhatWasWritten(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp(base, "")
		if err != nil {
			t.Fatal(err)
		}
		w, path := newLog(t, dir)
		var all []byte
		for range rapid.IntRange(0, 30).Draw(t, "writes") {
			p := []byte(strings.Repeat(rapid.SampledFrom([]string{"a", "b\n", "\n"}).Draw(t, "text"), rapid.IntRange(1, 25).Draw(t, "times")))
			if _, err := w.Write(p); err != nil {
				t.Fatal(err)
			}
			all = append(all, p...)
		}
		q := api.LogQuery{Offset: rapid.Int64Range(-40, int64(len(all))).Draw(t, "offset")}
		if rapid.Bool().Draw(t, "by lines") {
			n := rapid.Int64Range(0, 10).Draw(t, "lines")
			q = api.LogQuery{Tail: &n}
		}
		r, err := tasklog.Open(path, q)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		at := r.Offset()
		var got bytes.Buffer
		if err := r.Copy(context.Background(), &got, over); err != nil {
			t.Fatal(err)
		}
		if at < 0 || at > int64(len(all)) || !bytes.Equal(all[at:], got.Bytes()) {
			t.Fatalf("from %d: %q, of %q", at, got.Bytes(), all)
		}
		if q.Tail != nil && bytes.Count(bytes.TrimSuffix(got.Bytes(), []byte("\n")), []byte("\n")) >= int(max(*q.Tail, 1)) {
			t.Fatalf("%d lines asked for, got %q", *q.Tail, got.Bytes())
		}
	})
}

// TestConcurrentReader follows a log that is rotated all the time: it gets what
// was written, or is told that it was too slow.
func TestConcurrentReader(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "t.stdout.log")
	w, err := tasklog.Create(path, 1<<12, 3)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Close() }()
	var all bytes.Buffer
	for i := range 20_000 {
		fmt.Fprintf(&all, "line %d\n", i)
	}
	var ended sync.WaitGroup
	ended.Go(func() {
		for line := range bytes.Lines(all.Bytes()) {
			if _, err := w.Write(line); err != nil {
				t.Error(err)
				return
			}
		}
	})
	finished := make(chan struct{})
	go func() {
		ended.Wait()
		close(finished)
	}()
	isOver := func() bool {
		select {
		case <-finished:
			return true
		default:
			return false
		}
	}
	q := api.LogQuery{}
	for parts := 0; ; parts++ {
		r, err := tasklog.Open(path, q)
		if err != nil && api.CodeOf(err) == api.CodeUnavailable {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		at := r.Offset()
		var got bytes.Buffer
		err = r.Copy(t.Context(), &got, isOver)
		r.Close()
		if !bytes.Equal(all.Bytes()[at:at+int64(got.Len())], got.Bytes()) {
			t.Fatalf("what was read from %d is not what was written there", at)
		}
		q.Offset = r.Offset()
		if err == nil {
			break
		}
		if api.CodeOf(err) != api.CodeUnavailable {
			t.Fatal(err)
		}
	}
	if q.Offset != int64(all.Len()) {
		t.Errorf("the reader ended at %d of %d", q.Offset, all.Len())
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
