package hook_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/allocrunner"
	"github.com/berth-dev/berth/internal/agent/allocrunner/hook"
	"github.com/berth-dev/berth/internal/agent/driver"
)

// cluster is what the servers know, and who reads of it.
type cluster struct {
	mu        sync.Mutex // guards below
	variables map[string]map[string]string
	failing   error // nobody is answered
	readers   map[*reader]bool
}

type reader struct {
	*cluster
	news chan struct{}
}

func newCluster() *cluster {
	return &cluster{variables: map[string]map[string]string{}, readers: map[*reader]bool{}}
}

func (c *cluster) reader(api.NamespaceID) hook.Reader {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := &reader{c, make(chan struct{}, 1)}
	c.readers[r] = true
	return r
}

// put puts the variable, or deletes it.
func (c *cluster) put(items map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.variables["nomad/jobs/db"] = items; items == nil {
		delete(c.variables, "nomad/jobs/db")
	}
	for r := range c.readers {
		select {
		case r.news <- struct{}{}:
		default:
		}
	}
}

func (c *cluster) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failing = err
}

func (c *cluster) left() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.readers)
}

func (r *reader) Variable(path string) (items map[string]string, found, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	items, found = r.variables[path]
	return items, found, r.failing == nil
}

func (r *reader) Variables(string) (paths []string, ok bool)                { return nil, true }
func (r *reader) Service(string) (instances []api.ServiceInstance, ok bool) { return nil, true }
func (r *reader) Begin()                                                    {}
func (r *reader) Settle()                                                   {}
func (r *reader) News() <-chan struct{}                                     { return r.news }

func (r *reader) Failing() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failing
}

func (r *reader) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.readers, r)
}

// talking is a fake driver whose tasks can be told something.
type talking struct {
	hosting
	refuses error
	signals []string
}

func (d *talking) Signal(_ context.Context, id, signal string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, run, _ := strings.Cut(id, "/")
	d.signals = append(d.signals, run+": "+signal)
	return d.refuses
}

// told are what its tasks were told.
func (d *talking) told() (all []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append(append(all, d.signals...), d.visits...)
}

// reading is a node with one allocation, whose task has templates.
type reading struct {
	t       *testing.T
	cluster *cluster
	driver  *talking
	dir     string
	a       api.AllocAssignment
	h       *hook.Tasks
	s       *allocrunner.Step
}

func newReading(t *testing.T, templates ...api.Template) *reading {
	t.Helper()
	n := &reading{t: t, cluster: newCluster(), driver: &talking{hosting: hosting{fake: newFake()}}, dir: t.TempDir(), a: assignment()}
	n.a.Group.Tasks[0].Templates = templates
	for _, dir := range []string{"pg/local", "pg/secrets", "pg/tmp", ".alloc"} {
		if err := os.MkdirAll(filepath.Join(n.dir, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	n.restart()
	return n
}

// restart replaces the agent.
func (n *reading) restart() {
	tasks := map[string]api.TaskStatus{}
	if n.s != nil {
		tasks = n.s.Tasks()
	}
	n.h = hook.NewTasks(map[string]driver.Driver{"fake": n.driver}, func() *api.Node { return &api.Node{} })
	n.h.Reads(n.cluster.reader)
	n.s = allocrunner.NewStep(n.dir, n.a)
	for name, is := range tasks {
		n.s.SetTask(name, is)
	}
}

// up calls Up, as long as it asks for it at once, and writes what a driver would.
func (n *reading) up() error {
	n.t.Helper()
	err := n.h.Up(n.t.Context(), n.s)
	for _, f := range n.spec().Files {
		path := filepath.Join(n.dir, "pg", f.Dir, f.Path)
		if _, missing := os.Stat(path); missing != nil {
			if err := os.WriteFile(path, []byte(f.Content), f.Mode); err != nil {
				n.t.Fatal(err)
			}
		}
	}
	return err
}

// news waits until Watch says that there is something to do.
func (n *reading) news() {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), time.Minute)
	defer cancel()
	if end, err := n.h.Watch(ctx, n.s); end != allocrunner.Again || err != nil || ctx.Err() != nil {
		n.t.Fatalf("Watch: %v, %v, %v", end, err, ctx.Err())
	}
}

// spec is that of the newest run.
func (n *reading) spec() driver.Spec {
	n.driver.mu.Lock()
	defer n.driver.mu.Unlock()
	return n.driver.specs[hook.RunID(allocID, "pg", n.s.Tasks()["pg"].Restarts)]
}

func (n *reading) file(path string) string {
	n.t.Helper()
	b, err := os.ReadFile(filepath.Join(n.dir, "pg", path))
	if err != nil {
		n.t.Fatal(err)
	}
	return string(b)
}

// events are what people were told.
func (n *reading) events() string {
	var all []string
	for _, e := range n.s.Events() {
		all = append(all, e.Message)
	}
	return strings.Join(all, "; ")
}

const token = `token = {{ with nomadVar "nomad/jobs/db" }}{{ .token }}{{ end }}`

func items(token string) map[string]string { return map[string]string{"token": token} }

// following is a template that follows the token, and tells the task at once.
func following(mode api.ChangeMode) api.Template {
	return api.Template{Data: token, Destination: "local/conf", ChangeMode: mode, ChangeSignal: "SIGHUP", Splay: new(api.Duration)}
}

func TestTaskWaitsForItsVariable(t *testing.T) {
	t.Parallel()
	n := newReading(t, following(""))
	for _, tc := range []struct {
		items map[string]string
		want  string
	}{
		{nil, "task pg waits for the variable nomad/jobs/db"},
		{map[string]string{"other": "s3cret"}, `task pg waits for what it reads to change: render template local/conf: line 1: it cannot be done: map has no entry for key "token"`},
	} {
		n.cluster.put(tc.items)
		err := n.up()
		_, ok := errors.AsType[*allocrunner.Partial](err)
		var waiting *allocrunner.Waiting
		if !ok || !errors.As(err, &waiting) || err.Error() != tc.want {
			t.Fatalf("Up: %v, want it to wait: %s", err, tc.want)
		}
		if len(n.driver.calls) > 0 || !n.s.Starting() {
			t.Errorf("calls %v, starting %v", n.driver.calls, n.s.Starting())
		}
	}
	if got, want := n.events(), `it waits for the variable nomad/jobs/db; it waits for what it reads`; !strings.HasPrefix(got, want) {
		t.Errorf("people are told %q, want %q", got, want)
	}
	n.cluster.put(items("s3cret"))
	n.news()
	if err := n.up(); err != nil {
		t.Fatal(err)
	}
	if got := n.spec().Files[0].Content; got != "token = s3cret" {
		t.Errorf("the task finds %q", got)
	}
	if strings.Contains(n.events(), "s3cret") {
		t.Errorf("people are told %q", n.events())
	}
	info, err := os.Stat(filepath.Join(n.dir, ".templates", "pg.json"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("what the task was told is %v, %v", info, err)
	}
	if err := n.h.Down(t.Context(), n.s); err != nil || n.cluster.left() > 0 {
		t.Errorf("Down: %v, and %d read", err, n.cluster.left())
	}
}

func TestTaskIsToldOfAChange(t *testing.T) {
	t.Parallel()
	script := following(api.ChangeScriptMode)
	script.ChangeScript = &api.ChangeScript{Command: "${NOMAD_TASK_DIR}/reload", Args: []string{"${BERTH_TASK_NAME}"}}
	deadly := script
	deadly.ChangeScript = &api.ChangeScript{Command: "/reload", FailOnError: true}
	other := api.Template{Data: "fixed", Destination: "local/fixed"}
	env := api.Template{Data: `TOKEN={{ (nomadVar "nomad/jobs/db").token }}`, Destination: "secrets/env", Env: true, Splay: new(api.Duration)}
	after := api.Template{Data: `{{ env "TOKEN" }}`, Destination: "local/after", ChangeMode: api.ChangeNoop}
	for name, tc := range map[string]struct {
		templates []api.Template
		exit      int
		restarts  int
		told      []string
		file      string
		event     string
	}{
		"Restart":           {[]api.Template{following("")}, 0, 1, nil, "token = new", "it is started again: what is to be in local/conf has changed"},
		"Signal":            {[]api.Template{other, following(api.ChangeSignal)}, 0, 0, []string{"pg: SIGHUP"}, "token = new", "it gets SIGHUP: local/conf has changed"},
		"Script":            {[]api.Template{script}, 0, 0, []string{"pg: /local/reload pg"}, "token = new", "change script /local/reload has ended with success"},
		"ScriptThatFails":   {[]api.Template{script}, 2, 0, []string{"pg: /local/reload pg"}, "token = new", "change script /local/reload has failed"},
		"ScriptThatMatters": {[]api.Template{deadly}, 2, 0, []string{"pg: /reload"}, "token = new", "change script /reload has failed"},
		"Noop":              {[]api.Template{following(api.ChangeNoop)}, 0, 0, nil, "token = new", ""},
		"Environment":       {[]api.Template{env, after, following(api.ChangeSignal)}, 0, 1, nil, "token = new", "it is started again: what is to be in secrets/env, local/after, local/conf has changed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newReading(t, tc.templates...)
			n.driver.exit(tc.exit)
			n.cluster.put(items("old"))
			if err := n.up(); err != nil {
				t.Fatal(err)
			}
			if got := n.file("local/conf"); got != "token = old" {
				t.Fatalf("the file is %q", got)
			}
			n.cluster.put(items("new"))
			n.news()
			if tc.restarts > 0 {
				if err := os.Remove(filepath.Join(n.dir, "pg", "local", "conf")); err != nil { // the fake driver writes no file
					t.Fatal(err)
				}
			}
			if err := n.up(); err != nil {
				t.Fatal(err)
			}
			is := n.s.Tasks()["pg"]
			if is.Restarts != tc.restarts || is.Attempts != 0 {
				t.Errorf("the task is %+v, want %d restarts", is, tc.restarts)
			}
			if failed := name == "ScriptThatMatters"; failed != (is.State == api.TaskEnded) {
				t.Errorf("the task is %s", is.State)
			}
			if diff := cmp.Diff(tc.told, n.driver.told()); diff != "" {
				t.Errorf("the task is told (-want +got):\n%s", diff)
			}
			if got := n.file("local/conf"); got != tc.file {
				t.Errorf("the file is %q, want %q", got, tc.file)
			}
			if got := n.events(); got != tc.event {
				t.Errorf("people are told %q, want %q", got, tc.event)
			}
			// Once is enough, also for an agent that is new.
			for range 2 {
				if err := n.up(); err != nil {
					t.Fatal(err)
				}
				n.restart()
			}
			if got := n.driver.told(); len(got) != len(tc.told) || n.s.Tasks()["pg"].Restarts != tc.restarts {
				t.Errorf("the task is told again: %v, %+v", got, n.s.Tasks()["pg"])
			}
		})
	}
}

// A job may be applied with another change mode while its tasks run.
func TestTaskIsToldByTheChangeModeOfNow(t *testing.T) {
	t.Parallel()
	n := newReading(t, following(""))
	n.cluster.put(items("old"))
	if err := n.up(); err != nil {
		t.Fatal(err)
	}
	n.a.Group.Tasks[0].Templates = []api.Template{following(api.ChangeSignal)}
	if err := n.up(); err != nil {
		t.Fatal(err)
	}
	if got := n.driver.told(); len(got) > 0 {
		t.Errorf("the task is told %v, and nothing has changed that it reads", got)
	}
	n.cluster.put(items("new"))
	n.news()
	if err := n.up(); err != nil {
		t.Fatal(err)
	}
	if got := n.s.Tasks()["pg"].Restarts; got != 0 {
		t.Errorf("%d restarts", got)
	}
	if diff := cmp.Diff([]string{"pg: SIGHUP"}, n.driver.told()); diff != "" {
		t.Errorf("the task is told (-want +got):\n%s", diff)
	}
}

// What a task makes of its files is its own affair.
func TestTaskThatEditsItsFileIsLeftAlone(t *testing.T) {
	t.Parallel()
	n := newReading(t, following(""))
	n.cluster.put(items("old"))
	if err := n.up(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(n.dir, "pg", "local", "conf"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	n.restart()
	n.cluster.put(map[string]string{"token": "old", "more": "1"})
	if err := n.up(); err != nil || n.s.Tasks()["pg"].Restarts > 0 || n.file("local/conf") != "mine" {
		t.Errorf("Up: %v, the task is %+v, its file %q", err, n.s.Tasks()["pg"], n.file("local/conf"))
	}
}

// An outage of the servers neither ends a task nor keeps it down.
func TestWithoutServersTasksGoOnWithWhatTheyHave(t *testing.T) {
	t.Parallel()
	n := newReading(t, following(""), api.Template{Data: `T={{ (nomadVar "nomad/jobs/db").token }}`, Destination: "secrets/env", Env: true, Splay: new(api.Duration)})
	three := 3
	n.a.Group.Restart = &api.RestartPolicy{Attempts: &three, Delay: new(api.Duration)}
	n.cluster.put(items("old"))
	if err := n.up(); err != nil {
		t.Fatal(err)
	}
	n.cluster.fail(errors.New("no server answers on 4646"))
	n.restart()
	if err := n.up(); err != nil || n.s.Tasks()["pg"].Restarts > 0 || n.events() != "" {
		t.Fatalf("Up of a new agent: %v, the task is %+v, people are told %q", err, n.s.Tasks()["pg"], n.events())
	}
	n.driver.fake.end(id("pg"), driver.Status{ExitCode: 1})
	for range 2 { // its end, and its next start
		if err := n.up(); err != nil {
			t.Fatal(err)
		}
	}
	spec := n.spec()
	if is := n.s.Tasks()["pg"]; is.State != api.TaskRunning || is.Restarts != 1 || len(spec.Files) != 2 || spec.Files[0].Content != "token = old" || spec.Env["T"] != "old" {
		t.Errorf("the task is %+v, with %+v", n.s.Tasks()["pg"], spec.Files)
	}
	// One that was never made has nothing to go on with.
	other := newReading(t, following(""))
	other.cluster.fail(errors.New("no server answers on 4646"))
	want := "task pg waits for the variable nomad/jobs/db: no server answers on 4646"
	if err := other.up(); err == nil || err.Error() != want {
		t.Errorf("Up of a new task: %v, want %s", err, want)
	}
	// What has changed meanwhile is noticed.
	n.cluster.fail(nil)
	n.cluster.put(items("new"))
	n.news()
	if err := n.up(); err != nil || n.s.Tasks()["pg"].Restarts != 2 || n.spec().Env["T"] != "new" {
		t.Errorf("Up: %v, the task is %+v", err, n.s.Tasks()["pg"])
	}
}

// A mistyped delete must not be an outage.
func TestVariableThatIsDeletedChangesNothing(t *testing.T) {
	t.Parallel()
	n := newReading(t, following(""))
	n.cluster.put(items("old"))
	if err := n.up(); err != nil {
		t.Fatal(err)
	}
	n.cluster.put(nil)
	n.news()
	for range 2 {
		if err := n.up(); err != nil || n.s.Tasks()["pg"].Restarts > 0 {
			t.Fatalf("Up: %v, the task is %+v", err, n.s.Tasks()["pg"])
		}
	}
	if got, want := n.events(), "its files stay as they are: it waits for the variable nomad/jobs/db"; got != want {
		t.Errorf("people are told %q, want %q", got, want)
	}
	n.cluster.put(items("new"))
	n.news()
	if err := n.up(); err != nil || n.s.Tasks()["pg"].Restarts != 1 {
		t.Errorf("Up: %v, the task is %+v", err, n.s.Tasks()["pg"])
	}
}

// An agent that is killed between the files and the signal sends it after all, and
// one whose signal does not arrive tries again.
func TestTaskIsToldAlsoByTheNextAgent(t *testing.T) {
	t.Parallel()
	n := newReading(t, following(api.ChangeSignal))
	n.cluster.put(items("old"))
	if err := n.up(); err != nil {
		t.Fatal(err)
	}
	n.driver.refuses = errors.New("no engine")
	n.cluster.put(items("new"))
	n.news()
	if err := n.up(); err == nil || !strings.Contains(err.Error(), "tell task pg of a change: no engine") {
		t.Fatalf("Up: %v", err)
	}
	n.driver.refuses = nil
	n.restart()
	if err := n.up(); err != nil || len(n.driver.told()) != 2 {
		t.Errorf("Up of the next agent: %v, told %v", err, n.driver.told())
	}
}

// Of several files that change at once all are written, or none.
func TestChangeThatCannotBeWrittenChangesNothing(t *testing.T) {
	t.Parallel()
	second := following(api.ChangeSignal)
	second.Destination = "secrets/second"
	n := newReading(t, following(api.ChangeSignal), second)
	n.cluster.put(items("old"))
	if err := n.up(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(n.dir, "pg", "secrets", "second")
	if err := errors.Join(os.Remove(path), os.MkdirAll(filepath.Join(path, "x"), 0o700)); err != nil {
		t.Fatal(err)
	}
	n.cluster.put(items("new"))
	n.news()
	if err := n.up(); err == nil || !strings.Contains(err.Error(), "something else is in its place") {
		t.Errorf("Up: %v", err)
	}
	if got := n.file("local/conf"); got != "token = old" || len(n.driver.told()) > 0 {
		t.Errorf("the file is %q, and the task was told %v", got, n.driver.told())
	}
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
	if err := n.up(); err != nil || n.file("local/conf") != "token = new" || n.file("secrets/second") != "token = new" || len(n.driver.told()) != 1 {
		t.Errorf("Up: %v, the file is %q, told %v", err, n.file("local/conf"), n.driver.told())
	}
}

// TestEndOfATaskThatFollowsIsSeenAtOnce, and not when what it follows changes.
func TestEndOfATaskThatFollowsIsSeenAtOnce(t *testing.T) {
	t.Parallel()
	n := newReading(t, following(""))
	n.cluster.put(items("s3cret"))
	if err := n.up(); err != nil {
		t.Fatal(err)
	}
	n.driver.fake.end(id("pg"), driver.Status{ExitCode: 1})
	n.news()
}

// TestTaskThatCannotBeToldIsNotLookedAtWithoutPause: its engine does not answer
// when it is to be told of a change.
func TestTaskThatCannotBeToldIsNotLookedAtWithoutPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newReading(t, following(api.ChangeSignal))
		n.cluster.put(items("a"))
		if err := n.up(); err != nil {
			t.Fatal(err)
		}
		n.cluster.put(items("b"))
		n.news()
		n.driver.refuses = api.Errorf(api.CodeUnavailable, "the engine does not answer")
		if err := n.up(); err == nil {
			t.Fatal("the task was told")
		}
		n.driver.mu.Lock()
		n.driver.fail["look pg"] = n.driver.refuses
		n.driver.mu.Unlock()
		time.Sleep(time.Minute)
		for range 3 {
			if err := n.up(); err == nil {
				t.Fatal("the task was looked at")
			}
			began := time.Now()
			if n.news(); time.Since(began) < time.Second {
				t.Errorf("there is something to do after %s", time.Since(began))
			}
		}
	})
}
