package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
)

// dialTo reaches a server whatever the address says.
func dialTo(t *testing.T, cfg client.Config, server *httptest.Server) *client.Client {
	t.Helper()
	t.Cleanup(server.Close)
	cfg.Address = server.URL
	c, err := client.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// serve starts a server, and a client of it.
func serve(t *testing.T, handle http.HandlerFunc) *client.Client {
	t.Helper()
	return dialTo(t, client.Config{}, httptest.NewServer(handle))
}

func answer(w http.ResponseWriter, status int, v any) {
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"":                           "",
		"127.0.0.1:7400":             "",
		":7400":                      "",
		"[::1]:7400":                 "",
		"localhost":                  "",
		"http://localhost:7400":      "",
		"http://localhost:7400/":     "",
		"http://proxy/berth/":        "",
		"http://user:pw@proxy":       "",
		"http://":                    `the address "http://" is no URL such as http://127.0.0.1:7400`,
		"http:// x":                  `the address "http:// x" is no URL such as http://127.0.0.1:7400`,
		"127.0.0.1:port":             `the address "http://127.0.0.1:port" is no URL such as http://127.0.0.1:7400`,
		"127.0.0.1:7400\n":           `the address "http://127.0.0.1:7400\n" is no URL such as http://127.0.0.1:7400`,
		"https://berth.example":      "the address https://berth.example is not one of plain HTTP, which is all that this version speaks: write it as http://127.0.0.1:7400",
		"unix://u:geheim@x/run/b":    "the address unix://u:xxxxx@x/run/b is not one of plain HTTP, which is all that this version speaks: write it as http://127.0.0.1:7400",
		"http://127.0.0.1:7400:7400": `the address "http://127.0.0.1:7400:7400" is no URL such as http://127.0.0.1:7400`,
	} {
		_, err := client.New(client.Config{Address: address})
		got := ""
		if err != nil {
			got = err.Error()
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("address %q (-want +got):\n%s", address, diff)
		}
		if err != nil && api.CodeOf(err) != api.CodeInvalid {
			t.Errorf("address %q: code %s, want invalid", address, api.CodeOf(err))
		}
	}
}

// TestAddressWithAPath: behind a proxy the API may lie below a path.
func TestAddressWithAPath(t *testing.T) {
	t.Parallel()
	var got string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.URL.String()
		answer(w, http.StatusOK, api.Status{})
	}))
	defer server.Close()
	c, err := client.New(client.Config{Address: server.URL + "/a%20b/?x=1#y"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Status(t.Context()); err != nil || got != "/a%20b/v1/status" {
		t.Errorf("asked for %q (%v), want /a%%20b/v1/status", got, err)
	}
}

// TestOddIDs: whatever an id is, the server is asked about that and nothing else.
func TestOddIDs(t *testing.T) {
	t.Parallel()
	var asked string
	mux := http.NewServeMux()
	note := func(name string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			asked = name + " " + r.PathValue("namespace") + " " + r.PathValue("id")
			answer(w, http.StatusOK, struct{}{})
		}
	}
	mux.Handle("DELETE /v1/volume/{namespace}/{id}", note("volume"))
	mux.Handle("GET /v1/allocation/{id}", note("allocation"))
	mux.Handle("GET /v1/operation/{id...}", note("operation"))
	c := dialTo(t, client.Config{}, httptest.NewServer(mux))
	for _, id := range []string{
		"pg", ".", "..", "...", "a/b", "../jobs", "a b", "a%2Fb", "a?b=c", "a#b", "ä", "a+b", "a;b", "%", "-", "@1", "a\nb", "..%2f..",
	} {
		asked = ""
		if err := c.DeleteVolume(t.Context(), "default", api.VolumeID(id), 0); err != nil || asked != "volume default "+id {
			t.Errorf("volume %q: the server was asked for %q (%v)", id, asked, err)
		}
		asked = ""
		if _, _, err := c.Allocation(t.Context(), id, client.Query{}); err != nil || asked != "allocation  "+id {
			t.Errorf("allocation %q: the server was asked for %q (%v)", id, asked, err)
		}
	}
	for _, id := range []string{"create/default/pg@1", "publish/default/pg/db-1-9f31c2aa@12", "x@1", "create/../pg@1"} {
		asked = ""
		if _, _, err := c.Operation(t.Context(), api.OperationID(id), client.Query{}); err != nil || asked != "operation  "+id {
			t.Errorf("operation %q: the server was asked for %q (%v)", id, asked, err)
		}
	}
}

// TestEmptyNamesAreNotSent: the request would be about something else.
func TestEmptyNamesAreNotSent(t *testing.T) {
	t.Parallel()
	c := serve(t, func(_ http.ResponseWriter, r *http.Request) { t.Errorf("the server was asked for %s", r.URL) })
	ctx := t.Context()
	for want, call := range map[string]func() error{
		`a name is empty in "volume/default/"`:    func() error { return c.DeleteVolume(ctx, "default", "", 0) },
		`a name is empty in "volume//pg"`:         func() error { return c.DeleteVolume(ctx, "", "pg", 0) },
		`a name is empty in "node/"`:              func() error { _, _, err := c.Node(ctx, "", client.Query{}); return err },
		`a name is empty in "operation/"`:         func() error { _, _, err := c.Operation(ctx, "", client.Query{}); return err },
		`a name is empty in "operation/create//"`: func() error { _, _, err := c.Operation(ctx, "create//", client.Query{}); return err },
	} {
		err := call()
		if err == nil || err.Error() != want || api.CodeOf(err) != api.CodeInvalid {
			t.Errorf("got %v (%s), want invalid: %s", err, api.CodeOf(err), want)
		}
	}
}

// TestRequests is what each method sends.
func TestRequests(t *testing.T) {
	t.Parallel()
	var got string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = strings.TrimSpace(fmt.Sprintf("%s %s %s", r.Method, r.URL, body))
		if r.URL.Path == "/v1/system/snapshot" && r.Method == http.MethodGet {
			_, _ = io.WriteString(w, "saved")
			return
		}
		w.Header().Set(api.HeaderIndex, "17")
		list := strings.HasSuffix(r.URL.Path, "s") && !strings.HasSuffix(r.URL.Path, "status")
		if list {
			answer(w, http.StatusOK, []struct{}{})
			return
		}
		answer(w, http.StatusOK, struct{}{})
	})
	ctx, q := t.Context(), client.Query{Index: 7, Wait: 90 * time.Second, Namespace: "ns", Volume: "pg"}
	const query = "?index=7&namespace=ns&volume=pg&wait=1m30s"
	indexed := func(_ any, index uint64, err error) error {
		if err == nil && index != 17 {
			return fmt.Errorf("index %d, want the header's", index)
		}
		return err
	}
	plain := func(_ any, err error) error { return err }
	for want, send := range map[string]func() error{
		"GET /v1/status":                                     func() error { return plain(c.Status(ctx)) },
		"GET /v1/volumes" + query:                            func() error { v, i, err := c.Volumes(ctx, q); return indexed(v, i, err) },
		"GET /v1/volume/ns/pg":                               func() error { v, i, err := c.Volume(ctx, "ns", "pg", client.Query{}); return indexed(v, i, err) },
		"DELETE /v1/volume/ns/pg":                            func() error { return c.DeleteVolume(ctx, "ns", "pg", 0) },
		"GET /v1/jobs" + query:                               func() error { v, i, err := c.Jobs(ctx, q); return indexed(v, i, err) },
		"GET /v1/job/ns/db":                                  func() error { v, i, err := c.Job(ctx, "ns", "db", client.Query{}); return indexed(v, i, err) },
		"DELETE /v1/job/ns/db":                               func() error { return plain(c.StopJob(ctx, "ns", "db", 0)) },
		"GET /v1/allocations":                                func() error { v, i, err := c.Allocations(ctx, client.Query{}); return indexed(v, i, err) },
		"GET /v1/allocation/ab":                              func() error { v, i, err := c.Allocation(ctx, "ab", client.Query{}); return indexed(v, i, err) },
		"GET /v1/nodes":                                      func() error { v, i, err := c.Nodes(ctx, client.Query{}); return indexed(v, i, err) },
		"GET /v1/node/n1":                                    func() error { v, i, err := c.Node(ctx, "n1", client.Query{}); return indexed(v, i, err) },
		"GET /v1/plugins":                                    func() error { v, i, err := c.Plugins(ctx, client.Query{}); return indexed(v, i, err) },
		"GET /v1/plugin/local":                               func() error { v, i, err := c.Plugin(ctx, "local", client.Query{}); return indexed(v, i, err) },
		"GET /v1/operations":                                 func() error { v, i, err := c.Operations(ctx, client.Query{}); return indexed(v, i, err) },
		"GET /v1/operation/a/b@1":                            func() error { v, i, err := c.Operation(ctx, "a/b@1", client.Query{}); return indexed(v, i, err) },
		"GET /v1/system/recovery":                            func() error { return plain(c.Recovery(ctx)) },
		"GET /v1/system/snapshot":                            func() error { return c.SaveState(ctx, io.Discard) },
		"PUT /v1/system/snapshot x":                          func() error { return plain(c.RestoreState(ctx, strings.NewReader("x"))) },
		"POST /v1/system/gc {}":                              func() error { return plain(c.CollectGarbage(ctx)) },
		`POST /v1/system/recovery {"number":3,"force":true}`: func() error { return plain(c.ConfirmRecovery(ctx, 3, true)) },
		`PUT /v1/volume/ns/pg?version=3 {"plugin_id":"p","capabilities":null}`: func() error {
			return plain(c.ApplyVolume(ctx, "ns", "pg", api.VolumeSpec{PluginID: "p"}, 3))
		},
		`POST /v1/allocation/ab/restart {"task":"pg","number":2}`: func() error {
			return plain(c.RestartAllocation(ctx, "ab", api.RestartRequest{Task: "pg", Number: 2}))
		},
		`POST /v1/allocation/ab/signal {"task":"pg","signal":"SIGHUP"}`: func() error {
			return plain(c.SignalAllocation(ctx, "ab", api.SignalRequest{Task: "pg", Signal: "SIGHUP"}))
		},
		`PUT /v1/job/ns/db {"type":"batch","groups":null}`: func() error {
			return plain(c.ApplyJob(ctx, "ns", "db", api.JobSpec{Type: api.JobBatch}, 0))
		},
	} {
		if err := send(); err != nil {
			t.Errorf("%s: %v", want, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("request (-want +got):\n%s", diff)
		}
	}
}

// TestAgentSaysWhoItIs, and the client that it was made from does not.
func TestAgentSaysWhoItIs(t *testing.T) {
	t.Parallel()
	var got []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = append(got, fmt.Sprint(r.Method, " ", r.URL, " ", r.Header[api.HeaderNode], r.Header["Authorization"], r.Header[api.HeaderSession], r.Header[api.HeaderEpoch]))
		answer(w, http.StatusOK, struct{}{})
	})
	agent := c.Agent("n1", "geheim")
	_, err1 := agent.Register(t.Context(), api.Registration{})
	_, err2 := agent.Assignments(t.Context(), "s", 4, 9, 5*time.Second)
	_, err3 := agent.Report(t.Context(), api.Report{})
	_, err4 := c.Status(t.Context())
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"POST /v1/agent/register [n1] [Bearer geheim] [] []",
		"GET /v1/agent/assignments?brief=true&index=9&wait=5s [n1] [Bearer geheim] [s] [4]",
		"POST /v1/agent/report [n1] [Bearer geheim] [] []",
		"GET /v1/status [] [] [] []",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// TestLargeAnswersKeepTheirConnection: an agent polls all the time.
func TestLargeAnswersKeepTheirConnection(t *testing.T) {
	t.Parallel()
	var connections atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		nodes := []api.Node{{ID: api.NodeID(strings.Repeat("n", 100_000))}}
		answer(w, http.StatusOK, nodes)
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	c := dialTo(t, client.Config{}, server)
	for range 10 {
		if _, _, err := c.Nodes(t.Context(), client.Query{}); err != nil {
			t.Fatal(err)
		}
	}
	if n := connections.Load(); n != 1 {
		t.Errorf("10 requests took %d connections, want 1", n)
	}
}

func TestCancelEndsABlockingQuery(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{})
	c := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		close(asked)
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel()
	}()
	_, _, err := c.Nodes(ctx, client.Query{Index: 1, Wait: time.Minute})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's error", err)
	}
}
