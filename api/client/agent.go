package client

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/berth-dev/berth/api"
)

// Agent is the part of the API that an agent uses, with its node's secret.
type Agent struct {
	client *Client
	node   api.NodeID
}

// Agent returns a client that speaks for a node.
func (c *Client) Agent(node api.NodeID, secret string) *Agent {
	speaking := *c
	speaking.header = http.Header{
		http.CanonicalHeaderKey(api.HeaderNode): {string(node)},
		"Authorization":                         {"Bearer " + secret},
	}
	return &Agent{client: &speaking, node: node}
}

// Register opens a session.
func (a *Agent) Register(ctx context.Context, reg api.Registration) (api.Registered, error) {
	var answer api.Registered
	_, err := a.client.do(ctx, call{method: http.MethodPost, path: []string{"agent", "register"}, body: reg, into: &answer})
	return answer, err
}

// Assignments answers what the node is to do, as soon as there is something
// newer than index, or after wait. If none of its allocations has changed since
// index, it may say so instead of naming them.
func (a *Agent) Assignments(ctx context.Context, session string, epoch, index uint64, wait time.Duration) (*api.Assignments, error) {
	query := url.Values{}
	query.Set("index", strconv.FormatUint(index, 10))
	query.Set("wait", wait.String())
	query.Set("brief", "true")
	header := http.Header{}
	header.Set(api.HeaderSession, session)
	header.Set(api.HeaderEpoch, strconv.FormatUint(epoch, 10))
	answer := &api.Assignments{}
	_, err := a.client.do(ctx, call{
		method: http.MethodGet, path: []string{"agent", "assignments"},
		query: query, header: header, wait: wait, into: answer,
	})
	return answer, err
}

// Secrets reads the secrets of a volume, right before a call that takes them.
func (a *Agent) Secrets(ctx context.Context, ns api.NamespaceID, vol api.VolumeID) (map[string]string, error) {
	var answer api.Secrets
	_, err := a.client.do(ctx, call{method: http.MethodGet, path: []string{"agent", "secrets", string(ns), string(vol)}, into: &answer})
	return answer.Secrets, err
}

// Report sends facts.
func (a *Agent) Report(ctx context.Context, rep api.Report) (api.Reported, error) {
	var answer api.Reported
	_, err := a.client.do(ctx, call{method: http.MethodPost, path: []string{"agent", "report"}, body: rep, into: &answer})
	return answer, err
}

// Stream sends a stream that a server wants, until body ends, or the server has
// enough: what is read from both. What the server says meanwhile is written to it.
func (a *Agent) Stream(ctx context.Context, session string, epoch uint64, id api.StreamID, both io.ReadWriter) error {
	header := http.Header{}
	header.Set(api.HeaderSession, session)
	header.Set(api.HeaderEpoch, strconv.FormatUint(epoch, 10))
	_, err := a.client.do(ctx, call{
		method: http.MethodPost, path: []string{"agent", "stream", string(id)}, header: header, stream: both, copyTo: both,
	})
	return err
}
