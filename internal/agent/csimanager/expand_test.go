package csimanager_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/csi"
	"github.com/berth-dev/berth/internal/agent/csi/csitest"
	"github.com/berth-dev/berth/internal/agent/csimanager"
)

const larger = 2 << 30

// growing runs a test with each kind of driver, all of which expand.
func growing(t *testing.T, test func(w *world)) {
	t.Helper()
	for name, o := range kinds() {
		o.Expand, o.NodeExpand = true, true
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, o, func(_ testing.TB, w *world) { test(w) })
		})
	}
}

// enlarge has the provider make the volume larger.
func (w *world) enlarge(a *api.AttachmentAssignment) {
	w.t.Helper()
	r, err := w.client.ControllerExpand(w.t.Context(), api.ExpandRequest{
		ExternalID: a.ExternalID, CapacityMin: larger, Capability: capabilityOf(a),
	})
	if err != nil || r.Capacity != larger || !r.NodeExpansionRequired {
		w.t.Fatalf("ControllerExpandVolume: %+v, %v", r, err)
	}
}

func capabilityOf(a *api.AttachmentAssignment) api.Capability {
	return api.Capability{AccessMode: a.Attachment.AccessMode, AttachmentMode: a.Attachment.AttachmentMode}
}

// nodeExpand is the operation that grows what is on the volume.
func nodeExpand(a *api.AttachmentAssignment) *api.Operation {
	return &api.Operation{
		ID: "node-expand/default/pg/n1@1", Kind: api.OperationNodeExpand, PluginID: plugin,
		Namespace: a.Attachment.Namespace, VolumeID: a.Attachment.VolumeID, NodeID: "n1",
		Request: api.OperationRequest{NodeExpand: &api.NodeExpandRequest{
			ExternalID: a.ExternalID, CapacityMin: larger, Capability: capabilityOf(a),
		}},
	}
}

func (w *world) wantGrown(size int64) {
	w.t.Helper()
	for _, v := range w.backend.Volumes() {
		if v.Grown != size {
			w.t.Errorf("what is on volume %s has %d bytes, want %d", v.Name, v.Grown, size)
		}
	}
	w.wantNoViolations()
}

// up are the calls of a mount, with what comes between staging and publishing,
// or after publishing if the driver does not stage.
func (w *world) up(grow string) string {
	if w.options.Stage {
		return "NodeStageVolume OK\n" + grow + "NodePublishVolume OK\n"
	}
	return "NodePublishVolume OK\n" + grow
}

const grew = "NodeExpandVolume OK\n"

func TestExpand_WhatIsMounted(t *testing.T) {
	t.Parallel()
	growing(t, func(w *world) {
		a := w.volume(wish{})
		w.mount(a)
		w.enlarge(a)
		r, err := w.mounter.Expand(w.t.Context(), nodeExpand(a))
		if err != nil || r.Capacity != larger {
			w.t.Errorf("expand: %+v, %v", r, err)
		}
		w.wantCalls(w.up("") + grew)
		w.wantGrown(larger)
		w.mount(a) // looks, and says how it is
		if got := w.facts.size(); got != larger {
			w.t.Errorf("the servers were told that it grew to %d", got)
		}
		w.unmount(a)
		w.wantNothing()
	})
}

// A task never sees the old size.
func TestExpand_WhenItIsMountedNext(t *testing.T) {
	t.Parallel()
	growing(t, func(w *world) {
		a := w.volume(wish{})
		w.enlarge(a)
		a.NodeExpansion = larger
		w.mount(a)
		w.wantCalls(w.up(grew))
		w.wantGrown(larger)
		if got := w.facts.size(); got != larger {
			w.t.Errorf("the servers were told that it grew to %d", got)
		}
		w.mount(a)
		w.restart()
		w.mount(a)
		w.wantCalls(w.up(grew))
		if got := w.facts.size(); got != larger {
			w.t.Errorf("after a restart the servers were told that it grew to %d", got)
		}
		w.unmount(a)
		w.wantNothing()
	})
}

// kubernetes 29: a volume is of use although it cannot grow. The servers, who do
// not hear that it did, have it tried again.
func TestExpand_FailureKeepsNobodyFromTheVolume(t *testing.T) {
	t.Parallel()
	growing(t, func(w *world) {
		w.backend.Script(csitest.Rule{Method: "NodeExpandVolume", Times: 1, Do: csitest.Fail(csi.CodeInternal, "no tool")})
		a := w.volume(wish{})
		w.enlarge(a)
		a.NodeExpansion = larger
		w.mount(a)
		w.mount(a)
		w.wantMounts(a)
		w.wantCalls(w.up("NodeExpandVolume INTERNAL\n"))
		if got := w.facts.size(); got != 0 {
			w.t.Errorf("the servers were told that it grew to %d", got)
		}
		if _, err := w.mounter.Expand(w.t.Context(), nodeExpand(a)); err != nil {
			w.t.Error(err)
		}
		w.wantGrown(larger)
	})
}

// TestExpand_IsNotRepeatedWhileInUse: a driver without staging that refuses, as
// the volume is in use, right after it was published, is not asked again before
// something has changed; the servers, who ask next, get its answer.
func TestExpand_IsNotRepeatedWhileInUse(t *testing.T) {
	t.Parallel()
	inWorld(t, csitest.Options{Expand: true, NodeExpand: true}, func(_ testing.TB, w *world) {
		a := w.volume(wish{})
		w.enlarge(a)
		a.NodeExpansion = larger
		w.backend.Script(csitest.Rule{Method: "NodeExpandVolume", Times: 1, Do: csitest.Fail(csi.CodeFailedPrecondition, "in use")})
		w.mount(a)
		for range 2 {
			_, err := w.mounter.Expand(w.t.Context(), nodeExpand(a))
			if refused, ok := errors.AsType[*csi.Error](err); !ok || refused.Code != csi.CodeFailedPrecondition || refused.Message != "in use" || refused.Unsent {
				w.t.Errorf("asked again: %v, want the answer that it gave", err)
			}
			w.restart()
		}
		w.wantCalls(w.up("NodeExpandVolume FAILED_PRECONDITION\n"))
		w.unmount(a)
		w.mount(a)
		w.wantGrown(larger)
		w.wantNoViolations()
	})
}

func TestExpand_OfADriverThatCannotOnNodesIsNotCalled(t *testing.T) {
	t.Parallel()
	inWorld(t, csitest.Options{Stage: true, Expand: true}, func(_ testing.TB, w *world) {
		a := w.volume(wish{})
		a.NodeExpansion = larger
		w.mount(a)
		w.wantCalls(w.up(""))
		w.wantNoViolations()
	})
}

// What is not mounted is not expanded: the call is not made, and is certain to
// have had no effect.
func TestExpand_WhatIsNotMounted(t *testing.T) {
	t.Parallel()
	growing(t, func(w *world) {
		a := w.volume(wish{})
		w.enlarge(a)
		for name, before := range map[string]func(){
			"never":        func() {},
			"unmounted":    func() { w.mount(a); w.unmount(a) },
			"after a boot": func() { w.mount(a); w.reboot() },
		} {
			before()
			_, err := w.mounter.Expand(w.t.Context(), nodeExpand(a))
			if _, notMade := errors.AsType[*api.Error](err); !notMade {
				w.t.Errorf("%s: %v, want an error that says that it was not called", name, err)
			}
			w.unmount(a)
		}
		w.wantGrown(1 << 30)
		w.wantNothing()
	})
}

func TestExpand_AsksForTheSecrets(t *testing.T) {
	t.Parallel()
	inWorld(t, csitest.Options{Stage: true, Expand: true, NodeExpand: true}, func(_ testing.TB, w *world) {
		a := w.volume(wish{})
		w.mount(a)
		w.enlarge(a)
		op := nodeExpand(a)
		op.Status.Secrets = true
		if _, err := w.mounter.Expand(w.t.Context(), op); err != nil {
			w.t.Error(err)
		}
		w.sealed = errors.New("no server answers")
		if _, err := w.mounter.Expand(w.t.Context(), op); err == nil {
			w.t.Error("expanded without the secrets")
		}
		if diff := cmp.Diff([]string{"default/pg", "default/pg"}, w.asked); diff != "" {
			w.t.Errorf("secrets that were asked for (-want +got):\n%s", diff)
		}
	})
}

// One call at a time: who unmounts waits until the driver has answered.
func TestExpand_AndUnmountTakeTurns(t *testing.T) {
	t.Parallel()
	inWorld(t, csitest.Options{Stage: true, Expand: true, NodeExpand: true}, func(_ testing.TB, w *world) {
		a := w.volume(wish{})
		w.mount(a)
		w.enlarge(a)
		hang := w.backend.Script(csitest.Rule{Method: "NodeExpandVolume", Times: 1, Do: csitest.Hang()})
		ended := make(chan error, 2)
		go func() {
			_, err := w.mounter.Expand(w.t.Context(), nodeExpand(a))
			ended <- err
		}()
		synctest.Wait()
		go func() { ended <- w.mounter.Unmount(w.t.Context(), a) }()
		synctest.Wait()
		w.wantCalls(w.up("") + "NodeExpandVolume ...\n")
		hang.Release()
		for range 2 {
			if err := <-ended; err != nil {
				w.t.Error(err)
			}
		}
		w.wantCalls(w.up("") + grew + stagedDown)
		w.wantNothing()
	})
}

// TestExpand_CrashAnywhere dies in every moment of a mount that grows a volume,
// and of the operation that does. Repeated, it is mounted, and grows.
func TestExpand_CrashAnywhere(t *testing.T) {
	t.Parallel()
	growing(t, func(w *world) {
		a := w.volume(wish{})
		w.enlarge(a)
		a.NodeExpansion = larger
		mount := step{func(m *csimanager.Mounter) error { _, err := m.Mount(w.t.Context(), a); return err }, "mount"}
		grow := step{func(m *csimanager.Mounter) error { _, err := m.Expand(w.t.Context(), nodeExpand(a)); return err }, "grow"}
		for moment, died := 1, true; died; moment++ {
			died = w.die(mount, moment)
			w.newMounter()
			w.mount(a)
			w.wantMounts(a)
			diedToo := w.die(grow, moment)
			w.newMounter()
			if _, err := w.mounter.Expand(w.t.Context(), nodeExpand(a)); err != nil {
				w.t.Errorf("died in moment %d: %v", moment, err)
			}
			w.wantGrown(larger)
			w.unmount(a)
			w.wantNothing()
			died = died || diedToo
		}
	})
}
