package spec

import (
	"slices"
	"strings"

	"github.com/agext/levenshtein"
)

// maxWord is the longest word that is worth a guess at what was meant.
const maxWord = 40

// separators are what people forget, or take one for the other.
var separators = strings.NewReplacer("_", "", "-", "")

// nearest is the known name that the word most likely stands for, or "". Case
// and separators do not count, and two letters that changed places are one slip.
func nearest(word string, known []string) string {
	if len(word) > maxWord {
		return ""
	}
	plain := func(s string) string { return separators.Replace(strings.ToLower(s)) }
	word = plain(word)
	best, least := "", 2+len(word)/4
	for _, name := range known {
		candidate := plain(name)
		distance := levenshtein.Distance(word, candidate, nil)
		if len(word) == len(candidate) && letters(word) == letters(candidate) {
			distance = min(distance, 1)
		}
		if distance < least {
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
