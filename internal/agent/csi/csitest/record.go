package csitest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// Call is one call that a driver had.
type Call struct {
	// Seq counts calls in the order in which they came, from 1.
	Seq int
	// By is the node whose driver was called, Node the one that the call is
	// about: they differ for ControllerPublishVolume.
	By     string
	Node   string
	Method string
	// Volume is the volume's id, Name its CSI name where the backend knows it.
	Volume string
	Name   string
	// Code is what was answered, by the specification's name: OK, NOT_FOUND. It
	// is empty while the call is under way.
	Code    string
	Request json.RawMessage
}

// record is what is kept of a call.
type record struct {
	Call
	message proto.Message
}

// call is a call on its way.
type call struct {
	*record
	ctx  context.Context //nolint:containedctx // it is the call's own
	conn net.Addr
	// left is closed when the call has ended.
	left chan struct{}
	// things are what the call sets up or, if undo, takes down.
	things []*thing
	undo   bool
	// path is where a thing is taken down.
	path string
}

// Calls is every call so far.
func (b *Backend) Calls() []Call {
	b.mu.Lock()
	records := slices.Clone(b.calls)
	out := make([]Call, len(records))
	for i, r := range records {
		out[i] = r.Call
	}
	b.mu.Unlock()
	for i, r := range records {
		out[i].Request = requestJSON(r.message)
	}
	return out
}

// requestJSON is the same bytes for the same request: protojson varies its
// spaces on purpose.
func requestJSON(m proto.Message) json.RawMessage {
	loose, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil {
		loose, _ = json.Marshal(map[string]string{"error": err.Error()})
	}
	var tight bytes.Buffer
	if err := json.Compact(&tight, loose); err != nil {
		return loose
	}
	return tight.Bytes()
}

// Sequence renders the calls with an effect, one in a line, for comparison
// with what is expected:
//
//	CreateVolume pg OK
//	ControllerPublishVolume pg node-1 OK
func Sequence(calls []Call) string {
	var s strings.Builder
	for _, c := range calls {
		if !hasEffect(c.Method) {
			continue
		}
		words := []string{c.Method, c.Name, c.Node, c.Code}
		if c.Name == "" {
			words[1] = c.Volume
		}
		if c.Code == "" {
			words[3] = "..."
		}
		words = slices.DeleteFunc(words, func(w string) bool { return w == "" })
		fmt.Fprintln(&s, strings.Join(words, " "))
	}
	return s.String()
}

// hasEffect reports whether the method changes something.
func hasEffect(method string) bool {
	switch method {
	case "CreateVolume", "DeleteVolume", "CreateSnapshot", "DeleteSnapshot", "ControllerPublishVolume", "ControllerUnpublishVolume",
		"NodeStageVolume", "NodeUnstageVolume", "NodePublishVolume", "NodeUnpublishVolume",
		"ControllerExpandVolume", "ControllerModifyVolume", "NodeExpandVolume":
		return true
	}
	return false
}

// begin records a call that has come; the caller holds no lock.
func (b *Backend) begin(ctx context.Context, d *Driver, method string, message proto.Message) *call {
	c := &call{
		record: &record{Call: Call{By: d.config.ID, Method: method}, message: message},
		ctx:    ctx,
		conn:   connection(ctx),
		left:   make(chan struct{}),
	}
	if r, ok := message.(interface{ GetVolumeId() string }); ok {
		c.Volume = r.GetVolumeId()
	}
	switch r := message.(type) {
	case *csi.CreateVolumeRequest:
		c.Name, c.Volume = r.GetName(), volumeID(r.GetName())
	case *csi.CreateSnapshotRequest:
		c.Volume = r.GetSourceVolumeId()
	case *csi.DeleteSnapshotRequest:
		c.Name = r.GetSnapshotId()
		if s := b.snapshotNamed(r.GetSnapshotId()); s != "" {
			c.Name = s
		}
	case *csi.ControllerPublishVolumeRequest:
		c.Node = r.GetNodeId()
	case *csi.ControllerUnpublishVolumeRequest:
		c.Node = r.GetNodeId()
	case *csi.NodeStageVolumeRequest, *csi.NodeUnstageVolumeRequest,
		*csi.NodePublishVolumeRequest, *csi.NodeUnpublishVolumeRequest, *csi.NodeGetVolumeStatsRequest, *csi.NodeExpandVolumeRequest:
		c.Node = d.config.ID
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seq++
	c.Seq = b.seq
	if v := b.volumes[c.Volume]; v != nil {
		c.Name = v.name
	}
	if !b.options.Forget {
		b.calls = append(b.calls, c.record)
	}
	return c
}

// violate records that the call breaks a rule; the caller holds the lock.
func (b *Backend) violate(c *call, format string, args ...any) {
	what := []string{c.Method, c.Name, c.Node}
	if c.Name == "" {
		what[1] = c.Volume
	}
	what = slices.DeleteFunc(what, func(w string) bool { return w == "" })
	b.violations = append(b.violations,
		fmt.Sprintf("call %d, %s: %s", c.Seq, strings.Join(what, " "), fmt.Sprintf(format, args...)))
}
