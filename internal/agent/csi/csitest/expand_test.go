package csitest_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/csi"
	"github.com/berth-dev/berth/internal/agent/csi/csitest"
)

const larger = 2 << 20

// change makes a call that changes the volume: expand, grow on n1 at its target
// or where it is staged, or modify.
func (w *world) change(verb string) error {
	c, id := w.clients["n1"], w.volume.ExternalID
	path, staging := "/target/n1", ""
	if verb == "grow-staged" {
		path = "/staging/n1"
	}
	if w.staged() {
		staging = "/staging/n1"
	}
	var err error
	switch verb {
	case "expand":
		_, err = c.ControllerExpand(w.t.Context(), api.ExpandRequest{ExternalID: id, CapacityMin: larger, Capability: w.capability()})
	case "expand-to-limit":
		_, err = c.ControllerExpand(w.t.Context(), api.ExpandRequest{ExternalID: id, CapacityMin: 4 * larger, Capability: w.capability()})
	case "grow", "grow-staged":
		_, err = c.NodeExpand(w.t.Context(), csi.NodeExpandRequest{
			NodeExpandRequest: api.NodeExpandRequest{ExternalID: id, CapacityMin: larger, Capability: w.capability()},
			VolumePath:        path, StagingPath: staging,
		})
	case "modify":
		err = c.ControllerModify(w.t.Context(), api.ModifyRequest{ExternalID: id, MutableParameters: map[string]string{"iops": "1"}})
	case "modify-wrongly":
		err = c.ControllerModify(w.t.Context(), api.ModifyRequest{ExternalID: id, MutableParameters: map[string]string{"colour": "red"}})
	default:
		err = w.step(verb)
	}
	return err
}

func (w *world) staged() bool {
	for _, v := range w.backend.Volumes() {
		if len(v.Staged) > 0 {
			return true
		}
	}
	return false
}

func TestChanges(t *testing.T) {
	t.Parallel()
	full := csitest.Options{Attach: true, Stage: true, Expand: true, NodeExpand: true, Modify: true, Largest: 2 * larger}
	offline := full
	offline.Offline = true
	nodeOffline := full
	nodeOffline.NodeOffline = true
	noStage := full
	noStage.Stage = false
	up := []string{"create", "attach", "stage", "publish"}
	for name, test := range map[string]struct {
		options csitest.Options
		steps   []string
		codes   map[string]string
		want    []string
		grown   int64
	}{
		"InUse":            {options: full, steps: append(up, "expand", "grow", "grow"), grown: larger},
		"BeforeItIsUsed":   {options: full, steps: []string{"create", "attach", "expand", "stage", "grow-staged", "publish"}, grown: larger},
		"WithoutStaging":   {options: noStage, steps: []string{"create", "attach", "publish", "expand", "grow"}, grown: larger},
		"TooLarge":         {options: full, steps: []string{"create", "expand-to-limit"}, codes: map[string]string{"expand-to-limit": csi.CodeOutOfRange}, grown: 1 << 20},
		"Parameters":       {options: full, steps: []string{"create", "modify", "modify"}, grown: 1 << 20},
		"UnknownParameter": {options: full, steps: []string{"create", "modify-wrongly"}, codes: map[string]string{"modify-wrongly": csi.CodeInvalidArgument}, grown: 1 << 20},
		"Offline":          {options: offline, steps: append(up, "unpublish", "unstage", "detach", "expand"), grown: 1 << 20},
		"OfflineInUse": {
			options: offline, steps: append(up, "expand"), codes: map[string]string{"expand": csi.CodeFailedPrecondition},
			want: []string{"call 5, ControllerExpandVolume pg: staged or published on n1, and the driver expands OFFLINE"}, grown: 1 << 20,
		},
		"OfflineAttached": {
			options: offline, steps: []string{"create", "attach", "expand"}, codes: map[string]string{"expand": csi.CodeFailedPrecondition},
			want: []string{"call 3, ControllerExpandVolume pg: attached to n1, and the driver expands OFFLINE"}, grown: 1 << 20,
		},
		"NodeFirst": {
			options: full, steps: append(up, "grow"), codes: map[string]string{"grow": csi.CodeOutOfRange},
			want: []string{"call 5, NodeExpandVolume pg n1: before ControllerExpandVolume succeeded"}, grown: 1 << 20,
		},
		"NodeBeforeStage": {
			options: full, steps: []string{"create", "attach", "expand", "grow"}, codes: map[string]string{"grow": csi.CodeNotFound},
			want: []string{"call 4, NodeExpandVolume pg n1: before NodeStageVolume succeeded"}, grown: 1 << 20,
		},
		"NodeAtAnotherPath": {
			options: full, steps: []string{"create", "attach", "stage", "expand", "grow"}, codes: map[string]string{"grow": csi.CodeNotFound},
			want: []string{"call 5, NodeExpandVolume pg n1: volume_path /target/n1 is where the volume is neither staged nor published"}, grown: 1 << 20,
		},
		"NodeInUseAgain": {
			options: nodeOffline, steps: append(up, "expand", "grow", "grow"), codes: map[string]string{"grow": csi.CodeFailedPrecondition},
			want: []string{"call 7, NodeExpandVolume pg n1: again, after it was refused because the volume is in use"}, grown: 1 << 20,
		},
		"NodeInUseThenNot": {options: nodeOffline, steps: []string{"create", "attach", "stage", "expand", "grow-staged", "publish"}, grown: larger},
		"Lacking": {
			options: csitest.Options{NodeExpand: true}, steps: []string{"create", "expand", "modify"},
			codes: map[string]string{"expand": csi.CodeUnimplemented, "modify": csi.CodeUnimplemented},
			want: []string{
				"call 2, ControllerExpandVolume pg: the driver lacks EXPAND_VOLUME", "call 3, ControllerModifyVolume pg: the driver lacks MODIFY_VOLUME",
			}, grown: 1 << 20,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, test.options)
			w.mode = api.SingleNodeWriter
			codes := map[string]string{}
			for _, step := range test.steps {
				if err := w.change(step); err != nil {
					codes[step] = csi.CodeOf(err)
				}
			}
			if test.codes == nil {
				test.codes = map[string]string{}
			}
			if diff := cmp.Diff(test.codes, codes); diff != "" {
				t.Errorf("codes (-want +got):\n%s", diff)
			}
			w.wantViolations(test.want...)
			if got := w.backend.Volumes()[0].Grown; got != test.grown {
				t.Errorf("what is on it has %d bytes, want %d", got, test.grown)
			}
		})
	}
}
