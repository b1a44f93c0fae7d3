package csi_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/csi"
)

func TestErrors_CarryTheSpecificationsNames(t *testing.T) {
	t.Parallel()
	want := []string{
		"CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
		"PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE",
		"UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED", "UNKNOWN",
	}
	constants := []string{
		csi.CodeCancelled, csi.CodeUnknown, csi.CodeInvalidArgument, csi.CodeDeadlineExceeded, csi.CodeNotFound,
		csi.CodeAlreadyExists, csi.CodePermissionDenied, csi.CodeResourceExhausted, csi.CodeFailedPrecondition,
		csi.CodeAborted, csi.CodeOutOfRange, csi.CodeUnimplemented, csi.CodeInternal, csi.CodeUnavailable,
		csi.CodeDataLoss, csi.CodeUnauthenticated, csi.CodeUnknown,
	}
	if diff := cmp.Diff(want, constants); diff != "" {
		t.Errorf("constants (-want +got):\n%s", diff)
	}
	var next codes.Code
	c := serve(t, func(context.Context, string, []byte) ([]byte, error) { return nil, status.Error(next, "words") })
	for i, name := range want {
		next = codes.Code(i + 1)
		if i == len(want)-1 {
			next = 99
		}
		err := c.NodeUnstage(t.Context(), csi.UnstageRequest{})
		wantError(t, err, csi.Error{Method: "NodeUnstageVolume", Code: name, Message: "words"})
	}
}

func TestErrors_UnknownServiceIsUnimplemented(t *testing.T) {
	t.Parallel()
	c := serve(t, func(_ context.Context, method string, _ []byte) ([]byte, error) {
		return nil, status.Error(codes.Unimplemented, "unknown service csi.v1.Controller for "+method)
	})
	_, err := c.ControllerCapabilities(t.Context())
	wantError(t, err, csi.Error{Method: "ControllerGetCapabilities", Code: csi.CodeUnimplemented, Message: "unknown service"})
}

func TestErrors_MessagesAreMadeFitForPeople(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ said, want string }{
		"Controls": {"\x1b[31mred\x00\r\n\tmore\u009b ", "[31mred\n\tmore"},
		"Long":     {strings.Repeat("ü", 5000), strings.Repeat("ü", 2046) + "…"},
		"Empty":    {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := serve(t, func(context.Context, string, []byte) ([]byte, error) {
				return nil, status.Error(codes.Internal, test.said)
			})
			err := c.NodeUnpublish(t.Context(), csi.UnpublishRequest{})
			got, _ := strings.CutPrefix(err.Error(), "NodeUnpublishVolume: INTERNAL")
			got, _ = strings.CutPrefix(got, ": ")
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("message (-want +got):\n%s", diff)
			}
			if len(got) > 4<<10 || !utf8.ValidString(got) {
				t.Errorf("message has %d bytes, valid UTF-8: %v", len(got), utf8.ValidString(got))
			}
		})
	}
}

func TestErrors_MessagesAreValidUTF8(t *testing.T) {
	t.Parallel()
	c := newClient(t, func(context.Context) (net.Conn, error) { return nil, errors.New("no \xff\xfe disk") }, csi.Config{})
	_, err := c.Probe(t.Context())
	if got, want := err.Error(), "Probe: UNAVAILABLE: connect to the driver: no � disk"; got != want {
		t.Errorf("error = %q, want %q", got, want)
	}
}

func TestCodeOf_OtherErrors(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		csi.CodeDeadlineExceeded: context.DeadlineExceeded,
		csi.CodeCancelled:        context.Canceled,
		csi.CodeUnknown:          bytes.ErrTooLarge,
		csi.CodeOK:               nil,
	} {
		if got := csi.CodeOf(err); got != want {
			t.Errorf("CodeOf(%v) = %s, want %s", err, got, want)
		}
	}
}

func TestLog_HasNoSecrets(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	log := slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug}))
	c := csi.New(listen(t, always(t, nil)), patient(), log)
	defer func() { _ = c.Close() }()
	err := c.NodePublish(t.Context(), csi.PublishRequest{
		ExternalID: "vol-7", TargetPath: "/t", Capability: writer,
		MountOptions: &api.MountOptions{FSType: "cifs", MountFlags: []string{"password=hunter2"}},
	})
	_, err2 := c.CreateVolume(t.Context(), api.CreateRequest{
		Name: "vol-8", Capabilities: []api.Capability{writer},
		MountOptions: &api.MountOptions{MountFlags: []string{"password=hunter2"}},
	})
	if err != nil || csi.CodeOf(err2) != csi.CodeInternal {
		t.Errorf("errors = %v, %v", err, err2)
	}
	if strings.Contains(text.String(), "hunter2") {
		t.Errorf("the log shows a mount flag:\n%s", &text)
	}
	for _, want := range []string{"method=NodePublishVolume", "code=OK", "vol-7", "cifs", "method=CreateVolume", "vol-8"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, &text)
		}
	}
}

func ExampleCodeOf() {
	err := fmt.Errorf("stage volume pg: %w", &csi.Error{Method: "NodeStageVolume", Code: csi.CodeNotFound, Message: "no such device"})
	fmt.Println(csi.CodeOf(err))
	fmt.Println(csi.CodeOf(nil))
	fmt.Println(err)
	// Output:
	// NOT_FOUND
	// OK
	// stage volume pg: NodeStageVolume: NOT_FOUND: no such device
}
