// Package inquiry asks agents what their plugins say: over the agent's own
// connection, without a word in the log. It chooses whom to ask, and bounds how
// long an answer may take and how large it may be.
//
// It never asks for an effect, never decides what an answer means, and keeps no
// answer. Invariant: an agent that answers nothing, nonsense or without end
// costs whoever asked an error within the question's limit, and a fixed amount
// of memory.
package inquiry

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/fit"
	"github.com/berth-dev/berth/internal/frame"
	"github.com/berth-dev/berth/internal/server/carrier"
	"github.com/berth-dev/berth/internal/state"
)

const (
	// PerNode is how many questions one node gets at a time. It is well below
	// what it takes of streams, so that logs stay readable.
	PerNode = 8
	// maxValue and maxAnswer bound one value of an answer, and all of it, in
	// bytes.
	maxValue  = 4 << 20
	maxAnswer = 512 << 20
	// margin is how much longer than its limit a question is waited for: the
	// agent's own word is better than none.
	margin = 2 * time.Second
)

// Asker asks. It is safe for concurrent use.
type Asker struct {
	streams *carrier.Broker

	mu    sync.Mutex // guards below
	asked map[api.NodeID]int
	turn  int
}

// New returns an asker. It starts nothing.
func New(streams *carrier.Broker) *Asker {
	return &Asker{streams: streams, asked: map[api.NodeID]int{}}
}

// Place is a group of controller instances that are reached alike: each of them
// speaks for all. Controllers that serve only what is near them, as those of
// disks in machines do, make a place of each machine.
type Place struct {
	Plugin api.PluginID
	// Topology is that of the instances' nodes, nil if they have none.
	Topology api.Topology
	nodes    []api.NodeID
}

// Key tells the places of a plugin apart.
func (p Place) Key() string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(p.Topology)) {
		parts = append(parts, strconv.Quote(k)+"="+strconv.Quote(p.Topology[k]))
	}
	return strings.Join(parts, ",")
}

// Sees reports whether a volume that can be reached from these topologies is
// one that the place would know of.
func (p Place) Sees(topologies []api.Topology) bool {
	return p.Topology == nil || len(topologies) == 0 || fit.Reachable(topologies, p.Topology)
}

// Places are the places of a plugin where a healthy controller has the
// capability, in the order of their keys. An empty capability is any.
func Places(v state.View, plugin api.PluginID, capability string) []Place {
	byKey := map[string]*Place{}
	for i := range v.Instances(plugin) {
		if !i.ServesController() || !i.Healthy || !ready(v, i.NodeID) || capability != "" && !i.Can(capability) {
			continue
		}
		p := &Place{Plugin: plugin}
		if i.ServesNode() && len(i.Topology) > 0 {
			p.Topology = i.Topology
		}
		if known := byKey[p.Key()]; known != nil {
			p = known
		}
		byKey[p.Key()] = p
		p.nodes = append(p.nodes, i.NodeID)
	}
	all := make([]Place, 0, len(byKey))
	for _, p := range byKey {
		all = append(all, *p)
	}
	slices.SortFunc(all, func(a, b Place) int { return strings.Compare(a.Key(), b.Key()) })
	return all
}

// Near is a place that would know of a volume that can be reached from these
// topologies, or an error that says why there is none.
func Near(v state.View, plugin api.PluginID, capability string, topologies []api.Topology) (Place, error) {
	for _, p := range Places(v, plugin, capability) {
		if p.Sees(topologies) {
			return p, nil
		}
	}
	instances := slices.Collect(v.Instances(plugin))
	if capability != "" && slices.ContainsFunc(instances, func(i *api.Instance) bool { return i.ServesController() && i.Healthy && !i.Can(capability) }) {
		return Place{}, api.Errorf(api.CodeInvalid, "plugin %s cannot be asked: its controller lacks the capability %s", plugin, capability)
	}
	_, why := fit.NewPlugin(plugin, instances).Executors(nil, "", func(id api.NodeID) bool { return ready(v, id) })
	if why == "" {
		why = "no controller instance of plugin " + string(plugin) + " that is near the volume is healthy"
	}
	return Place{}, api.Errorf(api.CodeUnavailable, "%s", why)
}

// ready reports whether a node may be asked: what one says that has yet to undo
// what it ran may be of another time.
func ready(v state.View, id api.NodeID) bool {
	n := v.Node(id)
	return n != nil && n.Status.State == api.NodeReady && !n.Status.Owes
}

// maxTries is how many nodes of a place are asked in turn: one that is just
// restarting need not be the end of it.
const maxTries = 3

// at asks a node of the place, and another one where the first is not there.
func (a *Asker) at(ctx context.Context, p Place, q api.Question, begin func(), each func([]byte) error) error {
	q.PluginID = p.Plugin
	var err error
	for i, id := range a.spread(p.nodes) {
		if i == maxTries {
			break
		}
		begin()
		if err = a.ask(ctx, id, q, each); api.CodeOf(err) != api.CodeUnavailable || ctx.Err() != nil {
			return err
		}
	}
	if err == nil {
		return api.Errorf(api.CodeUnavailable, "no node with a controller instance of plugin %s is ready", p.Plugin)
	}
	return err
}

// spread is the nodes, each time from another one on, so that one that answers
// nothing is not always the first.
func (a *Asker) spread(nodes []api.NodeID) []api.NodeID {
	if len(nodes) == 0 {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.turn++
	at := a.turn % len(nodes)
	return slices.Concat(nodes[at:], nodes[:at])
}

// ask asks one node, and gives each value of its answer to each.
func (a *Asker) ask(ctx context.Context, node api.NodeID, q api.Question, each func([]byte) error) error {
	if err := a.enter(node); err != nil {
		return err
	}
	defer a.leave(node)
	limit := time.Duration(q.Limit)
	ctx, cancel := context.WithTimeout(ctx, limit+margin)
	defer cancel()
	late := func(err error) error {
		if ctx.Err() != nil {
			return api.Errorf(api.CodeUnavailable, "node %s did not answer within %s", node, limit)
		}
		return err
	}
	s, err := a.streams.Open(ctx, node, api.StreamOffer{Kind: api.StreamQuestion, Question: &q})
	if err != nil {
		return late(err)
	}
	defer s.Close()
	defer context.AfterFunc(ctx, s.Interrupt)()
	return late(values(s, node, each))
}

// values reads the values of an answer.
func values(s *carrier.Stream, node api.NodeID, each func([]byte) error) error {
	body := &answer{from: s, left: maxAnswer}
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, maxValue)
	lines.Split(wholeLines)
	for lines.Scan() {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		if err := each(lines.Bytes()); err != nil {
			return err
		}
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return api.Errorf(api.CodeUnavailable, "node %s answers with a value of more than %d bytes", node, maxValue)
	default:
		return err
	}
}

// wholeLines splits at the ends of lines. A line without one was cut off, and
// is no value.
func wholeLines(data []byte, atEOF bool) (advance int, token []byte, err error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i], nil
	}
	if atEOF && len(data) > 0 {
		return 0, nil, api.Errorf(api.CodeUnavailable, "the agent's answer ends in the middle of a value")
	}
	return 0, nil, nil
}

// answer is the data of a stream.
type answer struct {
	from *carrier.Stream
	rest []byte
	left int
}

// Read implements io.Reader.
func (a *answer) Read(p []byte) (int, error) {
	for len(a.rest) == 0 {
		kind, payload, err := a.from.Next()
		switch {
		case errors.Is(err, io.EOF):
			return 0, io.EOF
		case err != nil:
			return 0, err
		case kind != frame.Data && kind != frame.Begin:
			return 0, api.Errorf(api.CodeUnavailable, "the agent sends frames of kind %d in an answer", kind)
		case kind == frame.Begin:
			continue
		}
		if a.left -= len(payload); a.left < 0 {
			return 0, api.Errorf(api.CodeUnavailable, "the agent's answer has more than %d bytes", maxAnswer)
		}
		a.rest = payload
	}
	n := copy(p, a.rest)
	a.rest = a.rest[n:]
	return n, nil
}

func (a *Asker) enter(node api.NodeID) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.asked[node] >= PerNode {
		return api.Errorf(api.CodeUnavailable, "node %s has %d questions to answer already: try again", node, PerNode)
	}
	a.asked[node]++
	return nil
}

func (a *Asker) leave(node api.NodeID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.asked[node]--; a.asked[node] == 0 {
		delete(a.asked, node)
	}
}

// decode reads one value.
func decode[T any](b []byte) (T, error) {
	var v T
	if err := json.Unmarshal(b, &v); err != nil {
		return v, api.Errorf(api.CodeUnavailable, "the agent's answer cannot be read: %v", err)
	}
	return v, nil
}

// one asks for one value.
func one[T any](ctx context.Context, ask func(context.Context, func(), func([]byte) error) error) (T, error) {
	var got T
	count := 0
	err := ask(ctx, func() { count = 0 }, func(b []byte) (err error) {
		count++
		got, err = decode[T](b)
		return err
	})
	if err == nil && count != 1 {
		err = api.Errorf(api.CodeUnavailable, "the agent answers with %d values, and not with one", count)
	}
	return got, err
}
