package state

import "fmt"

// tableID numbers the tables.
type tableID int

// The tables, in the order in which they are saved. A new one goes to the end,
// and into names and definitions.
const (
	// tableLog has one row, which says where the log stands. It is a table of its
	// own, so that the clock's advance wakes nobody.
	tableLog tableID = iota
	// tableIndexes keeps, for each table and for the whole, the log index of the
	// last write. Blocking queries compare it with what they have.
	tableIndexes
	tableCluster
	tableNodes
	tableIdentities
	tableAssignments
	tableInstances
	tableVolumes
	tablePublications
	tableAttachments
	tableOperations
	tableJobs
	tableRevisions
	tableAllocations
	// tableSerials has one row a series of numbers that are never used twice.
	tableSerials
	tableSecrets
	tableSnapshots
	tableFindings
	tableRooms
	tableVariables
	// tableContents has what variables hold, sealed.
	tableContents
	tableCount
)

// String is the table's name in saved states and lists.
func (t tableID) String() string {
	return [tableCount]string{
		"log", "indexes", "cluster", "nodes", "identities", "assignments", "instances", "volumes", "publications", "attachments",
		"operations", "jobs", "revisions", "allocations", "serials", "secrets", "snapshots", "findings", "rooms",
		"variables", "contents",
	}[t]
}

// definitions has every table at its number.
func definitions() [tableCount]definition {
	all := [tableCount]definition{
		logTable(),
		indexesTable(),
		clusterTable(),
		nodesTable(),
		identitiesTable(),
		assignmentsTable(),
		instancesTable(),
		volumesTable(),
		publicationsTable(),
		attachmentsTable(),
		operationsTable(),
		jobsTable(),
		revisionsTable(),
		allocationsTable(),
		serialsTable(),
		secretsTable(),
		snapshotsTable(),
		findingsTable(),
		roomsTable(),
		variablesTable(),
		contentsTable(),
	}
	for i, d := range all {
		if d.id() != tableID(i) {
			panic(fmt.Errorf("table %s is not at its number", d.id()))
		}
	}
	return all
}

// definition is one table, for whoever does not know the type of its rows.
type definition interface {
	id() tableID
	// empty is a version of the table without rows.
	empty() any
	// decode reads a saved row.
	decode(read func(any) error) (any, error)
	// insert puts a row that decode answered.
	insert(tx *Tx, row any)
	// each yields the rows in the order of their identity, until it says false.
	each(v View, yield func(row any) bool)
}

// table is one table: the type of its rows, and the keys under which they stand.
type table[T any] struct {
	at      tableID
	indexes []index[T] // the first is primary
}

// define defines a table. The indexes are given in the order of their numbers.
func define[T any](at tableID, indexes ...index[T]) *table[T] {
	t := &table[T]{at: at, indexes: make([]index[T], len(indexes))}
	for _, i := range indexes {
		if t.indexes[i.at].key != nil || t.indexes[i.at].keys != nil {
			panic(fmt.Errorf("table %s has two indexes with the number %d", at, i.at))
		}
		t.indexes[i.at] = i
	}
	return t
}

func (t *table[T]) id() tableID { return t.at }

func (t *table[T]) decode(read func(any) error) (any, error) {
	row := new(T)
	return row, read(row)
}

func (t *table[T]) insert(tx *Tx, row any) {
	r, ok := row.(*T)
	if !ok {
		panic(fmt.Errorf("table %s got a %T", t.at, row)) // decode and insert disagree
	}
	writesOf[T](tx, t.at).put(r)
}

func (t *table[T]) each(v View, yield func(any) bool) {
	treeOf[T](v, t.at, primary).Prefix(nil).All(func(row *T) bool { return yield(row) })
}
