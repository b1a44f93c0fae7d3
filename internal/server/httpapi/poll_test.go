package httpapi_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-dev/berth/api"
)

// polled is a blocking query under way.
type polled struct {
	began time.Time
	done  chan struct{}
	took  time.Duration
	response
}

// poll asks from an index on, in the background.
func (w *world) poll(path string, index uint64, wait string) *polled {
	w.t.Helper()
	p := &polled{began: time.Now(), done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.response = w.send(http.MethodGet, fmt.Sprintf("%s?index=%d&wait=%s", path, index, wait), nil)
		p.took = time.Since(p.began)
	}()
	synctest.Wait()
	return p
}

func (p *polled) waiting() bool {
	synctest.Wait()
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// index is where a list or a thing is now.
func (w *world) index(path string) uint64 {
	w.t.Helper()
	got := w.send(http.MethodGet, path, nil)
	n, err := strconv.ParseUint(got.header.Get(api.HeaderIndex), 10, 64)
	if err != nil {
		w.t.Fatalf("%s: %d %s: %v", path, got.status, got.body, err)
	}
	return n
}

func TestBlockingQueryThatIsBehindAnswersAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		defer w.stop()
		w.join("n1").provision("pg")
		for _, path := range []string{"/v1/volumes", "/v1/volume/default/pg", "/v1/nodes", "/v1/node/n1", "/v1/plugins", "/v1/plugin/disk", "/v1/operations", "/v1/operation/create/default/pg@1"} {
			at := w.index(path)
			for _, index := range []uint64{0, 1, at - 1} {
				if p := w.poll(path, index, "1m"); p.waiting() || p.took != 0 {
					t.Errorf("%s from %d, which is at %d, waits", path, index, at)
				}
			}
		}
	})
}

func TestBlockingQueryEndsWithItsWait(t *testing.T) {
	t.Parallel()
	for wait, want := range map[string]time.Duration{"0s": 0, "5s": 5 * time.Second, "": time.Minute, "24h": 5 * time.Minute} {
		t.Run(want.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := start(t)
				defer w.stop()
				w.join("n1").provision("pg")
				at := w.index("/v1/volumes")
				p := w.poll("/v1/volumes", at, wait)
				<-p.done
				if p.took != want || p.status != http.StatusOK || p.header.Get(api.HeaderIndex) != strconv.FormatUint(at, 10) {
					t.Errorf("answered %d at index %s after %s, want what there is at %d after %s", p.status, p.header.Get(api.HeaderIndex), p.took, at, want)
				}
			})
		})
	}
}

// TestBlockingQueryWakes for what it is about, and sleeps on through the rest.
// Close neighbours may wake it too: what is watched for a range of rows
// may be shared with the next one.
func TestBlockingQueryWakes(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	apply := func(ns api.NamespaceID, id api.VolumeID) func(*world, *agent) error {
		return func(w *world, _ *agent) error { _, err := w.ApplyVolume(ctx, ns, id, volume(), 0); return err }
	}
	idle := func(w *world, _ *agent) error {
		spec := api.JobSpec{Type: api.JobService, Groups: []api.TaskGroup{{Name: "g", Tasks: []api.Task{{Name: "t", Driver: "exec", Config: runs()}}}}}
		_, err := w.ApplyJob(ctx, "default", "idle", spec, 0)
		return err
	}
	unhealthy := func(_ *world, a *agent) error {
		a.report(api.Facts{Instances: []api.InstanceFact{{PluginID: "disk", InstanceStatus: api.InstanceStatus{
			Type: api.InstanceMonolith, Reason: "it is broken", Driver: "disk.example",
		}}}})
		return nil
	}
	otherNode := func(w *world, _ *agent) error { w.join("n2"); return nil }
	running := func(_ *world, a *agent) error {
		work, err := a.Assignments(ctx, a.session, a.epoch, 0, 0)
		if err != nil {
			return err
		}
		a.report(api.Facts{Allocations: []api.AllocFact{{ID: work.Allocations[0].ID, Status: api.AllocStatus{State: api.AllocRunning}}}})
		return nil
	}
	nothing := func(_ *world, a *agent) error { a.report(api.Facts{}); return nil }
	for name, tc := range map[string]struct {
		path  string
		event func(*world, *agent) error
		wakes bool
	}{
		"VolumesNewOne":            {"/v1/volumes", apply("default", "new"), true},
		"VolumesOfAnotherNoun":     {"/v1/volumes", idle, false},
		"VolumeOfItsNameElsewhere": {"/v1/volume/default/pg", apply("other", "pg"), false},
		"VolumeOfAnotherNoun":      {"/v1/volume/default/pg", idle, false},
		"VolumeReportOfNothing":    {"/v1/volume/default/pg", nothing, false},
		"JobsNewOne":               {"/v1/jobs", idle, true},
		"JobsAllocationOfOne":      {"/v1/jobs", running, true},
		"JobOther":                 {"/v1/job/default/db", idle, false},
		"JobAllocationOfIt":        {"/v1/job/default/db", running, true},
		"Allocations":              {"/v1/allocations", running, true},
		"AllocationsOtherNoun":     {"/v1/allocations", unhealthy, false},
		"NodesNewOne":              {"/v1/nodes", otherNode, true},
		"NodeInstanceOfIt":         {"/v1/node/n1", unhealthy, true},
		"NodeAllocationOfIt":       {"/v1/node/n1", running, true},
		"PluginsHealth":            {"/v1/plugins", unhealthy, true},
		"PluginHealth":             {"/v1/plugin/disk", unhealthy, true},
		"PluginOfAnotherNoun":      {"/v1/plugin/disk", idle, false},
		"OperationsNewOne":         {"/v1/operations", apply("default", "new"), true},
		"OperationOther":           {"/v1/operation/create/default/pg@1", apply("default", "new"), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := start(t)
				defer w.stop()
				n1 := w.join("n1")
				n1.provision("pg")
				n1.run("db", "pg")
				synctest.Wait()
				p := w.poll(tc.path, w.index(tc.path), "5s")
				if !p.waiting() {
					t.Fatalf("%s answered before anything had happened: %s", tc.path, p.body)
				}
				if err := tc.event(w, n1); err != nil {
					t.Fatal(err)
				}
				<-p.done
				if woke := p.took < 5*time.Second; woke != tc.wakes {
					t.Errorf("%s answered after %s; wakes = %v, want %v", tc.path, p.took, woke, tc.wakes)
				}
			})
		})
	}
}

// TestBlockingQueryTellsOfANewReason: what a thing waits for changes with
// things that are not it.
func TestBlockingQueryTellsOfANewReason(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		defer w.stop()
		n1 := w.join("n1")
		n1.provision("pg")
		broken := func(reason string) {
			n1.report(api.Facts{
				Drivers: map[string]api.Driver{"exec": {Reason: reason, MountsVolumes: true}},
				Instances: []api.InstanceFact{{PluginID: "disk", InstanceStatus: api.InstanceStatus{
					Type: api.InstanceMonolith, Reason: reason, Driver: "disk.example",
					PluginCapabilities: []string{api.CapControllerService}, ControllerCapabilities: []string{api.CapCreateDeleteVolume},
				}}},
			})
		}
		broken("it smells")
		if _, err := w.ApplyVolume(t.Context(), "default", "new", volume(), 0); err != nil {
			t.Fatal(err)
		}
		if _, err := w.ApplyJob(t.Context(), "default", "db", job("pg"), 0); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for _, path := range []string{"/v1/volume/default/new", "/v1/job/default/db"} {
			broken("it smells")
			before := w.index(path)
			p := w.poll(path, before, "1m")
			broken("it burns")
			<-p.done
			if p.took != 0 || !strings.Contains(p.body, "it burns") {
				t.Errorf("%s answered after %s: %s", path, p.took, p.body)
			}
			// Who comes after the event is not late either.
			if late := w.poll(path, before, "1m"); late.waiting() {
				t.Errorf("%s from before the event waits", path)
			}
		}
	})
}

// TestBlockingQueryTellsWhyADrainWaits: that may change with what is not on the
// node, and not even a node.
func TestBlockingQueryTellsWhyADrainWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		defer w.stop()
		n1 := w.join("n1")
		n1.provision("pg")
		n1.run("db", "pg")
		w.join("n2")
		if _, err := w.SetEligibility(t.Context(), "n2", false, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := w.DrainNode(t.Context(), "n1", api.DrainRequest{NoDeadline: true}, 0); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		p := w.poll("/v1/node/n1", w.index("/v1/node/n1"), "5s")
		if !p.waiting() {
			t.Fatalf("it answered before anything had happened: %s", p.body)
		}
		if _, err := w.ApplyVolume(t.Context(), "default", "other", volume(), 0); err != nil {
			t.Fatal(err)
		}
		<-p.done
		if p.took >= 5*time.Second || !strings.Contains(p.body, "it has nowhere to go") {
			t.Errorf("answered after %s: %s", p.took, p.body)
		}
		if p.took == 0 {
			t.Error("the change was answered at once, and not with those that come right after it")
		}
	})
}

func TestBlockingQueryTellsOfADeletion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		defer w.stop()
		n1 := w.join("n1")
		n1.provision("pg")
		if err := w.DeleteVolume(t.Context(), "default", "pg", 0); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		p := w.poll("/v1/volume/default/pg", w.index("/v1/volume/default/pg"), "1m")
		n1.answerOperation()
		<-p.done
		if e := p.refusal(t); e.Code != api.CodeNotFound || p.took != 0 {
			t.Errorf("answered %s after %s, want not_found at once", p.body, p.took)
		}
	})
}

// TestBlockingQueryAheadOfTheServer waits: the caller has seen another state.
func TestBlockingQueryAheadOfTheServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		defer w.stop()
		w.join("n1").provision("pg")
		p := w.poll("/v1/volumes", 1<<60, "3s")
		<-p.done
		if p.took != 3*time.Second || p.header.Get(api.HeaderIndex) != strconv.FormatUint(w.index("/v1/volumes"), 10) {
			t.Errorf("answered index %s after %s", p.header.Get(api.HeaderIndex), p.took)
		}
	})
}

// TestGoneCallerIsNotWaitedFor: the query ends with its connection.
func TestGoneCallerIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		w.join("n1")
		ctx, cancel := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://server/v1/nodes?index=%d&wait=5m", w.index("/v1/nodes")), nil)
		if err != nil {
			t.Fatal(err)
		}
		failed := make(chan error, 1)
		go func() {
			resp, err := w.http.Do(req)
			if err == nil {
				_ = resp.Body.Close()
			}
			failed <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-failed; !errors.Is(err, context.Canceled) {
			t.Errorf("the query ended with %v, want %v", err, context.Canceled)
		}
		synctest.Wait()
		began := time.Now()
		w.stop()
		if took := time.Since(began); took > time.Second {
			t.Errorf("the server took %s to stop: the query was still there", took)
		}
	})
}

// TestStoppingServerAnswersWhoWaits, at once and with what there is.
func TestStoppingServerAnswersWhoWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		w.join("n1")
		var all []*polled
		for range 20 {
			all = append(all, w.poll("/v1/nodes", w.index("/v1/nodes"), "5m"))
		}
		began := time.Now()
		w.stop()
		if took := time.Since(began); took > time.Second {
			t.Errorf("the server took %s to stop", took)
		}
		for _, p := range all {
			<-p.done
			if p.status != http.StatusOK || p.took > time.Second {
				t.Errorf("answered %d after %s, want what there is at once", p.status, p.took)
			}
		}
	})
}
