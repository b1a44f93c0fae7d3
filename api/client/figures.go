package client

import (
	"context"
	"net/http"

	"github.com/berth-dev/berth/api"
)

// AllocFigures reads what the tasks of an allocation use, as their node measures
// it now. It takes about half a second.
func (c *Client) AllocFigures(ctx context.Context, id api.AllocID) (*api.AllocFigures, error) {
	var f api.AllocFigures
	_, err := c.do(ctx, call{method: http.MethodGet, path: []string{"allocation", string(id), "stats"}, into: &f})
	return &f, err
}
