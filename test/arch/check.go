package arch

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Rules are the tables together.
type Rules struct {
	Picture []Row
	Walls   []Wall
	Homes   []Home
	Bans    []Ban
}

// BerthRules are the rules of this repository.
func BerthRules() Rules {
	return Rules{Picture: Picture(), Walls: Walls(), Homes: Homes(), Bans: Bans()}
}

// Check holds a tree against the rules and says every way in which they differ,
// each with its reason.
func (r Rules) Check(t *Tree) []string {
	c := &check{rules: r, rows: map[string]Row{}, unused: map[string]bool{}}
	c.expect()
	for _, p := range t.Packages {
		c.tree(p)
	}
	for _, line := range slices.Sorted(maps.Keys(c.unused)) {
		c.add("the tables of test/arch name %s, and the tree has no use for it: remove the line", line)
	}
	return c.problems
}

// check is one check under way.
type check struct {
	rules    Rules
	rows     map[string]Row
	unused   map[string]bool // lines of the tables that nothing has used so far
	problems []string
}

func (c *check) add(format string, args ...any) {
	c.problems = append(c.problems, fmt.Sprintf(format, args...))
}

// expect notes every line of the tables that the tree has to use.
func (c *check) expect() {
	for _, row := range c.rules.Picture {
		if _, twice := c.rows[row.Path]; twice {
			c.add("the tables of test/arch name package %s twice", row.Path)
			continue
		}
		c.rows[row.Path] = row
		c.unused[packageLine(row.Path)] = true
		for _, to := range row.Arrows {
			c.unused[arrowLine(row.Path, to)] = true
		}
		for _, to := range row.InTests {
			c.unused[inTestsLine(row.Path, to)] = true
		}
	}
	for _, h := range c.rules.Homes {
		c.unused[moduleLine(h.Module)] = true
		for _, pattern := range h.Packages {
			c.unused[homeLine(h.Module, pattern)] = true
		}
	}
}

func packageLine(p string) string        { return "package " + p }
func arrowLine(from, to string) string   { return "the arrow from " + from + " to " + to }
func inTestsLine(from, to string) string { return to + " for the tests of " + from }
func moduleLine(m string) string         { return "module " + m }
func homeLine(m, pattern string) string  { return pattern + " as a home of " + m }

// tree checks one package.
func (c *check) tree(p *Package) {
	row, named := c.rows[p.Path]
	if !named {
		c.add("%s has no row in test/arch/picture.go: say in which column and on which level it stands", p.Path)
		return
	}
	delete(c.unused, packageLine(p.Path))
	if p.Foreign != (row.Role == Apart) {
		c.add("%s: a package is Apart if it is in a module of its own, and only then", p.Path)
		return
	}
	for _, f := range p.Files {
		for _, i := range f.Imports {
			// What stands beside the product may know more than a part of it.
			loose := f.Test || row.Role != Part && row.Role != Main
			if to := strings.TrimPrefix(i.Path, Module+"/"); f.Test && slices.Contains(row.InTests, to) {
				delete(c.unused, inTestsLine(row.Path, to))
				continue
			}
			if reason := c.imported(row, i.Path, loose); reason != "" {
				c.add("%s: %s imports %s: %s", i.At, p.Path, strings.TrimPrefix(i.Path, Module+"/"), reason)
			}
		}
	}
}

// imported is why a package may not import a path, or "".
func (c *check) imported(from Row, path string, loose bool) string {
	if to, own := strings.CutPrefix(path, Module+"/"); own {
		row, named := c.rows[to]
		switch {
		case to == from.Path:
			return ""
		case !named:
			return "it has no row in test/arch/picture.go"
		}
		return c.own(from, row, loose)
	}
	first, _, _ := strings.Cut(path, "/")
	switch {
	case from.Role == Apart:
		return ""
	case strings.Contains(first, "."):
		return c.module(from, path, loose)
	case loose:
		return ""
	}
	return c.standard(from, path)
}

// own is why a package may not import another one of the repository, or "".
func (c *check) own(from, to Row, loose bool) string {
	switch {
	case to.Role == Main:
		return "nothing imports main: what two need stands in a package of its own"
	case from.Role == Apart || to.Role == Apart:
		return "a module of its own knows nothing of Berth, nor Berth of it"
	case to.Role == Tests:
		return "nothing imports tests"
	case to.Role == Support && !loose:
		return "it is for tests only"
	case from.Role == Main:
		return ""
	case loose && from.Columns&to.Columns != 0:
		return ""
	case loose || from.Columns&^to.Columns != 0:
		return c.wall(from.Columns, to.Columns)
	case to.Level < from.Level:
		return ""
	case slices.Contains(from.Arrows, to.Path):
		delete(c.unused, arrowLine(from.Path, to.Path))
		return ""
	case to.Level > from.Level:
		return fmt.Sprintf("imports go down, and this one goes up from level %d to level %d", from.Level, to.Level)
	}
	return "packages of one level do not know each other, unless an arrow is drawn: they meet in what stands below"
}

// wall is why these columns are apart.
func (c *check) wall(from, to Columns) string {
	for _, w := range c.rules.Walls {
		if w.From&from != 0 && w.To&to != 0 && from&to == 0 {
			return w.Reason
		}
	}
	return "what stands in several columns may know only what stands in all of them"
}

// module is why a package may not import a package of another module, or "".
func (c *check) module(from Row, path string, loose bool) string {
	for _, h := range c.rules.Homes {
		if !within(path, h.Module) {
			continue
		}
		delete(c.unused, moduleLine(h.Module))
		home := slices.IndexFunc(h.Packages, func(pattern string) bool { return matches(from.Path, pattern) })
		switch {
		case loose:
			return ""
		case home >= 0:
			delete(c.unused, homeLine(h.Module, h.Packages[home]))
			return ""
		case len(h.Packages) == 0:
			return "it is for tests only: " + h.Reason
		}
		return fmt.Sprintf("its home is %s: %s", strings.Join(h.Packages, ", "), h.Reason)
	}
	return "its module has no line in test/arch/modules.go: say which package is its home, and why"
}

// standard is why a package may not import one of the standard library, or "".
func (c *check) standard(from Row, path string) string {
	match := func(pattern string) bool { return matches(from.Path, pattern) }
	for _, b := range c.rules.Bans {
		banned := slices.ContainsFunc(b.Packages, func(pattern string) bool { return matches(path, pattern) })
		if banned && slices.ContainsFunc(b.In, match) && !slices.ContainsFunc(b.Except, match) {
			return b.Reason
		}
	}
	return ""
}

// within tells whether a path is another one, or below it.
func within(path, above string) bool {
	return path == above || strings.HasPrefix(path, above+"/")
}

// matches tells whether a package is the one that a pattern names, or, for a
// pattern that ends in "...", one below it.
func matches(path, pattern string) bool {
	if above, tree := strings.CutSuffix(pattern, "..."); tree {
		return above == "" || within(path, strings.TrimSuffix(above, "/"))
	}
	return path == pattern
}
