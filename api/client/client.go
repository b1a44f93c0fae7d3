// Package client is the Go client of Berth's HTTP API, used by the command
// line, by agents, by tests and by other people's programs. It imports the
// standard library, package api and the frames of streams only.
//
// It never retries by itself, but for what a Client is told to. Invariants:
// every error that the server answers is an *api.Error, and one of the
// connection is too, with code unavailable, or uncertain for a write that may
// have arrived; such a write is never repeated.
package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/berth-dev/berth/api"
)

// Config says how to reach the servers.
type Config struct {
	// Address is the API's URL: http://127.0.0.1:7400.
	Address string
	// Dial replaces how connections are made; nil for the network.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Patience is for how long a request is repeated that the server answers
	// with an error that invites to, or that finds no server. Zero does not
	// repeat. Writes whose outcome is not known are never repeated.
	Patience time.Duration
	// Slow is called, from another goroutine, when an answer that the server was
	// not asked to hold back has not come after SlowAfter; nil for nobody.
	Slow func()
	// Trace is the span that a request belongs to: what the request leads to is
	// put below it, where the servers send traces. Nil is none.
	Trace func(context.Context) api.TraceContext
	// User is whom the servers note as the one who asks; empty is nobody. Nothing
	// checks it.
	User string
}

// SlowAfter is when a person begins to wonder.
const SlowAfter = 3 * time.Second

// DefaultAddress is where a server listens unless told otherwise.
const DefaultAddress = "http://127.0.0.1:7400"

// Client talks to the servers. It is safe for concurrent use.
type Client struct {
	base     *url.URL
	http     *http.Client
	patience time.Duration
	slow     func()
	trace    func(context.Context) api.TraceContext
	header   http.Header
	// buffers are what answers are read into, before they are decoded.
	buffers *sync.Pool
}

// New returns a client. It connects with its first request.
func New(cfg Config) (*Client, error) {
	base, err := parseAddress(cfg.Address)
	if err != nil {
		return nil, err
	}
	header := http.Header{}
	if wrong := api.CheckUser(cfg.User); wrong != "" {
		return nil, api.Errorf(api.CodeInvalid, "the user %q %s", cfg.User, wrong)
	}
	if cfg.User != "" {
		header.Set(api.HeaderUser, cfg.User)
	}
	transport := &http.Transport{
		DialContext:         cfg.Dial,
		MaxIdleConnsPerHost: 64,
		IdleConnTimeout:     time.Minute,
	}
	if cfg.Dial == nil {
		transport.DialContext = (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}).DialContext
	}
	h := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		// A write that follows a redirect may become a read, and look done.
		return http.ErrUseLastResponse
	}}
	return &Client{base: base, http: h, patience: cfg.Patience, slow: cfg.Slow, trace: cfg.Trace, header: header, buffers: &sync.Pool{}}, nil
}

// parseAddress reads the API's URL. The scheme may be left out.
func parseAddress(address string) (*url.URL, error) {
	if address == "" {
		address = DefaultAddress
	}
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	base, err := url.Parse(address)
	switch {
	case err != nil || base.Host == "":
		return nil, api.Errorf(api.CodeInvalid, "the address %q is no URL such as %s", address, DefaultAddress)
	case base.Scheme != "http":
		return nil, api.Errorf(api.CodeInvalid, "the address %s is not one of plain HTTP, which is all that this version speaks: write it as %s",
			base.Redacted(), DefaultAddress)
	}
	return base, nil
}

// IfAbsent returns the client for writes that only create: what is there already
// answers conflict, and is left alone. It shares the client's connections. The
// servers refuse writes of it that create nothing.
func (c *Client) IfAbsent() *Client {
	only := *c
	only.header = c.header.Clone()
	only.header.Set("If-None-Match", "*")
	return &only
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Query are the parameters of a read. The zero value reads at once.
type Query struct {
	// Index makes the query block until something newer is there, for Wait at most.
	Index uint64
	Wait  time.Duration
	// What follows is for lists. Namespace is empty or * for all.
	Namespace api.NamespaceID
	// Prefix is how ids begin.
	Prefix string
	// Filters are conditions that all must hold, such as status.state==ready.
	// Where makes them.
	Filters []string
	// Volume narrows a list of operations or snapshots.
	Volume api.VolumeID
	// All asks for the addresses of a service that are not healthy, too.
	All bool
	// Page reads the list in pages; nil reads all of it at once.
	Page *Page
}

// Page is one page of a list. Reading a list moves it on to the next one.
type Page struct {
	// Size is how many rows there are at most, 1 to 10000. A page may have
	// fewer, also none, and not be the last.
	Size int
	// Next is the page that is read: empty for the first and, after reading, for
	// none, which is the end.
	Next string
}

// Where is a filter: field is a path in the JSON of what is listed, op is ==, !=
// or ^= (begins with).
func Where(field, op string, value any) string { return field + op + fmt.Sprint(value) }

// All yields the rows of a list, page by page: for volume, err := range
// client.All(ctx, c.Volumes, client.Query{}). An error is the last that it
// yields. Rows that are there all the time are yielded exactly once.
func All[T any](ctx context.Context, list func(context.Context, Query) ([]T, uint64, error), q Query) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		q, page := q, Page{Size: defaultPage}
		if q.Page != nil && q.Page.Size > 0 {
			page.Size = q.Page.Size
		}
		q.Page, q.Index = &page, 0
		for {
			rows, _, err := list(ctx, q)
			if err != nil {
				yield(*new(T), err)
				return
			}
			for _, row := range rows {
				if !yield(row, nil) {
					return
				}
			}
			if page.Next == "" {
				return
			}
		}
	}
}

// defaultPage is how many rows All reads at once.
const defaultPage = 1000

func (q Query) values() url.Values {
	v := url.Values{}
	if q.Index > 0 {
		v.Set("index", strconv.FormatUint(q.Index, 10))
	}
	if q.Wait > 0 {
		v.Set("wait", q.Wait.String())
	}
	if q.Namespace != "" {
		v.Set("namespace", string(q.Namespace))
	}
	if q.Prefix != "" {
		v.Set("prefix", q.Prefix)
	}
	for _, f := range q.Filters {
		v.Add("filter", f)
	}
	if q.Page != nil {
		v.Set("per_page", strconv.Itoa(q.Page.Size))
		if q.Page.Next != "" {
			v.Set("next_token", q.Page.Next)
		}
	}
	if q.Volume != "" {
		v.Set("volume", string(q.Volume))
	}
	if q.All {
		v.Set("all", "true")
	}
	return v
}

// do makes a request, and repeats it for as long as the client has patience.
func (c *Client) do(ctx context.Context, r call) (index uint64, err error) {
	deadline := time.Now().Add(c.patience)
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		index, err = c.once(ctx, r)
		var e *api.Error
		again := errors.As(err, &e) && e.Retry && e.Code != api.CodeUncertain && r.stream == nil
		if !again || time.Now().Add(pause).After(deadline) {
			return index, err
		}
		if !sleep(ctx, pause) {
			return index, err
		}
	}
}
