package statetest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/berth-dev/berth/internal/state"
)

// TB is what is needed of a *testing.T, and of what stands for it in property
// tests.
type TB interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

// Load builds the store that a world describes. It goes in as a saved state,
// so that versions, indexes and times are what the world says.
func Load(tb TB, world string) *state.Store {
	tb.Helper()
	store, err := load(world)
	if err != nil {
		tb.Fatalf("load world: %v", err)
	}
	return store
}

func load(world string) (*state.Store, error) {
	var rows []row
	for _, said := range Lines(world) {
		r, err := readLine(said)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", said, err)
		}
		rows = append(rows, r)
	}
	rows = append(rows, implied(rows)...)
	saved, err := compress(rows)
	if err != nil {
		return nil, err
	}
	return state.Load(saved)
}

// row is one row of a table.
type row struct {
	table string
	value any
}

// Lines cuts text into lines as a world is cut: comments and empty lines go,
// what goes on is joined, and times that count from now are written out.
func Lines(world string) []string {
	var all []string
	for line := range strings.Lines(world) {
		said := strings.TrimSpace(line)
		switch {
		case said == "" || strings.HasPrefix(said, "#"):
		case len(all) > 0 && (line[0] == ' ' || line[0] == '\t'):
			all[len(all)-1] += said
		default:
			all = append(all, said)
		}
	}
	for i := range all {
		all[i] = string(absolute([]byte(all[i])))
	}
	return all
}

func readLine(said string) (row, error) {
	name, body, _ := strings.Cut(said, " ")
	n, ok := nounNamed(name)
	if !ok {
		return row{}, fmt.Errorf("no noun is called %q", name)
	}
	value, err := n.read([]byte(strings.TrimSpace(body)))
	return row{n.table, value}, err
}

// strict reads one JSON value and nothing else.
func strict(b []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the value")
	}
	return nil
}

// compress brings rows into the form of a saved state.
func compress(rows []row) (io.Reader, error) {
	var saved bytes.Buffer
	z, err := zstd.NewWriter(&saved, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	enc := json.NewEncoder(z)
	all := []any{savedHeader{Berth: "state", Format: 1}}
	for _, r := range rows {
		all = append(all, savedRow{Table: r.table, Row: r.value})
	}
	for _, line := range append(all, savedTrailer{Rows: len(rows)}) {
		if err := enc.Encode(line); err != nil {
			return nil, errors.Join(err, z.Close())
		}
	}
	return &saved, z.Close()
}

// The lines of a saved state.
type (
	savedHeader struct {
		Berth  string `json:"berth"`
		Format int    `json:"format"`
	}
	savedRow struct {
		Table string `json:"table"`
		Row   any    `json:"row"`
	}
	savedTrailer struct {
		Rows int `json:"rows"`
	}
)
