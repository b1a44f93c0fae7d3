package localdriver_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-dev/berth/internal/localdriver"
)

// life is a volume's whole life as a list of calls, so that it can be cut
// anywhere and taken up again.
type life struct {
	r       *rig
	k       kind
	id      string
	staging string
	target  string
}

func newLife(r *rig, k kind) *life {
	return &life{r: r, k: k, staging: r.staging("pg"), target: r.target("pg")}
}

// The calls in their order.
const (
	callCreate = iota
	callStage
	callPublish
	callUnpublish
	callUnstage
	callDelete
	calls
)

func (l *life) call(number int) error {
	c := capability(writer, l.k.fsType, "noatime")
	switch number {
	case callCreate:
		response, err := l.r.CreateVolume(l.r.t.Context(), l.k.createRequest("pg"))
		if err == nil {
			l.id = response.GetVolume().GetVolumeId()
		}
		return err
	case callStage:
		return l.r.stage(l.id, l.staging, c)
	case callPublish:
		// Read-only, so that there is a moment at which the mount is there and
		// is not yet what was asked for.
		return l.r.publish(l.id, l.staging, l.target, true, c)
	case callUnpublish:
		return l.r.unpublish(l.id, l.target)
	case callUnstage:
		return l.r.unstage(l.id, l.staging)
	}
	return l.r.remove(l.id)
}

// check looks at what must be true after a call.
func (l *life) check(number int) {
	t := l.r.t
	t.Helper()
	switch number {
	case callStage:
		write(t, filepath.Join(l.staging, "file"), "data")
		var st unix.Statfs_t
		if err := unix.Statfs(l.staging, &st); err != nil || st.Flags&unix.ST_NOATIME == 0 {
			t.Errorf("staged with flags %#x (%v), noatime is missing", st.Flags, err)
		}
	case callPublish:
		wantFile(t, filepath.Join(l.target, "file"), "data")
		if err := os.WriteFile(filepath.Join(l.target, "file"), nil, 0o644); !errors.Is(err, unix.EROFS) {
			t.Errorf("write to a read-only target: %v, want %v", err, unix.EROFS)
		}
	case callUnpublish:
		if _, err := os.Lstat(l.target); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("target after unpublish: %v, want it gone", err)
		}
	case callUnstage:
		if leaks := l.r.leaks(); len(leaks) > 0 {
			t.Errorf("left behind by unstage: %v", leaks)
		}
	case callDelete:
		if files := l.r.files(); len(files) > 0 {
			t.Errorf("left behind by delete: %v", files)
		}
	}
}

// from makes the calls from number on. All must succeed, a call that meets the
// driver's own settling after a start is repeated.
func (l *life) from(number int) {
	t := l.r.t
	t.Helper()
	for ; number < calls; number++ {
		l.succeed(number)
		l.check(number)
	}
}

func (l *life) succeed(number int) {
	t := l.r.t
	t.Helper()
	waitFor(t, "the volume to be free", func() bool {
		err := l.call(number)
		if err != nil && status.Code(err) != codes.Aborted {
			t.Fatalf("call %d: %v", number, err)
		}
		return err == nil
	})
}

// untilKilled makes the calls until the driver kills itself, and returns the
// number of the call that saw it.
func (l *life) untilKilled(step string) (number int) {
	t := l.r.t
	t.Helper()
	child := l.r.spawn(step)
	for number = range calls {
		err := l.call(number)
		if status.Code(err) == codes.Unavailable {
			l.r.awaitKilled(child)
			return number
		}
		must(t, "call before the crash", err, codes.OK)
		l.check(number)
	}
	t.Fatalf("the driver never came to %q", step)
	return 0
}

// eachCrash runs a test for every step of every kind of volume.
func eachCrash(t *testing.T, test func(t *testing.T, l *life, step string)) {
	// A directory is neither attached nor formatted.
	imageOnly := []string{"stage: attached", "stage: formatted", "stage: formatting recorded"}
	for _, k := range kinds() {
		for _, step := range localdriver.Steps() {
			if !k.image() && slices.Contains(imageOnly, step) {
				continue
			}
			t.Run(k.name+"/"+strings.ReplaceAll(step, ": ", "_"), func(t *testing.T) {
				t.Parallel()
				test(t, newLife(newRig(t), k), step)
			})
		}
	}
}

func TestCrash_RepeatedCallFinishes(t *testing.T) {
	t.Parallel()
	eachCrash(t, func(_ *testing.T, l *life, step string) {
		number := l.untilKilled(step)
		l.r.start()
		l.from(number)
	})
}

func TestCrash_OppositeCallsUndo(t *testing.T) {
	t.Parallel()
	eachCrash(t, func(_ *testing.T, l *life, step string) {
		number := l.untilKilled(step)
		l.r.start()
		if number == callCreate {
			// The orchestrator learns the id only by asking again.
			l.succeed(callCreate)
		}
		for _, undo := range []int{callUnpublish, callUnstage, callDelete} {
			// What the deletion has already removed answers NOT_FOUND.
			if number == callDelete && undo != callDelete {
				continue
			}
			l.succeed(undo)
			l.check(undo)
		}
	})
}

// A machine that loses power keeps the records and loses mounts and devices.
func TestCrash_RebootInTheMiddle(t *testing.T) {
	t.Parallel()
	eachCrash(t, func(_ *testing.T, l *life, step string) {
		number := l.untilKilled(step)
		l.r.reboot()
		l.r.start()
		if number > callCreate && number < callDelete {
			// The workload comes back and wants its volume.
			number = callStage
		}
		l.from(number)
	})
}

func TestCrash_DriverFinishesOrUndoesByItself(t *testing.T) {
	t.Parallel()
	for _, k := range kinds() {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			l := newLife(newRig(t), k)
			l.untilKilled("create: recorded")
			stop := l.r.start()
			waitFor(t, "the volume to be made", func() bool { return len(l.r.listed()) == 1 })
			stop()

			l.untilKilled("delete: recorded")
			l.r.start()
			waitFor(t, "the volume to be deleted", func() bool { return len(l.r.files()) == 0 })
		})
	}
}
