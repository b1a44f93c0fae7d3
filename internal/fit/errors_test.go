package fit_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/fit"
)

// errorsPage is the documentation of the codes. What stands below the mark is
// made from the table, and written by the test with -update.
const (
	errorsPage = "../../docs/errors.md"
	errorsMark = "<!-- From here on made from the table: go test ./internal/fit -run Page -update -->\n"
)

// TestPageIsTheTable compares docs/errors.md with the table of all answers.
func TestPageIsTheTable(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(errorsPage)
	if err != nil {
		t.Fatal(err)
	}
	prose, have, found := strings.Cut(string(b), errorsMark)
	if !found {
		t.Fatalf("%s has no line %s", errorsPage, errorsMark)
	}
	want := errorTables()
	if *update {
		if err := os.WriteFile(errorsPage, []byte(prose+errorsMark+want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("%s is not what the table says; run the test with -update (-table +page):\n%s", errorsPage, diff)
	}
}

func errorTables() string {
	var b strings.Builder
	for _, kind := range api.OperationKinds() {
		fmt.Fprintf(&b, "\n## %s: %s\n\n| Code | Means | Its effect | Repeated | What becomes of it |\n|---|---|---|---|---|\n", kind, fit.CallOf(kind))
		for _, code := range fit.Codes() {
			a := fit.Read(kind, code)
			effect, repeated := "none", "no"
			switch {
			case a.Agreed:
				effect, repeated = "done, if something agrees", "until then"
			case a.Done:
				effect = "done"
			case !a.Certain:
				effect = "not known"
			}
			if a.Retry {
				repeated = "yes"
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", code, a.Says, effect, repeated, a.Then)
		}
	}
	return b.String()
}

// TestEveryAnswerIsWholeSentences: whatever a plugin answers, its user reads
// what that means and what becomes of it, for every code and kind of call.
func TestEveryAnswerIsWholeSentences(t *testing.T) {
	t.Parallel()
	for _, kind := range api.OperationKinds() {
		for _, code := range append(fit.Codes(), "CODE(17)", "") {
			t.Run(fmt.Sprintf("%s/%s", kind, code), func(t *testing.T) {
				t.Parallel()
				a := fit.Read(kind, code)
				for what, s := range map[string]string{"what it says": a.Says, "what then": a.Then} {
					if !strings.HasSuffix(s, ".") || s[:1] != strings.ToUpper(s[:1]) {
						t.Errorf("%s is %q, want sentences", what, s)
					}
				}
				if a.Done && (a.Retry || !a.Certain) || a.Agreed && !a.Done {
					t.Errorf("the verdict contradicts itself: %+v", a.Verdict)
				}
				if !a.Certain && !a.Retry {
					t.Errorf("an uncertain outcome is forgotten: %+v", a.Verdict)
				}
			})
		}
	}
}

// TestCodesThatLeaveTheEffectUnknown: anchors 1.8. A plugin that went away, did
// not answer, is busy, or failed inside may have done what it was asked for.
func TestCodesThatLeaveTheEffectUnknown(t *testing.T) {
	t.Parallel()
	for _, kind := range api.OperationKinds() {
		for _, code := range []string{"ABORTED", "DEADLINE_EXCEEDED", "UNAVAILABLE", "INTERNAL", "UNKNOWN", "CANCELLED", "DATA_LOSS"} {
			if v := fit.Judge(kind, code); v != (fit.Verdict{Retry: true}) {
				t.Errorf("%s of a %s = %+v, want uncertain, and repeated", code, kind, v)
			}
		}
	}
}
