package api_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
)

// jobSpec is a spec without a fault.
func jobSpec() api.JobSpec {
	return api.JobSpec{Type: api.JobService, Groups: []api.TaskGroup{{
		Name: "main", Count: 1,
		Volumes: []api.VolumeRequest{{
			Name: "data", Type: api.VolumeTypeCSI, Source: "pg",
			AccessMode: api.SingleNodeWriter, AttachmentMode: api.FileSystem,
		}},
		Tasks: []api.Task{{
			Name: "db", Driver: "exec", Env: map[string]string{"PGPORT": "5432"},
			VolumeMounts: []api.VolumeMount{{Volume: "data", Destination: "/data"}},
			KillSignal:   "SIGTERM", KillTimeout: api.Duration(time.Minute),
		}},
	}}}
}

const nameRule = "; use 1 to 63 letters, digits, dots, dashes or underscores, the first a letter or digit"

func TestJobSpecValidate(t *testing.T) {
	t.Parallel()
	group := func(change func(*api.TaskGroup)) func(*api.JobSpec) {
		return func(s *api.JobSpec) { change(&s.Groups[0]) }
	}
	request := func(change func(*api.VolumeRequest)) func(*api.JobSpec) {
		return group(func(g *api.TaskGroup) { change(&g.Volumes[0]) })
	}
	task := func(change func(*api.Task)) func(*api.JobSpec) {
		return group(func(g *api.TaskGroup) { change(&g.Tasks[0]) })
	}
	mounts := func(destinations ...string) func(*api.JobSpec) {
		return task(func(k *api.Task) {
			k.VolumeMounts = nil
			for _, d := range destinations {
				k.VolumeMounts = append(k.VolumeMounts, api.VolumeMount{Volume: "data", Destination: d})
			}
		})
	}
	const g, r, k = `group["main"]`, `group["main"].volume["data"]`, `group["main"].task["db"]`
	for name, tc := range map[string]struct {
		spoil func(*api.JobSpec)
		want  []string
	}{
		"Whole":              {func(*api.JobSpec) {}, nil},
		"Batch":              {func(s *api.JobSpec) { s.Type = api.JobBatch }, nil},
		"CountZero":          {group(func(g *api.TaskGroup) { g.Count = 0 }), nil},
		"ManyReaders":        {request(func(r *api.VolumeRequest) { r.AccessMode, r.ReadOnly = api.MultiNodeReaderOnly, true }), nil},
		"DestinationsBeside": {mounts("/data", "/data/sub", "/data-2", "/..data", "/a.b/"), nil},
		"TypeMissing":        {func(s *api.JobSpec) { s.Type = "" }, []string{`type is ""; use one of service, batch, system, sysbatch`}},
		"NoGroup":            {func(s *api.JobSpec) { s.Groups = nil }, []string{`group is missing; add group "name" { task "name" { ... } }`}},
		"GroupTwice": {func(s *api.JobSpec) { s.Groups = append(s.Groups, s.Groups[0]) }, []string{
			g + " is there twice; rename one",
		}},
		"GroupName": {group(func(g *api.TaskGroup) { g.Name = "-main" }), []string{
			`group["-main"] begins with "-"` + nameRule,
		}},
		"CountNegative": {group(func(g *api.TaskGroup) { g.Count = -1 }), []string{g + ".count is negative; use 0 or more"}},
		"CountTooLarge": {group(func(g *api.TaskGroup) { g.Count, g.Volumes, g.Tasks[0].VolumeMounts = 1e9, nil, nil }), []string{
			g + ".count is 1000000000, and a group may have 10000; divide the group into several",
		}},
		"NoTask": {group(func(g *api.TaskGroup) { g.Tasks = nil }), []string{
			g + `.task is missing; add task "name" { driver = "exec" ... }`,
		}},
		"TaskTwice": {group(func(g *api.TaskGroup) { g.Tasks = append(g.Tasks, g.Tasks[0]) }), []string{k + " is there twice; rename one"}},
		"VolumeTwice": {group(func(g *api.TaskGroup) { g.Volumes = append(g.Volumes, g.Volumes[0]) }), []string{
			r + " is there twice; rename one",
		}},
		"VolumeEmpty": {group(func(g *api.TaskGroup) {
			g.Volumes, g.Tasks[0].VolumeMounts = []api.VolumeRequest{{}}, nil
		}), []string{
			`group["main"].volume[""] is empty` + nameRule,
			`group["main"].volume[""].type is ""; use one of csi, host`,
			`group["main"].volume[""].source is missing; add source = "...", or ephemeral { plugin_id = "..." } for a new volume of each allocation`,
			`group["main"].volume[""].access_mode is missing; add access_mode = "single-node-writer"`,
			`group["main"].volume[""].attachment_mode is missing; add attachment_mode = "file-system"`,
		}},
		"ReaderModeWrites": {request(func(r *api.VolumeRequest) { r.AccessMode = api.SingleNodeReaderOnly }), []string{
			r + ".read_only must be true with access mode single-node-reader-only; set read_only = true",
		}},
		"BlockDeviceWithOptions": {request(func(r *api.VolumeRequest) {
			r.AttachmentMode, r.MountOptions = api.BlockDevice, &api.MountOptions{FSType: "ext4"}
		}), []string{r + ".mount_options make no sense for a block device; remove them"}},
		"TwoWriters": {group(func(g *api.TaskGroup) { g.Count = 2 }), []string{
			r + " would be held by 2 allocations, and access mode single-node-writer allows one; use count = 1, per_alloc = true for a volume each, or an access mode for several",
		}},
		"ReadersOfAVolumeForOne": {group(func(g *api.TaskGroup) {
			g.Count, g.Volumes[0].ReadOnly, g.Tasks[0].VolumeMounts[0].ReadOnly = 2, true, true
		}), []string{
			r + " would be held by 2 allocations, and access mode single-node-writer allows one; use count = 1, per_alloc = true for a volume each, or an access mode for several",
		}},
		"VolumeForOneIsAskedForTwice": {group(func(g *api.TaskGroup) {
			again := g.Volumes[0]
			again.Name, again.AccessMode = "again", api.SingleNodeMultiWriter
			g.Volumes = append(g.Volumes, again)
		}), []string{
			`group["main"].volume["again"].source is "pg", as that of volume "data": an allocation would mount the volume at two target paths, and with access mode single-node-writer a plugin may refuse the second (CSI spec, NodePublishVolume); ` + oneBlock,
		}},
		"OneAllocationTwice": {twice("single-node-single-writer", "single-node-single-writer", nil), []string{
			`group["main"].volume["again"].source is "pg", as that of volume "data": an allocation would mount the volume at two target paths, and with access mode single-node-single-writer a plugin may refuse the second (CSI spec, NodePublishVolume); ` + oneBlock,
		}},
		"OneAllocationTwiceAsWriters":    {twice(api.SingleNodeMultiWriter, api.SingleNodeMultiWriter, nil), nil},
		"OneAllocationTwiceForManyNodes": {twice(api.MultiNodeMultiWriter, api.SingleNodeMultiWriter, nil), nil},
		"OneAllocationTwiceAsReader":     {twice(api.MultiNodeSingleWriter, api.MultiNodeSingleWriter, func(r *api.VolumeRequest) { r.ReadOnly = true }), nil},
		"OneAllocationTwiceAsTwoWriters": {twice(api.MultiNodeSingleWriter, api.MultiNodeMultiWriter, nil), []string{
			`group["main"].volume["again"].read_only is false, and volume "data" writes to the same volume too, whose access mode allows one writer; set read_only = true in one of them`,
		}},
		"OneAllocationTwiceInReadersMode": {twice(api.MultiNodeMultiWriter, api.MultiNodeReaderOnly, func(r *api.VolumeRequest) { r.ReadOnly = true }), []string{
			`group["main"].volume["again"].access_mode is multi-node-reader-only, and volume "data" has the same volume with multi-node-multi-writer: one of them is for readers only; use the same in both`,
		}},
		"OneAllocationTwiceAsDevice": {twice(api.MultiNodeMultiWriter, api.MultiNodeMultiWriter, func(r *api.VolumeRequest) { r.AttachmentMode, r.MountOptions = api.BlockDevice, nil }), []string{
			`group["main"].volume["again"].attachment_mode is block-device, and volume "data" mounts the same volume as a file-system; use the same in both`,
		}},
		"EachItsOwn": {group(func(g *api.TaskGroup) { g.Count, g.Volumes[0].PerAlloc = 3, true }), nil},
		"EachItsOwnAndOneOfThem": {twice(api.SingleNodeWriter, api.SingleNodeWriter, func(r *api.VolumeRequest) { r.Source, r.PerAlloc = "pg[1]", false }, func(g *api.TaskGroup) {
			g.Count, g.Volumes[0].PerAlloc = 2, true
		}), []string{
			`group["main"].volume["again"] would be held by 2 allocations, and access mode single-node-writer allows one; use count = 1, per_alloc = true for a volume each, or an access mode for several`,
			`group["main"].volume["again"].source is "pg[1]", as that of volume "data": an allocation would mount the volume at two target paths, and with access mode single-node-writer a plugin may refuse the second (CSI spec, NodePublishVolume); ` + oneBlock,
		}},
		"EachItsOwnAndAnother": {twice(api.SingleNodeWriter, api.SingleNodeWriter, func(r *api.VolumeRequest) { r.Source, r.PerAlloc = "pg[7]", false }, func(g *api.TaskGroup) {
			g.Count, g.Volumes[0].PerAlloc = 1, true
		}), nil},
		"EachItsOwnOfOne": {group(func(g *api.TaskGroup) { g.Volumes[0].PerAlloc, g.Volumes[0].Source = true, "pg[0]" }), []string{
			`group["main"].volume["data"].source has the character "["` + nameRule,
		}},
		"EachItsOwnEverywhere": {func(s *api.JobSpec) { s.Type, s.Groups[0].Volumes[0].PerAlloc = api.JobSystem, true }, []string{
			`group["main"].volume["data"].per_alloc makes no sense where a place is a node and has no number; remove it, or use a service with a count`,
		}},
		"OddNumber": {group(func(g *api.TaskGroup) { g.Volumes[0].Source = "pg[01]" }), []string{
			`group["main"].volume["data"].source has brackets, and ends with no number in them; use a name, or a name and a number from 0 to 9999 such as "pg[0]"`,
		}},
		"WaitTimeout": {group(func(g *api.TaskGroup) { g.Volumes[0].WaitTimeout = -1 }), []string{
			`group["main"].volume["data"].wait_timeout is negative; give a duration such as "5m", or leave it out to wait for ever`,
		}},
		"DriverMissing": {task(func(k *api.Task) { k.Driver = "" }), []string{k + ".driver is empty" + nameRule}},
		"EnvNames": {task(func(k *api.Task) { k.Env = map[string]string{"": "1", "A=B": "2", "C\x00": "3", "GOOD": "4"} }), []string{
			k + `.env has the name ""; use letters, digits and underscores`,
			k + `.env has the name "A=B"; use letters, digits and underscores`,
			k + `.env has the name "C\x00"; use letters, digits and underscores`,
		}},
		"Kill": {task(func(k *api.Task) { k.KillSignal, k.KillTimeout = "TERM", -1 }), []string{
			k + `.kill_timeout is negative; give a duration such as "5s"`,
			k + `.kill_signal is "TERM"; use one of SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGKILL`,
		}},
		"MountOfNoVolume": {task(func(k *api.Task) { k.VolumeMounts[0].Volume = "date" }), []string{
			k + `.volume_mount[0].volume names "date", and the group has no such volume; add the volume to the group, or correct the name`,
		}},
		"Destinations": {mounts("", "data", "/", "/.", "//", "/a/../b", "/a/./b", "//a", "/..", "/a\x00b"), []string{
			k + `.volume_mount[0].destination is empty; give an absolute path such as "/data"`,
			k + `.volume_mount[1].destination is "data", which is not absolute; give an absolute path such as "/data"`,
			k + `.volume_mount[2].destination is the root of the task; give a directory such as "/data"`,
			k + `.volume_mount[3].destination is the root of the task; give a directory such as "/data"`,
			k + `.volume_mount[3].destination is used twice; mount each volume at a place of its own`,
			k + `.volume_mount[4].destination is the root of the task; give a directory such as "/data"`,
			k + `.volume_mount[4].destination is used twice; mount each volume at a place of its own`,
			k + `.volume_mount[5].destination is "/a/../b"; give a plain absolute path`,
			k + `.volume_mount[6].destination is "/a/./b"; give a plain absolute path`,
			k + `.volume_mount[7].destination is "//a"; give a plain absolute path`,
			k + `.volume_mount[8].destination is the root of the task; give a directory such as "/data"`,
			k + `.volume_mount[8].destination is used twice; mount each volume at a place of its own`,
			k + `.volume_mount[9].destination is "/a\x00b"; give a plain absolute path`,
		}},
		"DestinationsOfTheKernel": {mounts("/proc/1", "/sys", "/dev", "/dev/data", "/dev/null", "/dev/shm/x", "/local", "/devices"), []string{
			k + `.volume_mount[0].destination is /proc/1, and /proc is the kernel's; choose a directory of its own, such as "/data"`,
			k + `.volume_mount[1].destination is /sys, and /sys is the kernel's; choose a directory of its own, such as "/data"`,
			k + `.volume_mount[2].destination is /dev, and /dev is the kernel's; choose a directory of its own, such as "/data"`,
			k + `.volume_mount[3].destination is /dev/data, and the volume is a file-system: /dev is for block devices; choose a directory of its own, such as "/data"`,
			k + `.volume_mount[4].destination is /dev/null, and /dev/null is the kernel's; choose a name of its own, such as "/dev/data"`,
			k + `.volume_mount[5].destination is /dev/shm/x, and /dev/shm is the kernel's; choose a name of its own, such as "/dev/data"`,
			k + `.volume_mount[6].destination is /local, and would hide the task's own directory; choose a directory of its own, such as "/data"`,
		}},
		"BlockDeviceAmongTheDevices": {func(s *api.JobSpec) {
			mounts("/dev/data", "/dev/disk/data")(s)
			request(func(r *api.VolumeRequest) { r.AttachmentMode = api.BlockDevice })(s)
		}, nil},
		"OneDestinationInTwoSpellings": {mounts("/data", "/data/"), []string{
			k + ".volume_mount[1].destination is used twice; mount each volume at a place of its own",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := jobSpec()
			tc.spoil(&spec)
			got := strings.Split(message(spec.Validate()), "\n  ")[1:]
			if diff := cmp.Diff(tc.want, got, cmp.Transformer("lines", func(l []string) string { return strings.Join(l, "\n") })); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

func TestJobSpecGroup(t *testing.T) {
	t.Parallel()
	spec := jobSpec()
	if got := spec.Group("main"); got != &spec.Groups[0] {
		t.Errorf("Group(main) = %v, want the spec's own", got)
	}
	if got := spec.Group("other"); got != nil {
		t.Errorf("Group(other) = %v, want nil", got)
	}
}

// oneBlock is the mend of what a plugin may refuse.
const oneBlock = "mount one volume block at several places, each volume_mount with its own destination and read_only; or use single-node-multi-writer or a mode for many nodes in both"

// twice has a group mount its volume twice, in two modes.
func twice(first, second api.AccessMode, change func(*api.VolumeRequest), also ...func(*api.TaskGroup)) func(*api.JobSpec) {
	return func(s *api.JobSpec) {
		g := &s.Groups[0]
		g.Volumes[0].AccessMode = first
		again := g.Volumes[0]
		again.Name, again.AccessMode = "again", second
		g.Volumes = append(g.Volumes, again)
		for _, f := range also {
			f(g)
		}
		if change != nil {
			change(&g.Volumes[1])
		}
	}
}
