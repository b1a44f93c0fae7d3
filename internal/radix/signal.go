package radix

import "sync"

// Signal fires once: when what it stands for has changed.
type Signal struct {
	mu    sync.Mutex // guards all below, and the links that are in the list
	fired bool
	first *Link
	// within is the length of the shortest prefix whose range, which ends within
	// the node's own prefix, somebody waits for; 0 for none. It counts from the root.
	within int
	// cut is up to where the node's prefix was cut at most since it has the signal.
	cut int
}

// reaches notes that somebody waits for a range whose prefix, of that length, ends
// within the node's. It answers the signal to wait for: in an old version the
// node may have been cut there since.
func (s *Signal) reaches(within int) *Signal {
	s.mu.Lock()
	defer s.mu.Unlock()
	if within <= s.cut {
		return &gone
	}
	if s.within == 0 || within < s.within {
		s.within = within
	}
	return s
}

// survives notes that the node was cut, and reports whether nobody who waits
// needs to hear of it.
func (s *Signal) survives(cut int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.within > 0 && s.within <= cut {
		return false
	}
	s.cut = max(s.cut, cut)
	return true
}

// gone is the signal of all nodes that are in no newest version.
var gone = Signal{fired: true} //nolint:gochecknoglobals // nothing of it changes

// NewSignal is a signal that fires with Fire.
func NewSignal() *Signal { return &Signal{} }

// Link is one who waits for one signal.
type Link struct {
	// Woken is called once when the signal fires, by who fires it. It must not
	// block, and not touch signals.
	Woken      func()
	prev, next *Link
	listed     bool
}

// Add has the link hear of the signal, unless that has fired: then the answer is
// false, and Woken is not called.
func (s *Signal) Add(l *Link) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fired {
		return false
	}
	l.listed, l.prev, l.next = true, nil, s.first
	if s.first != nil {
		s.first.prev = l
	}
	s.first = l
	return true
}

// Remove takes out a link that was added. Woken may be called until it returns.
func (s *Signal) Remove(l *Link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !l.listed {
		return
	}
	l.listed = false
	if l.next != nil {
		l.next.prev = l.prev
	}
	if l.prev != nil {
		l.prev.next = l.next
	} else {
		s.first = l.next
	}
	l.prev, l.next = nil, nil
}

// Fire fires the signal.
func (s *Signal) Fire() { s.fire() }

// Fired reports whether the signal has fired.
func (s *Signal) Fired() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fired
}

func (s *Signal) fire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fired = true
	for l := s.first; l != nil; {
		next := l.next
		l.listed, l.prev, l.next = false, nil, nil
		l.Woken()
		l = next
	}
	s.first = nil
}

// signalOf is the signal of a node, which is made if it has none. That of no
// node never fires.
func signalOf[T any](n *node[T]) *Signal {
	if n == nil {
		return &Signal{}
	}
	if s := n.signal.Load(); s != nil {
		return s
	}
	s := &Signal{}
	if n.signal.CompareAndSwap(nil, s) {
		return s
	}
	return n.signal.Load()
}
