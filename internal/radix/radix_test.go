package radix_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/berth-dev/berth/internal/radix"
)

// version is a tree and what should be in it.
type version struct {
	tree radix.Tree[int]
	rows map[string]*int
}

// under are the values whose keys begin with p, in the order of the keys.
func (v version) under(p string) (all []*int) {
	for _, k := range slices.Sorted(maps.Keys(v.rows)) {
		if strings.HasPrefix(k, p) {
			all = append(all, v.rows[k])
		}
	}
	return all
}

func (v version) from(k string) (all []*int) {
	for _, other := range slices.Sorted(maps.Keys(v.rows)) {
		if other >= k {
			all = append(all, v.rows[other])
		}
	}
	return all
}

// check reads a version in every way.
func (v version) check(t *rapid.T, keys []string) {
	for _, k := range keys {
		b := []byte(k)
		if got := v.tree.Get(b); got != v.rows[k] {
			t.Fatalf("Get(%q) = %v, want %v", k, got, v.rows[k])
		}
		want := v.under(k)
		r := v.tree.Prefix(b)
		var all, cursor, from []*int
		r.All(func(i *int) bool { all = append(all, i); return true })
		for c := r.Cursor(); ; {
			i := c.Next()
			if i == nil {
				break
			}
			cursor = append(cursor, i)
		}
		v.tree.From(b, func(i *int) bool { from = append(from, i); return true })
		if !slices.Equal(all, want) || !slices.Equal(cursor, want) {
			t.Fatalf("Prefix(%q) = %v and %v, want %v", k, all, cursor, want)
		}
		if wanted := v.from(k); !slices.Equal(from, wanted) {
			t.Fatalf("From(%q) = %v, want %v", k, from, wanted)
		}
		some, whole := r.Some(make([]*int, 2))
		if !slices.Equal(some, want[:min(2, len(want))]) || whole != (len(want) <= 2) {
			t.Fatalf("Some(%q) = %v, %v, want the first of %v", k, some, whole, want)
		}
		var last *int
		if len(want) > 0 {
			last = want[len(want)-1]
		}
		if got := r.Last(); got != last {
			t.Fatalf("Last(%q) = %v, want %v", k, got, last)
		}
		var first []*int
		r.All(func(i *int) bool { first = append(first, i); return false })
		if !slices.Equal(first, want[:min(1, len(want))]) {
			t.Fatalf("All(%q) does not end when it is told to", k)
		}
	}
}

// watched is what was read of a version, with its signal.
type watched struct {
	of     version
	key    string
	prefix bool
	signal *radix.Signal
	// when the signal was asked for: before the next version, when it was about to
	// be published, or when it had been.
	when int
}

func (w *watched) ask() {
	if w.prefix {
		w.signal = w.of.tree.Prefix([]byte(w.key)).Signal()
	} else {
		_, w.signal = w.of.tree.Watch([]byte(w.key))
	}
}

func (w *watched) changed(now version) bool {
	if w.prefix {
		return !slices.Equal(w.of.under(w.key), now.under(w.key))
	}
	return w.of.rows[w.key] != now.rows[w.key]
}

func TestTree(t *testing.T) {
	t.Parallel()
	key := rapid.StringOfN(rapid.SampledFrom([]rune("ab\x00z")), 0, 5, -1)
	rapid.Check(t, func(t *rapid.T) {
		keys := rapid.SliceOfNDistinct(key, 1, 12, rapid.ID[string]).Draw(t, "keys")
		now := version{radix.New[int](), map[string]*int{}}
		var old []version
		var asked []*watched // those that have not fired, of whatever version
		for range rapid.IntRange(1, 6).Draw(t, "transactions") {
			for range rapid.IntRange(0, 4).Draw(t, "watches") {
				w := &watched{of: now, key: rapid.SampledFrom(keys).Draw(t, "watched"), prefix: rapid.Bool().Draw(t, "prefix")}
				w.when = rapid.IntRange(0, 2).Draw(t, "when")
				if w.when == 0 {
					w.ask()
				}
				asked = append(asked, w)
			}
			old = append(old, now)
			x := radix.Begin(now.tree, true)
			rows := maps.Clone(now.rows)
			for range rapid.IntRange(0, 8).Draw(t, "writes") {
				k := rapid.SampledFrom(keys).Draw(t, "key")
				var was *int
				if rapid.Bool().Draw(t, "put") {
					v := new(int)
					was, rows[k] = rows[k], v
					if got := x.Put([]byte(k), v); got != was {
						t.Fatalf("Put(%q) = %v, want %v", k, got, was)
					}
				} else {
					was = rows[k]
					delete(rows, k)
					if got := x.Delete([]byte(k)); got != was {
						t.Fatalf("Delete(%q) = %v, want %v", k, got, was)
					}
				}
				if rapid.IntRange(0, 4).Draw(t, "keep") == 0 {
					old = append(old, version{x.Keep(), maps.Clone(rows)})
				}
				version{x.Now(), rows}.check(t, keys)
			}
			now = version{x.End(), rows}
			for _, w := range asked {
				if w.signal != nil && w.signal.Fired() {
					t.Fatalf("the signal of %q fired before the version was published", w.key)
				}
			}
			for _, w := range asked {
				if w.when == 1 && w.signal == nil {
					w.ask()
				}
			}
			x.Published()
			for _, k := range keys {
				for _, w := range []watched{{of: now, key: k}, {of: now, key: k, prefix: true}} {
					if w.ask(); w.signal.Fired() {
						t.Fatalf("the signal of %q has fired in the newest version", k)
					}
				}
			}
			for _, w := range asked {
				if w.when == 2 && w.signal == nil {
					w.ask()
				}
				if w.changed(now) && !w.signal.Fired() {
					t.Fatalf("the signal of %q did not fire", w.key)
				}
			}
			asked = slices.DeleteFunc(asked, func(w *watched) bool { return w.signal.Fired() })
			for _, v := range append(old, now) {
				v.check(t, keys)
			}
		}
	})
}

// TestSignal: who waits is told once, whoever is taken out is not, and what
// nobody has changed does not fire.
func TestSignal(t *testing.T) {
	t.Parallel()
	x := radix.Begin(radix.New[int](), true)
	for _, k := range []string{"a\x00", "b\x00", "c\x00"} {
		x.Put([]byte(k), new(int))
	}
	tree := x.End()
	x.Published()

	woken := map[string]int{}
	link := func(name string) *radix.Link { return &radix.Link{Woken: func() { woken[name]++ }} }
	_, a := tree.Watch([]byte("a\x00"))
	_, b := tree.Watch([]byte("b\x00"))
	first, second, third, other := link("first"), link("second"), link("third"), link("other")
	for _, l := range []*radix.Link{first, second, third} {
		if !a.Add(l) {
			t.Fatal("a signal that has not fired takes no links")
		}
	}
	b.Add(other)
	a.Remove(second)
	a.Remove(second)

	x = radix.Begin(tree, true)
	x.Put([]byte("a\x00"), new(int))
	x.Put([]byte("a\x00"), new(int))
	x.Put([]byte("b2\x00"), new(int)) // a close neighbour
	next := x.End()
	x.Published()
	a.Remove(third)
	if !maps.Equal(woken, map[string]int{"first": 1, "third": 1}) {
		t.Errorf("woken %v, want the first and the third, once", woken)
	}
	if a.Add(link("late")) || !a.Fired() || b.Fired() {
		t.Error("a has fired, and b has not")
	}
	_, again := tree.Watch([]byte("a\x00"))
	_, still := next.Watch([]byte("b\x00"))
	if !again.Fired() || still != b {
		t.Error("in the old version a's signal has fired; in the new one b's is the same")
	}

	// What is only looked at fires nothing.
	x = radix.Begin(tree, false)
	x.Put([]byte("b\x00"), new(int))
	x.End()
	x.Published()
	if b.Fired() {
		t.Error("a fork fired a signal")
	}
}
