package hook_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/allocrunner"
	"github.com/berth-dev/berth/internal/agent/allocrunner/hook"
)

// TestHostVolumesAreHandedOn: a directory of the node is a mount like any other
// to the tasks, beside volumes that are attached; one that is not there now is
// waited for, and never made.
func TestHostVolumesAreHandedOn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	known := map[string]hook.HostVolume{
		"data": {Path: dir}, "certs": {Path: dir, ReadOnly: true}, "gone": {Path: filepath.Join(dir, "gone")}, "file": {Path: file},
	}
	for name, tc := range map[string]struct {
		request     api.VolumeRequest
		want        string // of the error, "" for none
		waits, ends bool
	}{
		"There":    {api.VolumeRequest{Name: "h", Type: api.VolumeTypeHost, Source: "data"}, "", false, false},
		"ReadOnly": {api.VolumeRequest{Name: "h", Type: api.VolumeTypeHost, Source: "certs", ReadOnly: true}, "", false, false},
		"Writes":   {api.VolumeRequest{Name: "h", Type: api.VolumeTypeHost, Source: "certs"}, "host volume certs is read only on this node", false, true},
		"Unknown":  {api.VolumeRequest{Name: "h", Type: api.VolumeTypeHost, Source: "logs"}, "has no host volume logs any more", true, false},
		"Gone":     {api.VolumeRequest{Name: "h", Type: api.VolumeTypeHost, Source: "gone"}, "no such file or directory", false, false},
		"NoDir":    {api.VolumeRequest{Name: "h", Type: api.VolumeTypeHost, Source: "file"}, "is no directory", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := assignment()
			a.Group.Volumes = append(a.Group.Volumes, api.VolumeRequest{Name: "a", Type: api.VolumeTypeCSI}, tc.request)
			a.Attachments = []api.AttachmentAssignment{{Attachment: api.Attachment{
				AllocID: a.ID, Name: "a", VolumeID: "vol-a", Status: api.AttachmentStatus{State: api.ControllerPublished},
			}}}
			m := &mounter{script: works}
			h := hook.NewVolumes(m, &said{facts: map[string]api.AttachmentFact{}}, nil)
			h.Host(known)
			s := allocrunner.NewStep("/alloc", a)
			err := h.Up(t.Context(), s)
			if tc.want == "" {
				if diff := cmp.Diff(map[string]string{"a": "/mnt/a", "h": dir}, s.Mounts()); err != nil || diff != "" {
					t.Errorf("Up: %v, mounts (-want +got):\n%s", err, diff)
				}
				return
			}
			var waiting *allocrunner.Waiting
			var fatal *allocrunner.Fatal
			if err == nil || !strings.Contains(err.Error(), tc.want) || errors.As(err, &waiting) != tc.waits || errors.As(err, &fatal) != tc.ends {
				t.Errorf("Up: %v (waits %t, ends %t), want %q", err, errors.As(err, &waiting), errors.As(err, &fatal), tc.want)
			}
			if _, err := os.Stat(filepath.Join(dir, "gone")); err == nil {
				t.Error("a directory that was gone was made")
			}
		})
	}
}
