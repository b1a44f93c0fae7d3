package state_test

import (
	"encoding/json"
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/state"
)

// table is what the model knows of a table: a map by key, and every read as a
// filter over it.
type table[T any] struct {
	// like draws a row of which only what keys and indexes are made of counts.
	like    func(*rapid.T) *T
	key     func(*T) string
	meta    func(*T) *api.Meta // nil for rows without
	put     func(*state.Tx, *T)
	remove  func(*state.Tx, *T) // nil if rows are never removed
	get     func(state.View, *T) *T
	queries map[string]query[T]
}

// query is one read of many rows. like stands for its arguments.
type query[T any] struct {
	ask   func(v state.View, like *T) iter.Seq[*T]
	keep  func(row, like *T) bool // nil for all rows
	order func(*T) string
}

// join orders like the parts do, one after the other.
func join(parts ...string) string { return strings.Join(parts, "\x00") + "\x00" }

// stamp orders like time.
func stamp(t time.Time) string { return t.Format("2006-01-02T15:04:05.000000000") }

// model is a table and what should be in it.
type model[T any] struct {
	table[T]
	rows map[string]*T
}

// checkTable writes at random and reads everything after every transaction.
func checkTable[T any](t *testing.T, tab table[T]) {
	t.Helper()
	rapid.Check(t, func(t *rapid.T) {
		store, err := state.New()
		if err != nil {
			t.Fatal(err)
		}
		m := &model[T]{table: tab, rows: map[string]*T{}}
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		for index := range uint64(rapid.IntRange(1, 8).Draw(t, "transactions")) {
			now = now.Add(time.Duration(rapid.IntRange(0, 2).Draw(t, "later")) * time.Second)
			tx := store.Begin(index+1, now)
			before := maps.Clone(m.rows)
			for range rapid.IntRange(0, 6).Draw(t, "writes") {
				m.write(t, tx)
			}
			m.compare(t, tx.View)
			if rapid.IntRange(0, 3).Draw(t, "abort") == 0 {
				tx.Abort()
				m.rows = before
			} else {
				tx.Commit()
			}
			m.compare(t, store.View())
		}
	})
}

// write puts or removes one row, in the store and in the model.
func (m *model[T]) write(t *rapid.T, tx *state.Tx) {
	row := m.like(t)
	k := m.key(row)
	old := m.rows[k]
	writes := tx.Writes()
	if old != nil && m.remove != nil && rapid.Bool().Draw(t, "remove") {
		m.remove(tx, old)
		delete(m.rows, k)
	} else {
		var was api.Meta
		if old != nil && m.meta != nil {
			was = *m.meta(old)
			*m.meta(row) = was
		}
		m.put(tx, row)
		m.rows[k] = row
		if m.meta != nil {
			checkStamp(t, tx, was, *m.meta(row))
		}
	}
	if tx.Writes() != writes+1 {
		t.Fatalf("one write counted as %d", tx.Writes()-writes)
	}
}

// checkStamp compares the meta of a row before and after it was put.
func checkStamp(t *rapid.T, tx *state.Tx, was, is api.Meta) {
	want := api.Meta{
		Version: was.Version + 1, CreateIndex: was.CreateIndex, CreateTime: was.CreateTime,
		ModifyIndex: tx.Index(), ModifyTime: tx.Now(),
	}
	if was.Version == 0 {
		want.CreateIndex, want.CreateTime = tx.Index(), tx.Now()
	}
	if diff := cmp.Diff(want, is); diff != "" {
		t.Fatalf("meta differs (-want +got):\n%s", diff)
	}
}

// compare reads every key and every query, for rows that are there and for
// rows that are not.
func (m *model[T]) compare(t *rapid.T, v state.View) {
	likes := slices.Collect(maps.Values(m.rows))
	likes = append(likes, m.like(t))
	for _, like := range likes {
		if got, want := m.get(v, like), m.rows[m.key(like)]; got != want {
			t.Fatalf("get %q = %s, want %s", m.key(like), asJSON(got), asJSON(want))
		}
		for _, name := range slices.Sorted(maps.Keys(m.queries)) {
			q := m.queries[name]
			var want []*T
			for _, row := range m.rows {
				if q.keep == nil || q.keep(row, like) {
					want = append(want, row)
				}
			}
			slices.SortFunc(want, func(a, b *T) int { return strings.Compare(q.order(a), q.order(b)) })
			if got := slices.Collect(q.ask(v, like)); !slices.Equal(got, want) {
				t.Fatalf("%s for %s:\n got %s\nwant %s", name, asJSON(like), asJSON(got), asJSON(want))
			}
		}
	}
}

func asJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// The names are such that a key that is not cut between its parts mixes them up.
func pick[S ~string](t *rapid.T, label string) S {
	return S(rapid.SampledFrom([]string{"a", "b", "ab"}).Draw(t, label))
}

func one[T any](t *rapid.T, label string, of ...T) T { return rapid.SampledFrom(of).Draw(t, label) }
