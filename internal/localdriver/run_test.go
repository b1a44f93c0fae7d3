package localdriver_test

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"

	"github.com/berth-dev/berth/internal/localdriver"
)

func TestRun_CleansUpAfterAKilledDriver(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.kill(r.spawn(""))
	if st, err := os.Lstat(r.sock); err != nil || st.Mode().Type() != fs.ModeSocket {
		t.Fatalf("the killed driver left no socket: %v", err)
	}
	stop := r.start()
	if _, err := r.Probe(t.Context(), &csi.ProbeRequest{}); err != nil {
		t.Error(err)
	}
	stop()
	if _, err := os.Lstat(r.sock); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("socket after Run: %v, want it gone", err)
	}
}

func TestRun_LeavesAloneWhatIsNotAStaleSocket(t *testing.T) {
	t.Parallel()
	for name, occupy := range map[string]func(t *testing.T, path string){
		"SocketOfAnother": func(t *testing.T, path string) {
			l, err := net.Listen("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
		},
		"File": func(t *testing.T, path string) { write(t, path, "precious") },
		"Directory": func(t *testing.T, path string) {
			if err := os.Mkdir(path, 0o755); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			occupy(t, r.sock)
			before, err := os.Lstat(r.sock)
			if err != nil {
				t.Fatal(err)
			}
			if err := r.driver().Run(t.Context()); err == nil {
				t.Error("the driver ran")
			}
			if after, err := os.Lstat(r.sock); err != nil || !os.SameFile(before, after) {
				t.Errorf("what was there is gone: %v", err)
			}
		})
	}
}

func TestRun_TwoDriversNeverShareARoot(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	stop := r.start()
	second, err := localdriver.New(config(r.root, r.path("second.sock")), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	err = second.Run(t.Context())
	if err == nil {
		t.Fatal("the second driver ran")
	}
	has(t, err, r.root, "another driver")
	stop()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := second.Run(ctx); err != nil {
		t.Errorf("the second driver after the first has ended: %v", err)
	}
}

func TestRun_RootIsForRootOnly(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	id := r.create(ext4, "pg")
	for path, want := range map[string]fs.FileMode{
		r.root:                           0o700,
		filepath.Join(r.root, "records"): 0o700,
		filepath.Join(r.root, "volumes"): 0o700,
		r.content(id, ext4):              0o600,
		r.sock:                           0o600,
	} {
		st, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := st.Mode().Perm(); got != want {
			t.Errorf("%s has mode %o, want %o", path, got, want)
		}
	}
}

func TestRun_ReturnsWhenTheLastCallHasEnded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	d := r.driver()
	reached, goOn := make(chan struct{}), make(chan struct{})
	d.OnStep(func(step string) {
		if step == "create: recorded" {
			close(reached)
			<-goOn
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	r.connect()
	created := make(chan error, 1)
	go func() {
		_, err := r.CreateVolume(t.Context(), directory.createRequest("pg"))
		created <- err
	}()
	<-reached
	cancel()
	waitFor(t, "the driver to stop listening", func() bool {
		_, err := os.Lstat(r.sock)
		return errors.Is(err, fs.ErrNotExist)
	})
	select {
	case err := <-ended:
		t.Errorf("Run returned (%v) while a call was running", err)
	default:
	}
	close(goOn)
	if err := <-created; err != nil {
		t.Errorf("the call that was running: %v", err)
	}
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
}

func TestRun_StopsInTheMiddleOfADeletionAndTakesItUpAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.killedDeleting(directory)
	d := r.driver()
	reached, goOn := make(chan struct{}), make(chan struct{})
	d.OnStep(func(step string) {
		if step == "delete: recorded" {
			close(reached)
			<-goOn
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	<-reached
	cancel()
	waitFor(t, "the driver to stop listening", func() bool {
		_, err := os.Lstat(r.sock)
		return errors.Is(err, fs.ErrNotExist)
	})
	select {
	case err := <-ended:
		t.Errorf("Run returned (%v) while it was deleting", err)
	default:
	}
	close(goOn)
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
	if len(r.files()) == 0 {
		t.Error("the deletion went on after the end")
	}
	r.start()
	waitFor(t, "the volume to be deleted", func() bool { return len(r.files()) == 0 })
}

func TestIdentity_TellsWhoItIs(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	info, err := r.GetPluginInfo(t.Context(), &csi.GetPluginInfoRequest{})
	must(t, "GetPluginInfo", err, codes.OK)
	if info.GetName() != localdriver.DefaultName || info.GetVendorVersion() != "1.2.3" {
		t.Errorf("plugin info %v", info)
	}
	node, err := r.NodeGetInfo(t.Context(), &csi.NodeGetInfoRequest{})
	must(t, "NodeGetInfo", err, codes.OK)
	if node.GetMaxVolumesPerNode() != 0 {
		t.Errorf("max volumes %d, and nobody has set a limit", node.GetMaxVolumesPerNode())
	}
	want := map[string]string{localdriver.TopologyKey: nodeID}
	if diff := cmp.Diff(want, node.GetAccessibleTopology().GetSegments()); diff != "" || node.GetNodeId() != nodeID {
		t.Errorf("node %q, topology (-want +got):\n%s", node.GetNodeId(), diff)
	}
	probe, err := r.Probe(t.Context(), &csi.ProbeRequest{})
	must(t, "Probe", err, codes.OK)
	if !probe.GetReady().GetValue() {
		t.Error("a driver that answers is not ready")
	}
}

func TestNodeGetInfo_TellsTheMostVolumes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	cfg := config(r.root, r.sock)
	cfg.MaxVolumes = 7
	d, err := localdriver.New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	r.run(d)
	node, err := r.NodeGetInfo(t.Context(), &csi.NodeGetInfoRequest{})
	must(t, "NodeGetInfo", err, codes.OK)
	if node.GetMaxVolumesPerNode() != 7 {
		t.Errorf("max volumes %d, want 7", node.GetMaxVolumesPerNode())
	}
}

func TestServices_WhatIsNotOfferedIsUnimplemented(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	ctx := t.Context()
	_, err := r.ControllerModifyVolume(ctx, &csi.ControllerModifyVolumeRequest{})
	must(t, "ControllerModifyVolume", err, codes.Unimplemented)
	_, err = r.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{})
	must(t, "ControllerPublishVolume", err, codes.Unimplemented)
}
