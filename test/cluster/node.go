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
	driver  *program
	// controller is the program of the controller service, if it has its own.
	controller *program
	dir        string

	mu     sync.Mutex // guards below
	agent  *agent.Agent
	client *client.Client
	stop   context.CancelFunc
	ended  chan error
	cut    bool
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
		Plugins: n.plugins(),
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
	n.StopDriver()
	runs := n.controller.running()
	n.StopController()
	n.machine.Reboot()
	n.cluster.Backend.Reboot(n.Name)
	n.StartDriver()
	if runs {
		n.StartController()
	}
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

// plugins are the programs of the plugin on the node.
func (n *Node) plugins() []dynamicplugins.Plugin {
	if n.controller == nil {
		return []dynamicplugins.Plugin{{ID: PluginID, Type: api.InstanceMonolith, Dial: n.driver.driver.Dialer()}}
	}
	return []dynamicplugins.Plugin{
		{ID: PluginID, Type: api.InstanceNode, Dial: n.driver.driver.Dialer()},
		{ID: PluginID, Type: api.InstanceController, Dial: n.controller.driver.Dialer()},
	}
}

// StartDriver starts the driver's process.
func (n *Node) StartDriver() { n.driver.start() }

// StopDriver kills the driver's process.
func (n *Node) StopDriver() { n.check(n.driver.kill()) }

// StartController starts the process of the controller service, which has its
// own in a cluster with Config.Split.
func (n *Node) StartController() { n.controller.start() }

// StopController kills it.
func (n *Node) StopController() { n.check(n.controller.kill()) }

func (n *Node) check(err error) {
	if err != nil {
		n.cluster.TB.Errorf("driver of %s ended with %v", n.Name, err)
	}
}

// RestartDriver kills the driver's process and starts it again.
func (n *Node) RestartDriver() {
	n.StopDriver()
	n.StartDriver()
}

// program is a driver, and its process if one runs.
type program struct {
	driver *csitest.Driver

	mu     sync.Mutex // guards below
	stop   context.CancelFunc
	served chan error
}

// start starts the process, unless it runs.
func (p *program) start() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stop != nil {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	served, lis := make(chan error, 1), p.driver.Listen()
	go func() { served <- p.driver.Serve(ctx, lis) }()
	p.stop, p.served = stop, served
}

// running reports whether the process runs.
func (p *program) running() bool {
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stop != nil
}

// kill ends the process, if it runs.
func (p *program) kill() error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stop == nil {
		return nil
	}
	p.stop()
	p.stop = nil
	return <-p.served
}
