package cluster

import (
	"context"
	"net"
	"sync"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
	"github.com/berth-dev/berth/internal/agent"
	"github.com/berth-dev/berth/internal/agent/csi/csitest"
	"github.com/berth-dev/berth/internal/agent/driver"
	"github.com/berth-dev/berth/internal/agent/dynamicplugins"
	"github.com/berth-dev/berth/internal/telemetry"
)

// Node is one machine: what survives an agent, and the agent while it runs.
type Node struct {
	Name    string
	cluster *Cluster
	machine *Machine
	driver  *csitest.Driver
	dir     string

	mu         sync.Mutex // guards below
	agent      *agent.Agent
	client     *client.Client
	stop       context.CancelFunc
	ended      chan error
	stopServer context.CancelFunc // of the driver
	servedTo   chan error
	cut        bool
}

// Machine is the node's own: mounts, tasks and the boot.
func (n *Node) Machine() *Machine { return n.machine }

// Dir is the agent's data directory.
func (n *Node) Dir() string { return n.dir }

// ID is the node's, while its agent runs.
func (n *Node) ID() api.NodeID {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.agent == nil {
		return ""
	}
	return n.agent.NodeID()
}

// Agent is the agent that runs, or nil.
func (n *Node) Agent() *agent.Agent {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.agent
}

// Start starts the agent on what it left behind.
func (n *Node) Start() {
	n.cluster.TB.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.agent != nil {
		return
	}
	dial := Dialer(n.dial)
	if wire := n.cluster.cfg.Wire; wire != nil {
		dial = wire(dial)
	}
	cl, err := client.New(client.Config{
		Address: "http://server",
		Dial:    func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
	})
	if err != nil {
		n.cluster.TB.Fatal(err)
	}
	var metrics *telemetry.Registry
	if len(n.cluster.Nodes) > 0 && n.cluster.Nodes[0] == n {
		metrics = n.cluster.cfg.Metrics
	}
	a, err := agent.New(agent.Config{
		Metrics: metrics,
		DataDir: n.dir, Name: n.Name, Version: "test", Servers: cl, BootID: n.machine.BootID(),
		Plugins: []dynamicplugins.Plugin{{ID: PluginID, Type: api.InstanceMonolith, Dial: n.driver.Dialer()}},
		Drivers: []driver.Driver{n.machine.Tasks},
		Table:   n.machine.Table,
	}, n.cluster.cfg.Log.With("node", n.Name))
	if err != nil {
		n.cluster.TB.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	n.agent, n.client, n.stop, n.ended = a, cl, stop, ended
}

// Kill ends the agent. Tasks, mounts and the local database stay as they are.
func (n *Node) Kill() {
	n.mu.Lock()
	stop, ended, cl := n.stop, n.ended, n.client
	n.agent, n.client, n.stop, n.ended = nil, nil, nil, nil
	n.mu.Unlock()
	if stop == nil {
		return
	}
	stop()
	if err := <-ended; err != nil {
		n.cluster.TB.Errorf("agent of %s ended with %v", n.Name, err)
	}
	cl.Close()
}

// Reboot kills everything on the machine; only disks stay.
func (n *Node) Reboot() {
	n.Kill()
	n.stopDriver()
	n.machine.Reboot()
	n.cluster.Backend.Reboot(n.Name)
	n.startDriver()
}

// Cut separates the node from the server.
func (n *Node) Cut() { n.setCut(true) }

// Mend joins the node and the server again.
func (n *Node) Mend() { n.setCut(false) }

func (n *Node) setCut(cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut = cut
	if n.client != nil {
		n.client.Close()
	}
}

// dial reaches the server unless the node is cut off.
func (n *Node) dial(ctx context.Context) (net.Conn, error) {
	n.mu.Lock()
	cut := n.cut
	n.mu.Unlock()
	if cut {
		return nil, &net.OpError{Op: "dial", Err: context.DeadlineExceeded}
	}
	return n.cluster.dial(ctx)
}

// startDriver starts the driver's process.
func (n *Node) startDriver() {
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	lis := n.driver.Listen()
	go func() { served <- n.driver.Serve(ctx, lis) }()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stopServer, n.servedTo = stop, served
}

// stopDriver kills the driver's process.
func (n *Node) stopDriver() {
	n.mu.Lock()
	stop, served := n.stopServer, n.servedTo
	n.stopServer = nil
	n.mu.Unlock()
	if stop == nil {
		return
	}
	stop()
	if err := <-served; err != nil {
		n.cluster.TB.Errorf("driver of %s ended with %v", n.Name, err)
	}
}

// RestartDriver kills the driver's process and starts it again.
func (n *Node) RestartDriver() {
	n.stopDriver()
	n.startDriver()
}
