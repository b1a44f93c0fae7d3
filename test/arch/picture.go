package arch

// Columns are the stacks of the picture, as a set.
type Columns uint8

// The columns. What stands in several is there for each of them.
const (
	People  Columns = 1 << iota // what people use: command line, files
	Servers                     // what turns state into commands
	Nodes                       // what turns assignments into facts
	Driver                      // the CSI driver that Berth brings along

	Every = People | Servers | Nodes | Driver
)

// Role is what a package is there for.
type Role int

// The roles.
const (
	// Part of the product.
	Part Role = iota
	// Main wires all columns, and nothing imports it.
	Main
	// Support is for tests: fakes, conformance suites, worlds.
	Support
	// Tests is there for its tests, and nothing imports it.
	Tests
	// Apart is a module of its own, which knows nothing of Berth.
	Apart
)

// Row says where a package stands.
type Row struct {
	Path    string
	Role    Role
	Columns Columns
	// Level: imports go to lower levels.
	Level int
	// Arrows are the packages of the same level that it imports nevertheless.
	Arrows []string
	// InTests are packages behind a wall that its tests import nevertheless, and
	// it does not.
	InTests []string
}

// Picture is the table of all packages.
func Picture() []Row { //nolint:funlen // a line for each package
	return []Row{
		{Path: "cmd/berth", Role: Main},

		// The nouns, and the leaves, which know at most the nouns.
		{Path: "api", Columns: Every, Level: 0, Arrows: []string{"internal/suggest"}},
		{Path: "internal/config", Columns: Every, Level: 0, Arrows: []string{"api", "internal/suggest"}},
		{Path: "internal/cron", Columns: People | Servers, Level: 0},
		{Path: "internal/fit", Columns: Every, Level: 0, Arrows: []string{"api"}},
		{Path: "internal/frame", Columns: Every, Level: 0},
		{Path: "internal/keyring", Columns: Servers, Level: 0},
		{Path: "internal/ownership", Columns: Nodes | Driver, Level: 0},
		{Path: "internal/radix", Columns: Servers, Level: 0},
		{Path: "internal/suggest", Columns: Every, Level: 0},
		{Path: "internal/supervise", Columns: Every, Level: 0},
		{Path: "internal/telemetry", Columns: Every, Level: 0},
		{Path: "internal/tree", Columns: Nodes | Driver, Level: 0},
		{Path: "api/client", Columns: People | Nodes, Level: 1},

		// People.
		{Path: "internal/spec", Columns: People, Level: 3},
		{Path: "internal/cli", Columns: People, Level: 4},
		{Path: "internal/cli/tracing", Columns: People, Level: 4},

		// Servers.
		{Path: "internal/state", Columns: Servers, Level: 1},
		{Path: "internal/state/statetest", Role: Support, Columns: Servers},
		{Path: "internal/command", Columns: Servers, Level: 2},
		{Path: "internal/consensus", Columns: Servers, Level: 2, Arrows: []string{"internal/command"}},
		{Path: "internal/feed", Columns: Servers, Level: 2},
		{Path: "internal/controller", Columns: Servers, Level: 2, Arrows: []string{"internal/command"}},
		{Path: "internal/controller/controllertest", Role: Support, Columns: Servers},
		{Path: "internal/controller/collector", Columns: Servers, Level: 3},
		{Path: "internal/controller/dispatcher", Columns: Servers, Level: 3},
		{Path: "internal/controller/drainer", Columns: Servers, Level: 3},
		{Path: "internal/controller/provisioner", Columns: Servers, Level: 3},
		{Path: "internal/controller/scheduler", Columns: Servers, Level: 3},
		{Path: "internal/controller/snapshotter", Columns: Servers, Level: 3},
		{Path: "internal/controller/volumewatcher", Columns: Servers, Level: 3},
		{Path: "internal/server/carrier", Columns: Servers, Level: 2},
		{Path: "internal/server/inquiry", Columns: Servers, Level: 2, Arrows: []string{"internal/server/carrier"}},
		{Path: "internal/server/room", Columns: Servers, Level: 3},
		{Path: "internal/server/sweep", Columns: Servers, Level: 3},
		{Path: "internal/server/tracing", Columns: Servers, Level: 3},
		{Path: "internal/server/heartbeat", Columns: Servers, Level: 3},
		// Server and client of one protocol: each would pass against a fake of the
		// other, and callers have only this client.
		{Path: "internal/server/httpapi", Columns: Servers, Level: 3, InTests: []string{"api/client"}},
		{Path: "internal/server", Columns: Servers, Level: 4},

		// Nodes.
		{Path: "internal/agent/tasklog", Columns: Nodes, Level: 1},
		{Path: "internal/agent/csi", Columns: Nodes, Level: 2},
		{Path: "internal/agent/csi/csitest", Role: Support, Columns: Nodes},
		{Path: "internal/agent/localdb", Columns: Nodes, Level: 2},
		{Path: "internal/agent/lookup", Columns: Nodes, Level: 2},
		{Path: "internal/agent/mount", Columns: Nodes, Level: 2},
		{Path: "internal/agent/probe", Columns: Nodes, Level: 2},
		{Path: "internal/agent/rendering", Columns: Nodes, Level: 2},
		{Path: "internal/agent/mount/mounttest", Role: Support, Columns: Nodes},
		{Path: "internal/agent/dynamicplugins", Columns: Nodes, Level: 2, Arrows: []string{"internal/agent/csi"}},
		{Path: "internal/agent/csimanager", Columns: Nodes, Level: 2, Arrows: []string{
			"internal/agent/csi", "internal/agent/dynamicplugins", "internal/agent/localdb", "internal/agent/mount",
		}},
		{Path: "internal/agent/driver/process", Columns: Nodes, Level: 2},
		{Path: "internal/agent/driver/cgroup", Columns: Nodes, Level: 2, Arrows: []string{"internal/agent/driver/process"}},
		{Path: "internal/agent/driver/executor/first", Columns: Nodes, Level: 2},
		{Path: "internal/agent/driver/visit", Columns: Nodes, Level: 2},
		{Path: "internal/agent/driver/visit/visittest", Role: Support, Columns: Nodes},
		{Path: "internal/agent/driver/executor", Columns: Nodes, Level: 2, Arrows: []string{
			"internal/agent/driver/cgroup", "internal/agent/driver/executor/first", "internal/agent/driver/process", "internal/agent/driver/visit",
		}},
		{Path: "internal/agent/driver", Columns: Nodes, Level: 3},
		{Path: "internal/agent/driver/docker", Columns: Nodes, Level: 3, Arrows: []string{"internal/agent/driver"}},
		{Path: "internal/agent/driver/docker/dockertest", Role: Support, Columns: Nodes},
		{Path: "internal/agent/operation", Columns: Nodes, Level: 3},
		{Path: "internal/agent/question", Columns: Nodes, Level: 3},
		{Path: "internal/agent/stream", Columns: Nodes, Level: 3},
		{Path: "internal/agent/assignment", Columns: Nodes, Level: 3},
		{Path: "internal/agent/runner", Columns: Nodes, Level: 3},
		{Path: "internal/agent/runner/runnertest", Role: Support, Columns: Nodes},
		{Path: "internal/agent/allocrunner", Columns: Nodes, Level: 3},
		// The hooks know the runner's shape, and not the other way round.
		{Path: "internal/agent/allocrunner/hook", Columns: Nodes, Level: 3, Arrows: []string{
			"internal/agent/allocrunner", "internal/agent/driver",
		}},
		{Path: "internal/agent", Columns: Nodes, Level: 4},

		// The local driver: a program of its own, which Berth knows by CSI only.
		{Path: "internal/localdriver/clone", Columns: Driver, Level: 3},
		{Path: "internal/localdriver/filesystem", Columns: Driver, Level: 3},
		{Path: "internal/localdriver/loop", Columns: Driver, Level: 3},
		{Path: "internal/localdriver/mount", Columns: Driver, Level: 3},
		{Path: "internal/localdriver/record", Columns: Driver, Level: 3},
		{Path: "internal/localdriver", Columns: Driver, Level: 4},

		// Tests of several packages together.
		{Path: "test/arch", Role: Tests, Columns: Every},
		{Path: "test/cluster", Role: Support, Columns: Every},
		{Path: "test/cli", Role: Tests, Columns: Every},
		{Path: "test/simulation", Role: Tests, Columns: Every},
		// These know the binary from the outside, as its users do.
		// Whether a node keeps its books, its local database tells.
		{Path: "test/host", Role: Support, Columns: People | Nodes},
		{Path: "test/integration", Role: Tests, Columns: People, InTests: []string{"internal/agent/driver/docker/dockertest"}},
		{Path: "test/e2e", Role: Tests, Columns: People, InTests: []string{"internal/agent/driver/docker/dockertest"}},
		{Path: "test/e2e/mockdriver", Role: Apart},
	}
}

// Wall says why one column may not know another.
type Wall struct {
	From, To Columns
	Reason   string
}

// Walls is the table of the bans between columns.
func Walls() []Wall {
	return []Wall{
		{Servers, Nodes, "servers never touch the outside world: what happens on a node they know from reported facts"},
		{Nodes, Servers, "agents never decide: they know the servers by the HTTP API only"},
		{People, Servers, "people reach the servers by the HTTP API, as everybody else does"},
		{People, Nodes, "people reach nodes through the servers"},
		{Servers, People, "servers take nouns, not files, flags, or calls to themselves"},
		{Nodes, People, "an agent reads no files of users: what it runs comes from the servers"},
		{Driver, People | Servers | Nodes, "the local driver is a driver like any other: it knows CSI, and not who calls it"},
		{People | Servers | Nodes, Driver, "drivers are known by CSI only, and so is ours"},
	}
}
