package httpapi_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/keyring"
	"github.com/berth-dev/berth/internal/server/httpapi"
	"github.com/berth-dev/berth/internal/state/statetest"
)

// oneOfEach has a row of each noun that a route can name. Node n1 is in contact,
// and n2, which runs the allocation that can be asked, is not: nobody waits.
func oneOfEach() string {
	hash := sha256.Sum256([]byte("s3cret"))
	return fmt.Sprintf(`
cluster {}
node {"id":"n1","status":{"state":"ready","drivers":{"exec":{"healthy":true,"mounts_volumes":true}}}}
node {"id":"n2","status":{"state":"ready"}}
identity {"node_id":"n1","secret_hash":%q,"session":"s","epoch":1}
instance {"plugin_id":"disk","node_id":"n1","type":"monolith","healthy":true,"driver":"disk.example","controller_capabilities":["CREATE_DELETE_VOLUME","CREATE_DELETE_SNAPSHOT"]}
volume {"id":"pg","spec":{"plugin_id":"disk"},"status":{"state":"ready","external_id":"x"}}
publication {"volume_id":"pg","node_id":"n2"}
attachment {"alloc_id":"a1","name":"data","volume_id":"pg","node_id":"n2"}
job {"id":"db","spec":{"type":"service","groups":[{"name":"main","count":1,"tasks":[{"name":"t","driver":"exec"}]}]}}
allocation {"id":"a1","job_id":"db","group":"main","node_id":"n2","status":{"state":"running","tasks":{"t":{"state":"running"}}}}
snapshot {"id":"nightly","volume_id":"pg"}
finding {"id":"leak-1","plugin_id":"disk"}
variable {"path":"jobs/db"}
`, hex.EncodeToString(hash[:]))
}

// existing fills the path of a route with what is in oneOfEach.
var existing = strings.NewReplacer(
	"/volume/{namespace}/{id}", "/volume/default/pg", "/job/{namespace}/{id}", "/job/default/db", "/snapshot/{namespace}/{id}", "/snapshot/default/nightly",
	"/allocation/{id}", "/allocation/a1", "{task}", "t", "/node/{id}", "/node/n1", "/var/{namespace}/{path...}", "/var/default/jobs/db",
	"/stream/{id}", "/stream/1",
)

// someOf is a log that takes what a real one would: commands are checked first.
type someOf struct{ *fake }

func (s someOf) Propose(ctx context.Context, commands ...command.Command) (uint64, error) {
	for _, c := range commands {
		if err := c.Validate(); err != nil {
			return 0, err
		}
	}
	return s.fake.Propose(ctx, commands...)
}

func (someOf) Live(node api.NodeID, _ string) bool { return node == "n1" }

// Plan implements httpapi.Planner.
func (someOf) Plan(_ context.Context, specs httpapi.Specs) (api.Plan, error) {
	for _, v := range specs.Volumes {
		if err := v.Validate(); err != nil {
			return api.Plan{}, err
		}
	}
	for _, j := range specs.Jobs {
		if err := j.Validate(); err != nil {
			return api.Plan{}, err
		}
	}
	return api.Plan{Jobs: make([]api.JobPlan, len(specs.Jobs)), Volumes: make([]api.VolumePlan, len(specs.Volumes))}, nil
}

// FuzzBody: whatever is sent to a route that reads a body, it is done, or
// refused with an error of the API, and is no fault of Berth.
func FuzzBody(f *testing.F) {
	keys, err := keyring.Load(filepath.Join(f.TempDir(), "keyring.json"))
	if err == nil {
		err = keys.Generate()
	}
	if err != nil {
		f.Fatal(err)
	}
	world := oneOfEach()
	// The description of the API, which a handler is made with, takes longer than any input.
	fake := newFake(f, world, func(c *httpapi.Config) {
		some := someOf{c.Log.(*fake)}
		some.commits = true
		c.Log, c.Contacts, c.Plan, c.Keyring = some, some, some, keys
	})
	var routes []httpapi.Route
	bodies := []any{volume(), job("pg"), registration("n1", "s"), api.VariableSpec{Items: map[string]string{"password": "x"}}, api.Revert{Revision: 1}, api.FenceRequest{}}
	for _, rt := range httpapi.Routes(fake.Handler) {
		if rt.Body == nil {
			continue
		}
		at := uint8(len(routes))
		routes = append(routes, rt)
		full := reflect.New(reflect.TypeOf(rt.Body))
		statetest.Fill(full.Interface())
		all := []any{rt.Body, full.Interface()}
		for _, body := range bodies {
			if reflect.TypeOf(body) == reflect.TypeOf(rt.Body) {
				all = append(all, body)
			}
		}
		for _, body := range all {
			text, err := json.Marshal(body)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(at, string(text))
		}
		for _, text := range []string{"", "null", "[]", "{", `{"x":1}`, "{}{}"} {
			f.Add(at, text)
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, body string) {
		rt := routes[int(which)%len(routes)]
		fake.store = statetest.Load(t, world)
		fake.logs.buf.Reset()
		method, path, _ := strings.Cut(existing.Replace(rt.Pattern), " ")
		if strings.Contains(path, "{") {
			t.Fatalf("the path of %s is not filled in", rt.Pattern)
		}
		got := fake.send(method, path, body, api.HeaderNode, "n1", "Authorization", "Bearer s3cret", api.HeaderSession, "s", api.HeaderEpoch, "1")
		if kind := got.header.Get("Content-Type"); kind != "application/json" || !json.Valid([]byte(got.body)) {
			t.Errorf("%s of %q: %d, %s of the type %q", rt.Pattern, body, got.status, got.body, kind)
		}
		if got.status == http.StatusOK {
			return
		}
		if e := got.refusal(t); e.Code == api.CodeInternal || got.status != httpapi.StatusOf(e.Code) {
			t.Errorf("%s of %q: %d %s\n%s", rt.Pattern, body, got.status, got.body, fake.logs)
		}
	})
}
