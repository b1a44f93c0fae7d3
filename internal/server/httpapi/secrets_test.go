package httpapi_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/keyring"
	"github.com/berth-dev/berth/internal/server/httpapi"
)

const passphrase = "correct horse battery staple"

// sealedWorld has a volume with secrets, which n1 is to mount, n2 lets go of,
// n3 has an operation of, and n4 has nothing to do with.
func sealedWorld(t *testing.T, keys *keyring.Keyring) string {
	t.Helper()
	if err := keys.Generate(); err != nil {
		t.Fatal(err)
	}
	id, box, err := keys.Seal([]byte(`{"key":"`+passphrase+`"}`), "volume\x00default\x00pg")
	if err != nil {
		t.Fatal(err)
	}
	hash := sha256.Sum256([]byte("s3cret"))
	var world strings.Builder
	for _, node := range []string{"n1", "n2", "n3", "n4"} {
		fmt.Fprintf(&world, "node {\"id\":%q,\"status\":{\"state\":\"ready\"}}\nidentity {\"node_id\":%q,\"secret_hash\":%q}\n",
			node, node, hex.EncodeToString(hash[:]))
	}
	fmt.Fprintf(&world, `volume {"id":"pg","secrets":["key"],"status":{"state":"ready","external_id":"x"}}
volume {"id":"plain","status":{"state":"ready","external_id":"y"}}
secrets {"volume_id":"pg","names":["key"],"key_id":%q,"box":%q}
attachment {"alloc_id":"a1","name":"data","volume_id":"pg","node_id":"n1","status":{"state":"controller-published"}}
attachment {"alloc_id":"a1","name":"more","volume_id":"plain","node_id":"n1","status":{"state":"controller-published"}}
attachment {"alloc_id":"a2","name":"data","volume_id":"pg","node_id":"n2","status":{"state":"unpublishing"}}
operation {"id":"publish/default/pg/n9@1","kind":"publish","volume_id":"pg","node_id":"n9","status":{"state":"assigned","executor":"n3"}}
`, id, base64.StdEncoding.EncodeToString(box))
	return world.String()
}

func ring(t *testing.T) *keyring.Keyring {
	t.Helper()
	keys, err := keyring.Load(filepath.Join(t.TempDir(), "keyring.json"))
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// TestSecretsAreForNodesThatHaveACallToMake, with their own identity.
func TestSecretsAreForNodesThatHaveACallToMake(t *testing.T) {
	t.Parallel()
	keys := ring(t)
	f := newFake(t, sealedWorld(t, keys), func(c *httpapi.Config) { c.Keyring = keys })
	for _, tc := range []struct {
		node, secret, volume string
		want                 string // of the error
	}{
		{"n1", "s3cret", "pg", ""},
		{"n3", "s3cret", "pg", ""},
		{"n2", "s3cret", "pg", "node n2 has no call to make for volume pg of namespace default"},
		{"n4", "s3cret", "pg", "node n4 has no call to make for volume pg of namespace default"},
		{"n1", "guess", "pg", "node n1 is registered with another secret"},
		{"n1", "s3cret", "other", "node n1 has no call to make for volume other of namespace default"},
	} {
		got := f.get("GET", "/v1/agent/secrets/default/"+tc.volume, api.HeaderNode, tc.node, "Authorization", "Bearer "+tc.secret)
		if tc.want != "" {
			if e := got.refusal(t); e.Message != tc.want || got.status != http.StatusForbidden || strings.Contains(got.body, passphrase) {
				t.Errorf("%s: %d %s", tc.node, got.status, got.body)
			}
			continue
		}
		var answer api.Secrets
		if err := json.Unmarshal([]byte(got.body), &answer); err != nil || answer.Secrets["key"] != passphrase || got.status != http.StatusOK {
			t.Errorf("%s: %d %s", tc.node, got.status, got.body)
		}
	}
	if got := f.get("GET", "/v1/agent/secrets/default/plain", api.HeaderNode, "n1", "Authorization", "Bearer s3cret"); got.body != "{}\n" {
		t.Errorf("a volume without secrets: %s", got.body)
	}
	for _, path := range []string{"volumes", "volume/default/pg", "operations", "attachments", "status"} {
		if got := f.get("GET", "/v1/"+path); got.status != http.StatusOK || strings.Contains(got.body, passphrase) || strings.Contains(got.body, `"box"`) {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
	if strings.Contains(f.logs.String(), passphrase) {
		t.Error("the log has the secret")
	}
}

// TestServersWithoutTheKeySaySo, and make no second one.
func TestServersWithoutTheKeySaySo(t *testing.T) {
	t.Parallel()
	world := sealedWorld(t, ring(t))
	other := ring(t)
	f := newFake(t, world, func(c *httpapi.Config) { c.Keyring = other })
	got := f.get("GET", "/v1/agent/secrets/default/pg", api.HeaderNode, "n1", "Authorization", "Bearer s3cret")
	if e := got.refusal(t); !strings.Contains(e.Message, "which this server does not have: copy keyring.json") {
		t.Errorf("%d %s", got.status, got.body)
	}
	put := func(f *fake) response {
		body := `{"plugin_id":"disk","capabilities":[{"access_mode":"single-node-writer","attachment_mode":"file-system"}],"secrets":{"key":"` + passphrase + `"}}`
		r := httptest.NewRequest(http.MethodPut, "/v1/volume/default/new", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		f.ServeHTTP(w, r)
		return response{w.Code, w.Header(), w.Body.String()}
	}
	if got := put(f); !strings.Contains(got.body, "the cluster has secrets, and this server has no key") || !other.Empty() {
		t.Errorf("%d %s", got.status, got.body)
	}
	if got := put(newFake(t, "", nil)); !strings.Contains(got.body, "this server keeps no secrets") {
		t.Errorf("without a keyring: %d %s", got.status, got.body)
	}
}

// anything is a planner that refuses nothing.
type anything struct{}

func (anything) Plan(context.Context, httpapi.Specs) (api.Plan, error) { return api.Plan{}, nil }

// TestCheckOfAnImportMakesNoKey: nothing of it is kept.
func TestCheckOfAnImportMakesNoKey(t *testing.T) {
	t.Parallel()
	keys := ring(t)
	f := newFake(t, `node {"id":"n1","status":{"state":"ready"}}
instance {"plugin_id":"disk","node_id":"n1","healthy":true}
`, func(c *httpapi.Config) { c.Keyring, c.Plan = keys, anything{} })
	body := `{"plugin_id":"disk","external_id":"x","capabilities":[{"access_mode":"single-node-writer","attachment_mode":"file-system"}],"secrets":{"key":"` + passphrase + `"}}`
	r := httptest.NewRequest(http.MethodPost, "/v1/volume/default/found/import?check=true", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	f.ServeHTTP(w, r)
	if w.Code != http.StatusOK || !keys.Empty() {
		t.Errorf("%d %s; without a key: %t", w.Code, w.Body, keys.Empty())
	}
}
