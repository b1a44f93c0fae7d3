package httpapi

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/state"
)

// request is one request with its answer.
type request struct {
	*http.Request
	w       http.ResponseWriter
	buffers *buffers
	query   url.Values
	// ifAbsent: a write is only for what is not there.
	ifAbsent bool
	// streamed: the answer is not JSON, and has been written already.
	streamed bool
	// begun: a part of the answer is on its way.
	begun bool
	// status is what was answered.
	status int
}

func (r *request) namespace() api.NamespaceID { return api.NamespaceID(r.PathValue("namespace")) }

// number reads a query parameter, 0 if it is absent.
func (r *request) number(name string) (uint64, error) {
	s := r.query.Get(name)
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, &api.Error{Code: api.CodeInvalid, Message: "the request has a problem",
			Fields: []api.Field{{Path: name, Message: fmt.Sprintf("is %q", s), Mend: "give a number"}}}
	}
	return n, nil
}

// flag reads a query parameter that is true or false, false if it is absent.
func (r *request) flag(name string) (bool, error) {
	switch s := r.query.Get(name); s {
	case "", "false":
		return false, nil
	case "true":
		return true, nil
	default:
		return false, &api.Error{Code: api.CodeInvalid, Message: "the request has a problem",
			Fields: []api.Field{{Path: name, Message: fmt.Sprintf("is %q", s), Mend: "use true or false"}}}
	}
}

// trace is the caller's, or none.
func (r *request) trace() api.TraceContext {
	if given := r.Header.Values(api.HeaderTrace); len(given) == 1 {
		return api.ParseTraceContext(given[0])
	}
	return ""
}

// user is the caller's name, by the caller's word.
func (r *request) user() (string, error) {
	name := r.Header.Get(api.HeaderUser)
	if wrong := api.CheckUser(name); wrong != "" {
		return "", &api.Error{Code: api.CodeInvalid, Message: "the request has a problem",
			Fields: []api.Field{{Path: api.HeaderUser, Message: wrong, Mend: "send a shorter, printable name, or none"}}}
	}
	return name, nil
}

// asker is who asks, and from where.
func (r *request) asker() (api.Asker, error) {
	from := r.RemoteAddr
	if host, _, err := net.SplitHostPort(from); err == nil {
		from = host
	}
	by, err := r.user()
	return api.Asker{By: by, From: from}, err
}

// defaultWait is how long a blocking query waits that does not say.
const defaultWait = time.Minute

// poll reads the parameters of a blocking query.
func (r *request) poll() (index uint64, wait time.Duration, err error) {
	if index, err = r.number("index"); err != nil {
		return 0, 0, err
	}
	wait = defaultWait
	if s := r.query.Get("wait"); s != "" {
		if wait, err = time.ParseDuration(s); err != nil || wait < 0 {
			return 0, 0, &api.Error{Code: api.CodeInvalid, Message: "the request has a problem",
				Fields: []api.Field{{Path: "wait", Message: fmt.Sprintf("is %q", s), Mend: `give a duration such as "30s"`}}}
		}
	}
	return index, min(wait, api.MaxPollWait), nil
}

// block calls read until what it reads is newer than the index that the caller
// has, or the wait is over. read answers an index that is at least that of the
// last change to what it has read: a query may answer early, but never late.
// Its reads are watched.
func (h *Handler) block(r *request, read func(state.View) (any, uint64, error)) (any, error) {
	return h.blockPaced(r, 0, read)
}

// blockPaced is block for what is dear to read: who knows an index already waits
// so long before each reading, so that many changes are one answer.
func (h *Handler) blockPaced(r *request, pace time.Duration, read func(state.View) (any, uint64, error)) (any, error) {
	index, wait, err := r.poll()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), wait)
	defer cancel()
	for {
		if index > 0 && pace > 0 {
			pause, done := context.WithTimeout(ctx, pace)
			<-pause.Done()
			done()
		}
		watch := state.NewWatch()
		answer, at, err := read(h.Log.View().Watching(watch))
		if err != nil {
			return nil, err
		}
		if index == 0 || at > index || watch.Wait(ctx) != nil {
			r.w.Header().Set(api.HeaderIndex, strconv.FormatUint(max(at, 1), 10))
			return answer, nil
		}
	}
}
