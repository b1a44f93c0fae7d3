package cron_test

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-dev/berth/internal/cron"
)

func at(s string) time.Time {
	t, err := time.Parse("2006-01-02 15:04:05", s)
	if err != nil {
		panic(err)
	}
	return t
}

func TestNext(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ expression, after, want string }{
		{"0 3 * * *", "2026-11-22 02:59:59", "2026-11-22 03:00:00"},
		{"0 3 * * *", "2026-11-22 03:00:00", "2026-11-23 03:00:00"},
		{"@hourly", "2026-11-22 03:00:01", "2026-11-22 04:00:00"},
		{"@daily", "2026-11-22 03:00:01", "2026-11-23 00:00:00"},
		{"*/15 8-18 * * mon-fri", "2026-11-20 18:45:00", "2026-11-23 08:00:00"},
		{"0 0 29 2 *", "2026-11-22 00:00:00", "2028-02-29 00:00:00"},
		// As cron(8) has it: one of both days is enough.
		{"0 0 1 * sun", "2026-11-23 00:00:00", "2026-11-29 00:00:00"},
	} {
		s, err := cron.Parse(test.expression)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Next(at(test.after)); !got.Equal(at(test.want)) {
			t.Errorf("%q after %s is due at %s, want %s", test.expression, test.after, got, test.want)
		}
		// The machine's time zone changes nothing.
		east := time.FixedZone("east", 5*60*60+1800)
		if got := s.Next(at(test.after).In(east)); !got.Equal(at(test.want)) || got.Location() != time.UTC {
			t.Errorf("%q after %s, in another zone, is due at %s, want %s", test.expression, test.after, got, test.want)
		}
	}
}

func TestWrongExpressionsSayHowToMendThem(t *testing.T) {
	t.Parallel()
	for expression, want := range map[string]string{
		"":                           "has 0 fields",
		"0 3 * *":                    "has 4 fields",
		"0 0 3 * * *":                "has 6 fields",
		"60 3 * * *":                 "cannot be read",
		"0 3 * * 7":                  "cannot be read",
		"x * * * *":                  "cannot be read",
		"CRON_TZ=Asia/Tokyo 0 3 * *": "names a time zone",
		"TZ=x":                       "names a time zone",
		"@every 1h":                  "is @every 1h",
		"@reboot":                    "is @reboot",
		"0 0 30 2 *":                 "is never due",
	} {
		message, mend := cron.Problem(expression)
		if !strings.HasPrefix(message, want) || mend == "" {
			t.Errorf("%q: %q, mend %q; want %q", expression, message, mend, want)
		}
		if _, err := cron.Parse(expression); err == nil {
			t.Errorf("%q can be read", expression)
		}
	}
}

// TestDueIsTheLastOfAll compares with counting one by one.
func TestDueIsTheLastOfAll(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s, err := cron.Parse(rapid.SampledFrom([]string{"* * * * *", "*/7 * * * *", "0 3 * * *", "@weekly", "0 0 1 1 *"}).Draw(t, "expression"))
		if err != nil {
			t.Fatal(err)
		}
		from := at("2026-11-22 00:00:00").Add(time.Duration(rapid.IntRange(0, 1<<20).Draw(t, "from")) * time.Second)
		now := from.Add(time.Duration(rapid.IntRange(0, 60*60*24*20).Draw(t, "passed")) * time.Second)
		var want time.Time
		count := 0
		for due := s.Next(from); !due.After(now); due = s.Next(due) {
			want = due
			count++
		}
		got, counted := s.Due(from, now)
		if !got.Equal(want) || counted != min(count, 1000) {
			t.Fatalf("from %s to %s: %s, the last of %d; want %s, of %d", from, now, got, counted, want, count)
		}
	})
}

// FuzzParse asserts that what has no problem can be read, and is due later.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"0 3 * * *", "@daily", "*/5 1-3,7 1 jan sun", "0 0 30 2 *", "TZ=UTC 0 3 * * *", "@every 1s", "99 * * * *", "* * *"} {
		f.Add(s)
	}
	from := at("2026-11-22 00:00:00")
	f.Fuzz(func(t *testing.T, expression string) {
		message, mend := cron.Problem(expression)
		s, err := cron.Parse(expression)
		if (message == "") != (err == nil) || (message == "") != (mend == "") {
			t.Fatalf("%q: problem %q, mend %q, and reading it says %v", expression, message, mend, err)
		}
		if err == nil && !s.Next(from).IsZero() && !s.Next(from).After(from) {
			t.Errorf("%q is due at %s after %s", expression, s.Next(from), from)
		}
	})
}
