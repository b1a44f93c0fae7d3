package httpapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/feed"
	"github.com/berth-dev/berth/internal/server/carrier"
	"github.com/berth-dev/berth/internal/server/httpapi"
	"github.com/berth-dev/berth/internal/server/inquiry"
	"github.com/berth-dev/berth/internal/state"
	"github.com/berth-dev/berth/internal/state/statetest"
)

// fake is a handler on a state that a world describes, for what no real server
// does when it is asked to.
type fake struct {
	*httpapi.Handler
	store   *state.Store
	logs    *lockedBuffer
	leader  string
	ready   bool
	explain func(state.View) []api.Wait
	propose func(context.Context) (uint64, error)
	save    func(io.Writer) error
	// commits: what is proposed is applied to the state.
	commits bool
}

func newFake(t testing.TB, world string, change func(*httpapi.Config)) *fake {
	t.Helper()
	f := &fake{store: statetest.Load(t, world), logs: &lockedBuffer{}, leader: "server", ready: true}
	cfg := httpapi.Config{
		ServerID: "server", Version: "1.2.3", Log: f, Contacts: f, Explain: f, Rubbish: f, Feed: feed.New(),
		Counters: func() map[string]int64 { return nil }, Streams: carrier.New(),
	}
	cfg.Ask, cfg.Sweep = inquiry.New(cfg.Streams), f
	f.store.Observe(cfg.Feed)
	if change != nil {
		change(&cfg)
	}
	var err error
	f.Handler, err = httpapi.New(cfg, slog.New(slog.NewTextHandler(f.logs, &slog.HandlerOptions{Level: slog.LevelDebug})))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// get asks the handler, without a network.
func (f *fake) get(method, path string, headers ...string) response {
	return f.send(method, path, "", headers...)
}

// send is get with a body.
func (f *fake) send(method, path, body string, headers ...string) response {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
			continue
		}
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	f.ServeHTTP(w, r)
	return response{w.Code, w.Header(), w.Body.String()}
}

func (f *fake) View() state.View { return f.store.View() }

func (f *fake) Propose(ctx context.Context, commands ...command.Command) (uint64, error) {
	if f.commits {
		tx := f.store.Begin(f.store.View().Index()+1, statetest.Now())
		for _, c := range commands {
			if err := c.Apply(tx); err != nil {
				tx.Abort()
				return 0, err
			}
		}
		tx.Commit()
		return f.store.View().Index(), nil
	}
	if f.propose == nil {
		return 0, errors.New("the disk has a hole")
	}
	return f.propose(ctx)
}

func (f *fake) Ready() bool              { return f.ready }
func (f *fake) Leader() (string, string) { return f.leader, "" }

func (f *fake) Save(w io.Writer) error {
	if f.save == nil {
		return f.store.View().Save(w)
	}
	return f.save(w)
}

func (f *fake) Restore(context.Context, io.Reader) error { return errors.New("the disk has a hole") }

func (*fake) Seen(api.NodeID, string)      {}
func (*fake) Live(api.NodeID, string) bool { return false }

func (f *fake) Volume(v state.View, _ *api.Volume) []api.Wait { return f.Everything(v) }
func (*fake) Queue(state.View, *api.Volume) []api.QueuedJob   { return nil }
func (f *fake) Job(v state.View, _ *api.Job) []api.Wait       { return f.Everything(v) }

func (f *fake) Snapshot(v state.View, _ *api.Snapshot) []api.Wait { return f.Everything(v) }

func (f *fake) Node(v state.View, n *api.Node) []api.Wait {
	if n.Spec.Drain == nil {
		return nil
	}
	return f.Everything(v)
}

func (f *fake) Allocation(v state.View, _ *api.Allocation) []api.Wait { return f.Everything(v) }

func (*fake) Sweep(context.Context, api.PluginID) ([]api.SweepReport, error) {
	return []api.SweepReport{}, nil
}
func (*fake) Reports() []api.SweepReport { return []api.SweepReport{} }

func (f *fake) Everything(v state.View) []api.Wait {
	if f.explain == nil {
		return nil
	}
	return f.explain(v)
}

// into reads an answer.
func into[T any](t *testing.T, r response) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(r.body), &v); err != nil || r.status != http.StatusOK {
		t.Fatalf("answered %d %s: %v", r.status, r.body, err)
	}
	return v
}

// Collect implements httpapi.Rubbish.
func (f *fake) Collect(context.Context) (api.Collected, error) {
	return api.Collected{Operations: 2, Attachments: 1}, nil
}
