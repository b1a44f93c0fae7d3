package allocrunner

import (
	"reflect"
	"time"

	"github.com/berth-dev/berth/api"
)

// sameWish reports whether two assignments ask the same of the node. They may
// differ in versions and in what the node itself has said.
func sameWish(a, b *api.AllocAssignment) bool {
	x, y := wish(a), wish(b)
	return reflect.DeepEqual(&x, &y)
}

// wish is an assignment without what is not for the node to act on. How far an
// attachment is counts; how an allocation is only if it has ended: then the
// servers have given it up.
func wish(a *api.AllocAssignment) api.AllocAssignment {
	w := *a
	if w.Allocation != nil {
		alloc := *w.Allocation
		if !alloc.Terminal() {
			alloc.Status.State = ""
		}
		alloc.Running, alloc.Passing, alloc.Faltered = time.Time{}, time.Time{}, time.Time{}
		alloc.Meta, alloc.Status = api.Meta{}, api.AllocStatus{State: alloc.Status.State}
		w.Allocation = &alloc
	}
	w.Attachments = make([]api.AttachmentAssignment, len(a.Attachments))
	for i, at := range a.Attachments {
		at.Attachment.Meta = api.Meta{}
		at.Attachment.Status = api.AttachmentStatus{State: at.Attachment.Status.State}
		w.Attachments[i] = at
	}
	return w
}
