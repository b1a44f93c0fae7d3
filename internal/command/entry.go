package command

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/state"
)

// Entry is one entry of the log: plans that were planned together, applied as
// one commit of the state at one index.
type Entry struct {
	ID state.EntryID
	// After is the entry that this one was planned on. If another one stands
	// there, the plans rest on what never happened, and the entry is void.
	After state.EntryID
	// Time is command time for all plans of the entry.
	Time  time.Time
	Plans []Plan
	// Bytes is its size in the log, 0 if it is not known.
	Bytes int
}

// Plan is commands that take effect together or not at all.
type Plan []Command

// ErrVoid is the answer of an entry whose predecessor is missing. It has
// changed nothing.
var ErrVoid = errors.New("entry is void: the one that it was planned on is missing")

// In the log an entry is text: a line of JSON with its head, then for every
// plan a line for every command, its kind, a space and its body in JSON, then
// an empty line. JSON has no line breaks of its own.

// head is the first line of an entry.
type head struct {
	ID    state.EntryID `json:"id"`
	After state.EntryID `json:"after"`
	Time  time.Time     `json:"time"`
}

// Encoded is a plan in the log's form.
type Encoded []byte

// Encode brings a plan into the log's form.
func (p Plan) Encode() (Encoded, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	for _, c := range p {
		b.WriteString(string(c.Kind()))
		b.WriteByte(' ')
		if err := enc.Encode(c); err != nil {
			return nil, fmt.Errorf("encode command %s: %w", c.Kind(), err)
		}
	}
	b.WriteByte('\n')
	return b.Bytes(), nil
}

// EncodeEntry brings an entry with encoded plans into the log's form.
func EncodeEntry(id, after state.EntryID, now time.Time, plans []Encoded) ([]byte, error) {
	line, err := json.Marshal(head{ID: id, After: after, Time: now})
	if err != nil {
		return nil, fmt.Errorf("encode entry: %w", err)
	}
	size := len(line) + 1
	for _, p := range plans {
		size += len(p)
	}
	b := make([]byte, 0, size)
	b = append(append(b, line...), '\n')
	for _, p := range plans {
		b = append(b, p...)
	}
	return b, nil
}

// Validate runs every command's own checks and says all problems.
func (p Plan) Validate() error {
	var problems api.Problems
	for _, c := range p {
		problems.Merge(c.Validate())
	}
	return problems.Err("the request")
}

// Apply applies all commands of the plan, or answers the first error. The
// caller aborts the transaction then.
func (p Plan) Apply(tx *state.Tx) error {
	for _, c := range p {
		if err := c.Apply(tx); err != nil {
			return err
		}
	}
	return nil
}

// Codec reads entries, and knows from which feature level each kind may be
// written.
type Codec struct {
	kinds registry
}

// NewCodec returns a codec of every kind that this version knows.
func NewCodec() *Codec { return &Codec{kinds: newRegistry()} }

// Decode reads an entry. It is strict: an unknown kind or field is an error,
// on which a server must stop, because going on would mean to diverge.
func (c *Codec) Decode(b []byte) (*Entry, error) {
	line, rest, ok := bytes.Cut(b, []byte{'\n'})
	if !ok {
		return nil, errors.New("decode entry: it has no head")
	}
	var h head
	if err := strict(line, &h); err != nil {
		return nil, fmt.Errorf("decode entry: %w", err)
	}
	plans, err := c.decodePlans(rest)
	if err != nil {
		return nil, fmt.Errorf("decode entry %s/%d: %w", h.ID.Leadership, h.ID.Sequence, err)
	}
	return &Entry{ID: h.ID, After: h.After, Time: h.Time, Plans: plans, Bytes: len(b)}, nil
}

// DecodePlan reads a plan as every server will read it from the log.
func (c *Codec) DecodePlan(b Encoded) (Plan, error) {
	plans, err := c.decodePlans(b)
	if err == nil && len(plans) != 1 {
		err = fmt.Errorf("it has %d plans", len(plans))
	}
	if err != nil {
		return nil, fmt.Errorf("decode plan: %w", err)
	}
	return plans[0], nil
}

func (c *Codec) decodePlans(b []byte) (plans []Plan, err error) {
	var p Plan
	for len(b) > 0 {
		line, rest, ok := bytes.Cut(b, []byte{'\n'})
		if !ok {
			return nil, errors.New("it is cut")
		}
		b = rest
		if len(line) == 0 {
			plans = append(plans, p)
			p = nil
			continue
		}
		cmd, err := c.decodeCommand(line)
		if err != nil {
			return nil, err
		}
		p = append(p, cmd)
	}
	if p != nil {
		return nil, errors.New("its last plan is cut")
	}
	return plans, nil
}

func (c *Codec) decodeCommand(line []byte) (Command, error) {
	name, body, _ := bytes.Cut(line, []byte{' '})
	k, ok := c.kinds[Kind(name)]
	if !ok {
		return nil, fmt.Errorf("unknown kind %q: a newer version wrote it", name)
	}
	cmd := k.empty()
	if err := strict(body, cmd); err != nil {
		return nil, fmt.Errorf("command %s: %w", name, err)
	}
	return cmd, nil
}

// Apply applies the entry to the store as one commit. On any error nothing at
// all has changed, and the entries that were planned on this one are void.
func (e *Entry) Apply(store *state.Store, index uint64) error {
	tx := store.Begin(index, e.Time)
	defer tx.Abort()
	tx.Weighs(e.Bytes)
	log := tx.Log()
	if log.Last != e.After {
		return ErrVoid
	}
	if log.Clock.After(e.Time) {
		tx.At(log.Clock)
	}
	for _, p := range e.Plans {
		if err := p.Apply(tx); err != nil {
			return err
		}
	}
	tx.PutLog(state.Log{Last: e.ID, Clock: tx.Now()})
	tx.Commit()
	return nil
}

// Allowed answers an error if the cluster's feature level does not allow every
// kind in the plan.
func (c *Codec) Allowed(p Plan, v state.View) error {
	level := 0
	if c := v.Cluster(); c != nil {
		level = c.FeatureLevel
	}
	for _, cmd := range p {
		if need := c.kinds[cmd.Kind()].level; need > level {
			return api.Errorf(api.CodeUnavailable,
				"%s needs feature level %d, and the cluster is at %d: some server is older", cmd.Kind(), need, level)
		}
	}
	return nil
}

func strict(b []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the value")
	}
	return nil
}
