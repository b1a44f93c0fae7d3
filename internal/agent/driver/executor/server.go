package executor

import (
	"encoding/json"
	"net/http"
	"runtime"
	"syscall"

	"github.com/berth-dev/berth/api"
)

// maxBody bounds what either side reads of the other.
const maxBody = 64 << 10

// order is the body of a request to signal or to stop.
type order struct {
	Signal  syscall.Signal `json:"signal"`
	Timeout api.Duration   `json:"timeout,omitempty"`
	// stop: the task is to end. SIGKILL follows after Timeout.
	stop bool
}

// handler serves the control socket:
//
//	GET  /status                  how the task is
//	GET  /wait?for=started|ended  the same, when that has happened
//	POST /signal {signal}         signal the task's first process
//	POST /stop {signal, timeout}  signal, then SIGKILL; answers when it has ended
//	GET  /vitals                  what the supervisor itself uses, for who looks for leaks
//	POST /visit {api.ExecRequest} run another command in the task, on this connection
func (s *supervisor) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", s.answerStatus)
	mux.HandleFunc("GET /wait", s.serveWait)
	mux.HandleFunc("GET /vitals", s.answerVitals)
	mux.HandleFunc("POST /signal", s.serveOrder)
	mux.HandleFunc("POST /stop", s.serveOrder)
	mux.HandleFunc("POST /visit", s.serveVisit)
	return mux
}

func (s *supervisor) serveWait(w http.ResponseWriter, r *http.Request) {
	var reached <-chan struct{}
	switch m := milestone(r.FormValue("for")); m {
	case started:
		reached = s.started
	case ended:
		reached = s.ended
	default:
		refuse(w, http.StatusBadRequest, api.Errorf(api.CodeInvalid, "cannot wait for %q", m))
		return
	}
	select {
	case <-reached:
		s.answerStatus(w, r)
	case <-r.Context().Done():
	}
}

func (s *supervisor) serveOrder(w http.ResponseWriter, r *http.Request) {
	var o order
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&o); err != nil {
		refuse(w, http.StatusBadRequest, api.Errorf(api.CodeInvalid, "read order: %v", err))
		return
	}
	o.stop = r.URL.Path == "/stop"
	select {
	case s.orders <- o:
	case <-s.ended:
	case <-r.Context().Done():
		return
	}
	if o.stop {
		select {
		case <-s.ended:
		case <-r.Context().Done():
			return
		}
	}
	s.answerStatus(w, r)
}

func (s *supervisor) answerStatus(w http.ResponseWriter, _ *http.Request) {
	status, _, err := s.dir.recorded()
	if err != nil {
		refuse(w, http.StatusInternalServerError, failure(err))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(status); err != nil {
		s.log.Debug("answer status", "err", err)
	}
}

func (s *supervisor) answerVitals(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(map[string]int{"goroutines": runtime.NumGoroutine()}); err != nil {
		s.log.Debug("answer vitals", "err", err)
	}
}

func refuse(w http.ResponseWriter, code int, e *api.Error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(e)
}
