package spec

import "fmt"

// ParseSize is parseSize with what is wrong as an error.
func ParseSize(s string) (int64, error) {
	size, wrong := parseSize(s)
	if wrong != "" {
		return 0, fmt.Errorf("read size %q: it %s", clip(s), wrong)
	}
	return size, nil
}
