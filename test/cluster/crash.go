package cluster

import (
	"errors"
	"sync"

	"github.com/hashicorp/raft"
)

// errDead is what a process that has died answers to its own goroutines, which
// only go on until it is taken away.
var errDead = errors.New("the server has died")

// mortal is a log whose server dies with one of its entries: that entry is on
// the disk, nobody was told, and nothing comes after it.
type mortal struct {
	raft.LogStore

	mu    sync.Mutex // guards below
	dead  bool
	dies  bool
	left  int           // entries until it has come so far
	there chan struct{} // closed then; nil if nobody waits for it
	// cut is not nil where nothing that is written comes to be, and closed when
	// that is known.
	cut   chan struct{}
	tried int // entries that were written in vain
}

// StoreLog implements raft.LogStore.
func (m *mortal) StoreLog(l *raft.Log) error { return m.StoreLogs([]*raft.Log{l}) }

// StoreLogs implements raft.LogStore.
func (m *mortal) StoreLogs(logs []*raft.Log) error {
	m.mu.Lock()
	cut := m.cut
	if cut != nil {
		m.tried += len(logs)
	}
	m.mu.Unlock()
	if cut != nil {
		<-cut
		return errDead
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead {
		return errDead
	}
	if m.there == nil || len(logs) < m.left {
		m.left -= len(logs)
		return m.LogStore.StoreLogs(logs)
	}
	if m.dies {
		logs, m.dead = logs[:m.left], true
	}
	err := m.LogStore.StoreLogs(logs)
	close(m.there)
	m.there = nil
	if err == nil && m.dead {
		err = errDead
	}
	return err
}

func (m *mortal) arm(n int, dies bool) <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.left, m.dies, m.there = n, dies, make(chan struct{})
	return m.there
}

// Doom lets the server die as soon as n more entries are in its log, and
// answers a channel that is closed then. The last of them was written, and
// nobody was told. Who waits for that calls StopServer and StartServer. It is
// for servers whose stores are in memory.
func (c *Cluster) Doom(n int) (died <-chan struct{}) { return c.arm(n, true) }

// Written answers a channel that is closed as soon as n more entries are in the
// server's log. It is for servers whose stores are in memory.
func (c *Cluster) Written(n int) <-chan struct{} { return c.arm(n, false) }

// Depose has another server lead, with all that this one has committed. This one
// does not know: it goes on deciding, answers who is connected to it, and waits
// for what it writes to be committed, which it never is. With learn, it hears of
// it and ends; learn answers how many entries it tried to write. It is for
// servers whose stores are in memory.
func (c *Cluster) Depose() (learn func() int) {
	c.TB.Helper()
	c.mu.Lock()
	old := c.server
	c.mu.Unlock()
	cut := make(chan struct{})
	old.log.mu.Lock()
	old.log.cut = cut
	old.log.mu.Unlock()
	c.stores = c.CopyLog()
	c.StartServer()
	return func() int {
		old.log.mu.Lock()
		tried := old.log.tried
		old.log.mu.Unlock()
		close(cut)
		old.stop()
		if err := <-old.ended; err != nil {
			c.TB.Errorf("the server that was deposed ended with %v", err)
		}
		return tried
	}
}

func (c *Cluster) arm(n int, dies bool) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.server.log.arm(n, dies)
}
