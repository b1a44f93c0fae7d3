package httpapi_test

import (
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
)

// TestWarnsThatAPluginSharesNothingOnANode: who asks for several writers on a
// node is told when the plugin makes one of them, and only then.
func TestWarnsThatAPluginSharesNothingOnANode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		defer w.stop()
		ctx := t.Context()
		shared := volume()
		shared.Capabilities = append(shared.Capabilities, api.Capability{AccessMode: api.SingleNodeMultiWriter, AttachmentMode: api.FileSystem})
		pair := job("pg")
		pair.Groups[0].Volumes[0].AccessMode = api.SingleNodeMultiWriter
		check := func(when string, volumeWants, jobWants []api.Field) {
			t.Helper()
			synctest.Wait()
			vol, err := w.ApplyVolume(ctx, "default", "pg", shared, 0)
			if err != nil {
				t.Fatal(err)
			}
			db, err := w.ApplyJob(ctx, "default", "db", pair, 0)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(volumeWants, vol.Warnings) + cmp.Diff(jobWants, db.Warnings); d != "" {
				t.Errorf("%s: warnings (-want +got)\n%s", when, d)
			}
		}
		check("nobody knows the plugin", nil, nil)
		lacks := api.Field{
			Message: "is single-node-multi-writer, and plugin disk lacks SINGLE_NODE_MULTI_WRITER: one allocation at a time gets the volume, and others wait for it",
			Mend:    "use a mode for many nodes, if the volume has one, or mount one volume block in several tasks of a group",
		}
		ofVolume, ofJob := lacks, lacks
		ofVolume.Path, ofJob.Path = "capabilities[1].access_mode", `group["main"].volume["data"].access_mode`
		a := w.join("n1")
		check("the plugin lacks it", []api.Field{ofVolume}, []api.Field{ofJob})
		a.report(api.Facts{Instances: []api.InstanceFact{{PluginID: "disk", InstanceStatus: api.InstanceStatus{
			Type: api.InstanceMonolith, Healthy: true, Driver: "disk.example", NodeCapabilities: []string{api.CapSingleNodeMultiWrite},
		}}}})
		check("the plugin has it", nil, nil)
	})
}
