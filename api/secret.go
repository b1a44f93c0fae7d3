package api

import (
	"maps"
	"slices"
	"strings"
)

// VolumeSecrets is what is kept of a volume's secrets: a row of its own, which
// no answer and no event shows.
type VolumeSecrets struct {
	Meta
	Namespace NamespaceID `json:"namespace"`
	VolumeID  VolumeID    `json:"volume_id"`
	SealedSecrets
}

// SealedSecrets are secrets that only the holder of a key can read.
type SealedSecrets struct {
	// Names are sorted; there are none if secrets were removed.
	Names []string `json:"names,omitempty"`
	// KeyID names the key that Box is sealed with.
	KeyID string `json:"key_id,omitempty"`
	Box   []byte `json:"box,omitempty"`
}

// SecretNames are the names of secrets, sorted.
func SecretNames(secrets map[string]string) []string { return slices.Sorted(maps.Keys(secrets)) }

// Secrets is the servers' answer to an agent that is about to make a call.
type Secrets struct {
	Secrets map[string]string `json:"secrets,omitempty"`
}

// ValidateSecrets reports every problem of the spec's secrets alone.
func (s *VolumeSpec) ValidateSecrets() error {
	var p Problems
	validateSecrets(&p, s.Secrets)
	return p.Err("the volume")
}

// validateSecrets checks what CSI allows (CSI spec, Secrets Requirements), and
// repeats no value.
func validateSecrets(p *Problems, secrets map[string]string) {
	size := 0
	for _, name := range SecretNames(secrets) {
		size += len(name) + len(secrets[name])
		plain := strings.TrimFunc(name, func(r rune) bool {
			return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.'
		})
		if name == "" || plain != "" {
			p.Addf("secrets", "use letters, digits, dots, dashes and underscores", "has the name %q", name)
		}
		if strings.ContainsRune(secrets[name], 0) {
			p.Addf("secrets", "remove it", "has a NUL character in %s", name)
		}
	}
	if size > maxCSIMap {
		p.Addf("secrets", "shorten them", "are %d bytes, more than the %d that CSI allows", size, maxCSIMap)
	}
}
