package api

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Constraint is a condition that a node must meet.
type Constraint struct {
	// Attribute is what is compared: ${attr.cpu.arch}, ${meta.rack},
	// ${node.class}, ${node.unique.id}, ${node.unique.name}.
	Attribute string `json:"attribute,omitempty"`
	// Operator is = if empty.
	Operator Operator `json:"operator,omitempty"`
	Value    string   `json:"value,omitempty"`
}

// Operator is how a constraint compares.
type Operator string

// The operators. Values are compared as numbers where both are numbers.
const (
	Equal          Operator = "="
	NotEqual       Operator = "!="
	Less           Operator = "<"
	LessOrEqual    Operator = "<="
	Greater        Operator = ">"
	GreaterOrEqual Operator = ">="
	Regexp         Operator = "regexp"
	// SetContains: the attribute, a list with commas, has all of the value's.
	SetContains    Operator = "set_contains"
	SetContainsAny Operator = "set_contains_any"
	IsSet          Operator = "is_set"
	IsNotSet       Operator = "is_not_set"
	// DistinctHosts: no two allocations of the group, or of the job, on a node.
	DistinctHosts Operator = "distinct_hosts"
	// DistinctProperty: at most so many, 1 if there is no value, where the
	// attribute is the same.
	DistinctProperty Operator = "distinct_property"
)

// Operators lists all operators, for validation and documentation.
func Operators() []Operator {
	return []Operator{
		Equal, NotEqual, Less, LessOrEqual, Greater, GreaterOrEqual, Regexp, SetContains, SetContainsAny,
		IsSet, IsNotSet, DistinctHosts, DistinctProperty,
	}
}

// ofOthers reports whether the operator looks at other allocations.
func (o Operator) ofOthers() bool { return o == DistinctHosts || o == DistinctProperty }

// String is the constraint as people write it in a sentence.
func (c Constraint) String() string {
	op := c.Operator
	if op == "" {
		op = Equal
	}
	return strings.Join(slices.DeleteFunc([]string{c.Attribute, string(op), c.Value}, func(s string) bool { return s == "" }), " ")
}

// Spread asks for a group's allocations to be spread over an attribute's
// values: evenly, or by the targets' percents.
type Spread struct {
	Attribute string         `json:"attribute"`
	Targets   []SpreadTarget `json:"targets,omitempty"`
}

// SpreadTarget is the share of one value. What the targets leave of 100 is
// shared evenly by the other values.
type SpreadTarget struct {
	Value   string `json:"value"`
	Percent int    `json:"percent"`
}

// attributeName matches what a constraint may look at.
var attributeName = regexp.MustCompile(`^\$\{(attr\.[A-Za-z0-9_.-]+|meta\.[^{}]+|node\.(class|datacenter|region)|node\.unique\.(id|name))\}$`)

func validateAttribute(p *Problems, at, attribute string) {
	if !attributeName.MatchString(attribute) {
		p.Addf(at, `write "${attr.cpu.arch}", "${meta.rack}", "${node.class}", "${node.unique.name}" or "${node.unique.id}"`,
			"is %q, which names nothing of a node", attribute)
	}
}

func validateConstraints(p *Problems, path string, list []Constraint) {
	for i, c := range list {
		at := fmt.Sprintf("%s[%d]", path, i)
		if c.Operator != "" {
			oneOf(p, at+".operator", c.Operator, Operators()...)
		}
		if c.Operator == DistinctHosts {
			if c.Attribute != "" || c.Value != "" {
				p.Addf(at, "remove attribute and value", "has the operator %s, which compares nothing", c.Operator)
			}
			continue
		}
		validateAttribute(p, at+".attribute", c.Attribute)
		c.validateValue(p, at+".value")
	}
}

func (c Constraint) validateValue(p *Problems, at string) {
	switch c.Operator {
	case Regexp:
		if _, err := regexp.Compile(c.Value); err != nil {
			p.Addf(at, "correct the expression", "is no regular expression: %v", err)
		}
	case IsSet, IsNotSet:
		if c.Value != "" {
			p.Addf(at, "remove it", "makes no sense with operator %s", c.Operator)
		}
	case DistinctProperty:
		if n, ok := wholeNumber(c.Value); c.Value != "" && (!ok || n < 1) {
			p.Addf(at, "give a number from 1, or leave it out", "is %q", c.Value)
		}
	case "", Equal, NotEqual, Less, LessOrEqual, Greater, GreaterOrEqual, SetContains, SetContainsAny, DistinctHosts:
		if c.Value == "" && c.Operator.comparesSize() {
			p.Add(at, "is missing", "say what to compare with")
		}
	}
}

func (o Operator) comparesSize() bool {
	return o == Less || o == LessOrEqual || o == Greater || o == GreaterOrEqual || o == SetContains || o == SetContainsAny
}

func wholeNumber(s string) (n int, ok bool) {
	for _, r := range s {
		if r < '0' || r > '9' || n > 1<<20 {
			return 0, false
		}
		n = 10*n + int(r-'0')
	}
	return n, s != ""
}

func validateSpreads(p *Problems, path string, list []Spread) {
	for i, s := range list {
		at := fmt.Sprintf("%s[%d]", path, i)
		validateAttribute(p, at+".attribute", s.Attribute)
		sum, seen := 0, map[string]bool{}
		for _, t := range s.Targets {
			target := fmt.Sprintf("%s.target[%q]", at, t.Value)
			if t.Percent < 0 || t.Percent > 100 {
				p.Addf(target+".percent", "give a number from 0 to 100", "is %d", t.Percent)
			}
			if seen[t.Value] {
				p.Add(target, "is there twice", "remove one")
			}
			seen[t.Value] = true
			sum += t.Percent
		}
		if sum > 100 {
			p.Addf(at, "make them 100 at most", "has targets of %d percent together", sum)
		}
	}
}

// maxMeta bounds the metadata of one job, group or task.
const maxMeta = 16 << 10

func validateMeta(p *Problems, path string, meta map[string]string) {
	size := 0
	for _, k := range slices.Sorted(maps.Keys(meta)) {
		size += len(k) + len(meta[k])
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.ContainsRune(meta[k], 0) {
			p.Addf(path, "use letters, digits and underscores", "has the name %q", k)
		}
	}
	if size > maxMeta {
		p.Addf(path, "shorten it", "is %d bytes, more than %d", size, maxMeta)
	}
}
