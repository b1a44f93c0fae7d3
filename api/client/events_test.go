package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
)

// frames writes lines of a stream.
func frames(w http.ResponseWriter, all ...api.EventFrame) {
	enc := json.NewEncoder(w)
	for _, f := range all {
		_ = enc.Encode(f) // the client says so, if it is gone
	}
}

func at(index uint64, keys ...string) api.EventFrame {
	f := api.EventFrame{Index: index, Generation: 2}
	for _, k := range keys {
		f.Events = append(f.Events, api.Event{Topic: api.TopicVolume, Kind: api.EventChanged, Key: k, Row: json.RawMessage("null")})
	}
	return f
}

// TestEventsGoOnWhereTheyWere, whatever ends a connection, but for what cannot
// be mended.
func TestEventsGoOnWhereTheyWere(t *testing.T) {
	t.Parallel()
	var asked []string
	turns := []http.HandlerFunc{
		func(w http.ResponseWriter, _ *http.Request) { frames(w, at(5), at(6, "a"), at(7, "b")) },
		func(w http.ResponseWriter, _ *http.Request) {
			frames(w, at(7), api.EventFrame{Index: 9, Generation: 2, Error: api.Errorf(api.CodeUnavailable, "server x no longer leads")})
		},
		func(w http.ResponseWriter, _ *http.Request) {
			answer(w, http.StatusServiceUnavailable, api.Errorf(api.CodeUnavailable, "there is no leader"))
		},
		cutter(""),
		cutter("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"ind"),
		func(w http.ResponseWriter, _ *http.Request) { frames(w, at(7), at(10), at(12, "c")) },
		func(w http.ResponseWriter, _ *http.Request) {
			frames(w, at(12), api.EventFrame{Index: 12, Error: api.Errorf(api.CodeGone, "it was read too slowly")})
		},
	}
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.RawQuery)
		turns[len(asked)-1](w, r)
	})
	var got []string
	q := client.EventQuery{Topics: []api.TopicFilter{{Topic: api.TopicVolume, Key: "a/b c"}, {Topic: api.TopicJob}}, Namespace: "ns"}
	for f, err := range c.Events(t.Context(), q) {
		for _, e := range f.Events {
			got = append(got, fmt.Sprint(f.Index, " ", e.Key))
		}
		if err != nil {
			got = append(got, fmt.Sprint(api.CodeOf(err), " ", err))
		}
	}
	if diff := cmp.Diff([]string{"6 a", "7 b", "12 c", "gone it was read too slowly"}, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	const what = "namespace=ns&topic=volume%3Aa%2Fb+c&topic=job"
	seven := "generation=2&index=7&" + what
	if diff := cmp.Diff([]string{what, seven, seven, seven, seven, seven, "generation=2&index=12&" + what}, asked); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// TestEventsThatCannotBegin end with the first error, unless the client is
// patient.
func TestEventsThatCannotBegin(t *testing.T) {
	t.Parallel()
	for code, want := range map[api.Code]int64{api.CodeUnavailable: 1, api.CodeInvalid: 1, api.CodeForbidden: 1} {
		var asked atomic.Int64
		c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			asked.Add(1)
			answer(w, http.StatusTeapot, api.Errorf(code, "so it is"))
		})
		for f, err := range c.Events(t.Context(), client.EventQuery{}) {
			if api.CodeOf(err) != code || f.Index != 0 {
				t.Errorf("%s: %+v, %v", code, f, err)
			}
		}
		if n := asked.Load(); n != want {
			t.Errorf("%s: asked %d times, want %d", code, n, want)
		}
	}
}

// TestEventsEndWithTheirContext, and with the loop over them.
func TestEventsEndWithTheirContext(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		frames(w, at(5), at(6, "a"))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	var last error
	for f, err := range c.Events(ctx, client.EventQuery{}) {
		if last = err; f.Index == 6 {
			cancel()
		}
	}
	cancel()
	if !errors.Is(last, context.Canceled) {
		t.Errorf("ended with %v, want the context's error", last)
	}
	for f, err := range c.Events(t.Context(), client.EventQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		if f.Index == 6 {
			break
		}
	}
}

// TestAllPages are read, one after the other, and none after an error.
func TestAllPages(t *testing.T) {
	t.Parallel()
	var asked []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.RawQuery)
		switch r.URL.Query().Get("next_token") {
		case "":
			w.Header().Set(api.HeaderNext, "two")
			answer(w, http.StatusOK, []api.Node{{ID: "a"}, {ID: "b"}})
		case "two": // a page may be empty, and not be the last
			w.Header().Set(api.HeaderNext, "three")
			answer(w, http.StatusOK, []api.Node{})
		default:
			answer(w, http.StatusOK, []api.Node{{ID: "c"}})
		}
	})
	var got []string
	for n, err := range client.All(t.Context(), c.Nodes, client.Query{Filters: []string{client.Where("status.epoch", "!=", 3)}}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(n.ID))
	}
	if diff := cmp.Diff("a b c", strings.Join(got, " ")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	const filter = "filter=status.epoch%21%3D3"
	want := []string{filter + "&per_page=1000", filter + "&next_token=two&per_page=1000", filter + "&next_token=three&per_page=1000"}
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}
