package httpapi_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
)

func TestBodies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		defer w.stop()
		const problem = "the request's body has a problem\n  "
		for name, tc := range map[string]struct {
			body string
			code api.Code
			want string
		}{
			"Empty":        {"", api.CodeInvalid, problem + "body is empty; send one object of JSON"},
			"OnlySpace":    {" \n", api.CodeInvalid, problem + "body is empty; send one object of JSON"},
			"CutOff":       {`{"plugin_id": "di`, api.CodeInvalid, problem + "body ends in the middle of its JSON; send one object of JSON"},
			"HCL":          {`plugin_id = "disk"`, api.CodeInvalid, problem + "body is no JSON at byte 1: invalid character 'p' looking for beginning of value; send one object of JSON"},
			"CommaTooMany": {`{"plugin_id":"disk",}`, api.CodeInvalid, problem + "body is no JSON at byte 21: invalid character '}' looking for beginning of object key string; send one object of JSON"},
			"UnknownName":  {`{"plugin":"disk"}`, api.CodeInvalid, problem + "plugin is not a known name; did you mean plugin_id?"},
			"Unlike":       {`{"plugin_id":"disk","zzzzzz":1}`, api.CodeInvalid, problem + "zzzzzz is not a known name; correct it, or remove it"},
			"UnknownNames": {
				`{"plugin_idd":1,"capabilities":[{},{"acces_mode":"x"}],"parameters":{"anything":"goes"},"topology_request":{"requird":[]},"snapshot_id":"s"}`, api.CodeInvalid,
				"the request's body has 3 problems\n  capabilities[1].acces_mode is not a known name; did you mean access_mode?\n" +
					"  plugin_idd is not a known name; did you mean plugin_id?\n  topology_request.requird is not a known name; did you mean required?",
			},
			"UnknownNameCutOff": {`{"plugin_idd":1,"capa`, api.CodeInvalid, problem + "body ends in the middle of its JSON; send one object of JSON"},
			"NotAnObject":       {`["disk"]`, api.CodeInvalid, problem + "body is of the wrong kind: array; give an object"},
			"WrongKind":         {`{"plugin_id":7}`, api.CodeInvalid, problem + "plugin_id is of the wrong kind: number; give a string"},
			"NotWhole":          {`{"capacity_min":1.5}`, api.CodeInvalid, problem + "capacity_min is of the wrong kind: number 1.5; give a whole number"},
			"TooLargeForIt":     {`{"capacity_min":99999999999999999999}`, api.CodeInvalid, problem + "capacity_min is of the wrong kind: number 99999999999999999999; give a whole number"},
			"ListWanted":        {`{"capabilities":{}}`, api.CodeInvalid, problem + "capabilities is of the wrong kind: object; give a list"},
			"WrongKindDeep":     {`{"capabilities":[{"access_mode":true}]}`, api.CodeInvalid, problem + "capabilities.access_mode is of the wrong kind: bool; give a string"},
			"SomethingMore":     {`{} {}`, api.CodeInvalid, problem + "body has something after its JSON; send one object"},
			"Null":              {`null`, api.CodeInvalid, ""},
			"TooLarge":          {`{"plugin_id":"` + strings.Repeat("x", 1<<20) + `"}`, api.CodeTooLarge, "the request's body is larger than 1048576 bytes"},
			"TooLargeInAll":     {`{}` + strings.Repeat(" ", 1<<20), api.CodeInvalid, ""},
		} {
			got := w.send(http.MethodPut, "/v1/volume/default/pg", tc.body)
			e := got.refusal(t)
			if e.Code != tc.code || got.status != statusOf(t, tc.code) {
				t.Errorf("%s: %d %s, want code %s", name, got.status, got.body, tc.code)
			}
			if diff := cmp.Diff(tc.want, e.Error()); tc.want != "" && diff != "" {
				t.Errorf("%s: message (-want +got):\n%s", name, diff)
			}
		}
		got := w.send(http.MethodPut, "/v1/job/default/db", `{"groups":[{"tasks":[{"kill_timeout":5}]}]}`)
		want := problem + `groups.tasks.kill_timeout is of the wrong kind: 5; give a duration such as "30s"`
		if e := got.refusal(t); e.Error() != want {
			t.Errorf("got %s", e.Error())
		}
		if list := w.send(http.MethodGet, "/v1/volumes", nil); list.body != "[]" {
			t.Errorf("a refused body left something behind: %s", list.body)
		}
	})
}

func statusOf(t *testing.T, code api.Code) int {
	t.Helper()
	switch code {
	case api.CodeInvalid:
		return http.StatusBadRequest
	case api.CodeTooLarge:
		return http.StatusRequestEntityTooLarge
	}
	t.Fatalf("code %s", code)
	return 0
}

// TestQueries: what is misspelled is refused. "revision=3" would otherwise make
// a write that was to be conditional one that is not.
func TestQueries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		defer w.stop()
		w.join("n1").provision("pg")
		const problem = "the request has a problem\n  "
		for request, want := range map[string]string{
			"GET /v1/volumes?index=x":                          problem + `index is "x"; give a number`,
			"GET /v1/volumes?index=-1":                         problem + `index is "-1"; give a number`,
			"GET /v1/volumes?index=1&wait=5":                   problem + `wait is "5"; give a duration such as "30s"`,
			"GET /v1/volumes?wait=-5s":                         problem + `wait is "-5s"; give a duration such as "30s"`,
			"GET /v1/volumes?idx=1":                            problem + "idx is no parameter of this request; use one of index, wait, prefix, filter, per_page, next_token, namespace",
			"GET /v1/volume/default/pg?namespace=x":            problem + "namespace is no parameter of this request; use one of index, wait",
			"GET /v1/status?index=1":                           problem + "index is no parameter of this request; remove it: the request takes none",
			"DELETE /v1/volume/default/pg?revision=7":          problem + "revision is no parameter of this request; use one of version, reclaim",
			"DELETE /v1/volume/default/pg?reclaim=recycle":     "the deletion has a problem\n  reclaim is \"recycle\"; use delete or retain",
			"DELETE /v1/volume/default/pg?version=%zz":         problem + `query cannot be read: invalid URL escape "%zz"; escape what stands in it`,
			"DELETE /v1/volume/default/pg?a=1;version=7":       problem + "query cannot be read: invalid semicolon separator in query; escape what stands in it",
			"DELETE /v1/volume/default/pg?version=one":         problem + `version is "one"; give a number`,
			"DELETE /v1/volume/default/pg?version=7&version=8": problem + "version is there 2 times; give it once",
			"DELETE /v1/node/n1/drain?ineligible=1":            problem + `ineligible is "1"; use true or false`,
			"GET /v1/allocation/a/logs/t?follow=yes":           problem + `follow is "yes"; use true or false`,
			"DELETE /v1/job/default/pg?index=1&wait=1s":        "the request has 2 problems\n  index is no parameter of this request; use one of version\n  wait is no parameter of this request; use one of version",
			"GET /v1/volumes?namespace=default%00pg":           problem + "namespace has a NUL character; remove it",
			"GET /v1/volume/default/pg%00":                     problem + "path has a NUL character; remove it",
			"GET /v1/allocation/%00":                           problem + "path has a NUL character; remove it",
		} {
			method, path, _ := strings.Cut(request, " ")
			got := w.send(method, path, nil)
			e := got.refusal(t)
			if diff := cmp.Diff(want, e.Error()); diff != "" || got.status != http.StatusBadRequest {
				t.Errorf("%s: %d, message (-want +got):\n%s", request, got.status, diff)
			}
		}
		if list := w.send(http.MethodGet, "/v1/volumes", nil); !strings.Contains(list.body, `"desired":"present"`) {
			t.Errorf("a refused request deleted the volume: %s", list.body)
		}
	})
}

// TestSlowHeadersAreCut: whoever takes long to say what it wants, holds nothing.
func TestSlowHeadersAreCut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		defer w.stop()
		conn, err := w.wire.Dial(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		began := time.Now()
		go func() {
			for _, b := range "GET /v1/status HTTP/1.1\r\nHost: server\r\nX-Slow: " + strings.Repeat("x", 100) {
				if _, err := io.WriteString(conn, string(b)); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		}()
		_, _ = io.Copy(io.Discard, conn)
		if took := time.Since(began); took > 15*time.Second {
			t.Errorf("the connection was open for %s", took)
		}
		_ = conn.Close()
		time.Sleep(time.Minute) // until the writer above has seen it
	})
}

// TestSlowBodyIsRefused.
func TestSlowBodyIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		defer w.stop()
		conn, err := w.wire.Dial(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		began := time.Now()
		said := "PUT /v1/volume/default/pg HTTP/1.1\r\nHost: server\r\nContent-Length: 100\r\n\r\n{\"plugin_id\":"
		if _, err := io.WriteString(conn, said); err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(conn)
		if !strings.Contains(string(text), "400 Bad Request") || !strings.Contains(string(text), "did not arrive within 30s") {
			t.Errorf("answered %q", text)
		}
		if took := time.Since(began); took > 40*time.Second {
			t.Errorf("the connection was open for %s", took)
		}
	})
}

// TestBodyInPieces: one that takes its time, but not too long, is read.
func TestBodyInPieces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		defer w.stop()
		slow, fast := net.Pipe()
		go func() {
			for _, piece := range []string{`{"plugin_id":"disk",`, `"capabilities":[{"access_mode":"single-node-writer",`, `"attachment_mode":"file-system"}]}`} {
				time.Sleep(9 * time.Second)
				_, _ = io.WriteString(fast, piece)
			}
			_ = fast.Close()
		}()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://server/v1/volume/default/pg", slow)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := w.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("answered %s", resp.Status)
		}
		// The connection is as good as before.
		time.Sleep(time.Minute)
		if got := w.send(http.MethodGet, "/v1/volume/default/pg", nil); got.status != http.StatusOK {
			t.Errorf("then answered %d %s", got.status, got.body)
		}
	})
}
