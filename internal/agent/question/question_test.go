package question_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/csi"
	"github.com/berth-dev/berth/internal/agent/csi/csitest"
	"github.com/berth-dev/berth/internal/agent/question"
	"github.com/berth-dev/berth/internal/frame"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is one with a plugin, and with nothing mounted.
type node struct{ client *csi.Client }

func (n node) ControllerWith(id api.PluginID, _ string) (*csi.Client, error) {
	if id != "ebs" {
		return nil, api.Errorf(api.CodeUnavailable, "plugin %s cannot be used: this node does not run it", id)
	}
	return n.client, nil
}

func (n node) Usage(_ context.Context, ns api.NamespaceID, vol api.VolumeID) (api.VolumeUsage, error) {
	if vol != "pg" {
		return api.VolumeUsage{}, api.Errorf(api.CodeUnavailable, "volume %s/%s is not mounted on this node", ns, vol)
	}
	return api.VolumeUsage{Bytes: &api.Usage{Total: 10, Used: 4, Available: 6}}, nil
}

func bubble(t *testing.T, o csitest.Options, f func(b *csitest.Backend, a *question.Answerer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := csitest.NewBackend(o)
		d := b.Node(csitest.Node{ID: "i-1"})
		defer d.Start(t)()
		c := csi.New(d.Dialer(), csi.Config{}, slog.New(slog.DiscardHandler))
		defer func() { _ = c.Close() }()
		f(b, question.New(node{c}, node{c}))
		if v := b.Violations(); len(v) > 0 {
			t.Errorf("the specification is broken: %s", strings.Join(v, "\n"))
		}
	})
}

// answer is what one question got: its values, a line each, and its error.
func answer(t *testing.T, a *question.Answerer, q *api.Question) (lines []string, err error) {
	t.Helper()
	var out bytes.Buffer
	err = a.Answer(context.Background(), api.StreamOffer{Kind: api.StreamQuestion, Question: q}, frame.NewWriter(&out))
	var text bytes.Buffer
	for r := frame.NewReader(&out); ; {
		_, payload, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		text.Write(payload)
	}
	for line := range strings.Lines(text.String()) {
		lines = append(lines, strings.TrimSuffix(line, "\n"))
	}
	return lines, err
}

func ask(kind api.QuestionKind, change func(*api.Question)) *api.Question {
	q := &api.Question{Kind: kind, PluginID: "ebs", Limit: api.Duration(time.Minute)}
	if change != nil {
		change(q)
	}
	return q
}

func writer() []api.Capability {
	return []api.Capability{{AccessMode: api.SingleNodeWriter, AttachmentMode: api.FileSystem}}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		question *api.Question
		want     []string
		err      string
	}{
		"Volume": {
			ask(api.AskVolume, func(q *api.Question) { q.Volume = &api.VolumeQuestion{ExternalID: "disk-1"} }),
			[]string{`{"external_id":"disk-1","capacity":1073741824,"context":{"server":"nfs"},"nodes":["i-1"],"condition":{"abnormal":true,"message":"it smokes"}}`}, "",
		},
		"NoSuchVolume": {
			ask(api.AskVolume, func(q *api.Question) { q.Volume = &api.VolumeQuestion{ExternalID: "disk-9"} }),
			nil, `not_found ControllerGetVolume: NOT_FOUND: there is no volume "disk-9"`,
		},
		"Page": {
			ask(api.AskVolumes, func(q *api.Question) { q.Volumes = &api.VolumesQuestion{Limit: 1} }),
			[]string{`{"volume":{"external_id":"disk-1","capacity":1073741824,"context":{"server":"nfs"},"nodes":["i-1"],"condition":{"abnormal":true,"message":"it smokes"}}}`, `{"next":"disk-2"}`}, "",
		},
		"Whole": {
			ask(api.AskVolumes, func(q *api.Question) { q.Volumes = &api.VolumesQuestion{Whole: true} }),
			[]string{
				`{"volume":{"external_id":"disk-1","capacity":1073741824,"context":{"server":"nfs"},"nodes":["i-1"],"condition":{"abnormal":true,"message":"it smokes"}}}`,
				`{"volume":{"external_id":"disk-2","capacity":1073741824,"condition":{"abnormal":false}}}`,
			}, "",
		},
		"Capacity": {ask(api.AskCapacity, func(q *api.Question) { q.Capacity = &api.CapacityQuestion{} }), []string{`{"available":8589934592}`}, ""},
		"Validate": {
			ask(api.AskValidate, func(q *api.Question) {
				q.Validate = &api.ValidateQuestion{ExternalID: "disk-1", Capabilities: writer()}
			}), []string{`{}`}, "",
		},
		"ValidateRefused": {
			ask(api.AskValidate, func(q *api.Question) {
				q.Validate = &api.ValidateQuestion{ExternalID: "disk-9", Capabilities: writer()}
			}), nil, `not_found ValidateVolumeCapabilities: NOT_FOUND: there is no volume "disk-9"`,
		},
		"Stats": {
			ask(api.AskStats, func(q *api.Question) { q.Stats = &api.StatsQuestion{Namespace: "default", VolumeID: "pg"} }),
			[]string{`{"bytes":{"total":10,"used":4,"available":6}}`}, "",
		},
		"StatsNotHere": {
			ask(api.AskStats, func(q *api.Question) { q.Stats = &api.StatsQuestion{Namespace: "default", VolumeID: "web"} }),
			nil, "unavailable volume default/web is not mounted on this node",
		},
		"NoSuchPlugin":  {ask(api.AskVolumes, func(q *api.Question) { q.PluginID = "nfs" }), nil, "unavailable plugin nfs cannot be used: this node does not run it"},
		"UnknownKind":   {ask("prophecy", nil), nil, "invalid this agent knows no questions of prophecy: upgrade it"},
		"NotSaidOfWhat": {ask(api.AskVolume, nil), nil, "invalid the servers ask for volume, and do not say of what"},
		"Nothing":       {nil, nil, "invalid the servers do not say what they ask, or how long that may take"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, csitest.Options{Attach: true, GetVolume: true, Conditions: true, Capacity: 8 << 30}, func(b *csitest.Backend, a *question.Answerer) {
				b.Add("disk-1", map[string]string{"server": "nfs"})
				b.Add("disk-2", nil)
				b.SetProblem("disk-1", "it smokes")
				b.Meddle("disk-1", "i-1", true)
				lines, err := answer(t, a, tc.question)
				got := ""
				if err != nil {
					got = fmt.Sprintf("%s %s", api.CodeOf(err), err)
				}
				if diff := cmp.Diff([]any{tc.want, tc.err}, []any{lines, got}); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		})
	}
}

func whole() *api.Question {
	return ask(api.AskVolumes, func(q *api.Question) { q.Volumes = &api.VolumesQuestion{Whole: true} })
}

// TestAListIsReadToItsEnd: peers' lists stopped at the first page, and took the
// rest for lost.
func TestAListIsReadToItsEnd(t *testing.T) {
	t.Parallel()
	bubble(t, csitest.Options{}, func(b *csitest.Backend, a *question.Answerer) {
		for i := range 1201 {
			b.Add(fmt.Sprintf("disk-%04d", i), nil)
		}
		lines, err := answer(t, a, whole())
		if err != nil || len(lines) != 1201 || !strings.Contains(lines[1200], "disk-1200") {
			t.Errorf("%d lines, %v", len(lines), err)
		}
	})
}

// TestAListThatLostItsPlaceBeginsAgain: ABORTED says that the token is no good
// any more.
func TestAListThatLostItsPlaceBeginsAgain(t *testing.T) {
	t.Parallel()
	bubble(t, csitest.Options{}, func(b *csitest.Backend, a *question.Answerer) {
		for i := range 501 {
			b.Add(fmt.Sprintf("disk-%04d", i), nil)
		}
		b.Script(csitest.Rule{Method: "ListVolumes", Nth: 2, Do: csitest.Fail("ABORTED", "the token is stale")})
		lines, err := answer(t, a, whole())
		if err != nil || len(lines) != 500+1+501 || lines[500] != `{"restart":true}` {
			t.Errorf("%d lines, %v", len(lines), err)
		}
	})
	bubble(t, csitest.Options{}, func(b *csitest.Backend, a *question.Answerer) {
		b.Script(csitest.Rule{Method: "ListVolumes", Do: csitest.Fail("ABORTED", "no")})
		if _, err := answer(t, a, whole()); err == nil || err.Error() != "ListVolumes: ABORTED: no" {
			t.Errorf("the list that never begins: %v", err)
		}
	})
}

func TestAListThatGoesInCirclesEnds(t *testing.T) {
	t.Parallel()
	bubble(t, csitest.Options{Endless: true}, func(b *csitest.Backend, a *question.Answerer) {
		b.Add("disk-1", nil)
		if _, err := answer(t, a, whole()); err == nil || err.Error() != `ListVolumes goes in circles: next_token "disk-1" came twice` {
			t.Errorf("it ends with %v", err)
		}
	})
}

// TestAPluginThatHangs costs a question its limit, and the fifth its turn; other
// plugins are asked meanwhile.
func TestAPluginThatHangs(t *testing.T) {
	t.Parallel()
	bubble(t, csitest.Options{GetVolume: true}, func(b *csitest.Backend, a *question.Answerer) {
		b.Script(csitest.Rule{Method: "ControllerGetVolume", Do: csitest.Hang()})
		q := ask(api.AskVolume, func(q *api.Question) { q.Volume = &api.VolumeQuestion{ExternalID: "disk-1"} })
		began := time.Now()
		var all sync.WaitGroup
		var mu sync.Mutex
		said := map[string]int{}
		for i := range question.Parallel + 1 {
			if i == question.Parallel { // all turns are taken
				synctest.Wait()
				hurried := *q
				hurried.Limit = api.Duration(30 * time.Second)
				q = &hurried
			}
			mine := q
			all.Go(func() {
				_, err := answer(t, a, mine)
				mu.Lock()
				defer mu.Unlock()
				text, _, _ := strings.Cut(err.Error(), "EXCEEDED") // whose word of it came first is chance
				said[text]++
			})
		}
		synctest.Wait()
		if _, err := answer(t, a, ask(api.AskStats, func(q *api.Question) {
			q.PluginID, q.Stats = "nfs", &api.StatsQuestion{VolumeID: "pg"}
		})); err != nil || time.Since(began) > 0 {
			t.Errorf("another plugin waited for %s: %v", time.Since(began), err)
		}
		all.Wait()
		want := map[string]int{
			"ControllerGetVolume: DEADLINE_":                                      question.Parallel,
			"plugin ebs is busy with 4 other questions, and answers none of them": 1,
		}
		if diff := cmp.Diff(want, said); diff != "" || time.Since(began) != time.Minute {
			t.Errorf("after %s (-want +got):\n%s", time.Since(began), diff)
		}
	})
}

// TestSecretsOfAQuestionAreNotRepeated: a driver that quotes them is cut short.
func TestSecretsOfAQuestionAreNotRepeated(t *testing.T) {
	t.Parallel()
	bubble(t, csitest.Options{}, func(b *csitest.Backend, a *question.Answerer) {
		b.Script(csitest.Rule{Method: "ValidateVolumeCapabilities", Do: csitest.Fail("INTERNAL", "hunter2 is wrong")})
		_, err := answer(t, a, ask(api.AskValidate, func(q *api.Question) {
			q.Validate = &api.ValidateQuestion{ExternalID: "disk-1", Capabilities: writer(), Secrets: map[string]string{"password": "hunter2"}}
		}))
		text, _ := json.Marshal(err)
		if err == nil || bytes.Contains(text, []byte("hunter2")) {
			t.Errorf("it says %s", text)
		}
	})
}
