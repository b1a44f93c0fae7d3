package spec_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/spec"
)

func TestReferenceExplainsEverything(t *testing.T) {
	t.Parallel()
	for _, b := range spec.Reference() {
		if b.Doc == "" || len(b.Fields) == 0 {
			t.Errorf("block %q has no doc, or no fields", b.Path)
		}
		known := map[string]bool{}
		for _, f := range b.Fields {
			if f.Name == "" || f.Kind == "" || !strings.HasSuffix(f.Doc, ".") && !strings.HasSuffix(f.Doc, "...") {
				t.Errorf("block %q has an entry without a name, a kind or a sentence: %+v", b.Path, f)
			}
			if known[f.Name] {
				t.Errorf("block %q has %s twice", b.Path, f.Name)
			}
			known[f.Name] = true
			if _, err := spec.Format("example.hcl", []byte(strings.ReplaceAll(f.Example, "...", ""))); err != nil {
				t.Errorf("block %q: the example of %s cannot be read: %v", b.Path, f.Name, err)
			}
			if f.Example != "" && !strings.HasPrefix(f.Example, f.Name+" ") {
				t.Errorf("block %q: the example of %s shows something else: %s", b.Path, f.Name, f.Example)
			}
		}
		for _, f := range b.Foreign {
			if f.Why == "" || known[f.Name] {
				t.Errorf("block %q has %s without a reason, or twice", b.Path, f.Name)
			}
			known[f.Name] = true
		}
	}
}

func TestReferenceListsEveryBlock(t *testing.T) {
	t.Parallel()
	var got []string
	for _, b := range spec.Reference() {
		got = append(got, b.Path)
	}
	want := []string{
		"", "volume", "volume.capability", "volume.mount_options", "volume.topology_request",
		"volume.topology_request.required", "volume.topology_request.required.topology",
		"volume.topology_request.preferred", "volume.topology_request.preferred.topology", "volume.snapshot_schedule",
		"job", "job.constraint", "job.spread", "job.spread.target", "job.update", "job.migrate", "job.reschedule",
		"job.group", "job.group.constraint", "job.group.spread", "job.group.spread.target", "job.group.update", "job.group.migrate", "job.group.reschedule",
		"job.group.network", "job.group.network.port", "job.group.service",
		"job.group.service.check", "job.group.service.check.check_restart", "job.group.service.check_restart",
		"job.group.volume", "job.group.volume.ephemeral", "job.group.volume.mount_options", "job.group.restart",
		"job.group.task", "job.group.task.constraint", "job.group.task.resources",
		"job.group.task.resources.network", "job.group.task.resources.network.port", "job.group.task.volume_mount", "job.group.task.template", "job.group.task.template.change_script", "job.group.task.restart", "job.group.task.lifecycle", "job.group.task.service",
		"job.group.task.service.check", "job.group.task.service.check.check_restart", "job.group.task.service.check_restart", "job.group.task.csi_plugin", "variable",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("want and got differ (-want +got):\n%s", diff)
	}
}

// A field that package api gains must be given a name in the files too.
func TestReferenceHasEveryFieldOfTheSpecs(t *testing.T) {
	t.Parallel()
	singular := map[string]string{
		"capabilities": "capability", "groups": "group", "volumes": "volume", "tasks": "task", "volume_mounts": "volume_mount",
		"constraints": "constraint", "spreads": "spread", "targets": "target", "ports": "network", "services": "service", "templates": "template", "checks": "check",
	}
	names := map[string][]string{}
	for _, b := range spec.Reference() {
		for _, f := range b.Fields {
			names[b.Path] = append(names[b.Path], f.Name)
		}
	}
	for path, v := range map[string]any{
		"volume": api.VolumeSpec{}, "volume.capability": api.Capability{}, "volume.mount_options": api.MountOptions{},
		"volume.topology_request": api.TopologyRequest{}, "volume.snapshot_schedule": api.SnapshotSchedule{}, "job": api.JobSpec{}, "job.group": api.TaskGroup{},
		"job.group.volume": api.VolumeRequest{}, "job.group.volume.ephemeral": api.EphemeralVolume{}, "job.group.task": api.Task{}, "job.group.task.volume_mount": api.VolumeMount{}, "job.group.task.template": api.Template{}, "job.group.task.template.change_script": api.ChangeScript{},
		"job.constraint": api.Constraint{}, "job.spread": api.Spread{},
		"job.group.network.port": api.Port{}, "job.group.service": api.Service{}, "job.group.service.check": api.ServiceCheck{}, "job.group.service.check_restart": api.CheckRestart{}, "job.migrate": api.Migrate{}, "job.group.task.resources": api.Resources{},
		"job.group.restart": api.RestartPolicy{}, "job.group.task.lifecycle": api.Lifecycle{}, "job.group.task.csi_plugin": api.CSIPlugin{}, "job.update": api.Update{}, "job.reschedule": api.Reschedule{},
	} {
		for _, f := range reflect.VisibleFields(reflect.TypeOf(v)) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if one, plural := singular[name]; plural {
				name = one
			}
			label := name == "name" && path != "volume" // a block's label, not an attribute
			if !label && !slices.Contains(names[path], name) {
				t.Errorf("block %s has no name for %s.%s", path, reflect.TypeOf(v), f.Name)
			}
		}
	}
}
