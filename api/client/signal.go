package client

import (
	"context"
	"net/http"

	"github.com/berth-dev/berth/api"
)

// SignalAllocation sends a signal to tasks of an allocation that run.
func (c *Client) SignalAllocation(ctx context.Context, id api.AllocID, ask api.SignalRequest) (*api.Signalled, error) {
	var done api.Signalled
	_, err := c.do(ctx, call{method: http.MethodPost, path: []string{"allocation", string(id), "signal"}, body: ask, into: &done})
	return &done, err
}
