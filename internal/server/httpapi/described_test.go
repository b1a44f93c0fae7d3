package httpapi_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/server/httpapi"
)

// filled fills the paths of routes with what TestAnswersAreAsDescribed makes.
// What the servers can only ask agents for is not among it.
func filled(alloc api.AllocID) map[string]string {
	return map[string]string{
		"/v1/volumes": "", "/v1/volume/{namespace}/{id}": "/v1/volume/default/pg",
		"/v1/volume/{namespace}/{id}/usage": "/v1/volume/default/pg/usage",
		"/v1/publications":                  "", "/v1/publication/{namespace}/{volume}/{node}": "/v1/publication/default/pg/n1",
		"/v1/attachments": "", "/v1/attachment/{allocation}/{name}": "/v1/attachment/" + string(alloc) + "/data",
		"/v1/jobs": "", "/v1/job/{namespace}/{id}": "/v1/job/default/db",
		"/v1/job/{namespace}/{id}/revisions": "/v1/job/default/db/revisions", "/v1/job/{namespace}/{id}/revision/{revision}": "/v1/job/default/db/revision/1",
		"/v1/allocations": "", "/v1/allocation/{id}": "/v1/allocation/" + string(alloc),
		"/v1/plugins": "", "/v1/plugin/{id}": "/v1/plugin/disk", "/v1/instances": "",
		"/v1/snapshots": "", "/v1/snapshot/{namespace}/{id}": "/v1/snapshot/default/nightly",
		"/v1/operations": "", "/v1/operation/{id...}": "/v1/operation/create/default/pg@1",
		"/v1/vars": "", "/v1/var/{namespace}/{path...}": "/v1/var/default/jobs/db",
		"/v1/namespaces": "", "/v1/services": "", "/v1/service/{name}": "/v1/service/web?all=true",
		"/v1/nodes": "", "/v1/node/{id}": "/v1/node/n1", "/v1/sweep": "",
		"/v1/agent/assignments": "", "/v1/agent/secrets/{namespace}/{id}": "/v1/agent/secrets/default/pg",
		"/v1/status": "", "/v1/cluster": "", "/v1/system/recovery": "",
	}
}

// TestAnswersAreAsDescribed asks a server that has one of each noun for all of
// its lists and nouns: each answer has what its description requires, of the
// kinds that it says, and nothing else. No list of nouns is empty.
func TestAnswersAreAsDescribed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		defer w.stop()
		n1 := w.join("n1")
		n1.provision("pg")
		alloc := n1.run("db", "pg")
		web := service(1, "")
		web.Groups[0].Services = []api.Service{{Name: "web", Port: "80"}}
		for route, body := range map[string]any{
			"PUT /v1/job/default/web":          web,
			"PUT /v1/snapshot/default/nightly": api.SnapshotCreation{VolumeID: "pg"},
			"PUT /v1/var/default/jobs/db":      api.VariableSpec{Items: map[string]string{"password": "x"}},
		} {
			method, path, _ := strings.Cut(route, " ")
			if got := w.send(method, path, body); got.status != http.StatusOK {
				t.Errorf("%s: %d %s", route, got.status, got.body)
			}
		}
		synctest.Wait()
		d, f := describe(t)
		agent := []string{api.HeaderNode, "n1", "Authorization", "Bearer n1-secret", api.HeaderSession, n1.session, api.HeaderEpoch, "1"}
		// Findings come of what agents say: here they are a world's.
		found := newFake(t, oneOfEach(), nil)
		paths := filled(alloc.ID)
		for _, rt := range httpapi.Routes(f.Handler) {
			method, pattern, _ := strings.Cut(rt.Pattern, " ")
			if method != http.MethodGet || rt.Media != "" || pattern == "/v1/openapi.json" || asksAgents(rt.Name) {
				continue
			}
			path, known := paths[pattern]
			if path == "" {
				path = pattern
			}
			var got response
			switch {
			case pattern == "/v1/findings":
				got = found.get(method, path)
			case pattern == "/v1/finding/{id}":
				got = found.get(method, "/v1/finding/leak-1")
			case !known:
				t.Errorf("%s has no row in filled: nobody knows whether it answers what is described", rt.Pattern)
				continue
			default:
				got = w.send(method, path, nil, agent...)
			}
			var answer any
			if err := json.Unmarshal([]byte(got.body), &answer); err != nil || got.status != http.StatusOK {
				t.Errorf("%s: %d %s: %v", rt.Pattern, got.status, got.body, err)
				continue
			}
			op := d.Paths[strings.ReplaceAll(pattern, "...", "")]["get"]
			d.check(t, rt.Pattern, op.Responses["200"].Content["application/json"].Schema, answer)
			if rows, isList := answer.([]any); isList && len(rows) == 0 && rt.Name != "SweepReports" && rt.Name != "VolumeUsage" {
				t.Errorf("%s has no row", rt.Pattern)
			}
		}
	})
}

// asksAgents reports whether a route's answer is an agent's.
func asksAgents(name string) bool {
	switch name {
	case "AllocFigures", "PluginVolumes", "PluginSnapshots", "PluginCapacity":
		return true
	}
	return false
}
