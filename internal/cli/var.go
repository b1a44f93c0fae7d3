package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
	"github.com/berth-dev/berth/internal/spec"
)

func (a *app) varCommand() *cobra.Command {
	get := &cobra.Command{
		Use: "get PATH", Short: "Show a variable with its values", Args: cobra.ExactArgs(1),
		Long: "Shows a variable with its values. No other command does. --item prints one value and nothing else, as it was put.",
	}
	item := get.Flags().String("item", "", "print the value of this `key` alone")
	get.RunE = func(cmd *cobra.Command, args []string) error { return a.getVariable(cmd, args[0], *item) }
	return group("var", "Variables: what jobs read and no file holds, sealed in the cluster",
		a.putVariableCommand(),
		get,
		&cobra.Command{
			Use: "list [PREFIX]", Short: "List the variables of the namespace, without their values", Args: cobra.MaximumNArgs(1), RunE: a.listVariables,
		},
		&cobra.Command{
			Use: "delete PATH...", Short: "Delete variables", Args: cobra.MinimumNArgs(1), RunE: a.deleteVariables,
			Long: "Deletes variables. Unless all of them are there, none is deleted. A task that has read one keeps what it has read, and waits\n" +
				"for it when it starts again.",
		},
	)
}

func (a *app) putVariableCommand() *cobra.Command {
	var when restsOn
	var language string
	cmd := &cobra.Command{
		Use:   "put PATH KEY=VALUE...|@FILE|-",
		Short: "Put items under a path, in the place of those that are there",
		Long: "Puts items under a path, in the place of all that are there. They are KEY=VALUE, of which KEY=@FILE takes the value from a\n" +
			"file, KEY=@- from the standard input, and KEY=\\@TEXT begins with an @; or those of @FILE, or - for the standard input, in HCL\n" +
			"(items { key = \"value\" }) or JSON, as 'berth var get --json' prints it. Such a file may also say path and namespace, and\n" +
			"what is typed counts before it. What is typed is in the shell's history, and what is read from a file or a pipe is not.\n" +
			"Tasks read the variables of their own namespace; nomad/jobs/JOB is the place of those of one job. The same again\n" +
			"changes nothing.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if when.version > 0 && when.createOnly {
				return Usage(errors.New("--check-version is for a variable that is there, and --create-only for one that is not: leave one out"))
			}
			v, err := a.readVariable(args, spec.Language(language))
			if err != nil {
				return err
			}
			if cmd.Flag("namespace").Changed || v.Namespace == "" {
				v.Namespace = a.ns()
			}
			return a.putVariable(cmd.Context(), v, when)
		},
	}
	conditionFlag(cmd, &when.version, "put them only if the variable has this `version`, which berth var list tells (default: any)", "berth var list")
	createFlag(cmd, &when.createOnly)
	cmd.Flags().StringVar(&language, "in", "", "what a file is written in, `hcl or json` (default: by its name, or how it begins)")
	_ = cmd.RegisterFlagCompletionFunc("in", cobra.FixedCompletions([]string{string(spec.HCL), string(spec.JSON)}, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
	return cmd
}

func (a *app) putVariable(ctx context.Context, v spec.Var, when restsOn) error {
	var p api.Problems
	p.VariablePath("path", v.Path)
	p.Merge(v.Spec.Validate())
	if err := p.Err("variable " + string(v.Path)); err != nil {
		return err
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	row, err := when.client(c).PutVariable(ctx, v.Namespace, v.Path, v.Spec, when.version)
	if err != nil || a.json {
		return a.orJSON(row, when.orRepeat(err))
	}
	a.progress("variable %s/%s is put (version %d: %s)", row.Namespace, row.Path, row.Version, strings.Join(row.Keys, ", "))
	for _, key := range row.Keys {
		if !api.PlainKey(key) {
			a.none(plain(fmt.Sprintf("warning: %q is no word: a template reads it with {{ index . %q }}", key, key)))
		}
	}
	return nil
}

// readVariable reads what is to be put from the arguments, and what they name.
// Errors repeat nothing that may be a value.
func (a *app) readVariable(args []string, in spec.Language) (spec.Var, error) {
	if in != "" && in != spec.HCL && in != spec.JSON {
		return spec.Var{}, Usage(fmt.Errorf("--in is %q; use hcl or json", in))
	}
	r := &variableReader{app: a, in: in}
	path := args[0]
	if path == "-" || strings.HasPrefix(path, "@") {
		path = "" // of the file
	} else if args = args[1:]; len(args) == 0 {
		return spec.Var{}, Usage(errors.New("berth var put needs KEY=VALUE..., @FILE or - (see 'berth var put --help')"))
	}
	items := map[string]string{}
	for i, arg := range args {
		if err := r.read(i, arg, items); err != nil {
			return spec.Var{}, err
		}
	}
	v := r.file
	if path != "" {
		v.Path = api.VariablePath(path)
	}
	if v.Path == "" {
		return v, Usage(fmt.Errorf("%s says no path, and none is given: berth var put PATH %s", r.from, cleanSource(r.from)))
	}
	if v.Spec.Items == nil {
		v.Spec.Items = map[string]string{}
	}
	maps.Copy(v.Spec.Items, items)
	return v, nil
}

// variableReader reads arguments one after the other.
type variableReader struct {
	app *app
	in  spec.Language
	// file is what a file said, and from its name.
	file spec.Var
	from string
	// piped: the standard input has been read.
	piped bool
}

func (r *variableReader) read(i int, arg string, items map[string]string) error {
	if name, isFile := strings.CutPrefix(arg, "@"); isFile || arg == "-" {
		if r.from != "" {
			return Usage(fmt.Errorf("argument %d is a second file: give one, and other items as KEY=VALUE", i+1))
		}
		src, name, err := r.source(name, arg == "-")
		if err != nil {
			return err
		}
		r.from = name
		r.file, err = spec.ParseVar(name, src, r.in)
		return err
	}
	key, text, ok := strings.Cut(arg, "=")
	if !ok || key == "" {
		return Usage(fmt.Errorf("argument %d of the items is not KEY=VALUE, @FILE or - (see 'berth var put --help')", i+1))
	}
	if _, again := items[key]; again {
		return Usage(fmt.Errorf("%s is given twice", key))
	}
	if name, isFile := strings.CutPrefix(text, "@"); isFile {
		src, name, err := r.source(name, name == "-")
		if err != nil {
			return err
		}
		text = string(src)
		if rest, ended := strings.CutSuffix(text, "\n"); ended && !strings.Contains(rest, "\n") {
			r.app.none(plain(fmt.Sprintf("warning: the value of %s ends with a line end, as %s does", key, name)))
		}
	} else if strings.HasPrefix(text, `\@`) {
		text = text[1:]
	}
	if !utf8.ValidString(text) {
		return Usage(fmt.Errorf("the value of %s is no text in UTF-8: encode it, as base64 for one", key))
	}
	items[key] = text
	return nil
}

// source is a file that an argument names, and what errors call it.
func (r *variableReader) source(name string, piped bool) (src []byte, called string, err error) {
	if piped {
		if r.piped {
			return nil, "", Usage(errors.New("the standard input is to be read twice: it can be one value, or all"))
		}
		r.piped, name, called = true, "-", "stdin"
	} else {
		called = name
	}
	src, err = r.app.readFile(name)
	if why, ok := errors.AsType[*fs.PathError](err); ok {
		err = why.Err
	}
	var p api.Problems
	switch {
	case err != nil:
		p.Merge(inFile(called, "cannot be read: "+err.Error(), ""))
	case len(src) > spec.MaxFileSize:
		p.Merge(inFile(called, fmt.Sprintf("is larger than %d KiB", spec.MaxFileSize>>10), "make several variables"))
	}
	return src, called, p.Err("the input")
}

// cleanSource is how a file that was read is written as an argument.
func cleanSource(from string) string {
	if from == "stdin" {
		return "-"
	}
	return "@" + from
}

func (a *app) getVariable(cmd *cobra.Command, path, item string) error {
	if item != "" && a.json {
		return Usage(errors.New("--item prints a value, and --json and --template the whole variable: leave one out"))
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	v, _, err := c.Variable(cmd.Context(), a.ns(), api.VariablePath(path), client.Query{})
	if err != nil {
		// The beginning of a path reads nothing: a script would get another's secret.
		return search{a, c, "var"}.notFound(cmd.Context(), path, err)
	}
	if item != "" {
		text, there := v.Items[item]
		if !there {
			return fmt.Errorf("variable %s has no item %s: it has %s", path, item, strings.Join(v.Keys, ", "))
		}
		if a.columns() > 0 && !strings.HasSuffix(text, "\n") {
			text += "\n"
		}
		_, err := fmt.Fprint(a.Stdout, text)
		return err
	}
	if a.json {
		return a.printJSON(v)
	}
	a.facts("Path", string(v.Path), "Namespace", string(v.Namespace), "Version", fmt.Sprint(v.Version), "Changed", ago(v.ModifyTime), "Age", age(v.CreateTime))
	a.section("Items")
	for _, key := range v.Keys {
		a.print(fmt.Sprintf("  %s =%s", plain(key), indented(v.Items[key])))
	}
	return nil
}

// indented is a value as people read it. One of several lines stands below its key.
func indented(text string) string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for i := range lines {
		lines[i] = plain(lines[i])
	}
	if len(lines) == 1 {
		return strings.TrimRight(" "+lines[0], " ")
	}
	return "\n    " + strings.Join(lines, "\n    ")
}

func (a *app) listVariables(cmd *cobra.Command, args []string) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	q := client.Query{Namespace: a.ns()}
	none := a.inNamespace("variables")
	if len(args) > 0 {
		q.Prefix = args[0]
		none += " whose paths begin with " + args[0]
	}
	all, _, err := c.Variables(cmd.Context(), q)
	if err != nil || a.json {
		return a.orJSON(all, err)
	}
	rows := make([][]string, 0, len(all))
	for _, v := range all {
		rows = append(rows, []string{string(v.Path), fmt.Sprint(v.Version), a.when(v.ModifyTime), strings.Join(v.Keys, ",")})
	}
	a.list("PATH VERSION?2 CHANGED?1 KEYS~", rows, none)
	return nil
}

// deleteVariables deletes all, or none if one of them is not there.
func (a *app) deleteVariables(cmd *cobra.Command, args []string) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	var paths []string
	for _, path := range args {
		if !slices.Contains(paths, path) {
			paths = append(paths, path)
		}
	}
	var missing []error
	for _, path := range paths {
		q := client.Query{Namespace: a.ns(), Prefix: path, Filters: []string{client.Where("path", "==", path)}}
		found, _, err := c.Variables(cmd.Context(), q)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(found, func(v *api.Variable) bool { return string(v.Path) == path }) {
			err := api.Errorf(api.CodeNotFound, "variable %s does not exist in namespace %s", path, a.ns())
			missing = append(missing, search{a, c, "var"}.notFound(cmd.Context(), path, err))
		}
	}
	if len(missing) > 0 {
		if len(paths) > 1 {
			missing = append(missing, errors.New("nothing was deleted"))
		}
		return errors.Join(missing...)
	}
	for _, path := range paths {
		if err := c.DeleteVariable(cmd.Context(), a.ns(), api.VariablePath(path), 0); err != nil {
			return orRepeat(err)
		}
		a.progress("variable %s/%s is deleted", a.ns(), path)
	}
	return nil
}
