package csitest_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/internal/agent/csi"
	"github.com/berth-dev/berth/internal/agent/csi/csitest"
)

func TestFail_AnswersWithoutDoing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, csitest.Options{})
	w.backend.Script(csitest.Rule{Do: csitest.Fail(csi.CodeResourceExhausted, "the pool is full")})
	err := w.step("create")
	if got, want := err.Error(), "CreateVolume: RESOURCE_EXHAUSTED: the pool is full"; got != want {
		t.Errorf("error = %q, want %q", got, want)
	}
	if left := w.backend.Volumes(); len(left) > 0 {
		t.Errorf("it was done: %+v", left)
	}
}

func TestFailAfter_DoesAndAnswersTheCode(t *testing.T) {
	t.Parallel()
	w := newWorld(t, csitest.Options{})
	w.backend.Script(csitest.Rule{Do: csitest.FailAfter(csi.CodeUnknown, "")})
	if code := csi.CodeOf(w.step("create")); code != csi.CodeUnknown {
		t.Errorf("code = %s", code)
	}
	if len(w.backend.Volumes()) != 1 {
		t.Error("it was not done")
	}
}

func TestLie_AnswersOKWithoutDoing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, csitest.Options{Attach: true, Stage: true})
	fault := w.backend.Script(csitest.Rule{Do: csitest.Lie()})
	w.walk("create", nil)
	if len(w.backend.Volumes()) != 0 || w.volume.ExternalID == "" {
		t.Errorf("volumes = %v, answer = %+v", w.backend.Volumes(), w.volume)
	}
	fault.Release()
	w.walk("create", nil)
	w.backend.Script(csitest.Rule{Do: csitest.Lie()})
	w.walk("attach stage publish unpublish unstage detach delete", nil)
	if v := w.backend.Volumes(); len(v) != 1 || len(v[0].Attached)+len(v[0].Staged)+len(v[0].Published) != 0 {
		t.Errorf("volumes = %+v, want one that nothing was done to", v)
	}
	w.wantViolations()
}

func TestDrop_CutsTheConnection(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		do   csitest.Action
		done int
	}{
		"Before": {csitest.Drop(), 0},
		"After":  {csitest.DropAfter(), 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, csitest.Options{})
			w.backend.Script(csitest.Rule{Method: "CreateVolume", Times: 1, Do: test.do})
			if code := csi.CodeOf(w.step("create")); code != csi.CodeUnavailable {
				t.Errorf("code = %s, want UNAVAILABLE", code)
			}
			if got := len(w.backend.Volumes()); got != test.done {
				t.Errorf("%d volumes, want %d", got, test.done)
			}
			w.walk("create delete", nil)
		})
	}
}

func TestHang(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		do           csitest.Action
		doneMeantime int
	}{
		"Before": {csitest.Hang(), 0},
		"After":  {csitest.HangAfter(), 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, csitest.Options{})
				fault := w.backend.Script(csitest.Rule{Method: "CreateVolume", Do: test.do})

				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				start := time.Now()
				err := w.call(ctx, "create", "n1", "")
				if code := csi.CodeOf(err); code != csi.CodeDeadlineExceeded || time.Since(start) != time.Minute {
					t.Errorf("answered %s after %s, want DEADLINE_EXCEEDED after a minute", code, time.Since(start))
				}
				synctest.Wait()
				if got := len(w.backend.Volumes()); got != test.doneMeantime || fault.Waiting() != 0 {
					t.Errorf("given up: %d volumes, %d waiting; want %d, 0", got, fault.Waiting(), test.doneMeantime)
				}

				done := make(chan error, 1)
				go func() { done <- w.step("create") }()
				synctest.Wait()
				if fault.Waiting() != 1 || fault.Fired() != 2 {
					t.Errorf("waiting = %d, fired = %d; want 1, 2", fault.Waiting(), fault.Fired())
				}
				fault.Release()
				if err := <-done; err != nil || len(w.backend.Volumes()) != 1 {
					t.Errorf("released: %v, volumes %v", err, w.backend.Volumes())
				}
				w.walk("delete", nil)
				w.wantViolations()
			})
		})
	}
}

func TestDelay_TakesSoLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, csitest.Options{})
		w.backend.Script(csitest.Rule{Do: csitest.Delay(3 * time.Second)})
		start := time.Now()
		w.walk("create", nil)
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("it took %s, want 3s", took)
		}
	})
}

func TestRule_PicksCalls(t *testing.T) {
	t.Parallel()
	fail := csitest.Fail(csi.CodeAborted, "")
	for name, test := range map[string]struct {
		rule  csitest.Rule
		steps string
		want  []string
	}{
		"Every":    {csitest.Rule{Method: "NodePublishVolume", Do: fail}, "create publish publish", []string{"publish", "publish"}},
		"Nth":      {csitest.Rule{Method: "NodePublishVolume", Nth: 2, Do: fail}, "create publish publish publish", []string{"publish"}},
		"Times":    {csitest.Rule{Times: 2, Do: fail}, "create create create", []string{"create", "create"}},
		"ByName":   {csitest.Rule{Volume: "pg", Nth: 2, Do: fail}, "create delete", []string{"delete"}},
		"ByOther":  {csitest.Rule{Volume: "other", Do: fail}, "create delete", nil},
		"ByNode":   {csitest.Rule{Node: "n2", Do: fail}, "create publish unpublish publish:n2", []string{"publish:n2"}},
		"ByTarget": {csitest.Rule{Method: "ControllerUnpublishVolume", Node: "n2", Do: fail}, "create", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, csitest.Options{})
			fault := w.backend.Script(test.rule)
			var failed []string
			for _, step := range fields(test.steps) {
				if csi.CodeOf(w.step(step)) == csi.CodeAborted {
					failed = append(failed, step)
				}
			}
			if diff := cmp.Diff(test.want, failed); diff != "" {
				t.Errorf("failed (-want +got):\n%s", diff)
			}
			if fault.Fired() != len(test.want) {
				t.Errorf("fired %d times, want %d", fault.Fired(), len(test.want))
			}
		})
	}
}

func TestRule_ChanceIsTheSeeds(t *testing.T) {
	t.Parallel()
	run := func(seed uint64) []string {
		w := newWorld(t, csitest.Options{Seed: seed})
		w.backend.Script(csitest.Rule{Probability: 0.5, Do: csitest.Fail(csi.CodeInternal, "")})
		var codes []string
		for range 40 {
			codes = append(codes, csi.CodeOf(w.step("create")))
		}
		return codes
	}
	first := run(1)
	if diff := cmp.Diff(first, run(1)); diff != "" {
		t.Errorf("the same seed gave other faults:\n%s", diff)
	}
	if slices.Equal(first, run(2)) {
		t.Error("another seed gave the same faults")
	}
	if !slices.Contains(first, csi.CodeOK) || !slices.Contains(first, csi.CodeInternal) {
		t.Errorf("codes = %v, want some of each", first)
	}
}

func TestFail_UnknownCodePanics(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"", "OK", "NotFound"} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("Fail(%q) did not panic", code)
				}
			}()
			csitest.Fail(code, "")
		}()
	}
}

func TestTwoCallsAtOnce_SecondIsAbortedAndCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, csitest.Options{})
		w.walk("create publish", nil)
		fault := w.backend.Script(csitest.Rule{Method: "NodeUnpublishVolume", Do: csitest.Hang()})
		done := make(chan error, 1)
		go func() { done <- w.step("unpublish") }()
		synctest.Wait()
		w.walk("publish delete", map[string]string{"publish": csi.CodeAborted, "delete": csi.CodeAborted})
		fault.Release()
		if err := <-done; err != nil {
			t.Error(err)
		}
		w.wantViolations(
			"call 4, NodePublishVolume pg n1: while call 3, NodeUnpublishVolume, was under way for the volume",
			"call 5, DeleteVolume pg: while call 3, NodeUnpublishVolume, was under way for the volume",
		)
	})
}

// Callers that gave up repeat their call at once; the driver may still be on
// its way out of the first.
func TestTwoCallsAtOnce_GivenUpIsNoViolation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, csitest.Options{})
		w.backend.Script(csitest.Rule{Method: "CreateVolume", Times: 20, Do: csitest.Hang()})
		for range 20 {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- w.call(ctx, "create", "n1", "") }()
			synctest.Wait()
			cancel()
			if code := csi.CodeOf(<-done); code != csi.CodeCancelled {
				t.Errorf("code = %s, want CANCELLED", code)
			}
		}
		w.walk("create", nil)
		w.wantViolations()
	})
}

// A caller that died cannot know of its old call.
func TestTwoCallsAtOnce_ReturnedCallerIsAborted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := csitest.NewBackend(csitest.Options{})
		d := b.Node(csitest.Node{ID: "n1"})
		before := &world{t: t, backend: b, clients: map[string]*csi.Client{"n1": client(t, d, csitest.Options{})}, mode: "single-node-writer"}
		after := &world{t: t, backend: b, clients: map[string]*csi.Client{"n1": csi.New(d.Dialer(), patient(), discard())}, mode: "single-node-writer"}
		defer func() { _ = after.clients["n1"].Close() }()
		fault := b.Script(csitest.Rule{Times: 1, Do: csitest.Hang()})
		done := make(chan error, 1)
		go func() { done <- before.step("create") }()
		synctest.Wait()
		after.walk("create", map[string]string{"create": csi.CodeAborted})
		fault.Release()
		if err := <-done; err != nil {
			t.Error(err)
		}
		after.walk("create", nil)
		after.wantViolations()
	})
}

func TestTwoCallsAtOnce_NodesOfAMultiNodeVolumeDoNotWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, csitest.Options{})
		w.mode = "multi-node-multi-writer"
		w.walk("create", nil)
		fault := w.backend.Script(csitest.Rule{Node: "n1", Do: csitest.Hang()})
		done := make(chan error, 1)
		go func() { done <- w.step("publish:n1") }()
		synctest.Wait()
		w.walk("publish:n2", nil)
		fault.Release()
		if err := <-done; err != nil {
			t.Error(err)
		}
		w.wantViolations()
	})
}
