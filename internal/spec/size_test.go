package spec_test

import (
	"testing"

	"github.com/berth-dev/berth/internal/spec"
)

func TestParseSize(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{
		"0":                   0,
		"1073741824":          1 << 30,
		"10GiB":               10 << 30,
		"10 GiB":              10 << 30,
		" 10gib ":             10 << 30,
		"10Gi":                10 << 30,
		"10G":                 10e9,
		"10GB":                10e9,
		"500MB":               500e6,
		"500mb":               500e6,
		"1k":                  1000,
		"1KiB":                1024,
		"7B":                  7,
		"3TiB":                3 << 40,
		"2PB":                 2e15,
		"1EiB":                1 << 60,
		"1.5GiB":              3 << 29,
		".5KiB":               512,
		"1.KB":                1000,
		"0.001kB":             1,
		"9223372036854775807": 1<<63 - 1,
	} {
		got, err := spec.ParseSize(text)
		if err != nil || got != want {
			t.Errorf("ParseSize(%q) = %d, %v; want %d", text, got, err, want)
		}
	}
}

func TestParseSizeRefuses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                    `read size "": it is empty`,
		"  ":                  `read size "  ": it is empty`,
		"GiB":                 `read size "GiB": it does not begin with a number`,
		".":                   `read size ".": it does not begin with a number`,
		"-1GiB":               `read size "-1GiB": it is negative`,
		"+1GiB":               `read size "+1GiB": it does not begin with a number`,
		"10 gigs":             `read size "10 gigs": it has the unit "gigs", which does not exist`,
		"10bb":                `read size "10bb": it has the unit "bb", which does not exist`,
		"10iB":                `read size "10iB": it has the unit "iB", which does not exist`,
		"10MG":                `read size "10MG": it has the unit "MG", which does not exist`,
		"1e9":                 `read size "1e9": it has the unit "e9", which does not exist`,
		"1,5GiB":              `read size "1,5GiB": it has the unit ",5GiB", which does not exist`,
		"1.2.3GiB":            `read size "1.2.3GiB": it is not one number with a unit`,
		"1.5":                 `read size "1.5": it is not a whole number of bytes`,
		"0.0001KB":            `read size "0.0001KB": it is not a whole number of bytes`,
		"8EiB":                `read size "8EiB": it is more than 9223372036854775807 bytes`,
		"9223372036854775808": `read size "9223372036854775808": it is more than 9223372036854775807 bytes`,
		"1000000000000000000000000000000000000000000": `read size "1000000000000000000000000000000000000000000": it is too long for a size`,
	} {
		if got, err := spec.ParseSize(text); err == nil || err.Error() != want {
			t.Errorf("ParseSize(%q) = %d, %v\nwant the error %s", text, got, err, want)
		}
	}
}
