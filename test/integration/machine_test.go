package integration_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	dockerclient "github.com/moby/moby/client"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
	"github.com/berth-dev/berth/internal/agent/driver/docker/dockertest"
	"github.com/berth-dev/berth/test/host"
)

// machine is an agent and the local driver, with a gate in between.
type machine struct {
	*fleet
	plugin *host.Plugin       // nil if the driver is a job
	root   string             // of the driver's volumes
	base   string             // of a driver that is a job, where that finds its directory
	jobs   int                // that always run
	gate   *host.Gate         // between the agent and the driver
	engine *dockertest.Engine // nil if the writer is no container
	block  bool               // the volume is a block device
	starts int                // of the writer so far
}

// newMachine starts an agent beside the driver as a process of its own.
func newMachine(t *testing.T, opts host.Options) *machine {
	t.Helper()
	p := host.StartPlugin(t, opts.Boot)
	g := host.StartGate(t, p.Socket)
	opts.Config += fmt.Sprintf("plugin \"disk\" {\n socket = %q\n}\n", g.Socket)
	b := host.Start(t, opts)
	t.Cleanup(g.Open)
	m := &machine{fleet: &fleet{tb: t, berth: b, client: b.Client()}, plugin: p, root: p.Root, gate: g}
	t.Cleanup(m.lastSeen)
	return m
}

// lastSeen says of a test that failed what everybody says of the machine, before
// it is taken down.
func (m *machine) lastSeen() {
	if !m.tb.Failed() {
		return
	}
	say := func(args ...string) {
		out, errOut, status := m.berth.Try(args...)
		m.tb.Logf("berth %s: exit status %d\n%s%s", strings.Join(args, " "), status, out, errOut)
	}
	say("node", "list")
	say("plugin", "list")
	say("volume", "explain", "pg")
	say("job", "explain", "db")
	var allocs []api.Allocation
	out, _, _ := m.berth.Try("alloc", "list", "--json")
	if err := json.Unmarshal([]byte(out), &allocs); err != nil {
		m.tb.Logf("alloc list: %v\n%s", err, out)
	}
	for i := range allocs {
		if a := &allocs[i]; a.Desired == api.DesireRun || !a.Status.State.Terminal() {
			say("alloc", "status", string(a.ID))
		}
	}
	if m.engine != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(m.tb.Context()), 10*time.Second)
		defer cancel()
		list, err := m.engine.Client.ContainerList(ctx, dockerclient.ContainerListOptions{All: true})
		m.tb.Logf("containers %+v (%v), held by processes %d", list.Items, err, m.engine.Shims())
	}
	for _, p := range m.processes(filepath.Dir(m.berth.DataDir) + "/") {
		m.tb.Logf("process %d: %s", p.pid, p.line)
	}
}

// prepare makes the volume.
func (m *machine) prepare() {
	m.tb.Helper()
	spec := strings.ReplaceAll(volumeFile, `"local"`, `"disk"`)
	if m.block {
		spec = strings.ReplaceAll(spec, `"file-system"`, `"block-device"`)
	}
	m.berth.Apply(spec)
}

// What the writer runs: it counts its starts and its ticks, and takes a moment to
// end, which can be seen.
const (
	writesFiles = `trap 'touch /data/stopping; sleep 0.3; rm /data/stopping; exit 0' INT; echo start >> /data/starts; while true; do date +%s%N >> /data/ticks; sleep 0.05; done`
	writesSlots = `d=/dev/data; note() { printf '%-16s' \"$2\" | dd of=$d bs=16 seek=$1 conv=notrunc status=none; }; ` +
		`more() { n=$(dd if=$d bs=16 skip=$1 count=1 status=none | tr -d '\\0 '); note $1 $(($n + 1)); }; ` +
		`trap 'note 2 stopping; sleep 0.3; note 2 gone; exit 0' INT; more 0; while true; do more 1; sleep 0.05; done`
)

// slots are where on a block device the writer keeps what is a file elsewhere.
func slots() map[string]int64 { return map[string]int64{"starts": 0, "ticks": 1, "stopping": 2} }

// writer is a job that writes to the volume.
func (m *machine) writer() {
	m.tb.Helper()
	job := jobFile
	if m.block {
		job = strings.NewReplacer(`"file-system"`, `"block-device"`, `"/data"`, `"/dev/data"`).Replace(job)
	}
	does := writesFiles
	if m.block {
		does = writesSlots
	}
	m.berth.Apply(m.contained(strings.NewReplacer(
		`echo start >> /data/starts; while true; do date +%s%N >> /data/ticks; sleep 0.05; done`, does,
		`group "main" {`, "group \"main\" {\n restart {\n attempts = 5\n delay = \"10ms\"\n interval = \"1m\"\n mode = \"delay\"\n}\n",
		`kill_timeout = "1s"`, `kill_timeout = "5s"`,
	).Replace(job)), "--detach")
}

// contained is a job of exec's as a container's, if there is an engine.
func (m *machine) contained(job string) string {
	if m.engine == nil {
		return job
	}
	return strings.NewReplacer(`"exec"`, `"docker"`, "config {", fmt.Sprintf("config {\n image = %q\n network_mode = \"none\"", dockertest.Busybox),
		"exit 0' INT;", "exit 0' TERM;").Replace(job)
}

// containers are those that the engine runs. What it knows, and does not run, is
// a problem of a node at rest.
func (m *machine) containers() (running []string, err error) {
	if m.engine == nil {
		return nil, nil
	}
	list, err := m.engine.Client.ContainerList(m.tb.Context(), dockerclient.ContainerListOptions{All: true})
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		if c := &list.Items[i]; c.State != container.StateRunning {
			return nil, fmt.Errorf("container %s is %s", c.Names[0], c.State)
		}
		running = append(running, list.Items[i].Names[0])
	}
	if shims := m.engine.Shims(); len(shims) != len(running) {
		return nil, fmt.Errorf("%d containers run, and processes %d hold some", len(running), shims)
	}
	return running, nil
}

// settled waits until everybody says the same of the machine.
func (m *machine) settled(when string, running int) {
	m.tb.Helper()
	m.berth.Eventually(when+": all agree", limit, func() error {
		a, err := m.berth.Account(m.client, m.root)
		if err == nil {
			a.Containers, err = m.containers()
		}
		if err != nil {
			return err
		}
		if d := a.Disagreements(); len(d) > 0 {
			return errors.New(strings.Join(d, "; "))
		}
		if len(a.Running) != running+m.jobs || len(a.Stagings) != running {
			return fmt.Errorf("%d allocations run and %d volumes are staged, want %d and %d", len(a.Running), len(a.Stagings), running+m.jobs, running)
		}
		return nil
	})
}

// target is where the volume is mounted, or "".
func (m *machine) target() string {
	ats, _, err := m.client.Attachments(m.tb.Context(), client.Query{})
	if err != nil {
		return ""
	}
	for _, at := range ats {
		if at.Status.State != api.Freed && at.Status.TargetPath != "" {
			return m.berth.Path(at.Status.TargetPath)
		}
	}
	return ""
}

// lines counts the lines of a file on the volume, which is what its place on a
// block device says.
func (m *machine) lines(name string) int {
	if m.block {
		n, _ := strconv.Atoi(m.slot(name)) // nothing was written there yet
		return n
	}
	b, err := os.ReadFile(filepath.Join(m.target(), name))
	if err != nil {
		return 0
	}
	return strings.Count(string(b), "\n")
}

// slot is what is at a place of the block device.
func (m *machine) slot(name string) string {
	at := m.target()
	if info, err := os.Stat(at); err != nil || info.Mode()&os.ModeDevice == 0 {
		return ""
	}
	f, err := os.Open(at)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }() // it was only read
	b := make([]byte, 16)
	if _, err := f.ReadAt(b, 16*slots()[name]); err != nil {
		return ""
	}
	return strings.Trim(string(b), "\x00 ")
}

// stopping reports whether the writer has heard that it is to end.
func (m *machine) stopping() bool {
	if m.block {
		return m.slot("stopping") == "stopping"
	}
	_, err := os.Stat(filepath.Join(m.target(), "stopping"))
	return err == nil
}

// supervisor is the process of a task's supervisor, or 0.
func (m *machine) supervisor(task string) int {
	for _, p := range m.processes(m.berth.DataDir + "/") {
		if strings.Contains(p.line, " executor ") && strings.Contains(p.line, "-"+task) {
			return p.pid
		}
	}
	return 0
}

// kill kills processes, and returns when they are dead.
func (m *machine) kill(pids ...int) {
	m.tb.Helper()
	for _, pid := range pids {
		if pid <= 0 {
			continue
		}
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended by itself
		m.await(fmt.Sprintf("the end of process %d", pid), func() bool {
			line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			return err != nil || len(line) == 0
		})
	}
}

type proc struct {
	pid  int
	line string
}

// processes are those whose command line has a text in it.
func (*machine) processes(text string) (found []proc) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		b, err := os.ReadFile(f)
		line := strings.ReplaceAll(string(b), "\x00", " ")
		if err == nil && strings.Contains(line, text) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
			found = append(found, proc{pid, line})
		}
	}
	return found
}

// await polls for what no call and no event tells of: a moment of a process.
func (m *machine) await(what string, seen func() bool) {
	m.tb.Helper()
	ctx, cancel := context.WithTimeout(m.tb.Context(), limit)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !seen() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			m.tb.Fatalf("%s does not come", what)
		}
	}
}
