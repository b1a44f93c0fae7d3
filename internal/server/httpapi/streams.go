package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/frame"
	"github.com/berth-dev/berth/internal/server/carrier"
	"github.com/berth-dev/berth/internal/state"
)

// stream takes what an agent sends because somebody here wants it. It answers
// when that one has enough.
func (h *Handler) stream(r *request) (any, error) {
	node := api.NodeID(r.Header.Get(api.HeaderNode))
	epoch, err := headerNumber(r, api.HeaderEpoch)
	if err != nil {
		return nil, err
	}
	if err := h.authenticate(r, node); err != nil {
		return nil, err
	}
	if err := command.CheckSession(h.Log.View(), node, r.Header.Get(api.HeaderSession), epoch); err != nil {
		return nil, err
	}
	return nil, h.Streams.Accept(node, api.StreamID(r.PathValue("id")), agentConn{r.Body, http.NewResponseController(r.w), r})
}

// agentConn is an agent's request.
type agentConn struct {
	io.Reader
	conn    *http.ResponseController
	request *request
}

// SetReadDeadline implements carrier.Conn.
func (c agentConn) SetReadDeadline(t time.Time) error { return c.conn.SetReadDeadline(t) }

// SetWriteDeadline implements carrier.Conn.
func (c agentConn) SetWriteDeadline(t time.Time) error { return c.conn.SetWriteDeadline(t) }

// Answer implements carrier.Conn.
func (c agentConn) Answer() (io.Writer, error) { return c.request.both() }

// both begins an answer of frames while the request goes on.
func (r *request) both() (io.Writer, error) {
	conn := http.NewResponseController(r.w)
	r.streamed, r.begun = true, true
	if err := conn.EnableFullDuplex(); err != nil { // without it, the request would be read to its end first
		return nil, err
	}
	header := r.w.Header()
	header.Set("Content-Type", octets)
	header.Set("X-Content-Type-Options", "nosniff")
	r.w.WriteHeader(http.StatusOK)
	return flushed{r.w, conn}, conn.Flush()
}

// flushed sends what is written at once.
type flushed struct {
	io.Writer
	conn *http.ResponseController
}

// Write implements io.Writer.
func (f flushed) Write(b []byte) (int, error) {
	n, err := f.Writer.Write(b)
	if err == nil {
		err = f.conn.Flush()
	}
	return n, err
}

// logs streams the log of a task from its node.
func (h *Handler) logs(r *request) (any, error) {
	query, err := r.logQuery()
	if err != nil {
		return nil, err
	}
	v, task := h.Log.View(), r.PathValue("task")
	a, err := findAllocation(v, r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	if err := hasTask(v, a, task); err != nil {
		return nil, err
	}
	if err := h.inContact(v, a.NodeID); err != nil {
		return nil, err
	}
	s, err := h.Streams.Open(r.Context(), a.NodeID, api.StreamOffer{
		Kind: api.StreamLogs, Logs: &api.LogRequest{AllocID: a.ID, Task: task, LogQuery: query},
	})
	if err != nil {
		return nil, r.unlessGone(err)
	}
	defer s.Close()
	defer context.AfterFunc(r.Context(), s.Interrupt)()
	return nil, r.passLog(s)
}

// logQuery reads the parameters of a log, and reports every problem.
func (r *request) logQuery() (api.LogQuery, error) {
	q := api.LogQuery{Type: api.LogStdout}
	var p api.Problems
	if s := r.query.Get("type"); s != "" {
		q.Type = api.LogType(s)
	}
	if s := r.query.Get("offset"); s != "" {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			p.Addf("offset", "give a number of bytes, from the beginning, or below 0 from the end", "is %q", s)
		}
		q.Offset = n
	}
	if s := r.query.Get("tail"); s != "" {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			p.Addf("tail", "give a number of lines", "is %q", s)
		} else {
			q.Tail = &n
		}
	}
	var err error
	q.Follow, err = r.flag("follow")
	p.Merge(err)
	p.Merge(q.Validate())
	return q, p.Err("the request")
}

// hasTask reports whether the allocation's group has that task.
func hasTask(v state.View, a *api.Allocation, task string) error {
	rev := v.Revision(a.JobUID, a.Revision)
	if rev == nil {
		return nil // the agent knows
	}
	var names []string
	if g := rev.Spec.Group(a.Group); g != nil {
		for i := range g.Tasks {
			names = append(names, g.Tasks[i].Name)
		}
	}
	if slices.Contains(names, task) {
		return nil
	}
	return api.Errorf(api.CodeNotFound, "allocation %s has no task %s, but %s", a.ID.Short(), task, strings.Join(names, ", "))
}

// inContact refuses to ask a node whose agent is not there.
func (h *Handler) inContact(v state.View, id api.NodeID) error {
	n, identity := v.Node(id), v.Identity(id)
	switch {
	case n == nil || identity == nil:
		return api.Errorf(api.CodeNotFound, "node %s does not exist any more", id)
	case n.Status.State == api.NodeDown || !h.Contacts.Live(id, identity.Session):
		return api.Errorf(api.CodeUnavailable, "node %s is down: only its agent can read what is on it", id)
	}
	return nil
}

// passLog hands a log on to its reader. Before the first byte, what is wrong is
// the answer; after it, it follows in a trailer.
func (r *request) passLog(s *carrier.Stream) error {
	var begun api.LogBegun
	kind, payload, err := s.Next()
	switch {
	case err != nil:
		return r.unlessGone(err)
	case kind != frame.Begin || json.Unmarshal(payload, &begun) != nil:
		return api.Errorf(api.CodeInternal, "the agent begins the log with something else")
	}
	r.streamed, r.begun = true, true
	header, conn := r.w.Header(), http.NewResponseController(r.w)
	header.Set("Content-Type", "text/plain; charset=utf-8")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set(api.HeaderOffset, strconv.FormatInt(begun.Offset, 10))
	header.Set("Trailer", api.TrailerError)
	r.w.WriteHeader(http.StatusOK)
	for err = conn.Flush(); err == nil; {
		if kind, payload, err = s.Next(); err != nil {
			break
		}
		if kind != frame.Data {
			err = api.Errorf(api.CodeInternal, "the agent sends frames of kind %d in a log", kind)
			break
		}
		if _, err = r.w.Write(payload); err == nil {
			err = conn.Flush()
		}
	}
	r.breakOff(err)
	return nil //nolint:nilerr // the trailer says it
}

// breakOff ends an answer that has begun, and says why if that is not its end.
// Who reads HTTP 1.0 knows no trailers: only a cut connection can tell.
func (r *request) breakOff(err error) {
	switch {
	case errors.Is(err, io.EOF):
		return
	case r.Context().Err() != nil: // either the reader is gone, or
		err = api.Errorf(api.CodeUnavailable, "the server stops")
	}
	b, failed := json.Marshal(toAPI(err))
	if failed != nil || !r.ProtoAtLeast(1, 1) {
		panic(http.ErrAbortHandler)
	}
	r.w.Header().Set(api.TrailerError, string(b))
}

// unlessGone is err, unless whoever asked is gone: then there is nobody to tell.
func (r *request) unlessGone(err error) error {
	switch {
	case r.Context().Err() != nil:
		return api.Errorf(api.CodeUnavailable, "the request was given up")
	case errors.Is(err, io.EOF):
		return api.Errorf(api.CodeInternal, "the agent ended the stream before it began")
	}
	return err
}
