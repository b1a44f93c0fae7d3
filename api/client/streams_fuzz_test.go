package client_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
)

// answers is a server that has one answer, as it is on the wire, for each of the
// connections that are made to it, and says nothing after them.
type answers struct {
	wire []string
	// asked are the queries of the requests that came.
	asked []string
}

// dial takes one connection in. The other end of it reads one request.
func (a *answers) dial(context.Context, string, string) (net.Conn, error) {
	if len(a.wire) == 0 {
		return nil, errors.New("nobody is there any more")
	}
	wire := a.wire[0]
	a.wire = a.wire[1:]
	ours, theirs := net.Pipe()
	go func() {
		defer theirs.Close()
		r, err := http.ReadRequest(bufio.NewReader(theirs))
		if err != nil {
			return
		}
		a.asked = append(a.asked, r.URL.Query().Get("index"))
		_, _ = io.WriteString(theirs, wire) // the client may have gone
	}()
	return ours, nil
}

func (a *answers) client(t *testing.T) *client.Client {
	t.Helper()
	c, err := client.New(client.Config{Address: "http://server", Dial: a.dial})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// FuzzEvents: whatever a stream of events says, each frame of it is told once
// and in its order, what is no frame ends it with an error that has a code, and
// what breaks off goes on where it was.
func FuzzEvents(f *testing.F) {
	for _, frames := range [][]api.EventFrame{
		{at(5), at(6, "a"), at(7, "b")},
		{at(7), {Index: 9, Generation: 2, Error: api.Errorf(api.CodeUnavailable, "server x no longer leads")}},
		{at(12), {Index: 12, Error: api.Errorf(api.CodeGone, "it was read too slowly")}, at(13)},
	} {
		var lines bytes.Buffer
		for _, frame := range frames {
			if err := json.NewEncoder(&lines).Encode(frame); err != nil {
				f.Fatal(err)
			}
		}
		f.Add(lines.Bytes())
		f.Add(lines.Bytes()[:lines.Len()-9])
	}
	for _, seed := range []string{"", "null", `{"index":-1}`, `{"index":1}x`, `{"error":{}}`, `{"events":[{"row":`, "<html>"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		synctest.Test(t, func(t *testing.T) {
			const gone = `{"code":"gone","message":"too old"}`
			server := &answers{wire: []string{
				"HTTP/1.1 200 OK\r\n\r\n" + string(body),
				fmt.Sprintf("HTTP/1.1 410 Gone\r\nContent-Length: %d\r\n\r\n%s", len(gone), gone),
			}}
			c := server.client(t)
			defer c.Close()
			var got []api.EventFrame
			var last error
			for frame, err := range c.Events(t.Context(), client.EventQuery{Index: 1}) {
				if last = err; err == nil {
					got = append(got, frame)
				}
			}
			want := framesOf(body)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("frames (-said +told):\n%s", diff)
			}
			if e, ok := errors.AsType[*api.Error](last); !ok || e.Code == "" {
				t.Errorf("it ended with %v", last)
			}
			index := uint64(1)
			if len(want) > 0 {
				index = want[len(want)-1].Index
			}
			synctest.Wait()
			if len(server.asked) == 2 && server.asked[1] != strings.TrimPrefix(strconv.FormatUint(index, 10), "0") {
				t.Errorf("after %d, what comes after %q is asked for", index, server.asked[1])
			}
		})
	})
}

// framesOf are the frames in a stream, up to one that ends it.
func framesOf(body []byte) (all []api.EventFrame) {
	for dec := json.NewDecoder(bytes.NewReader(body)); ; {
		var frame api.EventFrame
		if dec.Decode(&frame) != nil || frame.Error != nil {
			return all
		}
		all = append(all, frame)
	}
}

// FuzzLogs: whatever comes of a log, its bytes are read as they are, and it ends
// whole, or with an error that has a code.
func FuzzLogs(f *testing.F) {
	for _, said := range []string{"", `{"code":"gone","message":"it is kept no longer"}`, "{}", "no JSON", "\x00"} {
		f.Add([]byte("one\ntwo\n"), said, "7", false)
	}
	f.Add([]byte{}, "", "", false)
	f.Add([]byte("one"), "", "-1", true)
	f.Fuzz(func(t *testing.T, body []byte, said, offset string, broken bool) {
		synctest.Test(t, func(t *testing.T) {
			oneLine := strings.NewReplacer("\r", " ", "\n", " ")
			wire := "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n" + api.HeaderOffset + ": " + oneLine.Replace(offset) + "\r\n\r\n"
			if len(body) > 0 {
				wire += fmt.Sprintf("%x\r\n%s\r\n", len(body), body)
			}
			if !broken {
				wire += "0\r\n" + api.TrailerError + ": " + oneLine.Replace(said) + "\r\n\r\n"
			}
			c := (&answers{wire: []string{wire}}).client(t)
			defer c.Close()
			log, err := c.Logs(t.Context(), "a1", "t", api.LogQuery{})
			if err != nil {
				if e, ok := errors.AsType[*api.Error](err); !ok || e.Code == "" {
					t.Errorf("refused with %v", err)
				}
				return
			}
			defer log.Close()
			got, err := io.ReadAll(log)
			if !bytes.Equal(body, got) {
				t.Errorf("read %q, sent %q", got, body)
			}
			if log.Next() != log.Offset+int64(len(got)) {
				t.Errorf("the next byte of %d at %d is %d", len(got), log.Offset, log.Next())
			}
			if e, ok := errors.AsType[*api.Error](err); err != nil && (!ok || e.Code == "") {
				t.Errorf("it ended with %v", err)
			}
			if err == nil && (broken || strings.TrimSpace(said) != "") {
				t.Errorf("it is whole, with %q at its end, broken: %v", said, broken)
			}
		})
	})
}
