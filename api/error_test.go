package api_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
)

// TestCodesListsEveryCode reads the constants from the source: a code that the
// list lacks would be missing in every table that is checked with it.
func TestCodesListsEveryCode(t *testing.T) {
	t.Parallel()
	file, err := parser.ParseFile(token.NewFileSet(), "error.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var declared []api.Code
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if typ, ok := spec.Type.(*ast.Ident); !ok || typ.Name != "Code" {
			return true
		}
		text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Error(err)
		}
		declared = append(declared, api.Code(text))
		return true
	})
	if diff := cmp.Diff(declared, api.Codes()); diff != "" {
		t.Errorf("declared codes (-) and Codes (+):\n%s", diff)
	}
}

// TestRetry: a code invites to repeat exactly if its comment says so.
func TestRetry(t *testing.T) {
	t.Parallel()
	invites := []api.Code{api.CodeUnavailable, api.CodeUncertain, api.CodeRolledBack, api.CodeRecovering}
	for _, code := range api.Codes() {
		if got, want := api.Errorf(code, "x").Retry, slices.Contains(invites, code); got != want {
			t.Errorf("%s: Retry = %v, want %v", code, got, want)
		}
	}
}

func TestErrorTexts(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"volume pg is in use": api.Errorf(api.CodeInUse, "volume %s is in use", "pg"),
		"the volume has 2 problems\n  a.hcl:3:7: capacity_min is negative; give a size\n  b.hcl: is empty": &api.Error{
			Code: api.CodeInvalid, Message: "the volume has 2 problems", Fields: []api.Field{
				{File: "a.hcl", Line: 3, Column: 7, Path: "capacity_min", Message: "is negative", Mend: "give a size"},
				{File: "b.hcl", Message: "is empty"},
			},
		},
		"it has a problem\n  read x: no such file": func() error {
			var p api.Problems
			p.Merge(errors.New("read x: no such file"))
			return p.Err("it")
		}(),
		"it has 2 problems\n  a is b; c\n  d is e; f": func() error {
			var inner, p api.Problems
			inner.Add("a", "is b", "c")
			p.Merge(nil)
			p.Merge(fmt.Errorf("check: %w", inner.Err("something else")))
			p.Addf("d", "f", "is %s", "e")
			return p.Err("it")
		}(),
	} {
		if diff := cmp.Diff(want, err.Error()); diff != "" {
			t.Errorf("text (-want +got):\n%s", diff)
		}
	}
	var none api.Problems
	if err := none.Err("it"); err != nil {
		t.Errorf("no problems are the error %v, want nil", err)
	}
}

func TestErrorIsComparesCodes(t *testing.T) {
	t.Parallel()
	gone := api.Errorf(api.CodeNotFound, "volume pg does not exist")
	wrapped := fmt.Errorf("apply: %w", gone)
	for name, tc := range map[string]struct {
		err, target error
		want        bool
	}{
		"SameCode":         {wrapped, &api.Error{Code: api.CodeNotFound}, true},
		"OtherCode":        {wrapped, &api.Error{Code: api.CodeConflict}, false},
		"Itself":           {wrapped, gone, true},
		"SameTextElsewise": {wrapped, api.Errorf(api.CodeNotFound, "volume pg does not exist"), false},
		"OtherType":        {wrapped, errors.New("volume pg does not exist"), false},
	} {
		if got := errors.Is(tc.err, tc.target); got != tc.want {
			t.Errorf("%s: Is = %v, want %v", name, got, tc.want)
		}
	}
}

func TestCodeOf(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		err  error
		want api.Code
	}{
		{nil, ""},
		{errors.New("x"), api.CodeInternal},
		{fmt.Errorf("a: %w", fmt.Errorf("b: %w", api.Errorf(api.CodeInUse, "c"))), api.CodeInUse},
		{errors.Join(errors.New("x"), api.Errorf(api.CodeConflict, "y"), api.Errorf(api.CodeInvalid, "z")), api.CodeConflict},
	} {
		if got := api.CodeOf(tc.err); got != tc.want {
			t.Errorf("CodeOf(%v) = %q, want %q", tc.err, got, tc.want)
		}
	}
}

// TestErrorJSON is the form of every error of the HTTP API.
func TestErrorJSON(t *testing.T) {
	t.Parallel()
	for want, e := range map[string]*api.Error{
		`{"code":"not_found","message":"gone"}`:             api.Errorf(api.CodeNotFound, "gone"),
		`{"code":"unavailable","message":"x","retry":true}`: api.Errorf(api.CodeUnavailable, "x"),
		`{"code":"invalid","message":"m","fields":[{"path":"p","message":"is q","mend":"r","file":"f","line":1,"column":2}]}`: {
			Code: api.CodeInvalid, Message: "m",
			Fields: []api.Field{{Path: "p", Message: "is q", Mend: "r", File: "f", Line: 1, Column: 2}},
		},
	} {
		got, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("JSON (-want +got):\n%s", diff)
		}
		var back api.Error
		if err := json.Unmarshal(got, &back); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(e, &back); diff != "" {
			t.Errorf("read back (-want +got):\n%s", diff)
		}
	}
}
