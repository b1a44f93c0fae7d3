package localdriver_test

import (
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-dev/berth/internal/localdriver/record"
)

func TestPublish_SecondTargetDependsOnTheMode(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		first, second mode
		want          codes.Code
	}{
		{writer, writer, codes.FailedPrecondition},
		{singleWriter, singleWriter, codes.FailedPrecondition},
		{reader, reader, codes.FailedPrecondition},
		{multiWriter, multiWriter, codes.OK},
		{writer, multiWriter, codes.FailedPrecondition},
		{multiWriter, writer, codes.FailedPrecondition},
	} {
		t.Run(c.first.String()+"_"+c.second.String(), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.start()
			id, staging := r.create(directory, "pg"), r.staging("pg")
			one, two := r.target("one"), r.target("two")
			must(t, "stage", r.stage(id, staging, capability(c.first, "")), codes.OK)
			must(t, "first", r.publish(id, staging, one, false, capability(c.first, "")), codes.OK)
			must(t, "same again", r.publish(id, staging, one, false, capability(c.first, "")), codes.OK)
			must(t, "same target, read-only", r.publish(id, staging, one, true, capability(c.first, "")), codes.AlreadyExists)
			must(t, "same target, other flags", r.publish(id, staging, one, false, capability(c.first, "", "nodev")), codes.AlreadyExists)
			err := r.publish(id, staging, two, true, capability(c.second, "", "nodev"))
			must(t, "second target", err, c.want)
			if c.want == codes.OK {
				r.tearDown(id, staging, one, two)
				return
			}
			has(t, err, one, c.first.String(), c.second.String())
			must(t, "unpublish", r.unpublish(id, one), codes.OK)
			must(t, "second target when the first is gone", r.publish(id, staging, two, false, capability(c.second, "")), codes.OK)
			r.tearDown(id, staging, two)
		})
	}
}

func TestStage_OtherArgumentsAlreadyExist(t *testing.T) {
	t.Parallel()
	for _, k := range kinds() {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.start()
			id, staging := r.create(k, "pg"), r.staging("pg")
			must(t, "stage", r.stage(id, staging, capability(writer, k.fsType)), codes.OK)
			for name, err := range map[string]error{
				"other path":  r.stage(id, r.staging("other"), capability(writer, k.fsType)),
				"other mode":  r.stage(id, staging, capability(multiWriter, k.fsType)),
				"other flags": r.stage(id, staging, capability(writer, k.fsType, "noatime")),
			} {
				must(t, name, err, codes.AlreadyExists)
				has(t, err, staging)
			}
			must(t, "unstage of a path where it is not staged", r.unstage(id, r.staging("other")), codes.OK)
			must(t, "stage again", r.stage(id, staging, capability(writer, k.fsType)), codes.OK)
			r.tearDown(id, staging)
		})
	}
}

// answer is what a call answered, and what it should have.
type answer struct {
	err  error
	want codes.Code
	says string
}

func check(t *testing.T, answers map[string]answer) {
	t.Helper()
	for name, a := range answers {
		if got := status.Code(a.err); got != a.want {
			t.Errorf("%s: %v, want %s", name, a.err, a.want)
		}
		has(t, a.err, a.says)
	}
}

const manyNodes = csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER

// missing is an id that the driver could have made, and has not.
func missing() string { return record.ID{Key: record.KeyOf("missing"), Node: nodeID}.String() }

func TestStage_RefusesWhatItCannotDo(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	dir, img := r.create(directory, "dir"), r.create(ext4, "img")
	staging := r.staging("pg")
	write(t, r.target("file"), "precious")
	c := capability(writer, "")
	check(t, map[string]answer{
		"no path":               {r.stage(dir, "", c), codes.InvalidArgument, "staging_target_path"},
		"no capability":         {r.stage(dir, staging, nil), codes.InvalidArgument, "volume_capability"},
		"missing volume":        {r.stage(missing(), staging, c), codes.NotFound, missing()},
		"strange id":            {r.stage("../../etc", staging, c), codes.NotFound, "etc"},
		"relative path":         {r.stage(img, "staging", c), codes.InvalidArgument, "absolute"},
		"missing directory":     {r.stage(img, r.path("none"), c), codes.FailedPrecondition, "none"},
		"missing parent":        {r.stage(img, r.path("none/none"), c), codes.FailedPrecondition, "none"},
		"the root":              {r.stage(img, r.root, c), codes.InvalidArgument, "root"},
		"inside the root":       {r.stage(img, r.root+"/volumes", c), codes.InvalidArgument, "root"},
		"above the root":        {r.stage(img, r.dir, c), codes.InvalidArgument, "root"},
		"a file":                {r.stage(img, r.target("file"), c), codes.FailedPrecondition, "no directory"},
		"many nodes":            {r.stage(img, staging, capability(manyNodes, "")), codes.FailedPrecondition, "one node"},
		"block":                 {r.stage(img, staging, block()), codes.FailedPrecondition, "block"},
		"other file system":     {r.stage(img, staging, capability(writer, "xfs")), codes.FailedPrecondition, "ext4"},
		"directory with fs":     {r.stage(dir, staging, capability(writer, "ext4")), codes.FailedPrecondition, "directory"},
		"directory with option": {r.stage(dir, staging, capability(writer, "", "discard")), codes.FailedPrecondition, "discard"},
		"flag of another mount": {r.stage(img, staging, capability(writer, "", "bind")), codes.InvalidArgument, "bind"},
	})
	must(t, "delete of what was never staged", r.remove(dir), codes.OK)
	must(t, "delete of what was never staged", r.remove(img), codes.OK)
}

func TestPublish_RefusesWhatItCannotDo(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	id, unstaged := r.create(directory, "pg"), r.create(directory, "unstaged")
	staging, target := r.staging("pg"), r.target("pg")
	c := capability(writer, "")
	must(t, "stage", r.stage(id, staging, c), codes.OK)
	if err := mkdirWithFile(r.target("full")); err != nil {
		t.Fatal(err)
	}
	write(t, r.target("file"), "precious")
	check(t, map[string]answer{
		"no target":        {r.publish(id, staging, "", false, c), codes.InvalidArgument, "target_path"},
		"no staging":       {r.publish(id, "", target, false, c), codes.FailedPrecondition, "staging_target_path"},
		"no capability":    {r.publish(id, staging, target, false, nil), codes.InvalidArgument, "volume_capability"},
		"unstaged":         {r.publish(unstaged, r.staging("none"), target, false, c), codes.FailedPrecondition, "not staged"},
		"of another":       {r.publish(unstaged, staging, target, false, c), codes.FailedPrecondition, "mounted"},
		"staged elsewhere": {r.publish(id, r.staging("other"), target, false, c), codes.FailedPrecondition, "not staged"},
		"missing volume":   {r.publish(missing(), staging, target, false, c), codes.NotFound, missing()},
		"missing parent":   {r.publish(id, staging, r.path("none/none"), false, c), codes.FailedPrecondition, "none"},
		"over a file":      {r.publish(id, staging, r.target("file"), false, c), codes.FailedPrecondition, "no directory"},
		"over files":       {r.publish(id, staging, r.target("full"), false, c), codes.FailedPrecondition, "not empty"},
		"over staging":     {r.publish(id, staging, staging, false, c), codes.InvalidArgument, "both"},
		"many nodes":       {r.publish(id, staging, target, false, capability(manyNodes, "")), codes.FailedPrecondition, "one node"},
	})
	wantFile(t, r.target("file"), "precious")
	wantFile(t, r.target("full")+"/file", "precious")
	r.tearDown(id, staging)
}

func TestUndo_IsRepeatableAndCareful(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	id, unstaged := r.create(directory, "pg"), r.create(directory, "unstaged")
	staging := r.staging("pg")
	must(t, "stage", r.stage(id, staging, capability(writer, "")), codes.OK)
	must(t, "publish", r.publish(id, staging, r.target("pg"), false, capability(writer, "")), codes.OK)
	if err := mkdirWithFile(r.target("full")); err != nil {
		t.Fatal(err)
	}
	write(t, r.target("file"), "precious")
	check(t, map[string]answer{
		"unpublish no target":       {r.unpublish(id, ""), codes.InvalidArgument, "target_path"},
		"unpublish relative":        {r.unpublish(id, "pg"), codes.InvalidArgument, "absolute"},
		"unpublish missing volume":  {r.unpublish(missing(), r.target("new")), codes.NotFound, missing()},
		"unpublish staging":         {r.unpublish(id, staging), codes.InvalidArgument, "unstage"},
		"unpublish never published": {r.unpublish(id, r.target("new")), codes.OK, ""},
		"unpublish missing parent":  {r.unpublish(id, r.path("none/none")), codes.OK, ""},
		"unpublish a file":          {r.unpublish(id, r.target("file")), codes.FailedPrecondition, "no directory"},
		"unpublish files":           {r.unpublish(id, r.target("full")), codes.FailedPrecondition, "files"},
		"unstage no path":           {r.unstage(id, ""), codes.InvalidArgument, "staging_target_path"},
		"unstage missing volume":    {r.unstage(missing(), staging), codes.NotFound, missing()},
		"unstage never staged":      {r.unstage(unstaged, r.staging("other")), codes.OK, ""},
		"unstage missing parent":    {r.unstage(unstaged, r.path("none/none")), codes.OK, ""},
		"unstage a target":          {r.unstage(id, r.target("pg")), codes.InvalidArgument, "unpublish"},
		"delete no id":              {r.remove(""), codes.InvalidArgument, "volume_id"},
		"delete missing volume":     {r.remove(missing()), codes.OK, ""},
		"delete a strange id":       {r.remove("../../etc"), codes.OK, ""},
	})
	wantFile(t, r.target("file"), "precious")
	wantFile(t, r.target("full")+"/file", "precious")
	r.tearDown(id, staging, r.target("pg"))
}

func TestNode_VolumesOfAnotherNodeAreNotTouched(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	own := r.create(directory, "pg")
	// The other node was asked for a volume with the same name.
	others := record.ID{Key: record.KeyOf("pg"), Node: "db-2"}.String()
	staging := r.staging("pg")
	for name, c := range map[string]struct {
		err  error
		want codes.Code
	}{
		"stage":   {r.stage(others, staging, capability(writer, "")), codes.NotFound},
		"unstage": {r.unstage(others, staging), codes.NotFound},
		"delete":  {r.remove(others), codes.FailedPrecondition},
	} {
		if got := status.Code(c.err); got != c.want {
			t.Errorf("%s: %v, want %s", name, c.err, c.want)
		}
		has(t, c.err, "db-2")
	}
	if diff := cmp.Diff([]string{own}, r.listed()); diff != "" {
		t.Errorf("volumes (-want +got):\n%s", diff)
	}
}

// A path that no kernel has is the caller's mistake, and no fault of the driver.
func TestPaths_ThatCannotBeAreRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	id := r.create(directory, "pg")
	staging := r.staging("pg")
	must(t, "stage", r.stage(id, staging, directory.capability()), codes.OK)
	for name, path := range map[string]string{
		"NUL": r.target("a\x00b"), "LongPart": r.target(strings.Repeat("x", 256)), "LongPath": r.target(strings.Repeat("x/", 2048)), "Relative": "pods/x",
	} {
		must(t, "unpublish "+name, r.unpublish(id, path), codes.InvalidArgument)
		must(t, "publish "+name, r.publish(id, staging, path, false, directory.capability()), codes.InvalidArgument)
		must(t, "unstage "+name, r.unstage(id, path), codes.InvalidArgument)
	}
	r.tearDown(id, staging)
}
