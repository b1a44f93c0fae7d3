package fit

import (
	"fmt"
	"slices"

	"github.com/berth-dev/berth/api"
)

// Hold says why a new attachment cannot hold a volume beside those that hold
// it now, or "" if it can (CSI spec, VolumeCapability.AccessMode). What a mode
// allows rests on what the plugin makes of it: on is its instance that serves
// the node of the new attachment, or nil if there is none.
func Hold(want *api.Attachment, holders []*api.Attachment, on *api.Instance) string {
	for _, h := range holders {
		if reason := beside(want, h); reason != "" {
			return holds(h) + reason
		}
		if reason := oneTarget(want, h, on); reason != "" {
			return holds(h) + reason
		}
	}
	return crowd(want, holders)
}

// oneTarget says why a plugin does not publish a volume a second time on a node.
// One without SINGLE_NODE_MULTI_WRITER hears SINGLE_NODE_WRITER for
// single-node-multi-writer, with which it is to refuse a second target path
// (CSI spec, NodePublishVolume, second publish).
func oneTarget(want, h *api.Attachment, on *api.Instance) string {
	if want.AccessMode != api.SingleNodeMultiWriter && h.AccessMode != api.SingleNodeMultiWriter {
		return ""
	}
	lacks := "lacks"
	switch {
	case on == nil || on.Driver == "":
		lacks = "has not said yet that it has"
	case slices.Contains(on.NodeCapabilities, api.CapSingleNodeMultiWrite):
		return ""
	}
	return fmt.Sprintf(", and plugin %s on node %s %s %s, without which access mode %s allows one allocation",
		want.PluginID, want.NodeID, lacks, api.CapSingleNodeMultiWrite, api.SingleNodeMultiWriter)
}

// holds names a holder.
func holds(h *api.Attachment) string {
	return fmt.Sprintf("allocation %s of job %s on node %s holds it", h.AllocID.Short(), h.JobID, h.NodeID)
}

// crowd finds a second writer where a third holder has an access mode that
// allows one: that is not seen by looking at two of them.
func crowd(want *api.Attachment, holders []*api.Attachment) string {
	var one, writer *api.Attachment
	if want.AccessMode == api.MultiNodeSingleWriter {
		one = want
	}
	if want.Writes() {
		writer = want
	}
	for _, h := range holders {
		if h.AccessMode == api.MultiNodeSingleWriter {
			one = h
		}
	}
	for _, h := range holders {
		switch {
		case one == nil || !h.Writes():
		case writer != nil:
			return fmt.Sprintf("%s for writing, and access mode %s allows one writer", holds(h), one.AccessMode)
		default:
			writer = h
		}
	}
	return ""
}

// beside says why two attachments cannot hold one volume together: it must be
// allowed by the access modes of both. None of them allows less than another
// in every way, so there is no stricter one to ask.
func beside(want, h *api.Attachment) string {
	if want.AttachmentMode != h.AttachmentMode {
		return fmt.Sprintf(" as %s, and this request is for a %s", h.AttachmentMode, want.AttachmentMode)
	}
	for _, mode := range []api.AccessMode{want.AccessMode, h.AccessMode} {
		if reason := forbids(mode, want, h); reason != "" {
			return reason
		}
	}
	return ""
}

// forbids says why an access mode does not allow two attachments of one
// volume. A publication is made with the access mode of whoever came first, so
// a mode for readers allows no writer, not even on the same node.
func forbids(mode api.AccessMode, want, h *api.Attachment) string {
	if mode.Exclusive() {
		return fmt.Sprintf(", and access mode %s allows one allocation", mode)
	}
	var oneNode, readers, oneWriter bool
	switch mode {
	case api.SingleNodeWriter, api.SingleNodeReaderOnly, api.SingleNodeSingleWriter: // exclusive
	case api.SingleNodeMultiWriter:
		oneNode = true
	case api.MultiNodeReaderOnly:
		readers = true
	case api.MultiNodeSingleWriter:
		oneWriter = true
	case api.MultiNodeMultiWriter:
	}
	switch {
	case oneNode && want.NodeID != h.NodeID:
		return fmt.Sprintf(", and access mode %s allows one node", mode)
	case readers && (want.Writes() || h.Writes()):
		return fmt.Sprintf(", and access mode %s allows readers only", mode)
	case oneWriter && want.Writes() && h.Writes():
		return fmt.Sprintf(" for writing, and access mode %s allows one writer", mode)
	}
	return ""
}
