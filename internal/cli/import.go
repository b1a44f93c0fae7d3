package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
	"github.com/berth-dev/berth/internal/spec"
)

// uses are the flags that say how a volume may be used.
func uses(cmd *cobra.Command) *api.Capability {
	c := &api.Capability{AccessMode: api.SingleNodeWriter, AttachmentMode: api.FileSystem}
	cmd.Flags().StringVar((*string)(&c.AccessMode), "access-mode", string(c.AccessMode), "how many nodes and writers may use it: one of the `modes` of volume files")
	cmd.Flags().StringVar((*string)(&c.AttachmentMode), "attachment-mode", string(c.AttachmentMode), "`file-system or block-device`")
	return c
}

func (a *app) importCommand() *cobra.Command {
	var plugin, external, file string
	cmd := &cobra.Command{
		Use:   "import ID",
		Short: "Register a volume that exists already, after its plugin was asked",
		Long: "Registers a volume that the plugin has, under ID, or the volumes of a file, which have external_id. The plugin is asked\n" +
			"first whether it has it, and whether it can be used so; its capacity and context are taken from there. 'berth apply'\n" +
			"of a file with external_id registers without a question. Deleting a registered volume leaves its data at the provider.",
		Args: cobra.MaximumNArgs(1),
		// The id is a new one.
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	capability := uses(cmd)
	cmd.Flags().StringVar(&plugin, "plugin", "", "the `plugin` that has the volume")
	cmd.Flags().StringVar(&external, "external-id", "", "the plugin's `id` of the volume")
	cmd.Flags().StringVarP(&file, "file", "f", "", "the volumes of this `file`, which says all of them")
	in := inputFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if file != "" {
			if len(args) > 0 || plugin != "" || external != "" {
				return Usage(errors.New("the file says what is to be imported: leave out the id, --plugin and --external-id"))
			}
			return a.importFile(cmd.Context(), file, in)
		}
		if len(args) != 1 {
			return Usage(errors.New("give the id that the volume is to have, or a file with --file (see 'berth volume import --help')"))
		}
		c, err := a.client()
		if err != nil {
			return err
		}
		return a.imports(cmd.Context(), c, volumeName{a.ns(), api.VolumeID(args[0])}, api.VolumeSpec{
			PluginID: api.PluginID(plugin), ExternalID: external, Capabilities: []api.Capability{*capability},
		})
	}
	return cmd
}

func (a *app) adoptCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "adopt FINDING [ID]",
		Short: "Register a volume that was found and is not known",
		Long: "Registers a volume that 'berth volume leaks' lists as leak or retained, under ID, as 'berth volume import' does. Without\n" +
			"ID it gets the name that it had, if that is known, or that of the finding.",
		Args: cobra.RangeArgs(1, 2),
	}
	capability := uses(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := a.client()
		if err != nil {
			return err
		}
		f, _, err := c.Finding(cmd.Context(), api.FindingID(args[0]), client.Query{})
		if err != nil {
			return orList(err, "volume leaks")
		}
		id := cmp.Or(append(args, "", "")[1], string(f.VolumeID), string(f.ID))
		return a.imports(cmd.Context(), c, volumeName{a.ns(), api.VolumeID(id)}, api.VolumeSpec{
			PluginID: f.PluginID, ExternalID: f.ExternalID, Capabilities: []api.Capability{*capability},
		})
	}
	return cmd
}

// importFile imports the volumes of a file, one after the other, when all of them
// can be. With --json it prints a list.
func (a *app) importFile(ctx context.Context, name string, in *inputs) error {
	all, err := a.parse([]string{name}, in)
	switch {
	case err != nil:
		return err
	case len(all.Jobs) > 0 || len(all.Volumes) == 0:
		return Usage(fmt.Errorf("%s has %d volumes and %d jobs; give a file of volumes", name, len(all.Volumes), len(all.Jobs)))
	}
	a.warn("", all.Warnings)
	c, err := a.client()
	if err != nil {
		return err
	}
	if err := a.checkImports(ctx, c, all.Volumes); err != nil {
		return err
	}
	done := []api.VolumeInfo{}
	for _, v := range all.Volumes {
		ns := a.orDefault(v.Namespace)
		info, err := c.ImportVolume(ctx, ns, v.ID, v.Spec)
		if err != nil {
			return fmt.Errorf("import volume %s/%s: %w", ns, v.ID, err)
		}
		a.imported(&info)
		done = append(done, info)
	}
	if a.json {
		return a.printJSON(done)
	}
	return nil
}

// checkImports says all that stands against importing volumes, before one of them is.
func (a *app) checkImports(ctx context.Context, c *client.Client, volumes []spec.Volume) error {
	if len(volumes) == 1 {
		return nil // importing it says the same
	}
	var wrong []error
	first := map[[2]string]string{} // by plugin and its id
	for _, v := range volumes {
		name := fmt.Sprintf("volume %s/%s", a.orDefault(v.Namespace), v.ID)
		_, err := c.CheckImport(ctx, a.orDefault(v.Namespace), v.ID, v.Spec)
		at := [2]string{string(v.Spec.PluginID), v.Spec.ExternalID}
		if err == nil && first[at] != "" {
			err = Usage(fmt.Errorf("has the external_id %q, which %s has too", v.Spec.ExternalID, first[at]))
		}
		if first[at] = name; err != nil {
			wrong = append(wrong, fmt.Errorf("import %s: %w", name, err))
		}
	}
	if wrong == nil {
		return nil
	}
	return fmt.Errorf("nothing was imported: %w", errors.Join(wrong...))
}

func (a *app) imports(ctx context.Context, c *client.Client, vol volumeName, spec api.VolumeSpec) error {
	v, err := c.ImportVolume(ctx, vol.ns, vol.id, spec)
	if err != nil || a.json {
		return a.orJSON(v, err)
	}
	a.imported(&v)
	return nil
}

// imported says what an import has done.
func (a *app) imported(v *api.VolumeInfo) {
	if a.json {
		return
	}
	note := ""
	if v.Status.Capacity > 0 {
		note = " (" + size(v.Status.Capacity) + ")"
	}
	a.progress("volume %s/%s is registered%s", v.Namespace, v.ID, note)
	for _, w := range v.Warnings {
		a.none("warning: " + plain(w.String()))
	}
}

func (a *app) deregisterCommand() *cobra.Command {
	var wait *waiting
	cmd := &cobra.Command{
		Use:   "deregister ID",
		Short: "Forget a volume, and leave its data at the provider",
		Long:  "Forgets a volume, and leaves its data at the provider: the same as 'berth volume delete --reclaim retain'.",
		Args:  cobra.ExactArgs(1),
	}
	wait = waitFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := a.client()
		if err != nil {
			return err
		}
		id := api.VolumeID(args[0])
		v, err := c.ReclaimVolume(cmd.Context(), a.ns(), id, api.ReclaimRetain)
		if err != nil {
			return search{a, c, "volume"}.notFound(cmd.Context(), args[0], orRepeat(err))
		}
		return a.going(cmd.Context(), c, wait, volumeName{a.ns(), id}, goneAs(v))
	}
	return cmd
}

// volumeName names a volume.
type volumeName struct {
	ns api.NamespaceID
	id api.VolumeID
}

// going waits until a volume is gone, if that is to be waited for.
func (a *app) going(ctx context.Context, c *client.Client, wait *waiting, vol volumeName, how string) error {
	if wait.detach {
		a.progress("volume %s/%s is to be %s", vol.ns, vol.id, how)
		return nil
	}
	ctx, cancel := wait.limit(ctx)
	defer cancel()
	return a.wait(ctx, func(ctx context.Context) error { return a.awaitGone(ctx, c, vol.ns, vol.id, how) })
}
