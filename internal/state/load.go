package state

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
)

// A server serves again when it has read its saved state. Reading the rows'
// JSON is most of the work, and one row needs nothing of another: so batches of
// lines are read by all processors, and put into the tables in their order.

const (
	linesPerBatch = 512
	// batchesAhead bounds what is read before it is put into the tables.
	batchesAhead = 32
)

// lines is a batch of lines, and the rows that were read from them.
type lines struct {
	text  []byte // of all of them
	ends  []int  // where each ends in text
	rows  []savedRow
	ready chan struct{} // closed when rows is complete
}

// savedRow is what a line says.
type savedRow struct {
	table string // empty for the trailer
	in    definition
	row   any
	count int // the trailer's
	err   error
}

// readRows fills the tables of a transaction.
func readRows(scan *bufio.Scanner, tx *Tx) error {
	work, ordered, stop := make(chan *lines, batchesAhead), make(chan *lines, batchesAhead), make(chan struct{})
	var g sync.WaitGroup
	defer g.Wait()
	defer close(stop)
	var scanned error // of scan, when ordered is closed
	g.Go(func() {
		defer close(ordered)
		defer close(work)
		scanned = scanLines(scan, stop, work, ordered)
	})
	for range runtime.GOMAXPROCS(0) {
		g.Go(func() {
			d := newLineDecoder()
			for l := range work {
				l.decode(d)
			}
		})
	}
	count, want, ended := 0, 0, false
	for l := range ordered {
		<-l.ready
		for _, r := range l.rows {
			switch {
			case ended:
				return errors.New("restore state: there is something after the trailer")
			case r.err != nil && r.table == "":
				return fmt.Errorf("restore state: row %d: %w", count+1, r.err)
			case r.err != nil:
				return fmt.Errorf("restore state: row %d of %s: %w", count+1, r.table, r.err)
			case r.table == "":
				ended, want = true, r.count
				continue
			}
			count++
			r.in.insert(tx, r.row)
		}
	}
	switch {
	case !ended:
		return fmt.Errorf("restore state: the stream is cut: %w", cutOr(scanned))
	case scanned != nil:
		return fmt.Errorf("restore state: %w", scanned)
	case want != count:
		return fmt.Errorf("restore state: %d rows, and the trailer says %d", count, want)
	}
	return nil
}

// scanLines cuts the stream into batches until it ends, or stop is closed.
func scanLines(scan *bufio.Scanner, stop <-chan struct{}, work, ordered chan<- *lines) error {
	l := &lines{ready: make(chan struct{})}
	flush := func() bool {
		if len(l.ends) == 0 {
			return true
		}
		full := l
		l = &lines{ready: make(chan struct{}), text: make([]byte, 0, len(full.text))}
		for _, to := range []chan<- *lines{work, ordered} {
			select {
			case to <- full:
			case <-stop:
				return false
			}
		}
		return true
	}
	for scan.Scan() {
		l.text = append(l.text, scan.Bytes()...)
		l.ends = append(l.ends, len(l.text))
		if len(l.ends) == linesPerBatch && !flush() {
			return nil
		}
	}
	flush()
	return scan.Err()
}

// decode reads the rows of a batch, up to the first that cannot be read.
func (l *lines) decode(d *lineDecoder) {
	defer close(l.ready)
	begin := 0
	for _, end := range l.ends {
		r := d.line(l.text[begin:end])
		l.rows = append(l.rows, r)
		if r.err != nil {
			return
		}
		begin = end
	}
}

// lineDecoder reads lines, one after another. It is for one goroutine.
type lineDecoder struct {
	tables map[string]definition
	text   bytes.Reader
	json   *json.Decoder
}

func newLineDecoder() *lineDecoder {
	d := &lineDecoder{tables: map[string]definition{}}
	for _, t := range definitions() {
		d.tables[t.id().String()] = t
	}
	d.reset()
	return d
}

// reset makes the decoder as new: after an error it reads nothing any more.
func (d *lineDecoder) reset() {
	d.json = json.NewDecoder(&d.text)
	d.json.DisallowUnknownFields()
}

// line reads one line. What has the form in which rows are saved is not read as
// a line first and as a row then; if that fails, the whole line says why.
func (d *lineDecoder) line(b []byte) savedRow {
	if table, row, ok := splitLine(b); ok {
		if r := d.row(table, row); r.err == nil {
			return r
		}
		d.reset()
	}
	var l line
	if err := d.strict(b, &l); err != nil {
		return savedRow{err: err}
	}
	if l.Table == "" {
		return savedRow{count: l.Rows}
	}
	return d.row(l.Table, l.Row)
}

func (d *lineDecoder) row(table string, b []byte) savedRow {
	in := d.tables[table]
	if in == nil {
		return savedRow{err: fmt.Errorf("unknown table %q", table)}
	}
	v, err := in.decode(func(v any) error { return d.strict(b, v) })
	return savedRow{table: table, in: in, row: v, err: err}
}

// splitLine takes a line apart that has the form in which Save writes rows. What
// it says is row still has to be read.
func splitLine(b []byte) (table string, row []byte, ok bool) {
	b, ok = bytes.CutPrefix(b, []byte(`{"table":"`))
	if !ok {
		return "", nil, false
	}
	name, row, ok := bytes.Cut(b, []byte(`","row":`))
	if !ok || bytes.ContainsAny(name, `"\`) {
		return "", nil, false
	}
	row, ok = bytes.CutSuffix(row, []byte("}"))
	return string(name), row, ok && len(name) > 0
}

// strict refuses fields that v does not have, and whatever follows the value: a
// server that does not know what it reads must stop rather than diverge. After
// an error the decoder is of no use any more.
func (d *lineDecoder) strict(b []byte, v any) error {
	d.text.Reset(b)
	if err := d.json.Decode(v); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	if rest, ok := d.json.Buffered().(*bytes.Reader); ok && rest.Len()+d.text.Len() == 0 {
		return nil
	}
	if _, err := d.json.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the value")
	}
	d.reset()
	return nil
}
