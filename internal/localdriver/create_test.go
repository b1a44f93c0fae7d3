package localdriver_test

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-dev/berth/internal/localdriver/filesystem"
	"github.com/berth-dev/berth/internal/localdriver/record"
)

const (
	mib = 1 << 20
	gib = 1 << 30
)

func TestCreate_RefusesWhatItCannotDo(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	elsewhere := &csi.Topology{Segments: map[string]string{"local.berth.dev/node": "db-2"}}
	for name, c := range map[string]struct {
		change func(*csi.CreateVolumeRequest)
		want   codes.Code
		says   string
	}{
		"NoName":           {func(q *csi.CreateVolumeRequest) { q.Name = "" }, codes.InvalidArgument, "name"},
		"NameTooLong":      {func(q *csi.CreateVolumeRequest) { q.Name = strings.Repeat("n", 129) }, codes.InvalidArgument, "129"},
		"NameWithControl":  {func(q *csi.CreateVolumeRequest) { q.Name = "a\x00b" }, codes.InvalidArgument, "U+0000"},
		"NameWithC1":       {func(q *csi.CreateVolumeRequest) { q.Name = "a\u0085b" }, codes.InvalidArgument, "U+0085"},
		"NoCapabilities":   {func(q *csi.CreateVolumeRequest) { q.VolumeCapabilities = nil }, codes.InvalidArgument, "volume_capabilities"},
		"NilCapability":    {capabilities(nil), codes.InvalidArgument, "access_mode"},
		"NoMode":           {capabilities(capability(csi.VolumeCapability_AccessMode_UNKNOWN, "")), codes.InvalidArgument, "access_mode"},
		"UnknownMode":      {capabilities(capability(99, "")), codes.InvalidArgument, "99"},
		"ManyNodesRead":    {capabilities(capability(csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY, "")), codes.InvalidArgument, "one node"},
		"ManyNodesWrite":   {capabilities(capability(csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER, "")), codes.InvalidArgument, "one node"},
		"OneBadOfTwo":      {capabilities(capability(writer, ""), capability(csi.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER, "")), codes.InvalidArgument, "one node"},
		"NoAccessType":     {capabilities(&csi.VolumeCapability{AccessMode: capability(writer, "").GetAccessMode()}), codes.InvalidArgument, "access_type"},
		"BlockAndMount":    {capabilities(block(), capability(writer, "")), codes.InvalidArgument, "either"},
		"NamedGroup":       {capabilities(mountGroup("staff")), codes.InvalidArgument, "volume_mount_group"},
		"StrangeFS":        {capabilities(capability(writer, "ntfs")), codes.InvalidArgument, "ext4"},
		"TwoFS":            {capabilities(capability(writer, "ext4"), capability(multiWriter, "xfs")), codes.InvalidArgument, "both"},
		"BindFlag":         {capabilities(capability(writer, "ext4", "bind")), codes.InvalidArgument, "bind"},
		"DirectoryWithFS":  {directoryWith(capability(writer, "ext4")), codes.InvalidArgument, "capacity"},
		"DirectoryOption":  {directoryWith(capability(writer, "", "discard")), codes.InvalidArgument, "discard"},
		"Parameters":       {func(q *csi.CreateVolumeRequest) { q.Parameters = map[string]string{"z": "1", "a": "2"} }, codes.InvalidArgument, "a, z"},
		"StrangeKind":      {parameters("kind", "tape"), codes.InvalidArgument, "directory image subvolume"},
		"StrangeFSType":    {parameters("fs_type", "ntfs"), codes.InvalidArgument, "ext4 xfs btrfs"},
		"TwoFSTypes":       {parameters("fs_type", "xfs"), codes.InvalidArgument, "a capability wants ext4"},
		"SizedDirectory":   {parameters("kind", "directory"), codes.InvalidArgument, "no capacity"},
		"DirectoryFSType":  {parameters("kind", "directory", "fs_type", "xfs"), codes.InvalidArgument, "fs_type"},
		"NoSubvolumes":     {parameters("kind", "subvolume"), codes.InvalidArgument, "btrfs"},
		"NoSuchVolume":     {source(&record.Source{Volume: missing()}), codes.NotFound, missing()},
		"NoSuchSnapshot":   {source(&record.Source{Snapshot: missing()}), codes.NotFound, missing()},
		"SourceWithoutID":  {source(&record.Source{}), codes.InvalidArgument, "volume_id"},
		"MutableParameter": {func(q *csi.CreateVolumeRequest) { q.MutableParameters = map[string]string{"a": "2"} }, codes.InvalidArgument, "mutable_parameters"},
		"Source":           {func(q *csi.CreateVolumeRequest) { q.VolumeContentSource = &csi.VolumeContentSource{} }, codes.InvalidArgument, "volume_content_source"},
		"NegativeSize":     {capacity(-1, 0), codes.InvalidArgument, "negative"},
		"NegativeLimit":    {capacity(0, -1), codes.InvalidArgument, "negative"},
		"LimitTooLow":      {capacity(20*mib, 10*mib), codes.InvalidArgument, "limit"},
		"Ext4TooSmall":     {capacity(mib, mib), codes.OutOfRange, "ext4"},
		"NoWholeSector":    {capacity(16*mib+1, 16*mib+1), codes.OutOfRange, "512"},
		"NoFileIsThatBig":  {capacity(math.MaxInt64, 0), codes.OutOfRange, "file"},
		"DiskTooSmall":     {capacity(1<<60, 0), codes.ResourceExhausted, nodeID},
		"OtherNode":        {requisite(elsewhere), codes.ResourceExhausted, nodeID},
		"OtherKey":         {requisite(&csi.Topology{Segments: map[string]string{"zone": nodeID}}), codes.ResourceExhausted, nodeID},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := ext4.createRequest("refused " + name)
			c.change(q)
			_, err := r.CreateVolume(t.Context(), q)
			must(t, "create", err, c.want)
			has(t, err, c.says)
		})
	}
	t.Cleanup(func() {
		if files := r.files(); len(files) > 0 {
			t.Errorf("refused volumes left %v", files)
		}
	})
}

func capabilities(list ...*csi.VolumeCapability) func(*csi.CreateVolumeRequest) {
	return func(q *csi.CreateVolumeRequest) { q.VolumeCapabilities = list }
}

func parameters(pairs ...string) func(*csi.CreateVolumeRequest) {
	return func(q *csi.CreateVolumeRequest) {
		q.Parameters = map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			q.Parameters[pairs[i]] = pairs[i+1]
		}
	}
}

func source(s *record.Source) func(*csi.CreateVolumeRequest) {
	return func(q *csi.CreateVolumeRequest) { q.VolumeContentSource = contentOf(s) }
}

func contentOf(s *record.Source) *csi.VolumeContentSource {
	if s.Snapshot != "" {
		return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
			Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: s.Snapshot},
		}}
	}
	return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{
		Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: s.Volume},
	}}
}

func directoryWith(c *csi.VolumeCapability) func(*csi.CreateVolumeRequest) {
	return func(q *csi.CreateVolumeRequest) {
		q.VolumeCapabilities = []*csi.VolumeCapability{c}
		q.CapacityRange = nil
	}
}

func capacity(required, limit int64) func(*csi.CreateVolumeRequest) {
	return func(q *csi.CreateVolumeRequest) {
		q.CapacityRange = &csi.CapacityRange{RequiredBytes: required, LimitBytes: limit}
	}
}

func requisite(list ...*csi.Topology) func(*csi.CreateVolumeRequest) {
	return func(q *csi.CreateVolumeRequest) {
		q.AccessibilityRequirements = &csi.TopologyRequirement{Requisite: list, Preferred: list[:1]}
	}
}

func block() *csi.VolumeCapability {
	c := capability(writer, "")
	c.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
	return c
}

func mountGroup(group string) *csi.VolumeCapability {
	c := capability(writer, "")
	c.GetMount().VolumeMountGroup = group
	return c
}

func TestCreate_ReportsTheCapacityThatItMade(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	for name, c := range map[string]struct {
		fsType          string
		required, limit int64
		want            int64
	}{
		"Exact":         {"ext4", 16 * mib, 16 * mib, 16 * mib},
		"Decimal":       {"ext4", 1e9, 1e9, 1e9},
		"WholeSectors":  {"ext4", 16*mib + 1, 0, 16*mib + 512},
		"Ext4Smallest":  {"ext4", 1, 0, 4 * mib},
		"XFSSmallest":   {"xfs", 1, gib, 300 * mib},
		"DefaultIsExt4": {"", 1, 0, 4 * mib},
		"LimitOnly":     {"ext4", 0, 20*mib + 1, 20 * mib},
		"HighLimitOnly": {"ext4", 0, 1 << 60, gib},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := kind{size: 1, fsType: c.fsType}
			q := k.createRequest("capacity " + name)
			capacity(c.required, c.limit)(q)
			response, err := r.CreateVolume(t.Context(), q)
			must(t, "create", err, codes.OK)
			if got := response.GetVolume().GetCapacityBytes(); got != c.want {
				t.Errorf("capacity %d, want %d", got, c.want)
			}
		})
	}
}

func TestCreate_XFSBelowItsSmallestSizeIsOutOfRange(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	q := xfs.createRequest("pg")
	capacity(100*mib, 200*mib)(q)
	_, err := r.CreateVolume(t.Context(), q)
	must(t, "create", err, codes.OutOfRange)
	has(t, err, "xfs", "314572800")
}

func TestCreate_SameNameFindsTheSameVolume(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	here := &csi.Topology{Segments: map[string]string{"LOCAL.berth.dev/node": nodeID}}
	elsewhere := &csi.Topology{Segments: map[string]string{"local.berth.dev/node": "db-2"}}
	first := map[string]string{}
	for _, k := range kinds() {
		first[k.name] = r.create(k, k.name)
	}
	if first["ext4"] == first["xfs"] || first["ext4"] == first["directory"] {
		t.Fatalf("different names, one volume: %v", first)
	}
	for name, c := range map[string]struct {
		of     kind
		change func(*csi.CreateVolumeRequest)
		want   codes.Code
	}{
		"Unchanged":             {ext4, func(*csi.CreateVolumeRequest) {}, codes.OK},
		"NoCapacity":            {ext4, directoryWith(capability(writer, "")), codes.OK},
		"NoFSType":              {xfs, capabilities(capability(multiWriter, "")), codes.OK},
		"SmallerIsEnough":       {ext4, capacity(mib, 16*mib), codes.OK},
		"HereAmongOthers":       {ext4, requisite(elsewhere, here), codes.OK},
		"PreferredElsewhere":    {ext4, preferred(elsewhere), codes.OK},
		"Larger":                {ext4, capacity(17*mib, 0), codes.AlreadyExists},
		"LimitBelow":            {ext4, capacity(mib, 15*mib), codes.AlreadyExists},
		"OtherFSType":           {ext4, capabilities(capability(writer, "xfs")), codes.AlreadyExists},
		"Elsewhere":             {ext4, requisite(elsewhere), codes.AlreadyExists},
		"DirectoryGetsCapacity": {directory, capacity(mib, 0), codes.AlreadyExists},
		"Directory":             {directory, func(*csi.CreateVolumeRequest) {}, codes.OK},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := c.of.createRequest(c.of.name)
			c.change(q)
			response, err := r.CreateVolume(t.Context(), q)
			if status.Code(err) == codes.Aborted {
				waitFor(t, "the volume to be free", func() bool {
					response, err = r.CreateVolume(t.Context(), q)
					return status.Code(err) != codes.Aborted
				})
			}
			must(t, "create", err, c.want)
			if err == nil && response.GetVolume().GetVolumeId() != first[c.of.name] {
				t.Errorf("volume %s, want %s", response.GetVolume().GetVolumeId(), first[c.of.name])
			}
		})
	}
}

func preferred(list ...*csi.Topology) func(*csi.CreateVolumeRequest) {
	return func(q *csi.CreateVolumeRequest) {
		q.AccessibilityRequirements = &csi.TopologyRequirement{Preferred: list}
	}
}

func TestCreate_MissingProgramNamesItsPackage(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	d := r.driver()
	d.SetTools(filesystem.Tools{Dirs: []string{t.TempDir()}})
	r.run(d)
	_, err := r.CreateVolume(t.Context(), xfs.createRequest("pg"))
	must(t, "create", err, codes.FailedPrecondition)
	has(t, err, "blkid", "util-linux")
	if files := r.files(); len(files) > 0 {
		t.Errorf("left behind: %v", files)
	}
	r.create(directory, "needs no program")
}

func TestCreate_FailedOneLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, k := range kinds() {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			d := r.driver()
			first := true
			d.OnStep(func(step string) {
				if step == "create: recorded" && first {
					first = false
					write(t, r.obstacle(), "") // no directory can be made there
				}
			})
			r.run(d)
			_, err := r.CreateVolume(t.Context(), k.createRequest("pg"))
			must(t, "create", err, codes.Internal)
			if files := r.files(); len(files) > 0 {
				t.Errorf("left behind: %v", files)
			}
			must(t, "delete", r.remove(r.create(k, "pg")), codes.OK)
		})
	}
}

func TestCreate_DataWithoutARecordIsLeftAlone(t *testing.T) {
	t.Parallel()
	for _, k := range []kind{directory, ext4} {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			stop := r.start()
			content := r.content(r.create(k, "pg"), k)
			stop()
			if err := os.RemoveAll(filepath.Join(r.root, "records")); err != nil {
				t.Fatal(err)
			}
			r.start()
			_, err := r.CreateVolume(t.Context(), k.createRequest("pg"))
			must(t, "create", err, codes.FailedPrecondition)
			has(t, err, r.obstacle())
			if _, err := os.Lstat(content); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestCreate_RepeatedFinishesWhatTheStartCouldNot(t *testing.T) {
	t.Parallel()
	for _, k := range kinds() {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			l := newLife(newRig(t), k)
			l.untilKilled("create: recorded")
			write(t, l.r.obstacle(), "")
			l.r.start()
			waitFor(t, "the start to be done with the volume", func() bool {
				err := l.create()
				return status.Code(err) == codes.Internal
			})
			if err := os.Remove(l.r.obstacle()); err != nil {
				t.Fatal(err)
			}
			l.from(0)
		})
	}
}

// obstacle is the path of the directory of the volume pg.
func (r *rig) obstacle() string {
	return filepath.Join(r.root, "volumes", string(record.KeyOf("pg")))
}
