package inquiry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/frame"
	"github.com/berth-dev/berth/internal/server/carrier"
	"github.com/berth-dev/berth/internal/server/inquiry"
	"github.com/berth-dev/berth/internal/state/statetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// agents play the agents of nodes: each question of a node goes to its
// function. One without a function does not poll.
type agents struct {
	broker *carrier.Broker
	answer map[api.NodeID]func(q *api.Question, out *frame.Writer, conn net.Conn)
}

// run polls for all agents until the test's bubble is to end.
func (a *agents) run(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	for id, answer := range a.answer {
		running.Go(func() {
			defer a.broker.Polling(id)()
			for ctx.Err() == nil {
				due, changed, next := a.broker.Offers(id)
				for _, o := range due {
					near, far := net.Pipe()
					running.Go(func() { _ = a.broker.Accept(id, o.ID, oneWay{far}); _ = far.Close() })
					running.Go(func() { answer(o.Question, frame.NewWriter(near), near); _ = near.Close() })
				}
				if len(due) > 0 {
					continue
				}
				wait := time.Minute
				if !next.IsZero() {
					wait = time.Until(next)
				}
				timer := time.NewTimer(wait)
				select {
				case <-changed:
				case <-timer.C:
				case <-ctx.Done():
				}
				timer.Stop()
			}
		})
	}
	return func() { cancel(); running.Wait() }
}

// says answers with values of JSON, and then with an error if there is one.
func says(err *api.Error, values ...any) func(*api.Question, *frame.Writer, net.Conn) {
	return func(_ *api.Question, out *frame.Writer, _ net.Conn) {
		var b bytes.Buffer
		for _, v := range values {
			if text, is := v.(string); is {
				b.WriteString(text + "\n")
				continue
			}
			_ = json.NewEncoder(&b).Encode(v)
		}
		if _, failed := out.Write(b.Bytes()); failed != nil {
			return
		}
		var last []byte
		if err != nil {
			last, _ = json.Marshal(err)
		}
		_ = out.Put(frame.End, last)
	}
}

func never(_ *api.Question, out *frame.Writer, conn net.Conn) {
	for out.Ping() == nil {
		time.Sleep(api.StreamPing)
	}
	_ = conn.Close()
}

const world = `
node {"id":"n1","status":{"state":"ready"}}
node {"id":"n2","status":{"state":"ready"}}
node {"id":"n3","status":{"state":"down"}}
instance {"plugin_id":"ebs","node_id":"n1","type":"monolith","healthy":true,"plugin_capabilities":["CONTROLLER_SERVICE"],"controller_capabilities":["LIST_VOLUMES","GET_VOLUME"],"topology":{"zone":"a"}}
instance {"plugin_id":"ebs","node_id":"n2","type":"monolith","healthy":true,"plugin_capabilities":["CONTROLLER_SERVICE"],"controller_capabilities":["LIST_VOLUMES"],"topology":{"zone":"b"}}
instance {"plugin_id":"ebs","node_id":"n3","type":"monolith","healthy":true,"plugin_capabilities":["CONTROLLER_SERVICE"],"controller_capabilities":["LIST_VOLUMES"],"topology":{"zone":"c"}}
instance {"plugin_id":"nfs","node_id":"n1","type":"controller","healthy":true,"plugin_capabilities":["CONTROLLER_SERVICE"],"controller_capabilities":["LIST_VOLUMES","GET_VOLUME"]}
instance {"plugin_id":"nfs","node_id":"n2","type":"controller","healthy":true,"plugin_capabilities":["CONTROLLER_SERVICE"],"controller_capabilities":["LIST_VOLUMES","GET_VOLUME"]}
instance {"plugin_id":"host","node_id":"n1","type":"node","healthy":true}
`

// TestPlaces: controllers that are near different things are asked one by one,
// those that are alike once, and those that cannot be asked not at all.
func TestPlaces(t *testing.T) {
	t.Parallel()
	v := statetest.Load(t, world).View()
	keys := func(plugin api.PluginID, capability string) (keys []string) {
		for _, p := range inquiry.Places(v, plugin, capability) {
			keys = append(keys, p.Key())
		}
		return keys
	}
	got := [][]string{keys("ebs", api.CapListVolumes), keys("ebs", api.CapGetVolume), keys("nfs", api.CapListVolumes), keys("host", ""), keys("none", "")}
	want := [][]string{{`"zone"="a"`, `"zone"="b"`}, {`"zone"="a"`}, {""}, nil, nil}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for name, tc := range map[string]struct {
		plugin     api.PluginID
		capability string
		near       []api.Topology
		want       string
	}{
		"Near":       {"ebs", api.CapListVolumes, []api.Topology{{"zone": "b"}}, `"zone"="b"`},
		"Anywhere":   {"ebs", api.CapListVolumes, nil, `"zone"="a"`},
		"Down":       {"ebs", api.CapListVolumes, []api.Topology{{"zone": "c"}}, "no controller instance of plugin ebs that is near the volume is healthy"},
		"CannotSay":  {"ebs", api.CapGetCapacity, nil, "plugin ebs cannot be asked: its controller lacks the capability GET_CAPACITY"},
		"Everywhere": {"nfs", api.CapListVolumes, []api.Topology{{"zone": "c"}}, ""},
		"NodeOnly":   {"host", api.CapListVolumes, nil, "plugin host has no controller instance"},
		"NoPlugin":   {"none", api.CapListVolumes, nil, "no node runs plugin none"},
	} {
		p, err := inquiry.Near(v, tc.plugin, tc.capability, tc.near)
		got := p.Key()
		if err != nil {
			got = err.Error()
		}
		if got != tc.want {
			t.Errorf("%s: got %s, want %s", name, got, tc.want)
		}
	}
}

// TestBrokenAgents: whatever an agent does, who asks has an answer in time.
func TestBrokenAgents(t *testing.T) {
	t.Parallel()
	disk := api.Listed{Volume: &api.ExternalVolume{ExternalID: "disk-1"}}
	for name, tc := range map[string]struct {
		n1, n2 func(*api.Question, *frame.Writer, net.Conn)
		want   string // of one of them, whichever is asked first
		took   time.Duration
	}{
		"NeverAnswers": {never, never, "unavailable node n did not answer within 2m0s", 3 * (2*time.Minute + 2*time.Second)},
		"Nonsense":     {says(nil, "{not json"), says(nil, "{not json"), "unavailable the agent's answer cannot be read: invalid character 'n' looking for beginning of object key string", 0},
		"NoVolume":     {says(nil, "{}"), says(nil, "{}"), "unavailable the agent lists something that is no volume", 0},
		"HugeValue":    {says(nil, strings.Repeat("x", 5<<20)), says(nil, strings.Repeat("x", 5<<20)), "unavailable node n answers with a value of more than 4194304 bytes", 0},
		"Refuses":      {says(api.Errorf(api.CodeInvalid, "it cannot")), says(api.Errorf(api.CodeInvalid, "it cannot")), "invalid it cannot", 0},
		"CutOff": {func(_ *api.Question, out *frame.Writer, conn net.Conn) {
			_ = out.Put(frame.Data, []byte("{"))
			_ = conn.Close()
		},
			func(_ *api.Question, _ *frame.Writer, conn net.Conn) { _ = conn.Close() }, "unavailable the agent of node n went away in the middle of the stream", 0},
		"OtherFrames": {func(_ *api.Question, out *frame.Writer, _ net.Conn) { _ = out.Put(9, nil) }, func(_ *api.Question, out *frame.Writer, _ net.Conn) { _ = out.Put(9, nil) },
			"", 0},
		"HalfAValue": {func(_ *api.Question, out *frame.Writer, _ net.Conn) {
			_ = out.Put(frame.Data, []byte("{"))
			_ = out.Put(frame.End, nil)
		},
			func(_ *api.Question, out *frame.Writer, _ net.Conn) {
				_ = out.Put(frame.Data, []byte("{"))
				_ = out.Put(frame.End, nil)
			},
			"unavailable the agent's answer ends in the middle of a value", 0},
		"OneIsWell": {says(api.Errorf(api.CodeUnavailable, "it restarts")), says(nil, disk), "disk-1", 0},
		"NotThere":  {nil, nil, "unavailable node n is not connected: its agent does not poll", 2 * time.Second},
		"Again":     {says(nil, disk, api.Listed{Restart: true}, disk), says(nil, disk, api.Listed{Restart: true}, disk), "disk-1", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a := &agents{broker: carrier.New(), answer: map[api.NodeID]func(*api.Question, *frame.Writer, net.Conn){}}
				if tc.n1 != nil {
					a.answer["n1"], a.answer["n2"] = tc.n1, tc.n2
				}
				stop := a.run(t.Context())
				asker := inquiry.New(a.broker)
				p, err := inquiry.Near(statetest.Load(t, world).View(), "nfs", api.CapListVolumes, nil)
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				var found []string
				err = asker.Volumes(t.Context(), p, func() { found = nil }, func(v api.ExternalVolume) error {
					found = append(found, v.ExternalID)
					return nil
				})
				took := time.Since(began)
				got := strings.Join(found, " ")
				if err != nil {
					got = fmt.Sprintf("%s %s", api.CodeOf(err), strings.NewReplacer("node n1", "node n", "node n2", "node n").Replace(err.Error()))
				}
				if tc.want == "" && err == nil || tc.want != "" && got != tc.want || took > max(tc.took, time.Second) {
					t.Errorf("after %s: %s, want %s", took, got, tc.want)
				}
				synctest.Wait() // the other end of a stream hangs up when it is told to
				if n := a.broker.Streams(); n != 0 {
					t.Errorf("%d streams are left", n)
				}
				stop()
			})
		})
	}
}

// TestBounded: a node gets so many questions at a time, and who asks for more is
// told so at once.
func TestBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &agents{broker: carrier.New(), answer: map[api.NodeID]func(*api.Question, *frame.Writer, net.Conn){"n1": never}}
		defer a.run(t.Context())()
		asker := inquiry.New(a.broker)
		ctx, cancel := context.WithCancel(t.Context())
		var asking sync.WaitGroup
		defer asking.Wait()
		defer cancel()
		for range inquiry.PerNode {
			asking.Go(func() { _, _ = asker.Usage(ctx, "n1", "ebs", api.StatsQuestion{VolumeID: "pg"}) })
		}
		synctest.Wait()
		if _, err := asker.Usage(ctx, "n1", "ebs", api.StatsQuestion{VolumeID: "pg"}); err == nil || err.Error() != "node n1 has 8 questions to answer already: try again" {
			t.Errorf("the ninth: %v", err)
		}
		time.Sleep(time.Minute)
		if _, err := asker.Usage(ctx, "n1", "ebs", api.StatsQuestion{VolumeID: "pg"}); err == nil || err.Error() != "node n1 did not answer within 5s" {
			t.Errorf("after those have ended: %v", err)
		}
	})
}

// TestOneAnswer: what is to be one value is one value.
func TestOneAnswer(t *testing.T) {
	t.Parallel()
	usage := api.VolumeUsage{Bytes: &api.Usage{Total: 1}}
	for name, tc := range map[string]struct {
		answer func(*api.Question, *frame.Writer, net.Conn)
		want   string
	}{
		"One":  {says(nil, usage), "<nil>"},
		"None": {says(nil), "the agent answers with 0 values, and not with one"},
		"Two":  {says(nil, usage, usage), "the agent answers with 2 values, and not with one"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a := &agents{broker: carrier.New(), answer: map[api.NodeID]func(*api.Question, *frame.Writer, net.Conn){"n1": tc.answer}}
				defer a.run(t.Context())()
				_, err := inquiry.New(a.broker).Usage(t.Context(), "n1", "ebs", api.StatsQuestion{VolumeID: "pg"})
				if got := fmt.Sprint(err); got != tc.want {
					t.Errorf("got %s, want %s", got, tc.want)
				}
			})
		})
	}
}

// oneWay is an agent that nobody answers.
type oneWay struct{ net.Conn }

func (oneWay) Answer() (io.Writer, error) { return io.Discard, nil }
