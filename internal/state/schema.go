package state

import (
	"github.com/hashicorp/go-memdb"
)

// definition is one table: its indexes, and how a saved row is read back.
type definition struct {
	name   string
	schema *memdb.TableSchema
	decode func(read func(any) error) (any, error)
}

// definitions lists every table in the order in which they are saved. A new
// table goes to the end.
func definitions() []definition {
	return []definition{
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
	}
}

func schema() *memdb.DBSchema {
	s := &memdb.DBSchema{Tables: map[string]*memdb.TableSchema{}}
	for _, d := range definitions() {
		s.Tables[d.name] = d.schema
	}
	return s
}

func define[T any](name string, indexes ...*memdb.IndexSchema) definition {
	t := &memdb.TableSchema{Name: name, Indexes: map[string]*memdb.IndexSchema{}}
	for _, i := range indexes {
		t.Indexes[i.Name] = i
	}
	return definition{name: name, schema: t, decode: func(read func(any) error) (any, error) {
		row := new(T)
		return row, read(row)
	}}
}
