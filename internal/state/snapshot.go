package state

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

// A saved state is a zstd stream of JSON lines: a header, every row in table
// and key order, and a trailer with the number of rows, by which a cut stream
// is told from a whole one. Equal states save to equal bytes.

// snapshotFormat is the version of what Save writes. Restore reads all
// versions up to it.
const snapshotFormat = 1

// maxRowSize bounds a line of a saved state, in bytes.
const maxRowSize = 64 << 20

type header struct {
	Berth  string `json:"berth"`
	Format int    `json:"format"`
}

// line is a row, or the trailer if Table is empty.
type line struct {
	Table string          `json:"table,omitempty"`
	Row   json.RawMessage `json:"row,omitempty"`
	Rows  int             `json:"rows,omitempty"`
}

// Save writes the view as a compressed stream.
func (v View) Save(w io.Writer) error {
	z, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		return fmt.Errorf("open compressor: %w", err)
	}
	buffered := bufio.NewWriterSize(z, 1<<16)
	if err := v.saveLines(buffered); err != nil {
		return errors.Join(err, z.Close())
	}
	if err := buffered.Flush(); err != nil {
		return errors.Join(fmt.Errorf("save state: %w", err), z.Close())
	}
	if err := z.Close(); err != nil {
		return fmt.Errorf("save state: %w", err)
	}
	return nil
}

func (v View) saveLines(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(header{Berth: "state", Format: snapshotFormat}); err != nil {
		return fmt.Errorf("save header: %w", err)
	}
	count := 0
	for _, d := range v.db.schema {
		var failed error
		d.each(v, func(row any) bool {
			b, err := json.Marshal(row)
			if err == nil {
				err = enc.Encode(line{Table: d.id().String(), Row: b})
			}
			failed = err
			count++
			return err == nil
		})
		if failed != nil {
			return fmt.Errorf("save row of %s: %w", d.id(), failed)
		}
	}
	if err := enc.Encode(line{Rows: count}); err != nil {
		return fmt.Errorf("save trailer: %w", err)
	}
	return nil
}

// Load reads a saved state into a new store.
func Load(r io.Reader) (*Store, error) {
	z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, fmt.Errorf("open decompressor: %w", err)
	}
	defer z.Close()
	s, err := New()
	if err != nil {
		return nil, err
	}
	scan := bufio.NewScanner(z)
	scan.Buffer(make([]byte, 1<<16), maxRowSize)
	if err := readHeader(scan); err != nil {
		return nil, err
	}
	// Nobody reads it yet: it is written as a fork, which wakes nobody.
	tx := s.Fork()
	if err := readRows(scan, tx); err != nil {
		return nil, err
	}
	s.current.Load().db.Store(tx.db.modifiedBy(tx))
	return s, nil
}

func readHeader(scan *bufio.Scanner) error {
	if !scan.Scan() {
		return fmt.Errorf("restore state: this is not a saved state of Berth, or it is cut: %w", cutOr(scan.Err()))
	}
	var h header
	// Not strict: a newer header may say more, and its format is the answer then.
	if err := json.Unmarshal(scan.Bytes(), &h); err != nil || h.Berth != "state" || h.Format < 1 {
		return errors.New("restore state: this is not a saved state of Berth")
	}
	if h.Format > snapshotFormat {
		return fmt.Errorf("restore state: format %d is newer than this version understands (%d)", h.Format, snapshotFormat)
	}
	return nil
}

func cutOr(err error) error {
	if err == nil {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Restore replaces everything in s by what other holds, and wakes everybody
// who watches s. other must not be used afterwards.
func (s *Store) Restore(other *Store) { s.replace(other.current.Load().db.Load()) }
