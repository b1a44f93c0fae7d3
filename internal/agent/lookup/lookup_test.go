package lookup_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
	"github.com/berth-dev/berth/internal/agent/lookup"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// servers hold queries until something is written.
type servers struct {
	mu        sync.Mutex // guards below
	index     uint64
	changed   chan struct{}
	variables map[string]map[string]string
	instances []api.ServiceInstance
	failing   error
	asked     []string
	held      int
}

func newServers() *servers {
	return &servers{index: 1, changed: make(chan struct{}), variables: map[string]map[string]string{}}
}

func (s *servers) write(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	s.index++
	close(s.changed)
	s.changed = make(chan struct{})
}

// hold answers the index when it is another one, as the servers do.
func (s *servers) hold(ctx context.Context, what string, q client.Query) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, fmt.Sprintf("%s@%d", what, q.Index))
	timer := time.NewTimer(q.Wait)
	defer timer.Stop()
	for s.failing == nil && q.Index > 0 && s.index <= q.Index {
		s.held++
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
			s.mu.Lock()
			s.held--
		case <-timer.C:
			s.mu.Lock()
			s.held--
			return s.index, nil
		case <-ctx.Done():
			s.mu.Lock()
			s.held--
			return 0, ctx.Err()
		}
	}
	return s.index, s.failing
}

func (s *servers) Variable(ctx context.Context, ns api.NamespaceID, path api.VariablePath, q client.Query) (api.VariableInfo, uint64, error) {
	at, err := s.hold(ctx, string(ns)+"/"+string(path), q)
	s.mu.Lock()
	defer s.mu.Unlock()
	items, found := s.variables[string(path)]
	if err == nil && !found {
		err = api.Errorf(api.CodeNotFound, "no variable %s", path)
	}
	return api.VariableInfo{Items: items}, at, err
}

func (s *servers) Variables(ctx context.Context, q client.Query) ([]*api.Variable, uint64, error) {
	at, err := s.hold(ctx, "list "+string(q.Namespace)+"/"+q.Prefix, q)
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*api.Variable
	for path := range s.variables {
		if strings.HasPrefix(path, q.Prefix) {
			all = append(all, &api.Variable{Path: api.VariablePath(path)})
		}
	}
	slices.SortFunc(all, func(a, b *api.Variable) int { return strings.Compare(string(a.Path), string(b.Path)) })
	return all, at, err
}

func (s *servers) Services(ctx context.Context, q client.Query) ([]api.ServiceInfo, uint64, error) {
	at, err := s.hold(ctx, "service "+q.Filters[0], q)
	s.mu.Lock()
	defer s.mu.Unlock()
	return []api.ServiceInfo{{Namespace: "prod", Name: "web-2"}, {Namespace: "prod", Name: "web", Instances: slices.Clone(s.instances)}}, at, err
}

// world runs lookups in a bubble.
func world(t *testing.T, test func(s *servers, l *lookup.Lookups)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newServers()
		l := lookup.New(s)
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan error, 1)
		go func() { over <- l.Run(ctx) }()
		test(s, l)
		cancel()
		if err := <-over; err != nil {
			t.Error(err)
		}
	})
}

func news(r *lookup.Reader) bool {
	synctest.Wait()
	<-time.After(2 * time.Second)
	synctest.Wait()
	select {
	case <-r.News():
		return true
	default:
		return false
	}
}

func TestWhatIsReadIsFollowed(t *testing.T) {
	t.Parallel()
	world(t, func(s *servers, l *lookup.Lookups) {
		r := l.Reader("prod")
		defer r.Close()
		if _, _, ok := r.Variable("a"); ok || !news(r) {
			t.Error("it is known before it is asked for, or never")
		}
		if _, found, ok := r.Variable("a"); found || !ok {
			t.Errorf("one that does not exist: found %v, known %v", found, ok)
		}
		s.write(func() { s.variables["a"] = map[string]string{"k": "v"} })
		if !news(r) {
			t.Error("nobody is told that it was put")
		}
		if items, found, ok := r.Variable("a"); items["k"] != "v" || !found || !ok {
			t.Errorf("it is %v, %v, %v", items, found, ok)
		}
		s.write(func() { s.variables["b"] = map[string]string{"k": "v"} })
		if news(r) {
			t.Error("somebody is told of a variable that nobody reads")
		}
		s.write(func() { delete(s.variables, "a") })
		if _, found, _ := r.Variable("a"); !news(r) || !found {
			t.Error("nobody is told that it was deleted")
		}
		if paths, ok := r.Variables(""); ok || !news(r) {
			t.Errorf("a list is known before it is asked for: %v", paths)
		}
		if paths, _ := r.Variables(""); strings.Join(paths, " ") != "b" {
			t.Errorf("the list is %v", paths)
		}
	})
}

func TestServiceIsWhereItIsHealthy(t *testing.T) {
	t.Parallel()
	world(t, func(s *servers, l *lookup.Lookups) {
		s.instances = []api.ServiceInstance{{AllocID: "a", Address: "10.0.0.1", Healthy: true}, {AllocID: "b", Address: "10.0.0.2"}}
		r := l.Reader("prod")
		defer r.Close()
		r.Service("web")
		news(r)
		if all, ok := r.Service("web"); !ok || len(all) != 1 || all[0].Address != "10.0.0.1" {
			t.Errorf("it is at %+v, %v", all, ok)
		}
		s.write(func() { s.instances[1].Checks = []api.CheckStatus{{Name: "x"}} })
		if news(r) {
			t.Error("somebody is told of an instance that is not healthy")
		}
		s.write(func() { s.instances[1].Healthy = true })
		if all, _ := r.Service("web"); !news(r) || len(all) != 1 {
			t.Error("nobody is told that it is")
		}
		other := l.Reader("other")
		defer other.Close()
		other.Service("web")
		news(other)
		if all, ok := other.Service("web"); !ok || len(all) > 0 {
			t.Errorf("in another namespace it is at %+v, %v", all, ok)
		}
	})
}

// However many tasks read a thing, and however often it is written, it is asked for
// once at a time and once a second; when nobody reads it, not at all.
func TestOneQueryForAllReaders(t *testing.T) {
	t.Parallel()
	world(t, func(s *servers, l *lookup.Lookups) {
		readers := make([]*lookup.Reader, 100)
		for i := range readers {
			readers[i] = l.Reader("prod")
			readers[i].Variable("a")
		}
		news(readers[0])
		for i := range 1000 {
			s.write(func() { s.variables["a"] = map[string]string{"k": fmt.Sprint(i)} })
			<-time.After(10 * time.Millisecond)
		}
		synctest.Wait()
		s.mu.Lock()
		if n := len(s.asked); n < 5 || n > 20 {
			t.Errorf("it was asked for %d times in 12 seconds", n)
		}
		s.mu.Unlock()
		for _, r := range readers {
			if !news(r) {
				t.Fatal("one of the readers is not told")
			}
		}
		if items, _, _ := readers[0].Variable("a"); items["k"] != "999" {
			t.Errorf("what is known is %v", items)
		}
		// The first reads something else from now on.
		readers[0].Begin()
		readers[0].Variable("b")
		readers[0].Settle()
		for _, r := range readers[1:] {
			r.Close()
		}
		news(readers[0])
		s.mu.Lock()
		if s.held != 1 || s.asked[len(s.asked)-1] != fmt.Sprintf("prod/b@%d", s.index) {
			t.Errorf("%d queries are held, the last is %s", s.held, s.asked[len(s.asked)-1])
		}
		s.mu.Unlock()
		readers[0].Close()
		synctest.Wait()
		s.mu.Lock()
		if s.held != 0 {
			t.Errorf("%d queries are held for nobody", s.held)
		}
		s.mu.Unlock()
	})
}

func TestWhatWasAnsweredStaysKnownWithoutServers(t *testing.T) {
	t.Parallel()
	world(t, func(s *servers, l *lookup.Lookups) {
		s.variables["a"] = map[string]string{"k": "v"}
		r := l.Reader("prod")
		defer r.Close()
		r.Variable("a")
		news(r)
		away := errors.New("no server")
		s.write(func() { s.failing = away })
		news(r)
		if items, _, ok := r.Variable("a"); items["k"] != "v" || !ok || r.Failing() != nil {
			t.Errorf("it is %v, %v, %v", items, ok, r.Failing())
		}
		r.Variable("b")
		if !news(r) || !errors.Is(r.Failing(), away) {
			t.Errorf("one that was never known fails with %v", r.Failing())
		}
		<-time.After(time.Hour)
		s.mu.Lock()
		if n := len(s.asked); n > 500 {
			t.Errorf("servers that do not answer were asked %d times in an hour", n)
		}
		s.mu.Unlock()
		s.write(func() { s.failing, s.variables["b"] = nil, map[string]string{"k": "w"} })
		<-time.After(time.Minute)
		if items, _, ok := r.Variable("b"); items["k"] != "w" || !ok || r.Failing() != nil {
			t.Errorf("when they are back it is %v, %v, %v", items, ok, r.Failing())
		}
	})
}
