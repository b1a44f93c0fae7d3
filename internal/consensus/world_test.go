package consensus_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/state"
)

// rows is everything in a view, by table and in key order, without what a fork
// cannot know: log indexes, and where the log and the assignments stand.
func rows(tb testing.TB, v state.View) map[string][]map[string]any {
	tb.Helper()
	z, err := zstd.NewReader(bytes.NewReader(saved(tb, v)), zstd.WithDecoderConcurrency(1))
	if err != nil {
		tb.Fatal(err)
	}
	defer z.Close()
	all := map[string][]map[string]any{}
	scan := bufio.NewScanner(z)
	scan.Buffer(nil, 64<<20)
	for scan.Scan() {
		var line struct {
			Table string         `json:"table"`
			Row   map[string]any `json:"row"`
		}
		if err := json.Unmarshal(scan.Bytes(), &line); err != nil {
			tb.Fatal(err)
		}
		switch line.Table {
		case "", "log", "indexes", "assignments":
			continue
		}
		delete(line.Row, "create_index")
		delete(line.Row, "modify_index")
		all[line.Table] = append(all[line.Table], line.Row)
	}
	if err := scan.Err(); err != nil {
		tb.Fatal(err)
	}
	return all
}

// volume is a command that makes the n-th volume.
func volume(n int64) *command.ApplyVolume {
	return &command.ApplyVolume{
		Namespace: api.DefaultNamespace,
		ID:        api.VolumeID(fmt.Sprintf("volume-%d", n)),
		UID:       fmt.Sprintf("%032x", n),
		Spec: api.VolumeSpec{
			PluginID:     "local",
			CapacityMin:  1 << 30,
			Capabilities: []api.Capability{{AccessMode: api.SingleNodeWriter, AttachmentMode: api.FileSystem}},
			MountOptions: &api.MountOptions{FSType: "ext4"},
		},
	}
}

// take is a command that takes a volume: it opens the operation to create it.
func take(v *api.Volume) *command.OpenOperation {
	return &command.OpenOperation{
		OperationKind: api.OperationCreate,
		Namespace:     v.Namespace, VolumeID: v.ID, PluginID: v.Spec.PluginID,
		Version: v.Version,
		Request: api.OperationRequest{Create: &api.CreateRequest{Name: v.UID, Capabilities: v.Spec.Capabilities}},
	}
}

// job is a command that sets a job, which is a register, to a value.
func job(id api.JobID, value int) *command.ApplyJob {
	return &command.ApplyJob{
		Namespace: api.DefaultNamespace, ID: id, UID: string(id),
		Spec: api.JobSpec{Type: api.JobService, Groups: []api.TaskGroup{{
			Name: "group", Count: 2,
			Tasks: []api.Task{{Name: "task", Driver: "exec", Env: map[string]string{"value": strconv.Itoa(value)}}},
		}}},
	}
}

// valueOf is the value of a job.
func valueOf(spec *api.JobSpec) int {
	n, err := strconv.Atoi(spec.Groups[0].Tasks[0].Env["value"])
	if err != nil {
		return -1
	}
	return n
}

// register is a command that begins a node's session.
func register(n int) *command.RegisterNode {
	return &command.RegisterNode{
		NodeID: api.NodeID(fmt.Sprintf("node-%d", n)), Name: fmt.Sprintf("node-%d", n),
		SecretHash: fmt.Sprintf("%064d", n), Session: "session", BootID: "boot", Version: "test",
	}
}

// report is a command with the sequence-th report of a node: its plugin is
// healthy in every other one.
func report(n int, sequence uint64) *command.ReportFacts {
	return &command.ReportFacts{Report: api.Report{
		NodeID: api.NodeID(fmt.Sprintf("node-%d", n)), Session: "session", Epoch: 1, Sequence: sequence,
		Facts: api.Facts{Instances: []api.InstanceFact{{
			PluginID:       "local",
			InstanceStatus: api.InstanceStatus{Type: api.InstanceNode, Healthy: sequence%2 == 0},
		}}},
	}}
}
