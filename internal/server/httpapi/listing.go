package httpapi

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strconv"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/state"
)

// listing is how one noun is listed. All nouns are listed in one way: narrowed
// by namespace and prefix, filtered, page by page, and polled.
type listing[T any] struct {
	// modified is when what is listed last changed. Its reads are watched.
	modified func(state.View) uint64
	// rows yields what is in the scope by key.
	rows func(state.View, scope) iter.Seq2[state.Key, T]
	// namespace is a row's, where the key does not begin with it.
	namespace func(T) api.NamespaceID
}

// scope is what part of a table is looked through.
type scope struct {
	// namespace is empty for all. It counts only where keys begin with it.
	namespace api.NamespaceID
	// prefix is how ids begin.
	prefix string
	// from is the least key.
	from state.Key
}

// Bounds of a page.
const (
	maxPage = 10_000
	// maxScan is how many rows a page may look at. A filter that few pass
	// makes short pages, not slow ones.
	maxScan = 20_000
)

// page is what a caller wants of a list.
type page struct {
	scope
	filters []filter
	// size is how many rows there are at most, 0 for all.
	size int
}

// list is the handler of a list.
func list[T any](h *Handler, l listing[T]) func(*request) (any, error) {
	return func(r *request) (any, error) {
		p, err := r.page(reflect.TypeFor[T]())
		if err != nil {
			return nil, err
		}
		return h.block(r, func(v state.View) (any, uint64, error) {
			at := l.modified(v)
			rows, next := l.read(v.Quiet(), p)
			if r.w.Header().Del(api.HeaderNext); next != nil {
				r.w.Header().Set(api.HeaderNext, base64.RawURLEncoding.EncodeToString(next))
			}
			return rows, at, nil
		})
	}
}

// read is one page, and the key where the next one begins, nil if there is none.
// A page continues after a key: what is written in between neither repeats nor
// hides a row that stays.
func (l listing[T]) read(v state.View, p page) ([]T, state.Key) {
	all, looked := []T{}, 0
	for k, row := range l.rows(v, p.scope) {
		if p.size > 0 && (len(all) == p.size || looked == maxScan) {
			return all, k
		}
		looked++
		if l.namespace != nil && p.namespace != "" && l.namespace(row) != p.namespace {
			continue
		}
		if passes(p.filters, reflect.ValueOf(row)) {
			all = append(all, row)
		}
	}
	return all, nil
}

// page reads the parameters of a list of rows of a type, and says all that is
// wrong with them.
func (r *request) page(t reflect.Type) (page, error) {
	var (
		p        api.Problems
		list     page
		problems = func(path, value, mend string) { p.Addf(path, mend, "is %q", value) }
	)
	list.namespace = r.someNamespace(&p)
	list.prefix = r.query.Get("prefix")
	if s := r.query.Get("per_page"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > maxPage {
			problems("per_page", s, fmt.Sprintf("give a number from 1 to %d", maxPage))
		}
		list.size = n
	}
	if s := r.query.Get("next_token"); s != "" {
		key, err := base64.RawURLEncoding.DecodeString(s)
		if err != nil {
			problems("next_token", s, "repeat what the header "+api.HeaderNext+" of the page before says, or leave it out to begin anew")
		}
		list.from = key
	}
	filters := slices.Clone(r.query["filter"])
	for _, id := range r.query["volume"] {
		filters = append(filters, "volume_id=="+id)
	}
	for _, text := range filters {
		f, field := parseFilter(t, text)
		if field != nil {
			p.Add(field.Path, field.Message, field.Mend)
		}
		list.filters = append(list.filters, f)
	}
	return list, p.Err("the request")
}

// someNamespace is the parameter namespace of what is for one or for all, which is
// empty.
func (r *request) someNamespace(p *api.Problems) api.NamespaceID {
	ns := r.query.Get("namespace")
	if ns == "" || ns == "*" {
		return ""
	}
	p.Name("namespace", ns)
	return api.NamespaceID(ns)
}

// byID yields the rows of a table whose key begins with their id.
func byID[R any](t state.Table[R]) func(state.View, scope) iter.Seq2[state.Key, *R] {
	return func(v state.View, s scope) iter.Seq2[state.Key, *R] {
		return within(v, t, state.Key(s.prefix), s.from)
	}
}

// byNamespace yields the rows of a table whose key is their namespace, then
// their id. Without a namespace it goes from one to the next, so that a prefix
// costs what it finds.
func byNamespace[R any](t state.Table[R]) func(state.View, scope) iter.Seq2[state.Key, *R] {
	return func(v state.View, s scope) iter.Seq2[state.Key, *R] {
		switch {
		case s.namespace != "":
			return within(v, t, append(state.Parts(string(s.namespace)), s.prefix...), s.from)
		case s.prefix == "":
			return t.From(v, s.from)
		}
		return func(yield func(state.Key, *R) bool) {
			for lower := s.from; ; {
				ns, found := firstPart(v, t, lower)
				if !found {
					return
				}
				for k, row := range within(v, t, append(state.Parts(ns), s.prefix...), lower) {
					if !yield(k, row) {
						return
					}
				}
				lower = after(ns)
			}
		}
	}
}

// within yields the rows whose key begins with prefix, from a key on.
func within[R any](v state.View, t state.Table[R], prefix, from state.Key) iter.Seq2[state.Key, *R] {
	return func(yield func(state.Key, *R) bool) {
		if bytes.Compare(from, prefix) < 0 {
			from = prefix
		}
		for k, row := range t.From(v, from) {
			if !k.HasPrefix(prefix) || !yield(k, row) {
				return
			}
		}
	}
}

// firstPart is the first part of the first key from lower on.
func firstPart[R any](v state.View, t state.Table[R], lower state.Key) (part string, found bool) {
	for k := range t.From(v, lower) {
		return k.Split()[0], true
	}
	return "", false
}

// after is a key behind all that begin with a part, and before all that begin
// with a greater one: no part has a byte below the one that ends it but that.
func after(part string) state.Key { return append(state.Key(part), 1) }

// showing maps what is yielded.
func showing[R, T any](rows func(state.View, scope) iter.Seq2[state.Key, *R], show func(state.View, *R) T) func(state.View, scope) iter.Seq2[state.Key, T] {
	return func(v state.View, s scope) iter.Seq2[state.Key, T] {
		return func(yield func(state.Key, T) bool) {
			for k, row := range rows(v, s) {
				if !yield(k, show(v, row)) {
					return
				}
			}
		}
	}
}
