package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/berth-dev/berth/api"
)

// Log is the log of a task as it comes from its node. Its end is io.EOF if it
// is whole, and an *api.Error if it broke off: to go on, ask again for what
// begins at Next.
type Log struct {
	// Offset is the position of the first byte. It is above the one that was
	// asked for if what lies between is kept no longer.
	Offset int64

	client *Client
	ctx    func() error
	call   call
	resp   *http.Response
	read   int64
	cancel context.CancelCauseFunc
}

// ErrSilent is in the error of a log that is followed of which nothing came for
// LogSilence. The task may be silent, or the connection dead: nobody sends a
// sign of life in a log. To ask again for what begins at Next loses nothing.
var ErrSilent = errors.New("nothing came")

// LogSilence is how long nothing may come of a log before its reader asks again.
const LogSilence = time.Minute

// Logs reads the log of an allocation's task. The caller must close it. It is
// not repeated, whatever the client's patience: that a node is down is an
// answer.
func (c *Client) Logs(ctx context.Context, alloc api.AllocID, task string, q api.LogQuery) (*Log, error) {
	query := url.Values{}
	if q.Type != "" {
		query.Set("type", string(q.Type))
	}
	if q.Offset != 0 {
		query.Set("offset", strconv.FormatInt(q.Offset, 10))
	}
	if q.Tail != nil {
		query.Set("tail", strconv.FormatInt(*q.Tail, 10))
	}
	if q.Follow {
		query.Set("follow", "true")
	}
	r := call{method: http.MethodGet, path: []string{"allocation", string(alloc), "logs", task}, query: query, copyTo: io.Discard}
	bounded, cancel := context.WithCancelCause(ctx)
	req, err := c.request(bounded, r)
	if err != nil {
		cancel(nil)
		return nil, err
	}
	resp, err := c.begin(req, cancel)
	if err != nil {
		cancel(nil)
		return nil, c.unreachable(ctx, r, err)
	}
	if resp.StatusCode != http.StatusOK {
		defer cancel(nil)
		defer func() { _ = resp.Body.Close() }()
		return nil, c.refused(r, resp)
	}
	at, _ := strconv.ParseInt(resp.Header.Get(api.HeaderOffset), 10, 64) // absent: 0
	return &Log{Offset: at, client: c, ctx: ctx.Err, call: r, resp: resp, cancel: cancel}, nil
}

// Next is the position of the byte that is read next.
func (l *Log) Next() int64 { return l.Offset + l.read }

// Read implements io.Reader.
func (l *Log) Read(p []byte) (int, error) {
	quiet := time.AfterFunc(LogSilence, func() { l.cancel(ErrSilent) })
	n, err := l.resp.Body.Read(p)
	quiet.Stop()
	silent := errors.Is(context.Cause(l.resp.Request.Context()), ErrSilent)
	l.read += int64(n)
	switch {
	case err == nil:
		return n, nil
	case l.ctx() != nil:
		return n, l.ctx()
	case silent:
		return n, fmt.Errorf("%w from %s for %s", ErrSilent, l.client.base.Host, LogSilence)
	case err != io.EOF:
		return n, api.Errorf(api.CodeUnavailable, "the log broke off: the connection to %s is gone", l.client.base.Host)
	}
	var e api.Error
	if said := l.resp.Trailer.Get(api.TrailerError); said != "" {
		if json.Unmarshal([]byte(said), &e) != nil || e.Code == "" {
			e = *api.Errorf(api.CodeInternal, "the log broke off, and what %s says of it is not of Berth", l.client.base.Host)
		}
		return n, &e
	}
	return n, io.EOF
}

// Close lets the log go.
func (l *Log) Close() {
	_ = l.resp.Body.Close() // nothing is lost
	l.cancel(nil)
}
