package csimanager_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/csi/csitest"
	"github.com/berth-dev/berth/internal/agent/csimanager"
)

// TestPowerIsCutAtEveryStep cuts the power in every moment of the life of two
// allocations that share a volume, and kills the next agent in every moment of its
// recovery. What was mounted before is mounted again, what was cut off is repeated,
// and in the end nothing is left.
func TestPowerIsCutAtEveryStep(t *testing.T) {
	t.Parallel()
	for name, k := range map[string]struct {
		options csitest.Options
		block   bool
	}{
		"FileSystem":      {csitest.Options{Attach: true, Stage: true}, false},
		"Block":           {csitest.Options{Attach: true, Stage: true}, true},
		"PlainFileSystem": {csitest.Options{}, false},
		"PlainBlock":      {csitest.Options{}, true},
	} {
		for number := range 4 {
			t.Run(fmt.Sprintf("%s/%d", name, number), func(t *testing.T) {
				t.Parallel()
				inWorld(t, k.options, func(t testing.TB, w *world) {
					a := w.volume(wish{mode: api.MultiNodeMultiWriter, block: k.block})
					if runs := powerIsCut(w, a, number); !t.Failed() && runs < 30 {
						t.Errorf("%d runs are not all", runs)
					}
				})
			})
		}
	}
}

// powerIsCut lives once for every pair of moments of a step and of the recovery
// from the power cut in it.
func powerIsCut(w *world, a *api.AttachmentAssignment, number int) (runs int) {
	for first := 1; ; first++ {
		for second := 1; ; second++ {
			cut, died := powerCutLife(w, a, number, first, second)
			runs++
			if w.t.Failed() {
				w.t.Logf("power cut in moment %d of step %d, and the next agent killed in moment %d of its recovery", first, number, second)
			}
			if w.t.Failed() || !cut {
				return runs
			}
			if !died {
				break
			}
		}
	}
}

func powerCutLife(w *world, a *api.AttachmentAssignment, number, first, second int) (cut, died bool) {
	b := user(a, "alloc-2", "data")
	l := &life{}
	l.mount(w, a, a)
	l.mount(w, b, a, b)
	l.unmount(w, a, b)
	l.unmount(w, b)
	// before is what the servers want mounted while a step is made.
	before := [][]*api.AttachmentAssignment{{}, {a}, {b}, {}}[number]
	for i, s := range l.steps {
		if i == number {
			if cut = w.die(s, first); cut {
				w.reboot()
				recovery := step{func(m *csimanager.Mounter) error {
					var errs []error
					for _, at := range before {
						_, err := m.Mount(w.t.Context(), at)
						errs = append(errs, err)
					}
					return errors.Join(append(errs, s.what(m))...)
				}, "the recovery"}
				died = w.die(recovery, second)
				w.newMounter()
				if err := recovery.what(w.mounter); err != nil {
					w.t.Errorf("%s again: %v", s.name, err)
				}
				l.after[i]()
				continue
			}
		}
		w.newMounter()
		if err := s.what(w.mounter); err != nil {
			w.t.Errorf("%s: %v", s.name, err)
		}
		l.after[i]()
		if w.t.Failed() {
			return cut, died
		}
	}
	w.wantNothing()
	return cut, died
}
