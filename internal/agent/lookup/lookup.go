// Package lookup knows what templates read of the servers: variables, and where
// services are. It owns the queries, one for each thing that is read on the node,
// however many tasks read it.
//
// It never decides what comes of an answer, and never writes one down. Invariants:
// who reads a thing is told when it has changed; what was answered once stays known
// while no server answers; nothing is asked for that nobody reads.
package lookup

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
	"github.com/berth-dev/berth/internal/supervise"
)

// Servers is the API as lookups use it. With an index an answer comes when there
// is a newer one, or the wait is over.
type Servers interface {
	Variable(ctx context.Context, ns api.NamespaceID, path api.VariablePath, q client.Query) (api.VariableInfo, uint64, error)
	Variables(ctx context.Context, q client.Query) ([]*api.Variable, uint64, error)
	Services(ctx context.Context, q client.Query) ([]api.ServiceInfo, uint64, error)
}

const (
	// wait is how long a server holds a query.
	wait = 5 * time.Minute
	// pace is how often a thing is asked for at most: what changes all the time is
	// taken over once in it.
	pace = time.Second
	// first and last are how long a query that failed waits at first, and at most.
	first, last = time.Second, 30 * time.Second
)

// kind is what is looked up.
type kind int

const (
	variable kind = iota
	variables
	service
)

// key is a thing that is looked up.
type key struct {
	kind      kind
	namespace api.NamespaceID
	name      string
}

// answer is what the servers said of a thing last. It is never changed.
type answer struct {
	found bool
	items map[string]string
	paths []string
	// instances are those that are healthy.
	instances []api.ServiceInstance
}

// same reports whether two answers say the same to who reads them.
func (a *answer) same(b *answer) bool {
	return a != nil && a.found == b.found && maps.Equal(a.items, b.items) && slices.Equal(a.paths, b.paths) &&
		slices.EqualFunc(a.instances, b.instances, func(x, y api.ServiceInstance) bool {
			return x.AllocID == y.AllocID && x.Service == y.Service && x.Address == y.Address && x.Port == y.Port && slices.Equal(x.Tags, y.Tags)
		})
}

// thing is what is known of one, and who reads it.
type thing struct {
	key     key
	answer  *answer // nil before the first
	failing error   // of the last query, nil if it was answered
	readers map[*Reader]bool
	asked   bool // somebody asks for it
	over    chan struct{}
}

// Lookups is what is known on a node.
type Lookups struct {
	servers Servers
	news    chan struct{} // capacity 1: there is a thing that is not asked for

	mu     sync.Mutex // guards below
	things map[key]*thing
}

// New returns what knows nothing yet. It asks while Run runs.
func New(servers Servers) *Lookups {
	return &Lookups{servers: servers, news: make(chan struct{}, 1), things: map[key]*thing{}}
}

// Run asks the servers for what is read, until ctx ends.
func (l *Lookups) Run(ctx context.Context) error {
	var asking sync.WaitGroup
	defer asking.Wait()
	for {
		for _, t := range l.begin() {
			asking.Go(func() {
				l.follow(ctx, t)
			})
		}
		select {
		case <-l.news:
		case <-ctx.Done():
			l.end()
			return nil
		}
	}
}

// begin are the things that nobody asks for yet.
func (l *Lookups) begin() (unasked []*thing) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range l.things {
		if !t.asked {
			t.asked = true
			unasked = append(unasked, t)
		}
	}
	return unasked
}

// end lets the next Run ask for all.
func (l *Lookups) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range l.things {
		t.asked = false
	}
}

// follow asks for a thing until nobody reads it any more, or ctx ends.
func (l *Lookups) follow(ctx context.Context, t *thing) {
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	watching.Go(func() {
		select {
		case <-t.over:
			cancel()
		case <-ctx.Done():
		}
	})
	index, retry := uint64(0), first
	for {
		began := time.Now()
		a, at, err := l.ask(ctx, t.key, index)
		if ctx.Err() != nil {
			return
		}
		l.tell(t, a, err)
		delay := pace - time.Since(began)
		if err != nil {
			delay = retry/2 + rand.N(retry/2)
			retry = min(2*retry, last)
		} else {
			// Servers that were put back count from an older index on.
			index, retry = at, first
		}
		if !supervise.Sleep(ctx, delay) {
			return
		}
	}
}

// ask asks once.
func (l *Lookups) ask(ctx context.Context, k key, index uint64) (*answer, uint64, error) {
	q := client.Query{Index: index, Wait: wait}
	switch k.kind {
	case variable:
		info, at, err := l.servers.Variable(ctx, k.namespace, api.VariablePath(k.name), q)
		if api.CodeOf(err) == api.CodeNotFound {
			return &answer{}, at, nil
		}
		return &answer{found: true, items: info.Items}, at, err
	case variables:
		q.Namespace, q.Prefix = k.namespace, k.name
		list, at, err := l.servers.Variables(ctx, q)
		a := &answer{found: true}
		for _, v := range list {
			a.paths = append(a.paths, string(v.Path))
		}
		return a, at, err
	case service:
		// A list says also what is not there yet.
		q.Namespace, q.Prefix, q.Filters = k.namespace, k.name, []string{client.Where("name", "==", k.name)}
		list, at, err := l.servers.Services(ctx, q)
		a := &answer{found: true}
		for i := range list {
			if list[i].Name == k.name && list[i].Namespace == k.namespace {
				a.instances = slices.DeleteFunc(list[i].Instances, func(s api.ServiceInstance) bool { return !s.Healthy })
			}
		}
		return a, at, err
	}
	return nil, 0, api.Errorf(api.CodeInternal, "nothing is known of kind %d", k.kind)
}

// tell takes an answer, or why there is none, and wakes those who read it if it is
// news to them.
func (l *Lookups) tell(t *thing, a *answer, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	news := (err == nil) != (t.failing == nil)
	if err == nil && !t.answer.same(a) {
		t.answer, news = a, true
	}
	t.failing = err
	if news {
		for r := range t.readers {
			r.wake()
		}
	}
}

// Reader is one who reads: what it has read is followed for it until it reads it
// no more.
type Reader struct {
	lookups   *Lookups
	namespace api.NamespaceID
	news      chan struct{} // capacity 1

	// guarded by lookups.mu
	reads map[*thing]bool // and whether since Begin
}

// Reader returns one of a namespace. It is to be closed.
func (l *Lookups) Reader(ns api.NamespaceID) *Reader {
	return &Reader{lookups: l, namespace: ns, news: make(chan struct{}, 1), reads: map[*thing]bool{}}
}

// News has one when something has changed that it has read.
func (r *Reader) News() <-chan struct{} { return r.news }

func (r *Reader) wake() {
	select {
	case r.news <- struct{}{}:
	default:
	}
}

// Begin begins a reading: what is not read until Settle is read no more.
func (r *Reader) Begin() {
	r.lookups.mu.Lock()
	defer r.lookups.mu.Unlock()
	for t := range r.reads {
		r.reads[t] = false
	}
}

// Settle ends a reading that came to its end.
func (r *Reader) Settle() {
	r.lookups.mu.Lock()
	defer r.lookups.mu.Unlock()
	for t, again := range r.reads {
		if !again {
			r.leave(t)
		}
	}
}

// Close ends all reading.
func (r *Reader) Close() {
	r.lookups.mu.Lock()
	defer r.lookups.mu.Unlock()
	for t := range r.reads {
		r.leave(t)
	}
}

// leave reads a thing no more; the caller holds mu.
func (r *Reader) leave(t *thing) {
	delete(r.reads, t)
	delete(t.readers, r)
	if len(t.readers) == 0 {
		delete(r.lookups.things, t.key)
		close(t.over)
	}
}

// read is what is known of a thing, nil if nothing is. From now on it is followed.
func (r *Reader) read(kind kind, name string) *answer {
	l := r.lookups
	l.mu.Lock()
	defer l.mu.Unlock()
	k := key{kind, r.namespace, name}
	t := l.things[k]
	if t == nil {
		t = &thing{key: k, readers: map[*Reader]bool{}, over: make(chan struct{})}
		l.things[k] = t
		select {
		case l.news <- struct{}{}:
		default:
		}
	}
	t.readers[r], r.reads[t] = true, true
	return t.answer
}

// Failing is why something that was read last is not known, nil while it may come.
func (r *Reader) Failing() error {
	r.lookups.mu.Lock()
	defer r.lookups.mu.Unlock()
	for t := range r.reads {
		if t.answer == nil && t.failing != nil {
			return t.failing
		}
	}
	return nil
}

// Variable implements rendering.Lookups.
func (r *Reader) Variable(path string) (items map[string]string, found, ok bool) {
	a := r.read(variable, path)
	if a == nil {
		return nil, false, false
	}
	return a.items, a.found, true
}

// Variables implements rendering.Lookups.
func (r *Reader) Variables(prefix string) (paths []string, ok bool) {
	a := r.read(variables, prefix)
	if a == nil {
		return nil, false
	}
	return a.paths, true
}

// Service implements rendering.Lookups.
func (r *Reader) Service(name string) (instances []api.ServiceInstance, ok bool) {
	a := r.read(service, name)
	if a == nil {
		return nil, false
	}
	return a.instances, true
}
