// Package cron says when cron expressions are due, in UTC.
//
// It owns the form of expressions: five fields, or one of @hourly, @daily,
// @weekly, @monthly, @yearly. It never reads a clock. Invariant: the same
// expression and time give the same answer on every machine, whatever its time
// zone.
package cron

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// Schedule is an expression that has been read.
type Schedule struct {
	next cron.Schedule
}

// words stand for expressions.
func words() []string { return []string{"@yearly", "@monthly", "@weekly", "@daily", "@hourly"} }

// Parse reads an expression. The error says what is wrong with it.
func Parse(expression string) (Schedule, error) {
	if message, _ := Problem(expression); message != "" {
		return Schedule{}, fmt.Errorf("cron expression %q %s", expression, message)
	}
	s, err := parse(expression)
	return Schedule{s}, err
}

// Problem is what is wrong with an expression and how to mend it, or "".
func Problem(expression string) (message, mend string) {
	const rule = `write five fields, as in "0 3 * * *": minute 0-59, hour 0-23, day of month 1-31, month 1-12, day of week 0-6 from Sunday; in UTC`
	switch {
	case strings.Contains(expression, "="):
		return "names a time zone, and times are in UTC", "remove it, and write the time in UTC"
	case strings.HasPrefix(expression, "@") && !slices.Contains(words(), expression):
		return "is " + expression, "use one of " + strings.Join(words(), ", ") + ", or five fields"
	case !strings.HasPrefix(expression, "@") && len(strings.Fields(expression)) != 5:
		return fmt.Sprintf("has %d fields", len(strings.Fields(expression))), rule
	}
	s, err := parse(expression)
	if err != nil {
		return "cannot be read: " + err.Error(), rule
	}
	if s.Next(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return "is never due", "name a day that there is"
	}
	return "", ""
}

func parse(expression string) (cron.Schedule, error) {
	return cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor).Parse(expression)
}

// Next is the first time after t that is due.
func (s Schedule) Next(t time.Time) time.Time { return s.next.Next(t.UTC()) }

// maxCounted bounds how many due times are counted.
const maxCounted = 1000

// Due is the last time that is due after from, up to now, and how many there
// are, at most 1,000; none is 0.
func (s Schedule) Due(from, now time.Time) (last time.Time, count int) {
	for t := s.Next(from); !t.IsZero() && !t.After(now) && count < maxCounted; t = s.Next(t) {
		last = t
		count++
	}
	if count == maxCounted {
		last = s.last(now)
	}
	return last, count
}

// last is the last time that is due up to now, found from nearby: an expression
// that is due every minute has many, and one that is due once a year has few.
func (s Schedule) last(now time.Time) (last time.Time) {
	for back := 2 * time.Minute; last.IsZero(); back *= 2 {
		for t := s.Next(now.Add(-back)); !t.IsZero() && !t.After(now); t = s.Next(t) {
			last = t
		}
	}
	return last
}
