package rendering

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"unicode"

	"github.com/berth-dev/berth/api"
)

// functions are those of one rendering. Their names are api.TemplateFunctions; what
// is left out is text/template's own and makes no text.
func (r *run) functions() template.FuncMap {
	return template.FuncMap{
		"env": r.env, "mustEnv": r.env, "envOrDefault": r.envOrDefault,
		"nomadVar": r.variable, "nomadVarExists": r.variableExists, "nomadVarList": r.variables,
		"variable": r.variable, "variableExists": r.variableExists, "variables": r.variables,
		"nomadService": r.nomadService, "service": r.service,

		"index": r.index,

		"print":   func(args ...any) (string, error) { return r.print(fmt.Sprint, args) },
		"println": func(args ...any) (string, error) { return r.print(fmt.Sprintln, args) },
		"printf":  r.printf,
		"html":    func(args ...any) (string, error) { return r.escape(6, template.HTMLEscaper, args) },
		"js":      func(args ...any) (string, error) { return r.escape(6, template.JSEscaper, args) },
		"urlquery": func(args ...any) (string, error) {
			return r.escape(3, template.URLQueryEscaper, args)
		},

		"base64Encode":    func(v any) (string, error) { return r.mapped(v, 2, base64.StdEncoding.EncodeToString) },
		"base64URLEncode": func(v any) (string, error) { return r.mapped(v, 2, base64.URLEncoding.EncodeToString) },
		"base64Decode":    func(v any) (string, error) { return r.decode(v, base64.StdEncoding) },
		"base64URLDecode": func(v any) (string, error) { return r.decode(v, base64.URLEncoding) },
		"sha256Hex": func(v any) (string, error) {
			return r.mapped(v, 1, func(b []byte) string { sum := sha256.Sum256(b); return hex.EncodeToString(sum[:]) })
		},
		"toLower":   func(v any) (string, error) { return r.mapped(v, 2, text(strings.ToLower)) },
		"toUpper":   func(v any) (string, error) { return r.mapped(v, 2, text(strings.ToUpper)) },
		"toTitle":   func(v any) (string, error) { return r.mapped(v, 2, text(title)) },
		"trimSpace": func(v any) (string, error) { return r.mapped(v, 1, text(strings.TrimSpace)) },
		"trim": func(cut string, v any) (string, error) {
			if len(cut) > maxCut {
				return "", told{fmt.Sprintf("trim is given more than %d bytes to cut", maxCut)}
			}
			return r.mapped(v, 1, text(func(s string) string { return strings.Trim(s, cut) }))
		},
		"trimPrefix": func(cut string, v any) (string, error) {
			return r.mapped(v, 1, text(func(s string) string { return strings.TrimPrefix(s, cut) }))
		},
		"trimSuffix": func(cut string, v any) (string, error) {
			return r.mapped(v, 1, text(func(s string) string { return strings.TrimSuffix(s, cut) }))
		},
		"replaceAll": r.replaceAll, "regexMatch": r.regexMatch, "indent": r.indent, "join": r.join, "split": r.split,
		"contains": func(v, in any) (bool, error) { return r.contains(in, v) }, "in": r.contains,

		"toJSON":       func(v any) (string, error) { return r.toJSON(v, "") },
		"toJSONPretty": func(v any) (string, error) { return r.toJSON(v, "  ") },
		"parseJSON":    r.parseJSON,
		"parseBool":    func(v any) (bool, error) { return parsed(v, "true or false", strconv.ParseBool) },
		"parseInt": func(v any) (int64, error) {
			return parsed(v, "whole number", func(s string) (int64, error) { return strconv.ParseInt(s, 10, 64) })
		},
		"parseUint": func(v any) (uint64, error) {
			return parsed(v, "whole number", func(s string) (uint64, error) { return strconv.ParseUint(s, 10, 64) })
		},
		"parseFloat": func(v any) (float64, error) {
			return parsed(v, "number", func(s string) (float64, error) { return strconv.ParseFloat(s, 64) })
		},

		"add":      func(b, a any) (int64, error) { return number(a, b, func(a, b int64) int64 { return a + b }) },
		"subtract": func(b, a any) (int64, error) { return number(a, b, func(a, b int64) int64 { return a - b }) },
		"multiply": func(b, a any) (int64, error) { return number(a, b, func(a, b int64) int64 { return a * b }) },
		"divide":   func(b, a any) (int64, error) { return parts(a, b, func(a, b int64) int64 { return a / b }) },
		"modulo":   func(b, a any) (int64, error) { return parts(a, b, func(a, b int64) int64 { return a % b }) },
		"minimum":  func(b, a any) (int64, error) { return number(a, b, func(a, b int64) int64 { return min(a, b) }) },
		"maximum":  func(b, a any) (int64, error) { return number(a, b, func(a, b int64) int64 { return max(a, b) }) },
		"loop":     loop,
	}
}

func (r *run) env(name string) (string, error) {
	if v, known := r.from.Env(name); known {
		return v, nil
	}
	if !strings.Contains(r.data, name) {
		return "", told{"the task has no variable of a name that it makes"}
	}
	why := fmt.Sprintf("it has {{ env %q }}, and the task has no variable %s", name, name)
	if rest, nomads := strings.CutPrefix(name, "NOMAD_"); nomads {
		if _, known := r.from.Env("BERTH_" + rest); known {
			why += "; here it is BERTH_" + rest
		}
	}
	return "", told{why}
}

func (r *run) envOrDefault(name string, other any) (string, error) {
	if v, known := r.from.Env(name); known && v != "" {
		return v, nil
	}
	return asText(other)
}

// items are a variable's. It is an item's value that is written as text.
type items map[string]item

// item is the value of one.
type item string

// Value is the value, for templates that name it.
func (i item) Value() string { return string(i) }

// pair is a key of a variable, and what is there.
type pair struct {
	K string
	V item
}

// Keys are the keys, sorted.
func (i items) Keys() []string {
	keys := make([]string, 0, len(i))
	for k := range i {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// Values are the values, in the order of their keys.
func (i items) Values() []item {
	values := make([]item, 0, len(i))
	for _, k := range i.Keys() {
		values = append(values, i[k])
	}
	return values
}

// Tuples are both.
func (i items) Tuples() []pair {
	pairs := make([]pair, 0, len(i))
	for _, k := range i.Keys() {
		pairs = append(pairs, pair{k, i[k]})
	}
	return pairs
}

func (r *run) variable(path string) (items, error) {
	if err := r.look("variable", path); err != nil {
		return nil, err
	}
	known, found, ok := r.from.Lookups.Variable(path)
	if !found || !ok {
		return nil, &Missing{Awaited: "the variable " + r.named(path), Asked: ok}
	}
	of := make(items, len(known))
	for k, v := range known {
		of[k] = item(v)
	}
	return of, r.step()
}

func (r *run) variableExists(path string) (bool, error) {
	if err := r.look("variable", path); err != nil {
		return false, err
	}
	_, found, ok := r.from.Lookups.Variable(path)
	if !ok {
		return false, &Missing{Awaited: "word of the variable " + r.named(path)}
	}
	return found, r.step()
}

// listed is a variable in a list. It is written as its path.
type listed struct{ Path string }

func (l listed) String() string { return l.Path }

func (r *run) variables(prefix ...string) ([]listed, error) {
	begin := strings.Join(prefix, "")
	if err := r.look("variables", begin); err != nil {
		return nil, err
	}
	paths, ok := r.from.Lookups.Variables(begin)
	if !ok {
		return nil, &Missing{Awaited: "the list of the variables " + r.named(begin)}
	}
	all := make([]listed, len(paths))
	for i, p := range paths {
		all[i] = listed{p}
	}
	return all, r.make(16 * len(all))
}

// instance is where a service is.
type instance struct {
	ID, Name, Namespace    string
	Address, NodeAddress   string
	Port                   int
	Tags                   []string
	Node, NodeID           string
	JobID, AllocID, Status string
}

// service finds a service, or "tag.service".
func (r *run) service(name string) ([]instance, error) {
	if err := r.look("service", name); err != nil {
		return nil, err
	}
	instances, ok := r.from.Lookups.Service(name)
	tag, of, tagged := strings.Cut(name, ".")
	if ok && len(instances) == 0 && tagged { // names may have dots, too
		if instances, ok = r.from.Lookups.Service(of); ok {
			instances = slices.DeleteFunc(slices.Clone(instances), func(i api.ServiceInstance) bool { return !slices.Contains(i.Tags, tag) })
		}
	}
	if !ok {
		return nil, &Missing{Awaited: "word of the service " + r.named(name)}
	}
	all := make([]instance, len(instances))
	for i := range instances {
		s := &instances[i]
		all[i] = instance{
			ID: s.Service + "/" + string(s.AllocID), Name: s.Service, Namespace: string(s.Namespace), Address: s.Address, NodeAddress: s.Address, Port: s.Port,
			Tags: s.Tags, Node: string(s.NodeID), NodeID: string(s.NodeID), JobID: string(s.JobID), AllocID: string(s.AllocID), Status: string(s.Status),
		}
	}
	return all, r.make(200 * len(all))
}

// nomadService finds a service, or some of its instances: as many, chosen by a key,
// so that who has the same key mostly gets the same ones.
func (r *run) nomadService(args ...any) ([]instance, error) {
	name, err := asText(args[len(args)-1])
	if err != nil || len(args) == 1 {
		all, found := r.service(name)
		return all, errors.Join(err, found)
	}
	if len(args) != 3 {
		return nil, told{`nomadService is given neither "NAME" nor COUNT, "KEY" and "NAME"`}
	}
	count, err := asNumber(args[0])
	if err != nil {
		return nil, err
	}
	key, err := asText(args[1])
	if err != nil {
		return nil, err
	}
	all, err := r.service(name)
	if err != nil {
		return nil, err
	}
	weight := func(i instance) uint64 {
		h := fnv.New64a()
		_, _ = h.Write([]byte(key + "\x00" + i.ID)) // never fails
		return h.Sum64()
	}
	slices.SortStableFunc(all, func(a, b instance) int {
		switch x, y := weight(a), weight(b); {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	})
	return all[:max(0, min(int64(len(all)), count))], nil
}

// index picks from lists and maps. What is not there is an error, as with a dot.
func (r *run) index(v any, keys ...any) (any, error) {
	for _, key := range keys {
		switch of := reflect.ValueOf(v); of.Kind() {
		case reflect.Map:
			name, err := asText(key)
			if err != nil {
				return nil, err
			}
			found := of.MapIndex(reflect.ValueOf(name))
			if !found.IsValid() {
				if !strings.Contains(r.data, name) {
					return nil, told{"map has no entry for a key that it makes"}
				}
				return nil, told{fmt.Sprintf("map has no entry for key %q", name)}
			}
			v = found.Interface()
		case reflect.Slice, reflect.String:
			i, err := asNumber(key)
			if err != nil {
				return nil, err
			}
			if i < 0 || i >= int64(of.Len()) {
				return nil, told{fmt.Sprintf("there is no element %d", i)}
			}
			v = of.Index(int(i)).Interface()
		default:
			return nil, told{fmt.Sprintf("a %T has no elements", v)}
		}
	}
	return v, r.step()
}

// asText is a value that is text, or is written as such.
func asText(v any) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case item:
		return string(v), nil
	case []byte:
		return string(v), nil
	case fmt.Stringer:
		return v.String(), nil
	case bool, int, int64, uint64, float64:
		return fmt.Sprint(v), nil
	case nil:
		return "", told{"there is no value where text is needed"}
	}
	return "", told{fmt.Sprintf("there is a %T where text is needed", v)}
}

// text has bytes of a value as text.
func text(f func(string) string) func([]byte) string {
	return func(b []byte) string { return f(string(b)) }
}

// mapped makes a text of a value, at most so many times as long.
func (r *run) mapped(v any, factor int, f func([]byte) string) (string, error) {
	s, err := asText(v)
	if err == nil {
		err = r.make(factor * len(s))
	}
	if err != nil {
		return "", err
	}
	return f([]byte(s)), nil
}

func (r *run) escape(factor int, f func(...any) string, args []any) (string, error) {
	size := 0
	for _, a := range args {
		s, err := asText(a)
		if err != nil {
			return "", err
		}
		size += factor * len(s)
	}
	if err := r.make(size); err != nil {
		return "", err
	}
	return f(args...), nil
}

func title(s string) string {
	before := ' '
	return strings.Map(func(c rune) rune {
		first := !unicode.IsLetter(before) && !unicode.IsDigit(before) && before != '\''
		before = c
		if first {
			return unicode.ToTitle(c)
		}
		return c
	}, s)
}

func (r *run) decode(v any, of *base64.Encoding) (string, error) {
	s, err := asText(v)
	if err == nil {
		err = r.make(len(s))
	}
	if err != nil {
		return "", err
	}
	b, err := of.DecodeString(s)
	if err != nil {
		return "", told{"what is to be decoded is not in base64"}
	}
	return string(b), nil
}

func (r *run) replaceAll(from, to string, v any) (string, error) {
	s, err := asText(v)
	if err != nil {
		return "", err
	}
	if err := r.make(len(s) + strings.Count(s, from)*max(0, len(to)-len(from))); err != nil {
		return "", err
	}
	return strings.ReplaceAll(s, from, to), nil
}

// maxCut is how much trim cuts off at most, in bytes of what is looked for.
const maxCut = 1000

// maxMatch bounds what regexMatch goes through, by the lengths of its expression
// and of its text: nothing can end it. The parser lets a repetition make a thousand
// of each.
const maxMatch = 1 << 20

func (r *run) regexMatch(pattern string, v any) (bool, error) {
	s, err := asText(v)
	if err == nil {
		err = r.make(len(s) + len(pattern))
	}
	if err != nil {
		return false, err
	}
	if len(pattern)*len(s) > maxMatch {
		return false, told{"regexMatch is given too long an expression for so long a text"}
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return false, told{"the expression of regexMatch cannot be read"}
	}
	return re.MatchString(s), nil
}

func (r *run) indent(spaces any, v any) (string, error) {
	s, err := asText(v)
	if err != nil {
		return "", err
	}
	n, err := asNumber(spaces)
	switch {
	case err != nil:
		return "", err
	case n < 0 || n > 1000:
		return "", told{"indent is given no number from 0 to 1000"}
	}
	if err := r.make(len(s) + (strings.Count(s, "\n")+1)*int(n)); err != nil {
		return "", err
	}
	margin := strings.Repeat(" ", int(n))
	var out strings.Builder
	for line := range strings.Lines(s) {
		if strings.TrimRight(line, "\r\n") != "" {
			out.WriteString(margin)
		}
		out.WriteString(line)
	}
	return out.String(), nil
}

// list is the elements of a list, as text.
func list(v any) ([]string, error) {
	of := reflect.ValueOf(v)
	if of.Kind() != reflect.Slice {
		return nil, told{fmt.Sprintf("there is a %T where a list is needed", v)}
	}
	all := make([]string, of.Len())
	for i := range all {
		s, err := asText(of.Index(i).Interface())
		if err != nil {
			return nil, err
		}
		all[i] = s
	}
	return all, nil
}

func (r *run) join(sep string, v any) (string, error) {
	all, err := list(v)
	if err != nil {
		return "", err
	}
	size := len(sep) * len(all)
	for _, s := range all {
		size += len(s)
	}
	if err := r.make(size); err != nil {
		return "", err
	}
	return strings.Join(all, sep), nil
}

func (r *run) split(sep string, v any) ([]string, error) {
	s, err := asText(v)
	if err != nil {
		return nil, err
	}
	if err := r.make(16 * (strings.Count(s, sep) + 1)); err != nil {
		return nil, err
	}
	if s == "" {
		return []string{}, nil
	}
	return strings.Split(s, sep), nil
}

// contains reports whether a list has a value, or a text a part.
func (r *run) contains(in, v any) (bool, error) {
	wanted, err := asText(v)
	if err == nil {
		err = r.step()
	}
	if err != nil {
		return false, err
	}
	if s, err := asText(in); err == nil {
		return strings.Contains(s, wanted), nil
	}
	if err := r.make(16 * length(in)); err != nil {
		return false, err
	}
	all, err := list(in)
	return slices.Contains(all, wanted), err
}

// length is how many elements a list has, 0 for what is none.
func length(v any) int {
	if of := reflect.ValueOf(v); of.Kind() == reflect.Slice {
		return of.Len()
	}
	return 0
}

func (r *run) toJSON(v any, indent string) (string, error) {
	b, err := json.Marshal(v)
	if err == nil && indent != "" {
		if err := r.make(indented(b, len(indent))); err != nil {
			return "", err
		}
		b, err = json.MarshalIndent(v, "", indent)
	}
	if err != nil {
		return "", told{fmt.Sprintf("a %T cannot be written as JSON", v)}
	}
	return string(b), r.make(len(b))
}

// indented is how long JSON becomes at most when it is indented: deep nesting makes
// every line long.
func indented(b []byte, by int) int {
	size, depth, quoted := len(b), 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
			size += 1 + by*depth
		case c == ',':
			size += 1 + by*depth
		case c == ':':
			size++
		case c == '}' || c == ']':
			depth--
			size += 1 + by*depth
		}
	}
	return size
}

func (r *run) parseJSON(v any) (any, error) {
	s, err := asText(v)
	if err == nil {
		err = r.make(16 * len(s))
	}
	if err != nil {
		return nil, err
	}
	var parsed any
	if strings.TrimSpace(s) == "" {
		return map[string]any{}, nil
	}
	if err := json.Unmarshal([]byte(s), &parsed); err != nil {
		return nil, told{"what is to be parsed is no JSON"}
	}
	return parsed, nil
}

func parsed[T any](v any, as string, parse func(string) (T, error)) (T, error) {
	s, err := asText(v)
	if err != nil {
		var none T
		return none, err
	}
	n, err := parse(s)
	if err != nil {
		return n, told{"what is to be parsed is no " + as}
	}
	return n, nil
}

// asNumber is a value that is a whole number.
func asNumber(v any) (int64, error) {
	switch of := reflect.ValueOf(v); {
	case of.CanInt():
		return of.Int(), nil
	case of.CanUint():
		return int64(of.Uint()), nil //nolint:gosec // what overflows is somebody's mistake
	case of.CanFloat() && of.Float() == float64(int64(of.Float())):
		return int64(of.Float()), nil
	}
	return parsed(v, "whole number", func(s string) (int64, error) { return strconv.ParseInt(s, 10, 64) })
}

func number(a, b any, f func(a, b int64) int64) (int64, error) {
	x, err := asNumber(a)
	if err != nil {
		return 0, err
	}
	y, err := asNumber(b)
	if err != nil {
		return 0, err
	}
	return f(x, y), nil
}

// parts is number for what cannot be done with 0.
func parts(a, b any, f func(a, b int64) int64) (int64, error) {
	if y, err := asNumber(b); err == nil && y == 0 {
		return 0, told{"it divides by 0"}
	}
	return number(a, b, f)
}

// maxLoop is how far a loop counts.
const maxLoop = 10_000

// loop counts from 0 up to a number, or from one number to another, without it.
func loop(bounds ...any) ([]int64, error) {
	from, to := int64(0), int64(0)
	for i, b := range bounds {
		n, err := asNumber(b)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			from = to
		}
		to = n
	}
	if to > from && uint64(to)-uint64(from) > maxLoop {
		return nil, told{fmt.Sprintf("it counts through more than %d numbers", maxLoop)}
	}
	all := make([]int64, 0, max(0, to-from))
	for n := from; n < to; n++ {
		all = append(all, n)
	}
	return all, nil
}
