package fit

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-dev/berth/api"
)

// Diff says what differs between two specs, in the order of their fields. It
// compares their JSON forms. Lists of named things are compared by name, other
// lists by position. What Same finds different has a change.
func Diff[T any](old, changed T) []api.Change {
	d := differ{changes: []api.Change{}}
	d.compare("", reflect.TypeFor[T](), "", tree(old), tree(changed))
	return d.changes
}

// tree is the JSON form of a value: maps, lists and leaves.
func tree(v any) any {
	b, err := json.Marshal(v)
	if err != nil {
		return nil // no spec is without a JSON form: it came as one
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	var t any
	if dec.Decode(&t) != nil {
		return nil
	}
	return t
}

// differ collects changes. A nil tree is something that is not there.
type differ struct {
	changes []api.Change
}

// compare notes how two trees differ. t is what they are the form of, nil where
// that is anything. label is the member of theirs that is in the path, if one is.
func (d *differ) compare(path string, t reflect.Type, label string, old, changed any) {
	if reflect.DeepEqual(old, changed) {
		return
	}
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	noted := len(d.changes)
	x, isObject := both[map[string]any](old, changed)
	y, isList := both[[]any](old, changed)
	switch {
	case isObject:
		if path != "" && (old == nil || changed == nil) {
			d.note(path, old, changed, false)
		}
		d.members(path, t, label, x[0], x[1])
	case isList:
		d.elements(path, t, y[0], y[1])
	}
	if len(d.changes) == noted {
		d.note(path, old, changed, true)
	}
}

// both are two trees of one kind, one of which may not be there.
func both[T any](old, changed any) (trees [2]T, ok bool) {
	x, isX := old.(T)
	y, isY := changed.(T)
	return [2]T{x, y}, (isX || old == nil) && (isY || changed == nil)
}

// note adds a change, with its values or without.
func (d *differ) note(path string, old, changed any, values bool) {
	c := api.Change{Path: path, Kind: api.Changed}
	switch {
	case old == nil:
		c.Kind = api.Added
	case changed == nil:
		c.Kind = api.Removed
	}
	if values {
		c.Old, c.New = raw(old), raw(changed)
	}
	d.changes = append(d.changes, c)
}

func raw(v any) json.RawMessage {
	if v == nil {
		return nil
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if enc.Encode(v) != nil {
		return nil // it was decoded from JSON
	}
	return bytes.TrimSpace(b.Bytes())
}

// members compares the members of two objects but for the label: those of a
// struct in its order, others by name.
func (d *differ) members(path string, t reflect.Type, label string, old, changed map[string]any) {
	all := maps.Clone(old)
	if all == nil {
		all = map[string]any{}
	}
	maps.Copy(all, changed)
	delete(all, label)
	if t != nil && t.Kind() == reflect.Struct {
		for _, f := range reflect.VisibleFields(t) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if _, there := all[name]; there && !f.Anonymous {
				delete(all, name)
				d.compare(join(path, word(name, f.Type)), f.Type, "", old[name], changed[name])
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		d.compare(key(path, t, name), elem(t), "", old[name], changed[name])
	}
}

// identifier matches the keys that follow a dot.
var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*$`)

// key is the path of a key of a map: text maps are in brackets, and what may be
// anything is as its user would write it.
func key(path string, t reflect.Type, name string) string {
	if elem(t) == nil && identifier.MatchString(name) {
		return join(path, name)
	}
	return path + "[" + strconv.Quote(name) + "]"
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// word is what a field is called in files: a list of blocks is as many blocks
// of one name.
func word(name string, t reflect.Type) string {
	if t.Kind() != reflect.Slice || t.Elem().Kind() != reflect.Struct {
		return name
	}
	if one, ok := strings.CutSuffix(name, "ies"); ok {
		return one + "y"
	}
	return strings.TrimSuffix(name, "s")
}

// elem is the type of the elements of a list or map, nil for anything.
func elem(t reflect.Type) reflect.Type {
	if t == nil || t.Kind() != reflect.Map && t.Kind() != reflect.Slice || t.Elem().Kind() == reflect.Interface {
		return nil
	}
	return t.Elem()
}

// labelOf is the member by which elements of a list are told apart.
func labelOf(t reflect.Type) string {
	if t == reflect.TypeFor[api.SpreadTarget]() {
		return "value"
	}
	return "name"
}

func (d *differ) elements(path string, t reflect.Type, old, changed []any) {
	label := labelOf(elem(t))
	was, namedOld := byName(old, label)
	is, namedNew := byName(changed, label)
	if !namedOld || !namedNew {
		for i := range max(len(old), len(changed)) {
			d.compare(path+"["+strconv.Itoa(i)+"]", elem(t), "", at(old, i), at(changed, i))
		}
		return
	}
	if x, y := common(was.order, is.order), common(is.order, was.order); !slices.Equal(x, y) {
		d.note(path, was.order, is.order, true)
	}
	for _, name := range was.order {
		d.compare(path+"["+strconv.Quote(name)+"]", elem(t), label, was.trees[name], is.trees[name])
	}
	for _, name := range is.order {
		if was.trees[name] == nil {
			d.compare(path+"["+strconv.Quote(name)+"]", elem(t), label, nil, is.trees[name])
		}
	}
}

func at(list []any, i int) any {
	if i < len(list) {
		return list[i]
	}
	return nil
}

// common are those names of a list that the other has too.
func common(list, other []string) []string {
	var all []string
	for _, name := range list {
		if slices.Contains(other, name) {
			all = append(all, name)
		}
	}
	return all
}

// named is a list whose elements have names.
type named struct {
	order []string
	trees map[string]any
}

// byName finds the names of a list's elements, unless one has none, or two have
// the same.
func byName(list []any, label string) (named, bool) {
	n := named{order: []string{}, trees: map[string]any{}}
	for _, e := range list {
		object, _ := e.(map[string]any)
		name, _ := object[label].(string)
		if name == "" || n.trees[name] != nil {
			return n, false
		}
		n.order = append(n.order, name)
		n.trees[name] = e
	}
	return n, true
}
