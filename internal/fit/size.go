package fit

import "strconv"

// Size is a number of bytes for people, and exact: 20GiB, or 20000000000 bytes
// where it is no whole number of a binary unit.
func Size(n int64) string {
	units := []string{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	v, unit := n, ""
	for _, u := range units {
		if v == 0 || v%1024 != 0 {
			break
		}
		v, unit = v/1024, u
	}
	if unit == "" {
		return strconv.FormatInt(n, 10) + " bytes"
	}
	return strconv.FormatInt(v, 10) + unit
}
