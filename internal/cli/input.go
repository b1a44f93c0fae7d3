package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/spec"
)

// inputs are the flags that give values to the variables of files.
type inputs struct {
	set   []string
	files []string
}

func inputFlags(cmd *cobra.Command) *inputs {
	in := &inputs{}
	cmd.Flags().StringArrayVar(&in.set, "var", nil, "a value for one of the files' variables, NAME=VALUE; also "+spec.EnvPrefix+"NAME in the environment")
	cmd.Flags().StringArrayVar(&in.files, "var-file", nil, "a file of values for the files' variables, NAME = VALUE in HCL or JSON")
	return in
}

// values reads what was given for variables.
func (a *app) values(in *inputs) (*spec.Inputs, error) {
	values := &spec.Inputs{Getenv: a.Getenv}
	var p api.Problems
	for _, name := range in.files {
		src, err := a.readFile(name)
		if why, ok := errors.AsType[*fs.PathError](err); ok {
			err = why.Err
		}
		if err != nil {
			p.Merge(inFile(name, "cannot be read: "+err.Error(), ""))
			continue
		}
		p.Merge(values.File(name, src))
	}
	for _, one := range in.set {
		name, text, ok := strings.Cut(one, "=")
		if !ok || name == "" {
			return nil, Usage(fmt.Errorf("--var %q is not NAME=VALUE", one))
		}
		values.Set(name, text)
	}
	return values, p.Err("the input")
}

// unused reports values for variables that no file has.
func unused(values *spec.Inputs) error {
	if names := values.Unused(); len(names) > 0 {
		return Usage(fmt.Errorf("a value is given for %s, and no file has such a variable", strings.Join(names, ", ")))
	}
	return nil
}
