package csi

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/berth-dev/berth/api"
)

// Config is what a client may be told. The zero value is good.
type Config struct {
	// ConnectTimeout bounds one try to connect, one second if 0. It is the only
	// deadline that the client sets.
	ConnectTimeout time.Duration
	// Called is told of every call when it has ended; nil for nobody.
	Called func(method, code string, took time.Duration)
	// MaxMessage bounds an answer in bytes, 16 MiB if 0.
	MaxMessage int
}

// Client calls one driver. It is safe for concurrent use.
type Client struct {
	link   *link
	log    *slog.Logger
	called func(method, code string, took time.Duration)
	// The driver tells SINGLE_NODE_SINGLE_WRITER from SINGLE_NODE_MULTI_WRITER.
	controllerMultiWriter bool
	nodeMultiWriter       bool
	// secrets go with every call that takes some.
	secrets map[string]string
}

// New makes a client that connects on its first call, and again after the
// driver was away.
func New(dial Dialer, config Config, log *slog.Logger) *Client {
	return &Client{
		link: &link{
			dial:       dial,
			timeout:    cmp.Or(config.ConnectTimeout, time.Second),
			maxMessage: cmp.Or(config.MaxMessage, 16<<20),
			leaving:    make(map[*session]bool),
		},
		log: log, called: config.Called,
	}
}

// WithCapabilities is the client of a driver that has these controller and
// node capabilities, on the same connection: closing one closes both. Without
// SINGLE_NODE_MULTI_WRITER a driver knows neither single-node-single-writer nor
// single-node-multi-writer, and hears SINGLE_NODE_WRITER for both.
func (c *Client) WithCapabilities(controller, node []string) *Client {
	told := *c
	told.controllerMultiWriter = slices.Contains(controller, api.CapSingleNodeMultiWrite)
	told.nodeMultiWriter = slices.Contains(node, api.CapSingleNodeMultiWrite)
	return &told
}

// WithSecrets is the client of a volume with these secrets, on the same
// connection. They go with the calls that take secrets (CSI spec, Secrets
// Requirements), and no error of a call repeats one.
func (c *Client) WithSecrets(secrets map[string]string) *Client {
	told := *c
	told.secrets = secrets
	return &told
}

// Drain takes no more calls, and returns when those in progress have ended, or
// ctx.
func (c *Client) Drain(ctx context.Context) { c.link.drain(ctx) }

// Close ends the connection and every call in progress. No goroutine is left.
func (c *Client) Close() error { return c.link.close() }

// invoke makes one call. fullMethod is gRPC's name of it.
func (c *Client) invoke(ctx context.Context, fullMethod string, request, response proto.Message) error {
	start := time.Now()
	method := path.Base(fullMethod)
	err := c.send(ctx, fullMethod, request, response)
	if c.called != nil {
		c.called(method, CodeOf(err), time.Since(start))
	}
	c.log.DebugContext(ctx, "called driver", "method", method, "code", CodeOf(err),
		"duration", time.Since(start), "request", loggable{request})
	return err
}

func (c *Client) send(ctx context.Context, fullMethod string, request, response proto.Message) error {
	method := path.Base(fullMethod)
	s, err := c.link.acquire(ctx)
	if err != nil {
		return unsent(ctx, method, err)
	}
	defer c.link.release(s)
	err = s.conn.Invoke(ctx, fullMethod, request, response)
	switch {
	case err == nil:
		return nil
	case status.Code(err) == codes.Canceled && ctx.Err() == nil && c.link.isClosed():
		return &Error{Method: method, Code: CodeUnavailable, Message: errClosed.Error()}
	case status.Code(err) == codes.Unavailable:
		c.link.distrust(s)
	}
	return answered(method, c.unsaid(err))
}

// unsaid is a driver's error without the secrets that it may have repeated.
func (c *Client) unsaid(err error) error {
	if len(c.secrets) == 0 {
		return err
	}
	// The longest first: one may be a part of another.
	values := slices.SortedFunc(maps.Values(c.secrets), func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	s := status.Convert(err)
	message := s.Message()
	for _, v := range values {
		quoted := strconv.Quote(v)
		for _, form := range []string{v, quoted[1 : len(quoted)-1], strings.TrimSpace(v)} {
			if form != "" {
				message = strings.ReplaceAll(message, form, "(secret)")
			}
		}
	}
	return status.Error(s.Code(), message)
}

// loggable is a request without what must not be logged: secrets, and mount
// flags, which may hold passwords (CSI spec, MountVolume).
type loggable struct{ request proto.Message }

// LogValue is computed only if the record is written.
func (l loggable) LogValue() slog.Value {
	safe := proto.Clone(l.request)
	strip(safe.ProtoReflect())
	return slog.StringValue(protojson.MarshalOptions{UseProtoNames: true}.Format(safe))
}

func strip(m protoreflect.Message) {
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		secret, _ := proto.GetExtension(field.Options(), csi.E_CsiSecret).(bool)
		switch {
		case secret, field.Name() == "secrets", field.Name() == "mount_flags":
			m.Clear(field)
		case field.IsList() && field.Message() != nil:
			for i := range value.List().Len() {
				strip(value.List().Get(i).Message())
			}
		case field.Message() != nil && !field.IsMap():
			strip(value.Message())
		}
		return true
	})
}
