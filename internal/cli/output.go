package cli

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/berth-dev/berth/api"
)

// printJSON prints what the API answered, through the user's template if there
// is one.
func (a *app) printJSON(v any) error {
	if a.template != nil {
		return a.printTemplate(v)
	}
	enc := json.NewEncoder(a.Stdout)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// plain is text without what would move a terminal's cursor, change its colours,
// or break a table: ids and messages of drivers may hold anything.
func plain(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\n', r == '\t':
			b.WriteByte(' ')
		case strconv.IsPrint(r):
			b.WriteRune(r)
		default:
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}

func (a *app) none(text string) { fmt.Fprintln(a.Stderr, text) }

// section prints an empty line and a title.
func (a *app) section(title string) { a.print("\n" + a.bold(title)) }

// waits prints what is waited for.
func (a *app) waits(waits []api.Wait) {
	if len(waits) == 0 {
		return
	}
	a.section("Waits for")
	for _, w := range waits {
		a.print("  " + plain(waitLine(w)))
	}
}

func waitLine(w api.Wait) string {
	line := w.Subject + ": " + w.Reason
	var notes []string
	if !w.Since.IsZero() {
		notes = append(notes, "for "+age(w.Since))
	}
	if !w.Next.IsZero() {
		notes = append(notes, "next try "+until(w.Next))
	}
	if len(notes) > 0 {
		line += " (" + strings.Join(notes, ", ") + ")"
	}
	return line
}

// inNamespace says that a namespace has none of something.
func (a *app) inNamespace(what string) string {
	return fmt.Sprintf("there are no %s in namespace %s", what, a.ns())
}

// when is a moment in a list: how long ago for people, and exact for programs.
func (a *app) when(t time.Time) string {
	switch {
	case a.columns() > 0:
		return age(t)
	case t.IsZero():
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

// bytes is a size in a list: short for people, and exact for programs.
func (a *app) bytes(n int64) string {
	if a.columns() > 0 || n == 0 {
		return orDash(size(n))
	}
	return strconv.FormatInt(n, 10)
}

// age is how long ago something was, for people.
func age(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return span(time.Since(t))
}

func ago(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return age(t) + " ago"
}

func until(t time.Time) string {
	if d := time.Until(t); d > 0 {
		return "in " + span(d)
	}
	return "now"
}

func span(d time.Duration) string {
	switch {
	case d < time.Second:
		return "0s"
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd", int(d.Hours())/24)
}

// size is a number of bytes for people: exact where it is a whole number of
// binary units.
func size(n int64) string {
	if n == 0 {
		return ""
	}
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	v, u := float64(n), 0
	for v >= 1024 && u < len(units)-1 {
		v, u = v/1024, u+1
	}
	if v == float64(int64(v)) {
		return fmt.Sprintf("%d%s", int64(v), units[u])
	}
	return fmt.Sprintf("%.1f%s", v, units[u])
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
