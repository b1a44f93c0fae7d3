package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
	"github.com/berth-dev/berth/internal/suggest"
)

// known is a thing that the servers know: its id, what a person recognizes it
// by, and its namespace, if it is in one.
type known struct {
	id        string
	note      string
	namespace api.NamespaceID
}

// kind is a noun whose things have ids that people type.
type kind struct {
	// noun is its name, and the command that holds those about it.
	noun string
	// name is the noun in sentences.
	name string
	// namespaced: its things are in namespaces.
	namespaced bool
	// list are its things, by their ids.
	list func(context.Context, *client.Client, client.Query) ([]known, error)
}

// kinds are the nouns whose ids are found by prefix, suggested and completed.
func kinds() []kind {
	return []kind{
		kindOf(kind{noun: "volume", name: "volume", namespaced: true}, (*client.Client).Volumes, func(v *api.Volume) known {
			return known{string(v.ID), fmt.Sprintf("%s, plugin %s", v.Status.State, v.Spec.PluginID), v.Namespace}
		}),
		kindOf(kind{noun: "snapshot", name: "snapshot", namespaced: true}, (*client.Client).Snapshots, func(s *api.Snapshot) known {
			return known{string(s.ID), fmt.Sprintf("%s, of volume %s", s.Status.State, s.VolumeID), s.Namespace}
		}),
		kindOf(kind{noun: "var", name: "variable", namespaced: true}, (*client.Client).Variables, func(v *api.Variable) known {
			return known{string(v.Path), strings.Join(v.Keys, ", "), v.Namespace}
		}),
		kindOf(kind{noun: "job", name: "job", namespaced: true}, (*client.Client).Jobs, func(j api.JobInfo) known {
			return known{string(j.ID), fmt.Sprintf("%s, %s", j.Spec.Type, j.State), j.Namespace}
		}),
		kindOf(kind{noun: "alloc", name: "allocation", namespaced: true}, (*client.Client).Allocations, func(a *api.Allocation) known {
			return known{string(a.ID), fmt.Sprintf("%s, %s", a.Name(), a.Status.State), a.Namespace}
		}),
		kindOf(kind{noun: "node", name: "node"}, (*client.Client).Nodes, func(n *api.Node) known { return known{id: string(n.ID), note: string(n.Status.State)} }),
		kindOf(kind{noun: "plugin", name: "plugin"}, (*client.Client).Plugins, func(p *api.Plugin) known {
			return known{id: string(p.ID), note: fmt.Sprintf("%d of %d nodes healthy", p.NodesHealthy, p.NodesExpected)}
		}),
		kindOf(kind{noun: "operation", name: "operation", namespaced: true}, (*client.Client).Operations, func(o *api.Operation) known {
			return known{string(o.ID), string(o.Status.State), o.Namespace}
		}),
	}
}

func kindOf[T any](k kind, read func(*client.Client, context.Context, client.Query) ([]T, uint64, error), describe func(T) known) kind {
	k.list = func(ctx context.Context, c *client.Client, q client.Query) ([]known, error) {
		rows, _, err := read(c, ctx, q)
		all := make([]known, 0, len(rows))
		for _, row := range rows {
			all = append(all, describe(row))
		}
		slices.SortFunc(all, func(x, y known) int { return strings.Compare(x.id, y.id) })
		return all, err
	}
	return k
}

// kindNamed is the kind that a command is about.
func kindNamed(noun string) (kind, bool) {
	all := kinds()
	i := slices.IndexFunc(all, func(k kind) bool { return k.noun == noun })
	if i < 0 {
		return kind{}, false
	}
	return all[i], true
}

// beginning are the things of a namespace whose ids begin with a word.
func (k kind) beginning(ctx context.Context, c *client.Client, ns api.NamespaceID, word string, page *client.Page) ([]known, error) {
	q := client.Query{Prefix: word, Page: page}
	if k.namespaced {
		q.Namespace = ns
	}
	all, err := k.list(ctx, c, q)
	return slices.DeleteFunc(all, func(one known) bool {
		return !strings.HasPrefix(one.id, word) || k.namespaced && one.namespace != ns
	}), err
}

// search looks for things of a noun.
type search struct {
	app    *app
	client *client.Client
	noun   string
}

// maxCandidates is how many things an error names.
const maxCandidates = 8

// find reads a thing by its id, or by the beginning of it if nothing else
// begins so. Only commands that read take beginnings: what a person wants
// gone, stopped or changed has to be named.
func find[T any](ctx context.Context, s search, word string, read func(id string) (T, error)) (T, error) {
	v, err := read(word)
	if api.CodeOf(err) != api.CodeNotFound || word == "" {
		return v, orAmbiguous(err)
	}
	k, _ := kindNamed(s.noun)
	begin, listErr := k.beginning(ctx, s.client, s.app.ns(), word, nil)
	if listErr != nil {
		return v, orList(err, s.app.listOf(k))
	}
	switch len(begin) {
	case 0:
		return v, s.notFound(ctx, word, err)
	case 1:
		return read(begin[0].id)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "several %ss begin with %s:", k.name, word)
	for i, one := range begin {
		if i == maxCandidates {
			fmt.Fprintf(&text, "\n  and %d more", len(begin)-i)
			break
		}
		fmt.Fprintf(&text, "\n  %s (%s)", one.id, one.note)
	}
	return v, Usage(errors.New(text.String()))
}

// orAmbiguous makes the servers' refusal of a beginning that is not enough one
// of input: a read conflicts with nothing else.
func orAmbiguous(err error) error {
	if api.CodeOf(err) == api.CodeConflict {
		return Usage(err)
	}
	return err
}

// notFound says of what does not exist what was meant perhaps, or where it is.
func (s search) notFound(ctx context.Context, word string, err error) error {
	k, there := kindNamed(s.noun)
	if api.CodeOf(err) != api.CodeNotFound || !there {
		return err
	}
	a := s.app
	all, listErr := k.list(ctx, s.client, client.Query{})
	if listErr != nil {
		return orList(err, a.listOf(k))
	}
	var ids []string
	for _, one := range all {
		if k.namespaced && one.namespace != a.ns() {
			continue
		}
		ids = append(ids, one.id)
		if word != "" && strings.HasPrefix(one.id, word) {
			return fmt.Errorf("%w; did you mean %s? (see 'berth %s')", err, one.id, a.listOf(k))
		}
	}
	if near := suggest.Nearest(word, ids); near != "" {
		return fmt.Errorf("%w; did you mean %s? (see 'berth %s')", err, near, a.listOf(k))
	}
	for _, one := range all {
		if one.id == word {
			return fmt.Errorf("%w; namespace %s has one (use -n %s)", err, one.namespace, one.namespace)
		}
	}
	return orList(err, a.listOf(k))
}

// listOf is the command that lists what has the right name.
func (a *app) listOf(k kind) string {
	if !k.namespaced {
		return k.noun + " list"
	}
	return k.noun + " list" + a.namespaced()
}
