package tracing_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/feed"
	"github.com/berth-dev/berth/internal/server/tracing"
	"github.com/berth-dev/berth/internal/state"
	"github.com/berth-dev/berth/internal/state/statetest"
)

// published is a job's allocation that is about to be heard of as running, with
// two volumes, of which one was attached by the controller.
const published = `
node {"id":"n1","status":{"state":"ready"}}
job {"id":"db","spec":{"groups":[{"count":1}]},"status":{"applied":"now-10s"}}
volume {"id":"pg","create_time":"now-20s","status":{"state":"ready"}}
volume {"id":"ref","status":{"state":"ready"}}
allocation {"id":"a1","job_id":"db","node_id":"n1","create_time":"now-9s"}
attachment {"alloc_id":"a1","name":"data","volume_id":"pg","node_id":"n1","status":{"state":"node-published","steps":[{"state":"claimed","time":"now-9s"},{"state":"controller-published","time":"now-6s"},{"state":"node-published","time":"now-3s"}]}}
attachment {"alloc_id":"a1","name":"ref","volume_id":"ref","node_id":"n1","status":{"state":"node-published","steps":[{"state":"claimed","time":"now-9s"},{"state":"controller-published","time":"now-9s","skipped":true},{"state":"node-published","time":"now-8s"}]}}
operation {"kind":"publish","volume_id":"pg","node_id":"n1","create_time":"now-9s","status":{"state":"succeeded","attempt":2,"executor":"n1","assigned":"now-8s","ended":"now-6s","code":"OK"}}
operation {"kind":"create","volume_id":"pg","create_time":"now-19s","status":{"state":"assigned","attempt":1,"executor":"n1","assigned":"now-18s"}}
`

// tree is the spans of each trace, indented below their parents, with when they
// began and ended before now.
func tree(spans tracetest.SpanStubs) string { return treeBelow(spans, "") }

// treeBelow is the tree of what is below a span that is somebody else's.
func treeBelow(spans tracetest.SpanStubs, above string) string {
	var root trace.SpanID
	if above != "" {
		root, _ = trace.SpanIDFromHex(above) // else nothing is below it
	}
	below := map[trace.SpanID][]tracetest.SpanStub{}
	for _, s := range spans {
		below[s.Parent.SpanID()] = append(below[s.Parent.SpanID()], s)
	}
	var b strings.Builder
	var write func(parent trace.SpanID, indent string)
	write = func(parent trace.SpanID, indent string) {
		list := below[parent]
		slices.SortStableFunc(list, func(x, y tracetest.SpanStub) int { return x.StartTime.Compare(y.StartTime) })
		for _, s := range list {
			ago := func(t time.Time) string { return statetest.Now().Sub(t).String() }
			fmt.Fprintf(&b, "%s%s %s..%s %s\n", indent, s.Name, ago(s.StartTime), ago(s.EndTime), s.Status.Description)
			write(s.SpanContext.SpanID(), indent+"  ")
		}
	}
	write(root, "")
	return strings.ReplaceAll(b.String(), " \n", "\n")
}

// follow commits changes to the world, and answers the spans that were made.
func follow(t *testing.T, exporter sdk.SpanExporter, log *bytes.Buffer, changes ...func(*api.Allocation, *api.Operation)) {
	t.Helper()
	followIn(t, published, exporter, log, changes...)
}

func followIn(t *testing.T, world string, exporter sdk.SpanExporter, log *bytes.Buffer, changes ...func(*api.Allocation, *api.Operation)) {
	t.Helper()
	commits := make([]func(*state.Tx), len(changes))
	for i, change := range changes {
		commits[i] = func(tx *state.Tx) {
			alloc, op := *tx.Allocation("a1"), *tx.Operation(api.NewOperationID("create/default/pg", 1))
			change(&alloc, &op)
			tx.PutAllocation(&alloc)
			tx.PutOperation(&op)
		}
	}
	followCommits(t, world, exporter, log, commits...)
}

func followCommits(t *testing.T, world string, exporter sdk.SpanExporter, log *bytes.Buffer, commits ...func(*state.Tx)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store, events := statetest.Load(t, world), feed.New()
		store.Observe(events)
		tracer := tracing.New(exporter, "s1", "test", slog.New(slog.NewTextHandler(log, nil)))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- tracer.Follow(ctx, events, store.View) }()
		synctest.Wait()
		for i, commit := range commits {
			tx := store.Begin(uint64(100+i), statetest.Now())
			commit(tx)
			tx.Commit()
			synctest.Wait()
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Follow: %v", err)
		}
		if err := tracer.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
}

// parse is a time that lies so far back.
func parse(ago string) time.Time {
	d, err := time.ParseDuration(ago)
	if err != nil {
		panic(err)
	}
	return statetest.Now().Add(-d)
}

func runs(a *api.Allocation, _ *api.Operation) {
	a.Status.State, a.Running = api.AllocRunning, statetest.Now()
}

// kept is an exporter that keeps spans when it is shut down, too.
type kept struct{ spans tracetest.SpanStubs }

func (k *kept) ExportSpans(_ context.Context, spans []sdk.ReadOnlySpan) error {
	k.spans = append(k.spans, tracetest.SpanStubsFromReadOnlySpans(spans)...)
	return nil
}

func (*kept) Shutdown(context.Context) error { return nil }

func TestAnApplyIsOneTreeFromTheJobToItsTasks(t *testing.T) {
	t.Parallel()
	var k kept
	follow(t, &k, &bytes.Buffer{}, runs)
	want := `allocation 10s..0s
  place 10s..9s
  volume data 9s..3s
    volume data/controller publish 9s..6s
      operation publish/default/pg/n1@1 9s..6s
        call of publish/default/pg/n1@1 8s..6s
    volume data/stage and publish on the node 6s..3s
  volume ref 9s..8s
    volume ref/stage and publish on the node 9s..8s
  start tasks 3s..0s
`
	if diff := cmp.Diff(want, tree(k.spans)); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
	ids := map[trace.TraceID]bool{}
	for _, s := range k.spans {
		ids[s.SpanContext.TraceID()] = true
	}
	if len(ids) != 1 {
		t.Errorf("%d traces", len(ids))
	}
}

func TestAVolumeIsATraceWithItsCall(t *testing.T) {
	t.Parallel()
	var k kept
	follow(t, &k, &bytes.Buffer{}, func(_ *api.Allocation, op *api.Operation) {
		op.Status.State, op.Status.Ended, op.Status.Code, op.Status.Message = api.OperationFailed, statetest.Now(), "INVALID_ARGUMENT", "no such pool"
	})
	want := `volume create 20s..0s INVALID_ARGUMENT: no such pool
  operation create/default/pg@1 19s..0s INVALID_ARGUMENT: no such pool
    call of create/default/pg@1 18s..0s INVALID_ARGUMENT: no such pool
`
	if diff := cmp.Diff(want, tree(k.spans)); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
}

func TestServersMakeTheSameSpans(t *testing.T) {
	t.Parallel()
	var first, second kept
	follow(t, &first, &bytes.Buffer{}, runs)
	follow(t, &second, &bytes.Buffer{}, runs)
	for i, s := range first.spans {
		if other := second.spans[i]; s.SpanContext.TraceID() != other.SpanContext.TraceID() || s.SpanContext.SpanID() != other.SpanContext.SpanID() {
			t.Errorf("span %s has other ids on another server", s.Name)
		}
	}
}

func TestWhatRunsAlreadyAndWhatRunsAgainIsNoTrace(t *testing.T) {
	t.Parallel()
	var k kept
	follow(t, &k, &bytes.Buffer{},
		func(a *api.Allocation, _ *api.Operation) {
			a.Status.State, a.Running = api.AllocRunning, statetest.Now().Add(-time.Second)
		},
		func(a *api.Allocation, _ *api.Operation) {
			runs(a, nil)
			a.Status.Tasks = map[string]api.TaskStatus{"t": {Restarts: 1}}
		})
	if len(k.spans) > 0 {
		t.Errorf("spans:\n%s", tree(k.spans))
	}
}

// refusing is a collector that takes nothing.
type refusing struct{ kept }

func (*refusing) ExportSpans(context.Context, []sdk.ReadOnlySpan) error {
	return errors.New("it is full")
}

func TestCollectorThatTakesNothingIsNoted(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	follow(t, &refusing{}, &log, runs)
	if !strings.Contains(log.String(), "spans are lost") || !strings.Contains(log.String(), "it is full") {
		t.Errorf("log: %s", log.String())
	}
}

const caller = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-"

// called is the world in which the job's apply had a caller.
func called(flags, more string) string {
	return strings.Replace(published, `"status":{"applied":"now-10s"}`, `"status":{"applied":"now-10s","trace":"`+caller+flags+`"}`, 1) + more
}

func TestWhatAnApplyLeadsToIsBelowItsCaller(t *testing.T) {
	t.Parallel()
	const earlier = `allocation {"id":"a0","job_id":"db","node_id":"n1","create_time":"now-9500ms","replaced":true,"desired":"stop","status":{"state":"complete"}}`
	for name, tc := range map[string]struct {
		world  string
		change func(*api.Allocation, *api.Operation)
		// below is whether the allocation is below the caller, after whether it is
		// linked to it; none of both is no span at all.
		below, after bool
	}{
		"First":       {called("01", ""), runs, true, false},
		"NotSampled":  {called("00", ""), runs, false, false},
		"AfterOne":    {called("01", earlier), runs, false, true},
		"AfterFailed": {called("01", ""), func(a *api.Allocation, op *api.Operation) { runs(a, op); a.Failures = 1 }, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var k kept
			followIn(t, tc.world, &k, &bytes.Buffer{}, tc.change)
			var below, after bool
			for _, s := range k.spans {
				if s.Name != "allocation" {
					continue
				}
				below = s.Parent.SpanID().String() == "b7ad6b7169203331" && s.SpanContext.TraceID() == s.Parent.TraceID()
				after = len(s.Links) == 1 && s.Links[0].SpanContext.SpanID().String() == "b7ad6b7169203331"
			}
			if below != tc.below || after != tc.after || (len(k.spans) > 0) != (tc.below || tc.after) {
				t.Errorf("below %t, after %t, %d spans", below, after, len(k.spans))
			}
		})
	}
}

func TestAVolumesCallIsBelowItsCaller(t *testing.T) {
	t.Parallel()
	var k kept
	followIn(t, published, &k, &bytes.Buffer{}, func(_ *api.Allocation, op *api.Operation) {
		op.Trace = caller + "01"
		op.Status.State, op.Status.Ended, op.Status.Code = api.OperationSucceeded, statetest.Now(), "OK"
	})
	for _, s := range k.spans {
		if s.SpanContext.TraceID().String() != "0af7651916cd43dd8448eb211c80319c" {
			t.Errorf("span %s is of trace %s", s.Name, s.SpanContext.TraceID())
		}
	}
	if len(k.spans) != 3 || k.spans[2].Parent.SpanID().String() != "b7ad6b7169203331" && k.spans[0].Parent.SpanID().String() != "b7ad6b7169203331" {
		t.Errorf("%d spans, and none below the caller's", len(k.spans))
	}
}
