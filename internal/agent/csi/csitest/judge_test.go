package csitest_test

import (
	"testing"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/csi"
	"github.com/berth-dev/berth/internal/agent/csi/csitest"
)

const (
	setUp    = "create attach stage publish "
	takeDown = "unpublish unstage detach delete"
)

func TestLife_KeepsTheRules(t *testing.T) {
	t.Parallel()
	noTopology := csitest.Options{Attach: true, Stage: true}
	for name, test := range map[string]struct {
		options csitest.Options
		mode    api.AccessMode
		steps   string
	}{
		"Everything":        {noTopology, api.SingleNodeWriter, setUp + takeDown},
		"NoCapabilities":    {csitest.Options{}, api.SingleNodeWriter, "create publish unpublish delete"},
		"NoStaging":         {csitest.Options{Attach: true}, api.SingleNodeWriter, "create attach publish unpublish detach delete"},
		"Repetition":        {noTopology, api.SingleNodeWriter, "create create attach attach stage stage publish publish unpublish unpublish unstage unstage detach detach delete delete"},
		"MoveToAnotherNode": {noTopology, api.SingleNodeWriter, setUp + "unpublish unstage detach attach:n2 stage:n2 publish:n2 unpublish:n2 unstage:n2 detach:n2 delete"},
		"TwoNodes":          {noTopology, api.MultiNodeMultiWriter, "create attach stage publish unpublish unstage detach attach:n2 stage:n2 publish:n2 unpublish:n2 unstage:n2 detach:n2 delete"},
		"TwoTargets": {
			csitest.Options{Attach: true, Stage: true, MultiWriter: true}, api.SingleNodeMultiWriter,
			setUp + "publish:n1:elsewhere unpublish:n1:elsewhere " + takeDown,
		},
		"PathUsedAgain": {noTopology, api.SingleNodeWriter, setUp + "unpublish publish:n1 unpublish unstage stage unstage detach attach detach delete"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, test.options)
			w.mode = test.mode
			w.walk(test.steps, nil)
			w.wantViolations()
			if left := w.backend.Volumes(); len(left) > 0 {
				t.Errorf("left behind: %+v", left)
			}
		})
	}
}

func TestViolations(t *testing.T) {
	t.Parallel()
	attachStage := csitest.Options{Attach: true, Stage: true}
	for name, test := range map[string]struct {
		options csitest.Options
		mode    api.AccessMode
		steps   string
		codes   map[string]string
		want    []string
	}{
		"SecondNodeAttached": {
			options: attachStage, steps: "create attach attach:n2",
			codes: map[string]string{"attach:n2": csi.CodeFailedPrecondition},
			want:  []string{"call 3, ControllerPublishVolume pg n2: attached to n1, and not for several nodes"},
		},
		"SecondNodeStaged": {
			options: csitest.Options{Stage: true}, steps: "create stage stage:n2",
			want: []string{"call 3, NodeStageVolume pg n2: staged on n1, and not for several nodes"},
		},
		"SecondNodePublished": {
			steps: "create publish publish:n2",
			want:  []string{"call 3, NodePublishVolume pg n2: published on n1 at /target/n1, and not for several nodes"},
		},
		"SecondWriter": {
			mode: api.MultiNodeSingleWriter, steps: "create publish publish:n2",
			want: []string{"call 3, NodePublishVolume pg n2: published on n1 at /target/n1, and for a single writer"},
		},
		"ReaderBesideWriter": {
			mode: api.MultiNodeSingleWriter, steps: "create publish publish:n2:read-only",
		},
		"StageBeforeAttach": {
			options: attachStage, steps: "create stage",
			codes: map[string]string{"stage": csi.CodeFailedPrecondition},
			want:  []string{"call 2, NodeStageVolume pg n1: before ControllerPublishVolume succeeded"},
		},
		"PublishBeforeStage": {
			options: attachStage, steps: "create attach publish",
			codes: map[string]string{"publish": csi.CodeFailedPrecondition},
			want:  []string{"call 3, NodePublishVolume pg n1: before NodeStageVolume succeeded"},
		},
		"UnstageWhilePublished": {
			options: attachStage, steps: setUp + "unstage",
			codes: map[string]string{"unstage": csi.CodeFailedPrecondition},
			want:  []string{"call 5, NodeUnstageVolume pg n1: published at /target/n1"},
		},
		"DetachWhileStaged": {
			options: attachStage, steps: "create attach stage detach",
			codes: map[string]string{"detach": csi.CodeFailedPrecondition},
			want:  []string{"call 4, ControllerUnpublishVolume pg n1: staged or published on n1"},
		},
		"DeleteWhilePublished": {
			steps: "create publish delete",
			codes: map[string]string{"delete": csi.CodeFailedPrecondition},
			want:  []string{"call 3, DeleteVolume pg: staged or published on n1"},
		},
		"DeleteWhileAttached": {
			options: attachStage, steps: "create attach delete",
			codes: map[string]string{"delete": csi.CodeFailedPrecondition},
			want:  []string{"call 3, DeleteVolume pg: attached to n1"},
		},
		"CreateWithOtherArguments": {
			steps: "create create:n1:elsewhere",
			codes: map[string]string{"create:n1:elsewhere": csi.CodeAlreadyExists},
			want:  []string{"call 2, CreateVolume pg: repeated with other arguments"},
		},
		"StageElsewhere": {
			options: attachStage, steps: "create attach stage stage:n1:elsewhere",
			codes: map[string]string{"stage:n1:elsewhere": csi.CodeAlreadyExists},
			want:  []string{"call 4, NodeStageVolume pg n1: repeated with other arguments"},
		},
		"UnstageElsewhere": {
			options: attachStage, steps: "create attach stage unstage:n1:elsewhere",
			want: []string{"call 4, NodeUnstageVolume pg n1: staged at /staging/n1, not at /elsewhere"},
		},
		"PublishWithOtherArguments": {
			steps: "create publish publish:n1:read-only",
			codes: map[string]string{"publish:n1:read-only": csi.CodeAlreadyExists},
			want:  []string{"call 3, NodePublishVolume pg n1: repeated with other arguments"},
		},
		"SecondTarget": {
			steps: "create publish publish:n1:elsewhere",
			codes: map[string]string{"publish:n1:elsewhere": csi.CodeFailedPrecondition},
			want:  []string{"call 3, NodePublishVolume pg n1: published at /target/n1, and its access mode allows one target"},
		},
		"ContextsForgotten": {
			options: attachStage, steps: "create attach:n1:no-context stage:n1:no-context",
			want: []string{
				"call 2, ControllerPublishVolume pg n1: volume_context is not what CreateVolume answered",
				"call 3, NodeStageVolume pg n1: volume_context is not what CreateVolume answered",
				"call 3, NodeStageVolume pg n1: publish_context is not what ControllerPublishVolume answered",
			},
		},
		"ReadOnlyAttachWithoutCapability": {
			options: attachStage, steps: "create attach:n1:read-only",
			want: []string{"call 2, ControllerPublishVolume pg n1: readonly, and the driver lacks PUBLISH_READONLY"},
		},
		"MissingCapability": {
			steps: "create attach stage",
			codes: map[string]string{"attach": csi.CodeUnimplemented, "stage": csi.CodeUnimplemented},
			want: []string{
				"call 2, ControllerPublishVolume pg n1: the driver lacks PUBLISH_UNPUBLISH_VOLUME",
				"call 3, NodeStageVolume pg n1: the driver lacks STAGE_UNSTAGE_VOLUME",
			},
		},
		"WrongPlace": {
			options: csitest.Options{Topology: true}, steps: "create publish:n2",
			codes: map[string]string{"publish:n2": csi.CodeFailedPrecondition},
			want:  []string{"call 2, NodePublishVolume pg n2: the volume cannot be reached from the node"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, test.options)
			if test.mode != "" {
				w.mode = test.mode
			}
			w.walk(test.steps, test.codes)
			w.wantViolations(test.want...)
		})
	}
}

// A driver that lies, or does half of what it says, puts no blame on callers
// that could not know.
func TestFaultsAreNotTheCallersFault(t *testing.T) {
	t.Parallel()
	attachStage := csitest.Options{Attach: true, Stage: true}
	for name, test := range map[string]struct {
		rule  csitest.Rule
		steps string
		codes map[string]string
		want  []string
	}{
		"LieAboutAttach": {
			rule:  csitest.Rule{Method: "ControllerPublishVolume", Do: csitest.Lie()},
			steps: "create attach stage unstage detach delete",
			codes: map[string]string{"stage": csi.CodeFailedPrecondition},
		},
		"LieAboutStage": {
			rule:  csitest.Rule{Method: "NodeStageVolume", Do: csitest.Lie()},
			steps: "create attach stage publish unpublish unstage detach delete",
			codes: map[string]string{"publish": csi.CodeFailedPrecondition},
		},
		"LieAboutUnstage": {
			rule:  csitest.Rule{Method: "NodeUnstageVolume", Do: csitest.Lie()},
			steps: setUp + "unpublish unstage detach",
			codes: map[string]string{"detach": csi.CodeFailedPrecondition},
		},
		"LieAboutStageIsTakenDownAsIfItWereThere": {
			rule:  csitest.Rule{Method: "NodeStageVolume", Do: csitest.Lie()},
			steps: "create attach stage detach",
			want:  []string{"call 4, ControllerUnpublishVolume pg n1: staged or published on n1"},
		},
		"UncertainAttachIsRepeated": {
			rule:  csitest.Rule{Method: "ControllerPublishVolume", Times: 1, Do: csitest.FailAfter(csi.CodeInternal, "")},
			steps: "create attach attach:n1 stage",
			codes: map[string]string{"attach": csi.CodeInternal},
		},
		"UncertainAttachIsTakenForSuccess": {
			rule:  csitest.Rule{Method: "ControllerPublishVolume", Do: csitest.FailAfter(csi.CodeInternal, "")},
			steps: "create attach stage",
			codes: map[string]string{"attach": csi.CodeInternal},
			want:  []string{"call 3, NodeStageVolume pg n1: before ControllerPublishVolume succeeded"},
		},
		"UncertainStageIsForgotten": {
			rule:  csitest.Rule{Method: "NodeStageVolume", Do: csitest.FailAfter(csi.CodeDeadlineExceeded, "")},
			steps: "create attach stage detach",
			codes: map[string]string{"stage": csi.CodeDeadlineExceeded, "detach": csi.CodeFailedPrecondition},
			want:  []string{"call 4, ControllerUnpublishVolume pg n1: staged or published on n1"},
		},
		"FailedStageIsGivenUp": {
			rule:  csitest.Rule{Method: "NodeStageVolume", Do: csitest.Fail(csi.CodeInvalidArgument, "")},
			steps: "create attach stage detach delete",
			codes: map[string]string{"stage": csi.CodeInvalidArgument},
		},
		"FailedUnpublishStopsTheChain": {
			rule:  csitest.Rule{Method: "NodeUnpublishVolume", Times: 1, Do: csitest.Fail(csi.CodeInternal, "busy")},
			steps: setUp + "unpublish unstage",
			codes: map[string]string{"unpublish": csi.CodeInternal, "unstage": csi.CodeFailedPrecondition},
			want:  []string{"call 6, NodeUnstageVolume pg n1: published at /target/n1"},
		},
		"LostUnpublishIsRepeated": {
			rule:  csitest.Rule{Method: "NodeUnpublishVolume", Times: 1, Do: csitest.FailAfter(csi.CodeInternal, "")},
			steps: setUp + "unpublish unpublish:n1 unstage detach delete",
			codes: map[string]string{"unpublish": csi.CodeInternal},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, attachStage)
			w.backend.Script(test.rule)
			w.walk(test.steps, test.codes)
			w.wantViolations(test.want...)
		})
	}
}
