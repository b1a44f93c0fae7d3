package host

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Gate stands between an agent and the socket of its plugin, and holds up the
// calls that a test names, so that something can be killed in that moment. It
// knows of gRPC no more than that a call is a request of HTTP/2.
type Gate struct {
	// Socket is where the agent finds the plugin.
	Socket string

	mu    sync.Mutex // guards below
	holds map[hold]*Held
	calls map[string]int
}

// hold is a moment of a call: before the plugin has it, or after the plugin has
// answered and before the agent hears it.
type hold struct {
	method string
	after  bool
}

// Held is a call that is held up, or will be.
type Held struct {
	// Reached is closed when the call is there.
	Reached chan struct{}
	release chan struct{}
}

// StartGate listens beside the plugin's socket.
func StartGate(tb testing.TB, plugin string) *Gate {
	tb.Helper()
	return StartGateTo(tb, plugin+".gate", func() string { return plugin })
}

// StartGateTo listens at a socket, and asks before each connection where the
// plugin's is by then.
func StartGateTo(tb testing.TB, socket string, plugin func() string) *Gate {
	tb.Helper()
	g := &Gate{Socket: socket, holds: map[hold]*Held{}, calls: map[string]int{}}
	listener, err := new(net.ListenConfig).Listen(tb.Context(), "unix", g.Socket)
	if err != nil {
		tb.Fatal(err)
	}
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{
		Protocols: &protocols,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", plugin())
		},
	}
	target := &url.URL{Scheme: "http", Host: "plugin"}
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		FlushInterval: -1,
		Transport:     &gated{g, transport},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			// UNAVAILABLE, as a client says itself of a broken connection.
			w.Header().Set("Content-Type", "application/grpc")
			w.Header().Set("Grpc-Status", "14")
			w.Header().Set("Grpc-Message", url.PathEscape(err.Error()))
			w.WriteHeader(http.StatusOK)
		},
	}
	server := &http.Server{Handler: proxy, Protocols: &protocols, ReadHeaderTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	tb.Cleanup(func() {
		g.Open()
		_ = server.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			tb.Error(err)
		}
		transport.CloseIdleConnections()
		_ = os.Remove(g.Socket)
	})
	return g
}

// Calls counts the calls so far by which a volume is staged or published.
func (g *Gate) Calls() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := 0
	for _, method := range mounting() {
		n += g.calls[method]
	}
	return n
}

// mounting are the methods that change what is mounted.
func mounting() []string {
	return []string{"NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume"}
}

// anyMounting stands for each of them.
const anyMounting = "*"

// HoldAny holds up the next call that changes what is mounted, whichever it is.
func (g *Gate) HoldAny(after bool) *Held { return g.Hold(anyMounting, after) }

// Hold holds up the next call of a method, such as NodeStageVolume, before the
// plugin has it, or after it has answered.
func (g *Gate) Hold(method string, after bool) *Held {
	h := &Held{Reached: make(chan struct{}), release: make(chan struct{})}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.holds[hold{method, after}] = h
	return h
}

// Open lets all calls pass, also those that are held up.
func (g *Gate) Open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for k, h := range g.holds {
		close(h.release)
		delete(g.holds, k)
	}
}

// pass returns when the call may go on.
func (g *Gate) pass(ctx context.Context, method string, after bool) error {
	g.mu.Lock()
	h := g.holds[hold{method, after}]
	if h == nil && slices.Contains(mounting(), method) {
		h = g.holds[hold{anyMounting, after}]
	}
	if !after {
		g.calls[method]++
	}
	if h != nil {
		select {
		case <-h.Reached: // a later call of the same method
		default:
			close(h.Reached)
		}
	}
	g.mu.Unlock()
	if h == nil {
		return nil
	}
	select {
	case <-h.release:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// gated is a transport with the gate before and behind each call.
type gated struct {
	gate *Gate
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *gated) RoundTrip(r *http.Request) (*http.Response, error) {
	method := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	if err := t.gate.pass(r.Context(), method, false); err != nil {
		return nil, err
	}
	resp, err := t.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if err := t.gate.pass(r.Context(), method, true); err != nil {
		return nil, errors.Join(err, resp.Body.Close())
	}
	return resp, nil
}
