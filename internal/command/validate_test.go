package command_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/state/statetest"
)

const secretHash = "676b8bb84ce7267dd520deca4811c8f10a53e636352f06987f42fe425acedd80"

func TestValidateNamesEveryProblem(t *testing.T) {
	t.Parallel()
	report := func(f api.Facts) command.Command {
		return &command.ReportFacts{Report: api.Report{NodeID: "n1", Sequence: 1, Facts: f}}
	}
	for name, c := range map[string]struct {
		cmd  command.Command
		want []string
	}{
		"cluster":            {&command.InitCluster{}, []string{"cluster_id is empty", "feature_level is 0"}},
		"generation":         {&command.BeginGeneration{}, []string{"number is 0", "reason is empty"}},
		"registration":       {&command.RegisterNode{}, []string{"node_id is empty", "name is empty", "secret is missing", "session is empty", "boot_id is empty"}},
		"registration names": {&command.RegisterNode{NodeID: "a/b", Name: "-", SecretHash: secretHash, Session: "s", BootID: "b"}, []string{`node_id has the character "/"`, `name begins with "-"`}},
		"node state":         {&command.SetNodeState{State: "gone"}, []string{`state is "gone"`}},
		"detach": {&command.DetachVolume{ID: "pg", By: strings.Repeat("x", 900_000), From: api.DetachFrom{NodeID: api.NodeID(strings.Repeat("n", 257)), AllocID: "../x y"}},
			[]string{"alloc_id is given, and so is node_id", "node_id is 257 bytes long, and may be 256", `alloc_id begins with "."`, "by is 900000 bytes long, and may be 128"}},
		"report": {&command.ReportFacts{}, []string{"node_id is empty", "sequence is 0"}},
		"report of an operation without a code": {
			report(api.Facts{Operations: []api.OperationFact{{ID: "x@1"}}}), []string{"facts.operations has no code for x@1"},
		},
		"report of an instance without a name": {
			report(api.Facts{Instances: []api.InstanceFact{{}, {PluginID: "disk", AllocID: "a/b", InstanceStatus: api.InstanceStatus{Type: api.InstanceNode}}}}),
			[]string{"facts.instances.plugin_id is empty", "facts.instances.type is \"\" for plugin ", "facts.instances.alloc_id has the character \"/\""},
		},
		"report of an allocation in an unknown state": {
			report(api.Facts{Allocations: []api.AllocFact{{ID: "a1"}, {ID: "a2", Status: api.AllocStatus{State: "paused"}}}}),
			[]string{`facts.allocations has the state "" for a1`, `facts.allocations has the state "paused" for a2`},
		},
		"volume":                           {&command.ApplyVolume{}, []string{"namespace is empty", "id is empty", "plugin_id is empty", "capability is missing"}},
		"operation":                        {&command.OpenOperation{OperationKind: api.OperationCreate}, []string{`request does not fit an operation of kind "create"`}},
		"assignment":                       {&command.AssignOperation{}, []string{"limit is 0s"}},
		"job":                              {&command.ApplyJob{}, []string{"namespace is empty", "id is empty", `type is ""`, "group is missing"}},
		"placement":                        {&command.PlaceAllocation{Index: -1}, []string{"index is negative"}},
		"job stop by nobody who can be":    {&command.StopJob{By: strings.Repeat("x", 65)}, []string{"by is longer than 64 bytes"}},
		"restart by nobody who can be":     {&command.RestartAllocation{Task: "*", Number: 1, By: "a\tb"}, []string{"by has characters that cannot be printed"}},
		"eligibility by nobody who can be": {&command.SetEligibility{By: " a"}, []string{"by begins or ends with a space"}},
		"undrain by nobody who can be":     {&command.StopDrain{By: "\xff"}, []string{"by has characters that cannot be printed"}},
		"stop":                             {&command.StopAllocation{}, []string{"reason is empty"}},
		"advance":                          {&command.AdvanceAttachment{To: "gone"}, []string{`to is "gone"`}},
		"collection":                       {&command.Collect{}, []string{"before is missing"}},
		"good report":                      {report(api.Facts{Allocations: []api.AllocFact{{ID: "a1", Status: api.AllocStatus{State: api.AllocRunning}}}}), nil},
		"good stop":                        {&command.StopAllocation{Reason: "the job was stopped"}, nil},
		"good advance": {
			&command.AdvanceAttachment{To: api.Freed}, nil,
		},
		"good collection": {&command.Collect{Before: time.Unix(1, 0)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			if err := c.cmd.Validate(); err != nil {
				e, ok := err.(*api.Error) //nolint:errorlint // it is the type that Validate promises
				if !ok || e.Code != api.CodeInvalid {
					t.Fatalf("Validate = %v, want an error with the code invalid", err)
				}
				for _, f := range e.Fields {
					got = append(got, f.Path+" "+f.Message)
					if f.Mend == "" {
						t.Errorf("%s %s has no mend", f.Path, f.Message)
					}
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("problems differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEveryKindOfOperationHasItsRequest(t *testing.T) {
	t.Parallel()
	requests := map[api.OperationKind]api.OperationRequest{
		api.OperationCreate:    {Create: &api.CreateRequest{}},
		api.OperationDelete:    {Delete: &api.DeleteRequest{}},
		api.OperationPublish:   {Publish: &api.PublishRequest{}},
		api.OperationUnpublish: {Unpublish: &api.UnpublishRequest{}},
	}
	for kind := range requests {
		for of, r := range requests {
			err := (&command.OpenOperation{OperationKind: kind, Request: r}).Validate()
			if fits := kind == of; (err == nil) != fits {
				t.Errorf("%s with the request of %s: error = %v", kind, of, err)
			}
		}
	}
}

func TestPlanNamesTheProblemsOfAllItsCommands(t *testing.T) {
	t.Parallel()
	plan := command.Plan{
		&command.StopAllocation{}, &command.StopJob{}, &command.Collect{},
		&command.ConfirmGeneration{}, &command.DeleteVolume{}, &command.ForgetVolume{},
		&command.CancelOperation{}, &command.SettleJob{}, &command.ForgetPublication{}, &command.StabilizeJob{},
	}
	const want = "the request has 2 problems\n  reason is empty; say why\n  before is missing; say up to when"
	if err := plan.Validate(); err == nil || err.Error() != want {
		t.Errorf("Validate = %v, want:\n%s", err, want)
	}
	if err := (command.Plan{&command.StopJob{}}).Validate(); err != nil {
		t.Errorf("Validate = %v, want nil", err)
	}
}

func TestNewKnowsEveryKindAndNoOther(t *testing.T) {
	t.Parallel()
	for _, kind := range command.Kinds() {
		if c := command.New(kind); c == nil || c.Kind() != kind {
			t.Errorf("New(%s) = %+v, want a command of that kind", kind, c)
		}
	}
	if c := command.New("moon.land"); c != nil {
		t.Errorf("New(moon.land) = %+v, want nil", c)
	}
}

func TestKindsWaitForTheFeatureLevel(t *testing.T) {
	t.Parallel()
	codec := command.NewCodec()
	without, with := statetest.Load(t, "").View(), statetest.Load(t, "cluster {}").View()
	for _, kind := range command.Kinds() {
		plan := command.Plan{command.New(kind)}
		if err := codec.Allowed(plan, with); err != nil {
			t.Errorf("%s at feature level 1: %v", kind, err)
		}
		err := codec.Allowed(plan, without)
		if first := kind == "cluster.init"; (err == nil) != first {
			t.Errorf("%s before the cluster has a feature level: error = %v", kind, err)
		} else if !first && api.CodeOf(err) != api.CodeUnavailable {
			t.Errorf("%s before the cluster has a feature level: code %s, want unavailable", kind, api.CodeOf(err))
		}
	}
}
