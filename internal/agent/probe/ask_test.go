package probe_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/probe"
)

// TestHTTP: what counts as an answer, and what is said of it.
func TestHTTP(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.HandleFunc("/fine", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "it\nis") })
	mux.HandleFunc("/busy", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) })
	mux.HandleFunc("/broken", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no disk", http.StatusServiceUnavailable) })
	mux.HandleFunc("/away", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/fine", http.StatusFound) })
	mux.HandleFunc("/endless", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.Copy(w, io.LimitReader(zeros{}, 64<<20)) // the asker goes before
	})
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = io.WriteString(w, r.Method+" "+r.Host+" "+r.Header.Get("X-Token")+" "+r.URL.RawQuery+" "+string(body))
	})
	plain, secure := httptest.NewServer(mux), httptest.NewTLSServer(mux)
	t.Cleanup(plain.Close)
	t.Cleanup(secure.Close)
	for name, tc := range map[string]struct {
		check       api.ServiceCheck
		ok, warning bool
		want        string
	}{
		"Fine":     {api.ServiceCheck{Path: "/fine"}, true, false, "HTTP 200 OK: it is"},
		"Nothing":  {api.ServiceCheck{}, false, false, "HTTP 404 Not Found: 404 page not found"},
		"Busy":     {api.ServiceCheck{Path: "/busy"}, false, true, "HTTP 429 Too Many Requests"},
		"Broken":   {api.ServiceCheck{Path: "/broken"}, false, false, "HTTP 503 Service Unavailable: no disk"},
		"Redirect": {api.ServiceCheck{Path: "/away"}, false, false, "HTTP 302 Found, to /fine, which is not followed"},
		"Endless":  {api.ServiceCheck{Path: "/endless"}, true, false, "HTTP 200 OK"},
		"Request": {api.ServiceCheck{
			Path: "/echo?a=b", Method: "POST", Body: "hello", Header: map[string][]string{"x-token": {"t"}, "Host": {"db.example"}},
		}, true, false, "HTTP 200 OK: POST db.example t a=b hello"},
		"Stranger":    {api.ServiceCheck{Path: "/fine", Protocol: "https"}, false, false, "certificate"},
		"AnyStranger": {api.ServiceCheck{Path: "/fine", Protocol: "https", TLSSkipVerify: true}, true, false, "HTTP 200 OK: it is"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := plain
			if tc.check.Protocol == "https" {
				at = secure
			}
			tc.check.Type, tc.check.Timeout = api.CheckHTTP, api.Duration(60e9)
			got := probe.Ask(t.Context(), &probe.Check{Spec: tc.check, Address: at.Listener.Addr().String()})
			if got.OK != tc.ok || got.Warning != tc.warning || !strings.Contains(got.Output, tc.want) {
				t.Errorf("%+v, want %t, warning %t: %s", got, tc.ok, tc.warning, tc.want)
			}
		})
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// TestTCP: a port that takes connections, and one that does not.
func TestTCP(t *testing.T) {
	t.Parallel()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	check := &probe.Check{Spec: api.ServiceCheck{Type: api.CheckTCP, Timeout: api.Duration(60e9)}, Address: l.Addr().String()}
	if got := probe.Ask(t.Context(), check); !got.OK {
		t.Errorf("of a port that takes connections: %+v", got)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if got := probe.Ask(t.Context(), check); got.OK || !strings.Contains(got.Output, "refused") {
		t.Errorf("of one that does not: %+v", got)
	}
}

// Who does not answer is not waited for, beyond the limit.
func TestSilenceHasALimit(t *testing.T) {
	t.Parallel()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	check := &probe.Check{Spec: api.ServiceCheck{Type: api.CheckHTTP, Timeout: api.Duration(20e6)}, Address: l.Addr().String()}
	if got := probe.Ask(context.Background(), check); got.OK || !strings.HasPrefix(got.Output, "no answer within 20ms") {
		t.Errorf("%+v", got)
	}
}

// Who answers with another protocol holds neither the probe up nor the agent.
func TestSwitchOfProtocolsIsNoAnswer(t *testing.T) {
	t.Parallel()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	ended := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			ended <- err
			return
		}
		defer func() { _ = conn.Close() }()
		if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil {
			ended <- err
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: any\r\nConnection: Upgrade\r\n\r\n")
		_, err = io.Copy(io.Discard, conn) // until the asker goes
		ended <- err
	}()
	check := &probe.Check{Spec: api.ServiceCheck{Type: api.CheckHTTP, Timeout: api.Duration(60e9)}, Address: l.Addr().String()}
	if got := probe.Ask(context.Background(), check); got.OK || !strings.HasPrefix(got.Output, "HTTP 101") {
		t.Errorf("%+v", got)
	}
	if err := <-ended; err != nil {
		t.Errorf("it does not go: %v", err)
	}
}

// What a check asks with may be secret: what is said of a failure does not have it.
func TestFailureDoesNotSayWhatWasAsked(t *testing.T) {
	t.Parallel()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	check := &probe.Check{Spec: api.ServiceCheck{Type: api.CheckHTTP, Path: "/health?token=s3cret", Timeout: api.Duration(60e9)}, Address: l.Addr().String()}
	if got := probe.Ask(t.Context(), check); got.OK || strings.Contains(got.Output, "s3cret") || !strings.Contains(got.Output, "refused") {
		t.Errorf("%+v", got)
	}
}
