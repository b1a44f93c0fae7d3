package docker

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/suggest"
)

// values reads one block of a task's config, and notes what is wrong with it.
// Blocks come as a map, or as a list of maps where there may be several.
type values struct {
	p    *api.Problems
	path string
	all  map[string]any
	// known are the names that were asked for.
	known []string
}

func newValues(p *api.Problems, path string, all map[string]any) *values {
	return &values{p: p, path: path, all: all}
}

func (v *values) at(name string) string { return v.path + "." + name }

func (v *values) take(name string) any {
	v.known = append(v.known, name)
	return v.all[name]
}

// wrong notes what cannot be read. What is given for a registry is shown nowhere:
// problems are an allocation's, and in its events.
func (v *values) wrong(name, mend string, got any) {
	at := v.at(name)
	if strings.HasPrefix(at, "config.auth") {
		v.p.Add(at, "cannot be read", mend)
		return
	}
	v.p.Addf(at, mend, "is %v", got)
}

// text is a string. Numbers and booleans are what they look like.
func (v *values) text(name, mend string) string {
	got := v.take(name)
	if got == nil {
		return ""
	}
	s, ok := asText(got)
	if !ok || strings.ContainsRune(s, 0) {
		v.wrong(name, mend, got)
	}
	return s
}

func asText(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case bool:
		return strconv.FormatBool(v), true
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), true
	case int:
		return strconv.Itoa(v), true
	}
	return "", false
}

// flag is a boolean.
func (v *values) flag(name string) bool {
	switch got := v.take(name).(type) {
	case nil:
		return false
	case bool:
		return got
	case string:
		if b, err := strconv.ParseBool(got); err == nil {
			return b
		}
		v.wrong(name, "write true or false", strconv.Quote(got))
	default:
		v.wrong(name, "write true or false", got)
	}
	return false
}

// number is a whole number from least on.
func (v *values) number(name string, least int64, mend string) int64 {
	got := v.take(name)
	if got == nil {
		return 0
	}
	s, _ := asText(got)
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < least {
		v.wrong(name, mend, got)
		return 0
	}
	return n
}

// mode is the rights of a directory, as chmod takes them.
func (v *values) mode(name string) os.FileMode {
	const mend = `write it in octal and in quotes, as chmod takes it: "1777"`
	got := v.take(name)
	if got == nil {
		return 0
	}
	s, quoted := got.(string)
	n, err := strconv.ParseUint(strings.TrimPrefix(s, "0o"), 8, 32)
	switch {
	case !quoted: // 511 and 0777 would be the same number, and who wrote it meant either
		v.wrong(name, mend, got)
	case err != nil || n == 0 || n > 0o7777:
		v.wrong(name, mend, strconv.Quote(s))
	}
	return os.FileMode(n)
}

// duration is a time such as "5m".
func (v *values) duration(name string) time.Duration {
	s := v.text(name, `write it as "5m"`)
	if s == "" {
		return 0
	}
	t, err := time.ParseDuration(s)
	if err != nil || t <= 0 {
		v.wrong(name, `write it as "5m"`, strconv.Quote(s))
		return 0
	}
	return t
}

// list is a list of strings, or one.
func (v *values) list(name, mend string) []string {
	switch got := v.take(name).(type) {
	case nil:
		return nil
	case string:
		return []string{got}
	case []string:
		return got
	case []any:
		list := make([]string, 0, len(got))
		for i, e := range got {
			s, ok := asText(e)
			if !ok || strings.ContainsRune(s, 0) {
				v.wrong(fmt.Sprintf("%s[%d]", name, i), mend, e)
				continue
			}
			list = append(list, s)
		}
		return list
	default:
		v.wrong(name, mend, got)
	}
	return nil
}

// table is a map of strings, or several blocks of them.
func (v *values) table(name, mend string) map[string]string {
	all := map[string]string{}
	for _, block := range v.maps(name, mend) {
		for _, k := range slices.Sorted(maps.Keys(block)) {
			s, ok := asText(block[k])
			if !ok {
				v.wrong(name+"."+k, mend, block[k])
				continue
			}
			all[k] = s
		}
	}
	return all
}

// blocks are the blocks of a name.
func (v *values) blocks(name, mend string) []*values {
	var all []*values
	blocks := v.maps(name, mend)
	for i, block := range blocks {
		path := v.at(name)
		if len(blocks) > 1 {
			path += fmt.Sprintf("[%d]", i)
		}
		all = append(all, newValues(v.p, path, block))
	}
	return all
}

func (v *values) maps(name, mend string) []map[string]any {
	switch got := v.take(name).(type) {
	case nil:
		return nil
	case map[string]any:
		return []map[string]any{got}
	case []map[string]any:
		return got
	case []any:
		var all []map[string]any
		for i, e := range got {
			m, ok := e.(map[string]any)
			if !ok {
				v.wrong(fmt.Sprintf("%s[%d]", name, i), mend, e)
				continue
			}
			all = append(all, m)
		}
		return all
	default:
		v.wrong(name, mend, got)
	}
	return nil
}

// done notes what nobody asked for.
func (v *values) done(what string) {
	for _, k := range slices.Sorted(maps.Keys(v.all)) {
		if slices.Contains(v.known, k) {
			continue
		}
		mend := "remove it; " + what + " takes " + strings.Join(slices.Sorted(slices.Values(v.known)), ", ")
		if near := suggest.Nearest(k, v.known); near != "" {
			mend = "did you mean " + near + "?"
		}
		v.p.Add(v.at(k), "is not known", mend)
	}
}
