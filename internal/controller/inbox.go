package controller

import "sync"

// event is something that a loop must hear of.
type event struct {
	kind  kind
	key   Key
	index uint64 // of the commit, if a plan was committed
	err   error
}

type kind int

const (
	scan     kind = iota // what is pending may have changed
	wake                 // what a key waited for has changed, or its time has come
	proposed             // a plan was committed, or was not
)

// inbox takes events from any goroutine without ever blocking it.
type inbox struct {
	mu     sync.Mutex // guards events
	events []event
	signal chan struct{} // capacity 1: there are events
}

func newInbox() *inbox { return &inbox{signal: make(chan struct{}, 1)} }

func (i *inbox) post(e event) {
	i.mu.Lock()
	i.events = append(i.events, e)
	i.mu.Unlock()
	select {
	case i.signal <- struct{}{}:
	default:
	}
}

// take returns what has come, in order.
func (i *inbox) take() []event {
	i.mu.Lock()
	defer i.mu.Unlock()
	events := i.events
	i.events = nil
	return events
}
