package cli_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/cli"
)

// long are names as providers and people give them.
const (
	longNode  = "ip-10-21-33-7-eu-1-9f31c2aa"
	longID    = "orders-primary-data[12]"
	longAlloc = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"
)

// longWorld is what lists answer where names are long.
func longWorld() map[string]any {
	meta := api.Meta{Version: 2, CreateTime: daysAgo(), ModifyTime: daysAgo()}
	return map[string]any{
		"GET /v1/volumes": []*api.Volume{{
			Meta: meta, Namespace: "default", ID: longID, Desired: api.Present,
			Spec: api.VolumeSpec{PluginID: "csi.hetzner.cloud"}, Status: api.VolumeStatus{State: api.VolumeCreating, Capacity: 10 << 30},
		}},
		"GET /v1/volume/default/orders": api.VolumeInfo{
			Volume: &api.Volume{Meta: meta, Namespace: "default", ID: "orders", Desired: api.Present, Status: api.VolumeStatus{State: api.VolumeReady}},
			Attachments: []*api.Attachment{{
				Meta: meta, AllocID: longAlloc, Name: "data", Namespace: "default", VolumeID: "orders", NodeID: longNode, JobID: "orders-primary",
				AccessMode: api.SingleNodeMultiWriter, AttachmentMode: api.FileSystem, Status: api.AttachmentStatus{State: api.NodePublished, TargetPath: "/var/lib/berth/csi/mount/data-35a5ae8f59f5"},
			}},
			Publications: []*api.Publication{{NodeID: longNode, Status: api.PublicationStatus{Outcome: api.OutcomePublished, ExternalNodeID: longNode}}},
		},
		"GET /v1/volume/default/orders/usage": []api.VolumeUsage{
			{NodeID: longNode, Bytes: &api.Usage{Total: 1023 << 30, Used: 1022<<30 + 1<<29, Available: 1 << 29}, Inodes: &api.Usage{Total: 10_000_000, Used: 5, Available: 9_999_995}, Condition: &api.VolumeCondition{Abnormal: true, Message: "it smokes"}},
		},
		"GET /v1/jobs": []api.JobInfo{{
			Job:   &api.Job{Meta: meta, Namespace: "default", ID: "orders-primary", Revision: 1234, Spec: api.JobSpec{Type: api.JobService}},
			State: api.JobStopping,
		}},
		"GET /v1/allocations": []*api.Allocation{{
			Meta: meta, ID: longAlloc, Namespace: "default", JobID: "orders-primary", Group: "database", Index: 12, NodeID: longNode,
			Desired: api.DesireRun, Status: api.AllocStatus{State: api.AllocRunning},
		}},
		"GET /v1/nodes": []*api.Node{{
			Meta: meta, ID: longNode, Name: "ip", Status: api.NodeStatus{State: api.NodeReady, Epoch: 1234567, Version: "1.2.3-rc.1+build", Drivers: map[string]api.Driver{
				"docker": {Healthy: true}, "exec": {Healthy: true}, "raw_exec": {Healthy: true},
			}},
		}},
		"GET /v1/attachments": []*api.Attachment{{
			Meta: meta, AllocID: longAlloc, Name: "data", Namespace: "default", VolumeID: longID, PluginID: "disk", NodeID: longNode, JobID: "orders-primary",
			AccessMode: api.SingleNodeMultiWriter, AttachmentMode: api.BlockDevice,
			Status: api.AttachmentStatus{State: api.ControllerPublished},
		}},
		"GET /v1/status": api.Status{Waits: []api.Wait{{
			Subject: "attachment " + longAlloc[:8] + "/data", Reason: "the provider says that the machine has as many volumes as it may have",
		}}},
		"GET /v1/plugins": []*api.Plugin{{
			ID: "csi.hetzner.cloud", Driver: "csi.hetzner.cloud", VendorVersions: []string{"v2.11.0", "v2.10.3"}, ControllersHealthy: 1, ControllersExpected: 1, NodesHealthy: 120, NodesExpected: 120,
		}},
		"GET /v1/services": []api.ServiceInfo{{Namespace: "default", Name: "orders-primary-postgres", Instances: []api.ServiceInstance{{}}}},
		"GET /v1/service/orders": api.ServiceInfo{Namespace: "default", Name: "orders", Instances: []api.ServiceInstance{{
			Address: "10.21.33.7", Port: 25432, JobID: "orders-primary", AllocID: longAlloc, NodeID: longNode, Status: api.CheckPassing, Healthy: true, Tags: []string{"primary", "europe"},
		}}},
	}
}

// TestTablesOfAVolumeAreAsWideAsTheTerminal: who holds it, where it is and how full
// it is.
func TestTablesOfAVolumeAreAsWideAsTheTerminal(t *testing.T) {
	t.Parallel()
	f := newFake(t, longWorld())
	for _, limit := range []int{40, 60, 80, 120} {
		got := runWith(t, cli.Env{Columns: func() int { return limit }}, f.URL, "volume", "status", "orders")
		for _, title := range []string{"Held by", "On nodes", "Usage"} {
			_, below, found := strings.Cut(got.stdout, "\n"+title+"\n")
			table, _, _ := strings.Cut(below, "\n\n")
			if !found || strings.Count(strings.TrimSpace(table), "\n") != 1 {
				t.Errorf("%d columns: there is no table %q of one row in\n%s", limit, title, got.stdout)
			}
			for line := range strings.Lines(table) {
				if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > limit {
					t.Errorf("%q has %d columns in %d:\n%s", title, n, limit, table)
				}
			}
		}
	}
}

// TestTablesAreAsWideAsTheTerminal, and what somebody types again is whole: at
// 40 columns too, which is half a screen or a telephone.
func TestTablesAreAsWideAsTheTerminal(t *testing.T) {
	t.Parallel()
	f := newFake(t, longWorld())
	for command, whole := range map[string][]string{
		"volume list":           {longID},
		"job list":              {"orders-primary"},
		"alloc list":            {longAlloc[:8]},
		"node list":             {longNode},
		"attachment list":       {longID, longAlloc[:8]},
		"plugin list":           {"csi.hetzner.cloud"},
		"service list":          {"orders-primary-postgres"},
		"service status orders": {"10.21.33.7:25432", longAlloc[:8]},
	} {
		for _, limit := range []int{40, 60, 80, 120} {
			got := runWith(t, cli.Env{Columns: func() int { return limit }}, f.URL, strings.Fields(command)...)
			if got.status != 0 {
				t.Fatalf("berth %s: %+v", command, got)
			}
			for line := range strings.Lines(got.stdout) {
				if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > limit {
					t.Errorf("berth %s has %d columns in %d:\n%s", command, n, limit, got.stdout)
					break
				}
			}
			for _, id := range whole {
				if !strings.Contains(got.stdout, id) {
					t.Errorf("berth %s does not show %s in %d columns:\n%s", command, id, limit, got.stdout)
				}
			}
		}
	}
}
