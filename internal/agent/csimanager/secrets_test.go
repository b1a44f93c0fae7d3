package csimanager_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/internal/agent/csi/csitest"
)

// TestSecretsAreForStagingAndPublishing, asked for when they are needed, and
// kept nowhere.
func TestSecretsAreForStagingAndPublishing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, csitest.Options{Stage: true})
	a := w.volume(wish{})
	a.Secrets = true
	w.mount(a)
	w.mount(a) // what is there needs none
	if diff := cmp.Diff([]string{"default/pg"}, w.asked); diff != "" {
		t.Errorf("asked for (-want +got):\n%s", diff)
	}
	staging, err := w.ledger.Staging("default", "pg")
	if err != nil {
		t.Fatal(err)
	}
	if kept, err := json.Marshal(staging); err != nil || strings.Contains(string(kept), passphrase) {
		t.Errorf("the ledger has %s, %v", kept, err)
	}
	w.restart()
	w.sealed = errors.New("no server answers")
	w.mount(a) // a restart needs no servers for what is mounted
	w.unmount(a)
	with := map[string]bool{}
	for _, c := range w.backend.Calls() {
		if strings.Contains(string(c.Request), passphrase) {
			with[c.Method] = true
		}
	}
	if diff := cmp.Diff(map[string]bool{"NodeStageVolume": true, "NodePublishVolume": true}, with); diff != "" {
		t.Errorf("calls with the secret (-want +got):\n%s", diff)
	}
	w.wantNoViolations()
}

// TestWithoutItsSecretsNothingIsStaged, and it is said what is waited for.
func TestWithoutItsSecretsNothingIsStaged(t *testing.T) {
	t.Parallel()
	w := newWorld(t, csitest.Options{Stage: true})
	a := w.volume(wish{})
	a.Secrets, w.sealed = true, errors.New("no server answers")
	_, err := w.mounter.Mount(t.Context(), a)
	if err == nil || !strings.Contains(err.Error(), "ask for the volume's secrets: no server answers") {
		t.Errorf("error %v", err)
	}
	if strings.Contains(w.calls(), "NodeStageVolume") {
		t.Errorf("calls:\n%s", w.calls())
	}
	w.unmount(a)
}
