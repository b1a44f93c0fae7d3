package statetest

import "github.com/berth-dev/berth/api"

// Hold is one way in which a volume is held.
type Hold struct {
	Node     api.NodeID
	Mode     api.AccessMode
	ReadOnly bool
	// OneTarget says that the plugin lacks SINGLE_NODE_MULTI_WRITER on the node:
	// it is told of SINGLE_NODE_WRITER instead.
	OneTarget bool
}

// HoldOf is how an attachment holds its volume, with a plugin that has all
// capabilities.
func HoldOf(a *api.Attachment) Hold {
	return Hold{Node: a.NodeID, Mode: a.AccessMode, ReadOnly: a.ReadOnly}
}

// Writes reports whether the holder may write.
func (h Hold) Writes() bool {
	return !h.ReadOnly && h.Mode != api.SingleNodeReaderOnly && h.Mode != api.MultiNodeReaderOnly
}

// Excludes says in the words of the specification whether two holds exclude
// each other (CSI spec, VolumeCapability.AccessMode; NodePublishVolume, second
// publish). It knows nothing of the rules of the product.
func (h Hold) Excludes(other Hold) bool {
	oneNode, writers := h.Node == other.Node, 0
	for _, one := range []Hold{h, other} {
		if one.Writes() {
			writers++
		}
	}
	allowed := map[api.AccessMode]bool{
		api.SingleNodeWriter:       false,
		api.SingleNodeReaderOnly:   false,
		api.SingleNodeSingleWriter: false,
		api.SingleNodeMultiWriter:  oneNode && !h.OneTarget && !other.OneTarget,
		api.MultiNodeReaderOnly:    writers == 0,
		api.MultiNodeSingleWriter:  writers < 2,
		api.MultiNodeMultiWriter:   true,
	}
	return !allowed[h.Mode] || !allowed[other.Mode]
}
