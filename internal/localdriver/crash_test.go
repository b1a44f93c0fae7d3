package localdriver_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-dev/berth/internal/localdriver"
	"github.com/berth-dev/berth/internal/localdriver/filesystem"
	"github.com/berth-dev/berth/internal/localdriver/record"
)

// life is a volume's whole life as a list of calls, so that it can be cut
// anywhere and taken up again.
type life struct {
	r       *rig
	k       kind
	id      string
	staging string
	target  string
	calls   []call
	synced  bool // what the workload writes is synced
}

// call is one of them, with what must be true after it.
type call struct {
	name  string
	make  func() error
	check func()
}

func newLife(r *rig, k kind) *life {
	l := &life{r: r, k: k, id: idOf("pg"), staging: r.staging("pg"), target: r.target("pg")}
	l.calls = []call{
		{"create", l.create, nil},
		{"stage", l.stage, l.wantStaged},
		{"publish", l.publish, l.wantPublished},
		{"snapshot in use", func() error { return l.snapshot("in use") }, nil},
		{"expand", l.expand, nil},
		{"grow", l.grow, nil},
		{"unpublish", l.unpublish, l.wantNoTarget},
		{"unstage", l.unstage, l.wantNoLeaks},
		{"stage again", l.stage, l.wantGrown},
		{"unstage again", l.unstage, l.wantNoLeaks},
		{"snapshot", func() error { return l.snapshot("idle") }, nil},
		{"restore", func() error { return r.copyOf(k, "restored", record.Source{Snapshot: idOf("idle")}) }, nil},
		{"stage restored", func() error { return l.stageCopy("restored") }, func() { l.wantCopied("restored") }},
		{"unstage restored", func() error { return l.unstageCopy("restored") }, nil},
		// What the kernel remembers of the copy does not keep the original away.
		{"stage after the copy", l.stage, l.wantGrown},
		{"unstage after the copy", l.unstage, l.wantNoLeaks},
		{"clone", func() error { return r.copyOf(k, "clone", record.Source{Volume: l.id}) }, nil},
		{"stage clone", func() error { return l.stageCopy("clone") }, func() { l.wantCopied("clone") }},
		{"unstage clone", func() error { return l.unstageCopy("clone") }, l.wantNoLeaks},
		{"delete clone", func() error { return r.remove(idOf("clone")) }, nil},
		{"delete restored", func() error { return r.remove(idOf("restored")) }, nil},
		{"delete snapshot", func() error { return r.dropSnapshot(idOf("idle")) }, nil},
		{"delete snapshot in use", func() error { return r.dropSnapshot(idOf("in use")) }, nil},
		{"delete", func() error { return r.remove(l.id) }, l.wantNoFiles},
	}
	return l
}

func (l *life) create() error {
	_, err := l.r.CreateVolume(l.r.t.Context(), l.k.createRequest("pg"))
	if status.Code(err) == codes.AlreadyExists {
		return nil // it was expanded since
	}
	return err
}

func (l *life) stage() error { return l.r.stage(l.id, l.staging, l.k.capability("noatime")) }

// publish is read-only, so that there is a moment at which the mount is there
// and is not yet what was asked for, and so that a directory can be copied.
func (l *life) publish() error {
	return l.r.publish(l.id, l.staging, l.target, true, l.k.capability("noatime"))
}

func (l *life) unpublish() error { return l.r.unpublish(l.id, l.target) }

func (l *life) unstage() error { return l.r.unstage(l.id, l.staging) }

// snapshot takes one, if the volume can be copied like that.
func (l *life) snapshot(name string) error {
	err := l.r.snapshot(l.id, name)
	if l.k.block && name == "in use" && status.Code(err) == codes.FailedPrecondition {
		return nil
	}
	return err
}

func (l *life) expand() error {
	if l.k.size == 0 {
		return nil
	}
	return l.r.expand(l.id, l.k.size+16*mib)
}

// grow is done by the next staging where this process may not do it now.
func (l *life) grow() error {
	if l.k.size == 0 {
		return nil
	}
	err := l.r.grow(l.id, l.target, l.k.size+16*mib)
	if l.k.fsType == "ext4" && !filesystem.Ext4.GrowsMounted() && status.Code(err) == codes.FailedPrecondition {
		return nil
	}
	return err
}

func (l *life) wantStaged() {
	t := l.r.t
	t.Helper()
	if l.k.block {
		return
	}
	write(t, filepath.Join(l.staging, "file"), "data")
	if l.synced {
		l.sync(l.staging, "file")
	}
	var st unix.Statfs_t
	if err := unix.Statfs(l.staging, &st); err != nil || st.Flags&unix.ST_NOATIME == 0 {
		t.Errorf("staged with flags %#x (%v), noatime is missing", st.Flags, err)
	}
}

func (l *life) wantPublished() {
	t := l.r.t
	t.Helper()
	file, want := filepath.Join(l.target, "file"), unix.EROFS
	if l.k.block {
		file, want = l.target, unix.EPERM
	} else {
		wantFile(t, file, "data")
	}
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString("more")
		f.Close()
		letGo()
	}
	if !errors.Is(err, want) {
		t.Errorf("write to a read-only target: %v, want %v", err, want)
	}
}

func (l *life) wantNoTarget() {
	if _, err := os.Lstat(l.target); !errors.Is(err, fs.ErrNotExist) {
		l.r.t.Errorf("target after unpublish: %v, want it gone", err)
	}
}

func (l *life) wantNoLeaks() {
	if leaks := l.r.left(); len(leaks) > 0 {
		l.r.t.Errorf("left behind by unstage: %v", leaks)
	}
}

// wantGrown looks whether the file system has followed its volume.
func (l *life) wantGrown() {
	t := l.r.t
	t.Helper()
	if l.k.block {
		return
	}
	wantFile(t, filepath.Join(l.staging, "file"), "data")
	if l.k.fsType == "" {
		return
	}
	var st unix.Statfs_t
	if err := unix.Statfs(l.staging, &st); err != nil {
		t.Fatal(err)
	}
	if size, least := int64(st.Blocks)*st.Frsize, l.k.size+4*mib; l.k.fsType != "xfs" && size < least {
		t.Errorf("the file system has %d bytes after it grew, want at least %d", size, least)
	}
}

func (l *life) stageCopy(name string) error {
	return l.r.stage(idOf(name), l.r.staging(name), l.k.capability())
}

func (l *life) unstageCopy(name string) error { return l.r.unstage(idOf(name), l.r.staging(name)) }

// wantCopied looks into a copy that is staged.
func (l *life) wantCopied(name string) {
	l.r.t.Helper()
	if !l.k.block {
		wantFile(l.r.t, filepath.Join(l.r.staging(name), "file"), "data")
	}
}

func (l *life) wantNoFiles() {
	if files := l.r.files(); len(files) > 0 {
		l.r.t.Errorf("left behind by delete: %v", files)
	}
}

// number is the place of a call.
func (l *life) number(name string) int {
	return slices.IndexFunc(l.calls, func(c call) bool { return c.name == name })
}

// from makes the calls from number on. All must succeed, a call that meets the
// driver's own settling after a start is repeated.
func (l *life) from(number int) {
	l.r.t.Helper()
	for _, c := range l.calls[number:] {
		l.succeed(c)
	}
}

func (l *life) succeed(c call) {
	t := l.r.t
	t.Helper()
	waitFor(t, "the volume to be free", func() bool {
		err := c.make()
		if err != nil && status.Code(err) != codes.Aborted {
			t.Fatalf("%s: %v", c.name, err)
		}
		return err == nil
	})
	if c.check != nil {
		c.check()
	}
}

// untilKilled makes the calls until the driver kills itself, and returns the
// number of the call that saw it.
func (l *life) untilKilled(step string) (number int) {
	l.r.t.Helper()
	number, killed := l.killedAt(step, 1, 0)
	if !killed {
		l.r.t.Fatalf("the driver never came to %q", step)
	}
	return number
}

// killedAt makes the calls from number on until the driver kills itself, as it
// comes to the step for the nth time, and returns the number of the call that
// saw it; or it makes all, with none killed.
func (l *life) killedAt(step string, nth, number int) (_ int, killed bool) {
	t := l.r.t
	t.Helper()
	return l.killedBy(l.r.spawn(step, childCrashNth+"="+strconv.Itoa(nth)), number)
}

// killedBy is killedAt with a driver that listens already.
func (l *life) killedBy(child *exec.Cmd, number int) (_ int, killed bool) {
	t := l.r.t
	t.Helper()
	for ; number < len(l.calls); number++ {
		c := l.calls[number]
		var err error
		waitFor(t, "the volume to be free", func() bool {
			err = c.make()
			return status.Code(err) != codes.Aborted
		})
		if status.Code(err) == codes.Unavailable {
			l.r.awaitKilled(child)
			return number, true
		}
		must(t, c.name+" before the crash", err, codes.OK)
		if c.check != nil {
			c.check()
		}
	}
	l.r.kill(child)
	return 0, false
}

// some are these kinds, and more of them in a run of everything.
func some(these []kind, more ...kind) []kind {
	if os.Getenv("BERTH_KILL_MATRIX") == "all" {
		return append(these, more...)
	}
	return these
}

// everyTime reports whether the driver is killed every time that it comes to a
// step, and not only the first: with all kinds that takes minutes.
func everyTime(k kind) bool {
	return k == directory || k == ext4 || os.Getenv("BERTH_KILL_MATRIX") == "all"
}

// eachTime kills the driver every time that it comes to the step in the life:
// mend then brings back what the kill took, and says from which call on the life
// is repeated. The call that was cut off is made by a driver that lives.
func (l *life) eachTime(step string, mend func(number int) int) {
	t := l.r.t
	t.Helper()
	var seen []string
	for number := 0; ; number++ {
		var killed bool
		if number, killed = l.killedAt(step, 1, number); !killed {
			break
		}
		seen = append(seen, l.calls[number].name)
		back := mend(number)
		stop := l.r.start()
		last := number + 1
		if !everyTime(l.k) {
			last = len(l.calls)
		}
		for _, c := range l.calls[back:last] {
			l.succeed(c)
		}
		if stop(); last > number+1 {
			return
		}
	}
	if len(seen) == 0 {
		t.Errorf("the driver never came to %q", step)
	}
	for _, call := range cutOff(l.k, step) {
		if !slices.Contains(seen, call) {
			t.Errorf("%q cut off %q, and not %s", step, seen, call)
		}
	}
}

// stagedBefore is the call that staged what a call finds staged: after a reboot
// it has to be made again. It is the call itself if nothing is staged.
func (l *life) stagedBefore(number int) int {
	back := number
	for i, c := range l.calls[:number] {
		switch {
		case strings.HasPrefix(c.name, "stage"):
			back = i
		case strings.HasPrefix(c.name, "unstage"):
			back = number
		}
	}
	return back
}

// passes reports whether a volume of the kind ever comes to the step.
func passes(k kind, step string) bool {
	mounted := k.fsType != ""
	later := k.fsType == "ext4" && !filesystem.Ext4.GrowsMounted()
	switch step {
	case "stage: attached", "grow: device resized":
		return k.image()
	case "stage: formatted", "stage: formatting recorded", "copy: source frozen", "copy: source thawed":
		return mounted
	case "stage: file system grown":
		return later
	case "grow: file system grown":
		return mounted && !later
	case "stage: mounted", "publish: flags set":
		return !k.block
	case "expand: recorded", "expand: content enlarged":
		return k.size > 0
	case "copy: made":
		return k.disk != "btrfs"
	}
	return true
}

// cutOff are calls of a life that must have come to a step, for those steps that
// several calls come to.
func cutOff(k kind, step string) []string {
	switch {
	case step == "create: recorded", step == "create: content made":
		return []string{"create", "restore", "clone"}
	case step == "copy: made" && k.block: // it is not copied in use
		return []string{"snapshot", "restore", "clone"}
	case step == "copy: made":
		return []string{"snapshot in use", "snapshot", "restore", "clone"}
	case step == "stage: recorded":
		return []string{"stage", "stage again", "stage restored", "stage after the copy", "stage clone"}
	case step == "unstage: unmounted":
		return []string{"unstage", "unstage again", "unstage restored", "unstage after the copy", "unstage clone"}
	}
	return nil
}

// eachCrash runs a test for every step of every kind of volume.
func eachCrash(t *testing.T, kinds []kind, test func(t *testing.T, l *life, step string)) {
	if testing.Short() {
		kinds = []kind{ext4} // each kind takes half a minute
	}
	for _, k := range kinds {
		for _, step := range localdriver.Steps() {
			if !passes(k, step) {
				continue
			}
			t.Run(k.name+"/"+strings.ReplaceAll(step, ": ", "_"), func(t *testing.T) {
				t.Parallel()
				test(t, newLife(newRigOn(t, k.disk), k), step)
			})
		}
	}
}

func TestCrash_RepeatedCallFinishes(t *testing.T) {
	t.Parallel()
	eachCrash(t, allKinds(), func(_ *testing.T, l *life, step string) {
		l.eachTime(step, func(number int) int { return number })
	})
}

func TestCrash_OppositeCallsUndo(t *testing.T) {
	t.Parallel()
	eachCrash(t, some([]kind{directory, ext4, subvolume}, xfs, btrfs), func(t *testing.T, l *life, step string) {
		most := 1
		if everyTime(l.k) {
			most = 10
		}
		for nth := range most {
			number, killed := l.killedAt(step, nth+1, 0)
			if !killed && nth == 0 {
				t.Fatalf("the driver never came to %q", step)
			}
			if !killed {
				return
			}
			stop := l.r.start()
			l.undo(number)
			stop()
		}
	})
}

// undo takes back what was done until a call was cut off, with that call's
// opposite first.
func (l *life) undo(number int) {
	l.r.t.Helper()
	cut := l.calls[number].name
	switch cut {
	case "create", "restore", "clone", "snapshot", "snapshot in use":
		// The orchestrator learns the id only by asking again.
		l.succeed(l.calls[number])
	}
	between := func(first, last string) bool { return l.number(first) <= number && number <= l.number(last) }
	for _, undo := range []string{
		"unpublish", "unstage", "unstage restored", "unstage clone", "delete clone", "delete restored", "delete snapshot", "delete snapshot in use", "delete",
	} {
		switch {
		// What is not there, or what its deletion has already removed, answers NOT_FOUND.
		case cut == "delete" && strings.HasPrefix(undo, "un"):
		case undo == "unstage restored" && !between("restore", "unstage clone"):
		case undo == "unstage clone" && !between("clone", "unstage clone"):
		case undo == "unpublish" || undo == "unstage" || l.calls[l.number(undo)].check == nil:
			l.succeed(call{undo, l.calls[l.number(undo)].make, nil})
		default:
			l.succeed(l.calls[l.number(undo)])
		}
	}
}

// A machine that loses power keeps the records and loses mounts and devices.
func TestCrash_RebootInTheMiddle(t *testing.T) {
	t.Parallel()
	eachCrash(t, some([]kind{ext4, device, subvolume}, xfs, btrfs), func(_ *testing.T, l *life, step string) {
		l.eachTime(step, func(number int) int {
			l.r.reboot()
			return l.stagedBefore(number) // the workload comes back and wants its volume
		})
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

			l.untilKilled("snapshot: recorded")
			l.r.start()
			waitFor(t, "the snapshot to be taken back", func() bool { return len(l.r.files()) == 2 })
			for _, undo := range []string{"unpublish", "unstage"} {
				l.succeed(l.calls[l.number(undo)])
			}
		})
	}
}

func TestCrash_DeletionIsFinishedByTheNextStart(t *testing.T) {
	t.Parallel()
	for _, k := range kinds() {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.killedDeleting(k)
			r.start()
			waitFor(t, "the volume to be deleted", func() bool { return len(r.files()) == 0 })
		})
	}
}

// killedDeleting leaves a volume whose deletion has only been recorded.
func (r *rig) killedDeleting(k kind) {
	r.t.Helper()
	child := r.spawn("delete: recorded")
	must(r.t, "delete", r.remove(r.create(k, "pg")), codes.Unavailable)
	r.awaitKilled(child)
}
