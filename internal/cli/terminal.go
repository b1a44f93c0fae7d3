package cli

import "fmt"

// columns is how wide the terminal is that reads the output, 0 if none does.
func (a *app) columns() int {
	if a.Columns == nil {
		return 0
	}
	return a.Columns()
}

// live reports whether a waiting command draws what it waits for: on a terminal
// that nothing else is written to.
func (a *app) live() bool {
	return a.LiveColumns != nil && a.LiveColumns() > 0 && (a.json || a.columns() > 0) && a.Getenv("TERM") != "dumb"
}

// print writes a line of output. Whoever calls it made it plain.
func (a *app) print(line string) { fmt.Fprintln(a.Stdout, line) }

// Colours of a terminal, as ECMA-48 numbers them.
const (
	boldText = "1"
	red      = "31"
	yellow   = "33"
)

func (a *app) colour(code, text string) string {
	if a.columns() == 0 || !a.colourful() {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// colourful reports whether a terminal may be given colours: no-color.org.
func (a *app) colourful() bool { return a.Getenv("NO_COLOR") == "" && a.Getenv("TERM") != "dumb" }

func (a *app) bold(text string) string { return a.colour(boldText, text) }

// paint gives a colour to the words that a person looks for: what has failed,
// and what has not come to rest.
func (a *app) paint(word string) string {
	switch word {
	case "failed", "down", "uncertain", "lost":
		return a.colour(red, word)
	case "creating", "deleting", "pending", "stopping", "waiting", "assigned", "unpublishing":
		return a.colour(yellow, word)
	}
	return word
}
