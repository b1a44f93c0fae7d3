package cli

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/api"
)

// examples are files to start from. The tests apply them.
//
//go:embed example/*.hcl
var examples embed.FS

func (a *app) initVolumeCommand() *cobra.Command {
	plugin := "local"
	cmd := &cobra.Command{
		Use:   "init [FILE]",
		Short: "Write an example of a volume file, to start from",
		Long: "Writes a volume file with comments to FILE, volume.hcl if none is named; - is the standard output. A file that is\n" +
			"there already is not touched.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			var p api.Problems
			p.Name("--plugin", plugin)
			if err := p.Err("the command"); err != nil {
				return err
			}
			example := "volume.hcl"
			if plugin == "local" {
				example = "volume-local.hcl"
			}
			return a.writeExample(example, append(args, "volume.hcl")[0], plugin)
		},
	}
	cmd.Flags().StringVar(&plugin, "plugin", plugin, "the `plugin` that is to make the volume")
	return cmd
}

func (a *app) initJobCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "init [FILE]",
		Short: "Write an example of a job file, to start from",
		Long: "Writes a job file with comments to FILE, job.hcl if none is named; - is the standard output. A file that is there\n" +
			"already is not touched. The job uses the volume that berth volume init writes.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return a.writeExample("job.hcl", append(args, "job.hcl")[0], "")
		},
	}
}

// writeExample writes an example to a new file.
func (a *app) writeExample(example, name, plugin string) error {
	b, err := examples.ReadFile("example/" + example)
	if err != nil {
		return err
	}
	text := strings.ReplaceAll(string(b), "PLUGIN", plugin)
	if name == "-" {
		_, err := fmt.Fprint(a.Stdout, text)
		return err
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		mend := ""
		if errors.Is(err, fs.ErrExist) {
			mend = "name another file, or remove it"
		}
		var p api.Problems
		p.Merge(inFile(name, "cannot be written: "+why(err), mend))
		return p.Err("the output")
	}
	_, err = f.WriteString(text)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	a.progress("%s is written; change what is to be changed, then run 'berth apply %s'", name, name)
	return nil
}
