package statetest

import (
	"bytes"
	"encoding/json"
	"slices"
)

// member is one member of a JSON object. Objects are kept as lists of members,
// so that a row is printed in the order of its struct.
type member struct {
	name  string
	value json.RawMessage
}

// shorten leaves out whatever does not change the meaning of a JSON value: as
// long as same answers yes without it, it goes.
func shorten(value []byte, same func([]byte) bool) []byte {
	switch value[0] {
	case '{':
		return shortenObject(value, same)
	case '[':
		return shortenArray(value, same)
	}
	return value
}

func shortenObject(value []byte, same func([]byte) bool) []byte {
	members := membersOf(value)
	for i := len(members) - 1; i >= 0; i-- {
		if rest := slices.Delete(slices.Clone(members), i, i+1); same(object(rest)) {
			members = rest
			continue
		}
		members[i].value = shorten(members[i].value, func(b []byte) bool {
			changed := slices.Clone(members)
			changed[i].value = b
			return same(object(changed))
		})
	}
	return object(members)
}

func shortenArray(value []byte, same func([]byte) bool) []byte {
	var elements []json.RawMessage
	if err := json.Unmarshal(value, &elements); err != nil {
		return value
	}
	for i := range elements {
		elements[i] = shorten(elements[i], func(b []byte) bool {
			changed := slices.Clone(elements)
			changed[i] = b
			return same(array(changed))
		})
	}
	return array(elements)
}

// without is a JSON object without one of its members.
func without(value []byte, name string) []byte {
	return object(slices.DeleteFunc(membersOf(value), func(m member) bool { return m.name == name }))
}

// membersOf reads the members of a JSON object in their order.
func membersOf(value []byte) []member {
	dec := json.NewDecoder(bytes.NewReader(value))
	if _, err := dec.Token(); err != nil {
		return nil
	}
	var members []member
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil
		}
		m := member{name: name.(string)}
		if err := dec.Decode(&m.value); err != nil {
			return nil
		}
		members = append(members, m)
	}
	return members
}

func object(members []member) []byte {
	parts := make([][]byte, len(members))
	for i, m := range members {
		name, _ := json.Marshal(m.name) // a string always encodes
		parts[i] = slices.Concat(name, []byte{':'}, m.value)
	}
	return enclose('{', parts, '}')
}

func array(elements []json.RawMessage) []byte {
	parts := make([][]byte, len(elements))
	for i, e := range elements {
		parts[i] = e
	}
	return enclose('[', parts, ']')
}

func enclose(left byte, parts [][]byte, right byte) []byte {
	return slices.Concat([]byte{left}, bytes.Join(parts, []byte{','}), []byte{right})
}
