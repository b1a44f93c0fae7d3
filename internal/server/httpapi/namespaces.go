package httpapi

import (
	"bytes"
	"iter"
	"strings"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/state"
)

// namespaces are computed from what names them: there are no rows of them.
func namespaces() listing[api.NamespaceInfo] {
	return listing[api.NamespaceInfo]{
		modified: func(v state.View) uint64 {
			return max(v.VolumesIndex(), v.JobsIndex(), v.SnapshotsIndex(), v.VariablesIndex())
		},
		rows: func(v state.View, s scope) iter.Seq2[state.Key, api.NamespaceInfo] {
			return func(yield func(state.Key, api.NamespaceInfo) bool) {
				for lower := later(s.from, state.Key(s.prefix)); ; {
					ns, found := namespaceFrom(v, lower)
					if !found || !strings.HasPrefix(string(ns), s.prefix) || !yield(state.Key(ns), namespaceInfo(v, ns)) {
						return
					}
					lower = after(string(ns))
				}
			}
		},
	}
}

func later(a, b state.Key) state.Key {
	if bytes.Compare(a, b) < 0 {
		return b
	}
	return a
}

// namespaceFrom is the first namespace from a key on. The default one is always
// there: what names none goes there.
func namespaceFrom(v state.View, lower state.Key) (first api.NamespaceID, found bool) {
	least := func(ns string, there bool) {
		if there && (!found || ns < string(first)) {
			first, found = api.NamespaceID(ns), true
		}
	}
	least(firstPart(v, state.Volumes(), lower))
	least(firstPart(v, state.Jobs(), lower))
	least(firstPart(v, state.Snapshots(), lower))
	least(firstPart(v, state.Variables(), lower))
	least(string(api.DefaultNamespace), bytes.Compare(lower, state.Key(api.DefaultNamespace)) <= 0)
	return first, found
}

func namespaceInfo(v state.View, ns api.NamespaceID) api.NamespaceInfo {
	info := api.NamespaceInfo{ID: ns}
	for range v.Volumes(ns) {
		info.Volumes++
	}
	for range v.Jobs(ns) {
		info.Jobs++
	}
	for range v.Snapshots(ns) {
		info.Snapshots++
	}
	for range within(v, state.Variables(), state.Parts(string(ns)), nil) {
		info.Variables++
	}
	return info
}
