package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/berth-dev/berth/api"
)

// unreachable is the error of a connection that brought no answer. What was to
// be read can be read again; a write may have arrived.
func (c *Client) unreachable(ctx context.Context, r call, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if u := (*url.Error)(nil); errors.As(err, &u) {
		err = u.Err // the rest of it repeats the address
	}
	// What is no HTTP comes from something else, which has done nothing.
	if slices.ContainsFunc(noHTTP(), func(s string) bool { return strings.HasPrefix(err.Error(), s) }) {
		return api.Errorf(api.CodeInternal, "what %s answers is not of Berth: it speaks no HTTP (see --address)", c.base.Host)
	}
	var dial *net.OpError
	if r.writes() && !(errors.As(err, &dial) && dial.Op == "dial") {
		return uncertain("the connection to %s broke before the answer: %v", c.base.Host, err)
	}
	return api.Errorf(api.CodeUnavailable, "no server answers at %s: %v (is the agent running there? set --address or BERTH_ADDRESS)",
		c.base.Redacted(), err)
}

// noHTTP is how net/http begins to say that what it got is no HTTP: as an
// answer, or before anything was asked, as mail servers speak. It has no errors
// of its own for either.
func noHTTP() []string {
	return []string{
		"malformed HTTP",
		"net/http: HTTP/1.x transport connection broken: malformed HTTP",
		"readLoopPeekFailLocked: %!w(<nil>)",
	}
}

// writes reports whether the request may have changed something.
func (r call) writes() bool { return r.method != http.MethodGet && !r.asks }

func uncertain(format string, args ...any) error {
	return api.Errorf(api.CodeUncertain, "it is not known whether this was done: "+format, args...)
}

// cut is the error of an answer that began well. What was copied cannot be
// taken back, so a copy is not repeated.
func (c *Client) cut(ctx context.Context, r call, err error) error {
	var (
		receiver *receiverError
		syntax   *json.SyntaxError
		kind     *json.UnmarshalTypeError
	)
	switch {
	case errors.As(err, &receiver):
		return fmt.Errorf("keep the answer of %s: %w", c.base.Host, receiver.error)
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &syntax), errors.As(err, &kind):
		return api.Errorf(api.CodeInternal, "what %s answers is not of Berth: %v", c.base.Host, err)
	case r.writes():
		return uncertain("the answer of %s broke off: %v", c.base.Host, err)
	}
	e := api.Errorf(api.CodeUnavailable, "the answer of %s broke off: %v", c.base.Host, err)
	e.Retry = r.copyTo == nil
	return e
}

const (
	// maxErrorBody bounds what is read of an error, in bytes.
	maxErrorBody = 1 << 20
	// maxForeign bounds what is shown of one that is not Berth's.
	maxForeign = 200
)

// refused is the error that an answer carries. One that is not Berth's comes
// from something between, or from something else at that address.
func (c *Client) refused(r call, resp *http.Response) error {
	var e api.Error
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	if err == nil && json.Unmarshal(b, &e) == nil && e.Code != "" {
		return &e
	}
	said := resp.Status
	if to := resp.Header.Get("Location"); to != "" {
		said += " to " + to
	}
	text := strings.Join(strings.Fields(string(b)), " ")
	if len(text) > maxForeign {
		text = strings.ToValidUTF8(text[:maxForeign], "") + "..."
	}
	if text != "" {
		said += ": " + text
	}
	switch resp.StatusCode {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		if r.writes() {
			return uncertain("%s answered %s", c.base.Host, said)
		}
		return api.Errorf(api.CodeUnavailable, "%s answered %s", c.base.Host, said)
	}
	return api.Errorf(api.CodeInternal, "what %s answers is not of Berth: %s (see --address)", c.base.Host, said)
}
