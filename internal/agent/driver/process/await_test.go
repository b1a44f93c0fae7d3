package process_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/berth-dev/berth/internal/agent/driver/process"
)

func TestAwaitReturnsWhenTheProcessEnds(t *testing.T) {
	t.Parallel()
	_, id := spawn(t, "sleep", "1000")
	returned := make(chan struct{})
	go func() {
		id.Await(t.Context(), time.Hour)
		close(returned)
	}()
	if err := id.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-returned
}

// What cannot be watched is waited for, so that nobody spins.
func TestAwaitTakesItsTimeForStrangers(t *testing.T) {
	t.Parallel()
	_, id := spawn(t, "sleep", "1000")
	earlier := id
	earlier.Start--
	const limit = 20 * time.Millisecond
	for _, stranger := range []process.ID{{}, earlier, id} {
		began := time.Now()
		stranger.Await(t.Context(), limit)
		if took := time.Since(began); took < limit {
			t.Errorf("waited %s for %+v, want %s", took, stranger, limit)
		}
	}
}
