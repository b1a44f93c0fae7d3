package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/spec"
)

// formatting is one run of berth fmt.
type formatting struct {
	*app
	check, diff, recursive bool
	// changed are the files that are not as they should be.
	changed []string
}

func (a *app) fmtCommand() *cobra.Command {
	f := &formatting{app: a}
	cmd := &cobra.Command{
		Use:   "fmt [FILE|DIRECTORY]...",
		Short: "Lay volume and job files out in the canonical style",
		Long: "Formats files, HCL or JSON, in place, and prints the names of those that it changed. Comments stay. Of a\n" +
			"directory it takes the files called *.hcl, of . if nothing is named; - is the standard input, which is\n" +
			"formatted to the standard output. Only what can be read is formatted; whether it can be applied is not asked.",
		Args: cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, names []string) error {
			if len(names) == 0 {
				names = []string{"."}
			}
			return f.run(names)
		},
	}
	cmd.Flags().BoolVar(&f.check, "check", false, "change nothing; exit status 1 if a file is not formatted")
	cmd.Flags().BoolVar(&f.diff, "diff", false, "change nothing; print what would be changed")
	cmd.Flags().BoolVarP(&f.recursive, "recursive", "r", false, "take the directories in directories too; hidden ones are left out")
	return cmd
}

// run formats all that can be formatted, and reports the problems of the rest.
func (f *formatting) run(names []string) error {
	var p api.Problems
	for _, name := range names {
		files, err := f.files(name)
		if err != nil {
			p.Merge(inFile(name, "cannot be read: "+why(err), ""))
			continue
		}
		for _, file := range files {
			if err := f.file(file); err != nil {
				if _, problems := errors.AsType[*api.Error](err); !problems {
					err = inFile(file, why(err), "")
				}
				p.Merge(err)
			}
		}
	}
	if f.json {
		if f.changed == nil {
			f.changed = []string{}
		}
		if err := f.printJSON(f.changed); err != nil {
			return err
		}
	}
	if err := p.Err("the input"); err != nil {
		return err
	}
	if f.check && len(f.changed) > 0 {
		return fmt.Errorf("%s not formatted (use 'berth fmt')", counted(len(f.changed), "file is", "files are"))
	}
	return nil
}

// why is an error of the file system without the path, which is said already.
func why(err error) string {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err.Error()
	}
	return err.Error()
}

func counted(n int, one, several string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, several)
}

// files are those that a name stands for.
func (f *formatting) files(name string) ([]string, error) {
	if name == "-" {
		return []string{name}, nil
	}
	info, err := os.Stat(name)
	if err != nil || !info.IsDir() {
		return []string{name}, err
	}
	var files []string
	err = filepath.WalkDir(name, func(path string, d fs.DirEntry, err error) error {
		hidden := strings.HasPrefix(d.Name(), ".") && path != name
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != name && (hidden || !f.recursive):
			return filepath.SkipDir
		case d.Type().IsRegular() && !hidden && filepath.Ext(path) == ".hcl":
			files = append(files, path)
		}
		return nil
	})
	return files, err
}

func (f *formatting) file(name string) error {
	src, err := f.readFile(name)
	if err != nil {
		return err
	}
	shown := name
	if name == "-" {
		shown = "stdin"
	}
	formatted, err := spec.Format(shown, src)
	if err != nil {
		return err
	}
	same := bytes.Equal(src, formatted)
	if !same {
		f.changed = append(f.changed, shown)
	}
	switch {
	case name == "-" && !f.check && !f.diff && !f.json:
		_, err := f.Stdout.Write(formatted)
		return err
	case same:
		return nil
	case f.diff && !f.json:
		_, err := f.Stdout.Write(diff.Diff(shown+" (as it is)", src, shown+" (formatted)", formatted))
		return err
	case f.check, f.diff, name == "-":
		f.progress("%s", shown)
		return nil
	}
	if err := replace(name, formatted); err != nil {
		return err
	}
	f.progress("%s", shown)
	return nil
}

// replace writes a file that somebody may be reading, and that a crash must not
// lose: the new content beside it, then in its place. A link stays a link.
func replace(name string, content []byte) error {
	name, err := filepath.EvalSymlinks(name)
	if err != nil {
		return err
	}
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	next, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*")
	if err != nil {
		return err
	}
	_, err = next.Write(content)
	err = errors.Join(err, next.Chmod(info.Mode().Perm()), next.Sync(), next.Close())
	if err == nil {
		err = os.Rename(next.Name(), name)
	}
	if err != nil {
		_ = os.Remove(next.Name()) // the file itself is as it was
	}
	return err
}
