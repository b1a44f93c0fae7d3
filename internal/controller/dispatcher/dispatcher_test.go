package dispatcher_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/controller/controllertest"
	"github.com/berth-dev/berth/internal/controller/dispatcher"
	"github.com/berth-dev/berth/internal/state"
	"github.com/berth-dev/berth/internal/state/statetest"
)

func TestReconcile(t *testing.T) {
	t.Parallel()
	controllertest.Run(t, dispatcher.Controller{})
}

func TestPendingIsEachPluginOfWhichACallIsWaitedFor(t *testing.T) {
	t.Parallel()
	const world = `
operation {"kind":"create","volume_id":"a","plugin_id":"disk"}
operation {"kind":"create","volume_id":"b","plugin_id":"disk"}
operation {"kind":"create","volume_id":"c","plugin_id":"disk2","status":{"next":"now+1h"}}
operation {"kind":"create","volume_id":"d","plugin_id":"dis","status":{"state":"assigned"}}
operation {"kind":"create","volume_id":"e","plugin_id":"d","status":{"state":"cancelled"}}
`
	controllertest.Pending(t, dispatcher.Controller{}, world, "disk", "disk2")
}

// node is the lines of a ready node with a controller instance.
func node(id string) string {
	return fmt.Sprintf(`node {"id":%q,"status":{"state":"ready"}}
instance {"node_id":%q,"healthy":true,"plugin_capabilities":["CONTROLLER_SERVICE"],"topology":{"node":%q}}
`, id, id, id)
}

// call is the line of an operation on a volume; status may be empty.
func call(kind, vol, status string) string {
	return fmt.Sprintf(`operation {"kind":%q,"volume_id":%q,"status":{%s}}`+"\n", kind, vol, status)
}

func running(since string) string {
	return fmt.Sprintf(`"state":"assigned","attempt":1,"executor":"n1","assigned":%q,"deadline":"now+2m"`, since)
}

// to is the line of an operation on a volume and a node.
func to(kind, vol, node, status string) string {
	return fmt.Sprintf(`operation {"kind":%q,"volume_id":%q,"node_id":%q,"status":{%s}}`+"\n", kind, vol, node, status)
}

// on is the lines of a volume that only one node reaches.
func on(node, vol string) string {
	return fmt.Sprintf(`volume {"id":%q,"status":{"state":"ready","accessible_topology":[{"node":%q}]}}`+"\n", vol, node)
}

// TestSlots: who gets the calls that a plugin may have at once (anchors 1.7:
// one call at a time for each plugin, cluster wide, is too few; unbounded is
// too many), in worlds of time now.
func TestSlots(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		limits dispatcher.Calls
		world  string
		want   []string // volumes and the nodes that get their calls
		wake   string
		wait   string // a part of what the plugin's queue waits for
	}{
		"AllThatFit": {dispatcher.Calls{Max: 4}, node("n1") + call("create", "a", "") + call("create", "b", ""), []string{"a n1", "b n1"}, "", ""},
		"NoMoreThanThePluginGets": {
			dispatcher.Calls{Max: 3}, node("n1") + call("create", "a", running("now-1s")) + call("create", "b", "") + call("create", "c", "") + call("create", "d", ""),
			[]string{"b n1", "c n1"}, "", "",
		},
		"OldestFirst": {
			dispatcher.Calls{Max: 2}, node("n1") + call("create", "a", `"queued":"now-1m"`) + call("create", "b", `"queued":"now-3m"`) + call("create", "c", `"queued":"now-2m"`),
			[]string{"b n1", "c n1"}, "", "",
		},
		"WhatIsTriedAgainStandsWhereItsTimeCame": {
			dispatcher.Calls{Max: 2}, node("n1") + call("create", "a", `"queued":"now-1m"`) + call("create", "b", `"queued":"now-3m"`) +
				call("create", "c", `"next":"now-2m"`) + call("create", "d", `"next":"now+2m"`),
			[]string{"b n1", "c n1"}, "", "",
		},
		"WaitsForTheNextTry": {dispatcher.Calls{}, node("n1") + call("create", "a", `"next":"now+2m"`) + call("create", "b", `"next":"now+1m"`), nil, "now+1m", ""},
		"FullUntilACallIsSlow": {
			dispatcher.Calls{Max: 2}, node("n1") + call("create", "a", running("now-5s")) + call("create", "b", running("now-1s")) + call("create", "c", ""),
			nil, "now+10s", "waits for its turn: plugin disk gets 2 calls at once (max_calls = 2); operation create/default/a@1 on node n1 has been under way since",
		},
		"ACallThatHangsGivesItsSlotBack": {
			dispatcher.Calls{Max: 2}, node("n1") + call("create", "a", running("now-15s")) + call("create", "b", running("now-1s")) + call("create", "c", ""),
			[]string{"c n1"}, "", "",
		},
		"ButNotWithoutEnd": {
			dispatcher.Calls{Max: 2}, node("n1") + call("create", "a", running("now-15s")) + call("create", "b", running("now-15s")) + call("create", "c", running("now-1s")) +
				call("create", "d", ""),
			nil, "now+14s", "until",
		},
		"WithOneCallAtATimeItDelaysAllOthers": {
			dispatcher.Calls{Max: 1}, node("n1") + call("create", "a", running("now-1m")) + call("create", "b", ""),
			nil, "", "waits for its turn: plugin disk gets one call at once (max_calls = 1); operation create/default/a@1 on node n1 has been under way since",
		},
		"UnlessItIsToldToGiveItsSlotBack": {
			dispatcher.Calls{Max: 1, MaxSlow: new(1)}, node("n1") + call("create", "a", running("now-1m")) + call("create", "b", ""),
			[]string{"b n1"}, "", "",
		},
		"NeverIfItIsToldNotTo": {
			dispatcher.Calls{Max: 2, MaxSlow: new(0)}, node("n1") + call("create", "a", running("now-1m")) + call("create", "b", running("now-1m")) + call("create", "c", ""),
			nil, "", "max_calls = 2",
		},
		"ANodeAtItsLimitLeavesOthersTheirs": {
			dispatcher.Calls{Max: 9, MaxPerNode: 1}, node("n1") + node("n2") + on("n1", "a") + on("n1", "b") + on("n2", "c") +
				call("delete", "a", running("now-1s")) + call("delete", "b", "") + call("delete", "c", ""),
			[]string{"c n2"}, "", "",
		},
		"ANodeAtItsLimitIsWaitedFor": {
			dispatcher.Calls{Max: 9, MaxPerNode: 1}, node("n1") + node("n2") + on("n1", "a") + on("n1", "b") +
				call("delete", "a", running("now-1s")) + call("delete", "b", ""),
			nil, "now+14s", "operation delete/default/b@1 waits for its turn: node n1, which is to make it, makes one call to plugin disk at once (max_calls_per_node = 1); operation delete/default/a@1 on node n1",
		},
		"NodesShareWhatAnyCanDo": {
			dispatcher.Calls{Max: 9, MaxPerNode: 1}, node("n1") + node("n2") + call("create", "a", "") + call("create", "b", "") + call("create", "c", ""),
			[]string{"a n2", "b n1"}, "", "",
		},
		"AMachineGetsOneVolumeAfterTheOther": {
			dispatcher.Calls{MaxPerTarget: 1}, node("n9") + to("publish", "a", "n1", "") + to("publish", "b", "n1", "") + to("publish", "c", "n2", "") +
				to("unpublish", "d", "n2", "") + call("create", "e", ""),
			[]string{"e n9", "a n9", "c n9"}, "", "",
		},
		"AMachineThatHasItsCallsIsWaitedFor": {
			dispatcher.Calls{MaxPerTarget: 1}, node("n9") + to("unpublish", "a", "n1", running("now-1s")) + to("publish", "b", "n1", ""),
			nil, "now+14s", "operation publish/default/b/n1@1 waits for its turn: plugin disk gets one call at once to attach to node n1 or detach from it (max_calls_per_target = 1); " +
				"operation unpublish/default/a/n1@1 on node n1",
		},
		"OneAtATimeAtAMachineStaysSoHoweverSlow": {
			dispatcher.Calls{MaxPerTarget: 1, MaxSlow: new(9)}, node("n9") + to("publish", "a", "n1", running("now-1m")) + to("publish", "b", "n1", "") + to("publish", "c", "n2", ""),
			[]string{"c n9"}, "", "",
		},
		"ASlowCallToAMachineGivesItsSlotBack": {
			dispatcher.Calls{MaxPerTarget: 2}, node("n9") + to("publish", "a", "n1", running("now-1m")) + to("publish", "b", "n1", running("now-1s")) +
				to("publish", "c", "n1", "") + to("publish", "d", "n1", ""),
			[]string{"c n9"}, "", "",
		},
		"CallsForNoMachineAreNotBoundedByIt": {
			dispatcher.Calls{MaxPerTarget: 1}, node("n1") + `operation {"kind":"node-expand","volume_id":"a","node_id":"n1"}` + "\n" + to("publish", "b", "n1", "") + call("create", "c", ""),
			[]string{"c n1", "a n1", "b n1"}, "", "",
		},
		"OneVolumeTakesAtMostHalf": {
			dispatcher.Calls{Max: 4}, node("n9") + `operation {"kind":"publish","volume_id":"a","node_id":"n1"}
operation {"kind":"publish","volume_id":"a","node_id":"n2"}
operation {"kind":"publish","volume_id":"a","node_id":"n3"}
` + call("create", "b", `"queued":"now"`), []string{"a n9", "a n9", "b n9"}, "", "",
		},
		"OtherPluginsAreNotInTheWay": {
			dispatcher.Calls{Max: 1}, node("n1") + `operation {"kind":"create","volume_id":"x","plugin_id":"other","status":{` + running("now-1s") + "}}\n" + call("create", "a", ""),
			[]string{"a n1"}, "", "",
		},
		"ANodeExpandIsItsNodes": {
			dispatcher.Calls{}, node("n1") + node("n2") + `operation {"kind":"node-expand","volume_id":"a","node_id":"n2"}` + "\n", []string{"a n2"}, "", "",
		},
		"ANodeExpandWaitsForItsNode": {
			dispatcher.Calls{}, node("n1") + `operation {"kind":"node-expand","volume_id":"a","node_id":"n2"}` + "\n", nil, "",
			"operation node-expand/default/a/n2@1 node n2 does not run plugin disk",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := statetest.Load(t, c.world).View()
			plan, err := dispatcher.New(dispatcher.Limits{"disk": c.limits}).Reconcile(v, statetest.Now(), "disk")
			if err != nil {
				t.Fatal(err)
			}
			text := controllertest.Format(t, plan, nil)
			if diff := cmp.Diff(c.want, assigned(v, text)); diff != "" {
				t.Errorf("assigned (-want +got):\n%s\n%s", diff, text)
			}
			if wake := "wake " + c.wake + "\n"; strings.Contains(text, "wake ") != (c.wake != "") || c.wake != "" && !strings.Contains(text, wake) {
				t.Errorf("want %sin\n%s", wake, text)
			}
			if !strings.Contains(text, c.wait) || c.want == nil && len(plan.Waits) == 0 && plan.Wake.IsZero() {
				t.Errorf("want %q, in\n%s", c.wait, text)
			}
		})
	}
}

// assigned is who gets which call, from a plan's text.
func assigned(v state.View, text string) (all []string) {
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "operation.assign") {
			continue
		}
		id := strings.Split(line, `"`)[3]
		node := strings.Split(line, `"`)[9]
		all = append(all, string(v.Operation(api.OperationID(id)).VolumeID)+" "+node)
	}
	return all
}

// TestExplainSaysWhoHasTheSlot: which slot an operation waits for, who has it,
// and until when.
func TestExplainSaysWhoHasTheSlot(t *testing.T) {
	t.Parallel()
	since := statetest.Now().Add(-time.Minute).UTC().Format(time.RFC3339)
	until := statetest.Now().Add(2 * time.Minute).UTC().Format(time.RFC3339)
	for name, c := range map[string]struct {
		limits dispatcher.Calls
		world  string
		want   string
	}{
		"Its turn has come": {dispatcher.Calls{}, node("n1") + call("create", "b", ""), ""},
		"One call at a time": {
			dispatcher.Calls{Max: 1}, node("n1") + call("create", "a", running("now-1m")) + call("create", "b", ""),
			"waits for its turn: plugin disk gets one call at once (max_calls = 1); operation create/default/a@1 on node n1 has been under way since " + since + ", until " + until + " at the latest",
		},
		"One call at a time on the node": {
			dispatcher.Calls{MaxPerNode: 1}, node("n1") + call("create", "a", running("now-1m")) + call("create", "b", ""),
			"waits for its turn: node n1, which is to make it, makes one call to plugin disk at once (max_calls_per_node = 1); operation create/default/a@1 on node n1 has been under way since " +
				since + ", until " + until + " at the latest",
		},
		"Its volume has half": {
			dispatcher.Calls{Max: 2, Slow: time.Hour}, node("n1") + `operation {"kind":"publish","volume_id":"b","node_id":"n1","status":{` + running("now-1m") + "}}\n" + call("create", "b", ""),
			"waits for its turn: volume b has one call under way, half of those that plugin disk gets at once (max_calls = 2)",
		},
		"After a refusal": {
			dispatcher.Calls{}, node("n1") + call("create", "b", `"attempt":3,"code":"PERMISSION_DENIED","message":"no.","next":"now+2s"`),
			"attempt 3 answered PERMISSION_DENIED: no. The plugin may not make this call with the secrets or the rights that it has: correct them, and the call is made again",
		},
		"What it names has another node": {
			dispatcher.Calls{}, node("n1") + `publication {"volume_id":"b","node_id":"n7","status":{"outcome":"published"}}
publication {"volume_id":"b","node_id":"n8"}
operation {"kind":"publish","volume_id":"b","node_id":"n1","status":{"attempt":2,"code":"FAILED_PRECONDITION","message":"in use by i-7","next":"now+2s"}}` + "\n",
			"attempt 2 answered FAILED_PRECONDITION: in use by i-7. The volume is still attached to another node. It is tried at once when the volume is detached from node n7",
		},
		"What it names is not known here": {
			dispatcher.Calls{}, node("n1") + `operation {"kind":"publish","volume_id":"b","node_id":"n1","status":{"attempt":2,"code":"FAILED_PRECONDITION","next":"now+2s"}}` + "\n",
			"attempt 2 answered FAILED_PRECONDITION. The volume is still attached to another node. No other node of this cluster has it attached: detach it at the provider",
		},
		"Without a plugin": {dispatcher.Calls{}, call("create", "b", ""), "no node runs plugin disk"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := statetest.Load(t, c.world).View()
			got := ""
			op := v.Operation("create/default/b@1")
			if op == nil {
				op = v.Operation("publish/default/b/n1@1")
			}
			for _, w := range dispatcher.New(dispatcher.Limits{"disk": c.limits}).Explain(v, statetest.Now(), op) {
				got += w.Reason
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("it says (-want +got):\n%s", diff)
			}
		})
	}
}
