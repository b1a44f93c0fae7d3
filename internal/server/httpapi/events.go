package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/feed"
)

// heartbeat is how often a stream says where it stands when nothing happens.
const heartbeat = 10 * time.Second

// stream is one caller who follows events.
type stream struct {
	handler   *Handler
	to        paced
	filters   []api.TopicFilter
	topics    []api.Topic // of the filters
	namespace api.NamespaceID
	// index is up to where everything was said.
	index      uint64
	generation uint64
}

// events streams what is committed. It reads what others have written before
// from the feed only, so that a caller who is slow delays nobody: when what it
// has not read is kept no longer, its stream ends, and says so.
func (h *Handler) events(r *request) (any, error) {
	s, err := h.newStream(r)
	if err != nil {
		return nil, err
	}
	// What has to be refused is refused with a status.
	now, cancel := context.WithCancel(r.Context())
	cancel()
	if _, _, err := h.Feed.Next(now, s.index, s.topics); err != nil {
		return nil, err
	}
	r.streamed, r.begun = true, true
	r.w.Header().Set("Content-Type", ndjson)
	r.w.Header().Set("Cache-Control", "no-store")
	r.w.Header().Set(api.HeaderIndex, strconv.FormatUint(s.index, 10))
	r.w.WriteHeader(http.StatusOK)
	defer s.to.done()
	if r.Method != http.MethodHead { // who would never read a line
		s.run(r.Context())
	}
	return nil, nil
}

// newStream reads the parameters.
func (h *Handler) newStream(r *request) (*stream, error) {
	var p api.Problems
	s := &stream{handler: h, to: r.paced(), index: h.Feed.Head(), generation: h.generation()}
	for _, text := range r.query["topic"] {
		f, problem := api.ParseTopic(text)
		if problem != nil {
			p.Add(problem.Path, problem.Message, problem.Mend)
			continue
		}
		s.filters = append(s.filters, f)
		s.topics = append(s.topics, f.Topic)
	}
	s.namespace = r.someNamespace(&p)
	if r.query.Get("index") != "" {
		index, err := r.number("index")
		s.index = index
		p.Merge(err)
	}
	generation, err := r.number("generation")
	p.Merge(err)
	if err := p.Err("the request"); err != nil {
		return nil, err
	}
	if generation > 0 && generation != s.generation {
		return nil, otherGeneration(generation, s.generation)
	}
	return s, nil
}

func (h *Handler) generation() uint64 {
	if c := h.Log.View().Cluster(); c != nil {
		return c.Generation.Number
	}
	return 0
}

func otherGeneration(theirs, ours uint64) error {
	return api.Errorf(api.CodeGone, "the cluster is in generation %d, and the index is of generation %d: its state was put back; read what there is, and follow from now on", ours, theirs)
}

// run streams until the caller goes, the server stops, or nothing can be said
// any more. The first line says where the stream begins.
func (s *stream) run(ctx context.Context) {
	if !s.send(api.EventFrame{}) {
		return
	}
	said := time.Now()
	for ctx.Err() == nil {
		frames, upTo, err := s.next(ctx, time.Until(said.Add(heartbeat)))
		if err != nil {
			s.send(api.EventFrame{Error: toAPI(err)})
			return
		}
		for _, f := range frames {
			events := s.choose(f)
			if s.index = f.Index; len(events) == 0 {
				continue
			}
			if !s.send(api.EventFrame{Time: f.Time, Events: events}) {
				return
			}
			said = time.Now()
		}
		if s.index = upTo; time.Since(said) < heartbeat {
			continue
		}
		if !s.send(api.EventFrame{}) {
			return
		}
		said = time.Now()
	}
}

// next waits for frames, for so long at most.
func (s *stream) next(ctx context.Context, wait time.Duration) ([]*feed.Frame, uint64, error) {
	h := s.handler
	if !h.Log.Ready() {
		return nil, 0, api.Errorf(api.CodeUnavailable, "server %s no longer leads the cluster: follow on at the one that does", h.ServerID)
	}
	if now := h.generation(); now != s.generation {
		return nil, 0, otherGeneration(s.generation, now)
	}
	timed, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	frames, upTo, err := h.Feed.Next(timed, s.index, s.topics)
	if api.CodeOf(err) == api.CodeGone {
		err = api.Errorf(api.CodeGone, "what came after index %d is kept no longer: it was read too slowly, or the server has taken over a saved state; read what there is, and follow from now on", s.index)
	}
	return frames, upTo, err
}

// choose picks the events that the caller wants.
func (s *stream) choose(f *feed.Frame) []api.Event {
	all := f.Events()
	if len(s.filters) == 0 && s.namespace == "" {
		return all
	}
	var chosen []api.Event
	for i := range all {
		e := &all[i]
		if s.namespace != "" && e.Namespace != "" && e.Namespace != s.namespace {
			continue
		}
		if len(s.filters) == 0 || slices.ContainsFunc(s.filters, func(t api.TopicFilter) bool { return t.Admits(e) }) {
			chosen = append(chosen, *e)
		}
	}
	return chosen
}

// send writes one line, and reports whether the caller has taken it.
func (s *stream) send(f api.EventFrame) bool {
	f.Index, f.Generation = s.index, s.generation
	line, err := json.Marshal(f)
	if err != nil {
		panic(fmt.Errorf("encode frame %d: %w", f.Index, err)) // its rows are JSON already
	}
	if _, err := s.to.Write(append(line, '\n')); err != nil {
		return false
	}
	return s.to.conn.Flush() == nil
}
