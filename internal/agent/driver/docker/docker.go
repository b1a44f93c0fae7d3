// Package docker runs tasks as containers of a Docker engine on the same
// machine, through its API. docs/design/0028-containers.md says why it is as it
// is.
//
// It never decides that a task should run, and never mounts a volume on the
// host. What it knows of a task is what the engine knows: the labels of its
// containers name the agent, the allocation and the task. Only how far a log was
// copied, which images were pulled, and what people run in containers is recorded
// beside.
//
// Invariants: a run of a task has one container, named for it, so that it cannot
// be started twice; a task is only said to have ended when the engine says so,
// never because the engine does not answer; a container whose allocation the
// agent does not know is removed; no image is removed that somebody else put
// there.
package docker

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/driver"
	"github.com/berth-dev/berth/internal/agent/driver/executor"
)

// Name is what jobs call the driver.
const Name = "docker"

// DefaultEndpoint is where Docker's engine listens.
const DefaultEndpoint = "/var/run/docker.sock"

// Config is what the driver needs, and what the operator allows.
type Config struct {
	// Endpoint is the path of the engine's socket, DefaultEndpoint if empty.
	Endpoint string
	// Agent tells this agent's containers from those of others on the same
	// engine: its data directory.
	Agent string
	// StateDir holds how far the logs are copied.
	StateDir string
	// Disabled refuses to start tasks. What runs is looked after.
	Disabled bool
	// AllowPrivileged lets jobs have privileged containers, and what comes to
	// the same: devices, the host's processes, every capability.
	AllowPrivileged bool
	// AllowHostPaths lets jobs bind what they like of the host.
	AllowHostPaths bool
	// AllowCaps are capabilities that jobs may add besides those that the engine
	// gives to every container.
	AllowCaps []string
	// AuthFile holds credentials for registries, as docker login writes them. It is
	// read at each pull; there is none if it is empty.
	AuthFile string
	// ImageDelay is how long an image stays that the driver pulled and that no
	// container has. 0 is DefaultImageDelay, and less than that is for ever.
	ImageDelay time.Duration
	// BootID tells this boot of the kernel from others; empty reads the kernel's.
	BootID string
}

// DefaultImageDelay is long enough for an update, a night's batch job that is
// tried again, and a way back.
const DefaultImageDelay = 6 * time.Hour

// Driver is the task driver.
type Driver struct {
	cfg Config
	// rules are a Config of which only what jobs may, and what is said of images, counts. It is replaced, and
	// never changed.
	rules atomic.Pointer[Config]
	log   *slog.Logger
	// client knows the version of the API that it and the engine agreed on.
	client atomic.Pointer[client.Client]
	pulls  pulls
	// sayEvery is the constant of that name, but for tests.
	sayEvery time.Duration
	images   images
	copies   copies
	visits   visits

	mu sync.Mutex // guards below
	// deadlines are those of the containers that are being stopped.
	deadlines map[string]time.Time
	// killed are the containers that did not end in time.
	killed map[string]bool
	// unprivileged: the engine cannot give what privileged means.
	unprivileged bool
	// strange are capabilities that the engine has no name for.
	strange map[string]bool
	// is is how the engine is run whose version is in asked.
	asked string
	is    mode
}

var (
	_ driver.Driver = (*Driver)(nil)
	_ driver.Keeper = (*Driver)(nil)
	_ driver.Host   = (*Driver)(nil)

	_ driver.Signaller = (*Driver)(nil)
)

// New makes the driver. It does not mean that there is an engine: see
// Fingerprint.
func New(cfg Config, log *slog.Logger) (*Driver, error) {
	if cfg.Endpoint == "" {
		cfg.Endpoint = DefaultEndpoint
	}
	cfg.Endpoint = strings.TrimPrefix(cfg.Endpoint, "unix://")
	if cfg.AuthFile != "" && !filepath.IsAbs(cfg.AuthFile) {
		return nil, fmt.Errorf("make driver docker: %q must be an absolute path", cfg.AuthFile)
	}
	if !filepath.IsAbs(cfg.Agent) || !filepath.IsAbs(cfg.StateDir) || !filepath.IsAbs(cfg.Endpoint) {
		return nil, fmt.Errorf("make driver docker: %q, %q and %q must be absolute paths", cfg.Agent, cfg.StateDir, cfg.Endpoint)
	}
	if cfg.BootID == "" {
		b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
		if err != nil {
			return nil, fmt.Errorf("make driver docker: read the kernel's boot id: %w", err)
		}
		cfg.BootID = strings.TrimSpace(string(b))
	}
	d := &Driver{
		cfg: cfg, log: log.With("driver", Name), sayEvery: sayEvery,
		visits: visits{going: map[string]bool{}, stuck: map[string]func(){}, open: map[string]int{}}, deadlines: map[string]time.Time{}, killed: map[string]bool{}, strange: map[string]bool{},
	}
	d.Allow(cfg)
	d.images.held, d.images.removing = map[string]int{}, map[string]chan struct{}{}
	d.copies.init()
	if err := d.renew(nil); err != nil {
		return nil, fmt.Errorf("make driver docker: %w", err)
	}
	return d, nil
}

// Allow takes over what a configuration says that jobs may, Disabled and what
// begins with Allow, and what it says of images: AuthFile and ImageDelay. It
// counts for tasks that are started from now on.
func (d *Driver) Allow(cfg Config) { d.rules.Store(&cfg) }

// engine is the engine's client.
func (d *Driver) engine() *client.Client { return d.client.Load() }

// renew replaces a client with one that has yet to agree with the engine on a
// version of the API. What runs on the old one goes on.
func (d *Driver) renew(old *client.Client) error {
	c, err := client.New(client.WithHost("unix://" + d.cfg.Endpoint))
	if err != nil {
		return err
	}
	if !d.client.CompareAndSwap(old, c) {
		return c.Close() // another caller was first
	}
	if old != nil {
		return old.Close() // only connections that nobody uses
	}
	return nil
}

// Name implements driver.Driver.
func (d *Driver) Name() string { return Name }

// How long the engine may take. One that hangs is like one that is not there.
const (
	answerLimit = 20 * time.Second
	// startLimit is for making and starting a container: the engine unpacks,
	// mounts, and runs hooks.
	startLimit = 2 * time.Minute
)

// Fingerprint implements driver.Driver.
func (d *Driver) Fingerprint(ctx context.Context) api.Driver {
	is := api.Driver{MountsVolumes: true}
	if d.rules.Load().Disabled {
		is.Reason = driver.Forbidden(Name)
		return is
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	version, err := d.engine().ServerVersion(ctx, client.ServerVersionOptions{})
	switch _, gone := os.Stat(d.socket()); {
	case err != nil && errors.Is(gone, fs.ErrNotExist):
		is.Reason = "the engine does not answer: there is no " + d.socket()
	case err != nil:
		is.Reason = d.problem(err).Error()
	case version.Os != "linux":
		is.Reason = fmt.Sprintf("the engine at %s runs containers of %s", d.cfg.Endpoint, version.Os)
	default:
		is.Version = version.Version
		mode := d.mode(ctx, version.Version)
		is.NoBlockDevices = mode.rootless
		is.Healthy = !mode.remaps
		if mode.remaps {
			is.Reason = fmt.Sprintf("the engine at %s gives its containers other users than the machine's (userns-remap), to whom volumes and secrets cannot be given; run one without", d.cfg.Endpoint)
		}
	}
	return is
}

// socket is the path of the engine's socket.
func (d *Driver) socket() string { return strings.TrimPrefix(d.cfg.Endpoint, "unix://") }

// mode is how an engine is run.
type mode struct {
	// rootless: it can give no devices.
	rootless bool
	// remaps: what is root in a container is somebody else outside.
	remaps bool
	// unlimited are the cgroup controllers that it lacks. It passes over the limits
	// that need them.
	unlimited limitless
}

// limitless says which controllers an engine lacks.
type limitless struct{ memory, cpu bool }

// mode is asked once for each version.
func (d *Driver) mode(ctx context.Context, version string) mode {
	d.mu.Lock()
	known, is := d.asked == version, d.is
	d.mu.Unlock()
	if known {
		return is
	}
	is, err := d.ask(ctx)
	if err != nil {
		return mode{}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked, d.is = version, is
	return is
}

// ask asks the engine how it is run.
func (d *Driver) ask(ctx context.Context) (mode, error) {
	info, err := d.engine().Info(ctx, client.InfoOptions{})
	if err != nil {
		return mode{}, err
	}
	has := func(option string) bool {
		return slices.ContainsFunc(info.Info.SecurityOptions, func(o string) bool { return strings.Contains(o, "name="+option) })
	}
	return mode{
		rootless: has("rootless"), remaps: has("userns"),
		unlimited: limitless{memory: !info.Info.MemoryLimit, cpu: !info.Info.CPUShares},
	}, nil
}

// limitable says which limits of a task the engine would pass over, if so.
func (d *Driver) limitable(ctx context.Context, r *api.Resources) error {
	if r == nil || r.Limit() == 0 && r.CPU <= 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	is, err := d.ask(ctx)
	if err != nil {
		return d.problem(err)
	}
	var lacking []string
	if is.unlimited.memory && r.Limit() > 0 {
		lacking = append(lacking, "memory")
	}
	if is.unlimited.cpu && r.CPU > 0 {
		lacking = append(lacking, "cpu")
	}
	if len(lacking) == 0 {
		return nil
	}
	return executor.Unlimited(lacking, "the docker engine does not have it")
}

// problem is an error of the engine in words. That it does not answer means
// nothing for its containers.
func (d *Driver) problem(err error) error {
	switch {
	case err == nil:
		return nil
	case unreachable(err):
		return api.Errorf(api.CodeUnavailable, "the docker engine at %s does not answer: %s", d.cfg.Endpoint, plain(err))
	case outdated(err):
		if err := d.renew(d.engine()); err != nil {
			d.log.Warn("no new client of the engine", "error", err)
		}
		return api.Errorf(api.CodeUnavailable, "the docker engine at %s has another version now, and is asked anew", d.cfg.Endpoint)
	}
	return fmt.Errorf("the docker engine says: %s", plain(err))
}

// unreachable reports whether an error comes from between here and the engine.
func unreachable(err error) bool {
	return client.IsErrConnectionFailed(err) || errors.Is(err, context.DeadlineExceeded) ||
		errdefs.IsUnavailable(err) || isTransport(err) || alone(err)
}

// alone reports whether the engine lacks containerd, which it starts again when it
// has ended. The engine passes on the error as words.
func alone(err error) bool {
	return strings.HasSuffix(plain(err), ": unavailable") || strings.Contains(err.Error(), "/containerd.sock")
}

// outdated reports whether the engine was replaced by one that does not speak the
// version of the API that was agreed on. It names the client's version then, and
// the oldest or newest of its own.
func outdated(err error) bool {
	return errdefs.IsInvalidArgument(err) && strings.Contains(err.Error(), "client version ")
}

// plain is an error without what the client puts around it.
func plain(err error) string {
	s := err.Error()
	for _, prefix := range []string{"Error response from daemon: ", "error during connect: "} {
		s = strings.TrimPrefix(s, prefix)
	}
	return strings.TrimSpace(s)
}

// containerName is the engine's name for a run of a task. Two agents may share
// an engine, and even know allocations of the same id.
func (d *Driver) containerName(id string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(d.cfg.Agent)) // never fails
	return fmt.Sprintf("berth-%08x-%s", h.Sum32(), strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_':
			return r
		}
		return '.'
	}, id))
}
