// Package conformance_test runs csi-sanity, the field's own check of CSI
// drivers, against a running local driver: once with volumes that are
// directories, once with volumes that are images. It is a folder of its own
// because ginkgo takes the whole test program for one suite.
//
// Invariant: what csi-sanity skips is listed here with its reason, and a skip
// that is not listed fails the test.
package conformance_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	"github.com/onsi/gomega"
	"google.golang.org/grpc"

	"github.com/berth-dev/berth/internal/localdriver"
)

// skips lists what csi-sanity says when it leaves specs out, and why that is
// right for this driver.
func skips() map[string]string {
	const later = "not built yet"
	return map[string]string{
		"ControllerPublishVolume not supported":             "a local disk is not attached by anybody",
		"ControllerUnpublishVolume not supported":           "as above",
		"Controller Publish, UnpublishVolume not supported": "as above",
		"Snapshot not supported":                            later,
		"CreateSnapshot not supported":                      later,
		"DeleteSnapshot not supported":                      later,
		"ListSnapshots not supported":                       later,
		"Volume Cloning not supported":                      later,
		"ControllerExpandVolume not supported":              later,
		"NodeExpandVolume not supported":                    later,
		"Modify volume not supported":                       "volumes have no mutable parameters",
		"Modify Volume not supported":                       "as above",
		"ControllerModifyVolume not supported":              "as above",
		"GroupControllerService not supported":              "there are no groups of volumes",
		"capacity of the volume is unknown":                 "a directory has no capacity; images run the same spec",
	}
}

func TestSanity(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "ld") // short, for the socket's sake
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	endpoint := serve(t, dir)
	for volumes, size := range map[string]int64{"directory": 0, "image": 64 << 20} {
		cfg := sanity.NewTestConfig()
		cfg.Address = endpoint
		cfg.TargetPath = filepath.Join(dir, volumes, "target")
		cfg.StagingPath = filepath.Join(dir, volumes, "staging")
		cfg.TestVolumeSize = size
		cfg.DialOptions = append(cfg.DialOptions, grpc.WithUnaryInterceptor(patient))
		if err := os.Mkdir(filepath.Join(dir, volumes), 0o755); err != nil {
			t.Fatal(err)
		}
		ginkgo.Describe(volumes, func() { sanity.GinkgoTest(&cfg) })
	}
	passed, skipped := 0, map[string]int{}
	ginkgo.ReportAfterSuite("skipped", func(report ginkgo.Report) {
		for _, spec := range report.SpecReports {
			if spec.State == types.SpecStatePassed {
				passed++
			}
			if spec.State == types.SpecStateSkipped {
				skipped[spec.Failure.Message]++
			}
		}
	})
	gomega.RegisterFailHandler(ginkgo.Fail)
	ginkgo.RunSpecs(t, "csi-sanity")
	want := slices.Sorted(maps.Keys(skips()))
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(skipped))); diff != "" {
		t.Errorf("reasons to skip a spec (-want +got):\n%s", diff)
	}
	if passed == 0 {
		t.Error("no spec ran")
	}
	t.Logf("%d passed, skipped: %v", passed, skipped)
}

// serve runs a driver until the test is over.
func serve(t *testing.T, dir string) (endpoint string) {
	t.Helper()
	socket := filepath.Join(dir, "csi.sock")
	d, err := localdriver.New(localdriver.Config{
		Root: filepath.Join(dir, "root"), Endpoint: "unix://" + socket, NodeID: "node-1", Version: "1.0.0",
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
		for _, sub := range []string{"records", "volumes"} {
			left, err := os.ReadDir(filepath.Join(dir, "root", sub))
			if err != nil || len(left) > 0 {
				t.Errorf("left behind in %s: %v (%v)", sub, left, err)
			}
		}
	})
	if err := await(socket); err != nil {
		t.Fatal(err)
	}
	return "unix://" + socket
}

// patient repeats a call while a device is held from another mount namespace:
// containers that other programs start on this machine have copies of all
// mounts until they have changed their root.
func patient(ctx context.Context, method string, request, response any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	for {
		err := invoke(ctx, method, request, response, conn, options...)
		if err == nil || !strings.Contains(err.Error(), "mount namespace") {
			return err
		}
	}
}

// await waits until somebody listens.
func await(socket string) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	timeout := time.NewTimer(10 * time.Second)
	defer timeout.Stop()
	for {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-tick.C:
		case <-timeout.C:
			return fmt.Errorf("wait for %s: %w", socket, err)
		}
	}
}
