package fit

import (
	"fmt"

	"github.com/berth-dev/berth/api"
)

// Hold says why a new attachment cannot hold a volume beside those that hold
// it now, or "" if it can (CSI spec, VolumeCapability.AccessMode).
func Hold(want *api.Attachment, holders []*api.Attachment) string {
	for _, h := range holders {
		if reason := beside(want, h); reason != "" {
			return reason
		}
	}
	return ""
}

func beside(want, h *api.Attachment) string {
	if want.AttachmentMode != h.AttachmentMode {
		return holds(h, fmt.Sprintf("as %s, and this request is for a %s", h.AttachmentMode, want.AttachmentMode))
	}
	switch mode := stricter(want.AccessMode, h.AccessMode); mode {
	case api.SingleNodeSingleWriter:
		return holds(h, "and its access mode allows one allocation")
	case api.SingleNodeWriter:
		if want.NodeID != h.NodeID {
			return holds(h, "and its access mode allows one node")
		}
		if want.Writes() && h.Writes() {
			return holds(h, "for writing, and its access mode allows one writer")
		}
	case api.SingleNodeReaderOnly, api.SingleNodeMultiWriter:
		if want.NodeID != h.NodeID {
			return holds(h, "and its access mode allows one node")
		}
	case api.MultiNodeReaderOnly:
		if want.Writes() || h.Writes() {
			return holds(h, "and its access mode allows readers only")
		}
	case api.MultiNodeSingleWriter:
		if want.Writes() && h.Writes() {
			return holds(h, "for writing, and its access mode allows one writer")
		}
	case api.MultiNodeMultiWriter:
	}
	return ""
}

func holds(h *api.Attachment, why string) string {
	return fmt.Sprintf("allocation %s of job %s on node %s holds it %s", h.AllocID.Short(), h.JobID, h.NodeID, why)
}

// stricter is the one of two access modes that allows less; what is in use
// together must satisfy both.
func stricter(a, b api.AccessMode) api.AccessMode {
	for _, mode := range []api.AccessMode{
		api.SingleNodeSingleWriter, api.SingleNodeWriter, api.SingleNodeReaderOnly,
		api.SingleNodeMultiWriter, api.MultiNodeReaderOnly, api.MultiNodeSingleWriter,
	} {
		if a == mode || b == mode {
			return mode
		}
	}
	return api.MultiNodeMultiWriter
}
