package csimanager_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/csi/csitest"
)

// methods are the calls of a life, in order.
var methods = []string{"NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume"}

// tries mounts or unmounts until it succeeds, as a runner does, and answers the
// errors on the way.
func tries(t testing.TB, what func() error) []error {
	t.Helper()
	var errs []error
	for range 5 {
		err := what()
		if err == nil {
			return errs
		}
		errs = append(errs, err)
		time.Sleep(time.Second)
	}
	t.Fatalf("five tries were not enough: %v", errs)
	return nil
}

func (w *world) triesMount(a *api.AttachmentAssignment) []error {
	w.t.Helper()
	return tries(w.t, func() error { _, err := w.mounter.Mount(w.t.Context(), a); return err })
}

func (w *world) triesUnmount(a *api.AttachmentAssignment) []error {
	w.t.Helper()
	return tries(w.t, func() error { return w.mounter.Unmount(w.t.Context(), a) })
}

// TestFaultOfOneCall lets each call of a life go wrong in each way, with and
// without another user of the volume, and with a restart of the agent between
// the tries or none. It converges, and nobody sees a rule broken.
func TestFaultOfOneCall(t *testing.T) {
	t.Parallel()
	for name, action := range map[string]csitest.Action{
		"Fail": csitest.Fail("INTERNAL", "scripted"), "FailAfter": csitest.FailAfter("INTERNAL", "scripted"),
		"Aborted": csitest.Fail("ABORTED", "busy"), "FailedAfterDeadline": csitest.FailAfter("DEADLINE_EXCEEDED", "slow"),
		"Hang": csitest.Hang(), "HangAfter": csitest.HangAfter(),
		"Drop": csitest.Drop(), "DropAfter": csitest.DropAfter(), "Lie": csitest.Lie(),
		"Slow": csitest.Delay(time.Minute),
	} {
		for _, method := range methods {
			for variant, others := range map[string]bool{"Alone": false, "Shared": true} {
				t.Run(name+"/"+method+"/"+variant, func(t *testing.T) {
					t.Parallel()
					inWorld(t, csitest.Options{Attach: true, Stage: true}, func(_ testing.TB, w *world) {
						faultOfOneCall(w, csitest.Rule{Method: method, Times: 1, Do: action}, others)
					})
				})
			}
		}
	}
}

func faultOfOneCall(w *world, rule csitest.Rule, others bool) {
	a := w.shared()
	b := user(a, "alloc-2", "data")
	fault := w.backend.Script(rule)
	errs := w.triesMount(a)
	w.wantMounts(a)
	if others {
		errs = append(errs, w.triesMount(b)...)
		w.wantMounts(a, b)
		w.restart()
	}
	errs = append(errs, w.triesUnmount(a)...)
	if others {
		w.wantMounts(b)
		errs = append(errs, w.triesUnmount(b)...)
	}
	w.wantNothing()
	if fault.Fired() != 1 {
		w.t.Errorf("the fault struck %d calls, want 1", fault.Fired())
	}
	if len(errs) > 1 {
		w.t.Errorf("one fault made %d tries fail: %v", len(errs), errs)
	}
}

// A plugin that lies for ever is found out, and its volume is not passed on.
func TestLiarIsFoundOut(t *testing.T) {
	t.Parallel()
	for method, tc := range map[string]struct{ step, code, words string }{
		"NodeStageVolume":     {"NodePublishVolume", "FAILED_PRECONDITION", "not staged"},
		"NodePublishVolume":   {"NodePublishVolume", "", "nothing is mounted"},
		"NodeUnpublishVolume": {"NodeUnpublishVolume", "", "still mounted"},
		"NodeUnstageVolume":   {"NodeUnstageVolume", "", "still mounted"},
	} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			inWorld(t, csitest.Options{Stage: true}, func(t testing.TB, w *world) {
				a := w.volume(wish{})
				lie := w.backend.Script(csitest.Rule{Method: method, Do: csitest.Lie()})
				for range 4 {
					_, err := w.mounter.Mount(t.Context(), a)
					if err == nil {
						err = w.mounter.Unmount(t.Context(), a)
					}
					wantStep(t, err, tc.step, tc.code, tc.words)
					if n := w.ledger.size(); n != 1 {
						t.Errorf("%d stagings are recorded, want the one that is not undone", n)
					}
					if staged, said := w.facts.publications()["default/pg"]; said && !staged {
						t.Error("the servers were told that nothing is staged")
					}
				}
				lie.Release()
				w.triesMount(a)
				w.wantMounts(a)
				w.triesUnmount(a)
				w.wantNothing()
			})
		})
	}
}

// A plugin that does not know the volume any more has nothing to undo, if the
// kernel agrees.
func TestNotFoundOnTheWayBack(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"NodeUnpublishVolume", "NodeUnstageVolume"} {
		t.Run(method+"/Gone", func(t *testing.T) {
			t.Parallel()
			inWorld(t, csitest.Options{Stage: true}, func(_ testing.TB, w *world) {
				a := w.volume(wish{})
				w.mount(a)
				// The provider forgets: what callers were told decides for it.
				w.backend.Script(csitest.Rule{Method: method, Times: 1, Do: csitest.FailAfter("NOT_FOUND", "no such volume")})
				w.unmount(a)
				if left := w.mountsBelow("."); len(left) > 0 || w.ledger.size() > 0 {
					w.t.Errorf("left: %v, and %d records", left, w.ledger.size())
				}
			})
		})
		t.Run(method+"/StillMounted", func(t *testing.T) {
			t.Parallel()
			inWorld(t, csitest.Options{Stage: true}, func(_ testing.TB, w *world) {
				a := w.volume(wish{})
				w.mount(a)
				w.backend.Script(csitest.Rule{Method: method, Times: 1, Do: csitest.Fail("NOT_FOUND", "no such volume")})
				wantStep(w.t, w.mounter.Unmount(w.t.Context(), a), method, "NOT_FOUND", "no such volume")
				w.unmount(a)
				w.wantNothing()
			})
		})
	}
}

// A mount that a plugin made before it answered an error was taken for done:
// it may not be read-only yet, or not whole.
func TestFailedPublishIsNotBelieved(t *testing.T) {
	t.Parallel()
	eachKind(t, func(w *world) {
		a := w.volume(wish{})
		w.backend.Script(csitest.Rule{Method: "NodePublishVolume", Nth: 1, Do: csitest.FailAfter("INTERNAL", "remount read-only")})
		_, err := w.mounter.Mount(w.t.Context(), a)
		wantStep(w.t, err, "NodePublishVolume", "INTERNAL", "remount read-only")
		w.restart()
		w.mount(a)
		w.wantMounts(a)
		up := ""
		if w.options.Stage {
			up = "NodeStageVolume OK\n"
		}
		w.wantCalls(up + "NodePublishVolume INTERNAL\nNodeUnpublishVolume OK\nNodePublishVolume OK\n")
		w.unmount(a)
		w.wantNothing()
	})
}

// A plugin that said OK to a staging that it never made was never asked for it
// again.
func TestStagingThatNeverWasIsMadeAgain(t *testing.T) {
	t.Parallel()
	inWorld(t, csitest.Options{Stage: true}, func(t testing.TB, w *world) {
		a := w.volume(wish{})
		w.backend.Script(csitest.Rule{Method: "NodeStageVolume", Nth: 1, Do: csitest.Lie()})
		_, err := w.mounter.Mount(t.Context(), a)
		wantStep(t, err, "NodePublishVolume", "FAILED_PRECONDITION")
		w.mount(a)
		w.wantMounts(a)
		w.wantCalls("NodeStageVolume OK\nNodePublishVolume FAILED_PRECONDITION\n" + stagedUp)
	})
}

// NodeStageVolume is repeated with the arguments that it had, whoever repeats
// it: another attachment may ask for another access mode.
func TestStageIsRepeatedAsItWas(t *testing.T) {
	t.Parallel()
	inWorld(t, csitest.Options{Stage: true}, func(t testing.TB, w *world) {
		a := w.shared()
		b := user(a, "alloc-2", "data")
		b.Attachment.AccessMode, b.Attachment.ReadOnly = api.MultiNodeReaderOnly, true
		w.backend.Script(csitest.Rule{Method: "NodeStageVolume", Nth: 1, Do: csitest.FailAfter("INTERNAL", "half way")})
		_, err := w.mounter.Mount(t.Context(), a)
		wantStep(t, err, "NodeStageVolume", "INTERNAL")
		w.restart()
		w.mount(b)
		w.mount(a)
		w.wantMounts(a, b)
		w.unmount(a)
		w.unmount(b)
		w.wantNothing()
		// A new staging may be another one.
		w.mount(b)
		w.unmount(b)
		w.wantNothing()
	})
}

// An unstage that got no answer may still come: what it takes away is not
// relied on, whoever comes next.
func TestUncertainUnstageIsNotReliedOn(t *testing.T) {
	t.Parallel()
	inWorld(t, csitest.Options{Stage: true}, func(t testing.TB, w *world) {
		a := w.shared()
		b := user(a, "alloc-2", "data")
		w.mount(a)
		w.backend.Script(csitest.Rule{Method: "NodeUnstageVolume", Nth: 1, Do: csitest.Drop()})
		wantStep(t, w.mounter.Unmount(t.Context(), a), "NodeUnstageVolume", "UNAVAILABLE")
		w.mount(b)
		w.wantMounts(b)
		w.unmount(a)
		w.wantMounts(b)
		w.unmount(b)
		w.wantNothing()
	})
}

// TestFullDisk refuses each write of a life in turn, before it is done and
// after, once and for a while. Nothing is done that is not recorded, and when
// there is room again it goes on.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	full := errors.New("no space left on device")
	const writes = 13 // more than the two have
	for write := 1; write <= writes; write++ {
		for _, after := range []bool{false, true} {
			for _, length := range []int{1, 3} {
				t.Run(fmt.Sprintf("Write%dAfter=%tLength%d", write, after, length), func(t *testing.T) {
					t.Parallel()
					inWorld(t, csitest.Options{Attach: true, Stage: true}, func(_ testing.TB, w *world) {
						fullDisk(w, full, func(n int, done bool) bool {
							return done == after && n >= write && n < write+length
						})
					})
				})
			}
		}
	}
}

func fullDisk(w *world, full error, strikes func(write int, done bool) bool) {
	refused := 0
	w.ledger.fail = func(n int, done bool) error {
		if !strikes(n, done) {
			return nil
		}
		refused++
		return full
	}
	a := w.shared()
	b := user(a, "alloc-2", "data")
	errs := w.triesMount(a)
	w.wantMounts(a)
	w.restart()
	errs = append(errs, w.triesMount(b)...)
	w.wantMounts(a, b)
	errs = append(errs, w.triesUnmount(b)...)
	w.wantMounts(a)
	errs = append(errs, w.triesUnmount(a)...)
	w.wantNothing()
	if len(errs) != refused {
		w.t.Errorf("%d writes were refused, and %d tries failed: %v", refused, len(errs), errs)
	}
	for _, err := range errs {
		if !errors.Is(err, full) {
			w.t.Errorf("error = %v, want the disk's", err)
		}
	}
}

// Nothing is done that cannot be recorded first.
func TestNothingIsDoneUnrecorded(t *testing.T) {
	t.Parallel()
	eachKind(t, func(w *world) {
		full := errors.New("no space left on device")
		a := w.volume(wish{})
		w.ledger.fail = func(int, bool) error { return full }
		if _, err := w.mounter.Mount(w.t.Context(), a); !errors.Is(err, full) {
			w.t.Errorf("mount: %v, want the disk's error", err)
		}
		w.wantCalls("")
		w.wantNothing()
		w.ledger.fail = nil
		w.mount(a)
		before := w.calls()
		w.ledger.fail = func(int, bool) error { return full }
		if err := w.mounter.Unmount(w.t.Context(), a); !errors.Is(err, full) {
			w.t.Errorf("unmount: %v, want the disk's error", err)
		}
		w.wantCalls(before)
		w.wantMounts(a)
		w.ledger.fail = nil
		w.unmount(a)
		w.wantNothing()
	})
}

// What a plugin answers reaches whoever asks why: the call, the code, its words.
func TestErrorNamesTheCall(t *testing.T) {
	t.Parallel()
	for _, method := range methods {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			inWorld(t, csitest.Options{Stage: true}, func(t testing.TB, w *world) {
				a := w.volume(wish{})
				w.backend.Script(csitest.Rule{Method: method, Do: csitest.Fail("RESOURCE_EXHAUSTED", "the array is full")})
				_, err := w.mounter.Mount(t.Context(), a)
				if err == nil {
					err = w.mounter.Unmount(t.Context(), a)
				}
				wantStep(t, err, method, "RESOURCE_EXHAUSTED", "the array is full")
				if want := method + ": RESOURCE_EXHAUSTED: the array is full"; err.Error() != want {
					t.Errorf("error = %q, want %q", err, want)
				}
			})
		})
	}
	inWorld(t, csitest.Options{}, func(t testing.TB, w *world) {
		a := w.volume(wish{})
		a.Attachment.AttachmentMode = "tape"
		_, err := w.mounter.Mount(t.Context(), a)
		wantStep(t, err, "NodePublishVolume", "INVALID_ARGUMENT", "tape")
		if strings.Contains(w.calls(), "NodePublishVolume") {
			t.Error("a request that makes no sense was sent")
		}
	})
}

// A mount that was lost is made again, and what the plugin said of the lost one
// does not count for the new one.
func TestFailedRemountIsNotBelieved(t *testing.T) {
	t.Parallel()
	inWorld(t, csitest.Options{}, func(t testing.TB, w *world) {
		a := w.volume(wish{})
		target := w.mount(a)
		if err := w.table.Unmount(target); err != nil {
			t.Fatal(err)
		}
		w.backend.Reboot("n1") // the driver sees that it is gone
		w.backend.Script(csitest.Rule{Method: "NodePublishVolume", Times: 1, Do: csitest.FailAfter("INTERNAL", "half way")})
		_, err := w.mounter.Mount(t.Context(), a)
		wantStep(t, err, "NodePublishVolume", "INTERNAL")
		w.mount(a)
		w.wantMounts(a)
		w.wantCalls(plainUp + "NodePublishVolume INTERNAL\nNodeUnpublishVolume OK\nNodePublishVolume OK\n")
		w.unmount(a)
		w.wantNothing()
	})
}
