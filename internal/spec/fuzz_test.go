package spec_test

import (
	"errors"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/rogpeppe/go-internal/txtar"
	"github.com/zclconf/go-cty/cty"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/spec"
)

// FuzzParse asserts what holds for any input at all: no panic, errors that a
// user can act on, results that are valid, and a formatter that keeps them.
func FuzzParse(f *testing.F) {
	for _, path := range archives(f) {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(archive.Files[0].Data)
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		file, err := spec.Parse("a.hcl", src)
		if err != nil {
			checkError(t, err, src)
			return
		}
		checkFile(t, file)
		formatted, err := spec.Format("a.hcl", src)
		if err != nil {
			t.Fatalf("format: %v", err)
		}
		again, err := spec.Parse("a.hcl", formatted)
		if err != nil {
			t.Fatalf("parse what was formatted: %v\n%s", err, formatted)
		}
		if diff := cmp.Diff(withoutLines(file), withoutLines(again)); diff != "" {
			t.Errorf("formatting changes the meaning:\n%s", diff)
		}
	})
}

func archives(f *testing.F) []string {
	f.Helper()
	paths, err := filepath.Glob("testdata/*/*.txtar")
	if err != nil || len(paths) == 0 {
		f.Fatalf("find archives: %d found, %v", len(paths), err)
	}
	return paths
}

func checkError(t *testing.T, err error, src []byte) {
	t.Helper()
	var invalid *api.Error
	if !errors.As(err, &invalid) || invalid.Code != api.CodeInvalid || len(invalid.Fields) == 0 {
		t.Fatalf("the error is no api.Error with its problems: %v", err)
	}
	lines := strings.Count(string(src), "\n") + 2
	for i, f := range invalid.Fields {
		last := i == 100 // says how many more there are
		if f.Message == "" || f.Mend == "" || !last && (f.File != "a.hcl" || f.Line < 1 || f.Line > lines || f.Column < 1) {
			t.Errorf("the problem says too little: %+v", f)
		}
		if strings.Contains(f.Message+f.Path, "\n") {
			t.Errorf("the problem has several lines: %q", f.String())
		}
	}
}

func checkFile(t *testing.T, file *spec.File) {
	t.Helper()
	if len(file.Volumes)+len(file.Jobs) == 0 {
		t.Error("the file holds nothing, and that is no error")
	}
	for _, v := range file.Volumes {
		if err := v.Spec.Validate(); err != nil || v.ID == "" {
			t.Errorf("volume %q is not valid: %v", v.ID, err)
		}
	}
	for _, j := range file.Jobs {
		if err := j.Spec.Validate(); err != nil || j.ID == "" {
			t.Errorf("job %q is not valid: %v", j.ID, err)
		}
	}
}

// FuzzValues compares the values that are read with what HCL's own parser and
// evaluator make of the same text. What HCL reads as plain values must be read
// here, and must be the same.
func FuzzValues(f *testing.F) {
	for _, seed := range []string{
		"a = 1", "a = -1.5e3", "a = \"x\"", "a = true\nb = false", "a = [1, 2,\n 3,]", "a = {b = 1, \"c\" : 2\nd = 3}",
		"a = <<EOT\n x\n  y\nEOT\n", "a = <<-EOT\n  x\n    y\n\n  z\n  EOT\n", "a = \"\\n\\t\\u00e9\\\"\"", "a = \"$${x} %%{y} $x %y\"",
		"a = [[[]]]", "a = {}", "a = [<<E\nx\nE\n, 1]", "# c\na = 1 // d\n/* e */ b = 2", "a = \"\"", "a-b = 1", "a={b={c=[{d=\"e\"}]}}",
		"a = \"x\\\\\"", "a = \"\\U0001F600\"", "a = 0.1", "a = 1E2", "a = {\n\n b = 1,\n\n}", "é = \"é\"",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, attributes string) {
		want, plain := evaluate(attributes)
		if !plain {
			return
		}
		file, err := spec.Parse("a.hcl", []byte(task("config {\n"+attributes+"\n}")))
		if err != nil {
			t.Fatalf("HCL reads this as %v: %v", want, err)
		}
		got := file.Jobs[0].Spec.Groups[0].Tasks[0].Config
		if diff := cmp.Diff(want, got, cmpopts.EquateApprox(1e-12, 0)); diff != "" {
			t.Errorf("HCL and spec differ (-HCL +spec):\n%s", diff)
		}
	})
}

// evaluate is what HCL makes of the attributes, if all of them are plain values
// within the limits of package spec.
func evaluate(attributes string) (map[string]any, bool) {
	if strings.ContainsAny(attributes, "\x00\r") || !utf8.ValidString(attributes) {
		return nil, false
	}
	// The newline that Parse's own block ends with.
	file, diags := hclsyntax.ParseConfig([]byte(attributes+"\n"), "a.hcl", hcl.InitialPos)
	if diags.HasErrors() {
		return nil, false
	}
	body, ok := file.Body.(*hclsyntax.Body)
	if !ok || len(body.Blocks) > 0 {
		return nil, false
	}
	values := map[string]any{}
	for name, attribute := range body.Attributes {
		v, plain := literal(attribute.Expr, 0)
		if !plain {
			return nil, false
		}
		values[name] = v
	}
	return values, true
}

func literal(expr hclsyntax.Expression, depth int) (any, bool) {
	if depth > 20 {
		return nil, false
	}
	switch expr := expr.(type) {
	case *hclsyntax.LiteralValueExpr, *hclsyntax.TemplateExpr:
		return scalar(expr)
	case *hclsyntax.UnaryOpExpr:
		inner, ok := expr.Val.(*hclsyntax.LiteralValueExpr)
		if !ok || expr.Op != hclsyntax.OpNegate || inner.Val.Type() != cty.Number {
			return nil, false
		}
		return scalar(expr)
	case *hclsyntax.TupleConsExpr:
		list := []any{}
		for _, e := range expr.Exprs {
			v, plain := literal(e, depth+1)
			if !plain {
				return nil, false
			}
			list = append(list, v)
		}
		return list, true
	case *hclsyntax.ObjectConsExpr:
		object := map[string]any{}
		for _, item := range expr.Items {
			key, keyPlain := name(item.KeyExpr)
			v, plain := literal(item.ValueExpr, depth+1)
			if _, again := object[key]; again || key == "" || !keyPlain || !plain {
				return nil, false
			}
			object[key] = v
		}
		return object, true
	default:
		return nil, false
	}
}

// name is an object's key, if it is an identifier or a quoted string.
func name(expr hclsyntax.Expression) (string, bool) {
	key, ok := expr.(*hclsyntax.ObjectConsKeyExpr)
	if !ok {
		return "", false
	}
	if word := hcl.ExprAsKeyword(key.Wrapped); word != "" {
		return word, true
	}
	quoted, ok := key.Wrapped.(*hclsyntax.TemplateExpr)
	if !ok || key.ForceNonLiteral {
		return "", false
	}
	v, plain := scalar(quoted)
	text, ok := v.(string)
	return text, plain && ok
}

// scalar evaluates an expression that needs no variables.
func scalar(expr hclsyntax.Expression) (any, bool) {
	if template, ok := expr.(*hclsyntax.TemplateExpr); ok {
		for _, part := range template.Parts {
			if _, text := part.(*hclsyntax.LiteralValueExpr); !text {
				return nil, false
			}
		}
	}
	v, diags := expr.Value(nil)
	if diags.HasErrors() || v.IsNull() {
		return nil, false
	}
	switch v.Type() {
	case cty.String:
		return v.AsString(), !strings.ContainsRune(v.AsString(), 0)
	case cty.Bool:
		return v.True(), true
	case cty.Number:
		n, _ := v.AsBigFloat().Float64()
		return n, math.Abs(n) <= 1<<53
	default:
		return nil, false
	}
}

// FuzzInputs asserts that no file of values, and no text for a variable, makes
// the package panic, and that what is wrong names its place.
func FuzzInputs(f *testing.F) {
	f.Add([]byte("image = \"a\"\nhosts = [1, \"x\"]\n"), "[1, {a = 2}]", "list(string)")
	f.Add([]byte(`{"image": {"a": [true]}}`), `"${NAME}"`, "any")
	f.Add([]byte("image = var.x\nimage {\n}\n"), "true", "bool")
	f.Fuzz(func(t *testing.T, src []byte, text, typ string) {
		var in spec.Inputs
		if err := in.File("values.hcl", src); err != nil {
			places(t, err)
		}
		in.Set("image", text)
		file := "variable \"image\" {\n  type = " + typ + "\n}\nlocals {\n  a = [var.image, \"${var.image}\"]\n}\n" + volume("name = var.image\nmount_options {\n  mount_flags = local.a\n}")
		if _, err := in.Parse("a.hcl", []byte(file)); err != nil {
			places(t, err)
		}
	})
}

// places checks that each problem of a file says where it is.
func places(t *testing.T, err error) {
	t.Helper()
	var invalid *api.Error
	if !errors.As(err, &invalid) || invalid.Code != api.CodeInvalid || len(invalid.Fields) == 0 {
		t.Fatalf("got the error %v, want one that names all problems", err)
	}
	for _, field := range invalid.Fields[:min(len(invalid.Fields), 100)] {
		if field.Message == "" || field.Mend == "" || field.Line < 1 || field.Column < 1 {
			t.Errorf("the problem %+v has no place, or no mend", field)
		}
	}
}
