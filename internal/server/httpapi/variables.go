package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/keyring"
	"github.com/berth-dev/berth/internal/state"
)

func variables() listing[*api.Variable] {
	return listing[*api.Variable]{modified: state.View.VariablesIndex, rows: byNamespace(state.Variables())}
}

func (r *request) variable() (api.NamespaceID, api.VariablePath) {
	return r.namespace(), api.VariablePath(r.PathValue("path"))
}

// held is a variable with what it holds, as one view had them. Without a row
// there is none.
type held struct {
	row     *api.Variable
	content *state.VariableContent
	// at is when what there is, or that there is none, was last written, or later.
	at uint64
	// began is when the cluster's generation did, or later. After a restore all
	// variables are of that moment: what was known of them is of another past, and
	// may have a higher index.
	began uint64
}

func hold(v state.View, ns api.NamespaceID, path api.VariablePath) held {
	q := v.Quiet()
	got := held{row: v.Variable(ns, path), content: q.VariableContent(ns, path), at: q.VariablesIndex()}
	if got.row != nil {
		got.at = got.row.ModifyIndex
	}
	if c := v.Cluster(); c != nil {
		got.began = c.ModifyIndex
	}
	got.at = max(got.at, got.began)
	return got
}

// getVariable answers also while there is none: who has an index waits for one
// to come, and is not told of others that come.
func (h *Handler) getVariable(r *request) (any, error) {
	ns, path := r.variable()
	r.w.Header().Set("Cache-Control", "no-store")
	known := false // this request has found already that there is none
	found, err := h.block(r, func(v state.View) (any, uint64, error) {
		got := hold(v, ns, path)
		if got.row == nil && known {
			return got, got.began, nil
		}
		known = got.row == nil
		return got, got.at, nil
	})
	if err != nil {
		return nil, err
	}
	got, _ := found.(held)
	if got.row == nil {
		r.w.Header().Set(api.HeaderIndex, strconv.FormatUint(max(got.at, 1), 10))
		return nil, noSuch("variable", string(path), ns)
	}
	return h.opened.read(h, got)
}

// openedVariable keeps the last variable that was opened, as it is answered: a
// write wakes all who wait for it, and one of them opens it.
type openedVariable struct {
	mu   sync.Mutex // guards last
	last *opening
}

// opening is one version of a variable being opened, by the first who asks.
type opening struct {
	of     *state.VariableContent
	once   sync.Once
	answer encoded
	err    error
}

func (o *openedVariable) read(h *Handler, got held) (any, error) {
	o.mu.Lock()
	x := o.last
	if x == nil || x.of != got.content {
		x = &opening{of: got.content}
		o.last = x
	}
	o.mu.Unlock()
	x.once.Do(func() {
		var items map[string]string
		if items, x.err = h.openVariable(got.content); x.err != nil {
			return
		}
		var b bytes.Buffer
		x.err = json.NewEncoder(&b).Encode(api.VariableInfo{Variable: got.row, Items: items})
		x.answer = b.Bytes()
	})
	return x.answer, x.err
}

// putVariable replaces what is under a path. The same items again write nothing:
// nobody who reads them is woken.
func (h *Handler) putVariable(r *request) (any, error) {
	version, err := r.number("version")
	if err != nil {
		return nil, err
	}
	var spec api.VariableSpec
	if err := r.decode(&spec); err != nil {
		return nil, err
	}
	ns, path := r.variable()
	var p api.Problems
	p.Name("namespace", string(ns))
	p.VariablePath("path", path)
	p.Merge(spec.Validate())
	if err := p.Err("variable " + string(path)); err != nil {
		return nil, err
	}
	v := h.Log.View()
	if old := v.Variable(ns, path); old != nil && !r.ifAbsent && (version == 0 || version == old.Version) && h.holds(v, old, spec.Items) {
		return old, nil
	}
	if err := h.key(v); err != nil {
		return nil, err
	}
	text, err := json.Marshal(spec.Items)
	if err != nil {
		return nil, fmt.Errorf("encode variable %s: %w", path, err)
	}
	put := &command.PutVariable{Namespace: ns, Path: path, Keys: slices.Sorted(maps.Keys(spec.Items)), Version: version, IfAbsent: r.ifAbsent}
	if put.KeyID, put.Box, err = h.Keyring.Seal(text, variablePurpose(ns, path)); err != nil {
		return nil, err
	}
	if _, err := h.propose(r, put); err != nil {
		return nil, err
	}
	row := h.Log.View().Variable(ns, path)
	if row == nil {
		return nil, api.Errorf(api.CodeNotFound, "variable %s was written, and has been deleted since", path)
	}
	return row, nil
}

func (h *Handler) deleteVariable(r *request) (any, error) {
	version, err := r.number("version")
	if err != nil {
		return nil, err
	}
	ns, path := r.variable()
	_, err = h.propose(r, &command.DeleteVariable{Namespace: ns, Path: path, Version: version})
	return nil, err
}

// variablePurpose is what a variable's items are sealed for. No name holds a NUL.
func variablePurpose(ns api.NamespaceID, path api.VariablePath) string {
	return "variable\x00" + string(ns) + "\x00" + string(path)
}

// holds reports whether a variable has these items already. What cannot be opened
// any more may be replaced.
func (h *Handler) holds(v state.View, row *api.Variable, items map[string]string) bool {
	if !slices.Equal(row.Keys, slices.Sorted(maps.Keys(items))) {
		return false
	}
	known, err := h.openVariable(v.VariableContent(row.Namespace, row.Path))
	return err == nil && maps.Equal(known, items)
}

// openVariable reads sealed items.
func (h *Handler) openVariable(c *state.VariableContent) (map[string]string, error) {
	if h.Keyring == nil {
		return nil, errNoKeyring()
	}
	text, err := h.Keyring.Open(c.KeyID, c.Box, variablePurpose(c.Namespace, c.Path))
	if unknown, ok := errors.AsType[*keyring.UnknownKeyError](err); ok {
		return nil, errUnknownKey("variable "+string(c.Path)+" is", unknown.ID)
	}
	if err != nil {
		return nil, fmt.Errorf("read variable %s: %w", c.Path, err)
	}
	items := map[string]string{}
	if err := json.Unmarshal(text, &items); err != nil {
		return nil, fmt.Errorf("read variable %s: it holds no map of strings", c.Path) // the error could repeat a part of it
	}
	return items, nil
}
