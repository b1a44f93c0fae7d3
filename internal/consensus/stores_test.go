package consensus_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/berth-dev/berth/internal/consensus"
)

func TestServerKeepsItsIDWhenItsMachineGetsAnotherName(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	id := func(dir, name string) string {
		stores, err := consensus.OpenStores(dir, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		id, err := stores.ServerID(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := stores.Close(); err != nil {
			t.Fatal(err)
		}
		return id
	}
	first := id(dir, "db-1")
	if !strings.HasPrefix(first, "db-1-") {
		t.Errorf("id = %q, want it to begin with the name", first)
	}
	if again := id(dir, "renamed"); again != first {
		t.Errorf("id = %q after the machine was renamed, want %q", again, first)
	}
	if other := id(t.TempDir(), "db-1"); other == first {
		t.Errorf("a server without that log has its id %q", other)
	}
	memory := consensus.MemoryStores()
	if id, err := memory.ServerID("n"); err != nil || !strings.HasPrefix(id, "n-") {
		t.Errorf("id = %q, %v in memory", id, err)
	}
}
