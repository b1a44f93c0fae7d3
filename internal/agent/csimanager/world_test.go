package csimanager_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/csi"
	"github.com/berth-dev/berth/internal/agent/csi/csitest"
	"github.com/berth-dev/berth/internal/agent/csimanager"
	"github.com/berth-dev/berth/internal/agent/dynamicplugins"
	"github.com/berth-dev/berth/internal/agent/localdb"
	"github.com/berth-dev/berth/internal/agent/mount"
	"github.com/berth-dev/berth/internal/agent/mount/mounttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// scratch is a directory in memory where the machine has such a file system,
// with a short path.
func scratch(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "csimanager-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// facts records what is said.
type facts struct {
	mu        sync.Mutex
	instances []api.InstanceFact
	staged    map[string]bool
	grown     map[string]int64
}

func (f *facts) SetInstance(i api.InstanceFact) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.instances = append(f.instances, i)
}

func (f *facts) SetPublication(p api.PublicationFact) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.staged == nil {
		f.staged, f.grown = map[string]bool{}, map[string]int64{}
	}
	id := string(p.Namespace) + "/" + string(p.VolumeID)
	f.staged[id], f.grown[id] = p.Staged, p.Grown
}

// size is the size that was last said that volume pg has grown to.
func (f *facts) size() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.grown["default/pg"]
}

// said is every fact about instances so far, and last the newest one.
func (f *facts) said() []api.InstanceFact {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.instances)
}

func (f *facts) last(t testing.TB) api.InstanceFact {
	t.Helper()
	all := f.said()
	if len(all) == 0 {
		t.Fatal("nothing was said of the instance")
	}
	return all[len(all)-1]
}

func (f *facts) publications() map[string]bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.staged)
}

// ledger is a local database in memory. Records go through JSON, as in the
// real one, so that nobody shares them.
type ledger struct {
	mu        sync.Mutex
	stagings  map[string][]byte
	instances map[string][]byte
	up        []api.AllocID // the allocations that run
	writes    int
	// fail is asked before and after every write, and with what it answers the
	// write ends. The write is done unless it was refused before.
	fail func(write int, after bool) error
}

func newLedger() *ledger {
	return &ledger{stagings: map[string][]byte{}, instances: map[string][]byte{}}
}

func (l *ledger) Allocations() (all []localdb.Allocation, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range l.up {
		all = append(all, localdb.Allocation{Phase: localdb.PhaseUp, Assignment: api.AllocAssignment{ID: id}})
	}
	return all, nil
}

func (l *ledger) DeleteInstance(i *localdb.Instance) error {
	return l.write(func() error {
		delete(l.instances, string(i.PluginID)+"\x00"+string(i.AllocID))
		return nil
	})
}

func (l *ledger) Staging(ns api.NamespaceID, vol api.VolumeID) (*localdb.Staging, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.stagings[localdb.StagingKey(ns, vol)]
	if b == nil {
		return nil, nil
	}
	var s localdb.Staging
	return &s, json.Unmarshal(b, &s)
}

func (l *ledger) Stagings() ([]localdb.Staging, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []localdb.Staging
	for _, key := range slices.Sorted(maps.Keys(l.stagings)) {
		var s localdb.Staging
		if err := json.Unmarshal(l.stagings[key], &s); err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

func (l *ledger) PutStaging(s *localdb.Staging) error {
	return l.write(func() error {
		b, err := json.Marshal(s)
		l.stagings[s.Key()] = b
		return err
	})
}

func (l *ledger) DeleteStaging(ns api.NamespaceID, vol api.VolumeID) error {
	return l.write(func() error {
		delete(l.stagings, localdb.StagingKey(ns, vol))
		return nil
	})
}

func (l *ledger) write(do func() error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writes++
	if l.fail != nil {
		if err := l.fail(l.writes, false); err != nil {
			return err
		}
	}
	if err := do(); err != nil {
		return err
	}
	if l.fail != nil {
		return l.fail(l.writes, true)
	}
	return nil
}

func (l *ledger) Instances() ([]localdb.Instance, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []localdb.Instance
	for _, key := range slices.Sorted(maps.Keys(l.instances)) {
		var i localdb.Instance
		if err := json.Unmarshal(l.instances[key], &i); err != nil {
			return nil, err
		}
		all = append(all, i)
	}
	return all, nil
}

func (l *ledger) PutInstance(i *localdb.Instance) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	b, err := json.Marshal(i)
	l.instances[string(i.PluginID)+"\x00"+string(i.AllocID)] = b
	return err
}

// lose forgets all stagings, as a local database that was put back does.
func (l *ledger) lose() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.stagings)
}

func (l *ledger) size() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.stagings)
}

// plugin is what the world's plugin is registered as.
const plugin api.PluginID = "provider"

// world is one machine with a driver and what of an agent deals with it.
type world struct {
	t       testing.TB
	backend *csitest.Backend
	driver  *csitest.Driver
	kill    func() // the driver
	client  *csi.Client
	options csitest.Options

	root   string
	boot   int
	table  mounttest.System
	ledger *ledger
	// wrapped are the ledger and the table as the mounter gets them.
	wrappedLedger csimanager.Ledger
	wrappedTable  mount.Table

	plugin   dynamicplugins.Plugin
	registry *dynamicplugins.Registry
	facts    *facts
	manager  *csimanager.Manager
	mounter  *csimanager.Mounter
	stop     func() // the agent

	asked  []string // volumes whose secrets were asked for
	sealed error    // why there are none
}

// passphrase is a volume's secret.
const passphrase = "correct horse battery staple"

// Secrets implements csimanager.Secrets.
func (w *world) Secrets(_ context.Context, ns api.NamespaceID, vol api.VolumeID) (map[string]string, error) {
	w.asked = append(w.asked, string(ns)+"/"+string(vol))
	return map[string]string{"passphrase": passphrase}, w.sealed
}

// newWorld starts a machine whose mounts are in memory.
func newWorld(t testing.TB, o csitest.Options) *world {
	t.Helper()
	table := mounttest.New()
	return startWorld(t, o, table, csitest.TableMounts(table))
}

func startWorld(t testing.TB, o csitest.Options, table mounttest.System, mounts csitest.Mounter) *world {
	t.Helper()
	w := &world{
		t: t, backend: csitest.NewBackend(o), options: o,
		root: scratch(t), table: table, ledger: newLedger(),
	}
	w.wrappedLedger, w.wrappedTable = w.ledger, w.table
	w.driver = w.backend.Node(csitest.Node{ID: "n1", Mounter: mounts, Topology: map[string]string{"zone": "a"}})
	w.kill = w.driver.Start(t)
	w.client = csi.New(w.driver.Dialer(), csi.Config{}, discard())
	if o.MultiWriter {
		multi := []string{api.CapSingleNodeMultiWrite}
		w.client = w.client.WithCapabilities(multi, multi)
	}
	t.Cleanup(func() { _ = w.client.Close() })
	w.plugin = dynamicplugins.Plugin{ID: plugin, Type: api.InstanceMonolith, Dial: w.driver.Dialer()}
	w.start()
	t.Cleanup(func() { w.stop() })
	return w
}

// start starts an agent on what is there.
func (w *world) start() {
	w.t.Helper()
	w.registry, w.facts = dynamicplugins.New(), &facts{}
	w.registry.Register(w.plugin)
	w.manager = csimanager.NewManager(w.registry, w.ledger, w.facts, discard())
	w.newMounter()
	w.stop = runManager(w.t, w.manager)
	w.settle()
}

// settle waits for the plugin.
func (w *world) settle() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 10*time.Second)
	defer cancel()
	w.manager.Settled(ctx)
	if ctx.Err() != nil {
		w.t.Fatalf("the plugin is not healthy: %+v", w.facts.said())
	}
}

// newMounter is the mounter of an agent that was restarted; its manager knows
// nothing that could be lost.
func (w *world) newMounter() {
	w.mounter = csimanager.NewMounter(
		csimanager.MounterConfig{Root: w.root, BootID: fmt.Sprint("boot-", w.boot), Facts: w.facts, Secrets: w},
		w.manager, w.wrappedTable, w.wrappedLedger, discard())
}

// runManager runs a manager until stop is called.
func runManager(t testing.TB, m *csimanager.Manager) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	return sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the manager ended with %v", err)
		}
	})
}

// restart ends the agent and starts another one.
func (w *world) restart() {
	w.t.Helper()
	w.stop()
	w.start()
}

// reboot ends everything on the machine but its disk.
func (w *world) reboot() {
	w.t.Helper()
	w.stop()
	w.kill()
	w.boot++
	w.backend.Reboot("n1")
	w.table.(*mounttest.Table).Clear()
	w.kill = w.driver.Start(w.t)
	w.start()
}

// wish is a volume as allocations want it; what it leaves open is the usual.
type wish struct {
	namespace api.NamespaceID
	volume    api.VolumeID
	mode      api.AccessMode
	block     bool
}

// volume makes a volume at the provider, attached to the node, and answers how
// the allocation "alloc-1" wants it.
func (w *world) volume(v wish) *api.AttachmentAssignment {
	w.t.Helper()
	a := &api.AttachmentAssignment{Attachment: api.Attachment{
		AllocID: "alloc-1", Name: "data", Namespace: v.namespace, VolumeID: v.volume,
		PluginID: plugin, AccessMode: v.mode, AttachmentMode: api.FileSystem,
	}}
	at := &a.Attachment
	if at.Namespace == "" {
		at.Namespace = "default"
	}
	if at.VolumeID == "" {
		at.VolumeID = "pg"
	}
	if at.AccessMode == "" {
		at.AccessMode = api.SingleNodeWriter
	}
	if v.block {
		at.AttachmentMode = api.BlockDevice
	}
	capabilities := []api.Capability{{AccessMode: at.AccessMode, AttachmentMode: at.AttachmentMode}}
	if at.AccessMode == api.MultiNodeMultiWriter {
		capabilities = append(capabilities, api.Capability{AccessMode: api.MultiNodeReaderOnly, AttachmentMode: at.AttachmentMode})
	}
	made, err := w.create(api.CreateRequest{Name: string(at.Namespace) + "-" + string(at.VolumeID), Capabilities: capabilities})
	if err != nil {
		w.t.Fatal(err)
	}
	a.ExternalID, a.Context = made.ExternalID, made.Context
	if !w.options.Attach {
		return a
	}
	attached, err := w.client.ControllerPublish(w.t.Context(), api.PublishRequest{
		ExternalID: made.ExternalID, ExternalNodeID: "n1", Capability: capabilities[0], Context: made.Context,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	a.PublishContext = attached.PublishContext
	return a
}

// create makes the volume. On a busy machine the driver may not listen yet.
func (w *world) create(r api.CreateRequest) (made api.OperationResult, err error) {
	w.t.Helper()
	for range 3000 {
		made, err = w.client.CreateVolume(w.t.Context(), r)
		if refused, ok := errors.AsType[*csi.Error](err); !ok || !refused.Unsent {
			return made, err
		}
		<-time.NewTimer(10 * time.Millisecond).C
	}
	return made, err
}

// shared is a volume that many may write to, from one node.
func (w *world) shared() *api.AttachmentAssignment {
	return w.volume(wish{mode: api.MultiNodeMultiWriter})
}

// user is another allocation's wish for the same volume.
func user(a *api.AttachmentAssignment, alloc api.AllocID, name string) *api.AttachmentAssignment {
	other := *a
	other.Attachment.AllocID, other.Attachment.Name = alloc, name
	return &other
}

func (w *world) mount(a *api.AttachmentAssignment) string {
	w.t.Helper()
	target, err := w.mounter.Mount(w.t.Context(), a)
	if err != nil {
		w.t.Fatalf("mount: %v", err)
	}
	return target
}

func (w *world) unmount(a *api.AttachmentAssignment) {
	w.t.Helper()
	if err := w.mounter.Unmount(w.t.Context(), a); err != nil {
		w.t.Fatalf("unmount: %v", err)
	}
}

// wantMounts fails unless the node has exactly these attachments mounted, each
// once, and nobody saw a rule broken.
func (w *world) wantMounts(users ...*api.AttachmentAssignment) {
	w.t.Helper()
	wanted := []string{}
	for _, a := range users {
		wanted = append(wanted, w.mounter.TargetPath(&a.Attachment))
	}
	slices.Sort(wanted)
	kernel := w.mountsBelow("mount")
	if diff := cmp.Diff(wanted, kernel); diff != "" {
		w.t.Errorf("the mount table (-want +got):\n%s", diff)
	}
	published := []string{}
	for _, v := range w.backend.Volumes() {
		for _, p := range v.Published {
			published = append(published, strings.TrimPrefix(p, "n1:"))
		}
	}
	slices.Sort(published)
	if diff := cmp.Diff(wanted, published); diff != "" {
		w.t.Errorf("the provider's publications (-want +got):\n%s", diff)
	}
	w.wantNoViolations()
}

// target is where the request data of alloc-1 is mounted.
func (w *world) target() string {
	return w.mounter.TargetPath(&api.Attachment{PluginID: plugin, AllocID: "alloc-1", Name: "data"})
}

// dir is where the plugin's volumes are.
func (w *world) dir() string { return csimanager.PluginDir(w.root, plugin) }

func (w *world) mountsBelow(dir string) []string {
	w.t.Helper()
	rows, err := w.table.Under(filepath.Join(w.dir(), dir))
	if err != nil {
		w.t.Fatal(err)
	}
	paths := []string{}
	for _, m := range rows {
		paths = append(paths, m.Path)
	}
	slices.Sort(paths)
	return paths
}

func (w *world) wantNoViolations() {
	w.t.Helper()
	for _, v := range w.backend.Violations() {
		w.t.Errorf("the provider saw: %s", v)
	}
}

// wantNothing fails if anything of any volume is left on the node: mounts,
// stagings, records, paths, or servers that believe in one.
func (w *world) wantNothing() {
	w.t.Helper()
	w.wantMounts()
	if left := w.mountsBelow("."); len(left) > 0 {
		w.t.Errorf("still mounted: %v", left)
	}
	for _, v := range w.backend.Volumes() {
		if len(v.Staged) > 0 {
			w.t.Errorf("volume %s is still staged", v.Name)
		}
	}
	if n := w.ledger.size(); n > 0 {
		w.t.Errorf("%d stagings are still recorded", n)
	}
	for id, staged := range w.facts.publications() {
		if staged {
			w.t.Errorf("the servers were told last that %s is staged", id)
		}
	}
	for _, dir := range []string{"stage", "mount"} {
		left, err := os.ReadDir(filepath.Join(w.dir(), dir))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			w.t.Error(err)
		}
		for _, e := range left {
			w.t.Errorf("%s/%s is left", dir, e.Name())
		}
	}
}

// calls renders the node calls with an effect since the last look.
func (w *world) calls() string {
	var s strings.Builder
	for line := range strings.Lines(csitest.Sequence(w.backend.Calls())) {
		if strings.HasPrefix(line, "Node") {
			words := strings.Fields(line)
			fmt.Fprintf(&s, "%s %s\n", words[0], words[len(words)-1])
		}
	}
	return s.String()
}

// wantStep fails unless err is a StepError of this step with this code and a
// message that has these words.
func wantStep(t testing.TB, err error, step, code string, words ...string) {
	t.Helper()
	var e *csimanager.StepError
	if !errors.As(err, &e) {
		t.Fatalf("error = %v, want a step's", err)
	}
	gotStep, gotCode, message := e.Problem()
	if gotStep != step || gotCode != code {
		t.Errorf("the error is of step %q with code %q, want %q and %q: %v", gotStep, gotCode, step, code, err)
	}
	for _, word := range words {
		if !strings.Contains(message, word) {
			t.Errorf("the message is %q, want %q in it", message, word)
		}
	}
}
