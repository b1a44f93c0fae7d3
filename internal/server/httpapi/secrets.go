package httpapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/keyring"
	"github.com/berth-dev/berth/internal/state"
)

// Keyring seals secrets before they are proposed, and opens them for agents.
type Keyring interface {
	Empty() bool
	Generate() error
	Seal(text []byte, purpose string) (keyID string, box []byte, err error)
	Open(keyID string, box []byte, purpose string) ([]byte, error)
}

// purpose is what a volume's secrets are sealed for. No name holds a NUL. The
// volumes of a family are made like one of them, with what is sealed for it.
func purpose(ns api.NamespaceID, vol api.VolumeID) string {
	if family, _, ok := vol.Family(); ok {
		vol = family + "[]"
	}
	return "volume\x00" + string(ns) + "\x00" + string(vol)
}

// seal makes what is to be proposed of secrets that a request brought: nothing
// if they are those that there are, and always nothing readable.
func (h *Handler) seal(v state.View, ns api.NamespaceID, vol api.VolumeID, secrets map[string]string) (*api.SealedSecrets, error) {
	if secrets == nil {
		return nil, nil
	}
	if len(secrets) == 0 && v.VolumeSecrets(ns, vol) != nil {
		return &api.SealedSecrets{}, nil
	}
	if h.same(v, ns, vol, secrets) {
		return nil, nil
	}
	if err := h.key(v); err != nil {
		return nil, err
	}
	text, err := json.Marshal(secrets)
	if err != nil {
		return nil, err
	}
	sealed := &api.SealedSecrets{Names: api.SecretNames(secrets)}
	sealed.KeyID, sealed.Box, err = h.Keyring.Seal(text, purpose(ns, vol))
	return sealed, err
}

// same reports whether a volume has these secrets already. What cannot be
// opened any more may be replaced.
func (h *Handler) same(v state.View, ns api.NamespaceID, vol api.VolumeID, secrets map[string]string) bool {
	old := v.VolumeSecrets(ns, vol)
	if old == nil {
		return len(secrets) == 0
	}
	known, err := h.open(old)
	return err == nil && maps.Equal(known, secrets)
}

// key makes the cluster's root key with the first secret. Where something is
// sealed already there is a key, and a second one would divide the cluster.
func (h *Handler) key(v state.View) error {
	switch {
	case h.Keyring == nil:
		return errNoKeyring()
	case !h.Keyring.Empty():
		return nil
	case v.AnySecrets():
		return api.Errorf(api.CodeForbidden, "the cluster has secrets, and this server has no key: copy keyring.json from the data directory of a server that has it, then start this server again")
	}
	if err := h.Keyring.Generate(); err != nil {
		return err
	}
	h.out.Info("made the cluster's root key: keep a copy of keyring.json, apart from the saved states")
	return nil
}

func errNoKeyring() error {
	return api.Errorf(api.CodeForbidden, "this server keeps no secrets: it has no keyring")
}

// errUnknownKey says of what is sealed, such as "variable a is", that it cannot be
// opened here.
func errUnknownKey(what, id string) error {
	return api.Errorf(api.CodeForbidden, "%s sealed with key %s, which this server does not have: "+
		"copy keyring.json from the data directory of a server that has it, then start this server again", what, id)
}

// open reads sealed secrets.
func (h *Handler) open(s *api.VolumeSecrets) (map[string]string, error) {
	if h.Keyring == nil {
		return nil, errNoKeyring()
	}
	text, err := h.Keyring.Open(s.KeyID, s.Box, purpose(s.Namespace, s.VolumeID))
	if unknown, ok := errors.AsType[*keyring.UnknownKeyError](err); ok {
		return nil, errUnknownKey("the secrets of volume "+string(s.VolumeID)+" are", unknown.ID)
	}
	if err != nil {
		return nil, fmt.Errorf("read the secrets of volume %s: %w", s.VolumeID, err)
	}
	secrets := map[string]string{}
	if err := json.Unmarshal(text, &secrets); err != nil {
		return nil, fmt.Errorf("read the secrets of volume %s: they are no map of strings", s.VolumeID)
	}
	return secrets, nil
}

// secrets answers an agent that is about to make a call for a volume.
func (h *Handler) secrets(r *request) (any, error) {
	node := api.NodeID(r.Header.Get(api.HeaderNode))
	if err := h.authenticate(r, node); err != nil {
		return nil, err
	}
	v := h.Log.View()
	ns, vol := r.namespace(), api.VolumeID(r.PathValue("id"))
	if !needs(v, node, ns, vol) {
		return nil, api.Errorf(api.CodeForbidden, "node %s has no call to make for volume %s of namespace %s", node, vol, ns)
	}
	sealed := v.VolumeSecrets(ns, vol)
	if sealed == nil {
		return api.Secrets{}, nil
	}
	secrets, err := h.open(sealed)
	return api.Secrets{Secrets: secrets}, err
}

// needs reports whether a node may have a call to make that takes the volume's
// secrets: it has an operation of the volume, or is to mount it.
func needs(v state.View, node api.NodeID, ns api.NamespaceID, vol api.VolumeID) bool {
	for op := range v.NodeOperations(node) {
		if op.Namespace == ns && op.VolumeID == vol && op.Status.State == api.OperationAssigned {
			return true
		}
	}
	for at := range v.NodeHolders(ns, vol, node) {
		if at.Status.State.Before(api.Unpublishing) {
			return true
		}
	}
	return false
}

// applyVolume is the command of a request, with its secrets sealed.
func (h *Handler) applyVolume(ns api.NamespaceID, id api.VolumeID, spec api.VolumeSpec, version uint64) (*command.ApplyVolume, error) {
	apply, err := bareVolume(ns, id, spec, version)
	if err != nil {
		return nil, err
	}
	apply.UID = newVolumeUID(h.Log.View())
	apply.Secrets, err = h.seal(h.Log.View(), ns, id, spec.Secrets)
	return apply, err
}

// plannedVolume is the command of a request that only asks. Nothing is sealed,
// and no key is made, for what nobody keeps.
func (h *Handler) plannedVolume(ns api.NamespaceID, id api.VolumeID, spec api.VolumeSpec, version uint64) (*command.ApplyVolume, error) {
	apply, err := bareVolume(ns, id, spec, version)
	if spec.Secrets != nil && err == nil && !h.same(h.Log.View(), ns, id, spec.Secrets) {
		apply.Secrets = &api.SealedSecrets{}
		if len(spec.Secrets) > 0 {
			apply.Secrets = &api.SealedSecrets{Names: api.SecretNames(spec.Secrets), KeyID: "planned", Box: []byte("planned")}
		}
	}
	return apply, err
}

// bareVolume is the command of a request without its secrets, which are checked.
func bareVolume(ns api.NamespaceID, id api.VolumeID, spec api.VolumeSpec, version uint64) (*command.ApplyVolume, error) {
	apply := &command.ApplyVolume{Namespace: ns, ID: id, UID: newUID(), Spec: spec, Version: version}
	apply.Spec.Secrets = nil
	var p api.Problems
	p.Merge(apply.Validate())
	p.Merge(spec.ValidateSecrets())
	return apply, p.Err("volume " + string(id))
}
