package httpapi_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
)

func said(err error) string {
	if err == nil {
		return ""
	}
	return fmt.Sprintf("%s: %s", api.CodeOf(err), err)
}

// TestRegistration is who may begin a session, and what a stranger is told.
func TestRegistration(t *testing.T) {
	t.Parallel()
	change := func(change func(*api.Registration)) api.Registration {
		reg := registration("n1", "session-2")
		reg.Known = []string{"session-of-n1"}
		change(&reg)
		return reg
	}
	same := change(func(*api.Registration) {})
	for name, tc := range map[string]struct {
		secret string
		reg    api.Registration
		want   string
	}{
		"SameAgent":        {"n1-secret", same, ""},
		"SameAgentAgain":   {"n1-secret", change(func(r *api.Registration) { r.Session, r.Known = "session-of-n1", nil }), ""},
		"OtherNode":        {"n2-secret", change(func(r *api.Registration) { r.NodeID, r.Name = "n2", "n2" }), ""},
		"PinnedThis":       {"n1-secret", change(func(r *api.Registration) { r.ClusterID = "THIS" }), ""},
		"NewerAgent":       {"n1-secret", change(func(r *api.Registration) { r.FeatureLevel = 99 }), ""},
		"NoSecret":         {"", same, "forbidden: the request carries no node secret"},
		"WrongSecret":      {"guess", same, "forbidden: node n1 is registered with another secret"},
		"NewWithoutOne":    {"", change(func(r *api.Registration) { r.NodeID = "n2" }), "invalid: the request has a problem\n  secret is missing; send the node's secret"},
		"OtherLiveAgent":   {"n1-secret", change(func(r *api.Registration) { r.Known = nil }), "identity_in_use: another agent with the identity of node n1 was heard of within the last 15s: was its data directory copied?"},
		"PinnedAnother":    {"n1-secret", change(func(r *api.Registration) { r.ClusterID = "ELSE" }), "wrong_cluster: this is cluster THIS, and the agent belongs to cluster ELSE: either it talks to the wrong servers, or these servers have lost their state; restore a backup of it"},
		"OlderAgent":       {"n1-secret", change(func(r *api.Registration) { r.FeatureLevel = 0 }), "forbidden: the cluster is at feature level 1, and the agent knows level 0: upgrade it"},
		"NameThatIsNone":   {"n1-secret", change(func(r *api.Registration) { r.Name = "a b" }), `invalid: the request has a problem` + "\n  " + `name has the character " "; use 1 to 63 letters, digits, dots, dashes or underscores, the first a letter or digit`},
		"NothingSaid":      {"x", api.Registration{FeatureLevel: 1}, "invalid: the request has 4 problems\n  node_id is empty; use 1 to 63 letters, digits, dots, dashes or underscores, the first a letter or digit\n  name is empty; use 1 to 63 letters, digits, dots, dashes or underscores, the first a letter or digit\n  session is empty; make a token for the session\n  boot_id is empty; send the kernel's boot id"},
		"StrangerFromAfar": {"x", change(func(r *api.Registration) { r.NodeID, r.Generation, r.Index = "n3", math.MaxUint64-1, 1<<60 }), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := start(t)
				defer w.stop()
				w.join("n1")
				status, err := w.Status(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				reg := tc.reg
				reg.ClusterID = strings.Replace(reg.ClusterID, "THIS", status.ClusterID, 1)
				answer, err := w.Agent(reg.NodeID, tc.secret).Register(t.Context(), reg)
				got := strings.ReplaceAll(said(err), status.ClusterID, "THIS")
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("answer (-want +got):\n%s", diff)
				}
				if err == nil && (answer.ClusterID != status.ClusterID || answer.Epoch != 1 || answer.Generation.Number != 1 || answer.Index == 0) {
					t.Errorf("registered: %+v", answer)
				}
				// Whoever asked, the cluster works on.
				if rec, err := w.Recovery(t.Context()); err != nil || rec.Generation.Recovering {
					t.Errorf("then the cluster is %+v (%v)", rec, err)
				}
			})
		})
	}
}

// TestCopyOfAnAgentMayComeWhenTheOtherIsGone, in a new epoch: what it remembers
// is not what the servers know.
func TestCopyOfAnAgentMayComeWhenTheOtherIsGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		defer w.stop()
		n1 := w.join("n1")
		time.Sleep(api.Lease)
		answer, err := w.Agent("n1", "n1-secret").Register(t.Context(), registration("n1", "copy"))
		if err != nil || answer.Epoch != 2 || answer.Sequence != 0 {
			t.Errorf("registered %+v (%v), want epoch 2, and reports counted anew", answer, err)
		}
		_, err = n1.Report(t.Context(), api.Report{NodeID: "n1", Session: n1.session, Epoch: 1, Sequence: 99})
		if api.CodeOf(err) != api.CodeStaleSession {
			t.Errorf("the other reports: %v, want stale_session", err)
		}
	})
}

// TestServersThatForgot: an agent that has seen more than the servers know
// proves that their files were put back.
func TestServersThatForgot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		defer w.stop()
		w.join("n1")
		status, err := w.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		reg := registration("n1", "session-of-n1")
		reg.ClusterID, reg.Generation, reg.Index = status.ClusterID, 1, status.Index+1000
		answer, err := w.Agent("n1", "n1-secret").Register(t.Context(), reg)
		if err != nil || answer.Generation.Number != 2 || !answer.Generation.Recovering {
			t.Errorf("registered %+v (%v), want generation 2, recovering", answer, err)
		}
		want := fmt.Sprintf("node n1 had seen index %d of generation 1, and the servers only reach index %d of generation 1", status.Index+1000, status.Index)
		if answer.Generation.Reason != want {
			t.Errorf("reason %q, want %q", answer.Generation.Reason, want)
		}
	})
}

// TestReportsAndPollsOfStrangers.
func TestReportsAndPollsOfStrangers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		defer w.stop()
		ctx := t.Context()
		n1 := w.join("n1")
		w.join("n2")
		report := func(a *client.Agent, node api.NodeID, session string, epoch uint64) error {
			_, err := a.Report(ctx, api.Report{NodeID: node, Session: session, Epoch: epoch, Sequence: 50})
			return err
		}
		poll := func(a *client.Agent, session string, epoch uint64) error {
			_, err := a.Assignments(ctx, session, epoch, 0, 0)
			return err
		}
		self, guess, none := w.Agent("n1", "n1-secret"), w.Agent("n1", "guess"), w.Agent("n1", "")
		stranger, other := w.Agent("n9", "n9-secret"), w.Agent("n2", "n2-secret")
		for _, tc := range []struct {
			name string
			err  error
			want string
		}{
			{"ReportWithoutSecret", report(none, "n1", n1.session, 1), "forbidden: the request carries no node secret"},
			{"ReportWithAGuess", report(guess, "n1", n1.session, 1), "forbidden: node n1 is registered with another secret"},
			{"ReportForAnotherNode", report(other, "n1", n1.session, 1), "forbidden: node n1 is registered with another secret"},
			{"ReportOfAStranger", report(stranger, "n9", "s", 1), "stale_session: node n9 is not registered"},
			{"ReportOfAnOldSession", report(self, "n1", "older", 1), "stale_session: the session of node n1 has ended: its agent registered again, or another one did"},
			{"ReportOfAnOldEpoch", report(self, "n1", n1.session, 0), "stale_session: epoch 0 of node n1 has ended; it is in epoch 1"},
			{"PollWithoutSecret", poll(none, n1.session, 1), "forbidden: the request carries no node secret"},
			{"PollWithAGuess", poll(guess, n1.session, 1), "forbidden: node n1 is registered with another secret"},
			{"PollOfAStranger", poll(stranger, "s", 1), "stale_session: node n9 is not registered"},
			{"PollOfAnOldSession", poll(self, "older", 1), "stale_session: the session of node n1 has ended: its agent registered again, or another one did"},
			{"PollOfAnOldEpoch", poll(self, n1.session, 0), "stale_session: epoch 0 of node n1 has ended; it is in epoch 1"},
			{"Report", report(self, "n1", n1.session, 1), ""},
			{"Poll", poll(self, n1.session, 1), ""},
		} {
			if diff := cmp.Diff(tc.want, said(tc.err)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.name, diff)
			}
		}
		got := w.send("GET", "/v1/agent/assignments", nil, api.HeaderNode, "n1", "Authorization", "Bearer n1-secret", api.HeaderSession, n1.session)
		if e := got.refusal(t); e.Code != api.CodeInvalid || e.Message != `header Berth-Epoch is "", not a number` {
			t.Errorf("a poll without epoch: %d %s", got.status, got.body)
		}
		got = w.send("GET", "/v1/agent/assignments", nil, api.HeaderNode, "n1", "Authorization", "Basic bjE6bjEtc2VjcmV0", api.HeaderEpoch, "1")
		if e := got.refusal(t); e.Code != api.CodeForbidden {
			t.Errorf("a secret in another scheme: %d %s", got.status, got.body)
		}
	})
}

// TestOldSessionIsToldAtOnce that it has ended, while it waits for work.
func TestOldSessionIsToldAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		defer w.stop()
		n1 := w.join("n1")
		work, err := n1.Assignments(t.Context(), n1.session, 1, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		polled := make(chan error, 1)
		go func() {
			_, err := n1.Assignments(t.Context(), n1.session, 1, work.Index, time.Minute)
			polled <- err
		}()
		synctest.Wait()
		reg := registration("n1", "session-2")
		reg.Known = []string{n1.session}
		began := time.Now()
		if _, err := n1.Register(t.Context(), reg); err != nil {
			t.Fatal(err)
		}
		if err := <-polled; api.CodeOf(err) != api.CodeStaleSession || time.Since(began) != 0 {
			t.Errorf("the older session got %v after %s, want stale_session at once", err, time.Since(began))
		}
	})
}

// TestPollingKeepsANodeReady, and nothing else does: a caller with the wrong
// session says nothing about the node.
func TestPollingKeepsANodeReady(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		defer w.stop()
		n1 := w.join("n1")
		state := func() api.NodeState {
			info, _, err := w.Node(context.Background(), "n1", client.Query{})
			if err != nil {
				t.Fatal(err)
			}
			return info.Status.State
		}
		for range 12 {
			if _, err := n1.Assignments(t.Context(), n1.session, 1, 1<<60, 5*time.Second); err != nil {
				t.Fatal(err)
			}
			if _, err := n1.Assignments(t.Context(), "older", 1, 0, 0); err == nil {
				t.Fatal("an older session was answered")
			}
		}
		if got := state(); got != api.NodeReady {
			t.Errorf("a node that polls is %s", got)
		}
		for range 20 {
			_, _ = n1.Assignments(t.Context(), "older", 1, 0, 0)
			_, _ = w.Agent("n1", "guess").Assignments(t.Context(), n1.session, 1, 0, 0)
			time.Sleep(time.Second)
		}
		if got := state(); got != api.NodeDown {
			t.Errorf("a node of which only strangers speak is %s", got)
		}
		n1.report(api.Facts{})
		synctest.Wait()
		if got := state(); got != api.NodeReady {
			t.Errorf("a node that reports again is %s", got)
		}
	})
}

// TestReportIsAppliedOnce, however often it comes.
func TestReportIsAppliedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		defer w.stop()
		n1 := w.join("n1")
		instance := func(reason string) api.Facts {
			return api.Facts{Instances: []api.InstanceFact{{PluginID: "disk", InstanceStatus: api.InstanceStatus{Type: api.InstanceMonolith, Reason: reason}}}}
		}
		n1.report(instance("first"))
		late := api.Report{NodeID: "n1", Session: n1.session, Epoch: 1, Sequence: n1.sequence, Facts: instance("first")}
		n1.report(instance("second"))
		for range 3 {
			if _, err := n1.Report(t.Context(), late); err != nil {
				t.Fatal(err)
			}
		}
		p, _, err := w.Plugin(t.Context(), "disk", client.Query{})
		if err != nil || p.Instances[0].Reason != "second" {
			t.Errorf("the instance is %+v (%v), want the newest word", p.Instances[0].InstanceStatus, err)
		}
		if _, err := n1.Report(t.Context(), api.Report{NodeID: "n1", Session: n1.session, Epoch: 1}); said(err) != "invalid: the request has a problem\n  sequence is 0; count reports from 1" {
			t.Errorf("a report without sequence: %v", err)
		}
	})
}
