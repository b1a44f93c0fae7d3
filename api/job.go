package api

import (
	"fmt"
	"slices"
	"strings"
)

// Job is what to run.
type Job struct {
	Meta
	Namespace NamespaceID `json:"namespace"`
	ID        JobID       `json:"id"`
	// UID tells this job from any other that had or will have its name.
	UID string `json:"uid"`
	// Desired absent means stopped: its allocations end, the row stays until
	// it is collected or applied again.
	Desired Presence `json:"desired"`
	// Revision counts the specs that were applied.
	Revision uint64    `json:"revision"`
	Spec     JobSpec   `json:"spec"`
	Status   JobStatus `json:"status"`
}

// JobType is how a job ends.
type JobType string

// The job types.
const (
	// JobService runs until it is stopped; an allocation that ends is replaced.
	JobService JobType = "service"
	// JobBatch runs until its tasks have succeeded.
	JobBatch JobType = "batch"
)

// JobSpec is what a user asks for.
type JobSpec struct {
	Type   JobType     `json:"type"`
	Groups []TaskGroup `json:"groups"`
}

// TaskGroup is a set of tasks that share a node and volumes.
type TaskGroup struct {
	Name    string          `json:"name"`
	Count   int             `json:"count"`
	Volumes []VolumeRequest `json:"volumes,omitempty"`
	Tasks   []Task          `json:"tasks"`
}

// VolumeRequest asks for a volume for every allocation of a group.
type VolumeRequest struct {
	Name string `json:"name"`
	// Type is csi.
	Type           string         `json:"type"`
	Source         VolumeID       `json:"source"`
	ReadOnly       bool           `json:"read_only,omitempty"`
	AccessMode     AccessMode     `json:"access_mode"`
	AttachmentMode AttachmentMode `json:"attachment_mode"`
	// MountOptions overlay the volume's: fs_type if set, mount_flags replaced whole.
	MountOptions *MountOptions `json:"mount_options,omitempty"`
}

// Task is one process.
type Task struct {
	Name   string `json:"name"`
	Driver string `json:"driver"`
	// Config is the driver's own; exec and raw_exec take command and args.
	Config map[string]any    `json:"config,omitempty"`
	Env    map[string]string `json:"env,omitempty"`
	// User that the task runs as; empty leaves it to the driver.
	User         string        `json:"user,omitempty"`
	VolumeMounts []VolumeMount `json:"volume_mounts,omitempty"`
	// KillSignal is sent first, SIGINT if empty; SIGKILL follows after
	// KillTimeout, 5s if 0.
	KillSignal  string   `json:"kill_signal,omitempty"`
	KillTimeout Duration `json:"kill_timeout,omitempty"`
}

// VolumeMount puts one of the group's volumes into a task.
type VolumeMount struct {
	// Volume is the request's name.
	Volume      string `json:"volume"`
	Destination string `json:"destination"`
	ReadOnly    bool   `json:"read_only,omitempty"`
}

// JobStatus is what the scheduler knows of a job.
type JobStatus struct {
	// Settled: the scheduler has nothing to do for the job until something
	// about it changes.
	Settled bool `json:"settled"` // SettleJob; cleared by whatever changes the job
	// Serial counts the allocations ever placed. Their ids come from it.
	Serial uint64 `json:"serial"` // PlaceAllocation
}

// Group is the group of that name, or nil.
func (s *JobSpec) Group(name string) *TaskGroup {
	for i := range s.Groups {
		if s.Groups[i].Name == name {
			return &s.Groups[i]
		}
	}
	return nil
}

// VolumeTypeCSI is the only type of volume request so far.
const VolumeTypeCSI = "csi"

// Validate reports every problem of the spec.
func (s *JobSpec) Validate() error {
	var p Problems
	oneOf(&p, "type", s.Type, JobService, JobBatch)
	if len(s.Groups) == 0 {
		p.Add("group", "is missing", `add group "name" { task "name" { ... } }`)
	}
	seen := map[string]bool{}
	for i := range s.Groups {
		g := &s.Groups[i]
		path := fmt.Sprintf("group[%q]", g.Name)
		if seen[g.Name] {
			p.Add(path, "is there twice", "rename one")
		}
		seen[g.Name] = true
		g.validate(&p, path)
	}
	return p.Err("the job")
}

func (g *TaskGroup) validate(p *Problems, path string) {
	p.Name(path, g.Name)
	if g.Count < 0 {
		p.Add(path+".count", "is negative", "use 0 or more")
	}
	if len(g.Tasks) == 0 {
		p.Add(path+".task", "is missing", `add task "name" { driver = "exec" ... }`)
	}
	requests := map[string]*VolumeRequest{}
	for i := range g.Volumes {
		r := &g.Volumes[i]
		at := fmt.Sprintf("%s.volume[%q]", path, r.Name)
		if requests[r.Name] != nil {
			p.Add(at, "is there twice", "rename one")
		}
		requests[r.Name] = r
		r.validate(p, at, g.Count)
	}
	seen := map[string]bool{}
	for i := range g.Tasks {
		t := &g.Tasks[i]
		at := fmt.Sprintf("%s.task[%q]", path, t.Name)
		if seen[t.Name] {
			p.Add(at, "is there twice", "rename one")
		}
		seen[t.Name] = true
		t.validate(p, at, requests)
	}
}

func (r *VolumeRequest) validate(p *Problems, path string, count int) {
	p.Name(path, r.Name)
	oneOf(p, path+".type", r.Type, VolumeTypeCSI)
	p.Name(path+".source", string(r.Source))
	oneOf(p, path+".access_mode", r.AccessMode, AccessModes()...)
	oneOf(p, path+".attachment_mode", r.AttachmentMode, FileSystem, BlockDevice)
	r.MountOptions.validate(p, path+".mount_options")
	readers := r.AccessMode == SingleNodeReaderOnly || r.AccessMode == MultiNodeReaderOnly
	if readers && !r.ReadOnly {
		p.Addf(path+".read_only", "set read_only = true", "must be true with access mode %s", r.AccessMode)
	}
	if r.AttachmentMode == BlockDevice && r.MountOptions != nil {
		p.Add(path+".mount_options", "make no sense for a block device", "remove them")
	}
	writerAlone := r.AccessMode == SingleNodeWriter || r.AccessMode == SingleNodeSingleWriter ||
		r.AccessMode == MultiNodeSingleWriter
	if writerAlone && !r.ReadOnly && count > 1 {
		p.Addf(path, "use count = 1, or an access mode for several writers",
			"would be written by %d allocations, and access mode %s allows one", count, r.AccessMode)
	}
}

func (t *Task) validate(p *Problems, path string, requests map[string]*VolumeRequest) {
	p.Name(path, t.Name)
	p.Name(path+".driver", t.Driver)
	for k := range t.Env {
		if k == "" || strings.ContainsAny(k, "=\x00") {
			p.Addf(path+".env", "use letters, digits and underscores", "has the name %q", k)
		}
	}
	if t.KillTimeout < 0 {
		p.Add(path+".kill_timeout", "is negative", `give a duration such as "5s"`)
	}
	if t.KillSignal != "" && !slices.Contains(Signals(), t.KillSignal) {
		p.Addf(path+".kill_signal", "use one of "+strings.Join(Signals(), ", "), "is %q", t.KillSignal)
	}
	seen := map[string]bool{}
	for i, m := range t.VolumeMounts {
		at := fmt.Sprintf("%s.volume_mount[%d]", path, i)
		r := requests[m.Volume]
		if r == nil {
			p.Addf(at+".volume", "add the volume to the group, or correct the name",
				"names %q, and the group has no such volume", m.Volume)
		} else if r.ReadOnly && !m.ReadOnly {
			p.Addf(at+".read_only", "set read_only = true", "must be true: the group's volume %q is read_only", m.Volume)
		}
		p.destination(at+".destination", m.Destination)
		if seen[m.Destination] {
			p.Add(at+".destination", "is used twice", "mount each volume at a place of its own")
		}
		seen[m.Destination] = true
	}
}

// Signals lists the kill signals that a task may ask for.
func Signals() []string {
	return []string{"SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGKILL"}
}

// destination checks the place of a mount inside a task.
func (p *Problems) destination(path, dest string) {
	switch {
	case dest == "":
		p.Add(path, "is empty", `give an absolute path such as "/data"`)
	case !strings.HasPrefix(dest, "/"):
		p.Addf(path, `give an absolute path such as "/data"`, "is %q, which is not absolute", dest)
	case strings.Contains(dest, "/../") || strings.HasSuffix(dest, "/..") || strings.ContainsRune(dest, 0):
		p.Addf(path, "give a plain absolute path", "is %q", dest)
	case strings.Trim(dest, "/") == "":
		p.Add(path, "is the root of the task", `give a directory such as "/data"`)
	}
}
