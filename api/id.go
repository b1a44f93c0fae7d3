package api

import (
	"fmt"
	"strconv"
	"strings"
)

// Ids are named string types, so that one is never passed for another.
type (
	// NamespaceID names a tenant's room for jobs and volumes.
	NamespaceID string
	// NodeID is given by an agent to itself at its first start: the node's
	// name, a dash and eight random hex digits. It never changes afterwards.
	NodeID string
	// PluginID is the name under which an operator configured a CSI driver.
	PluginID string
	// VolumeID is a user's name for a volume, unique in its namespace. One of a
	// family has a number in brackets at its end: pg[0], pg[1].
	VolumeID string
	// SnapshotID is a user's name for a snapshot, unique in its namespace.
	SnapshotID string
	// VariablePath is a user's name for a variable, unique in its namespace: words
	// with slashes between them.
	VariablePath string
	// JobID is a user's name for a job, unique in its namespace.
	JobID string
	// AllocID is 32 hex digits, derived from the job's UID and a serial.
	AllocID string
	// OperationID is the name of an operation, an @ and its serial:
	// publish/default/pg/db-1-9f31c2aa@3.
	OperationID string
)

// DefaultNamespace is meant where a file or a request names none.
const DefaultNamespace NamespaceID = "default"

// ShortIDLength is how many characters of an AllocID people read and type.
const ShortIDLength = 8

// Short is the part of an allocation's id that tables print. Every command
// accepts any unambiguous prefix.
func (id AllocID) Short() string {
	if len(id) <= ShortIDLength {
		return string(id)
	}
	return string(id[:ShortIDLength])
}

// Member is the volume of a family that an allocation of that index gets.
func (id VolumeID) Member(index int) VolumeID {
	return VolumeID(fmt.Sprintf("%s[%d]", id, index))
}

// Family is the name that the volumes of a family have in common, and the
// volume's number among them. ok is false for a volume of no family.
func (id VolumeID) Family() (name VolumeID, index int, ok bool) {
	base, rest, found := strings.Cut(string(id), "[")
	digits, closed := strings.CutSuffix(rest, "]")
	if !found || !closed {
		return "", 0, false
	}
	index, err := strconv.Atoi(digits)
	if err != nil || index < 0 || index >= maxCount || strconv.Itoa(index) != digits {
		return "", 0, false
	}
	return VolumeID(base), index, true
}

// volumeIDProblem says what is wrong with a volume's name, or "".
func volumeIDProblem(id string) (message, mend string) {
	if !strings.ContainsAny(id, "[]") {
		return nameProblem(id)
	}
	name, _, ok := VolumeID(id).Family()
	if !ok {
		return "has brackets, and ends with no number in them",
			fmt.Sprintf("use a name, or a name and a number from 0 to %d such as %q", maxCount-1, "pg[0]")
	}
	return nameProblem(string(name))
}

// maxNameLength bounds the names that users choose. A volume's name travels in
// operation names, and stays below the 128 bytes that the CSI specification
// grants a string.
const maxNameLength = 63

// nameProblem says what is wrong with a user's name for a thing, or "".
func nameProblem(name string) (message, mend string) {
	const rule = "use 1 to 63 letters, digits, dots, dashes or underscores, the first a letter or digit"
	switch {
	case name == "":
		return "is empty", rule
	case len(name) > maxNameLength:
		return "is longer than 63 characters", rule
	}
	for i, r := range name {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		if letter || i > 0 && strings.ContainsRune("._-", r) {
			continue
		}
		if i == 0 && strings.ContainsRune("._-", r) {
			return "begins with " + strconv.Quote(string(r)), rule
		}
		return "has the character " + strconv.Quote(string(r)), rule
	}
	return "", ""
}
