package httpapi

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"math"
	"net/http"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/feed"
	"github.com/berth-dev/berth/internal/server/carrier"
	"github.com/berth-dev/berth/internal/server/inquiry"
	"github.com/berth-dev/berth/internal/state"
	"github.com/berth-dev/berth/internal/telemetry"
)

// Log is what the API needs of the consensus.
type Log interface {
	View() state.View
	Propose(ctx context.Context, commands ...command.Command) (uint64, error)
	// Ready reports whether this server leads and its state is up to date.
	Ready() bool
	Leader() (id, address string)
	Save(w io.Writer) error
	Restore(ctx context.Context, r io.Reader) error
}

// Contacts knows which agents are in contact.
type Contacts interface {
	Seen(node api.NodeID, session string)
	Live(node api.NodeID, session string) bool
}

// Explainer says why things wait. Its subjects are those of the controllers.
type Explainer interface {
	Volume(v state.View, vol *api.Volume) []api.Wait
	Queue(v state.View, vol *api.Volume) []api.QueuedJob
	Job(v state.View, job *api.Job) []api.Wait
	Allocation(v state.View, a *api.Allocation) []api.Wait
	Snapshot(v state.View, s *api.Snapshot) []api.Wait
	Node(v state.View, n *api.Node) []api.Wait
	Everything(v state.View) []api.Wait
}

// Rubbish removes what has ended, whatever its age.
type Rubbish interface {
	Collect(ctx context.Context) (api.Collected, error)
}

// Sweeper compares what plugins have with the state.
type Sweeper interface {
	Sweep(ctx context.Context, plugin api.PluginID) ([]api.SweepReport, error)
	Reports() []api.SweepReport
}

// Config is what a handler is made of.
type Config struct {
	ServerID string
	Version  string
	Log      Log
	Contacts Contacts
	Explain  Explainer
	Plan     Planner
	// Feed has the last commits.
	Feed *feed.Feed
	// Streams is where readers and agents meet.
	Streams *carrier.Broker
	// Ask asks agents what their plugins say.
	Ask *inquiry.Asker
	// Rubbish removes what has ended.
	Rubbish Rubbish
	// Sweep compares plugins with the state.
	Sweep Sweeper
	// Counters answers what the server counts.
	Counters func() map[string]int64
	// Keyring seals secrets; a server without one refuses them.
	Keyring Keyring
	// Metrics measures requests, and is served; nil is neither.
	Metrics *telemetry.Registry
	// Local: the API listens where only this machine reaches it.
	Local bool
}

// Handler serves the API.
type Handler struct {
	Config
	out     *slog.Logger
	mux     *http.ServeMux
	buffers buffers
	opened  openedVariable
	// took is how long requests took, and metrics serves all that is measured.
	took    *telemetry.Durations
	metrics http.Handler
	// described is the description of the API.
	described json.RawMessage
	// meetings are the connections that are nobody's answer any more.
	meetings sync.WaitGroup
}

// Wait returns when what goes on beside answers has ended. It is for after the
// HTTP server was shut down, which waits for no such thing.
func (h *Handler) Wait() { h.meetings.Wait() }

// New returns a handler. It starts nothing.
func New(cfg Config, out *slog.Logger) (*Handler, error) {
	h := &Handler{Config: cfg, out: out, mux: http.NewServeMux()}
	h.took = cfg.Metrics.Durations("berth_http_request_seconds",
		"How long requests took, by route and status. Blocking queries and streams take as long as they were asked to", "route", "status")
	if cfg.Metrics != nil {
		h.metrics = cfg.Metrics.Handler(out)
	}
	routes := h.routes()
	for _, rt := range routes {
		h.mux.HandleFunc(rt.pattern, func(w http.ResponseWriter, r *http.Request) { h.serve(rt, w, r) })
	}
	var err error
	h.described, err = description(cfg.Version, routes)
	return h, err
}

// Limits of request bodies, in bytes.
const (
	maxBody     = 1 << 20
	maxReport   = 16 << 20
	maxSnapshot = 8 << 30
	maxStream   = math.MaxInt64 // it flows through
)

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if _, pattern := h.mux.Handler(r); pattern == "" {
		h.noRoute(w, r)
		return
	}
	h.mux.ServeHTTP(w, r)
}

// serve does for a request what all routes have in common.
func (h *Handler) serve(rt route, w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	limit := rt.maxBody
	if limit == 0 {
		limit = maxBody
	}
	r.Body = http.MaxBytesReader(w, r.Body, limit)
	req := &request{Request: r, w: w, buffers: &h.buffers, status: http.StatusOK}
	defer func() { h.took.Observe(time.Since(began), rt.pattern, strconv.Itoa(req.status)) }()
	defer func() {
		if p := recover(); p != nil {
			h.panicked(req, rt, p)
		}
	}()
	err := h.admit(req, rt)
	if err == nil {
		err = h.notReady(rt)
	}
	var answer any
	if err == nil {
		answer, err = rt.handle(req)
	}
	if err != nil {
		h.fail(req, rt, err)
		return
	}
	req.answer(answer)
	h.out.Debug("request served", "route", rt.pattern, "duration", time.Since(began))
}

// panicked answers for a handler that panicked with p. An answer that has begun
// can only be cut.
func (h *Handler) panicked(req *request, rt route, p any) {
	if p == http.ErrAbortHandler { //nolint:errorlint // it is a value, not a chain
		panic(p)
	}
	h.out.Error("request panicked", "route", rt.pattern, "panic", p, "stack", string(debug.Stack()))
	if req.begun {
		panic(http.ErrAbortHandler)
	}
	req.write(http.StatusInternalServerError, errFault())
}

// notReady refuses what only a leader can answer.
func (h *Handler) notReady(rt route) error {
	if rt.always || h.Log.Ready() {
		return nil
	}
	switch id, _ := h.Log.Leader(); id {
	case "":
		return api.Errorf(api.CodeUnavailable, "the cluster has no leader yet")
	case h.ServerID:
		return api.Errorf(api.CodeUnavailable, "server %s leads the cluster, and is not ready yet", id)
	default:
		return api.Errorf(api.CodeUnavailable, "server %s leads the cluster, not %s", id, h.ServerID)
	}
}

// proposeTime bounds how long a write may take.
const proposeTime = 30 * time.Second

// propose writes. Neither a caller who is gone nor a server that stops makes
// the outcome of a write that is on its way unknown.
func (h *Handler) propose(r *request, commands ...command.Command) (uint64, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), proposeTime)
	defer cancel()
	return h.Log.Propose(ctx, commands...)
}

// fail answers an error. What is not an *api.Error is a fault, whose text stays
// in the log.
func (h *Handler) fail(req *request, rt route, err error) {
	e := toAPI(err)
	if e.Code == api.CodeInternal {
		h.out.Error("request failed", "route", rt.pattern, "error", err)
	} else {
		h.out.Debug("request refused", "route", rt.pattern, "code", e.Code)
	}
	req.write(statusOf(e.Code), e)
}
