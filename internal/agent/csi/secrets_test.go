package csi_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/csi"
)

// passphrase is a secret with what quoting and trimming change.
const passphrase = "correct \"horse\"\tbattery "

// TestSecretsGoWithTheCallsThatTakeThem, and with no other (CSI spec, Secrets
// Requirements).
func TestSecretsGoWithTheCallsThatTakeThem(t *testing.T) {
	t.Parallel()
	plain, asked := recorder(t)
	c := plain.WithSecrets(map[string]string{"passphrase": passphrase})
	for name, test := range map[string]struct {
		into proto.Message
		call func(ctx context.Context, c *csi.Client) error
		want bool
	}{
		"CreateVolume": {&spec.CreateVolumeRequest{}, func(ctx context.Context, c *csi.Client) error {
			_, err := c.CreateVolume(ctx, api.CreateRequest{Name: "n"})
			return err
		}, true},
		"DeleteVolume": {&spec.DeleteVolumeRequest{}, func(ctx context.Context, c *csi.Client) error {
			return c.DeleteVolume(ctx, api.DeleteRequest{ExternalID: "v"})
		}, true},
		"ControllerPublishVolume": {&spec.ControllerPublishVolumeRequest{}, func(ctx context.Context, c *csi.Client) error {
			_, err := c.ControllerPublish(ctx, api.PublishRequest{ExternalID: "v", ExternalNodeID: "n", Capability: writer})
			return err
		}, true},
		"ControllerUnpublishVolume": {&spec.ControllerUnpublishVolumeRequest{}, func(ctx context.Context, c *csi.Client) error {
			return c.ControllerUnpublish(ctx, api.UnpublishRequest{ExternalID: "v", ExternalNodeID: "n"})
		}, true},
		"NodeStageVolume": {&spec.NodeStageVolumeRequest{}, func(ctx context.Context, c *csi.Client) error {
			return c.NodeStage(ctx, csi.StageRequest{ExternalID: "v", StagingPath: "/s", Capability: writer})
		}, true},
		"NodePublishVolume": {&spec.NodePublishVolumeRequest{}, func(ctx context.Context, c *csi.Client) error {
			return c.NodePublish(ctx, csi.PublishRequest{ExternalID: "v", TargetPath: "/t", Capability: writer})
		}, true},
		"NodeUnstageVolume": {&spec.NodeUnstageVolumeRequest{}, func(ctx context.Context, c *csi.Client) error {
			return c.NodeUnstage(ctx, csi.UnstageRequest{ExternalID: "v", StagingPath: "/s"})
		}, false},
		"NodeUnpublishVolume": {&spec.NodeUnpublishVolumeRequest{}, func(ctx context.Context, c *csi.Client) error {
			return c.NodeUnpublish(ctx, csi.UnpublishRequest{ExternalID: "v", TargetPath: "/t"})
		}, false},
	} {
		if err := test.call(t.Context(), c); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		request := asked(test.into)
		sent := proto.Clone(test.into)
		if err := protojson.Unmarshal([]byte(request), sent); err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		if with, ok := sent.(interface{ GetSecrets() map[string]string }); ok {
			got = with.GetSecrets()
		}
		if (got["passphrase"] == passphrase) != test.want || strings.Contains(request, "horse") != test.want {
			t.Errorf("%s: sent %s", name, request)
		}
		if err := test.call(t.Context(), plain); err != nil || strings.Contains(asked(test.into), "horse") {
			t.Errorf("%s: the client without secrets has them: %v", name, err)
		}
	}
}

// TestDriversDoNotGiveSecretsAway: what a driver repeats in an error goes to
// the state, to logs and to people.
func TestDriversDoNotGiveSecretsAway(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]string{
		"cannot open with " + passphrase + "!":                 "cannot open with (secret)!",
		`map[passphrase:"correct \"horse\"\tbattery "]`:        `map[passphrase:"(secret)"]`,
		"tried '" + strings.TrimSpace(passphrase) + "', admin": "tried '(secret)', (secret)",
		strings.Repeat("x", 4090) + passphrase:                 "xxx(",
		"nothing to hide":                                      "nothing to hide",
	} {
		var log bytes.Buffer
		c := csi.New(listen(t, func(context.Context, string, []byte) ([]byte, error) {
			return nil, status.Error(codes.Unauthenticated, said)
		}),
			patient(), slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
		t.Cleanup(func() { _ = c.Close() })
		c = c.WithSecrets(map[string]string{"passphrase": passphrase, "user": "admin", "empty": ""})
		err := c.NodeStage(t.Context(), csi.StageRequest{ExternalID: "v", StagingPath: "/s", Capability: writer})
		if err == nil || csi.CodeOf(err) != csi.CodeUnauthenticated {
			t.Fatalf("error %v", err)
		}
		got := err.Error()
		if strings.Contains(got, "horse") || strings.Contains(log.String(), "horse") || strings.Contains(log.String(), "admin") {
			t.Errorf("%q is given away: %s\n%s", said, got, log.String())
		}
		if !strings.Contains(got, want) {
			t.Errorf("got %s\nwant %s", got, want)
		}
	}
}
