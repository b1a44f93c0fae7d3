package rendering

import "fmt"

// bounded is a value to print, of which nothing is printed when there was too much
// before it.
type bounded struct {
	value any
	left  *int
}

// Format implements fmt.Formatter.
func (b bounded) Format(to fmt.State, verb rune) {
	if width, set := to.Width(); set && width > maxWidth {
		*b.left = -1
	}
	if precision, set := to.Precision(); set && precision > maxWidth {
		*b.left = -1
	}
	if *b.left < 0 {
		return
	}
	text := fmt.Sprintf(fmt.FormatString(to, verb), b.value)
	if *b.left -= len(text); *b.left >= 0 {
		_, _ = to.Write([]byte(text)) // never fails
	}
}

// maxWidth is how wide a number or a text may be made.
const maxWidth = 1000

// printf is fmt.Sprintf, with bounds.
func (r *run) printf(format string, args ...any) (string, error) {
	left := maxValue
	for i, a := range args {
		args[i] = bounded{a, &left}
	}
	text := fmt.Sprintf(format, args...)
	if left < 0 {
		return "", r.make(maxValue + 1)
	}
	return text, r.make(len(text))
}

// print is one of fmt's, with bounds.
func (r *run) print(one func(...any) string, args []any) (string, error) {
	size := 0
	for _, a := range args {
		if s, err := asText(a); err == nil {
			size += len(s)
		} else {
			size += len(fmt.Sprint(a))
		}
		if size > maxValue {
			return "", r.make(size)
		}
	}
	text := one(args...)
	return text, r.make(len(text))
}
