package executor

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
	"syscall"
	"time"

	"github.com/berth-dev/berth/api"
)

// milestone is what a client can wait for.
type milestone string

const (
	// started: the task's command runs, or could not be started.
	started milestone = "started"
	// ended: no process of the task is left, and its end is recorded.
	ended milestone = "ended"
)

// client asks the supervisor of one run directory. What it learns is only that
// something happened: the directory's files say what.
type client struct {
	http *http.Client
}

func newClient(dir runDir) client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", dir.path(socketFile))
	}
	return client{http: &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}}
}

// wait returns when the milestone is reached, or the supervisor gone.
func (c client) wait(ctx context.Context, m milestone) error {
	return c.do(ctx, http.MethodGet, "/wait?"+url.Values{"for": {string(m)}}.Encode(), nil)
}

// stop returns when the task has ended.
func (c client) stop(ctx context.Context, sig syscall.Signal, timeout time.Duration) error {
	return c.do(ctx, http.MethodPost, "/stop", order{Signal: sig, Timeout: api.Duration(timeout)})
}

func (c client) signal(ctx context.Context, sig syscall.Signal) error {
	return c.do(ctx, http.MethodPost, "/signal", order{Signal: sig})
}

func (c client) do(ctx context.Context, method, target string, body any) error {
	var b []byte
	if body != nil {
		var err error
		if b, err = json.Marshal(body); err != nil {
			return fmt.Errorf("ask supervisor: %w", err)
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://supervisor"+target, bytes.NewReader(b))
	if err != nil {
		return fmt.Errorf("ask supervisor: %w", err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("ask supervisor: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err = io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err != nil {
		return fmt.Errorf("ask supervisor: %w", err)
	}
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	var refusal api.Error
	if err := json.Unmarshal(b, &refusal); err != nil {
		return fmt.Errorf("ask supervisor: it answers %s", resp.Status)
	}
	return &refusal
}

// visit runs a command in the task, and answers the connection that it is carried
// on.
func (c client) visit(ctx context.Context, req *api.ExecRequest) (io.ReadWriteCloser, error) {
	b, err := json.Marshal(req)
	if err != nil {
		return nil, fmt.Errorf("ask supervisor: %w", err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://supervisor/visit", bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("ask supervisor: %w", err)
	}
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", api.UpgradeFrames)
	resp, err := c.http.Do(r)
	if err != nil {
		return nil, fmt.Errorf("ask supervisor: %w", err)
	}
	if conn, ok := resp.Body.(io.ReadWriteCloser); ok && resp.StatusCode == http.StatusSwitchingProtocols {
		return conn, nil
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode == http.StatusNotFound {
		return nil, api.Errorf(api.CodeConflict, "the task was started by an older berth, which runs no commands in it: restart it first")
	}
	b, err = io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err != nil {
		return nil, fmt.Errorf("ask supervisor: %w", err)
	}
	refusal := &api.Error{}
	if err := json.Unmarshal(b, refusal); err != nil {
		return nil, fmt.Errorf("ask supervisor: it answers %s", resp.Status)
	}
	return nil, refusal
}

// unreachable reports whether nobody listens, or whoever did is gone.
func unreachable(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOENT) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}
