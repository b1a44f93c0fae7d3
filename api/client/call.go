package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berth-dev/berth/api"
)

// call is one request.
type call struct {
	method string
	// path are its elements, which are escaped one by one.
	path   []string
	query  url.Values
	header http.Header
	// wait is for how long the server may hold the answer back.
	wait   time.Duration
	body   any       // sent as JSON
	stream io.Reader // sent as it is
	into   any       // the answer's JSON
	copyTo io.Writer // the answer as it is
	page   *Page     // moved on to the next one
	// asks: it changes nothing, whatever its method.
	asks bool
}

// answerTime is how long an answer may take beyond what the server was asked to
// wait. A stream may take as long as it likes, once it has begun.
const answerTime = 30 * time.Second

// begin makes the request of a stream. One of which no answer begins in time is
// ended by cancel.
func (c *Client) begin(req *http.Request, cancel context.CancelCauseFunc) (*http.Response, error) {
	late := time.AfterFunc(answerTime, func() { cancel(fmt.Errorf("no answer within %s", answerTime)) })
	defer late.Stop()
	return c.http.Do(req)
}

func (c *Client) once(ctx context.Context, r call) (uint64, error) {
	bounded := ctx
	if r.stream == nil && r.copyTo == nil {
		limit := r.wait + answerTime
		timed, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer within %s", limit))
		defer cancel()
		bounded = timed
	}
	req, err := c.request(bounded, r)
	if err != nil {
		return 0, err
	}
	if c.slow != nil && r.wait == 0 && r.stream == nil && r.copyTo == nil {
		defer time.AfterFunc(SlowAfter, c.slow).Stop()
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, c.unreachable(ctx, r, err)
	}
	defer func() { _ = resp.Body.Close() }()                                // nothing is lost by failing to close what was read
	index, _ := strconv.ParseUint(resp.Header.Get(api.HeaderIndex), 10, 64) // absent: 0
	if resp.StatusCode < http.StatusOK || resp.StatusCode >= http.StatusMultipleChoices {
		return index, c.refused(r, resp)
	}
	if err := c.receive(r, resp.Body); err != nil {
		return 0, c.cut(ctx, r, err)
	}
	if r.page != nil {
		r.page.Next = resp.Header.Get(api.HeaderNext)
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
	u, err := c.url(r)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, r.method, u.String(), body)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	for _, h := range []http.Header{c.header, r.header} {
		maps.Copy(req.Header, h)
	}
	if c.trace != nil {
		if of := c.trace(ctx); of != "" {
			req.Header.Set(api.HeaderTrace, string(of))
		}
	}
	if r.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return req, nil
}

// url is where a request goes. An element that is empty would name something
// else, and so would one that means a directory, which is escaped more than
// URLs need.
func (c *Client) url(r call) (*url.URL, error) {
	if slices.Contains(r.path, "") {
		return nil, api.Errorf(api.CodeInvalid, "a name is empty in %q", strings.Join(r.path, "/"))
	}
	var raw strings.Builder
	raw.WriteString(strings.TrimSuffix(c.base.EscapedPath(), "/") + "/v1")
	for _, p := range r.path {
		escaped := url.PathEscape(p)
		if p == "." || p == ".." {
			escaped = strings.ReplaceAll(p, ".", "%2E")
		}
		raw.WriteString("/" + escaped)
	}
	path, err := url.PathUnescape(raw.String())
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	u := *c.base
	u.Path, u.RawPath, u.RawQuery, u.Fragment = path, raw.String(), r.query.Encode(), ""
	return &u, nil
}

// receive reads an answer to its end, so that the connection is used again.
func (c *Client) receive(r call, body io.Reader) error {
	switch {
	case r.copyTo != nil:
		return pass(r.copyTo, body)
	case r.into != nil:
		return c.decode(body, r.into)
	}
	_, err := io.Copy(io.Discard, body)
	return err
}

// maxKept is the size of a buffer that is kept for the next answer, in bytes.
const maxKept = 1 << 20

// decode reads JSON to its end.
func (c *Client) decode(body io.Reader, into any) error {
	b, ok := c.buffers.Get().(*bytes.Buffer)
	if !ok {
		b = &bytes.Buffer{}
	}
	b.Reset()
	_, err := b.ReadFrom(body)
	if err == nil {
		err = json.Unmarshal(b.Bytes(), into)
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok && syntax.Offset >= int64(b.Len()) {
			err = io.ErrUnexpectedEOF // it was cut
		}
	}
	if b.Len() == 0 && err != nil {
		err = io.EOF
	}
	if b.Cap() <= maxKept {
		c.buffers.Put(b)
	}
	return err
}

// pass copies an answer, and tells a receiver that fails from a server that does.
func pass(to io.Writer, body io.Reader) error {
	s := &sink{Writer: to}
	_, err := io.Copy(s, body)
	if s.err != nil {
		return &receiverError{s.err}
	}
	return err
}

type sink struct {
	io.Writer
	err error
}

func (s *sink) Write(b []byte) (n int, err error) {
	n, err = s.Writer.Write(b)
	s.err = err
	return n, err
}

type receiverError struct{ error }
