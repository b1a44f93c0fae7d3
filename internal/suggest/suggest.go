// Package suggest finds the word that was meant by one that was mistyped: a
// field of a file, a command, an id.
//
// It knows no words of its own. Invariant: it answers one of the known words,
// or none; a guess that is farther from the word than a slip or two is none.
package suggest

import (
	"slices"
	"strings"

	"github.com/agext/levenshtein"
)

// maxWord is the longest word that is worth a guess at what was meant.
const maxWord = 63

// Nearest is the known name that the word most likely stands for, or "". Case
// and separators do not count, and two letters that changed places are one slip.
func Nearest(word string, known []string) string {
	if word == "" || len(word) > maxWord {
		return ""
	}
	separators := strings.NewReplacer("_", "", "-", "") // people forget them, or take one for the other
	plain := func(s string) string { return separators.Replace(strings.ToLower(s)) }
	word = plain(word)
	best, least := "", 2+len(word)/4
	for _, name := range known {
		candidate := plain(name)
		distance := levenshtein.Distance(word, candidate, nil)
		if len(word) == len(candidate) && letters(word) == letters(candidate) {
			distance = min(distance, 1)
		}
		if distance < least && distance < max(len(word), len(candidate)) {
			best, least = name, distance
		}
	}
	return best
}

// letters are the word's letters in alphabetical order.
func letters(word string) string {
	runes := []rune(word)
	slices.Sort(runes)
	return string(runes)
}
