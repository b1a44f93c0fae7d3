package statetest

import (
	"fmt"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/state"
)

// firstSerial is the last serial that a world has used, so that operations
// that a test opens are told from those of its world.
const firstSerial = 100

// implied are the rows that a world need not name, because others do: the
// identity and the assignment version of a node, the revision of a job, the
// serial of operations, and the indexes of the tables.
func implied(rows []row) []row {
	said := map[string]bool{}
	for _, r := range rows {
		said[identify(r)] = true
	}
	var more []row
	add := func(r row) {
		if id := identify(r); !said[id] {
			said[id] = true
			more = append(more, r)
		}
	}
	add(row{"serials", &state.Serial{Series: "operations", Last: firstSerial}})
	add(row{"indexes", &state.Modified{Index: firstIndex}})
	for _, r := range rows {
		switch v := r.value.(type) {
		case *api.Node:
			id := &state.Identity{NodeID: v.ID}
			*id = *identity(id)
			id.NodeID, id.Epoch = v.ID, v.Status.Epoch
			add(row{"identities", id})
			version := assignment(nil)
			version.NodeID = v.ID
			add(row{"assignments", version})
		case *api.Job:
			add(row{"revisions", &state.Revision{JobUID: v.UID, Revision: v.Revision, Applied: v.Status.Applied, Spec: v.Spec}})
		}
		add(row{"indexes", &state.Modified{Table: r.table, Index: firstIndex}})
	}
	return more
}

// identify tells the rows apart that may be implied; "" stands for all others.
func identify(r row) string {
	switch v := r.value.(type) {
	case *state.Serial:
		return "serial " + v.Series
	case *state.Modified:
		return "index " + v.Table
	case *state.Identity:
		return "identity " + string(v.NodeID)
	case *state.AssignmentVersion:
		return "assignment " + string(v.NodeID)
	case *state.Revision:
		return fmt.Sprintf("revision %s/%d", v.JobUID, v.Revision)
	}
	return ""
}
