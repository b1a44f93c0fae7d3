package state

import "github.com/berth-dev/berth/api"

// VariableContent is what a variable holds, sealed. It is a row of its own, which
// no list, no answer and no event has.
type VariableContent struct {
	Namespace api.NamespaceID  `json:"namespace"`
	Path      api.VariablePath `json:"path"`
	// KeyID names the key that Box is sealed with.
	KeyID string `json:"key_id"`
	Box   []byte `json:"box"`
}

func variablesTable() *table[api.Variable] {
	return define[api.Variable](tableVariables, unique(primary, func(b []byte, x *api.Variable) []byte {
		return appendKey(b, string(x.Namespace), string(x.Path))
	}))
}

func contentsTable() *table[VariableContent] {
	return define[VariableContent](tableContents, unique(primary, func(b []byte, x *VariableContent) []byte {
		return appendKey(b, string(x.Namespace), string(x.Path))
	}))
}

// Variables has the key namespace, path.
func Variables() Table[api.Variable] { return tableOf[api.Variable](variablesTable()) }

// VariablesIndex is when a variable was last written.
func (v View) VariablesIndex() uint64 { return v.modified(tableVariables) }

// Variable is a variable without its values, or nil.
func (v View) Variable(ns api.NamespaceID, path api.VariablePath) *api.Variable {
	return first[api.Variable](v, tableVariables, primary, key(string(ns), string(path)))
}

// VariableContent is what a variable holds, or nil if there is none.
func (v View) VariableContent(ns api.NamespaceID, path api.VariablePath) *VariableContent {
	return first[VariableContent](v, tableContents, primary, key(string(ns), string(path)))
}

// PutVariable stores a new variable, or a changed copy.
func (tx *Tx) PutVariable(x *api.Variable) { put(tx, tableVariables, x) }

// DeleteVariable removes a variable that is there.
func (tx *Tx) DeleteVariable(x *api.Variable) { remove(tx, tableVariables, x) }

// PutVariableContent stores what a variable holds.
func (tx *Tx) PutVariableContent(c *VariableContent) { insert(tx, tableContents, c) }

// DeleteVariableContent removes what is there.
func (tx *Tx) DeleteVariableContent(c *VariableContent) { remove(tx, tableContents, c) }
