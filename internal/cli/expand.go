package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
	"github.com/berth-dev/berth/internal/spec"
)

// changeTries is how often a change of a volume's spec is made from what was
// read right before, when something else changed the volume in between.
const changeTries = 5

func (a *app) expandVolumeCommand() *cobra.Command {
	var wait *waiting
	var least, most string
	cmd := &cobra.Command{
		Use:   "expand ID --capacity-min SIZE",
		Short: "Make a volume larger, and wait until it is",
		Long: "Makes a volume larger, also while jobs use it, and waits until it is: at the provider, and where it is mounted. It is what\n" +
			"applying its file with a larger capacity_min does; change the file too. If the plugin expands only volumes that are not in\n" +
			"use, it waits, says for whom, and goes on when that one has stopped. A size that the provider refuses leaves the volume as\n" +
			"it is; ask for another one, or give the old one to take the wish back.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			sizes, err := sizeFlags(cmd, least, most)
			if err != nil {
				return err
			}
			return a.changeVolume(cmd.Context(), wait, args[0], func(s *api.VolumeSpec) {
				if n, given := sizes["capacity-min"]; given {
					s.CapacityMin = n
				}
				if n, given := sizes["capacity-max"]; given {
					s.CapacityMax = n
				}
			})
		},
	}
	cmd.Flags().StringVar(&least, "capacity-min", "", "the least `size` that will do, such as 20GiB")
	cmd.Flags().StringVar(&most, "capacity-max", "", "the most that the plugin may make, a `size` such as 30GiB; 0 for no bound (default: as it is)")
	wait = waitFlags(cmd)
	return cmd
}

// sizeFlags reads the sizes that were given, by their flags.
func sizeFlags(cmd *cobra.Command, least, most string) (map[string]int64, error) {
	sizes := map[string]int64{}
	for flag, text := range map[string]string{"capacity-min": least, "capacity-max": most} {
		if !cmd.Flags().Changed(flag) {
			continue
		}
		n, err := spec.Size(text)
		if err != nil {
			return nil, Usage(fmt.Errorf("--%s %w", flag, err))
		}
		sizes[flag] = n
	}
	if len(sizes) == 0 {
		return nil, Usage(errors.New("berth volume expand needs --capacity-min (see 'berth volume expand --help')"))
	}
	return sizes, nil
}

func (a *app) modifyVolumeCommand() *cobra.Command {
	var wait *waiting
	cmd := &cobra.Command{
		Use:   "modify ID KEY=VALUE...",
		Short: "Change mutable parameters of a volume, and wait until it has them",
		Long: "Changes parameters that the plugin can change on a volume that is there, such as its speed, and waits until it has them.\n" +
			"It is what applying its file with other mutable_parameters does; change the file too. What the plugin refuses leaves the\n" +
			"volume as it is. KEY= without a value takes back a parameter that the plugin has not taken.",
		Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			changed := map[string]string{}
			for _, arg := range args[1:] {
				k, v, ok := strings.Cut(arg, "=")
				if !ok || k == "" {
					return Usage(fmt.Errorf("%q is no KEY=VALUE (see 'berth volume modify --help')", arg))
				}
				changed[k] = v
			}
			return a.changeVolume(cmd.Context(), wait, args[0], func(s *api.VolumeSpec) {
				next := maps.Clone(s.MutableParameters)
				if next == nil {
					next = map[string]string{}
				}
				for k, v := range changed {
					if next[k] = v; v == "" {
						delete(next, k)
					}
				}
				s.MutableParameters = next
			})
		},
	}
	wait = waitFlags(cmd)
	return cmd
}

// changeVolume changes the spec of a volume that is there, and waits until the
// volume is so.
func (a *app) changeVolume(ctx context.Context, wait *waiting, word string, change func(*api.VolumeSpec)) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	v, err := a.findVolume(ctx, c, word)
	if err != nil {
		return err
	}
	for try := 1; ; try++ {
		wanted := v.Spec
		change(&wanted)
		applied, err := c.ApplyVolume(ctx, v.Namespace, v.ID, wanted, v.Version)
		if err == nil {
			v = applied
			break
		}
		if api.CodeOf(err) != api.CodeConflict || try == changeTries {
			return orRepeat(err)
		}
		if v, _, err = c.Volume(ctx, v.Namespace, v.ID, client.Query{}); err != nil {
			return err
		}
	}
	a.progress("volume %s/%s applied (%s)", v.Namespace, v.ID, v.Status.State)
	if wait.detach {
		return a.jsonAsWell(v)
	}
	ctx, cancel := wait.limit(ctx)
	defer cancel()
	err = a.wait(ctx, func(ctx context.Context) (err error) {
		v, err = a.awaitVolume(ctx, c, v.Namespace, v.ID)
		return err
	})
	if err != nil {
		return err
	}
	return a.jsonAsWell(v)
}

// jsonAsWell prints v if the output is for a program; people have read the progress.
func (a *app) jsonAsWell(v any) error {
	if !a.json {
		return nil
	}
	return a.printJSON(v)
}

// changed reports whether a volume that is ready has the size and the parameters
// that its spec asks for, on the nodes that have it mounted, too; or why it will
// not have them.
func changed(w *watcher, v *api.VolumeInfo) (bool, error) {
	e, m := v.Status.Expansion, v.Status.Modification
	switch {
	case e != nil && e.Refused != "":
		return false, fmt.Errorf("it could not be expanded: %s; it stays as it is%s: ask for another size, or put capacity_min back to %s",
			plain(e.Refused), withSize(v.Status.Capacity), orZero(size(e.From)))
	case m != nil && m.Refused != "":
		return false, fmt.Errorf("its parameters could not be changed: %s; it stays as it is: correct mutable_parameters, or put the old values back", plain(m.Refused))
	case e != nil || growing(v):
		w.waits("to be expanded", v.Waits)
		return false, nil
	case m != nil:
		w.waits("to be modified", v.Waits)
		return false, nil
	}
	return true, nil
}

// growing reports whether a node is to grow now what is on the volume.
func growing(v *api.VolumeInfo) bool {
	for _, p := range v.Publications {
		if p.Status.NodeExpansion == 0 || p.Status.NodeExpansionRefused != "" {
			continue
		}
		for _, at := range v.Attachments {
			if at.NodeID == p.NodeID && at.Status.State == api.NodePublished {
				return true
			}
		}
	}
	return false
}

// later says that a volume has its size, and what is on it does not yet.
func later(v *api.VolumeInfo) string {
	if v.Status.NodeExpansion == 0 {
		return ""
	}
	for _, p := range v.Publications {
		if p.Status.NodeExpansionRefused != "" {
			return fmt.Sprintf(", and what is on it grows when it is mounted next: node %s could not while it is in use (%s)", p.NodeID, plain(p.Status.NodeExpansionRefused))
		}
	}
	return ", and what is on it grows when it is mounted next"
}

func withSize(n int64) string {
	if n == 0 {
		return ""
	}
	return " (" + size(n) + ")"
}

func orZero(s string) string {
	if s == "" {
		return "0"
	}
	return s
}

// expansion is what is left to do for a volume to have the size that is asked for.
func expansion(v *api.Volume) string {
	e := v.Status.Expansion
	switch {
	case e != nil && e.Refused != "":
		return fmt.Sprintf("to %s, refused: %s", size(v.Spec.CapacityMin), e.Refused)
	case e != nil:
		return "to " + size(v.Spec.CapacityMin)
	case v.Status.NodeExpansion > 0:
		return fmt.Sprintf("done, and what is on it is to grow to %s", size(v.Status.NodeExpansion))
	}
	return ""
}

// modification is what is left to do for a volume to have its parameters.
func modification(v *api.Volume) string {
	switch m := v.Status.Modification; {
	case m == nil:
		return ""
	case m.Refused != "":
		return fmt.Sprintf("to %s, refused: %s", pairs(v.Spec.MutableParameters), m.Refused)
	}
	return "to " + pairs(v.Spec.MutableParameters)
}

// pairs are names with their values, in the order of the names.
func pairs(m map[string]string) string {
	words := make([]string, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		words = append(words, k+"="+m[k])
	}
	return strings.Join(words, ", ")
}

// growth shows on which nodes what is on a volume has to grow, if it has.
func (a *app) growth(publications []*api.Publication) {
	var rows [][]string
	for _, p := range publications {
		if s := p.Status; s.NodeExpansion > 0 {
			rows = append(rows, []string{string(p.NodeID), size(s.NodeExpansion), orDash(s.NodeExpansionRefused)})
		}
	}
	if len(rows) > 0 {
		a.section("To grow on nodes")
		a.table("NODE TO REFUSED", rows)
	}
}
