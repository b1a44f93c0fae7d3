package fit_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/fit"
)

// hold is one way to use a volume.
type hold struct {
	mode     api.AccessMode
	readOnly bool
}

func (h hold) String() string {
	if h.readOnly {
		return string(h.mode) + " ro"
	}
	return string(h.mode) + " rw"
}

// ways are all ways in which a volume may be used; the modes for readers
// demand read-only.
func ways() []hold {
	var all []hold
	for _, mode := range api.AccessModes() {
		if mode != api.SingleNodeReaderOnly && mode != api.MultiNodeReaderOnly {
			all = append(all, hold{mode, false})
		}
		all = append(all, hold{mode, true})
	}
	return all
}

func (h hold) on(node api.NodeID) *api.Attachment {
	return &api.Attachment{
		AllocID: "0123456789abcdef", JobID: "db", NodeID: node, VolumeID: "pg", PluginID: "ebs",
		AccessMode: h.mode, ReadOnly: h.readOnly, AttachmentMode: api.FileSystem,
	}
}

// tells is an instance of a plugin that tells one writer on a node from many.
var tells = &api.Instance{PluginID: "ebs", NodeID: "n1", InstanceStatus: api.InstanceStatus{
	Driver: "ebs.example", NodeCapabilities: []string{api.CapStageUnstage, api.CapSingleNodeMultiWrite},
}}

// TestHoldsThatGoTogether compares who may hold a volume beside whom with a
// table: anywhere, on the same node, or never.
func TestHoldsThatGoTogether(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	fmt.Fprintf(&b, "%-31s", "")
	for i := range ways() {
		fmt.Fprintf(&b, "%3d ", i+1)
	}
	b.WriteString("\n")
	for i, want := range ways() {
		fmt.Fprintf(&b, "%2d %-28s", i+1, want)
		for _, held := range ways() {
			same := fit.Hold(want.on("n1"), []*api.Attachment{held.on("n1")}, tells)
			other := fit.Hold(want.on("n1"), []*api.Attachment{held.on("n2")}, tells)
			switch {
			case same == "" && other == "":
				b.WriteString("any ")
			case same == "":
				b.WriteString(" 1  ")
			case other == "":
				t.Errorf("%s beside %s: refused on the same node and allowed on another", want, held)
			default:
				b.WriteString(" -  ")
			}
		}
		b.WriteString("\n")
	}
	table := strings.ReplaceAll(strings.ReplaceAll(b.String(), " \n", "\n"), " \n", "\n")
	golden(t, "testdata/hold.txt", table)
}

func TestHoldIsTheSameBothWays(t *testing.T) {
	t.Parallel()
	for _, a := range ways() {
		for _, b := range ways() {
			for _, node := range []api.NodeID{"n1", "n2"} {
				one := fit.Hold(a.on("n1"), []*api.Attachment{b.on(node)}, tells) == ""
				two := fit.Hold(b.on(node), []*api.Attachment{a.on("n1")}, tells) == ""
				if one != two {
					t.Errorf("%s beside %s: allowed %v, the other way round %v", a, b, one, two)
				}
			}
		}
	}
}

func TestHoldNamesTheHolderAndTheReason(t *testing.T) {
	t.Parallel()
	writer, shared, far := hold{api.SingleNodeWriter, false}, hold{api.SingleNodeMultiWriter, false}, hold{api.MultiNodeSingleWriter, false}
	device := writer.on("n1")
	device.AttachmentMode = api.BlockDevice
	for name, c := range map[string]struct {
		want    *api.Attachment
		holders []*api.Attachment
		reason  string
	}{
		"nobody":        {writer.on("n1"), nil, ""},
		"two writers":   {writer.on("n1"), []*api.Attachment{writer.on("n1")}, "allocation 01234567 of job db on node n1 holds it, and access mode single-node-writer allows one allocation"},
		"two nodes":     {shared.on("n1"), []*api.Attachment{shared.on("n2")}, "allocation 01234567 of job db on node n2 holds it, and access mode single-node-multi-writer allows one node"},
		"second holder": {far.on("n1"), []*api.Attachment{hold{api.MultiNodeSingleWriter, true}.on("n1"), far.on("n1")}, "allocation 01234567 of job db on node n1 holds it for writing, and access mode multi-node-single-writer allows one writer"},
		"single writer": {shared.on("n1"), []*api.Attachment{hold{api.SingleNodeSingleWriter, true}.on("n1")}, "allocation 01234567 of job db on node n1 holds it, and access mode single-node-single-writer allows one allocation"},
		"readers":       {hold{api.MultiNodeMultiWriter, false}.on("n1"), []*api.Attachment{hold{api.MultiNodeReaderOnly, true}.on("n2")}, "allocation 01234567 of job db on node n2 holds it, and access mode multi-node-reader-only allows readers only"},
		"other kind":    {writer.on("n1"), []*api.Attachment{device}, "allocation 01234567 of job db on node n1 holds it as block-device, and this request is for a file-system"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := fit.Hold(c.want, c.holders, tells); got != c.reason {
				t.Errorf("reason = %q\n want %q", got, c.reason)
			}
		})
	}
}

// Without SINGLE_NODE_MULTI_WRITER a plugin hears SINGLE_NODE_WRITER for
// single-node-multi-writer, and refuses a second target path.
func TestHoldIsForOneWhereThePluginDoesNotTellWriters(t *testing.T) {
	t.Parallel()
	many, readers := hold{api.SingleNodeMultiWriter, false}, hold{api.SingleNodeMultiWriter, true}
	lacks := &api.Instance{PluginID: "ebs", NodeID: "n1", InstanceStatus: api.InstanceStatus{Driver: "ebs.example", NodeCapabilities: []string{api.CapStageUnstage}}}
	const alone = "allocation 01234567 of job db on node n1 holds it, and plugin ebs on node n1 lacks SINGLE_NODE_MULTI_WRITER, " +
		"without which access mode single-node-multi-writer allows one allocation"
	for name, c := range map[string]struct {
		want, held hold
		on         *api.Instance
		reason     string
	}{
		"tells":          {many, many, tells, ""},
		"lacks":          {many, many, lacks, alone},
		"readers":        {readers, readers, lacks, alone},
		"other mode":     {hold{api.MultiNodeMultiWriter, false}, many, lacks, alone},
		"for many nodes": {hold{api.MultiNodeMultiWriter, false}, hold{api.MultiNodeMultiWriter, false}, lacks, ""},
		"not there":      {many, many, nil, strings.Replace(alone, "lacks", "has not said yet that it has", 1)},
		"silent":         {many, many, &api.Instance{PluginID: "ebs", NodeID: "n1"}, strings.Replace(alone, "lacks", "has not said yet that it has", 1)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := fit.Hold(c.want.on("n1"), []*api.Attachment{c.held.on("n1")}, c.on); got != c.reason {
				t.Errorf("reason = %q\n want %q", got, c.reason)
			}
			if got := fit.Hold(c.want.on("n1"), nil, c.on); got != "" {
				t.Errorf("beside nobody: %q", got)
			}
		})
	}
}
