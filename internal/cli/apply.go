package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
	"github.com/berth-dev/berth/internal/spec"
)

func (a *app) applyCommand() *cobra.Command {
	var wait *waiting
	var when restsOn
	var in *inputs
	cmd := &cobra.Command{
		Use:   "apply FILE...",
		Short: "Bring volumes and jobs to what files say, and wait until they are",
		Long: "Reads volume and job files (HCL or JSON; - is the standard input), checks them all, then creates or changes what they\n" +
			"name: volumes first. It waits until volumes are ready and jobs run, and says what they wait for. Applying the\n" +
			"same file again changes nothing.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, files []string) error {
			if when.version > 0 && when.createOnly {
				return Usage(errors.New("--check-version is for a job that is there, and --create-only for what is not: leave one out"))
			}
			all, err := a.parse(files, in)
			if err != nil {
				return err
			}
			if when.version > 0 && len(all.Jobs) != 1 {
				return Usage(fmt.Errorf("--check-version is for one job, and the files have %d (see 'berth apply --help')", len(all.Jobs)))
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			done, err := a.apply(cmd.Context(), c, all, when)
			if err == nil && !wait.detach {
				done, err = a.awaitApplied(cmd.Context(), c, wait, done)
			}
			if err != nil || !a.json {
				return err
			}
			return a.printJSON(done)
		},
	}
	wait = waitFlags(cmd)
	healthyFlag(cmd, wait)
	versionFlag(cmd, &when.version)
	createFlag(cmd, &when.createOnly)
	in = inputFlags(cmd)
	return cmd
}

// restsOn is what a write rests on.
type restsOn struct {
	// version is that of the job, 0 for any.
	version uint64
	// createOnly: only what is not there.
	createOnly bool
}

// client is one whose writes rest on it.
func (w restsOn) client(c *client.Client) *client.Client {
	if w.createOnly {
		return c.IfAbsent()
	}
	return c
}

// orRepeat says what to do about a write that may have been done.
func (w restsOn) orRepeat(err error) error {
	switch {
	case api.CodeOf(err) != api.CodeUncertain:
		return err
	case w.createOnly:
		return fmt.Errorf("%w; look whether it is there now: if it is not, run the same command again", err)
	default:
		return fmt.Errorf("%w; run the same command again: what is already so does not change", err)
	}
}

// createFlag gives a command the flag of a write that only creates.
func createFlag(cmd *cobra.Command, createOnly *bool) {
	cmd.Flags().BoolVar(createOnly, "create-only", false, "create what is not there, and fail at what is, leaving it as it is")
}

// healthyFlag gives a command that applies jobs the flag to wait for longer.
func healthyFlag(cmd *cobra.Command, wait *waiting) {
	cmd.Flags().BoolVar(&wait.healthy, "healthy", false, "wait until all allocations have been healthy, as the job's update says, or complete in a batch; not only until they run")
}

// applied is what --json prints.
type applied struct {
	Volumes []api.VolumeInfo `json:"volumes"`
	Jobs    []api.JobInfo    `json:"jobs"`
}

// parse reads all files before anything is applied.
func (a *app) parse(files []string, in *inputs) (*spec.File, error) {
	values, err := a.values(in)
	if err != nil {
		return nil, err
	}
	all := &spec.File{}
	var p api.Problems
	from := map[string]string{} // the file of every volume and job
	once := func(what, file string) {
		if first, known := from[what]; known {
			p.Merge(inFile(file, fmt.Sprintf("has %s, which %s has too", what, first), "leave one out"))
			return
		}
		from[what] = file
	}
	for _, name := range files {
		src, err := a.readFile(name)
		if name == "-" {
			name = "stdin"
		}
		if err != nil {
			if why, ok := errors.AsType[*fs.PathError](err); ok {
				err = why.Err
			}
			p.Merge(inFile(name, "cannot be read: "+err.Error(), ""))
			continue
		}
		f, err := values.Parse(name, src)
		if err != nil {
			p.Merge(err)
			continue
		}
		for _, v := range f.Volumes {
			once(fmt.Sprintf("volume %s/%s", a.orDefault(v.Namespace), v.ID), name)
		}
		for _, j := range f.Jobs {
			p.Merge(lacking(name, &j))
			once(fmt.Sprintf("job %s/%s", a.orDefault(j.Namespace), j.ID), name)
		}
		all.Volumes = append(all.Volumes, f.Volumes...)
		all.Jobs = append(all.Jobs, f.Jobs...)
		all.Warnings = append(all.Warnings, f.Warnings...)
	}
	if err := p.Err("the input"); err != nil {
		return nil, err
	}
	return all, unused(values)
}

// lacking are the tasks of a job without what their drivers need.
func lacking(file string, j *spec.Job) error {
	var fields []api.Field
	for i := range j.Spec.Groups {
		g := &j.Spec.Groups[i]
		for k := range g.Tasks {
			if message, mend := g.Tasks[k].LacksConfig(); message != "" {
				fields = append(fields, api.Field{
					File: file, Path: fmt.Sprintf("job[%q].group[%q].task[%q].config", j.ID, g.Name, g.Tasks[k].Name), Message: message, Mend: mend,
				})
			}
		}
	}
	if fields == nil {
		return nil
	}
	return &api.Error{Code: api.CodeInvalid, Fields: fields}
}

// inFile is a problem of a whole file.
func inFile(file, message, mend string) error {
	return &api.Error{Code: api.CodeInvalid, Fields: []api.Field{{File: file, Message: message, Mend: mend}}}
}

// readFile reads a file, or the standard input for "-", as far as is needed to
// see that it is too large.
func (a *app) readFile(name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(io.LimitReader(a.Stdin, spec.MaxFileSize+1))
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	return io.ReadAll(io.LimitReader(f, spec.MaxFileSize+1))
}

// apply writes volumes, then jobs.
func (a *app) apply(ctx context.Context, c *client.Client, all *spec.File, when restsOn) (applied, error) {
	c = when.client(c)
	done := applied{Volumes: []api.VolumeInfo{}, Jobs: []api.JobInfo{}}
	a.warn("", all.Warnings)
	for _, v := range all.Volumes {
		ns := a.orDefault(v.Namespace)
		info, err := c.ApplyVolume(ctx, ns, v.ID, v.Spec, 0)
		if err != nil {
			return done, fmt.Errorf("apply volume %s/%s: %w", ns, v.ID, when.orRepeat(err))
		}
		a.progress("volume %s/%s applied (%s)", ns, v.ID, info.Status.State)
		a.warn(fmt.Sprintf("volume %s/%s: ", ns, v.ID), info.Warnings)
		done.Volumes = append(done.Volumes, info)
	}
	for _, j := range all.Jobs {
		ns := a.orDefault(j.Namespace)
		info, err := c.ApplyJob(ctx, ns, j.ID, j.Spec, when.version)
		if err != nil {
			return done, fmt.Errorf("apply job %s/%s: %w", ns, j.ID, when.orRepeat(err))
		}
		a.progress("job %s/%s applied", ns, j.ID)
		a.warn(fmt.Sprintf("job %s/%s: ", ns, j.ID), info.Warnings)
		done.Jobs = append(done.Jobs, info)
	}
	return done, nil
}

// awaitApplied waits for volumes, then for jobs. Jobs may need a volume that
// will never be there, so a volume that fails is said at once.
func (a *app) awaitApplied(ctx context.Context, c *client.Client, w *waiting, all applied) (applied, error) {
	var volumes, jobs []func(context.Context) error
	for i, v := range all.Volumes {
		volumes = append(volumes, func(ctx context.Context) (err error) {
			all.Volumes[i], err = a.awaitVolume(ctx, c, v.Namespace, v.ID)
			return err
		})
	}
	for i, j := range all.Jobs {
		jobs = append(jobs, func(ctx context.Context) (err error) {
			all.Jobs[i], err = a.awaitJob(ctx, c, j.Namespace, j.ID, newRollout(j, w.healthy).reached)
			return err
		})
	}
	ctx, cancel := w.limit(ctx)
	defer cancel()
	if err := a.wait(ctx, volumes...); err != nil {
		return all, err
	}
	return all, a.wait(ctx, jobs...)
}

// orRepeat says what to do about a write that may have been done.
func orRepeat(err error) error { return restsOn{}.orRepeat(err) }

// warn says what was found to be of no use, before the output and apart from it.
func (a *app) warn(of string, warnings []api.Field) {
	for _, w := range warnings {
		fmt.Fprintf(a.Stderr, "warning: %s\n", plain(of+w.String()))
	}
}

func (a *app) orDefault(ns api.NamespaceID) api.NamespaceID {
	if ns == "" {
		return a.ns()
	}
	return ns
}

// progress prints a line on the way, unless the output is for a program.
func (a *app) progress(format string, args ...any) {
	if !a.json {
		fmt.Fprintln(a.Stdout, plain(fmt.Sprintf(format, args...)))
	}
}
