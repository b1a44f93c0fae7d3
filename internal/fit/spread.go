package fit

import "hash/fnv"

// spread is an arbitrary number that is always the same for the same name. It
// stands where a random one would, in code that must not have any.
func spread(name string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name)) // never fails
	return h.Sum32()
}
