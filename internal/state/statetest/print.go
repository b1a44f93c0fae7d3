package statetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/berth-dev/berth/internal/state"
)

// Print writes all rows of a view as a world, in the order of tables and keys.
// What a world implies is left out, and so are the indexes of the tables.
func Print(tb TB, v state.View) string {
	tb.Helper()
	return strings.Join(printed(tb, v), "")
}

// Diff writes the rows that differ between two views: those that are gone with
// a minus before them, those that came with a plus. Of their meta it shows
// only the version.
func Diff(tb TB, before, after state.View) string {
	tb.Helper()
	was, is := printed(tb, before, stamps()...), printed(tb, after, stamps()...)
	var b strings.Builder
	for _, n := range nouns() {
		for _, line := range was {
			if strings.HasPrefix(line, n.name+" ") && !slices.Contains(is, line) {
				b.WriteString("- " + line)
			}
		}
		for _, line := range is {
			if strings.HasPrefix(line, n.name+" ") && !slices.Contains(was, line) {
				b.WriteString("+ " + line)
			}
		}
	}
	return b.String()
}

// stamps are the members of every row that tell when it was written.
func stamps() []string {
	return []string{"create_index", "modify_index", "create_time", "modify_time"}
}

// printed are the lines of a view, without the members that are hidden.
func printed(tb TB, v state.View, hidden ...string) []string {
	tb.Helper()
	rows, err := savedRows(v)
	if err != nil {
		tb.Fatalf("print world: %v", err)
	}
	unsaid, err := unsaidRows(rows)
	if err != nil {
		tb.Fatalf("print world: %v", err)
	}
	var all []string
	for _, r := range rows {
		n, ok := nounOf(r.Table)
		if !ok {
			tb.Fatalf("print world: table %s has no noun", r.Table)
		}
		if r.Table == "indexes" || unsaid[r.Table+" "+string(r.Row)] {
			continue
		}
		said := shorten(r.Row, func(b []byte) bool { return reads(n, b, r.Row) })
		for _, name := range hidden {
			said = without(said, name)
		}
		all = append(all, Relative(fmt.Sprintf("%s %s\n", n.name, said)))
	}
	return all
}

func nounOf(table string) (noun, bool) {
	for _, n := range nouns() {
		if n.table == table {
			return n, true
		}
	}
	return noun{}, false
}

// reads reports whether a line says the whole of a row.
func reads(n noun, said, want []byte) bool {
	value, err := n.read(said)
	if err != nil {
		return false
	}
	got, err := json.Marshal(value)
	return err == nil && bytes.Equal(got, want)
}

// savedLine is a row of a saved state, or its header or trailer.
type savedLine struct {
	Table string          `json:"table"`
	Row   json.RawMessage `json:"row"`
}

func savedRows(v state.View) ([]savedLine, error) {
	text, err := Text(v)
	if err != nil {
		return nil, err
	}
	var rows []savedLine
	for line := range strings.Lines(text) {
		var l savedLine
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			return nil, err
		}
		if l.Table != "" {
			rows = append(rows, l)
		}
	}
	return rows, nil
}

// Text is a saved state, not compressed.
func Text(v state.View) (string, error) {
	var saved bytes.Buffer
	if err := v.Save(&saved); err != nil {
		return "", err
	}
	z, err := zstd.NewReader(&saved)
	if err != nil {
		return "", err
	}
	defer z.Close()
	var text bytes.Buffer
	_, err = text.ReadFrom(z)
	return text.String(), err
}

// unsaidRows are the rows that the others imply.
func unsaidRows(saved []savedLine) (map[string]bool, error) {
	var rows []row
	for _, l := range saved {
		switch n, _ := nounOf(l.Table); l.Table {
		case "nodes", "jobs":
			value, err := n.read(l.Row)
			if err != nil {
				return nil, err
			}
			rows = append(rows, row{l.Table, value})
		}
	}
	unsaid := map[string]bool{}
	for _, r := range implied(rows) {
		b, err := json.Marshal(r.value)
		if err != nil {
			return nil, err
		}
		unsaid[r.table+" "+string(b)] = true
	}
	return unsaid, nil
}
