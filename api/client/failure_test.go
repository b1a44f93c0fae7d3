package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/test/bufconn"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
)

// read and write are a request of each kind.
func read(ctx context.Context, c *client.Client) error {
	_, _, err := c.Volume(ctx, "default", "pg", client.Query{})
	return err
}

func write(ctx context.Context, c *client.Client) error {
	_, err := c.ApplyVolume(ctx, "default", "pg", api.VolumeSpec{}, 0)
	return err
}

func TestNoServer(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(client.Config{Address: "http://operator:geheim@" + address})
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("no server answers at http://operator:xxxxx@%[1]s: dial tcp %[1]s: connect: connection refused "+
		"(is the agent running there? set --address or BERTH_ADDRESS)", address)
	for name, request := range map[string]func(context.Context, *client.Client) error{"read": read, "write": write} {
		err := request(t.Context(), c)
		if diff := cmp.Diff(want, fmt.Sprint(err)); diff != "" || api.CodeOf(err) != api.CodeUnavailable {
			t.Errorf("%s: code %s, message (-want +got):\n%s", name, api.CodeOf(err), diff)
		}
	}
}

// cutter answers what is said and closes the connection, whatever was promised.
func cutter(said string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		conn, buf, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		_, _ = buf.WriteString(said)
		_ = buf.Flush()
		_ = conn.Close()
	}
}

// TestFailures is what each kind of trouble on the way means for a read, which
// can be repeated, and for a write, which may have arrived. No write is sent a
// second time, however patient the client is.
func TestFailures(t *testing.T) {
	t.Parallel()
	page := "<html>\n  <body>" + strings.Repeat("much ", 100) + "</body>"
	foreign := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, page, status) }
	}
	short := strings.Join(strings.Fields(page), " ")[:200] + "..."
	for name, tc := range map[string]struct {
		handle      http.HandlerFunc
		read, write api.Code
		// message is the read's, HOST being the server.
		message string
	}{
		"ClosedBeforeTheAnswer": {cutter(""), api.CodeUnavailable, api.CodeUncertain,
			"no server answers at http://HOST: EOF (is the agent running there? set --address or BERTH_ADDRESS)"},
		"AnswerBreaksOff": {cutter("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"id\":"), api.CodeUnavailable, api.CodeUncertain,
			"the answer of HOST broke off: unexpected EOF"},
		"AnswerBreaksOffBetweenChunks": {cutter("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n"), api.CodeUnavailable, api.CodeUncertain,
			"the answer of HOST broke off: unexpected EOF"},
		"AnswerIsEmpty": {func(http.ResponseWriter, *http.Request) {}, api.CodeUnavailable, api.CodeUncertain,
			"the answer of HOST broke off: EOF"},
		"ErrorOfTheServer": {func(w http.ResponseWriter, _ *http.Request) {
			answer(w, http.StatusConflict, api.Errorf(api.CodeInUse, "volume pg is in use"))
		}, api.CodeInUse, api.CodeInUse, "volume pg is in use"},
		"AnswerOfSomethingElse": {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }, api.CodeInternal, api.CodeInternal,
			"what HOST answers is not of Berth: invalid character '<' looking for beginning of value"},
		"AnswerOfAnotherShape": {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "[1]") }, api.CodeInternal, api.CodeInternal,
			"what HOST answers is not of Berth: json: cannot unmarshal array into Go value of type api.VolumeInfo"},
		"NotFoundOfSomethingElse": {foreign(http.StatusNotFound), api.CodeInternal, api.CodeInternal,
			"what HOST answers is not of Berth: 404 Not Found: " + short + " (see --address)"},
		"ProxyWithoutServer":   {foreign(http.StatusBadGateway), api.CodeUnavailable, api.CodeUncertain, "HOST answered 502 Bad Gateway: " + short},
		"ProxyWithoutPatience": {foreign(http.StatusGatewayTimeout), api.CodeUnavailable, api.CodeUncertain, "HOST answered 504 Gateway Timeout: " + short},
		"ProxyThatIsNotReady":  {foreign(http.StatusServiceUnavailable), api.CodeUnavailable, api.CodeUncertain, "HOST answered 503 Service Unavailable: " + short},
		"ErrorWithoutCode": {func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, `{"error":"x"}`, http.StatusInternalServerError)
		}, api.CodeInternal, api.CodeInternal, `what HOST answers is not of Berth: 500 Internal Server Error: {"error":"x"} (see --address)`},
		"NoHTTP": {cutter("220 mail.example ESMTP\r\n"), api.CodeInternal, api.CodeInternal,
			"what HOST answers is not of Berth: it speaks no HTTP (see --address)"},
		"Redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://berth.example/", http.StatusMovedPermanently)
		}, api.CodeInternal, api.CodeInternal,
			"what HOST answers is not of Berth: 301 Moved Permanently to https://berth.example/: <a href=\"https://berth.example/\">Moved Permanently</a>. (see --address)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var writes atomic.Int64
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodGet {
					writes.Add(1)
				}
				tc.handle(w, r)
			}))
			c := dialTo(t, client.Config{Patience: time.Second}, server)
			impatient := dialTo(t, client.Config{}, server)
			err := read(t.Context(), impatient)
			if api.CodeOf(err) != tc.read {
				t.Errorf("read: code %s, want %s", api.CodeOf(err), tc.read)
			}
			host := strings.TrimPrefix(server.URL, "http://")
			if diff := cmp.Diff(tc.message, strings.ReplaceAll(fmt.Sprint(err), host, "HOST")); diff != "" {
				t.Errorf("message (-want +got):\n%s", diff)
			}
			if err := write(t.Context(), c); api.CodeOf(err) != tc.write {
				t.Errorf("write: code %s (%v), want %s", api.CodeOf(err), err, tc.write)
			}
			if n := writes.Load(); n != 1 {
				t.Errorf("the write was sent %d times, want once", n)
			}
		})
	}
}

// bubble is a server and a client of it, for a bubble: nothing leaves the process.
func bubble(t *testing.T, patience time.Duration, handle http.HandlerFunc) *client.Client {
	t.Helper()
	return bubbleWith(t, client.Config{Patience: patience}, handle)
}

func bubbleWith(t *testing.T, cfg client.Config, handle http.HandlerFunc) *client.Client {
	t.Helper()
	wire := bufconn.Listen(1 << 16)
	server := &http.Server{Handler: handle}
	served := make(chan error, 1)
	go func() { served <- server.Serve(wire) }()
	cfg.Address, cfg.Dial = "http://server", func(ctx context.Context, _, _ string) (net.Conn, error) { return wire.DialContext(ctx) }
	c, err := client.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		_ = server.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("the server ended with %v", err)
		}
	})
	return c
}

// TestPatience repeats what the server says can be repeated, reads and writes,
// and nothing else.
func TestPatience(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		err      *api.Error
		failures int
		patience time.Duration
		requests int
		want     api.Code
	}{
		"LeaderIsFound":     {api.Errorf(api.CodeUnavailable, "no leader"), 3, 5 * time.Second, 4, ""},
		"NoLeader":          {api.Errorf(api.CodeUnavailable, "no leader"), 1000, 5 * time.Second, 9, api.CodeUnavailable},
		"NoPatience":        {api.Errorf(api.CodeUnavailable, "no leader"), 1000, 0, 1, api.CodeUnavailable},
		"RecoveryConfirmed": {api.Errorf(api.CodeRecovering, "recovering"), 1, 5 * time.Second, 2, ""},
		"Refused":           {api.Errorf(api.CodeConflict, "changed"), 1000, 5 * time.Second, 1, api.CodeConflict},
		"Uncertain":         {api.Errorf(api.CodeUncertain, "maybe"), 1000, 5 * time.Second, 1, api.CodeUncertain},
	} {
		for kind, request := range map[string]func(context.Context, *client.Client) error{"Read": read, "Write": write} {
			t.Run(name+kind, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					requests := 0
					c := bubble(t, tc.patience, func(w http.ResponseWriter, _ *http.Request) {
						if requests++; requests <= tc.failures {
							answer(w, http.StatusServiceUnavailable, tc.err)
							return
						}
						answer(w, http.StatusOK, struct{}{})
					})
					began := time.Now()
					err := request(t.Context(), c)
					if api.CodeOf(err) != tc.want || requests != tc.requests {
						t.Errorf("%d requests, %v; want %d, %q", requests, err, tc.requests, tc.want)
					}
					if took := time.Since(began); took > tc.patience {
						t.Errorf("it took %s, longer than the patience", took)
					}
				})
			})
		}
	}
}

func TestCancelEndsPatience(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := bubble(t, time.Hour, func(w http.ResponseWriter, _ *http.Request) {
			answer(w, http.StatusServiceUnavailable, api.Errorf(api.CodeUnavailable, "no leader"))
		})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		began := time.Now()
		err := read(ctx, c)
		if took := time.Since(began); took != 10*time.Second || err == nil {
			t.Errorf("answered %v after %s, want an error when the context ends", err, took)
		}
	})
}

// TestSilentServer: a connection to a machine that is gone stays open.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		request func(context.Context, *client.Client) error
		after   time.Duration
		want    string
	}{
		"Read":  {read, 30 * time.Second, "no server answers at http://server: no answer within 30s (is the agent running there? set --address or BERTH_ADDRESS)"},
		"Write": {write, 30 * time.Second, "it is not known whether this was done: the connection to server broke before the answer: no answer within 30s"},
		"BlockingQuery": {func(ctx context.Context, c *client.Client) error {
			_, _, err := c.Nodes(ctx, client.Query{Index: 3, Wait: 5 * time.Minute})
			return err
		}, 5*time.Minute + 30*time.Second, "no server answers at http://server: no answer within 5m30s (is the agent running there? set --address or BERTH_ADDRESS)"},
		"Poll": {func(ctx context.Context, c *client.Client) error {
			_, err := c.Agent("n1", "s").Assignments(ctx, "s", 1, 1, 5*time.Second)
			return err
		}, 35 * time.Second, "no server answers at http://server: no answer within 35s (is the agent running there? set --address or BERTH_ADDRESS)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := bubble(t, 0, func(_ http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					<-r.Context().Done()
				})
				began := time.Now()
				err := tc.request(t.Context(), c)
				if diff := cmp.Diff(tc.want, fmt.Sprint(err)); diff != "" {
					t.Errorf("message (-want +got):\n%s", diff)
				}
				if took := time.Since(began); took != tc.after {
					t.Errorf("given up after %s, want %s", took, tc.after)
				}
			})
		})
	}
}

// TestSavedStateThatBreaksOffIsNotContinuedWithAnother: what is in the file is
// the beginning of one state, and must not get a second one behind it.
func TestSavedStateThatBreaksOffIsNotContinuedWithAnother(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1) == 1 {
			cutter("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")(w, r)
			return
		}
		_, _ = io.WriteString(w, "whole")
	}))
	c := dialTo(t, client.Config{Patience: time.Minute}, server)
	var saved bytes.Buffer
	err := c.SaveState(t.Context(), &saved)
	if api.CodeOf(err) != api.CodeUnavailable || saved.String() != "half" {
		t.Errorf("saved %q (%v), want the half and an error", saved.String(), err)
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

// TestFullDiskIsNotTheServersFault, and is not tried again.
func TestFullDiskIsNotTheServersFault(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "state") }))
	c := dialTo(t, client.Config{Patience: time.Minute}, server)
	err := c.SaveState(t.Context(), fullDisk{})
	want := "keep the answer of " + strings.TrimPrefix(server.URL, "http://") + ": no space left on device"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestRestoreIsNotRepeated: its body is a stream that is read once.
func TestRestoreIsNotRepeated(t *testing.T) {
	t.Parallel()
	var got []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got = append(got, string(b))
		answer(w, http.StatusServiceUnavailable, api.Errorf(api.CodeUnavailable, "no leader"))
	}))
	c := dialTo(t, client.Config{Patience: time.Minute}, server)
	_, err := c.RestoreState(t.Context(), strings.NewReader("state"))
	if diff := cmp.Diff([]string{"state"}, got); diff != "" || api.CodeOf(err) != api.CodeUnavailable {
		t.Errorf("error %v, bodies (-want +got):\n%s", err, diff)
	}
}

// TestSlowAnswerIsTold to whoever waits for it, and none that was to be waited
// for.
func TestSlowAnswerIsTold(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		takes, wait time.Duration
		told        bool
	}{
		"Quick":         {time.Second, 0, false},
		"Slow":          {10 * time.Second, 0, true},
		"BlockingQuery": {10 * time.Second, 20 * time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var told atomic.Bool
				c := bubbleWith(t, client.Config{Slow: func() { told.Store(true) }}, func(w http.ResponseWriter, _ *http.Request) {
					time.Sleep(tc.takes)
					answer(w, http.StatusOK, []*api.Node{})
				})
				_, _, err := c.Nodes(t.Context(), client.Query{Index: 1, Wait: tc.wait})
				if err != nil || told.Load() != tc.told {
					t.Errorf("told: %t, want %t (%v)", told.Load(), tc.told, err)
				}
			})
		})
	}
}

// A mail server speaks first, before or after the request is sent. Neither is
// an answer, and neither leaves it open whether a write was done.
func TestWhoSpeaksFirstIsNotOfBerth(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				defer conn.Close()
				_, _ = io.WriteString(conn, "220 mail.example ESMTP\r\n")
				_, _ = io.Copy(io.Discard, conn)
			})
		}
	})
	c, err := client.New(client.Config{Address: "http://" + l.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		if _, err := c.ApplyJob(t.Context(), "default", "db", api.JobSpec{}, 0); err == nil || !strings.Contains(err.Error(), "is not of Berth: it speaks no HTTP") {
			t.Fatalf("ApplyJob: %v", err)
		}
	}
	c.Close()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	conns.Wait()
}

// A connection may die without a word. Who waits for a stream on it learns so.
func TestStreamsOfWhichNothingComes(t *testing.T) {
	t.Parallel()
	dead := func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}
	for name, ask := range map[string]func(context.Context, *client.Client) error{
		"Exec": func(ctx context.Context, c *client.Client) error {
			_, err := c.Exec(ctx, "a", "t", api.ExecRequest{Command: []string{"ls"}}, client.ExecIO{})
			return err
		},
		"Logs": func(ctx context.Context, c *client.Client) error {
			_, err := c.Logs(ctx, "a", "t", api.LogQuery{Follow: true})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := bubble(t, time.Minute, dead)
				began := time.Now()
				err := ask(t.Context(), c)
				if took := time.Since(began); err == nil || !strings.Contains(err.Error(), "no answer within 30s") || took != 30*time.Second {
					t.Errorf("after %s: %v", took, err)
				}
			})
		})
	}
}

func TestALogIsAskedForAgainWhenNothingComes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := bubble(t, 0, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Trailer", api.TrailerError)
			_, _ = io.WriteString(w, "one\n")
			_ = http.NewResponseController(w).Flush()
			time.Sleep(50 * time.Second)
			_, _ = io.WriteString(w, "two\n")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		})
		l, err := c.Logs(t.Context(), "a", "t", api.LogQuery{Follow: true})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		began := time.Now()
		text, err := io.ReadAll(l)
		if string(text) != "one\ntwo\n" || !errors.Is(err, client.ErrSilent) || l.Next() != 8 {
			t.Errorf("%q, error %v, next %d", text, err, l.Next())
		}
		if took := time.Since(began); took != 50*time.Second+client.LogSilence {
			t.Errorf("given up after %s", took)
		}
	})
}
