// Package client is the Go client of Berth's HTTP API, used by the command
// line, by agents, by tests and by other people's programs. It imports the
// standard library and package api only.
//
// It never retries by itself, but for what a Client is told to. Invariant:
// every error that the server answers is an *api.Error, and one of the
// connection is too, with code unavailable.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
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
}

// DefaultAddress is where a server listens unless told otherwise.
const DefaultAddress = "http://127.0.0.1:7400"

// Client talks to the servers. It is safe for concurrent use.
type Client struct {
	base     *url.URL
	http     *http.Client
	patience time.Duration
	header   http.Header
}

// New returns a client. It connects with its first request.
func New(cfg Config) (*Client, error) {
	if cfg.Address == "" {
		cfg.Address = DefaultAddress
	}
	if !strings.Contains(cfg.Address, "://") {
		cfg.Address = "http://" + cfg.Address
	}
	base, err := url.Parse(cfg.Address)
	if err != nil || base.Host == "" || base.Scheme != "http" {
		return nil, api.Errorf(api.CodeInvalid, "the address %q is no URL such as %s", cfg.Address, DefaultAddress)
	}
	transport := &http.Transport{
		DialContext:           cfg.Dial,
		MaxIdleConnsPerHost:   64,
		IdleConnTimeout:       time.Minute,
		ResponseHeaderTimeout: api.MaxPollWait + 30*time.Second,
	}
	if cfg.Dial == nil {
		transport.DialContext = (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}).DialContext
	}
	return &Client{base: base, http: &http.Client{Transport: transport}, patience: cfg.Patience, header: http.Header{}}, nil
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Query are the parameters of a read. The zero value reads at once.
type Query struct {
	// Index makes the query block until something newer is there, for Wait at most.
	Index     uint64
	Wait      time.Duration
	Namespace api.NamespaceID
	// Volume narrows a list of operations.
	Volume api.VolumeID
}

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
	if q.Volume != "" {
		v.Set("volume", string(q.Volume))
	}
	return v
}

// call is one request.
type call struct {
	method string
	// path are its elements, which are escaped one by one.
	path   []string
	query  url.Values
	header http.Header
	body   any       // sent as JSON
	stream io.Reader // sent as it is
	into   any       // the answer's JSON
	copyTo io.Writer // the answer as it is
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
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return index, err
		}
	}
}

func (c *Client) once(ctx context.Context, r call) (uint64, error) {
	req, err := c.request(ctx, r)
	if err != nil {
		return 0, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, c.unreachable(ctx, r, err)
	}
	defer func() { _ = resp.Body.Close() }() // nothing is lost by failing to close what was read
	if resp.StatusCode >= http.StatusBadRequest {
		return 0, readError(resp)
	}
	index, _ := strconv.ParseUint(resp.Header.Get(api.HeaderIndex), 10, 64) // absent: 0
	switch {
	case r.copyTo != nil:
		_, err = io.Copy(r.copyTo, resp.Body)
	case r.into != nil:
		err = json.NewDecoder(resp.Body).Decode(r.into)
	default:
		_, err = io.Copy(io.Discard, resp.Body)
	}
	if err != nil {
		return 0, api.Errorf(api.CodeUnavailable, "read the answer of %s: %v", c.base.Host, err)
	}
	return index, nil
}

func (c *Client) request(ctx context.Context, r call) (*http.Request, error) {
	body := r.stream
	if r.body != nil {
		b, err := json.Marshal(r.body)
		if err != nil {
			return nil, fmt.Errorf("encode request: %w", err)
		}
		body = bytes.NewReader(b)
	}
	u := c.base.JoinPath("v1")
	for _, p := range r.path {
		u = u.JoinPath(url.PathEscape(p))
	}
	u.RawQuery = r.query.Encode()
	req, err := http.NewRequestWithContext(ctx, r.method, u.String(), body)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	for _, h := range []http.Header{c.header, r.header} {
		for k, v := range h {
			req.Header[k] = v
		}
	}
	if r.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return req, nil
}

// unreachable is the error of a connection. What was read can be read again; a
// write may have arrived.
func (c *Client) unreachable(ctx context.Context, r call, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var dial *net.OpError
	if r.method != http.MethodGet && !(errors.As(err, &dial) && dial.Op == "dial") {
		return api.Errorf(api.CodeUncertain, "the connection to %s broke before the answer: %v", c.base.Host, err)
	}
	return api.Errorf(api.CodeUnavailable, "no server answers at %s: %v (is the agent running there? set --address or BERTH_ADDRESS)", c.base, err)
}

// maxErrorBody bounds what is read of an error.
const maxErrorBody = 1 << 20

func readError(resp *http.Response) error {
	var e api.Error
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	if err == nil && json.Unmarshal(b, &e) == nil && e.Code != "" {
		return &e
	}
	return api.Errorf(api.CodeInternal, "the server answered %s: %s", resp.Status, strings.TrimSpace(string(b)))
}
