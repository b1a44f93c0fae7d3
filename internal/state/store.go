package state

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-memdb"

	"github.com/berth-dev/berth/api"
)

// Store holds the state. The zero value is not usable; see New.
type Store struct {
	current  atomic.Pointer[generation]
	observer Observer
}

// generation is one database. Restoring a snapshot puts a new one in its
// place and abandons the old, which wakes everybody who watches it.
type generation struct {
	db        *memdb.MemDB
	abandoned chan struct{}
}

// New returns an empty store.
func New() (*Store, error) {
	db, err := memdb.NewMemDB(schema())
	if err != nil {
		return nil, fmt.Errorf("build state schema: %w", err)
	}
	s := &Store{}
	s.current.Store(&generation{db: db, abandoned: make(chan struct{})})
	return s, nil
}

// Fork opens a transaction on an independent copy, which is never committed:
// what is written there is seen there only. It is cheap: both share what
// neither has changed. Watch channels of a fork never fire, because what is
// written there may never come true.
func (s *Store) Fork() *Tx {
	g := &generation{db: s.current.Load().db.Snapshot()}
	return begin(g, 0, time.Time{})
}

// View reads the last committed moment.
func (s *Store) View() View {
	g := s.current.Load()
	return View{txn: g.db.Txn(false), abandoned: g.abandoned}
}

// Begin opens the one write transaction. It must end in Commit or Abort.
// index is the log's, and now the command time of the entry that is applied.
func (s *Store) Begin(index uint64, now time.Time) *Tx {
	tx := begin(s.current.Load(), index, now)
	tx.observer = s.observer
	return tx
}

func begin(g *generation, index uint64, now time.Time) *Tx {
	return &Tx{
		View:    View{txn: g.db.Txn(true), abandoned: g.abandoned, own: newOwnRows(g.db)},
		index:   index,
		now:     now,
		tables:  map[string]bool{},
		touched: map[api.NodeID]bool{},
	}
}

// replace puts a restored database in the place of the current one.
func (s *Store) replace(db *memdb.MemDB) {
	old := s.current.Swap(&generation{db: db, abandoned: make(chan struct{})})
	close(old.abandoned)
	if s.observer != nil {
		s.observer.Replaced(s.View())
	}
}
