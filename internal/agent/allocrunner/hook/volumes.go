package hook

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/allocrunner"
)

// Mounter brings volumes to their target paths and takes them away again.
type Mounter interface {
	Mount(ctx context.Context, a *api.AttachmentAssignment) (target string, err error)
	Unmount(ctx context.Context, a *api.AttachmentAssignment) error
	// Give gives what is on a mounted volume to the attachment's group, if it has
	// one, and it was not done yet. It may take long; say hears how far it is.
	Give(ctx context.Context, a *api.AttachmentAssignment, say func(progress string)) error
	// Gone reports whether what was mounted can be used no more, and Mount would
	// make it again.
	Gone(a *api.AttachmentAssignment) (bool, error)
	// Served reports whether what is mounted is there, and may be Gone at any time.
	Served(a *api.AttachmentAssignment) (bool, error)
	// Late says which call for the volume its plugin does not answer, or nil; the
	// channel is closed when that may have changed.
	Late(a *api.AttachmentAssignment) (p *api.Problem, changed <-chan struct{})
	// Ill is why a plugin does not serve this node any more, or nil.
	Ill(id api.PluginID) *api.Problem
	// Mounted says where the volume is mounted, or "". It changes nothing.
	Mounted(a *api.AttachmentAssignment) (target string, err error)
}

// AttachmentFacts is where the hook says how far attachments are.
type AttachmentFacts interface {
	SetAttachment(f api.AttachmentFact)
	// RepeatAttachment says it again, also if it was said.
	RepeatAttachment(f api.AttachmentFact)
}

// Volumes mounts the allocation's volumes, each on its own: one that is stuck
// keeps no other.
type Volumes struct {
	mounter Mounter
	facts   AttachmentFacts
	tasks   *Tasks
}

// NewVolumes returns the hook. Tasks whose volume must be mounted again are
// ended by the hook of tasks; nil ends none.
func NewVolumes(m Mounter, facts AttachmentFacts, tasks *Tasks) *Volumes {
	return &Volumes{mounter: m, facts: facts, tasks: tasks}
}

// Name implements allocrunner.Hook.
func (*Volumes) Name() string { return "volumes" }

// Up implements allocrunner.Hook. What runs goes on while a volume cannot be
// mounted again, and is watched.
func (v *Volumes) Up(ctx context.Context, s *allocrunner.Step) error {
	a := s.Assignment()
	if a.Group != nil && len(a.Attachments) < len(a.Group.Attached()) {
		return &allocrunner.Waiting{Reason: "the servers have not sent all attachments"}
	}
	for i := range a.Attachments {
		if at := &a.Attachments[i]; at.Refused != "" {
			return &allocrunner.Fatal{Err: fmt.Errorf("volume %s could not be created: %s", at.Attachment.VolumeID, at.Refused)}
		}
	}
	if err := v.bury(ctx, s, &a); err != nil {
		return err
	}
	lacking := v.each(a, func(at *api.AttachmentAssignment) error {
		if at.Attachment.Status.State.Before(api.ControllerPublished) {
			return &allocrunner.Waiting{Reason: fmt.Sprintf("volume %s is not attached to this node yet", at.Attachment.VolumeID)}
		}
		if !at.Attachment.Wanted() {
			return &allocrunner.Waiting{Reason: fmt.Sprintf("the hold on volume %s has ended", at.Attachment.VolumeID)}
		}
		target := ""
		err := v.patiently(s, at, func() (err error) {
			target, err = v.mounter.Mount(ctx, at)
			return err
		})
		if err != nil {
			return v.failed(ctx, at, err)
		}
		if err := v.give(ctx, s, at); err != nil {
			return err
		}
		s.SetMount(at.Attachment.Name, target)
		ill := v.mounter.Ill(at.Attachment.PluginID)
		s.SetIll(at.Attachment.PluginID, ill)
		fact := api.AttachmentFact{AllocID: a.ID, Name: at.Attachment.Name, State: api.NodePublished, TargetPath: target, Problem: ill}
		if at.Attachment.Status.State == api.ControllerPublished {
			v.facts.RepeatAttachment(fact)
		} else {
			v.facts.SetAttachment(fact)
		}
		return nil
	})
	s.SetLacking(lacking)
	if err := worst(lacking); err != nil {
		return &allocrunner.Partial{Err: err}
	}
	return nil
}

// patiently does what calls the plugin of a volume, and says meanwhile which call
// gets no answer.
func (v *Volumes) patiently(s *allocrunner.Step, at *api.AttachmentAssignment, do func() error) error {
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		for over := false; !over; {
			late, changed := v.mounter.Late(at)
			s.SetLate(at.Attachment.Name, late)
			if late != nil {
				v.facts.SetAttachment(api.AttachmentFact{AllocID: at.Attachment.AllocID, Name: at.Attachment.Name, Problem: late})
			}
			select {
			case <-changed:
			case <-done:
				over = true
			}
		}
		s.SetLate(at.Attachment.Name, nil)
	})
	defer watching.Wait()
	defer close(done)
	return do()
}

// give gives a mounted volume to its group. That may go through millions of
// files: it says how far it is, and ends with the wish for the allocation. Before
// it has come to its end the volume does not count as mounted.
func (v *Volumes) give(ctx context.Context, s *allocrunner.Step, at *api.AttachmentAssignment) error {
	if at.Attachment.FSGroup == 0 {
		return nil
	}
	wanted, cancel := s.WhileWanted(ctx)
	defer cancel()
	since := time.Now().UTC().Round(0)
	err := v.patiently(s, at, func() error {
		return v.mounter.Give(wanted, at, func(progress string) {
			v.facts.SetAttachment(api.AttachmentFact{AllocID: at.Attachment.AllocID, Name: at.Attachment.Name, Problem: &api.Problem{
				Step: "give to fs_group", Message: progress, Since: since,
			}})
		})
	})
	if wanted.Err() != nil && err != nil {
		return err // nobody waits for it any more
	}
	if err != nil {
		return v.failed(ctx, at, err)
	}
	return nil
}

// bury ends the tasks that mount a volume whose file system has gone with the
// driver's process: they would never see what is mounted in its place. That they
// have ended is recorded before the volume is mounted again, and when they are
// started again is their policy's to say.
func (v *Volumes) bury(ctx context.Context, s *allocrunner.Step, a *api.AllocAssignment) error {
	if v.tasks == nil || a.Group == nil {
		return nil
	}
	for i := range a.Attachments {
		at := &a.Attachments[i]
		gone, err := v.mounter.Gone(at)
		if err != nil {
			return err
		}
		if !gone {
			continue
		}
		reason := fmt.Sprintf("its volume %s ended with the process of plugin %s, and is mounted again", at.Attachment.VolumeID, at.Attachment.PluginID)
		if err := v.tasks.bereave(ctx, s, a, at.Attachment.Name, reason); err != nil {
			return err
		}
	}
	return nil
}

// servedPeriod is how often a mount is looked at that a process serves: when that
// ends, nothing tells, and its plugin may know nothing of it.
const servedPeriod = 5 * time.Second

// Watch implements allocrunner.Watcher. What was gone before it began is no news:
// Up has seen it, and is called again with backoff.
func (v *Volumes) Watch(ctx context.Context, s *allocrunner.Step) (allocrunner.News, error) {
	a := s.Assignment()
	var served []*api.AttachmentAssignment
	for i := range a.Attachments {
		at := &a.Attachments[i]
		is, err := v.mounter.Served(at)
		if err != nil {
			return allocrunner.Again, err
		}
		if is {
			served = append(served, at)
		}
	}
	if len(served) == 0 {
		<-ctx.Done()
		return allocrunner.Again, ctx.Err()
	}
	tick := time.NewTicker(servedPeriod)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return allocrunner.Again, ctx.Err()
		}
		for _, at := range served {
			if gone, err := v.mounter.Gone(at); gone || err != nil {
				return allocrunner.Again, err
			}
		}
	}
}

// Down implements allocrunner.Hook.
func (v *Volumes) Down(ctx context.Context, s *allocrunner.Step) error {
	a := s.Assignment()
	return worst(v.each(a, func(at *api.AttachmentAssignment) error {
		if err := v.patiently(s, at, func() error { return v.mounter.Unmount(ctx, at) }); err != nil {
			return v.failed(ctx, at, err)
		}
		v.facts.SetAttachment(api.AttachmentFact{AllocID: a.ID, Name: at.Attachment.Name, State: api.NodeDetached})
		return nil
	}))
}

// failed says why a step did not succeed. That the agent ends is no problem of
// the volume's.
func (v *Volumes) failed(ctx context.Context, at *api.AttachmentAssignment, err error) error {
	if ctx.Err() == nil {
		v.facts.SetAttachment(api.AttachmentFact{AllocID: at.Attachment.AllocID, Name: at.Attachment.Name, Problem: problem(err)})
	}
	return err
}

// each works on all attachments at once, and answers the errors by their names.
func (v *Volumes) each(a api.AllocAssignment, f func(*api.AttachmentAssignment) error) map[string]error {
	errs := make([]error, len(a.Attachments))
	var g errgroup.Group
	for i := range a.Attachments {
		g.Go(func() error {
			errs[i] = f(&a.Attachments[i])
			return nil
		})
	}
	_ = g.Wait() // errors are in errs
	named := map[string]error{}
	for i, err := range errs {
		if err != nil {
			named[a.Attachments[i].Attachment.Name] = err
		}
	}
	return named
}

// worst is the error that matters most: what only waits does not hide what fails.
func worst(errs map[string]error) (worst error) {
	waits := func(err error) bool {
		var w *allocrunner.Waiting
		return errors.As(err, &w)
	}
	for _, name := range slices.Sorted(maps.Keys(errs)) {
		if err := errs[name]; worst == nil || waits(worst) && !waits(err) {
			worst = err
		}
	}
	return worst
}

func problem(err error) *api.Problem {
	p := &api.Problem{Step: "volumes", Message: allocrunner.OneLine(err)}
	var c interface {
		Problem() (step, code, message string)
	}
	if errors.As(err, &c) {
		p.Step, p.Code, p.Message = c.Problem()
	}
	return p
}
