package command

import (
	"slices"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/state"
)

// PutVariable stores what a user puts under a path, sealed, in the place of what
// was there.
type PutVariable struct {
	Namespace api.NamespaceID  `json:"namespace"`
	Path      api.VariablePath `json:"path"`
	// Keys are those of the items, sorted.
	Keys []string `json:"keys"`
	// KeyID names the key that Box is sealed with: the items.
	KeyID   string `json:"key_id"`
	Box     []byte `json:"box"`
	Version uint64 `json:"version,omitempty"`
	// IfAbsent: only if there is no such variable.
	IfAbsent bool `json:"if_absent,omitempty"`
}

// maxBox bounds what is sealed: the items as JSON, in which a character takes at
// most six bytes, and what sealing adds.
const maxBox = 7 * api.MaxVariableItems

// Kind implements Command.
func (*PutVariable) Kind() Kind { return "variable.put" }

// Validate implements Command. The values cannot be read here.
func (c *PutVariable) Validate() error {
	var p api.Problems
	p.Name("namespace", string(c.Namespace))
	p.VariablePath("path", c.Path)
	p.VariableKeys(c.Keys)
	switch {
	case len(c.Keys) == 0 || !slices.IsSorted(c.Keys):
		p.Add("keys", "are none, or not in order", "name the keys of the items, sorted")
	case c.KeyID == "" || len(c.Box) == 0:
		p.Add("box", "is missing", "seal the items")
	case len(c.Box) > maxBox:
		p.Addf("box", "shorten the items", "is %d bytes", len(c.Box))
	}
	return p.Err("variable " + string(c.Path))
}

// Apply implements Command. Who reads the variable need not be there.
func (c *PutVariable) Apply(tx *state.Tx) error {
	old := tx.Variable(c.Namespace, c.Path)
	if err := checkAbsent("variable", string(c.Path), metaOf(old), c.IfAbsent); err != nil {
		return err
	}
	if err := checkVersion("variable", string(c.Path), metaOf(old), c.Version); err != nil {
		return err
	}
	next := &api.Variable{Namespace: c.Namespace, Path: c.Path}
	if old != nil {
		copied := *old
		next = &copied
	}
	next.Keys = c.Keys
	tx.PutVariable(next)
	tx.PutVariableContent(&state.VariableContent{Namespace: c.Namespace, Path: c.Path, KeyID: c.KeyID, Box: c.Box})
	return nil
}

// DeleteVariable removes a variable. Whoever has read it keeps what it read.
type DeleteVariable struct {
	Namespace api.NamespaceID  `json:"namespace"`
	Path      api.VariablePath `json:"path"`
	Version   uint64           `json:"version,omitempty"`
}

// Kind implements Command.
func (*DeleteVariable) Kind() Kind { return "variable.delete" }

// Validate implements Command.
func (c *DeleteVariable) Validate() error { return nil }

// Apply implements Command.
func (c *DeleteVariable) Apply(tx *state.Tx) error {
	old := tx.Variable(c.Namespace, c.Path)
	if old == nil {
		return api.Errorf(api.CodeNotFound, "variable %s does not exist in namespace %s", c.Path, c.Namespace)
	}
	if err := checkVersion("variable", string(c.Path), metaOf(old), c.Version); err != nil {
		return err
	}
	tx.DeleteVariable(old)
	tx.DeleteVariableContent(tx.VariableContent(c.Namespace, c.Path))
	return nil
}
