package api

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Variable is what the cluster keeps under a path, for jobs to read: its row,
// which says what there is and none of its values.
type Variable struct {
	Meta
	Namespace NamespaceID  `json:"namespace"`
	Path      VariablePath `json:"path"`
	// Keys are those of its items, sorted.
	Keys []string `json:"keys"`
}

// VariableInfo is a variable with its values. It is answered to who reads one
// variable, and is nowhere else.
type VariableInfo struct {
	*Variable
	Items map[string]string `json:"items"`
}

// VariableSpec is what a user puts under a path. It replaces what was there.
type VariableSpec struct {
	Items map[string]string `json:"items"`
}

// Bounds of a variable.
const (
	// MaxVariablePath is how long a path is at most, in bytes.
	MaxVariablePath = 128
	// MaxVariableItems is how large the items are at most, keys and values, in
	// bytes.
	MaxVariableItems = 64 << 10
	// maxVariableKey is how long a key is at most, in bytes.
	maxVariableKey = 128
)

// JobVariables is where the variables of jobs are, by the path of who reads
// them: nomad/jobs, nomad/jobs/JOB, nomad/jobs/JOB/GROUP, nomad/jobs/JOB/GROUP/TASK.
// A job whose name has a dot has no place of its own: paths have none.
const JobVariables VariablePath = "nomad/jobs"

// Validate reports every problem of the items, and repeats no value.
func (s *VariableSpec) Validate() error {
	var p Problems
	size := 0
	for _, key := range slices.Sorted(maps.Keys(s.Items)) {
		size += len(key) + len(s.Items[key])
		p.variableKey(key)
		if !utf8.ValidString(s.Items[key]) {
			p.Addf("items", "encode it, as base64 for one", "has a value at %q that is no text in UTF-8", key)
		}
	}
	if len(s.Items) == 0 {
		p.Add("items", "is empty", "give at least one key and its value, or delete the variable")
	}
	if size > MaxVariableItems {
		p.Addf("items", "shorten them, or make several variables", "are %d bytes, more than the %d that a variable holds", size, MaxVariableItems)
	}
	return p.Err("the variable")
}

// VariableKeys reports every problem of the keys of items.
func (p *Problems) VariableKeys(keys []string) {
	for _, key := range keys {
		p.variableKey(key)
	}
}

func (p *Problems) variableKey(key string) {
	const mend = "use 1 to 128 bytes of text on one line"
	switch {
	case key == "":
		p.Add("items", "has an empty key", mend)
	case len(key) > maxVariableKey:
		p.Addf("items", mend, "has a key of %d bytes: %q...", len(key), strings.ToValidUTF8(key[:32], ""))
	case !utf8.ValidString(key) || strings.ContainsFunc(key, unicode.IsControl):
		p.Addf("items", mend, "has the key %q", key)
	}
}

// PlainKey reports whether templates can name a key with a dot before it.
func PlainKey(key string) bool {
	for i, r := range key {
		letter := r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		if !letter && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return key != ""
}

// VariablePath checks a user's path for a variable.
func (p *Problems) VariablePath(path string, of VariablePath) {
	if message, mend := variablePathProblem(string(of)); message != "" {
		p.Add(path, message, mend)
	}
}

// variablePathProblem says what is wrong with a path, or "".
func variablePathProblem(path string) (message, mend string) {
	const rule = "use 1 to 128 letters, digits, dashes, underscores, tildes, and slashes between them"
	switch {
	case path == "":
		return "is empty", rule
	case len(path) > MaxVariablePath:
		return fmt.Sprintf("is longer than %d characters", MaxVariablePath), rule
	}
	for _, r := range path {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		if !letter && !strings.ContainsRune("-_~/", r) {
			return fmt.Sprintf("has the character %q", r), rule
		}
	}
	parts := strings.Split(path, "/")
	switch {
	case slices.Contains(parts, ""):
		return fmt.Sprintf("is %q, and has a slash with nothing before or after it", path), rule
	case parts[0] == "nomad" && (len(parts) < 2 || parts[1] != "jobs"):
		return fmt.Sprintf("is %q", path), fmt.Sprintf("use %s, or what is below it: nothing else that begins with nomad is anybody's", JobVariables)
	case parts[0] == "nomad" && len(parts) > 5:
		return fmt.Sprintf("is %q", path), fmt.Sprintf("use %s/JOB/GROUP/TASK at most: nothing that is below that is read", JobVariables)
	}
	return "", ""
}
