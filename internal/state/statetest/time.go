package statetest

import (
	"regexp"
	"strings"
	"time"
)

// Now is the present in every world.
func Now() time.Time { return time.Date(2026, time.January, 1, 12, 0, 0, 0, time.UTC) }

// Time reads a time as a world writes it: now, now-5m, or RFC 3339.
func Time(tb TB, text string) time.Time {
	tb.Helper()
	text = strings.TrimSpace(text)
	t, err := time.Parse(time.RFC3339Nano, strings.Trim(string(absolute([]byte(`"`+text+`"`))), `"`))
	if err != nil {
		tb.Fatalf("read time %q: %v", text, err)
	}
	return t
}

// How a world writes times, and how JSON does.
var (
	relativeTime = regexp.MustCompile(`"now([+-][0-9][0-9a-zµ.]*)?"`)
	absoluteTime = regexp.MustCompile(`"\d{4}-\d\d-\d\dT[0-9:.]+Z"`)
)

// absolute puts RFC 3339 in the place of times that count from now.
func absolute(text []byte) []byte {
	return relativeTime.ReplaceAllFunc(text, func(word []byte) []byte {
		t := Now()
		if offset := strings.TrimPrefix(strings.Trim(string(word), `"`), "now"); offset != "" {
			d, err := time.ParseDuration(offset)
			if err != nil {
				return word
			}
			t = t.Add(d)
		}
		return []byte(`"` + t.Format(time.RFC3339Nano) + `"`)
	})
}

// far is as far from now as times are written by their distance.
const far = 100 * 365 * 24 * time.Hour

// Relative puts the distance from now in the place of every RFC 3339 time in
// quotes: "now-5m".
func Relative(text string) string {
	return absoluteTime.ReplaceAllStringFunc(text, func(word string) string {
		t, err := time.Parse(time.RFC3339Nano, strings.Trim(word, `"`))
		if d := t.Sub(Now()); err == nil && d.Abs() < far {
			return `"now` + offset(d) + `"`
		}
		return word
	})
}

// offset is a distance as people write it: +1h, not +1h0m0s.
func offset(d time.Duration) string {
	if d == 0 {
		return ""
	}
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	if d > 0 {
		text = "+" + text
	}
	return text
}
