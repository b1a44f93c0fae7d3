package tracing_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/state"
	"github.com/berth-dev/berth/internal/state/statetest"
)

// mounting is a job's allocation whose volume is about to be mounted.
const mounting = `
node {"id":"n1","status":{"state":"ready"}}
job {"id":"db","spec":{"groups":[{"count":1}]},"status":{"applied":"now-10s","trace":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}}
volume {"id":"pg","status":{"state":"ready"}}
allocation {"id":"a1","job_id":"db","node_id":"n1","create_time":"now-9s"}
attachment {"alloc_id":"a1","name":"data","volume_id":"pg","node_id":"n1","status":{"state":"controller-published","steps":[{"state":"claimed","time":"now-9s"},{"state":"controller-published","time":"now-6s"}]}}
operation {"kind":"publish","volume_id":"pg","node_id":"n1","create_time":"now-9s","status":{"state":"succeeded","attempt":1,"executor":"n1","assigned":"now-8s","ended":"now-6s","code":"OK"}}
`

// says is a node's word on its attachment.
func says(p *api.Problem) func(*state.Tx) {
	return func(tx *state.Tx) {
		at := *tx.Attachment("a1", "data")
		at.Status.Problem = p
		tx.PutAttachment(&at)
	}
}

// reaches moves the attachment on: each state at its time, with "-" before it if
// it was passed over.
func reaches(steps ...string) func(*state.Tx) {
	return func(tx *state.Tx) {
		at := *tx.Attachment("a1", "data")
		at.Status.Problem = nil
		at.Status.Steps = append([]api.AttachmentStep{}, at.Status.Steps...)
		for _, s := range steps {
			name, time, _ := strings.Cut(s, " ")
			at.Status.State = api.AttachmentState(strings.TrimPrefix(name, "-"))
			step := api.AttachmentStep{State: at.Status.State, Time: statetest.Now(), Skipped: strings.HasPrefix(name, "-")}
			if time != "" {
				step.Time = parse(time)
			}
			at.Status.Steps = append(at.Status.Steps, step)
		}
		tx.PutAttachment(&at)
	}
}

func refused(step string) *api.Problem {
	return &api.Problem{Step: step, Code: "INTERNAL", Message: "wrong fs type"}
}

func TestAMountThatFailsIsASpanWithItsError(t *testing.T) {
	t.Parallel()
	var k kept
	followCommits(t, mounting, &k, &bytes.Buffer{}, says(refused("NodeStageVolume")))
	if len(k.spans) != 1 {
		t.Fatalf("spans:\n%s", tree(k.spans))
	}
	failed := k.spans[0]
	if failed.Name != "volume data/NodeStageVolume failed" || failed.Status.Code != codes.Error || failed.Status.Description != "INTERNAL: wrong fs type" {
		t.Errorf("span %q with status %+v", failed.Name, failed.Status)
	}
	if failed.SpanContext.TraceID().String() != "0af7651916cd43dd8448eb211c80319c" {
		t.Errorf("it is of trace %s, and not of its caller's", failed.SpanContext.TraceID())
	}

	// Once it is mounted after all, it has its place.
	followCommits(t, mounting, &k, &bytes.Buffer{}, reaches("node-published"), func(tx *state.Tx) {
		a := *tx.Allocation("a1")
		runs(&a, nil)
		tx.PutAllocation(&a)
	})
	if above := named(t, k.spans, "volume data").SpanContext.SpanID(); failed.Parent.SpanID() != above {
		t.Errorf("it is below span %s, want that of the mount, %s", failed.Parent.SpanID(), above)
	}
}

func TestWhatTakesLongIsNoFailedMount(t *testing.T) {
	t.Parallel()
	var k kept
	followCommits(t, mounting, &k, &bytes.Buffer{}, says(&api.Problem{Step: "NodeStageVolume", Message: "no answer yet", Since: statetest.Now()}), says(nil))
	if len(k.spans) != 0 {
		t.Errorf("spans:\n%s", tree(k.spans))
	}
}

func TestAnAllocationThatNeverRanIsATraceWithAnError(t *testing.T) {
	t.Parallel()
	var k kept
	followCommits(t, mounting, &k, &bytes.Buffer{}, says(refused("NodePublishVolume")), func(tx *state.Tx) {
		a := *tx.Allocation("a1")
		a.Desired, a.DesiredReason = api.DesireStop, "the job was stopped"
		tx.PutAllocation(&a)
	}, reaches("-node-published 1s", "-unpublishing 1s", "node-detached 1s", "-controller-detached", "freed"))
	want := `allocation 10s..0s it never ran: the job was stopped
  place 10s..9s
  volume data 9s..1s it was not mounted
    volume data/controller publish 9s..6s
      operation publish/default/pg/n1@1 9s..6s
        call of publish/default/pg/n1@1 8s..6s
    volume data/NodePublishVolume failed 6s..0s INTERNAL: wrong fs type
    volume data/stage and publish on the node 6s..1s it was not mounted
`
	if diff := cmp.Diff(want, treeBelow(k.spans, "b7ad6b7169203331")); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
}

func TestAVolumeThatCannotBeAttachedIsATraceWithAnError(t *testing.T) {
	t.Parallel()
	world := strings.NewReplacer(
		`"state":"controller-published","steps":[{"state":"claimed","time":"now-9s"},{"state":"controller-published","time":"now-6s"}]`, `"state":"claimed","steps":[{"state":"claimed","time":"now-9s"}]`,
		`"state":"succeeded"`, `"state":"failed"`, `"code":"OK"`, `"code":"RESOURCE_EXHAUSTED","message":"26 volumes"`).Replace(mounting)
	var k kept
	followCommits(t, world, &k, &bytes.Buffer{}, func(tx *state.Tx) {
		a := *tx.Allocation("a1")
		a.Status = api.AllocStatus{State: api.AllocFailed, Problem: &api.Problem{Step: "run", Message: "no room"}}
		tx.PutAllocation(&a)
	}, reaches("-controller-published 5s", "-node-published 5s", "unpublishing 5s", "node-detached 4s", "-controller-detached 3s", "freed"))
	want := `allocation 10s..0s it never ran: no room
  place 10s..9s
  volume data 9s..5s it was not mounted
    volume data/controller publish 9s..5s it was not attached
      operation publish/default/pg/n1@1 9s..6s RESOURCE_EXHAUSTED: 26 volumes
        call of publish/default/pg/n1@1 8s..6s RESOURCE_EXHAUSTED: 26 volumes
`
	if diff := cmp.Diff(want, treeBelow(k.spans, "b7ad6b7169203331")); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
}

func TestAnUnmountIsATraceWithALinkToItsCaller(t *testing.T) {
	t.Parallel()
	const released = `operation {"kind":"unpublish","volume_id":"pg","node_id":"n1","create_time":"now-2s","status":{"state":"succeeded","attempt":1,"executor":"n1","assigned":"now-2s","ended":"now-1s","code":"OK"}}`
	var k kept
	followCommits(t, mounting+released, &k, &bytes.Buffer{}, reaches("node-published 5s"),
		func(tx *state.Tx) {
			a := *tx.Allocation("a1")
			a.Running, a.Status.Tasks = parse("5s"), map[string]api.TaskStatus{"t": {State: api.TaskEnded, Ended: parse("4s")}}
			tx.PutAllocation(&a)
		},
		says(refused("NodeUnstageVolume")),
		reaches("-unpublishing 2s", "node-detached 2s", "controller-detached 1s", "freed"))
	want := `unmount data 4s..0s
  volume data/NodeUnstageVolume failed 4s..0s INTERNAL: wrong fs type
  unpublish and unstage on the node 4s..2s
  controller unpublish 2s..1s
    operation unpublish/default/pg/n1@1 2s..1s
      call of unpublish/default/pg/n1@1 2s..1s
`
	if diff := cmp.Diff(want, tree(k.spans)); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
	whole := named(t, k.spans, "unmount data")
	if len(whole.Links) != 1 || whole.Links[0].SpanContext.SpanID().String() != "b7ad6b7169203331" || whole.SpanContext.TraceID() == whole.Links[0].SpanContext.TraceID() {
		t.Errorf("links %+v of trace %s", whole.Links, whole.SpanContext.TraceID())
	}
	for _, s := range k.spans {
		if s.SpanContext.TraceID() != whole.SpanContext.TraceID() {
			t.Errorf("span %s is of another trace", s.Name)
		}
	}
}

func TestAnUnmountOnEvidenceClaimsNoStepOfTheNode(t *testing.T) {
	t.Parallel()
	var k kept
	followCommits(t, mounting, &k, &bytes.Buffer{}, reaches("node-published 5s"), func(tx *state.Tx) {
		a := *tx.Allocation("a1")
		a.Running = parse("5s")
		tx.PutAllocation(&a)
		at := *tx.Attachment("a1", "data")
		at.Status.State = api.Freed
		at.Status.Steps = append(append([]api.AttachmentStep{}, at.Status.Steps...),
			api.AttachmentStep{State: api.Unpublishing, Time: parse("2s")},
			api.AttachmentStep{State: api.NodeDetached, Time: parse("2s"), Skipped: true, Evidence: &api.Evidence{Kind: api.EvidenceOperator, Reason: "unplugged"}},
			api.AttachmentStep{State: api.ControllerDetached, Time: parse("2s"), Skipped: true},
			api.AttachmentStep{State: api.Freed, Time: statetest.Now()})
		tx.PutAttachment(&at)
	})
	if diff := cmp.Diff("unmount data 2s..0s\n", tree(k.spans)); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
}

func named(t *testing.T, spans tracetest.SpanStubs, name string) tracetest.SpanStub {
	t.Helper()
	for _, s := range spans {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("no span %q among:\n%s", name, tree(spans))
	return tracetest.SpanStub{}
}
