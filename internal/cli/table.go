package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// column is one of a table. Its heading is written as NAME, NAME~ for text that
// may be shortened, NAME! for text that may be when nothing else helps, and
// NAME?3 for what may be left out, the lowest number first. A column without a
// mark is always there, and whole: nobody can type half an id.
type column struct {
	name    string
	shorten bool
	last    bool // it is shortened last
	leave   int
	width   int
	out     bool
}

const (
	// gap is the space between columns.
	gap = 2
	// shortest is how short text gets before other columns are left out.
	shortest = 16
	// least is how short that gets which is shortened last.
	least = 12
)

func columns(heading string) []column {
	var all []column
	for word := range strings.FieldsSeq(heading) {
		name, leave, _ := strings.Cut(word, "?")
		c := column{name: name}
		c.leave, _ = strconv.Atoi(leave) // no mark is 0, which stays
		c.name, c.shorten = strings.CutSuffix(c.name, "~")
		c.name, c.last = strings.CutSuffix(c.name, "!")
		all = append(all, c)
	}
	return all
}

// list is a table of all that there is. Where there is nothing it says so, not
// to the program that reads the table. What is no terminal gets lines with tabs
// and no heading.
func (a *app) list(heading string, rows [][]string, none string) {
	switch {
	case len(rows) == 0:
		a.none(none)
	case a.columns() > 0:
		a.table(heading, rows)
	default:
		for _, r := range rows {
			cells := make([]string, len(r))
			for i, cell := range r {
				cells[i] = plain(cell)
			}
			a.print(strings.Join(cells, "\t"))
		}
	}
}

// table prints rows below a heading, no wider than the terminal if that can be.
func (a *app) table(heading string, rows [][]string) {
	all := columns(heading)
	for i, c := range all {
		all[i].width = utf8.RuneCountInString(c.name)
		for _, r := range rows {
			if i < len(r) {
				all[i].width = max(all[i].width, utf8.RuneCountInString(plain(r[i])))
			}
		}
	}
	fitWidth(all, a.columns())
	names := make([]string, len(all))
	for i, c := range all {
		names[i] = c.name
	}
	a.print(a.row(all, names, a.bold))
	for _, r := range rows {
		a.print(a.row(all, r, a.paint))
	}
}

// fitWidth makes columns narrower, then leaves some out, until they fit.
func fitWidth(all []column, limit int) {
	if limit == 0 {
		return
	}
	for {
		over := width(all) - limit
		if over <= 0 {
			return
		}
		var widest, first, last *column
		for i := range all {
			c := &all[i]
			switch {
			case c.out:
			case c.shorten && c.width > shortest && (widest == nil || c.width > widest.width):
				widest = c
			case c.leave > 0 && (first == nil || c.leave < first.leave):
				first = c
			case c.last && c.width > least:
				last = c
			}
		}
		switch {
		case widest != nil:
			widest.width = max(shortest, widest.width-over)
		case first != nil:
			first.out = true
		case last != nil:
			last.width = max(least, last.width-over)
		default:
			return
		}
	}
}

func width(all []column) int {
	total := -gap
	for _, c := range all {
		if !c.out {
			total += c.width + gap
		}
	}
	return total
}

// row is one line of a table.
func (a *app) row(all []column, cells []string, paint func(string) string) string {
	var b strings.Builder
	blank := 0 // is written when something follows
	for i, c := range all {
		if c.out || i >= len(cells) {
			continue
		}
		text := shorten(plain(cells[i]), c.width)
		if text != "" {
			b.WriteString(strings.Repeat(" ", blank))
			b.WriteString(paint(text))
			blank = 0
		}
		blank += c.width - utf8.RuneCountInString(text) + gap
	}
	return b.String()
}

// shorten cuts text to a width, and shows that it did.
func shorten(text string, limit int) string {
	if utf8.RuneCountInString(text) <= limit {
		return text
	}
	return string([]rune(text)[:max(limit-1, 0)]) + "…"
}

// facts prints names and values, leaving out what is empty.
func (a *app) facts(pairs ...string) {
	widest := 0
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			widest = max(widest, len(pairs[i]))
		}
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			a.print(fmt.Sprintf("%-*s  %s", widest, pairs[i], a.paint(plain(pairs[i+1]))))
		}
	}
}

// shortIDs are the ids as people read them: as short as they can be told apart,
// and no shorter than usual.
func shortIDs(ids []string, usual int) []string {
	sorted := slices.Clone(ids)
	slices.SortFunc(sorted, cmp.Compare)
	sorted = slices.Compact(sorted)
	need := usual
	for i := 1; i < len(sorted); i++ {
		same := 0
		for same < min(len(sorted[i-1]), len(sorted[i])) && sorted[i-1][same] == sorted[i][same] {
			same++
		}
		need = max(need, same+1)
	}
	short := make([]string, len(ids))
	for i, id := range ids {
		short[i] = id[:min(need, len(id))]
	}
	return short
}
