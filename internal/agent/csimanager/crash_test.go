package csimanager_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/csi/csitest"
	"github.com/berth-dev/berth/internal/agent/csimanager"
	"github.com/berth-dev/berth/internal/agent/localdb"
	"github.com/berth-dev/berth/internal/agent/mount"
)

// crash is what a mounter that dies panics with.
type crash struct{}

// dying counts the moments before and after everything that a mounter does,
// and dies in the one that was asked for. The plugin's calls have looks at the
// mount table right before and right after them.
type dying struct {
	*ledger
	mount.Table
	moment int // counts
	at     int // dies in this one; 0 is never
}

func (d *dying) pass() {
	d.moment++
	if d.moment == d.at {
		panic(crash{})
	}
}

func (d *dying) Staging(ns api.NamespaceID, vol api.VolumeID) (*localdb.Staging, error) {
	d.pass()
	defer d.pass()
	return d.ledger.Staging(ns, vol)
}

func (d *dying) PutStaging(s *localdb.Staging) error {
	d.pass()
	defer d.pass()
	return d.ledger.PutStaging(s)
}

func (d *dying) DeleteStaging(ns api.NamespaceID, vol api.VolumeID) error {
	d.pass()
	defer d.pass()
	return d.ledger.DeleteStaging(ns, vol)
}

func (d *dying) At(path string) (mount.Mount, bool, error) {
	d.pass()
	defer d.pass()
	return d.Table.At(path)
}

func (d *dying) Under(dir string) ([]mount.Mount, error) {
	d.pass()
	defer d.pass()
	return d.Table.Under(dir)
}

// step is one wish of a life: an attachment mounted, or unmounted.
type step struct {
	what func(*csimanager.Mounter) error
	name string
}

// die runs a step with a mounter that dies in a moment, and reports whether it
// did.
func (w *world) die(s step, at int) (died bool) {
	d := &dying{ledger: w.ledger, Table: w.table, at: at}
	w.wrappedLedger, w.wrappedTable = d, d
	defer func() { w.wrappedLedger, w.wrappedTable = w.ledger, w.table }()
	w.newMounter()
	defer func() {
		if p := recover(); p != nil {
			if _, ours := p.(crash); !ours {
				panic(p)
			}
			died = true
		}
	}()
	_ = s.what(w.mounter) // it is repeated
	return false
}

// life is a sequence of steps, each with what must be mounted afterwards.
type life struct {
	steps []step
	after []func()
}

func (l *life) mount(w *world, a *api.AttachmentAssignment, mounted ...*api.AttachmentAssignment) {
	l.steps = append(l.steps, step{
		func(m *csimanager.Mounter) error { _, err := m.Mount(w.t.Context(), a); return err },
		"mount " + string(a.Attachment.AllocID),
	})
	l.after = append(l.after, func() { w.wantMounts(mounted...) })
}

func (l *life) unmount(w *world, a *api.AttachmentAssignment, mounted ...*api.AttachmentAssignment) {
	l.steps = append(l.steps, step{
		func(m *csimanager.Mounter) error { return m.Unmount(w.t.Context(), a) },
		"unmount " + string(a.Attachment.AllocID),
	})
	l.after = append(l.after, func() { w.wantMounts(mounted...) })
}

// lived is the life of two allocations that share a volume.
func lived(w *world) *life {
	a := w.shared()
	b := user(a, "alloc-2", "data")
	l := &life{}
	l.mount(w, a, a)
	l.mount(w, b, a, b)
	l.unmount(w, a, b)
	l.unmount(w, b)
	return l
}

// TestCrashAnywhere dies in every moment of the life of two allocations that
// share a volume, and in every moment of the recovery from that. Whatever was
// cut short is repeated, and in the end everything is mounted once, and then
// nothing is left.
func TestCrashAnywhere(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]csitest.Options{"Stage": {Attach: true, Stage: true}, "Plain": {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runs := 0
			inWorld(t, o, func(_ testing.TB, w *world) {
				for number := range 4 {
					runs += crashStep(w, number)
				}
			})
			t.Logf("%d runs", runs)
			if runs < 300 {
				t.Errorf("%d runs are not all", runs)
			}
		})
	}
}

// crashStep lives once for every pair of moments of a step and of its
// recovery.
func crashStep(w *world, number int) (runs int) {
	for first := 1; ; first++ {
		for second := 1; ; second++ {
			where := fmt.Sprintf("died in moment %d of step %d, and in moment %d of its recovery", first, number, second)
			diedFirst, diedSecond := crashLife(w, number, first, second, where)
			runs++
			if w.t.Failed() || !diedFirst {
				return runs
			}
			if !diedSecond {
				break
			}
		}
	}
}

func crashLife(w *world, number, first, second int, where string) (diedFirst, diedSecond bool) {
	l := lived(w)
	for i, s := range l.steps {
		if i == number {
			diedFirst = w.die(s, first)
			if diedFirst {
				diedSecond = w.die(s, second)
			}
		}
		w.newMounter()
		if err := s.what(w.mounter); err != nil {
			w.t.Errorf("%s: %s again: %v", where, s.name, err)
		}
		l.after[i]()
		if w.t.Failed() {
			w.t.Log(where)
			return diedFirst, diedSecond
		}
	}
	w.wantNothing()
	return diedFirst, diedSecond
}

// TestCrashThenEnd dies in every moment of a mount, and then the allocation is
// to end: with the next agent, after a reboot, or with another one that uses
// the volume.
func TestCrashThenEnd(t *testing.T) {
	t.Parallel()
	for name, between := range map[string]func(*world){
		"Restart": func(w *world) { w.restart() },
		"Reboot":  func(w *world) { w.reboot() },
	} {
		for kind, o := range kinds() {
			for _, shared := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/Shared=%t", name, kind, shared), func(t *testing.T) {
					t.Parallel()
					inWorld(t, o, func(t testing.TB, w *world) {
						for at := 1; !t.Failed(); at++ {
							if !crashThenEnd(w, at, between, shared) {
								return
							}
						}
					})
				})
			}
		}
	}
}

func crashThenEnd(w *world, at int, between func(*world), shared bool) (died bool) {
	a := w.shared()
	b := user(a, "alloc-2", "data")
	if shared {
		w.mount(b)
	}
	l := &life{}
	l.mount(w, a)
	died = w.die(l.steps[0], at)
	between(w)
	if shared {
		w.mount(b)
	}
	w.unmount(a)
	if shared {
		w.wantMounts(b)
		w.unmount(b)
	}
	w.wantNothing()
	if w.t.Failed() {
		w.t.Logf("died in moment %d", at)
	}
	return died
}

// TestCrashDuringACall dies while a call is on its way. The driver may carry it
// out although nobody hears the answer, before the next agent calls or while
// it does.
func TestCrashDuringACall(t *testing.T) {
	t.Parallel()
	for _, method := range methods {
		for name, action := range map[string]csitest.Action{"Before": csitest.Hang(), "After": csitest.HangAfter()} {
			for _, end := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/End=%t", method, name, end), func(t *testing.T) {
					t.Parallel()
					inWorld(t, csitest.Options{Attach: true, Stage: true}, func(_ testing.TB, w *world) {
						crashDuringACall(w, csitest.Rule{Method: method, Times: 1, Do: action}, end)
					})
				})
			}
		}
	}
}

func crashDuringACall(w *world, rule csitest.Rule, end bool) {
	a := w.volume(wish{})
	hang := w.backend.Script(rule)
	died := make(chan struct{})
	m := w.mounter
	go func() {
		defer close(died)
		if _, err := m.Mount(w.t.Context(), a); err == nil {
			_ = m.Unmount(w.t.Context(), a) // it hangs, and then its client is closed
		}
	}()
	synctest.Wait()
	if hang.Waiting() != 1 {
		w.t.Fatal("no call hangs")
	}
	// The agent's connection goes with it, and the call loses its caller.
	w.stop()
	hang.Release()
	<-died
	w.start()
	if !end {
		w.triesMount(a)
		w.wantMounts(a)
	}
	w.triesUnmount(a)
	w.wantNothing()
}
