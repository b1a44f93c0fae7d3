package spec

import (
	"fmt"
	"math"
	"math/big"
	"strings"
)

// sizeMend is what to write where a size is wrong.
const sizeMend = `give a size such as "10GiB"`

// maxSizeLength bounds what is worth reading as a size.
const maxSizeLength = 40

// parseSize reads a size in bytes: a number with at most one point, and a unit.
// KiB, MiB, GiB, TiB, PiB and EiB (also Ki, Mi, ...) are powers of 1024; KB,
// MB, GB, TB, PB and EB (also K, M, ...) are powers of 1000, as in Nomad; B or
// nothing is bytes. Case does not matter, nor a space before the unit. The
// result must be a whole number of bytes that fits an int64. What is wrong is half
// a sentence, "" if nothing is.
func parseSize(s string) (size int64, wrong string) {
	s = strings.TrimSpace(s)
	switch {
	case s == "":
		return 0, "is empty"
	case len(s) > maxSizeLength:
		return 0, "is too long for a size"
	case s[0] == '-':
		return 0, "is negative"
	}
	digits := len(s) - len(strings.TrimLeft(s, "0123456789."))
	number, unit := s[:digits], strings.TrimSpace(s[digits:])
	if strings.Trim(number, ".") == "" {
		return 0, "does not begin with a number"
	}
	factor, ok := unitFactor(unit)
	if !ok {
		return 0, fmt.Sprintf("has the unit %q, which does not exist", unit)
	}
	// SetString knows fractions and exponents too; number has none left.
	value, ok := new(big.Rat).SetString(number)
	if !ok {
		return 0, "is not one number with a unit"
	}
	value.Mul(value, new(big.Rat).SetInt64(factor))
	switch {
	case !value.IsInt():
		return 0, "is not a whole number of bytes"
	case !value.Num().IsInt64():
		return 0, fmt.Sprintf("is more than %d bytes", int64(math.MaxInt64))
	}
	return value.Num().Int64(), ""
}

// Size reads a size in bytes as files have it: "20GiB".
func Size(s string) (int64, error) {
	n, wrong := parseSize(s)
	if wrong != "" {
		return 0, fmt.Errorf("%s; %s", wrong, sizeMend)
	}
	return n, nil
}

// unitFactor is how many bytes a unit stands for.
func unitFactor(unit string) (int64, bool) {
	unit = strings.TrimSuffix(strings.ToLower(unit), "b")
	prefix, binary := strings.CutSuffix(unit, "i")
	if prefix == "" {
		return 1, !binary
	}
	power := 1 + strings.Index("kmgtpe", prefix)
	if power == 0 || len(prefix) > 1 {
		return 0, false
	}
	base, factor := int64(1000), int64(1)
	if binary {
		base = 1024
	}
	for range power {
		factor *= base
	}
	return factor, true
}
