package consensus_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/consensus"
	"github.com/berth-dev/berth/internal/state"
)

// alone is a cluster of one server with its files in dir, on the real clock.
type alone struct {
	*consensus.Consensus
	leads chan struct{}
	ended chan error // has what Run answered
	stop  func() error
}

// startAlone starts the server and waits until it leads.
func startAlone(dir string) (*alone, error) {
	stores, err := consensus.OpenStores(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	return startOn(stores)
}

// startOn is startAlone with stores that are open.
func startOn(stores consensus.Stores) (*alone, error) {
	store, err := state.New()
	if err != nil {
		return nil, err
	}
	_, transport := raft.NewInmemTransport("one")
	a := &alone{leads: make(chan struct{}), ended: make(chan error, 1)}
	var once sync.Once
	a.Consensus, err = consensus.New(consensus.Config{
		ServerID: "one", Expect: 1, Discover: consensus.Alone{}, Transport: transport, Stores: stores,
		Tuning: consensus.AloneTuning(),
		Lead: func(ctx context.Context) error {
			if a.View().Cluster() == nil {
				if _, err := a.Propose(ctx, &command.InitCluster{ClusterID: "test", FeatureLevel: api.FeatureLevel}); err != nil {
					return err
				}
			}
			once.Do(func() { close(a.leads) })
			<-ctx.Done()
			return nil
		},
	}, store, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() { a.ended <- a.Run(ctx) }()
	a.stop = func() error {
		cancel()
		return <-a.ended
	}
	select {
	case <-a.leads:
		return a, nil
	case err := <-a.ended:
		cancel()
		return nil, fmt.Errorf("it ended: %w", err)
	}
}

// single is startAlone for tests, which stops at their end.
func single(tb testing.TB, dir string) *alone {
	tb.Helper()
	a, err := startAlone(dir)
	if err != nil {
		tb.Fatal(err)
	}
	stop := a.stop
	var once sync.Once
	a.stop = func() (err error) {
		once.Do(func() { err = stop() })
		return err
	}
	tb.Cleanup(func() {
		if err := a.stop(); err != nil {
			tb.Errorf("Run: %v", err)
		}
	})
	return a
}

// childWriters is how many goroutines a child writes with.
const childWriters = 8

// child writes volumes until it is killed, and says each number that was
// acknowledged. It begins after those that are there.
func child(dir string) error {
	a, err := startAlone(dir)
	if err != nil {
		return err
	}
	var next atomic.Int64
	for range a.View().Volumes("") {
		next.Add(1)
	}
	next.Add(childWriters) // some of the last may be missing
	failed := make(chan error)
	for range childWriters {
		go func() {
			for {
				n := next.Add(1)
				if _, err := a.Propose(context.Background(), volume(n)); err != nil {
					failed <- err
					return
				}
				// One write, so that it is whole or missing.
				if _, err := os.Stdout.WriteString(strconv.FormatInt(n, 10) + "\n"); err != nil {
					failed <- err
					return
				}
				if n%64 == 0 {
					if err := a.Snapshot(); err != nil {
						failed <- err
						return
					}
				}
			}
		}()
	}
	return <-failed
}

// TestKill kills a server in the middle of its writes, again and again.
// Nothing that was acknowledged is lost.
func TestKill(t *testing.T) {
	t.Parallel()
	const kills = 20
	dir := t.TempDir()
	rnd := rand.New(rand.NewPCG(8, 8))
	acknowledged := map[int64]bool{}
	for range kills {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), childEnv+"="+dir)
		var complaint bytes.Buffer
		cmd.Stderr = &complaint
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		left := 1 + rnd.IntN(60)
		for lines := bufio.NewScanner(out); lines.Scan(); left-- {
			n, err := strconv.ParseInt(lines.Text(), 10, 64)
			if err != nil {
				t.Errorf("the child said %q", lines.Text())
			}
			acknowledged[n] = true
			if left == 0 {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		_ = cmd.Wait() // it was killed
		if left > 0 {
			t.Fatalf("the child ended by itself:\n%s", complaint.String())
		}
	}
	a := single(t, dir)
	for n := range acknowledged {
		if a.View().Volume(api.DefaultNamespace, volume(n).ID) == nil {
			t.Errorf("volume %d was acknowledged, and is lost", n)
		}
	}
	if len(acknowledged) < kills {
		t.Errorf("only %d writes were acknowledged", len(acknowledged))
	}
	if n := a.Diverged(); n != 0 {
		t.Errorf("%d entries failed that had been planned", n)
	}
}

// TestRestart stops a server with its log on disk and starts it again.
func TestRestart(t *testing.T) {
	t.Parallel()

	t.Run("FromSnapshotAndLog", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		a := single(t, dir)
		write(t, a, 0, 50)
		if err := a.Snapshot(); err != nil {
			t.Fatal(err)
		}
		write(t, a, 50, 50)
		want := saved(t, a.View())
		if err := a.stop(); err != nil {
			t.Fatal(err)
		}
		a = single(t, dir)
		if !bytes.Equal(want, saved(t, a.View())) {
			t.Error("the state after the restart is another one")
		}
		write(t, a, 100, 10)
	})

	// A write that was cut in the middle leaves something at the end of the
	// log, which nobody was told of: a part of an entry, or all of it without
	// the right checksum.
	for name, part := range map[string]func(batch []byte) []byte{
		"WithPartOfAnEntry": func(batch []byte) []byte { return batch[:len(batch)/2] },
		"WithWrongChecksum": func(batch []byte) []byte { return batch },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			a := single(t, dir)
			write(t, a, 0, 20)
			want := saved(t, a.View())
			if err := a.stop(); err != nil {
				t.Fatal(err)
			}
			tear(t, filepath.Join(dir, "wal"), part)
			a = single(t, dir)
			if !bytes.Equal(want, saved(t, a.View())) {
				t.Error("the state after the restart is another one")
			}
			write(t, a, 20, 10)
		})
	}

	t.Run("WithTornSnapshot", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		a := single(t, dir)
		for i := range 3 {
			write(t, a, 10*i, 10)
			if err := a.Snapshot(); err != nil {
				t.Fatal(err)
			}
		}
		want := saved(t, a.View())
		if err := a.stop(); err != nil {
			t.Fatal(err)
		}
		snapshots, err := filepath.Glob(filepath.Join(dir, "snapshots", "*", "state.bin"))
		if err != nil || len(snapshots) != 2 {
			t.Fatalf("snapshots: %v, %v", snapshots, err)
		}
		last := snapshots[len(snapshots)-1]
		info, err := os.Stat(last)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(last, info.Size()/2); err != nil {
			t.Fatal(err)
		}
		a = single(t, dir)
		if !bytes.Equal(want, saved(t, a.View())) {
			t.Error("the state after the restart is another one")
		}
	})
}

func write(t *testing.T, a *alone, first, n int) {
	t.Helper()
	for i := range n {
		if _, err := a.Propose(t.Context(), volume(int64(first+i))); err != nil {
			t.Fatal(err)
		}
	}
}

// tear writes a part of the log's first batch again behind its end. A segment
// is a header of 32 bytes and frames: a type, their length in the second four
// bytes, and the contents, aligned to eight. A commit, which has only a
// checksum, ends a batch.
func tear(t *testing.T, dir string, part func(batch []byte) []byte) {
	t.Helper()
	const header, entry, commit = 32, 1, 3
	segments, err := filepath.Glob(filepath.Join(dir, "*.wal"))
	if err != nil || len(segments) != 1 {
		t.Fatalf("segments: %v, %v", segments, err)
	}
	b, err := os.ReadFile(segments[0])
	if err != nil {
		t.Fatal(err)
	}
	batch, end := 0, header
	for ; b[end] == entry || b[end] == commit; end += 8 {
		if b[end] == entry {
			end += (int(binary.LittleEndian.Uint32(b[end+4:])) + 7) &^ 7
		} else if batch == 0 {
			batch = end + 8
		}
	}
	copy(b[end:], part(b[header:batch]))
	if err := os.WriteFile(segments[0], b, 0o600); err != nil {
		t.Fatal(err)
	}
}
