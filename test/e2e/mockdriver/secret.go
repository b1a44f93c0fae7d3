package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// secrets are what calls must come with, by key. It is a flag.Value.
type secrets map[string]string

// String is empty: the flag has no default to show.
func (s secrets) String() string { return "" }

// Set adds the secret KEY=VALUE.
func (s secrets) Set(arg string) error {
	key, value, ok := strings.Cut(arg, "=")
	if !ok || key == "" {
		return fmt.Errorf("want KEY=VALUE")
	}
	s[key] = value
	return nil
}

// check refuses a request that has a field for secrets (CSI spec, Secrets
// Requirements) and not all of these in it. ListSnapshots may pass: it asks
// about everybody's snapshots, and the caller has nobody's secrets for it.
func (s secrets) check(request any) error {
	told, takes := request.(interface{ GetSecrets() map[string]string })
	if _, lists := request.(*csi.ListSnapshotsRequest); !takes || lists {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(s)) {
		got, ok := told.GetSecrets()[key]
		switch {
		case !ok:
			return status.Errorf(codes.Unauthenticated, "secret %q is missing", key)
		case got != s[key]:
			return status.Errorf(codes.Unauthenticated, "secret %q is wrong", key)
		}
	}
	return nil
}
