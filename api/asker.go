package api

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// HeaderUser says who makes a request, in the caller's own words: nothing checks
// it. It is kept with what comes of the request, for people.
const HeaderUser = "Berth-User"

// maxUser is how long a caller's name may be, in bytes.
const maxUser = 64

// CheckUser says what is wrong with a caller's name, or "". There may be none.
func CheckUser(name string) string {
	odd := func(r rune) bool { return !unicode.IsPrint(r) }
	switch {
	case len(name) > maxUser:
		return "is longer than 64 bytes"
	case !utf8.ValidString(name) || strings.ContainsFunc(name, odd):
		return "has characters that cannot be printed"
	case strings.TrimSpace(name) != name:
		return "begins or ends with a space"
	}
	return ""
}

// Asker is who asked for something.
type Asker struct {
	// By is the caller's name, by the caller's word; it may be empty.
	By string `json:"by,omitempty"`
	// From is the address that the request came from.
	From string `json:"from"`
}

// String is who asked, in words: by alice, from 192.0.2.7.
func (a Asker) String() string {
	if a.By == "" {
		return "from " + a.From
	}
	return "by " + a.By + ", from " + a.From
}
