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
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return a, err
	}
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], filepath.Join(b.DataDir, "csi")+"/") {
			a.Mounts[f[4]]++
		}
	}
	for file := range loops(b.tb) {
		if slices.ContainsFunc(roots, func(root string) bool { return strings.HasPrefix(file, root+"/") }) {
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
func (a *Account) Disagreements() (all []string) {
	note := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	paths := map[string]string{} // that may be mounted, and for whom
	users := map[string]localdb.User{}
	for i := range a.Stagings {
		s := &a.Stagings[i]
		if s.Staged && s.Mounted {
			paths[s.StagingPath] = "staging of " + string(s.VolumeID)
		}
		for _, u := range s.Users {
			users[string(u.AllocID)+"/"+u.Name] = u
			paths[u.TargetPath] = "target of " + string(s.VolumeID)
		}
	}
	for path, what := range paths {
		if a.Mounts[path] == 0 {
			note("localdb has %s at %s, and nothing is mounted there", what, path)
		}
	}
	for path, times := range a.Mounts {
		if paths[path] == "" {
			note("%s is mounted, and the localdb does not know of it", path)
		}
		if times > 1 {
			note("%s is mounted %d times over", path, times)
		}
	}
	for _, at := range a.Attachments {
		u, found := users[string(at.AllocID)+"/"+at.Name]
		switch {
		case at.Status.State != api.NodePublished:
			note("attachment %s/%s is %s", at.AllocID.Short(), at.Name, at.Status.State)
		case !found || !u.Published || u.TargetPath != at.Status.TargetPath:
			note("the servers have %s/%s at %s, and the localdb has %+v", at.AllocID.Short(), at.Name, at.Status.TargetPath, u)
		}
	}
	if len(users) != len(a.Attachments) {
		note("the localdb has %d users of volumes, and the servers have %d attachments", len(users), len(a.Attachments))
	}
	if len(a.Stagings) != len(a.Publications) {
		note("the localdb has %d stagings, and the servers have %d publications", len(a.Stagings), len(a.Publications))
	}
	if len(a.Loops) != len(a.Stagings) {
		note("there are the loop devices %q, and %d stagings", a.Loops, len(a.Stagings))
	}
	up := 0
	for i := range a.Recorded {
		if a.Recorded[i].Phase == localdb.PhaseUp {
			up++
		}
	}
	if up != len(a.Running) {
		note("the localdb has %d allocations up, and the servers have %d running", up, len(a.Running))
	}
	tasks := 0
	for _, alloc := range a.Running {
		tasks += len(alloc.Status.Tasks)
	}
	if len(a.Supervisors) != tasks {
		note("%d tasks run, under %d supervisors: %q", tasks, len(a.Supervisors), a.Supervisors)
	}
	slices.Sort(all)
	return all
}
