package localdb_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/localdb"
)

// childPath names the database that a child of this test writes.
const childPath = "BERTH_TEST_LOCALDB_CHILD"

// childWriters write at once, so that they share commits.
const childWriters = 4

// writeUntilKilled writes and says what it has written, once it has.
func writeUntilKilled(path string) {
	db, err := localdb.Open(path)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	var all sync.WaitGroup
	var say sync.Mutex
	for w := range childWriters {
		all.Go(func() {
			for i := 1; ; i++ {
				// Records grow and shrink, and every tenth is deleted again.
				s := &localdb.Staging{Namespace: "default", VolumeID: volume(w), ExternalID: fmt.Sprint(i)}
				s.StagingPath = strings.Repeat("x", i*997%9000)
				err := db.PutStaging(s)
				if err == nil && i%10 == 0 {
					if err = db.PutAllocation(&localdb.Allocation{Assignment: api.AllocAssignment{ID: api.AllocID(volume(w))}}); err == nil {
						err = db.DeleteAllocation(api.AllocID(volume(w)))
					}
				}
				if err != nil {
					fmt.Fprintln(os.Stderr, err)
					os.Exit(1)
				}
				say.Lock()
				fmt.Println(w, i)
				say.Unlock()
			}
		})
	}
	all.Wait()
}

// TestKilledWriterLosesNothing kills a process that writes, again and again on
// the same file, and looks whether everything is there that it said it had
// written.
func TestKilledWriterLosesNothing(t *testing.T) {
	t.Parallel()
	path := scratch(t)
	for round := range 6 {
		written := killAfter(t, path, 40+17*round)
		db := open(t, path)
		stagings, err := db.Stagings()
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range stagings {
			var w, got int
			if _, err := fmt.Sscan(string(s.VolumeID[1:])+" "+s.ExternalID, &w, &got); err != nil {
				t.Fatal(err)
			}
			// One more may have been written that the child could not say.
			if got < written[w] || got > written[w]+1 {
				t.Errorf("round %d: writer %d said %d, and the database has %d", round, w, written[w], got)
			}
			delete(written, w)
		}
		if len(written) > 0 {
			t.Errorf("round %d: nothing is left of the writers %v", round, written)
		}
		closeDB(t, db)
	}
}

// killAfter starts a child, kills it when it has said so many lines, and
// answers the last write that each of its writers said.
func killAfter(t *testing.T, path string, lines int) map[int]int {
	t.Helper()
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
	child.Env = append(os.Environ(), childPath+"="+path)
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	written := map[int]int{}
	for scanner := bufio.NewScanner(out); scanner.Scan(); lines-- {
		var w, i int
		if _, err := fmt.Sscan(scanner.Text(), &w, &i); err != nil {
			t.Fatal(err)
		}
		written[w] = i
		if lines == 0 {
			// What is in the pipe already is read to its end.
			if err := child.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	var exit *exec.ExitError
	if err := child.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("the child ended with %v, want it killed", err)
	}
	return written
}
