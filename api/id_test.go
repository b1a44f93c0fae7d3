package api_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
)

func TestNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"a":                                 "",
		"9":                                 "",
		"A.b-c_d":                           "",
		"a..":                               "",
		strings.Repeat("x", 63):             "",
		strings.Repeat("x", 64):             "is longer than 63 characters",
		"":                                  "is empty",
		".":                                 `begins with "."`,
		"..":                                `begins with "."`,
		"-a":                                `begins with "-"`,
		"a/b":                               `has the character "/"`,
		"a b":                               `has the character " "`,
		"a@1":                               `has the character "@"`,
		"naïve":                             `has the character "ï"`,
		"a\x00b":                            `has the character "\x00"`,
		"a\nb":                              `has the character "\n"`,
		"a\x1b[31m":                         `has the character "\x1b"`,
		"a\xff":                             "has the character \"\uFFFD\"",
		strings.Repeat("ï", 32):             "is longer than 63 characters",
		"x" + strings.Repeat("-", 61) + "/": `has the character "/"`,
	} {
		var p api.Problems
		p.Name("name", name)
		if want != "" {
			want = "it has a problem\n  name " + want + nameRule
		}
		if diff := cmp.Diff(want, message(p.Err("it"))); diff != "" {
			t.Errorf("name %q (-want +got):\n%s", name, diff)
		}
	}
}

// TestAllocIDs: ids are derived on the leader and are in its log, so they stay
// what they are.
func TestAllocIDs(t *testing.T) {
	t.Parallel()
	want := map[uint64]api.AllocID{1: "df59627bb46b6305a0a3dcb831d96c1d", 2: "1f47472cf977f66344b90511cccecdd0"}
	for serial, id := range want {
		if got := api.NewAllocID("uid", serial); got != id {
			t.Errorf("NewAllocID(uid, %d) = %q, want %q", serial, got, id)
		}
	}
	if got := api.NewAllocID("uid", 1).Short(); got != "df59627b" {
		t.Errorf("Short() = %q, want its first 8 characters", got)
	}
	if got := api.AllocID("abc").Short(); got != "abc" {
		t.Errorf("Short() of a short id = %q, want it whole", got)
	}
	if got := (&api.Allocation{JobID: "db", Group: "main", Index: 2}).Name(); got != "db.main[2]" {
		t.Errorf("Name() = %q", got)
	}
}

func TestOperationIDs(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		kind api.OperationKind
		node api.NodeID
		want api.OperationID
	}{
		{api.OperationCreate, "", "create/default/pg@3"},
		{api.OperationDelete, "", "delete/default/pg@3"},
		{api.OperationPublish, "db-1-9f31c2aa", "publish/default/pg/db-1-9f31c2aa@3"},
		{api.OperationUnpublish, "db-1-9f31c2aa", "unpublish/default/pg/db-1-9f31c2aa@3"},
	} {
		got := api.NewOperationID(api.OperationName(tc.kind, "default", "pg", tc.node), 3)
		if got != tc.want || got.Kind() != tc.kind {
			t.Errorf("got %q of kind %s, want %q of kind %s", got, got.Kind(), tc.want, tc.kind)
		}
	}
}
