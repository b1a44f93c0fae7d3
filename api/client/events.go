package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/berth-dev/berth/api"
)

// EventQuery chooses events.
type EventQuery struct {
	// Topics are added up; none are all.
	Topics []api.TopicFilter
	// Namespace is empty or * for all. Nouns that have none are told of anyway.
	Namespace api.NamespaceID
	// Index is where to go on: after the commit of that index. 0 is from now on.
	Index uint64
	// Generation is the one that Index is of, as a frame said it; 0 is not known.
	Generation uint64
}

const (
	// silence is for how long a stream may say nothing: three of the servers'
	// heartbeats.
	silence = 30 * time.Second
	// firstPause and lastPause are how long to wait before connecting again.
	firstPause = 50 * time.Millisecond
	lastPause  = 5 * time.Second
)

// Events follows what is committed, until ctx ends or the loop over it does. A
// frame without events says that nothing else has happened up to its index; the
// first one says where the stream begins. Whoever needs the state and then all
// changes waits for that first frame, reads the lists, and applies what follows.
//
// When the connection breaks, or the leadership changes, it connects again and
// goes on where it was, for as long as it takes; before the first frame, for as
// long as the client has patience. An error ends it. The code gone says that
// some events are lost for good: read the lists anew, and follow from now on.
func (c *Client) Events(ctx context.Context, q EventQuery) iter.Seq2[api.EventFrame, error] {
	return func(yield func(api.EventFrame, error) bool) {
		connected, deadline := false, time.Now().Add(c.patience)
		for pause := firstPause; ; pause = min(2*pause, lastPause) {
			heard, err := c.follow(ctx, &q, yield)
			if heard {
				connected, pause = true, firstPause
			}
			if err == nil {
				return
			}
			lost := api.CodeOf(err) == api.CodeUnavailable && (connected || !time.Now().Add(pause).After(deadline))
			if !lost || !sleep(ctx, pause) {
				if ctx.Err() != nil {
					err = ctx.Err()
				}
				yield(api.EventFrame{}, err)
				return
			}
		}
	}
}

// follow yields the frames of one connection, and moves q on. It answers nil when
// nobody wants more, and whether it heard anything.
func (c *Client) follow(ctx context.Context, q *EventQuery, yield func(api.EventFrame, error) bool) (heard bool, err error) {
	bounded, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	quiet := time.AfterFunc(silence, func() { cancel(fmt.Errorf("no word within %s", silence)) })
	defer quiet.Stop()
	r := call{method: http.MethodGet, path: []string{"events"}, query: q.values()}
	req, err := c.request(bounded, r)
	if err != nil {
		return false, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return false, c.unreachable(ctx, r, err)
	}
	defer func() { _ = resp.Body.Close() }() // nothing is lost by failing to close what was read
	if resp.StatusCode != http.StatusOK {
		return false, c.refused(r, resp)
	}
	for dec := json.NewDecoder(resp.Body); ; heard = true {
		var f api.EventFrame
		if err := dec.Decode(&f); err != nil {
			if cause := context.Cause(bounded); cause != nil && ctx.Err() == nil {
				err = cause
			}
			if err == io.EOF { //nolint:errorlint // the decoder's own, which it does not wrap
				err = io.ErrUnexpectedEOF
			}
			return heard, c.cut(ctx, r, err)
		}
		quiet.Stop() // the caller may take its time
		if ctx.Err() != nil {
			return heard, ctx.Err()
		}
		if f.Error != nil && f.Error.Code == "" {
			return heard, api.Errorf(api.CodeInternal, "what %s answers is not of Berth: an error without a code", c.base.Host)
		}
		if f.Error != nil {
			return heard, f.Error
		}
		q.Index, q.Generation = f.Index, f.Generation
		if !yield(f, nil) {
			return true, nil
		}
		quiet.Reset(silence)
	}
}

func (q *EventQuery) values() url.Values {
	v := url.Values{}
	for _, t := range q.Topics {
		v.Add("topic", t.String())
	}
	if q.Namespace != "" {
		v.Set("namespace", string(q.Namespace))
	}
	if q.Index > 0 {
		v.Set("index", strconv.FormatUint(q.Index, 10))
	}
	if q.Generation > 0 {
		v.Set("generation", strconv.FormatUint(q.Generation, 10))
	}
	return v
}

// sleep waits, and reports whether ctx let it.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
