package api

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
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
	// JobSystem is a service on every node that fits.
	JobSystem JobType = "system"
	// JobSysbatch is a batch on every node that fits.
	JobSysbatch JobType = "sysbatch"
)

// JobTypes lists all types, for validation and documentation.
func JobTypes() []JobType { return []JobType{JobService, JobBatch, JobSystem, JobSysbatch} }

// Ends reports whether the job's allocations are done when their tasks have
// succeeded.
func (t JobType) Ends() bool { return t == JobBatch || t == JobSysbatch }

// Everywhere reports whether the job has one allocation on each node that
// fits, instead of a number of them.
func (t JobType) Everywhere() bool { return t == JobSystem || t == JobSysbatch }

// JobSpec is what a user asks for.
type JobSpec struct {
	Type JobType `json:"type"`
	// Priority from 1 to 100, DefaultPriority if 0: who gets a volume that
	// several jobs wait for. Among equals it is who has waited longest.
	Priority int `json:"priority,omitempty"`
	// Constraints hold for all groups.
	Constraints []Constraint `json:"constraints,omitempty"`
	// Spreads hold for all groups that have none of their own.
	Spreads []Spread `json:"spreads,omitempty"`
	// Update, Migrate and Reschedule hold for all groups, which may say otherwise.
	Update     *Update     `json:"update,omitempty"`
	Migrate    *Migrate    `json:"migrate,omitempty"`
	Reschedule *Reschedule `json:"reschedule,omitempty"`
	// Meta is the user's own; tasks find it as BERTH_META_<key>.
	Meta   map[string]string `json:"meta,omitempty"`
	Groups []TaskGroup       `json:"groups"`
}

// DefaultPriority is that of a job that names none.
const DefaultPriority = 50

// TaskGroup is a set of tasks that share a node and volumes.
type TaskGroup struct {
	Name string `json:"name"`
	// Count is how many allocations run; of a system job's group it is 1, and
	// means each node.
	Count       int               `json:"count"`
	Constraints []Constraint      `json:"constraints,omitempty"`
	Spreads     []Spread          `json:"spreads,omitempty"`
	Update      *Update           `json:"update,omitempty"`
	Migrate     *Migrate          `json:"migrate,omitempty"`
	Reschedule  *Reschedule       `json:"reschedule,omitempty"`
	Meta        map[string]string `json:"meta,omitempty"`
	Ports       []Port            `json:"ports,omitempty"`
	Services    []Service         `json:"services,omitempty"`
	Volumes     []VolumeRequest   `json:"volumes,omitempty"`
	// Restart holds for all tasks that say nothing else.
	Restart *RestartPolicy `json:"restart,omitempty"`
	Tasks   []Task         `json:"tasks"`
}

// VolumeRequest asks for a volume for every allocation of a group.
type VolumeRequest struct {
	Name string `json:"name"`
	// Type is csi, or host.
	Type string `json:"type"`
	// Source is the name of the node's host volume; or the volume, or the name of a family of them with PerAlloc.
	Source VolumeID `json:"source"`
	// Ephemeral is the volume that each allocation gets instead, new and its own;
	// nil for one that is there already.
	Ephemeral *EphemeralVolume `json:"ephemeral,omitempty"`
	// PerAlloc: each allocation gets the volume of its index, source[0],
	// source[1]. Those that are not there are made like source[0].
	PerAlloc       bool           `json:"per_alloc,omitempty"`
	ReadOnly       bool           `json:"read_only,omitempty"`
	AccessMode     AccessMode     `json:"access_mode"`
	AttachmentMode AttachmentMode `json:"attachment_mode"`
	// MountOptions overlay the volume's: fs_type if set, mount_flags replaced whole.
	MountOptions *MountOptions `json:"mount_options,omitempty"`
	// FSGroup is the number of the group that what is on the volume is given to, and
	// that the tasks which mount it are in; 0 leaves all as it is.
	FSGroup       int           `json:"fs_group,omitempty"`
	FSGroupPolicy FSGroupPolicy `json:"fs_group_policy,omitempty"`
	// WaitTimeout is for how long a place in the group waits for the volume
	// before it gives up; 0 waits for ever.
	WaitTimeout Duration `json:"wait_timeout,omitempty"`
}

// VolumeFor is the volume that the allocation of an index gets, if it is not an
// ephemeral one.
func (r *VolumeRequest) VolumeFor(index int) VolumeID {
	if r.PerAlloc {
		return r.Source.Member(index)
	}
	return r.Source
}

// Task is one process.
type Task struct {
	Name   string `json:"name"`
	Driver string `json:"driver"`
	// Config is the driver's own; exec and raw_exec take command and args.
	Config map[string]any    `json:"config,omitempty"`
	Env    map[string]string `json:"env,omitempty"`
	// User that the task runs as; empty leaves it to the driver.
	User         string            `json:"user,omitempty"`
	Constraints  []Constraint      `json:"constraints,omitempty"`
	Meta         map[string]string `json:"meta,omitempty"`
	Resources    *Resources        `json:"resources,omitempty"`
	VolumeMounts []VolumeMount     `json:"volume_mounts,omitempty"`
	// Templates are rendered in their order.
	Templates []Template `json:"templates,omitempty"`
	// KillSignal is sent first, SIGINT if empty; SIGKILL follows after
	// KillTimeout, 5s if 0.
	KillSignal  string         `json:"kill_signal,omitempty"`
	KillTimeout Duration       `json:"kill_timeout,omitempty"`
	Restart     *RestartPolicy `json:"restart,omitempty"`
	Lifecycle   *Lifecycle     `json:"lifecycle,omitempty"`
	// Leader: when it ends, the allocation ends.
	Leader bool `json:"leader,omitempty"`
	// CSIPlugin makes the task an instance of a plugin.
	CSIPlugin *CSIPlugin `json:"csi_plugin,omitempty"`
}

// VolumeMount puts one of the group's volumes into a task.
type VolumeMount struct {
	// Volume is the request's name.
	Volume      string `json:"volume"`
	Destination string `json:"destination"`
	ReadOnly    bool   `json:"read_only,omitempty"`
	// PropagationMode is private if empty.
	PropagationMode PropagationMode `json:"propagation_mode,omitempty"`
}

// PropagationMode says who sees what is mounted below a volume later.
type PropagationMode string

// The propagation modes.
const (
	// PropagatePrivate: neither sees the other's mounts.
	PropagatePrivate PropagationMode = "private"
	// PropagateHostToTask: the task sees what the host mounts.
	PropagateHostToTask PropagationMode = "host-to-task"
	// PropagateBidirectional: each sees the other's.
	PropagateBidirectional PropagationMode = "bidirectional"
)

// PropagationModes lists all modes, for validation and documentation.
func PropagationModes() []PropagationMode {
	return []PropagationMode{PropagatePrivate, PropagateHostToTask, PropagateBidirectional}
}

// JobStatus is what the scheduler knows of a job.
type JobStatus struct {
	// Settled: the scheduler has nothing to do for the job until something
	// about it changes.
	Settled bool `json:"settled"` // SettleJob; cleared by whatever changes the job
	// Serial counts the allocations ever placed. Their ids come from it.
	Serial uint64 `json:"serial"` // PlaceAllocation
	// Applied is when the newest revision was applied.
	Applied time.Time `json:"applied,omitzero"` // ApplyJob, RevertJob
	// Trace is whose request it was, for who looks at traces.
	Trace TraceContext `json:"trace,omitempty"` // ApplyJob
	// StoppedBy is who stopped the job, by the caller's word.
	StoppedBy string `json:"stopped_by,omitempty"` // StopJob; cleared by ApplyJob, RevertJob
	// Stable is the newest revision that was healthy everywhere.
	Stable uint64 `json:"stable,omitempty"` // StabilizeJob
	// Promoted is the revision that was promoted last.
	Promoted uint64 `json:"promoted,omitempty"` // PromoteJob, RevertJob
	// Reverted says why the job went back to an older revision by itself.
	Reverted *Reversion `json:"reverted,omitempty"` // RevertJob, ApplyJob
	// Waiting is since when the scheduler has had something to do for the job.
	Waiting time.Time `json:"waiting,omitzero"` // whatever clears Settled; SettleJob
	// GaveUp are the places that waited for a volume for as long as they may.
	// They stay empty until the job is applied again.
	GaveUp []GiveUp `json:"gave_up,omitempty"` // GiveUpPlace; cleared by ApplyJob, RevertJob
}

// GiveUp is a place in a group that waits for a volume no more.
type GiveUp struct {
	Group string `json:"group"`
	Index int    `json:"index"`
	// Request is the name of the volume request, and VolumeID its volume.
	Request  string   `json:"request"`
	VolumeID VolumeID `json:"volume_id"`
	// Reason is why the volume could not be had, with who held it.
	Reason string `json:"reason"`
	// Since is when the place began to wait, and Time when it gave up.
	Since time.Time `json:"since"`
	Time  time.Time `json:"time"`
}

// GiveUpOf is how a place in a group gave up, or nil.
func (s *JobStatus) GiveUpOf(group string, index int) *GiveUp {
	for i := range s.GaveUp {
		if s.GaveUp[i].Group == group && s.GaveUp[i].Index == index {
			return &s.GaveUp[i]
		}
	}
	return nil
}

// Reversion is a way back to the last revision that was healthy everywhere.
type Reversion struct {
	// From is the revision that failed, and To the one whose spec is the job's
	// again.
	From   uint64    `json:"from"`
	To     uint64    `json:"to"`
	Reason string    `json:"reason"`
	Time   time.Time `json:"time"`
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

// The types of volume requests.
const (
	// VolumeTypeCSI is a volume of a plugin's.
	VolumeTypeCSI = "csi"
	// VolumeTypeHost is a directory that a node's configuration names. It stays on
	// its node, and any number of allocations there may use it.
	VolumeTypeHost = "host"
)

// Host reports whether the request is for a host volume.
func (r *VolumeRequest) Host() bool { return r.Type == VolumeTypeHost }

// Attached are the requests for volumes that are attached and mounted.
func (g *TaskGroup) Attached() []*VolumeRequest {
	var all []*VolumeRequest
	for i := range g.Volumes {
		if r := &g.Volumes[i]; !r.Host() {
			all = append(all, r)
		}
	}
	return all
}

// maxCount bounds a group: the scheduler looks at every place in it at once,
// and says of each what it waits for.
const maxCount = 10_000

// Validate reports every problem of the spec.
func (s *JobSpec) Validate() error {
	var p Problems
	oneOf(&p, "type", s.Type, JobTypes()...)
	if s.Priority < 0 || s.Priority > 100 {
		p.Addf("priority", "give a number from 1 to 100", "is %d", s.Priority)
	}
	validateConstraints(&p, "constraint", s.Constraints)
	validateSpreads(&p, "spread", s.Spreads)
	s.Update.validate(&p, "update")
	s.Migrate.validate(&p, "migrate", s.Type)
	s.Reschedule.validate(&p, "reschedule", s.Type)
	if s.Type.Ends() && s.Update != nil {
		p.Addf("update", "remove it", "makes no sense in a %s job: its allocations are exchanged at once", s.Type)
	}
	validateMeta(&p, "meta", s.Meta)
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
		g.Update.validate(&p, path+".update")
		g.Migrate.validate(&p, path+".migrate", s.Type)
		g.Reschedule.validate(&p, path+".reschedule", s.Type)
		if s.Type.Ends() && g.Update != nil {
			p.Addf(path+".update", "remove it", "makes no sense in a %s job: its allocations are exchanged at once", s.Type)
		}
		s.validateUpdate(&p, path, g)
		g.validateRestarts(&p, path, s.Type)
		g.validateLifecycles(&p, path)
		g.validatePlugins(&p, path, s.Type)
		if s.Type.Everywhere() && g.Count > 1 {
			p.Addf(path+".count", "leave it out", "is %d, and a %s job has one allocation on each node", g.Count, s.Type)
		}
		if s.Type.Everywhere() {
			g.validateEverywhere(&p, path)
		}
	}
	return p.Err("the job")
}

func (g *TaskGroup) validate(p *Problems, path string) {
	p.Name(path, g.Name)
	switch {
	case g.Count < 0:
		p.Add(path+".count", "is negative", "use 0 or more")
	case g.Count > maxCount:
		p.Addf(path+".count", "divide the group into several", "is %d, and a group may have %d", g.Count, maxCount)
	}
	if len(g.Tasks) == 0 {
		p.Add(path+".task", "is missing", `add task "name" { driver = "exec" ... }`)
	}
	validateConstraints(p, path+".constraint", g.Constraints)
	validateSpreads(p, path+".spread", g.Spreads)
	validateMeta(p, path+".meta", g.Meta)
	g.validateNetwork(p, path)
	requests := map[string]*VolumeRequest{}
	for i := range g.Volumes {
		r := &g.Volumes[i]
		at := fmt.Sprintf("%s.volume[%q]", path, r.Name)
		if requests[r.Name] != nil {
			p.Add(at, "is there twice", "rename one")
		}
		r.validate(p, at, g.Count)
		r.alone(p, at, requests, g.Count)
		requests[r.Name] = r
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

// validateEverywhere reports what every node cannot have.
func (g *TaskGroup) validateEverywhere(p *Problems, path string) {
	for i := range g.Volumes {
		r := &g.Volumes[i]
		at := fmt.Sprintf("%s.volume[%q]", path, r.Name)
		switch {
		case r.Host(), r.Ephemeral != nil:
		case r.PerAlloc:
			p.Add(at+".per_alloc", "makes no sense where a place is a node and has no number", "remove it, or use a service with a count")
		case r.AccessMode.SingleNode() || r.AccessMode == MultiNodeSingleWriter && !r.ReadOnly:
			p.Addf(at+".access_mode", "use multi-node-multi-writer, or multi-node-reader-only",
				"is %s, and the group runs on every node", r.AccessMode)
		}
	}
	if len(g.Spreads) > 0 {
		p.Add(path+".spread", "makes no sense where every node has an allocation", "remove it")
	}
}

func (r *VolumeRequest) validate(p *Problems, path string, count int) {
	p.Name(path, r.Name)
	oneOf(p, path+".type", r.Type, VolumeTypeCSI, VolumeTypeHost)
	if r.Host() {
		r.validateHost(p, path)
		return
	}
	switch {
	case r.Ephemeral != nil:
		r.validateEphemeral(p, path)
	case r.Source == "":
		p.Add(path+".source", "is missing", `add source = "...", or ephemeral { plugin_id = "..." } for a new volume of each allocation`)
	case r.PerAlloc:
		p.Name(path+".source", string(r.Source))
	default:
		p.VolumeID(path+".source", string(r.Source))
	}
	if r.WaitTimeout < 0 {
		p.Add(path+".wait_timeout", "is negative", `give a duration such as "5m", or leave it out to wait for ever`)
	}
	if r.AccessMode == "" {
		p.Add(path+".access_mode", "is missing", `add access_mode = "single-node-writer"`)
	} else {
		oneOf(p, path+".access_mode", r.AccessMode, AccessModes()...)
	}
	if r.AttachmentMode == "" {
		p.Add(path+".attachment_mode", "is missing", `add attachment_mode = "file-system"`)
	} else {
		oneOf(p, path+".attachment_mode", r.AttachmentMode, FileSystem, BlockDevice)
	}
	r.MountOptions.validate(p, path+".mount_options")
	if r.AccessMode.ReadersOnly() && !r.ReadOnly {
		p.Addf(path+".read_only", "set read_only = true", "must be true with access mode %s", r.AccessMode)
	}
	if r.AttachmentMode == BlockDevice && r.MountOptions != nil {
		p.Add(path+".mount_options", "make no sense for a block device", "remove them")
	}
	r.validateGroup(p, path)
	switch {
	case count <= 1, r.PerAlloc, r.Ephemeral != nil:
	case r.AccessMode.Exclusive():
		p.Addf(path, "use count = 1, per_alloc = true for a volume each, or an access mode for several",
			"would be held by %d allocations, and access mode %s allows one", count, r.AccessMode)
	case r.AccessMode == MultiNodeSingleWriter && !r.ReadOnly:
		p.Addf(path, "use count = 1, per_alloc = true for a volume each, or an access mode for several writers",
			"would be written by %d allocations, and access mode %s allows one", count, r.AccessMode)
	}
}

// validateHost reports what a directory of a node does not have.
func (r *VolumeRequest) validateHost(p *Problems, path string) {
	if r.Source == "" {
		p.Add(path+".source", "is missing", `add source = "..."`)
	} else {
		p.Name(path+".source", string(r.Source))
	}
	none := func(name string, there bool) {
		if there {
			p.Add(path+"."+name, "makes no sense for a host volume, which is a directory of the node", "remove it")
		}
	}
	none("per_alloc", r.PerAlloc)
	none("ephemeral", r.Ephemeral != nil)
	none("access_mode", r.AccessMode != "")
	none("attachment_mode", r.AttachmentMode != "")
	none("mount_options", r.MountOptions != nil)
	none("wait_timeout", r.WaitTimeout != 0)
	if r.FSGroup != 0 || r.FSGroupPolicy != "" {
		p.Add(path+".fs_group", "makes no sense for a host volume: the directory keeps the owners that its operator gave it", "remove it")
	}
}

// FSGroupPolicy says when a volume is given to its group.
type FSGroupPolicy string

// The policies.
const (
	// GroupOnRootMismatch: when its root is not the group's already. It is the
	// policy of a request that names none.
	GroupOnRootMismatch FSGroupPolicy = "on-root-mismatch"
	// GroupAlways: each time that it is mounted.
	GroupAlways FSGroupPolicy = "always"
)

// FSGroupPolicies lists all policies, for validation and documentation.
func FSGroupPolicies() []FSGroupPolicy { return []FSGroupPolicy{GroupOnRootMismatch, GroupAlways} }

// maxGroup is the largest number that drivers take for a group.
const maxGroup = 1<<31 - 1

func (r *VolumeRequest) validateGroup(p *Problems, path string) {
	if r.FSGroup < 0 || r.FSGroup > maxGroup {
		p.Addf(path+".fs_group", "give the number of a group, from 1", "is %d", r.FSGroup)
	}
	if r.FSGroup != 0 && r.AttachmentMode == BlockDevice {
		p.Add(path+".fs_group", "makes no sense for a block device", "remove it")
	}
	if r.FSGroupPolicy == "" {
		return
	}
	oneOf(p, path+".fs_group_policy", r.FSGroupPolicy, FSGroupPolicies()...)
	switch {
	case r.FSGroup == 0:
		p.Add(path+".fs_group_policy", "says when a volume is given to a group, and fs_group is missing", "add fs_group = 1000, or remove it")
	case r.FSGroupPolicy == GroupAlways && !r.AccessMode.SingleNode():
		p.Addf(path+".fs_group_policy", "use on-root-mismatch",
			"is always, and with access mode %s many nodes would walk through the volume while others write to it", r.AccessMode)
	}
}

// alone reports requests of one allocation that keep each other from the volume
// of both. It says no more than fit.Hold does of two attachments on one node.
func (r *VolumeRequest) alone(p *Problems, path string, others map[string]*VolumeRequest, count int) {
	for _, name := range slices.Sorted(maps.Keys(others)) {
		o := others[name]
		if name == r.Name || r.Host() || o.Host() || !r.meets(o, count) {
			continue
		}
		switch {
		case r.AccessMode.Exclusive() || o.AccessMode.Exclusive():
			mode := r.AccessMode
			if !mode.Exclusive() {
				mode = o.AccessMode
			}
			p.Addf(path+".source", "mount one volume block at several places, each volume_mount with its own destination and read_only; "+
				"or use single-node-multi-writer or a mode for many nodes in both",
				"is %q, as that of volume %q: an allocation would mount the volume at two target paths, and with access mode %s "+
					"a plugin may refuse the second (CSI spec, NodePublishVolume)", r.Source, o.Name, mode)
		case r.AttachmentMode != o.AttachmentMode:
			p.Addf(path+".attachment_mode", "use the same in both", "is %s, and volume %q mounts the same volume as a %s",
				r.AttachmentMode, o.Name, o.AttachmentMode)
		case (r.AccessMode == MultiNodeReaderOnly || o.AccessMode == MultiNodeReaderOnly) && (r.writes() || o.writes()):
			p.Addf(path+".access_mode", "use the same in both", "is %s, and volume %q has the same volume with %s: one of them is for readers only",
				r.AccessMode, o.Name, o.AccessMode)
		case (r.AccessMode == MultiNodeSingleWriter || o.AccessMode == MultiNodeSingleWriter) && r.writes() && o.writes():
			p.Addf(path+".read_only", "set read_only = true in one of them", "is false, and volume %q writes to the same volume too, whose access mode allows one writer", o.Name)
		default:
			continue
		}
		return
	}
	r.crowded(p, path, others, count)
}

// crowded reports a second writer where a request of the allocation, perhaps a
// third one, has an access mode that allows one: that is not seen by looking at
// two of them.
func (r *VolumeRequest) crowded(p *Problems, path string, others map[string]*VolumeRequest, count int) {
	var one *VolumeRequest
	var writers []string
	note := func(o *VolumeRequest) {
		if o.AccessMode == MultiNodeSingleWriter {
			one = o
		}
		if o.writes() {
			writers = append(writers, strconv.Quote(o.Name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(others)) {
		if o := others[name]; name != r.Name && r.meets(o, count) {
			note(o)
		}
	}
	if one != nil && len(writers) > 1 {
		return // it was so without this one
	}
	if note(r); one != nil && len(writers) > 1 {
		p.Addf(path+".access_mode", "use the same in all, and set read_only = true in all but one",
			"goes not with the others: volumes %s write to the same volume, and volume %q has it with access mode %s, which allows one writer",
			strings.Join(writers, " and "), one.Name, one.AccessMode)
	}
}

// writes reports whether the allocation may change the volume.
func (r *VolumeRequest) writes() bool { return !r.ReadOnly && !r.AccessMode.ReadersOnly() }

// meets reports whether two requests of one group are for one volume in any of
// its allocations.
func (r *VolumeRequest) meets(o *VolumeRequest, count int) bool {
	if r.Ephemeral != nil || o.Ephemeral != nil {
		return false
	}
	if r.PerAlloc == o.PerAlloc {
		return r.Source == o.Source
	}
	if o.PerAlloc {
		r, o = o, r
	}
	name, index, ok := o.Source.Family()
	return ok && name == r.Source && index < max(count, 1)
}

func (t *Task) validate(p *Problems, at string, requests map[string]*VolumeRequest) {
	p.Name(at, t.Name)
	p.Name(at+".driver", t.Driver)
	for _, k := range slices.Sorted(maps.Keys(t.Env)) {
		if k == "" || strings.ContainsAny(k, "=\x00") {
			p.Addf(at+".env", "use letters, digits and underscores", "has the name %q", k)
		}
	}
	validateConstraints(p, at+".constraint", t.Constraints)
	validateMeta(p, at+".meta", t.Meta)
	t.Resources.validate(p, at+".resources")
	for i, c := range t.Constraints {
		if c.Operator.ofOthers() {
			p.Addf(fmt.Sprintf("%s.constraint[%d].operator", at, i), "put it in the group", "is %s, which is about whole allocations", c.Operator)
		}
	}
	if t.KillTimeout < 0 {
		p.Add(at+".kill_timeout", "is negative", `give a duration such as "5s"`)
	}
	if t.KillSignal != "" && !slices.Contains(Signals(), t.KillSignal) {
		p.Addf(at+".kill_signal", "use one of "+strings.Join(Signals(), ", "), "is %q", t.KillSignal)
	}
	t.validateMounts(p, at, requests)
	t.validateTemplates(p, at)
}

func (t *Task) validateMounts(p *Problems, task string, requests map[string]*VolumeRequest) {
	seen := map[string]bool{}
	for i, m := range t.VolumeMounts {
		at := fmt.Sprintf("%s.volume_mount[%d]", task, i)
		if requests[m.Volume] == nil {
			p.Addf(at+".volume", "add the volume to the group, or correct the name",
				"names %q, and the group has no such volume", m.Volume)
		}
		p.destination(at+".destination", m.Destination)
		p.kernels(at+".destination", m.Destination, requests[m.Volume])
		if m.PropagationMode != "" {
			oneOf(p, at+".propagation_mode", m.PropagationMode, PropagationModes()...)
		}
		place := path.Clean(m.Destination)
		if seen[place] {
			p.Add(at+".destination", "is used twice", "mount each volume at a place of its own")
		}
		seen[place] = m.Destination != ""
	}
}

// Signals lists the kill signals that a task may ask for.
func Signals() []string {
	return []string{"SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGKILL"}
}

// kernels checks that a mount is not where the kernel, or the task itself, has
// something: only a block device may be among the devices.
func (p *Problems) kernels(at, dest string, r *VolumeRequest) {
	const elsewhere = `choose a directory of its own, such as "/data"`
	clean := path.Clean(dest)
	first, rest, _ := strings.Cut(strings.TrimPrefix(clean, "/"), "/")
	name, _, _ := strings.Cut(rest, "/")
	block := r == nil || r.AttachmentMode == BlockDevice
	switch {
	case first == "proc", first == "sys", clean == "/dev":
		p.Addf(at, elsewhere, "is %s, and /%s is the kernel's", clean, first)
	case first == "dev" && slices.Contains(deviceNames(), name):
		p.Addf(at, `choose a name of its own, such as "/dev/data"`, "is %s, and /dev/%s is the kernel's", clean, name)
	case first == "dev" && !block:
		p.Addf(at, elsewhere, "is %s, and the volume is a %s: /dev is for block devices", clean, FileSystem)
	case clean == "/local", clean == "/secrets":
		p.Addf(at, elsewhere, "is %s, and would hide the task's own directory", clean)
	}
}

// deviceNames are what the kernel and programs expect in /dev.
func deviceNames() []string {
	return []string{
		"console", "core", "fd", "full", "kmsg", "mem", "mqueue", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty", "urandom", "zero",
	}
}

// destination checks the place of a mount inside a task. Only plain paths can
// be told apart.
func (p *Problems) destination(at, dest string) {
	switch clean := path.Clean(dest); {
	case dest == "":
		p.Add(at, "is empty", `give an absolute path such as "/data"`)
	case !path.IsAbs(dest):
		p.Addf(at, `give an absolute path such as "/data"`, "is %q, which is not absolute", dest)
	case clean == "/":
		p.Add(at, "is the root of the task", `give a directory such as "/data"`)
	case clean != strings.TrimSuffix(dest, "/") || strings.ContainsRune(dest, 0):
		p.Addf(at, "give a plain absolute path", "is %q", dest)
	}
}

// LacksConfig says what is missing from a task without config, if its driver is one
// of Berth's that can run nothing without, or "".
func (t *Task) LacksConfig() (message, mend string) {
	if len(t.Config) > 0 {
		return "", ""
	}
	switch t.Driver {
	case "exec", "raw_exec":
		return "is missing, and driver " + t.Driver + " runs the command in it", `add config { command = "/path/of/program" }`
	case "docker":
		return "is missing, and driver docker runs the image in it", `add config { image = "name:tag" }`
	}
	return "", ""
}
