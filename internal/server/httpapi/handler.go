package httpapi

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/state"
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
	Job(v state.View, job *api.Job) []api.Wait
	Everything(v state.View) []api.Wait
}

// Config is what a handler is made of.
type Config struct {
	ServerID string
	Version  string
	Log      Log
	Contacts Contacts
	Explain  Explainer
	// Counters answers what the server counts.
	Counters func() map[string]int64
}

// Handler serves the API.
type Handler struct {
	Config
	out *slog.Logger
	mux *http.ServeMux
}

// New returns a handler. It starts nothing.
func New(cfg Config, out *slog.Logger) *Handler {
	h := &Handler{Config: cfg, out: out, mux: http.NewServeMux()}
	for _, r := range h.routes() {
		h.mux.Handle(r.pattern, h.serve(r))
	}
	return h
}

// route is one row of the table of routes.
type route struct {
	pattern string
	handle  func(*request) (any, error)
	// always: the route answers also while this server does not lead.
	always bool
	// maxBody is the limit of the request's body in bytes; 0 for the default.
	maxBody int64
}

func (h *Handler) routes() []route {
	return []route{
		{pattern: "GET /v1/status", handle: h.status, always: true},
		{pattern: "GET /v1/volumes", handle: h.listVolumes},
		{pattern: "GET /v1/volume/{namespace}/{id}", handle: h.getVolume},
		{pattern: "PUT /v1/volume/{namespace}/{id}", handle: h.putVolume},
		{pattern: "DELETE /v1/volume/{namespace}/{id}", handle: h.deleteVolume},
		{pattern: "GET /v1/jobs", handle: h.listJobs},
		{pattern: "GET /v1/job/{namespace}/{id}", handle: h.getJob},
		{pattern: "PUT /v1/job/{namespace}/{id}", handle: h.putJob},
		{pattern: "DELETE /v1/job/{namespace}/{id}", handle: h.stopJob},
		{pattern: "GET /v1/allocations", handle: h.listAllocations},
		{pattern: "GET /v1/allocation/{id}", handle: h.getAllocation},
		{pattern: "GET /v1/nodes", handle: h.listNodes},
		{pattern: "GET /v1/node/{id}", handle: h.getNode},
		{pattern: "GET /v1/plugins", handle: h.listPlugins},
		{pattern: "GET /v1/plugin/{id}", handle: h.getPlugin},
		{pattern: "GET /v1/operations", handle: h.listOperations},
		{pattern: "GET /v1/operation/{id...}", handle: h.getOperation},
		{pattern: "POST /v1/agent/register", handle: h.register},
		{pattern: "GET /v1/agent/assignments", handle: h.assignments},
		{pattern: "POST /v1/agent/report", handle: h.report, maxBody: maxReport},
		{pattern: "GET /v1/system/snapshot", handle: h.saveSnapshot},
		{pattern: "PUT /v1/system/snapshot", handle: h.restoreSnapshot, maxBody: maxSnapshot},
		{pattern: "GET /v1/system/recovery", handle: h.recovery},
		{pattern: "POST /v1/system/recovery", handle: h.confirmRecovery},
	}
}

// Limits of request bodies, in bytes.
const (
	maxBody     = 1 << 20
	maxReport   = 16 << 20
	maxSnapshot = 8 << 30
)

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.mux.ServeHTTP(w, r) }

// serve wraps a route with what all routes have in common.
func (h *Handler) serve(rt route) http.Handler {
	limit := rt.maxBody
	if limit == 0 {
		limit = maxBody
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		r.Body = http.MaxBytesReader(w, r.Body, limit)
		req := &request{Request: r, w: w}
		var answer any
		err := h.notReady(rt)
		if err == nil {
			answer, err = rt.handle(req)
		}
		if err != nil {
			h.fail(req, rt, err)
			return
		}
		req.answer(answer)
		h.out.Debug("request served", "route", rt.pattern, "duration", time.Since(began))
	})
}

// notReady refuses what only a leader can answer.
func (h *Handler) notReady(rt route) error {
	if rt.always || h.Log.Ready() {
		return nil
	}
	if id, _ := h.Log.Leader(); id != "" && id != h.ServerID {
		return api.Errorf(api.CodeUnavailable, "server %s leads the cluster, not %s", id, h.ServerID)
	}
	return api.Errorf(api.CodeUnavailable, "the cluster has no leader yet")
}

// fail answers an error. What is not an *api.Error is a fault, whose text stays
// in the log.
func (h *Handler) fail(req *request, rt route, err error) {
	e := toAPI(err)
	if e.Code == api.CodeInternal {
		h.out.Error("request failed", "route", rt.pattern, "error", err)
	}
	req.write(statusOf(e.Code), e)
}
