package localdriver_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/berth-dev/berth/internal/localdriver"
)

// Tests that kill a driver run it in a process of its own: this test program
// again, told by its environment to be a driver.
const (
	childRoot  = "LOCALDRIVER_ROOT"
	childSock  = "LOCALDRIVER_SOCK"
	childCrash = "LOCALDRIVER_CRASH_AT"
	// childCrashNth is how many times it comes to the step; 1 if it is not set.
	childCrashNth = "LOCALDRIVER_CRASH_NTH"
	// childAlone: it takes its own children along.
	childAlone = "LOCALDRIVER_CRASH_ALONE"
)

func TestMain(m *testing.M) {
	if os.Getenv(childRoot) != "" {
		fmt.Fprintln(os.Stderr, beDriver())
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// beDriver serves until it is killed; at the step in its environment it kills
// itself, as kill -9 would: without a single deferred call.
func beDriver() error {
	cfg := config(os.Getenv(childRoot), os.Getenv(childSock))
	d, err := localdriver.New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	crash := os.Getenv(childCrash)
	nth, _ := strconv.Atoi(os.Getenv(childCrashNth))
	var times atomic.Int64
	d.OnStep(func(step string) {
		if step != crash || times.Add(1) < int64(nth) {
			return
		}
		if os.Getenv(childAlone) != "" {
			killChildren()
		}
		if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
			panic(err)
		}
		select {}
	})
	return d.Run(context.Background())
}

// killChildren kills what this process has started.
func killChildren() {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		panic(err)
	}
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		// pid (name) state parent ...
		_, rest, _ := strings.Cut(string(stat), ") ")
		if fields := strings.Fields(rest); len(fields) > 1 && fields[1] == strconv.Itoa(os.Getpid()) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			if err != nil {
				panic(err)
			}
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				panic(err)
			}
		}
	}
}

func config(root, sock string) localdriver.Config {
	return localdriver.Config{Root: root, Endpoint: "unix://" + sock, NodeID: nodeID, Version: "1.2.3"}
}
