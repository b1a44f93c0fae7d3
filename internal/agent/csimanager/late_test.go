package csimanager_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/csi/csitest"
)

// late is the call for a volume that is not answered, "" for none.
func (w *world) late(a *api.AttachmentAssignment) string {
	p, _ := w.mounter.Late(a)
	if p == nil {
		return ""
	}
	return p.Step + ": " + p.Message
}

// A plugin that hangs was told of by nobody before its call was given up, and
// never to those who waited behind it for the same volume.
func TestHungCallIsToldOf(t *testing.T) {
	t.Parallel()
	for _, method := range methods {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			inWorld(t, csitest.Options{Attach: true, Stage: true}, func(t testing.TB, w *world) { hungCall(t, w, method) })
		})
	}
}

func hungCall(t testing.TB, w *world, method string) {
	t.Helper()
	a := w.shared()
	behind := user(a, "alloc-2", "data")
	elsewhere := w.volume(wish{volume: "other"})
	step := func(a *api.AttachmentAssignment) error {
		_, err := w.mounter.Mount(t.Context(), a)
		return err
	}
	if strings.HasPrefix(method, "NodeUn") {
		w.mount(a)
		step = func(a *api.AttachmentAssignment) error { return w.mounter.Unmount(t.Context(), a) }
	}
	hang := w.backend.Script(csitest.Rule{Method: method, Times: 1, Do: csitest.Hang()})
	began := time.Now()
	ended := make(chan error, 2)
	go func() { ended <- step(a) }()
	synctest.Wait()
	go func() { ended <- step(behind) }()
	synctest.Wait()
	_, changed := w.mounter.Late(behind)
	time.Sleep(10*time.Second - time.Millisecond)
	if got := w.late(a) + w.late(behind); got != "" {
		t.Errorf("told before its time: %s", got)
	}
	<-changed
	if took := time.Since(began); took != 10*time.Second {
		t.Errorf("told after %s", took)
	}
	want := method + ": plugin provider has not answered since " + began.UTC().Format("15:04:05 MST") + "; the call is given up after 2m0s, and made again"
	for who, a := range map[string]*api.AttachmentAssignment{"who called": a, "who waits behind": behind} {
		if diff := cmp.Diff(want, w.late(a)); diff != "" {
			t.Errorf("%s is told (-want +got):\n%s", who, diff)
		}
	}
	if got := w.late(elsewhere); got != "" {
		t.Errorf("another volume's: %s", got)
	}
	_, changed = w.mounter.Late(a)
	hang.Release()
	<-changed
	for range 2 {
		if err := <-ended; err != nil {
			t.Errorf("when it answered: %v", err)
		}
	}
	if got := w.late(a) + w.late(behind); got != "" {
		t.Errorf("told when it had answered: %s", got)
	}
	w.triesUnmount(a)
	w.triesUnmount(behind)
	w.wantNothing()
}

// A call that is given up is no problem any more; what it ended with is.
func TestCallThatIsGivenUpIsNotLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, csitest.Options{Stage: true})
		a := w.volume(wish{})
		w.backend.Script(csitest.Rule{Method: "NodeStageVolume", Times: 1, Do: csitest.Hang()})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := w.mounter.Mount(ctx, a)
			ended <- err
		}()
		time.Sleep(time.Minute)
		if got := w.late(a); !strings.Contains(got, "NodeStageVolume") {
			t.Errorf("told %q", got)
		}
		cancel()
		if err := <-ended; err == nil {
			t.Error("the call had no error")
		}
		if got := w.late(a); got != "" {
			t.Errorf("told when it was given up: %s", got)
		}
		w.triesMount(a)
		w.triesUnmount(a)
		w.wantNothing()
	})
}
