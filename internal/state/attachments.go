package state

import (
	"iter"

	"github.com/berth-dev/berth/api"
)

const (
	attachmentsHolding = iota + 1
	attachmentsUnsettled
	attachmentsFreed
)

func attachmentsTable() *table[api.Attachment] {
	place := func(b []byte, a *api.Attachment) []byte {
		return appendKey(b, string(a.Namespace), string(a.VolumeID), string(a.NodeID))
	}
	return define[api.Attachment](tableAttachments,
		unique(primary, func(b []byte, a *api.Attachment) []byte { return appendKey(b, string(a.AllocID), a.Name) }),
		shared(attachmentsHolding, func(b []byte, a *api.Attachment) []byte {
			if !a.Holds() {
				return nil
			}
			return place(b, a)
		}),
		shared(attachmentsUnsettled, func(b []byte, a *api.Attachment) []byte {
			if AttachmentSettled(a) {
				return nil
			}
			return place(b, a)
		}),
		shared(attachmentsFreed, func(b []byte, a *api.Attachment) []byte {
			if a.Holds() {
				return nil
			}
			return appendKey(b, timePart(a.ModifyTime))
		}),
	)
}

// AttachmentSettled reports whether the servers have nothing to do for the
// attachment until its agent or its allocation moves.
func AttachmentSettled(a *api.Attachment) bool {
	switch a.Status.State {
	case api.Claimed, api.NodeDetached, api.ControllerDetached:
		return false
	case api.ControllerPublished, api.NodePublished, api.Unpublishing, api.Freed:
		return true
	}
	return true
}

// Attachment is one request of an allocation, or nil.
func (v View) Attachment(alloc api.AllocID, name string) *api.Attachment {
	return first[api.Attachment](v, tableAttachments, primary, key(string(alloc), name))
}

// AllocAttachments yields the attachments of an allocation by name, or all if
// alloc is empty.
func (v View) AllocAttachments(alloc api.AllocID) iter.Seq[*api.Attachment] {
	if alloc == "" {
		return rows[api.Attachment](v, tableAttachments, primary, nil)
	}
	return rows[api.Attachment](v, tableAttachments, primary, key(string(alloc)))
}

// Holders yields the attachments that hold a volume, by node.
func (v View) Holders(ns api.NamespaceID, vol api.VolumeID) iter.Seq[*api.Attachment] {
	return rows[api.Attachment](v, tableAttachments, attachmentsHolding, key(string(ns), string(vol)))
}

// NodeHolders yields the attachments that hold a volume on one node.
func (v View) NodeHolders(ns api.NamespaceID, vol api.VolumeID, node api.NodeID) iter.Seq[*api.Attachment] {
	return rows[api.Attachment](v, tableAttachments, attachmentsHolding, key(string(ns), string(vol), string(node)))
}

// UnsettledAttachments yields the attachments that wait for the servers, those
// of one publication together.
func (v View) UnsettledAttachments() iter.Seq[*api.Attachment] {
	return rows[api.Attachment](v, tableAttachments, attachmentsUnsettled, nil)
}

// FreedAttachments yields the attachments that are history, oldest first.
func (v View) FreedAttachments() iter.Seq[*api.Attachment] {
	return rows[api.Attachment](v, tableAttachments, attachmentsFreed, nil)
}

// AttachmentsIndex is when an attachment was last written.
func (v View) AttachmentsIndex() uint64 { return v.modified(tableAttachments) }

// PutAttachment stores a new attachment, or a changed copy.
func (tx *Tx) PutAttachment(a *api.Attachment) { put(tx, tableAttachments, a) }

// DeleteAttachment removes an attachment that is there.
func (tx *Tx) DeleteAttachment(a *api.Attachment) { remove(tx, tableAttachments, a) }
