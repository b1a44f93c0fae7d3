package operation_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/csi"
	"github.com/berth-dev/berth/internal/agent/csi/csitest"
	"github.com/berth-dev/berth/internal/agent/operation"
)

func unpublish(volume, node string, n int) *api.Operation {
	return assigned(api.OperationUnpublish, n, api.OperationRequest{Unpublish: &api.UnpublishRequest{ExternalID: volume, ExternalNodeID: node}})
}

// attach makes a volume and attaches it to node i-1.
func attach(w *world, e *operation.Executor) (volume string) {
	op := create(1)
	run(e, op)
	made, _ := w.said(op)
	volume = made.Result.ExternalID
	run(e, assigned(api.OperationPublish, 1, api.OperationRequest{Publish: &api.PublishRequest{
		ExternalID: volume, ExternalNodeID: "i-1", Capability: capability(), Context: made.Result.Context,
	}}))
	return volume
}

// TestResultIsReadBackWhereTheAnswerLeavesAQuestion: anchors 1.3. A wrong name
// of the node is answered NOT_FOUND, too, and then the volume stays attached.
func TestResultIsReadBackWhereTheAnswerLeavesAQuestion(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script []csitest.Rule
		change func(op *api.Operation)
		code   string
		want   *api.VolumeSeen
	}{
		"AWrongNameOfTheNode": {
			[]csitest.Rule{{Method: "ControllerUnpublishVolume", Do: csitest.Fail(csi.CodeNotFound, "no such node")}}, nil,
			csi.CodeNotFound, &api.VolumeSeen{NodesKnown: true, Nodes: []string{"i-1"}},
		},
		"OK":                         {nil, nil, csi.CodeOK, nil},
		"OKAfterAnUncertainAttempt":  {nil, func(op *api.Operation) { op.Status.Uncertain = true }, csi.CodeOK, &api.VolumeSeen{NodesKnown: true}},
		"OKAfterAPublishThatLingers": {nil, func(op *api.Operation) { op.Request.Unpublish.ReadBack = true }, csi.CodeOK, &api.VolumeSeen{NodesKnown: true}},
		"AVolumeThatIsGone": {
			[]csitest.Rule{
				{Method: "ControllerUnpublishVolume", Do: csitest.Fail(csi.CodeNotFound, "no such volume")},
				{Method: "ControllerGetVolume", Do: csitest.Fail(csi.CodeNotFound, "no such volume")},
			}, nil, csi.CodeNotFound, &api.VolumeSeen{Gone: true},
		},
		"APluginThatDoesNotSay": {
			[]csitest.Rule{
				{Method: "ControllerUnpublishVolume", Do: csitest.Fail(csi.CodeNotFound, "no such volume")},
				{Method: "ControllerGetVolume", Do: csitest.Fail(csi.CodeUnavailable, "busy")},
			}, nil, csi.CodeNotFound, nil,
		},
		"APluginThatHangs": {
			[]csitest.Rule{
				{Method: "ControllerUnpublishVolume", Do: csitest.Fail(csi.CodeNotFound, "no such volume")},
				{Method: "ControllerGetVolume", Do: csitest.Hang()},
			}, nil, csi.CodeNotFound, nil,
		},
		"ARefusal": {
			[]csitest.Rule{{Method: "ControllerUnpublishVolume", Do: csitest.Fail(csi.CodeFailedPrecondition, "in use")}}, nil, csi.CodeFailedPrecondition, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(w *world, e *operation.Executor, _ func()) {
				volume := attach(w, e)
				for _, r := range c.script {
					w.backend.Script(r)
				}
				op := unpublish(volume, "i-1", 1)
				if c.change != nil {
					c.change(op)
				}
				run(e, op)
				after(30 * time.Second)
				f, there := w.said(op)
				if diff := cmp.Diff(c.want, f.Seen); !there || f.Code != c.code || diff != "" {
					t.Errorf("said %v %s, seen (-want +got):\n%s", there, f.Code, diff)
				}
			})
		})
	}
}

// What a create was refused for because it is there is looked for by its name.
func TestVolumeThatIsThereIsFoundByItsName(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world, e *operation.Executor, _ func()) {
		w.backend.Script(csitest.Rule{Method: "CreateVolume", Do: csitest.Fail(csi.CodeAlreadyExists, "another one")})
		first := create(1)
		run(e, first)
		if f, _ := w.said(first); f.Code != csi.CodeAlreadyExists || f.Seen != nil {
			w.t.Errorf("without such a volume: %+v", f)
		}
		w.backend.Add("vol-7", map[string]string{"pool": "a", "name": first.Request.Create.Name})
		w.backend.Add("vol-8", nil)
		second := create(2)
		run(e, second)
		f, _ := w.said(second)
		if f.Seen == nil || f.Seen.Found == nil || f.Seen.Found.ExternalID != "vol-7" || f.Seen.Found.Context["pool"] != "a" {
			w.t.Errorf("the volume was not found: %+v", f.Seen)
		}
	})
}

// TestAttemptThatIsNotAskedForAnyMoreIsNotSent: while the secrets of its volume
// were asked for, the attempt was taken back.
func TestAttemptThatIsNotAskedForAnyMoreIsNotSent(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world, e *operation.Executor, _ func()) {
		op := create(1)
		op.Status.Secrets = true
		w.before = func() { e.Assign(nil) }
		run(e, op)
		if n := w.calls("CreateVolume"); n != 0 {
			w.t.Errorf("%d calls of an attempt that was taken back", n)
		}
	})
}

// TestCallThatWasSentIsLeftToEnd: to cancel a call undoes nothing, and its
// plugin may be in the middle of it.
func TestCallThatWasSentIsLeftToEnd(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world, e *operation.Executor, _ func()) {
		w.backend.Script(csitest.Rule{Method: "CreateVolume", Do: csitest.Delay(20 * time.Second)})
		run(e, create(1))
		e.Assign(nil)
		after(30 * time.Second)
		if n := len(w.backend.Volumes()); n != 1 {
			w.t.Errorf("%d volumes, want the one of the call that was under way", n)
		}
	})
}

// TestCallThatHangsHoldsNoOtherUp: anchors 1.7 and 4.18. Each call has its own
// goroutine, and there are never more than calls.
func TestCallThatHangsHoldsNoOtherUp(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world, e *operation.Executor, _ func()) {
		w.backend.Script(csitest.Rule{Method: "CreateVolume", Do: csitest.Hang()})
		hangs := create(1)
		e.Assign([]*api.Operation{hangs})
		after(time.Second)
		other := unpublish("vol-x", "i-1", 1)
		e.Assign([]*api.Operation{hangs, other})
		after(time.Second)
		if _, there := w.said(other); !there {
			w.t.Error("another volume's call waits for one that hangs")
		}
		if _, there := w.said(hangs); there {
			w.t.Error("the call that hangs has an outcome")
		}
	})
}
