package cli

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// screen is what the output and the errors share: lines that stay, and below
// them, on a terminal, a region that is drawn again while a command waits, with
// a line for each thing that it waits for. Invariant: whoever writes finds the
// region gone, and it is back below what was written.
type screen struct {
	mu      sync.Mutex // guards below, and all writing
	out     io.Writer
	columns func() int
	rows    []row
	drawn   int
}

// row is one line of the region.
type row struct {
	what, state string
	since       time.Time
}

// maxRows bounds the region: it must not be higher than a terminal.
const maxRows = 8

// through is w, with the region kept below what is written.
func (s *screen) through(w io.Writer) io.Writer { return screenWriter{s, w} }

type screenWriter struct {
	screen *screen
	w      io.Writer
}

func (w screenWriter) Write(p []byte) (int, error) {
	w.screen.mu.Lock()
	defer w.screen.mu.Unlock()
	w.screen.erase()
	defer w.screen.draw()
	return w.w.Write(p)
}

// show sets the line of a thing.
func (s *screen) show(what, state string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.erase()
	defer s.draw()
	for i := range s.rows {
		if s.rows[i].what == what {
			s.rows[i].state = state
			return
		}
	}
	s.rows = append(s.rows, row{what, state, time.Now()})
}

// drop removes the line of a thing.
func (s *screen) drop(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.erase()
	defer s.draw()
	kept := s.rows[:0]
	for _, r := range s.rows {
		if r.what != what {
			kept = append(kept, r)
		}
	}
	s.rows = kept
}

// clear removes all lines.
func (s *screen) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.erase()
	s.rows = nil
}

// tick draws the region again: time has passed.
func (s *screen) tick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.erase()
	s.draw()
}

// erase takes the region away: up to its first line, and clear from there.
func (s *screen) erase() {
	if s.drawn > 0 {
		fmt.Fprintf(s.out, "\x1b[%dA\r\x1b[J", s.drawn)
		s.drawn = 0
	}
}

// draw writes the region. A line that would be broken in two is cut.
func (s *screen) draw() {
	if len(s.rows) == 0 {
		return
	}
	var b strings.Builder
	for i, r := range s.rows {
		if i == maxRows-1 && len(s.rows) > maxRows {
			fmt.Fprintf(&b, "... and %d more\n", len(s.rows)-i)
			s.drawn++
			break
		}
		state, reason, _ := strings.Cut(r.state, ":")
		line := fmt.Sprintf("%s is %s, for %s", r.what, state, age(r.since))
		if reason != "" {
			line += ":" + reason
		}
		b.WriteString(shorten(plain(line), max(s.columns()-1, 1)))
		b.WriteByte('\n')
		s.drawn++
	}
	fmt.Fprint(s.out, b.String())
}
