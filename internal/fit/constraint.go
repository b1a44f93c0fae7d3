package fit

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-dev/berth/api"
)

// Constraint says why a node does not meet a constraint, or "". Constraints
// that look at other allocations are met by every node that has the attribute.
func Constraint(node *api.Node, c api.Constraint) string {
	got, there := node.Lookup(c.Attribute)
	switch c.Operator {
	case api.DistinctHosts, api.IsSet, api.DistinctProperty:
		if c.Operator != api.DistinctHosts && !there {
			return "constraint " + c.String() + ": the node has no " + c.Attribute
		}
		return ""
	case api.IsNotSet:
		if there {
			return fmt.Sprintf("constraint %s: the node has %q", c, got)
		}
		return ""
	case api.NotEqual:
		if there && got == c.Value {
			return fmt.Sprintf("constraint %s: the node has %q", c, got)
		}
		return ""
	case "", api.Equal, api.Less, api.LessOrEqual, api.Greater, api.GreaterOrEqual, api.Regexp, api.SetContains, api.SetContainsAny:
	}
	switch {
	case !there:
		return "constraint " + c.String() + ": the node has no " + c.Attribute
	case !compare(got, c.Operator, c.Value):
		return fmt.Sprintf("constraint %s: the node has %q", c, got)
	}
	return ""
}

func compare(got string, op api.Operator, want string) bool {
	switch op {
	case "", api.Equal:
		return got == want
	case api.NotEqual:
		return got != want
	case api.Less:
		return order(got, want) < 0
	case api.LessOrEqual:
		return order(got, want) <= 0
	case api.Greater:
		return order(got, want) > 0
	case api.GreaterOrEqual:
		return order(got, want) >= 0
	case api.Regexp:
		re, err := regexp.Compile(want) // was validated
		return err == nil && re.MatchString(got)
	case api.SetContains, api.SetContainsAny:
		has := set(got)
		found := 0
		wanted := set(want)
		for _, w := range wanted {
			if slices.Contains(has, w) {
				found++
			}
		}
		return found == len(wanted) || op == api.SetContainsAny && found > 0
	case api.IsSet, api.IsNotSet, api.DistinctHosts, api.DistinctProperty:
	}
	return true
}

// order compares two values as numbers where both are, else part by part as
// versions, such as 6.1.0-13 and 6.12.
func order(a, b string) int {
	x, errX := strconv.ParseFloat(a, 64)
	y, errY := strconv.ParseFloat(b, 64)
	if errX == nil && errY == nil {
		switch {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	}
	return slices.CompareFunc(parts(a), parts(b), func(p, q string) int {
		n, errN := strconv.ParseUint(p, 10, 64)
		m, errM := strconv.ParseUint(q, 10, 64)
		if errN == nil && errM == nil {
			switch {
			case n < m:
				return -1
			case n > m:
				return 1
			}
			return 0
		}
		return strings.Compare(p, q)
	})
}

func parts(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == '.' || r == '-' || r == '+' || r == '_' })
}

func set(s string) []string {
	var all []string
	for p := range strings.SplitSeq(s, ",") {
		all = append(all, strings.TrimSpace(p))
	}
	return all
}

// SpreadShare is how far a value would be over its share of a spread, in
// percent of the group, if one more allocation came to it. Has counts the
// allocations by value, among so many as the group wants, and values are the
// values that the fleet has. The lowest is the best.
func SpreadShare(s *api.Spread, value string, has map[string]int, want int, values []string) float64 {
	share, named, targeted := 0, false, 0
	for _, t := range s.Targets {
		share += t.Percent
		if t.Value == value {
			named, targeted = true, t.Percent
		}
	}
	percent := float64(targeted)
	if !named {
		others := 0
		for _, v := range values {
			if !slices.ContainsFunc(s.Targets, func(t api.SpreadTarget) bool { return t.Value == v }) {
				others++
			}
		}
		percent = float64(100-share) / float64(max(others, 1))
	}
	return 100*float64(has[value]+1)/float64(max(want, 1)) - percent
}
