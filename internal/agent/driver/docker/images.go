package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/moby/moby/client"
)

// images are those that this agent pulls and removes, by their repositories:
// none is removed while a task is being started from one.
type images struct {
	mu       sync.Mutex // guards below
	held     map[string]int
	removing map[string]chan struct{}

	records sync.Mutex // is held while a record is changed
}

// hold keeps the images of a repository until release is called.
func (i *images) hold(ctx context.Context, repository string) (release func(), err error) {
	for {
		i.mu.Lock()
		going := i.removing[repository]
		if going == nil {
			i.held[repository]++
			i.mu.Unlock()
			return func() {
				i.mu.Lock()
				defer i.mu.Unlock()
				if i.held[repository]--; i.held[repository] == 0 {
					delete(i.held, repository)
				}
			}, nil
		}
		i.mu.Unlock()
		select {
		case <-going:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// take has nobody hold a repository until done is called. It reports whether
// somebody does.
func (i *images) take(repository string) (done func(), ok bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.held[repository] > 0 || i.removing[repository] != nil {
		return nil, false
	}
	going := make(chan struct{})
	i.removing[repository] = going
	return func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		delete(i.removing, repository)
		close(going)
	}, true
}

// repositoryOf is the repository of an image, without tag and digest.
func repositoryOf(image string) string {
	named, err := reference.ParseDockerRef(image)
	if err != nil {
		return image
	}
	return reference.TrimNamed(named).Name()
}

// pulled is what is recorded of an image that this agent pulled.
type pulled struct {
	// Image is its name, as tasks write it.
	Image string `json:"image"`
	// ID is the engine's, empty until it is pulled.
	ID string `json:"id,omitempty"`
	// Unused is since when no container has it; zero if one has.
	Unused time.Time `json:"unused,omitzero"`
	// Tagged is when the engine last gave the image a name, zero if it does not say.
	Tagged time.Time `json:"tagged,omitzero"`
	// Replaced: its name means another image now.
	Replaced bool `json:"replaced,omitempty"`
}

func (d *Driver) imagesDir() string { return filepath.Join(d.cfg.StateDir, "images") }

func (d *Driver) pulledPath(image, id string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(image + "\n" + id)) // never fails
	return filepath.Join(d.imagesDir(), fmt.Sprintf("%016x.json", h.Sum64()))
}

// path is where a record is. What was replaced has one of its own.
func (d *Driver) recordPath(p *pulled) string {
	if p.Replaced {
		return d.pulledPath(p.Image, p.ID)
	}
	return d.pulledPath(p.Image, "")
}

// writePulled replaces a record, whatever it says.
func (d *Driver) writePulled(p pulled) error {
	d.images.records.Lock()
	defer d.images.records.Unlock()
	return d.putPulled(p)
}

// changePulled changes a record, if there is one.
func (d *Driver) changePulled(path string, change func(*pulled)) error {
	d.images.records.Lock()
	defer d.images.records.Unlock()
	p, err := d.readPulled(path)
	if err != nil || p == nil {
		return err
	}
	was := *p
	if change(p); *p == was {
		return nil
	}
	return d.putPulled(*p)
}

// putPulled writes a record; the caller holds records.
func (d *Driver) putPulled(p pulled) error {
	b, err := json.Marshal(p)
	path := d.recordPath(&p)
	if err == nil {
		err = os.MkdirAll(d.imagesDir(), 0o700)
	}
	if err == nil {
		err = writeSynced(path+".new", b)
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return fmt.Errorf("record image %s: %w", p.Image, err)
	}
	return nil
}

// writeSynced writes a file that is whole after a power cut, once it is renamed.
func writeSynced(path string, b []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Sync(), f.Close())
}

// forgetPulled removes a record. That the agent gave its image a name so late is
// noted of the other names that it gave it.
func (d *Driver) forgetPulled(p *pulled) error {
	paths, _ := filepath.Glob(filepath.Join(d.imagesDir(), "*.json")) // the pattern is one
	for _, path := range paths {
		err := d.changePulled(path, func(other *pulled) {
			if other.ID == p.ID && other.Tagged.Before(p.Tagged) {
				other.Tagged = p.Tagged
			}
		})
		if err != nil {
			return err
		}
	}
	if err := os.Remove(d.recordPath(p)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget image %s: %w", p.Image, err)
	}
	return nil
}

// readPulled is the record at a path. It answers nil if there is none. One that
// makes no sense is removed: nobody knows whose the image is, so it is not ours.
func (d *Driver) readPulled(path string) (*pulled, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read what is known of an image: %w", err)
	}
	var p pulled
	if err := json.Unmarshal(b, &p); err != nil || p.Image == "" {
		d.log.Warn("what is recorded of an image cannot be read, so it is not removed", "path", path, "error", err)
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("remove what was recorded of an image: %w", err)
		}
		return nil, nil
	}
	return &p, nil
}

// beginPull notes that an image is about to be pulled by this agent, and answers
// what to note when it is. An image that was there is somebody else's, unless
// this agent pulled it before.
func (d *Driver) beginPull(ctx context.Context, image string) (pulledIt func(ctx context.Context) error, err error) {
	nothing := func(context.Context) error { return nil }
	was, err := d.readPulled(d.pulledPath(image, ""))
	if err != nil {
		return nil, err
	}
	there, err := d.inspectImage(ctx, image)
	switch {
	case err != nil && !errdefs.IsNotFound(err):
		return nil, d.problem(err)
	case err == nil && (was == nil || was.ID != there.id || d.newer(&there)):
		return nothing, nil
	case err != nil:
		if err := d.writePulled(pulled{Image: image}); err != nil {
			return nil, err
		}
	}
	return func(ctx context.Context) error {
		now, err := d.inspectImage(ctx, image)
		if err == nil && now.tagged.IsZero() {
			now, err = d.mark(ctx, image)
		}
		if errdefs.IsNotFound(err) {
			return nil // it is looked at again before it is removed
		}
		if err != nil {
			return d.problem(err)
		}
		if there.id != "" && there.id != now.id {
			if err := d.writePulled(pulled{Image: image, ID: there.id, Tagged: there.tagged, Replaced: true}); err != nil {
				return err
			}
		}
		return d.writePulled(pulled{Image: image, ID: now.id, Tagged: now.tagged})
	}, nil
}

// mark gives an image that was just pulled the name that it has once more. Of an
// image that came by a pull, engines without containerd note no time; of one that
// was given a name they do, and forget it with the image. So one that somebody
// removed and pulled again can be told from ours. What is named by its digest
// cannot be given that name.
func (d *Driver) mark(ctx context.Context, name string) (image, error) {
	if strings.Contains(name, "@") {
		return d.inspectImage(ctx, name)
	}
	bounded, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	if _, err := d.engine().ImageTag(bounded, client.ImageTagOptions{Source: name, Target: name}); err != nil {
		return image{}, err
	}
	return d.inspectImage(ctx, name)
}

// newer reports whether somebody else gave an image a name after this agent's last
// pull of it, under whatever name, or put it there anew: it is theirs then. Engines
// that keep their images in containerd count pulls and loads, others count tags and
// imports only, and know of no time after anything else.
func (d *Driver) newer(is *image) bool {
	paths, _ := filepath.Glob(filepath.Join(d.imagesDir(), "*.json")) // the pattern is one
	for _, path := range paths {
		p, err := d.readPulled(path)
		if err != nil || p == nil || p.ID != is.id {
			continue
		}
		anew := is.tagged.IsZero() && !p.Tagged.IsZero()
		if !anew && !is.tagged.After(p.Tagged) {
			return false
		}
	}
	return true
}

// useImage notes that a container is about to be made from an image, which is
// held: it may be gone before anybody looks who uses which.
func (d *Driver) useImage(image string) error {
	return d.changePulled(d.pulledPath(image, ""), func(p *pulled) { p.Unused = time.Time{} })
}

// imageDelay is how long an image stays that nobody uses; less than 0 is for ever.
func (d *Driver) imageDelay() time.Duration {
	if delay := d.rules.Load().ImageDelay; delay != 0 {
		return delay
	}
	return DefaultImageDelay
}

// tidyImages removes the images that this agent pulled and that no container has
// had for a while. Where images stay for ever, it forgets those that somebody else
// removed or put there, all the same.
func (d *Driver) tidyImages(ctx context.Context) error {
	paths, _ := filepath.Glob(filepath.Join(d.imagesDir(), "*.json")) // the pattern is one
	if len(paths) == 0 {
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	list, err := d.engine().ContainerList(bounded, client.ContainerListOptions{All: true})
	if err != nil {
		return d.problem(err)
	}
	used := map[string]bool{}
	for i := range list.Items {
		used[list.Items[i].ImageID] = true
	}
	var problems []error
	for _, path := range paths {
		problems = append(problems, d.tidyImage(ctx, path, used))
	}
	return errors.Join(problems...)
}

func (d *Driver) tidyImage(ctx context.Context, path string, used map[string]bool) error {
	p, err := d.readPulled(path)
	if err != nil || p == nil {
		return err
	}
	done, ok := d.images.take(repositoryOf(p.Image))
	if !ok {
		return nil // a task is being started from it
	}
	defer done()
	if p, err = d.readPulled(path); err != nil || p == nil {
		return err // a start came between, and what it noted counts
	}
	name := p.Image
	if p.Replaced {
		name = p.ID
	}
	is, err := d.inspectImage(ctx, name)
	switch {
	case errdefs.IsNotFound(err):
		return d.forgetPulled(p)
	case err != nil:
		return d.problem(err)
	case is.id != p.ID, p.Replaced && is.named, d.newer(&is):
		// Its name means what somebody else put there, also if that is the same, or a
		// pull was cut off and nobody knows whose it is: it is not removed.
		return d.forgetPulled(p)
	case used[is.id] && p.Unused.IsZero():
		return nil
	case used[is.id]:
		p.Unused = time.Time{}
		return d.writePulled(*p)
	case p.Unused.IsZero():
		p.Unused = time.Now()
		return d.writePulled(*p)
	case d.imageDelay() < 0, time.Since(p.Unused) < d.imageDelay():
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	_, err = d.engine().ImageRemove(bounded, name, client.ImageRemoveOptions{PruneChildren: true})
	if errdefs.IsConflict(err) { // somebody has begun to use it
		d.log.Debug("an image that nobody seemed to use stays", "image", p.Image, "id", p.ID, "error", err)
		return nil
	}
	if err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("remove image %s: %w", p.Image, d.problem(err))
	}
	d.log.Info("removed an image that nobody has used for a while", "image", strings.TrimSpace(p.Image), "id", p.ID)
	return d.forgetPulled(p)
}
