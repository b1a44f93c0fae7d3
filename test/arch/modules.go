package arch

import "slices"

// Home says where a module of other people may be imported. A home is a
// package, or a package and all below it ("internal/localdriver/...").
type Home struct {
	Module string
	// Packages are empty for what only tests import. Tests and test support may
	// import every module that has a line here.
	Packages []string
	Reason   string
}

// Homes is the table of all modules that the product and its tests import.
func Homes() []Home {
	var (
		csi    = []string{"internal/agent/csi", "internal/localdriver"}
		kernel = []string{"internal/agent/driver/...", "internal/agent/mount", "internal/localdriver/..."}
	)
	return []Home{
		// State and log.
		{"github.com/klauspost/compress", []string{"internal/state"}, "saved states"},
		{"github.com/hashicorp/raft", []string{"internal/consensus", "internal/server", "cmd/berth"},
			"only consensus reaches the log; the other two hand it a transport"},
		{"github.com/hashicorp/raft-wal", []string{"internal/consensus"}, "the log's store"},
		{"github.com/hashicorp/go-hclog", []string{"internal/consensus"}, "raft logs through it; everything else uses slog"},

		// Nodes.
		{"go.etcd.io/bbolt", []string{"internal/agent/localdb"}, "a node's memory is one file with one owner"},
		{"github.com/container-storage-interface/spec", csi, "the nouns and CSI's messages meet in one place on each side"},
		{"google.golang.org/grpc", csi, "gRPC is CSI's transport, and not Berth's"},
		{"google.golang.org/protobuf", csi, "messages of CSI"},
		{"google.golang.org/genproto/googleapis/rpc", []string{"internal/agent/csi"}, "messages of gRPC"},
		{"golang.org/x/sys", append(slices.Clone(kernel), "internal/ownership", "internal/tree", "internal/agent/tasklog", "cmd/berth"), "system calls stay where mounts, processes and the terminal are"},
		{"github.com/moby/sys/mountinfo", kernel, "the mount table"},
		{"github.com/moby/sys/capability", []string{"internal/agent/driver/...", "internal/config"}, "the kernel's capabilities and their names"},
		{"github.com/moby/sys/user", []string{"internal/agent/driver"}, "the user that a task runs as"},
		{"github.com/opencontainers/cgroups", []string{"internal/agent/driver/..."}, "tasks in cgroups"},
		{"github.com/moby/moby/client", []string{"internal/agent/driver/docker"}, "tasks as containers of an engine"},
		{"github.com/moby/moby/api", []string{"internal/agent/driver/docker"}, "messages of the engine"},
		{"github.com/containerd/errdefs", []string{"internal/agent/driver/docker"}, "errors of the engine"},
		{"github.com/distribution/reference", []string{"internal/agent/driver/docker"}, "names of images"},
		{"github.com/opencontainers/runc", []string{"internal/agent/driver/..."}, "isolated tasks"},

		// People.
		{"github.com/spf13/cobra", []string{"internal/cli", "cmd/berth"}, "the command line"},
		{"github.com/spf13/pflag", []string{"internal/cli"}, "the flags of cobra"},
		{"github.com/hashicorp/hcl/v2", []string{"internal/spec", "internal/config"}, "files that people write"},
		{"github.com/zclconf/go-cty", []string{"internal/spec"}, "values of HCL"},
		{"github.com/agext/levenshtein", []string{"internal/suggest"}, "the word that was meant"},

		// Numbers.
		{"go.opentelemetry.io/otel", []string{"internal/server/tracing", "internal/cli/tracing"}, "traces: made from what is recorded, and nothing else knows of them"},
		{"github.com/prometheus/client_golang", []string{"internal/telemetry"}, "metrics: what counts knows instruments, and not who reads them"},

		// Times.
		{"github.com/robfig/cron/v3", []string{"internal/cron"}, "cron expressions; only its parser"},

		// Anywhere.
		{"golang.org/x/sync", []string{"internal/..."}, "errgroup: goroutines that somebody waits for"},

		// Tests.
		{"github.com/anishathalye/porcupine", nil, "linearizable histories"},
		{"github.com/google/go-cmp", nil, "differences"},
		{"github.com/kubernetes-csi/csi-test/v5", nil, "csi-sanity"},
		{"github.com/onsi/ginkgo/v2", nil, "csi-sanity runs in it"},
		{"github.com/onsi/gomega", nil, "csi-sanity fails through it"},
		{"github.com/rogpeppe/go-internal", []string{"internal/cli"}, "what berth fmt would change; in tests txtar, testscript"},
		{"go.opentelemetry.io/proto/otlp", nil, "what a collector of traces gets"},
		{"go.uber.org/goleak", nil, "goroutines that nobody waits for"},
		{"pgregory.net/rapid", nil, "generated histories"},
	}
}

// Ban keeps parts of the standard library out of packages. Tests may import
// what they like.
type Ban struct {
	// Packages of the standard library; with "..." all below, as in Home.
	Packages []string
	// In are the packages that it holds for, Except those that it does not.
	In, Except []string
	Reason     string
}

// Bans is the table of all bans of the standard library.
func Bans() []Ban {
	return []Ban{
		{
			Packages: []string{"os/...", "io/fs", "path/filepath", "net", "net/http/...", "net/rpc/...", "net/smtp", "syscall", "unsafe"},
			In:       pure(),
			Reason:   "Apply, Reconcile and the rules are arithmetic: they touch nothing outside",
		},
		{
			Packages: []string{"math/rand/...", "crypto/rand", "hash/maphash"},
			In:       pure(),
			Reason:   "Apply, Reconcile and the rules are arithmetic: every replica and every run get the same result",
		},
		{
			Packages: []string{"testing/..."},
			In:       []string{"..."},
			Reason:   "the product carries no tests; fakes and suites stand in packages for tests",
		},
		{
			Packages: []string{"log"},
			In:       []string{"..."},
			Except:   []string{"internal/consensus"}, // raft's pipe to its logger
			Reason:   "logs go through slog, to a logger that was passed in",
		},
		{
			Packages: []string{"expvar", "net/http/pprof"},
			In:       []string{"..."},
			Reason:   "they add themselves to the default HTTP handler, which anybody could serve",
		},
	}
}

// pure are the packages without clock, chance, and outside world. That they
// have no clock is for the linter, which sees calls and not imports only.
func pure() []string {
	return []string{"api", "internal/command", "internal/controller/...", "internal/fit", "internal/state"}
}
