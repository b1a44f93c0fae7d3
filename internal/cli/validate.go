package cli

import (
	"cmp"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/spec"
)

func (a *app) validateCommand() *cobra.Command {
	var in *inputs
	cmd := &cobra.Command{
		Use:   "validate FILE...",
		Short: "Check volume and job files, without a server",
		Long: "Reads volume and job files (HCL or JSON; - is the standard input) and reports every problem of all of them,\n" +
			"with its place and what to write instead. With --json it prints what it has understood, in the API's own form,\n" +
			"which berth apply takes as well, without secrets. What only the servers know, whether a volume can be changed, is\n" +
			"not checked.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, files []string) error {
			all, err := a.parse(files, in)
			if err != nil {
				return err
			}
			a.warn("", all.Warnings)
			if a.json {
				return a.printJSON(a.asRows(all))
			}
			for _, v := range all.Volumes {
				a.progress("volume %s/%s is valid", a.orDefault(v.Namespace), v.ID)
			}
			for _, j := range all.Jobs {
				a.progress("job %s/%s is valid", a.orDefault(j.Namespace), j.ID)
			}
			return nil
		},
	}
	in = inputFlags(cmd)
	return cmd
}

// specRow is an object of a file in the form of the API's rows.
type specRow struct {
	Namespace api.NamespaceID `json:"namespace"`
	ID        string          `json:"id"`
	Spec      any             `json:"spec"`
}

// understood is what files hold, in the form that berth apply prints and reads.
type understood struct {
	Volumes []specRow `json:"volumes"`
	Jobs    []specRow `json:"jobs"`
}

func (a *app) asRows(f *spec.File) understood {
	u := understood{Volumes: []specRow{}, Jobs: []specRow{}}
	for _, v := range f.Volumes {
		v.Spec.Secrets = nil // what they are is the file's to know
		u.Volumes = append(u.Volumes, specRow{cmp.Or(v.Namespace, a.ns()), string(v.ID), v.Spec})
	}
	for _, j := range f.Jobs {
		u.Jobs = append(u.Jobs, specRow{cmp.Or(j.Namespace, a.ns()), string(j.ID), j.Spec})
	}
	return u
}
