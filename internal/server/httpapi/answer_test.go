package httpapi_test

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-dev/berth/api"
)

// TestAnswersAreCompressed if they are large and the caller takes it, and are
// the same then.
func TestAnswersAreCompressed(t *testing.T) {
	t.Parallel()
	f := newFake(t, many, nil)
	whole := f.get("GET", "/v1/openapi.json")
	for accepts, zipped := range map[string]bool{
		"gzip": true, "gzip, deflate, br": true, "br;q=1.0, gzip;q=0.8": true, "*": true, "GZIP": true, "deflate, * ; q=0.1": true,
		"": false, "br": false, "gzip;q=0": false, "gzip; q=0.000, *": false, "*;q=0": false, "identity": false, "notgzip": false,
	} {
		got := f.get("GET", "/v1/openapi.json", "Accept-Encoding", accepts)
		if length := got.header.Get("Content-Length"); length != strconv.Itoa(len(got.body)) || got.header.Get("Vary") != "Accept-Encoding" {
			t.Errorf("%q: Content-Length %s of %d bytes, Vary %q", accepts, length, len(got.body), got.header.Get("Vary"))
		}
		if is := got.header.Get("Content-Encoding") == "gzip"; is != zipped {
			t.Errorf("%q: compressed is %v, want %v", accepts, is, zipped)
			continue
		}
		text := got.body
		if zipped {
			r, err := gzip.NewReader(strings.NewReader(got.body))
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			text = string(b)
		}
		if text != whole.body || len(text) < 4<<10 {
			t.Errorf("%q: answered %.100s", accepts, text)
		}
	}
	if got := f.get("GET", "/v1/volume/a/none", "Accept-Encoding", "gzip"); got.header.Get("Content-Encoding") != "" {
		t.Error("a short answer was compressed")
	}
}

// TestAnswerThatNobodyReads: somebody who asks for much and takes nothing does
// not hold it for ever.
func TestAnswerThatNobodyReads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		defer w.stop()
		for i := range 200 {
			if _, err := w.ApplyVolume(t.Context(), "default", api.VolumeID(fmt.Sprint("v", i)), volume(), 0); err != nil {
				t.Fatal(err)
			}
		}
		for _, path := range []string{"/v1/volumes", "/v1/system/snapshot"} {
			conn, err := w.wire.Dial(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: server\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			text, err := io.ReadAll(conn)
			if err != nil || len(text) > 128<<10 || strings.HasSuffix(string(text), "]\n") {
				t.Errorf("%s: a minute later there are %d bytes (%v), want a connection that was closed", path, len(text), err)
			}
			_ = conn.Close()
		}
	})
}

// TestSavedStateThatStopsArriving is given up, and one that arrives slowly is
// not.
func TestSavedStateThatStopsArriving(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		defer w.stop()
		w.join("n1").provision("pg")
		var saved strings.Builder
		if err := w.SaveState(t.Context(), &saved); err != nil {
			t.Fatal(err)
		}
		conn, err := w.wire.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		began := time.Now()
		_, _ = fmt.Fprintf(conn, "PUT /v1/system/snapshot HTTP/1.1\r\nHost: server\r\nContent-Length: %d\r\n\r\n%s", saved.Len(), saved.String()[:20])
		text, _ := io.ReadAll(conn)
		if took := time.Since(began); took > 2*time.Minute || strings.Contains(string(text), "200 OK") {
			t.Errorf("answered %q after %s", text, took)
		}
		pieces, to := io.Pipe()
		go func() {
			for i, b := range []byte(saved.String()) {
				if i%(saved.Len()/8) == 0 {
					time.Sleep(20 * time.Second)
				}
				_, _ = to.Write([]byte{b})
			}
			_ = to.Close()
		}()
		if rec, err := w.RestoreState(t.Context(), pieces); err != nil || !rec.Generation.Recovering {
			t.Errorf("a state that took its time: %+v, %v", rec, err)
		}
	})
}

// TestLargeHeadersAreRefused.
func TestLargeHeadersAreRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		defer w.stop()
		if got := w.send(http.MethodGet, "/v1/status", nil, "X-Large", strings.Repeat("x", 100<<10)); got.status != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("answered %d %s", got.status, got.body)
		}
	})
}
