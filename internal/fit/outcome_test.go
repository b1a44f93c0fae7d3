package fit_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/fit"
)

// TestJudgeReadsEveryCode compares what each code means for each call with a
// table: done, agreed (if something else says so), again (the call is repeated) or over (it has failed for good);
// a question mark says that its effect is not known.
func TestJudgeReadsEveryCode(t *testing.T) {
	t.Parallel()
	codes := append(fit.Codes(), "CODE(17)", "")
	kinds := append(api.OperationKinds(), "unknown")
	var b strings.Builder
	fmt.Fprintf(&b, "%-20s", "")
	for _, kind := range kinds {
		fmt.Fprintf(&b, "%-16s", kind)
	}
	for _, code := range codes {
		fmt.Fprintf(&b, "\n%-20s", code)
		for _, kind := range kinds {
			fmt.Fprintf(&b, "%-16s", word(fit.Judge(kind, code)))
		}
	}
	lines := strings.Split(b.String(), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	golden(t, "testdata/judge.txt", strings.Join(lines, "\n")+"\n")
}

func word(v fit.Verdict) string {
	w := "over"
	switch {
	case v.Agreed:
		w = "agreed"
	case v.Done:
		w = "done"
	case v.Retry:
		w = "again"
	}
	if !v.Certain {
		w += "?"
	}
	return w
}

func TestNoUncertainOutcomeIsTheLast(t *testing.T) {
	t.Parallel()
	for _, kind := range api.OperationKinds() {
		for _, code := range []string{"DEADLINE_EXCEEDED", "UNAVAILABLE", "INTERNAL", "UNKNOWN", "ABORTED", "CANCELLED", "new in gRPC"} {
			if v := fit.Judge(kind, code); v.Certain || v.Done || !v.Retry {
				t.Errorf("%s of a %s = %+v, want that it is repeated until it is known", code, kind, v)
			}
		}
	}
}

func TestWhatUndoesSomethingNeverFailsForGood(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"INVALID_ARGUMENT", "ALREADY_EXISTS", "OUT_OF_RANGE", "UNIMPLEMENTED", "NOT_FOUND"} {
		for _, kind := range []api.OperationKind{api.OperationCreate, api.OperationExpand, api.OperationModify, api.OperationSnapshot} {
			if kind == api.OperationCreate && code == "ALREADY_EXISTS" {
				continue // an earlier attempt has made it: it is looked for
			}
			if v := fit.Judge(kind, code); v.Retry || v.Done || !v.Certain {
				t.Errorf("%s of a %s = %+v, want an end", code, kind, v)
			}
		}
		for _, kind := range []api.OperationKind{api.OperationDelete, api.OperationPublish, api.OperationUnpublish, api.OperationDeleteSnapshot} {
			if v := fit.Judge(kind, code); !v.Retry && !v.Done {
				t.Errorf("%s of a %s = %+v, want no end: what it is to undo would leak", code, kind, v)
			}
		}
	}
}

func TestBackoffDoublesUpToItsCeiling(t *testing.T) {
	t.Parallel()
	base := time.Second
	for failures := 1; failures < 40; failures++ {
		for _, subject := range []string{"a", "publish/default/pg/n1@7", "ø"} {
			got := fit.Backoff(subject, failures)
			if got < base || got >= base+base/4 {
				t.Errorf("after %d failures = %s, want at least %s and less than a quarter more", failures, got, base)
			}
			if again := fit.Backoff(subject, failures); again != got {
				t.Errorf("after %d failures = %s, then %s: want the same", failures, got, again)
			}
		}
		base = min(2*base, 5*time.Minute)
	}
	for _, failures := range []int{-1, 0, 1} {
		if got := fit.Backoff("a", failures); got < time.Second || got >= 1250*time.Millisecond {
			t.Errorf("after %d failures = %s, want about a second", failures, got)
		}
	}
	if got := fit.Backoff("a", math.MaxInt); got < 5*time.Minute || got >= 375*time.Second {
		t.Errorf("after very many failures = %s, want about five minutes", got)
	}
}

func TestBackoffSpreadsWhatFailedTogether(t *testing.T) {
	t.Parallel()
	seen := map[time.Duration]bool{}
	for i := range 1000 {
		seen[fit.Backoff(fmt.Sprintf("publish/default/volume-%d/n1@%d", i, i), 4).Truncate(20*time.Millisecond)] = true
	}
	if len(seen) < 90 { // of a hundred slots in the two seconds
		t.Errorf("a thousand operations that failed together come back at %d moments, want them spread", len(seen))
	}
}

func TestLingersIsForCallsWhoseOwnAnswerNeverCame(t *testing.T) {
	t.Parallel()
	deadline := time.Date(2026, time.January, 1, 12, 0, 0, 0, time.UTC)
	before, after := deadline.Add(-time.Minute), deadline.Add(time.Second)
	for code, want := range map[string][2]time.Time{
		"DEADLINE_EXCEEDED": {deadline.Add(30 * time.Second), deadline.Add(31 * time.Second)},
		"CANCELLED":         {deadline.Add(30 * time.Second), deadline.Add(31 * time.Second)},
		"UNAVAILABLE":       {deadline.Add(30 * time.Second), deadline.Add(31 * time.Second)},
		"ABORTED":           {deadline.Add(30 * time.Second), deadline.Add(31 * time.Second)},
		"INTERNAL":          {},
		"OK":                {},
	} {
		got := [2]time.Time{fit.Lingers(code, deadline, before), fit.Lingers(code, deadline, after)}
		if got != want {
			t.Errorf("%s lingers until %v, want %v", code, got, want)
		}
	}
}
