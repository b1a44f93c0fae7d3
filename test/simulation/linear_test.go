package simulation_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
	"github.com/berth-dev/berth/test/cluster"
)

// TestConcurrentClientsSeeOneHistory lets clients apply, delete and read volumes
// at once, with and without the version that they have read, while leaders die
// with any of their entries. Whatever each of them was answered must fit one
// order of all that happened, in which nothing that was confirmed is lost.
func TestConcurrentClientsSeeOneHistory(t *testing.T) {
	t.Parallel()
	const seeds = 30
	for seed := range uint64(seeds) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			var h history
			synctest.Test(t, func(t *testing.T) { h.record(t, seed) })
			model := volumesModel()
			result := porcupine.CheckOperationsTimeout(model, h.operations, time.Minute)
			if result == porcupine.Ok {
				return
			}
			for _, part := range model.Partition(h.operations) {
				if porcupine.CheckOperations(model, part) {
					continue
				}
				slices.SortFunc(part, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
				for _, o := range part {
					t.Log(o.ClientId, o.Call, o.Return, model.DescribeOperation(o.Input, o.Output))
				}
			}
			t.Errorf("the history is %s", result)
		})
	}
}

// asked is what a client asked for, and said what it was answered.
type (
	asked struct {
		verb    string // apply, delete or read
		vol     api.VolumeID
		name    string // to apply
		version uint64 // the condition; 0 is none
	}
	said struct {
		code    api.Code // "" for success
		version uint64
		name    string
		leaving bool
	}
)

// register is one volume, as the model has it.
type register struct {
	phase   string // "", present or leaving
	version uint64
	name    string
}

// volumesModel says what answers are right. That a volume which was deleted is
// gone, the servers find in their own time; and a write whose outcome is not
// known has had its effect, or none.
func volumesModel() porcupine.Model {
	m := porcupine.NondeterministicModel{
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			byVolume := map[api.VolumeID][]porcupine.Operation{}
			for _, o := range history {
				vol := o.Input.(asked).vol
				byVolume[vol] = append(byVolume[vol], o)
			}
			var parts [][]porcupine.Operation
			for _, part := range byVolume {
				parts = append(parts, part)
			}
			return parts
		},
		Init: func() []any { return []any{register{}} },
		Step: func(state, input, output any) []any {
			var next []any
			for _, s := range before(state.(register)) {
				for _, to := range s.after(input.(asked), output.(said)) {
					next = append(next, to)
				}
			}
			return next
		},
		Equal:             func(a, b any) bool { return a == b },
		DescribeOperation: func(in, out any) string { return fmt.Sprintf("%+v → %+v", in, out) },
	}
	return m.ToModel()
}

// before are the states that one can be in when somebody looks: what leaves may
// have gone.
func before(s register) []register {
	if s.phase == "leaving" {
		return []register{s, {}}
	}
	return []register{s}
}

// after are the states after a request in which the answer is right.
func (s register) after(in asked, out said) []register {
	if in.verb == "read" {
		if s.read() == out {
			return []register{s}
		}
		return nil
	}
	to, code := s.apply(in)
	if in.verb == "delete" {
		to, code = s.remove(in)
	}
	switch {
	case out.code == api.CodeUncertain:
		return []register{s, to}
	case out.code == api.CodeUnavailable:
		return []register{s}
	case out.code == code, in.verb == "apply" && code == "" && out.code == api.CodeNotFound:
		// Who applied a volume that was gone when the answer was made is told so.
		return []register{to}
	}
	return nil
}

func (s register) read() said {
	if s.phase == "" {
		return said{code: api.CodeNotFound}
	}
	return said{version: s.version, name: s.name, leaving: s.phase == "leaving"}
}

func (s register) apply(in asked) (register, api.Code) {
	switch {
	case s.phase == "" && in.version == 0:
		return register{phase: "present", version: 1, name: in.name}, ""
	case s.phase != "present" || in.version != 0 && in.version != s.version:
		return s, api.CodeConflict
	case in.name == s.name:
		return s, ""
	}
	return register{phase: "present", version: s.version + 1, name: in.name}, ""
}

func (s register) remove(in asked) (register, api.Code) {
	switch {
	case s.phase == "":
		return s, api.CodeNotFound
	case in.version != 0 && in.version != s.version:
		return s, api.CodeConflict
	case s.phase == "leaving":
		return s, ""
	}
	return register{phase: "leaving", version: s.version + 1, name: s.name}, ""
}

// history is what clients asked and were answered.
type history struct {
	clock atomic.Int64

	mu         sync.Mutex // guards operations
	operations []porcupine.Operation
}

// record lets clients and leaders do what a seeded source says.
func (h *history) record(t *testing.T, seed uint64) {
	t.Helper()
	const clients, requests = 5, 40
	c := cluster.Start(t, cluster.Config{})
	defer c.Close()
	c.AwaitRest(time.Minute)
	over, end := context.WithCancel(context.Background())
	var leaders, users sync.WaitGroup
	leaders.Go(func() {
		r := rand.New(rand.NewPCG(seed, 0))
		for {
			select {
			case <-c.Doom(1 + r.IntN(20)):
			case <-over.Done():
				return
			}
			c.StopServer()
			time.Sleep(time.Duration(r.IntN(1000)) * time.Millisecond)
			c.StartServer()
		}
	})
	for n := range clients {
		users.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(n+1)))
			known := map[api.VolumeID]uint64{}
			for range requests {
				h.ask(c, n, r, known)
				time.Sleep(time.Duration(r.IntN(50)) * time.Millisecond)
			}
		})
	}
	users.Wait()
	end()
	leaders.Wait()
}

// ask asks for something. known are the versions that the client has read.
func (h *history) ask(c *cluster.Cluster, id int, r *rand.Rand, known map[api.VolumeID]uint64) {
	ctx, ns := context.Background(), api.DefaultNamespace
	in := asked{verb: []string{"apply", "apply", "apply", "read", "read", "delete"}[r.IntN(6)]}
	in.vol = []api.VolumeID{"a", "b"}[r.IntN(2)]
	if in.verb != "read" && r.IntN(2) == 0 {
		in.version = known[in.vol]
	}
	call := h.clock.Add(1)
	var out said
	var err error
	switch in.verb {
	case "apply":
		in.name = fmt.Sprintf("name-%d", r.IntN(100))
		spec := cluster.VolumeSpec()
		spec.CapacityMin, spec.ExternalID, spec.Name = 0, "ext-"+string(in.vol), in.name
		_, err = c.Client.ApplyVolume(ctx, ns, in.vol, spec, in.version)
	case "delete":
		err = c.Client.DeleteVolume(ctx, ns, in.vol, in.version)
	case "read":
		var v api.VolumeInfo
		if v, _, err = c.Client.Volume(ctx, ns, in.vol, client.Query{}); err == nil {
			out = said{version: v.Version, name: v.Spec.Name, leaving: v.Desired == api.Absent}
			known[in.vol] = v.Version
		}
	}
	out.code = api.CodeOf(err)
	if in.verb == "read" && out.code == api.CodeUnavailable {
		return // it says nothing
	}
	o := porcupine.Operation{ClientId: id, Input: in, Call: call, Output: out, Return: h.clock.Add(1)}
	if out.code == api.CodeUncertain {
		o.Return = 1 << 62 // it may come true at any time
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.operations = append(h.operations, o)
}
