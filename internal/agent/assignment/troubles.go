package assignment

import (
	"errors"
	"sync"
)

// troubles is what the local database does not take in a session. None of it ends
// the session: an agent on a full disk that hung up could neither say so nor hear
// that what fills the disk is to end.
type troubles struct {
	link          *Link
	mu            sync.Mutex // guards below
	index, report error      // of the newest try
}

// note keeps how a try ended, and says so if that is news.
func (t *troubles) note(of *error, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	was := errors.Join(t.index, t.report)
	*of = err
	now := errors.Join(t.index, t.report)
	switch {
	case was == nil && now == nil:
		return
	case now == nil:
		t.link.log.Info("the local database takes everything again")
	case was == nil:
		t.link.log.Error("the local database refuses what is to be recorded; contact is kept, and it is tried again", "error", err)
	}
	t.link.state.Store(&State{Registered: true, Problem: now})
}
