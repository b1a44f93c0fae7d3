package command

import (
	"maps"
	"slices"
	"time"

	"github.com/berth-dev/berth/api"
)

// What an agent reports again unchanged is not written again. Times compare
// with Equal: one that came through JSON has no monotonic part.

func sameProblem(a, b *api.Problem) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Step == b.Step && a.Code == b.Code && a.Message == b.Message &&
		a.Since.Equal(b.Since) && a.Next.Equal(b.Next)
}

func sameAlloc(a, b *api.AllocStatus) bool {
	return a.State == b.State && sameProblem(a.Problem, b.Problem) && a.Ended.Equal(b.Ended) &&
		maps.EqualFunc(a.Tasks, b.Tasks, sameTask) && slices.EqualFunc(a.Events, b.Events, sameTaskEvent) &&
		slices.EqualFunc(a.Checks, b.Checks, sameCheck)
}

func sameCheck(a, b api.CheckStatus) bool {
	since := a.Since.Equal(b.Since)
	a.Since, b.Since = time.Time{}, time.Time{}
	return since && a == b
}

func sameTaskEvent(a, b api.TaskEvent) bool {
	return a.Task == b.Task && a.Message == b.Message && a.Time.Equal(b.Time)
}

func sameTask(x, y api.TaskStatus) bool {
	times := func(t *api.TaskStatus) []*time.Time {
		return []*time.Time{&t.Started, &t.Ended, &t.Next, &t.Since, &t.Last.Ended}
	}
	others := times(&y)
	for i, at := range times(&x) {
		if !at.Equal(*others[i]) {
			return false
		}
		*at, *others[i] = time.Time{}, time.Time{}
	}
	return x == y
}

func sameInstance(a, b *api.InstanceStatus) bool {
	return a.Type == b.Type && a.Healthy == b.Healthy && a.Reason == b.Reason &&
		a.Driver == b.Driver && a.VendorVersion == b.VendorVersion &&
		a.ExternalNodeID == b.ExternalNodeID && a.MaxVolumes == b.MaxVolumes &&
		slices.Equal(a.PluginCapabilities, b.PluginCapabilities) &&
		slices.Equal(a.ControllerCapabilities, b.ControllerCapabilities) &&
		slices.Equal(a.NodeCapabilities, b.NodeCapabilities) &&
		maps.Equal(a.Topology, b.Topology)
}
