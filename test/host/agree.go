package host

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
	"github.com/berth-dev/berth/internal/agent/localdb"
)

// Account is what a node has, by everybody's word: the servers', its local
// database's, and the kernel's.
type Account struct {
	// Running are the allocations that the servers say run, Attachments those that
	// are not freed, Publications those that there are.
	Running      []*api.Allocation
	Attachments  []*api.Attachment
	Publications []*api.Publication
	// Recorded and Stagings are the local database's.
	Recorded []localdb.Allocation
	Stagings []localdb.Staging
	// Mounts counts what is mounted below the agent's csi directory, by path.
	Mounts map[string]int
	// Loops are the files behind loop devices, below the plugins' roots.
	Loops []string
	// Supervisors are the command lines of the agent's supervisors.
	Supervisors []string
	// Containers are those of an engine that run, if it was asked.
	Containers []string
}

// Account asks everybody. Roots are those of the local drivers.
func (b *Berth) Account(c *client.Client, roots ...string) (a Account, err error) {
	ctx := b.tb.Context()
	allocs, _, err := c.Allocations(ctx, client.Query{})
	if err != nil {
		return a, err
	}
	for _, alloc := range allocs {
		if alloc.Status.State == api.AllocRunning {
			a.Running = append(a.Running, alloc)
		}
	}
	all, _, err := c.Attachments(ctx, client.Query{})
	if err != nil {
		return a, err
	}
	for _, at := range all {
		if at.Status.State != api.Freed {
			a.Attachments = append(a.Attachments, at)
		}
	}
	if a.Publications, _, err = c.Publications(ctx, client.Query{}); err != nil {
		return a, err
	}
	if err := b.recorded(&a); err != nil {
		return a, err
	}
	a.Mounts = map[string]int{}
	table, err := os.ReadFile(b.opts.Boot.mountTable())
	if err != nil {
		return a, err
	}
	for line := range strings.Lines(string(table)) {
		f := strings.Fields(line)
		volumes := filepath.Join(b.DataDir, "csi")
		if len(f) < 5 || !strings.HasPrefix(f[4], volumes+"/") {
			continue
		}
		if filepath.Dir(f[4]) == volumes {
			continue // where a plugin that is a job shares its mounts: no volume
		}
		a.Mounts[f[4]]++
	}
	for file := range loops(b.tb) {
		if slices.ContainsFunc(roots, func(root string) bool { return isBelow(file, root) }) {
			a.Loops = append(a.Loops, file)
		}
	}
	for _, line := range processes(filepath.Join(b.DataDir, "run", "tasks")) {
		if strings.Contains(line, " executor ") {
			a.Supervisors = append(a.Supervisors, line)
		}
	}
	return a, nil
}

// isBelow reports whether a loop device's file is one of a local driver with this
// root. Of a driver with a mount table of its own the kernel tells the path as that
// one has it, or had it: then the name of the volume's directory, which no other
// has, tells whose it is.
func isBelow(file, root string) bool {
	if strings.HasPrefix(file, root+"/") {
		return true
	}
	volumes, err := os.ReadDir(filepath.Join(root, "volumes"))
	return err == nil && slices.ContainsFunc(volumes, func(v os.DirEntry) bool { return strings.Contains(file, "/volumes/"+v.Name()+"/") })
}

// recorded reads a copy of the local database: the agent has the file itself.
func (b *Berth) recorded(a *Account) (err error) {
	copied := filepath.Join(b.tb.TempDir(), "agent.db")
	if err := copyFile(filepath.Join(b.DataDir, "agent.db"), copied); err != nil {
		return err
	}
	db, err := localdb.Open(copied)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }() // it is a copy
	if a.Recorded, err = db.Allocations(); err != nil {
		return err
	}
	a.Stagings, err = db.Stagings()
	return err
}

func copyFile(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // it was only read
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		_ = out.Close()
		return err
	}
	return out.Close()
}

// Disagreements is where the words differ. Of a node at rest, where nothing
// starts or ends, there are none.
func (a *Account) Disagreements() []string {
	users := map[string]localdb.User{}
	for i := range a.Stagings {
		for _, u := range a.Stagings[i].Users {
			users[string(u.AllocID)+"/"+u.Name] = u
		}
	}
	all := slices.Concat(a.mounts(), a.attachments(users), a.processes())
	for _, n := range []struct {
		what        string
		local, wide int
	}{
		{"users of volumes in the localdb, and attachments that the servers have", len(users), len(a.Attachments)},
		{"stagings in the localdb, and publications that the servers have", len(a.Stagings), len(a.Publications)},
		{"stagings in the localdb, and loop devices", len(a.Stagings), len(a.Loops)},
	} {
		if n.local != n.wide {
			all = append(all, fmt.Sprintf("%s: %d, %d", n.what, n.local, n.wide))
		}
	}
	return all
}

// mounts is where the local database and the kernel differ.
func (a *Account) mounts() (all []string) {
	paths := map[string]string{} // that are to be mounted, and for what
	for i := range a.Stagings {
		s := &a.Stagings[i]
		if s.Staged && s.Mounted {
			paths[s.StagingPath] = "staging of " + string(s.VolumeID)
		}
		for _, u := range s.Users {
			paths[u.TargetPath] = "target of " + string(s.VolumeID)
		}
	}
	for path, what := range paths {
		if a.Mounts[path] == 0 {
			all = append(all, fmt.Sprintf("the localdb has the %s at %s, and nothing is mounted there", what, path))
		}
	}
	for path, times := range a.Mounts {
		if paths[path] == "" {
			all = append(all, path+" is mounted, and the localdb does not know of it")
		}
		if times > 1 {
			all = append(all, fmt.Sprintf("%s is mounted %d times over", path, times))
		}
	}
	slices.Sort(all)
	return all
}

// attachments is where the servers and the local database differ.
func (a *Account) attachments(users map[string]localdb.User) (all []string) {
	for _, at := range a.Attachments {
		u, found := users[string(at.AllocID)+"/"+at.Name]
		switch {
		case at.Status.State != api.NodePublished:
			all = append(all, fmt.Sprintf("attachment %s/%s is %s", at.AllocID.Short(), at.Name, at.Status.State))
		case !found || !u.Published || u.TargetPath != at.Status.TargetPath:
			all = append(all, fmt.Sprintf("the servers have %s/%s at %s, and the localdb has %+v", at.AllocID.Short(), at.Name, at.Status.TargetPath, u))
		}
	}
	return all
}

// processes is where servers, local database and processes differ.
func (a *Account) processes() (all []string) {
	up, tasks := 0, 0
	for i := range a.Recorded {
		if a.Recorded[i].Phase == localdb.PhaseUp {
			up++
		}
	}
	for _, alloc := range a.Running {
		tasks += len(alloc.Status.Tasks)
	}
	if up != len(a.Running) {
		all = append(all, fmt.Sprintf("the localdb has %d allocations up, and the servers have %d running", up, len(a.Running)))
	}
	if len(a.Supervisors)+len(a.Containers) != tasks {
		all = append(all, fmt.Sprintf("%d tasks run, under %d supervisors: %q, and in %d containers: %q",
			tasks, len(a.Supervisors), a.Supervisors, len(a.Containers), a.Containers))
	}
	return all
}
