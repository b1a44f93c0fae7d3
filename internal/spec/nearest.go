package spec

import "github.com/berth-dev/berth/internal/suggest"

// nearest is the known name that the word most likely stands for, or "".
func nearest(word string, known []string) string { return suggest.Nearest(word, known) }
