package csitest_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	"github.com/onsi/gomega"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/berth-dev/berth/internal/agent/csi/csitest"
)

// TestSanity holds the driver against csi-sanity: with every capability, with
// none, and with controller and node as two processes. Ginkgo runs one suite in
// the life of a process, and therefore in one of its own.
func TestSanity(t *testing.T) {
	const child = "CSITEST_SANITY"
	if os.Getenv(child) != "" {
		runSanity(t)
		return
	}
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSanity$", "-test.count=1")
	cmd.Env = append(os.Environ(), child+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("csi-sanity: %v\n%s", err, out)
	}
}

// changeable is a driver with all capabilities, and volumes that can be changed.
func changeable() csitest.Options {
	o := csitest.Everything()
	o.Expand, o.NodeExpand, o.Modify = true, true, true
	return o
}

func runSanity(t *testing.T) {
	t.Helper()
	zone := map[string]string{"csitest.berth.dev/zone": "a"}
	backends := make(map[string]*csitest.Backend)
	for _, s := range []struct {
		name    string
		options csitest.Options
		nodes   []csitest.Node
	}{
		{"full", changeable(), []csitest.Node{{ID: "node-1", MaxVolumes: 3, Topology: zone}}},
		{"bare", csitest.Options{}, []csitest.Node{{ID: "node-1"}}},
		{"split", changeable(), []csitest.Node{
			{ID: "node-1", MaxVolumes: 3, Topology: zone, Role: csitest.NodeOnly},
			{ID: "controller-1", Role: csitest.ControllerOnly},
		}},
	} {
		dir := t.TempDir()
		config := sanity.NewTestConfig()
		config.TargetPath = filepath.Join(dir, "target")
		config.StagingPath = filepath.Join(dir, "staging")
		config.TestNodeVolumeAttachLimit = true
		config.TestVolumeMutableParameters = map[string]string{"iops": "3000"}

		backend := csitest.NewBackend(s.options)
		backends[s.name] = backend
		var conns []*grpc.ClientConn
		for _, n := range s.nodes {
			n.Mounter = csitest.KernelMounts(filepath.Join(dir, "data"))
			conns = append(conns, connect(t, backend.Node(n)))
		}
		ginkgo.Describe(s.name, func() {
			sc := sanity.GinkgoTest(&config)
			// Given connections, sanity makes none of its own. It could not if
			// the driver answered at once: it waits for a change of state that
			// has already been.
			sc.Conn, sc.ControllerConn = conns[0], conns[len(conns)-1]
		})
	}

	var got []string
	ginkgo.ReportAfterSuite("skips", func(report ginkgo.Report) { got = skips(report) })
	gomega.RegisterFailHandler(ginkgo.Fail)
	_, reporter := ginkgo.GinkgoConfiguration()
	reporter.Succinct, reporter.NoColor = true, true
	ginkgo.RunSpecs(t, "csi-sanity", reporter)

	if diff := cmp.Diff(wantSkips(), got); diff != "" {
		t.Errorf("what csi-sanity skipped (-want +got):\n%s", diff)
	}
	for name, b := range backends {
		if left := b.Volumes(); len(left) > 0 {
			t.Errorf("%s: left behind: %+v", name, left)
		}
	}
}

// wantSkips are sanity's reasons, and the configurations in which it gave them.
func wantSkips() []string {
	return []string{
		// It lists no snapshots, and makes no groups of them.
		"bare full split: GroupControllerService not supported",
		"bare full split: ListSnapshots not supported",
		// Without capabilities it neither attaches nor stages nor changes.
		"bare: Controller Publish, UnpublishVolume not supported",
		"bare: ControllerExpandVolume not supported",
		"bare: ControllerModifyVolume not supported",
		"bare: ControllerPublishVolume not supported",
		"bare: ControllerUnpublishVolume not supported",
		"bare: CreateSnapshot not supported",
		"bare: DeleteSnapshot not supported",
		"bare: Modify Volume not supported",
		"bare: Modify volume not supported",
		"bare: NodeExpandVolume not supported",
		"bare: NodeStageVolume not supported",
		"bare: NodeUnstageVolume not supported",
		"bare: Snapshot not supported",
		"bare: Volume Cloning not supported",
	}
}

// skips are the reasons for skipping, and where they were given.
func skips(report ginkgo.Report) []string {
	where := make(map[string][]string)
	for _, spec := range report.SpecReports {
		if spec.State != types.SpecStateSkipped {
			continue
		}
		config, reason := spec.ContainerHierarchyTexts[0], spec.Failure.Message
		if !slices.Contains(where[reason], config) {
			where[reason] = append(where[reason], config)
		}
	}
	var out []string
	for reason, configs := range where {
		slices.Sort(configs)
		out = append(out, strings.Join(configs, " ")+": "+reason)
	}
	slices.Sort(out)
	return out
}

// connect serves the driver in memory and connects to it.
func connect(t testing.TB, d *csitest.Driver) *grpc.ClientConn {
	t.Helper()
	d.Start(t)
	dial := d.Dialer()
	conn, err := grpc.NewClient("passthrough:///driver",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return dial(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}
