package state

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/radix"
)

// Store holds the state. The zero value is not usable; see New.
type Store struct {
	current  atomic.Pointer[generation]
	observer Observer
}

// generation is one line of versions. Restoring a snapshot puts a new one in its
// place and abandons the old, which wakes everybody who watches it.
type generation struct {
	db        atomic.Pointer[database]
	writing   sync.Mutex // held from Begin to the end of the transaction
	abandoned *radix.Signal
}

func newGeneration(db *database) *generation {
	g := &generation{abandoned: radix.NewSignal()}
	g.db.Store(db)
	return g
}

// New returns an empty store.
func New() (*Store, error) {
	s := &Store{}
	s.current.Store(newGeneration(newDatabase()))
	return s, nil
}

// Fork opens a transaction on an independent copy, which is never committed:
// what is written there is seen there only. It is cheap: both share what
// neither has changed. Nobody is woken by what is written to a fork, because it
// may never come true.
func (s *Store) Fork() *Tx { return begin(s.current.Load().db.Load(), 0, time.Time{}) }

// View reads the last committed moment.
func (s *Store) View() View {
	g := s.current.Load()
	return View{db: g.db.Load(), abandoned: g.abandoned}
}

// Begin opens the one write transaction. It must end in Commit or Abort.
// index is the log's, and now the command time of the entry that is applied.
func (s *Store) Begin(index uint64, now time.Time) *Tx {
	g := s.current.Load()
	g.writing.Lock()
	tx := begin(g.db.Load(), index, now)
	tx.generation, tx.publishes, tx.observer = g, true, s.observer
	return tx
}

func begin(db *database, index uint64, now time.Time) *Tx {
	tx := &Tx{
		View:    View{db: db},
		index:   index,
		now:     now,
		touched: map[api.NodeID]bool{},
	}
	tx.tx = tx
	return tx
}

// replace puts a restored database in the place of the current one.
func (s *Store) replace(db *database) {
	old := s.current.Swap(newGeneration(db))
	old.abandoned.Fire()
	if s.observer != nil {
		s.observer.Replaced(s.View())
	}
}
